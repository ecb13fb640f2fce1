//! Tests of turns, with a minimal machine.

use super::shared::Shared;
use super::*;
use crate::lock;
use kiban_base::{Instant, Wait};
use std::io;
use std::time::Duration;

/// A time longer than any test. A wait that missed its wake-up might still find its result after this time,
/// so tests check the elapsed time.
const PATIENCE: Duration = Duration::from_secs(20);

/// A machine with messages from the test, a timer, and an event that occurs once without a notification.
#[derive(Default)]
struct Desk {
    words: Vec<(usize, u32)>,
    has_progress: bool,
    /// The time when the timer expires, and the number of times that it has expired.
    timer: Option<Instant>,
    rung: u32,
    /// The event occurs in the first drive after a driver has armed its bells.
    comes_late: bool,
    more: bool,
    armed: u32,
    slept: u32,
}

impl Desk {
    fn take(&mut self, reader: usize) -> Option<u32> {
        let index = self.words.iter().position(|&(to, _)| to == reader)?;
        Some(self.words.remove(index).1)
    }
}

impl Machine for Desk {
    fn drive(&mut self, now: Instant) {
        if self.timer.is_some_and(|due| now >= due) {
            self.timer = None;
            self.rung += 1;
        }
        if self.comes_late && self.armed > 0 {
            (self.comes_late, self.more) = (false, true);
        }
    }
    fn settle(&mut self, _: Instant) {}
    fn flush(&mut self, _: Instant) {}
    fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.has_progress)
    }
    fn deadline(&self) -> Instant {
        self.timer.unwrap_or(Instant::NEVER)
    }
    fn has_more(&self) -> bool {
        self.more
    }
    fn arm(&mut self) {
        self.more = false;
        self.armed += 1;
    }
    fn after_sleep(&mut self) {
        self.slept += 1;
    }
}

fn turn(desk: Desk) -> Turn<Desk, usize> {
    let turn = Turn::new::<io::Error>("desk", HelperPolicy::SELDOM, |_| Ok(desk))
        .expect("a few files and a thread may be had");
    turn.set_wait(Wait::Interrupt);
    turn
}

/// Waits for a condition. If this takes too long, the test fails.
fn until(turn: &Turn<Desk, usize>, what: &str, is_so: impl Fn(&Shared<Desk, usize>) -> bool) {
    let end = turn.now() + PATIENCE;
    while !is_so(&turn.shared) {
        assert!(turn.now() < end, "{what}");
        std::thread::yield_now();
    }
}

fn a_driver_sleeps(shared: &Shared<Desk, usize>) -> bool {
    lock(&shared.held).sleeps_until != Instant::ZERO
}

#[test]
fn an_event_between_arming_and_sleeping_is_not_missed() {
    let turn = turn(Desk { comes_late: true, ..Desk::default() });
    // Only a thread that rearms and looks again notices an event without a notification.
    let found = turn.wait(0, None, PATIENCE, |desk| (desk.armed > 1).then_some(desk.slept));
    assert_eq!(found, Ok(0), "armed again without a sleep");
}

#[test]
fn each_of_many_waiting_threads_gets_its_own_result() {
    const READERS: usize = 4;
    const WORDS: u32 = 200;
    for policy in [Wait::Poll, Wait::Interrupt, Wait::Adaptive] {
        // If other threads need the core, a polling thread waits for the scheduler at every message.
        let words = if policy == Wait::Poll { WORDS / 10 } else { WORDS };
        let turn = turn(Desk::default());
        turn.set_wait(policy);
        let begin = turn.now();
        std::thread::scope(|scope| {
            for reader in 0..READERS {
                let turn = turn.clone();
                scope.spawn(move || {
                    for word in 0..words {
                        let heard = turn.wait(reader, None, PATIENCE, |desk| desk.take(reader));
                        assert_eq!(heard, Ok(word), "{policy}: reader {reader}");
                    }
                });
            }
            for word in 0..words {
                for reader in 0..READERS {
                    turn.work(|desk, _| {
                        desk.words.push((reader, word));
                        desk.has_progress = true;
                    });
                }
                std::thread::yield_now();
            }
        });
        assert_eq!(turn.read(|desk| desk.words.len()), 0, "{policy}");
        assert!(turn.now() < begin + PATIENCE, "{policy}: no wake-up was lost");
    }
}

#[test]
fn a_machines_timer_ends_a_sleep_even_if_set_during_it() {
    let turn = turn(Desk::default());
    let due = turn.now() + Duration::from_millis(3);
    turn.work(|desk, _| desk.timer = Some(due));
    assert_eq!(turn.wait(0, None, PATIENCE, |desk| (desk.rung == 1).then_some(())), Ok(()));
    assert!(turn.now() >= due, "not before it was due");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| turn.wait(0, None, PATIENCE, |desk| (desk.rung == 2).then_some(())));
        // Do not use the helper here, because on a busy machine its follower looks again by itself.
        until(&turn, "the waiter sleeps", |shared| {
            a_driver_sleeps(shared) && !shared.helper_drives.get() && !shared.followers.any()
        });
        turn.work(|desk, now| desk.timer = Some(now + Duration::from_millis(1)));
        assert_eq!(waits.join().expect("no panic"), Ok(()));
    });
    assert!(turn.now() < due + PATIENCE / 2, "the sleeper was woken for the new alarm");
}

#[test]
fn a_wait_ends_at_its_deadline_whichever_thread_drives() {
    let turn = turn(Desk::default());
    let short = Duration::from_millis(3);
    let never = |_: &mut Desk| None::<()>;
    std::thread::scope(|scope| {
        let drives = scope.spawn(|| turn.wait(0, None, Duration::MAX, |desk| desk.take(0)));
        until(&turn, "somebody sleeps", a_driver_sleeps);
        let end = turn.now() + short;
        assert_eq!(turn.wait(1, None, short, never), Err(WaitError::Timeout));
        assert!(turn.now() >= end, "a follower waits as long as it said");
        turn.work(|desk, _| (desk.words, desk.has_progress) = (vec![(0, 7)], true));
        assert_eq!(drives.join().expect("no panic"), Ok(7));
    });
    let end = turn.now() + short;
    assert_eq!(turn.wait(1, None, short, never), Err(WaitError::Timeout));
    assert!(turn.now() >= end, "and so does a driver");
}

#[test]
fn a_poll_that_sleeps_finds_what_arrives_and_ends_without_it() {
    let turn = turn(Desk::default());
    let nap = || turn.shared.nap(&mut |desk: &mut Desk| desk.take(1));
    assert_eq!((nap(), turn.read(|desk| desk.slept)), (None, 1));
    turn.work(|desk, _| desk.words.push((1, 7)));
    assert_eq!((nap(), turn.read(|desk| desk.slept)), (Some(7), 1), "it does not sleep");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| turn.wait(0, None, PATIENCE, |desk| desk.take(0)));
        until(&turn, "a thread drives", a_driver_sleeps);
        assert_eq!(nap(), None);
        turn.work(|desk, _| desk.words.extend([(1, 8), (0, 9)]));
        assert_eq!(nap(), Some(8));
        turn.work(|desk, _| desk.has_progress = true);
        assert_eq!(waits.join().expect("no panic"), Ok(9));
    });
}

#[test]
fn a_follower_that_timed_out_still_wakes_the_others() {
    let turn = turn(Desk::default());
    let driver = lock(&turn.shared.driver);
    let (tell, told) = std::sync::mpsc::channel();
    let theirs = turn.clone();
    // Do not use a scoped thread, because the test could not fail if that thread got stuck.
    std::thread::spawn(move || {
        let waited = theirs.wait(1, None, Duration::ZERO, |desk| {
            desk.has_progress = true;
            None::<()>
        });
        let _ = tell.send(waited);
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Err(WaitError::Timeout)));
    drop(driver);
}

#[test]
fn the_helper_drives_when_no_caller_does_and_yields_to_callers() {
    let turn = turn(Desk::default());
    let due = turn.now() + Duration::from_millis(30);
    turn.work(|desk, _| desk.timer = Some(due));
    until(&turn, "the timer fires while no thread calls", |shared| lock(&shared.held).machine.rung == 1);
    until(&turn, "the helper sleeps", |shared| shared.helper_drives.get());
    turn.work(|desk, _| desk.words.push((0, 1)));
    assert_eq!(turn.wait(0, None, PATIENCE, |desk| desk.take(0)), Ok(1));
    until(&turn, "the helper is gone", |shared| {
        // Without this, the event would occur again on a busy machine.
        turn.work(|_, _| ());
        shared.driver.try_lock().is_ok()
    });
}

#[test]
fn the_helper_drives_after_a_driver_has_panicked() {
    let turn = turn(Desk::default());
    let panicked = std::thread::scope(|scope| {
        let driver = scope.spawn(|| {
            until(&turn, "no other thread drives", |shared| {
                // The helper yields to threads that do work.
                turn.work(|_, _| ());
                let driver = shared.driver.try_lock();
                assert!(driver.is_err(), "it panics as soon as it drives");
                false
            });
        });
        driver.join().is_err()
    });
    assert!(panicked && turn.shared.driver.is_poisoned());
    let due = turn.now() + Duration::from_millis(30);
    turn.work(|desk, _| desk.timer = Some(due));
    until(&turn, "the timer fires while no thread calls", |shared| lock(&shared.held).machine.rung == 1);
}

#[test]
fn closing_ends_current_and_later_waits() {
    let turn = turn(Desk::default());
    std::thread::scope(|scope| {
        let waits = [0, 1].map(|queue| {
            let turn = &turn;
            scope.spawn(move || turn.wait(queue, None, Duration::MAX, |desk| desk.take(queue)))
        });
        until(&turn, "one drives, one follows", |shared| a_driver_sleeps(shared) && shared.followers.any());
        turn.close(|desk, _| desk.rung = 9);
        for waits in waits {
            assert_eq!(waits.join().expect("no panic"), Err(WaitError::Closed));
        }
    });
    assert_eq!(turn.read(|desk| desk.rung), 9, "the last work was done");
    assert_eq!(turn.wait(0, None, Duration::MAX, |desk| desk.take(0)), Err(WaitError::Closed));
}

#[test]
fn each_queue_has_its_policy_and_report_until_it_is_forgotten() {
    let turn = turn(Desk::default());
    turn.set_queue_wait(1, Wait::Poll);
    assert_eq!([0, 1].map(|queue| turn.wait_policy(queue)), [Wait::Interrupt, Wait::Poll]);
    let short = Duration::from_micros(10);
    let never = |_: &mut Desk| None::<()>;
    assert_eq!(turn.wait(1, Some(Wait::Interrupt), short, never), Err(WaitError::Timeout));
    assert!(turn.wait_report(1).is_none(), "a call with a policy of its own teaches the queue nothing");
    assert_eq!(turn.wait(1, None, PATIENCE, |desk| (desk.armed < u32::MAX).then_some(())), Ok(()));
    assert!(turn.wait_report(1).is_none(), "what is there at once is not waited for");
    // No other thread may drive, because the follower's queue would then learn nothing.
    until(&turn, "a report", |_| {
        assert_eq!(turn.wait(1, None, short, never), Err(WaitError::Timeout));
        turn.wait_report(1).is_some()
    });
    turn.forget_queue(1);
    assert_eq!((turn.wait_policy(1), turn.wait_report(1).is_none()), (Wait::Interrupt, true));
}
