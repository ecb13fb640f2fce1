//! Lock-free structures in every order; and each again with an ordering taken away, which must be found.

use kiban_model as model;
use std::panic::catch_unwind;
use std::sync::atomic::Ordering::{self, Acquire, Release, SeqCst};

/// The model holds as the code is shipped, and not without any of these orderings.
fn holds_and_needs(run: fn(), orderings: &[Ordering]) {
    run();
    for &ordering in orderings {
        // In a thread of its own: what is weakened there is weakened for nobody else.
        let found = std::thread::spawn(move || {
            model::weaken(ordering);
            catch_unwind(run).is_err()
        });
        assert!(
            found.join().expect("it is caught"),
            "without {ordering:?} nothing is found: the model sees nothing"
        );
    }
}

#[test]
fn slots_come_home_from_two_threads_while_the_owner_takes_them() {
    holds_and_needs(model::slots_come_home_from_two_threads_while_the_owner_takes_them, &[Acquire, Release]);
}

#[test]
fn the_last_one_home_frees_a_depot_that_goes_meanwhile() {
    holds_and_needs(model::the_last_one_home_frees_a_depot_that_goes_meanwhile, &[Acquire, Release]);
}

#[test]
fn the_last_reference_has_the_thing_alone() {
    holds_and_needs(model::the_last_reference_has_the_thing_alone, &[Acquire, Release]);
}

#[test]
fn entries_cross_a_ring_in_order_and_alone() {
    holds_and_needs(model::entries_cross_a_ring_in_order_and_alone, &[Acquire, Release]);
}

#[test]
fn bytes_cross_a_pipe_in_order_and_alone() {
    holds_and_needs(model::bytes_cross_a_pipe_in_order_and_alone, &[Acquire, Release]);
}

#[test]
fn the_holder_of_a_spin_lock_is_alone() {
    holds_and_needs(model::the_holder_of_a_spin_lock_is_alone, &[Acquire, Release]);
}

#[test]
fn two_first_users_of_a_published_value_use_the_same() {
    holds_and_needs(model::two_first_users_of_a_published_value_use_the_same, &[Acquire, Release]);
}

#[test]
fn readers_of_a_published_list_see_each_link_whole() {
    holds_and_needs(model::readers_of_a_published_list_see_each_link_whole, &[Acquire, Release]);
}

#[test]
fn nobody_sleeps_while_nobody_drives() {
    holds_and_needs(|| model::nobody_sleeps_while_nobody_drives(false), &[SeqCst]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_follower_that_notes_the_last_call_late_sleeps_while_nobody_drives() {
    model::nobody_sleeps_while_nobody_drives(true);
}

#[test]
fn who_takes_an_event_wakes_the_others_who_sleep() {
    model::who_takes_an_event_wakes_the_others_who_sleep(false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_sleeper_that_counts_itself_late_misses_what_another_takes() {
    model::who_takes_an_event_wakes_the_others_who_sleep(true);
}
