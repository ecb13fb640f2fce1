//! Runs the models of the lock-free structures in every order, and runs each again with a weakened ordering,
//! which must fail.

use kiban_model as model;
use std::panic::catch_unwind;
use std::sync::atomic::Ordering::{self, Acquire, Release, SeqCst};

/// Checks that the model passes with the production code, and fails if any one of these orderings is
/// weakened.
fn holds_and_needs(run: fn(), orderings: &[Ordering]) {
    run();
    for &ordering in orderings {
        // Run in a separate thread, so that the weakened ordering does not affect other tests.
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
fn slots_are_returned_by_two_threads_while_the_owner_takes_them() {
    holds_and_needs(model::slots_are_returned_by_two_threads_while_the_owner_takes_them, &[Acquire, Release]);
}

#[test]
fn the_last_returned_slot_frees_a_dropped_pool() {
    holds_and_needs(model::the_last_returned_slot_frees_a_dropped_pool, &[Acquire, Release]);
}

#[test]
fn the_last_reference_is_exclusive() {
    holds_and_needs(model::the_last_reference_is_exclusive, &[Acquire, Release]);
}

#[test]
fn entries_cross_a_ring_in_order_and_exclusively() {
    holds_and_needs(model::entries_cross_a_ring_in_order_and_exclusively, &[Acquire, Release]);
}

#[test]
fn bytes_cross_a_pipe_in_order_and_exclusively() {
    holds_and_needs(model::bytes_cross_a_pipe_in_order_and_exclusively, &[Acquire, Release]);
}

#[test]
fn the_holder_of_a_spin_lock_has_exclusive_access() {
    holds_and_needs(model::the_holder_of_a_spin_lock_has_exclusive_access, &[Acquire, Release]);
}

#[test]
fn concurrent_first_users_of_a_published_value_share_it() {
    holds_and_needs(model::concurrent_first_users_of_a_published_value_share_it, &[Acquire, Release]);
}

#[test]
fn readers_of_a_published_list_see_each_link_whole() {
    holds_and_needs(model::readers_of_a_published_list_see_each_link_whole, &[Acquire, Release]);
}

#[test]
fn no_thread_sleeps_while_none_drives() {
    holds_and_needs(|| model::no_thread_sleeps_while_none_drives(false), &[SeqCst]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_follower_that_notes_the_last_call_late_sleeps_while_none_drives() {
    model::no_thread_sleeps_while_none_drives(true);
}

#[test]
fn taking_an_event_wakes_the_other_sleepers() {
    model::taking_an_event_wakes_the_other_sleepers(false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_sleeper_that_counts_itself_late_misses_what_another_takes() {
    model::taking_an_event_wakes_the_other_sleepers(true);
}

#[test]
fn a_sleeper_sees_each_flag_and_what_was_written_before() {
    holds_and_needs(
        || model::a_sleeper_sees_each_flag_and_what_was_written_before(false),
        &[Acquire, Release],
    );
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_sleeper_misses_a_flag_that_is_set_after_the_ring() {
    model::a_sleeper_sees_each_flag_and_what_was_written_before(true);
}

#[test]
fn a_flag_that_mirrors_a_locked_queue_hides_no_entry() {
    model::a_flag_that_mirrors_a_locked_queue_hides_no_entry(false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_flag_that_is_set_after_the_lock_hides_an_entry() {
    model::a_flag_that_mirrors_a_locked_queue_hides_no_entry(true);
}
