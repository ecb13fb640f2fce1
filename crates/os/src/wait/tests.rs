//! Tests of every policy with every sleeper, of deadlines, and of shared processors.

use super::*;
use crate::clock::Clock;
use crate::clock::{allowed_cpus, pin_thread};
use kiban_base::{Bell, Instant, Wait};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

const POLICIES: [Wait; 4] =
    [Wait::Poll, Wait::Interrupt, Wait::Hybrid { spin: Duration::from_micros(20) }, Wait::Adaptive];

/// Sends messages back and forth repeatedly. If a wake-up were lost, the exchange would stop.
fn every_message_is_seen(wait: Wait, sleepers: [impl Sleeper + Sync; 2]) {
    let messages = 2_000;
    let clock = Clock::new();
    let places = [(AtomicU64::new(0), Bell::new()), (AtomicU64::new(0), Bell::new())];
    let next = |waiting: &mut Waiting, place: usize, seen: u64| {
        let (count, bell) = &places[place];
        let look = || Some(count.load(Acquire)).filter(|&count| count > seen);
        waiting.wait(bell, &sleepers[place], Instant::NEVER, look).expect("there is no deadline")
    };
    let send = |place: usize| {
        places[place].0.fetch_add(1, Release);
        ring(&sleepers[place], &places[place].1);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut waiting = Waiting::new(wait, clock);
            for message in 0..messages {
                assert_eq!(next(&mut waiting, 1, message), message + 1);
                send(0);
            }
        });
        let mut waiting = Waiting::new(wait, clock);
        for message in 0..messages {
            send(1);
            assert_eq!(next(&mut waiting, 0, message), message + 1);
        }
        let report = waiting.report();
        assert_eq!(report.waits + report.at_once, messages, "{wait}: {report:?}");
    });
}

#[test]
fn every_policy_sees_every_message_on_an_eventfd() {
    for wait in POLICIES {
        let sleepers =
            [EventSleeper::new(), EventSleeper::new()].map(|new| new.expect("a few files may be opened"));
        every_message_is_seen(wait, sleepers);
    }
}

#[test]
fn every_policy_sees_every_message_on_a_futex() {
    for wait in POLICIES {
        every_message_is_seen(wait, [FutexSleeper; 2]);
    }
}

#[test]
fn a_wait_ends_at_its_deadline_and_not_before() {
    let clock = Clock::new();
    let event = EventSleeper::new().expect("file descriptors are available");
    for wait in POLICIES {
        let mut waiting = Waiting::new(wait, clock);
        let mut looks = 0;
        let mut look = || -> Option<()> {
            looks += 1;
            None
        };
        let deadline = clock.now() + Duration::from_millis(2);
        assert_eq!(waiting.wait(&Bell::new(), &event, deadline, &mut look), None);
        assert_eq!(waiting.wait(&Bell::new(), &FutexSleeper, deadline, &mut look), None);
        assert!(clock.now() >= deadline, "{wait}");
        assert!(looks >= 4, "{wait} looked before and after");
        assert_eq!(waiting.report().waits, 0);
    }
}

#[test]
fn a_wait_ends_at_its_deadline_though_each_look_takes_long() {
    let clock = Clock::new();
    let slow = || -> Option<()> {
        let began = clock.now();
        while clock.now().since(began) < Duration::from_micros(3) {}
        None
    };
    for wait in [Wait::Poll, Wait::Hybrid { spin: Duration::from_millis(1) }] {
        let mut waiting = Waiting::new(wait, clock);
        let deadline = clock.now() + Duration::from_millis(2);
        assert_eq!(waiting.wait(&Bell::new(), &FutexSleeper, deadline, slow), None);
        assert!(clock.now() >= deadline, "{wait}");
    }
}

#[test]
fn an_event_before_the_wait_is_found_whatever_the_deadline() {
    let mut waiting = Waiting::new(Wait::Interrupt, Clock::new());
    assert_eq!(waiting.wait(&Bell::new(), &FutexSleeper, Instant::ZERO, || Some(7)), Some(7));
    assert_eq!(waiting.report().at_once, 1);
}

#[test]
fn a_late_wake_up_does_not_disturb_the_next_sleep() {
    let (event, bell) = (EventSleeper::new().expect("file descriptors are available"), Bell::new());
    event.wake(&bell); // as if rung, and found at the last look before the sleep
    let clock = Clock::new();
    let deadline = clock.now() + Duration::from_millis(1);
    let mut waiting = Waiting::new(Wait::Interrupt, clock);
    assert_eq!(waiting.wait(&bell, &event, deadline, || None::<()>), None);
    assert!(clock.now() >= deadline, "it looked once more and slept on");
}

/// Two threads on one CPU exchange messages by polling. Each thread counts its looks per message. Returns the
/// larger of the two medians.
fn looks_for_an_answer(cpu: usize) -> u64 {
    const MESSAGES: usize = 100;
    let clock = Clock::new();
    let (asked, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    let side = |own: &AtomicU64, other: &AtomicU64, asks: bool| {
        pin_thread(cpu).expect("this CPU was allowed");
        let mut waiting = Waiting::new(Wait::Poll, clock);
        let mut looks: Vec<u64> = (1..=MESSAGES as u64)
            .map(|message| {
                let mut count = 0;
                if asks {
                    own.store(message, Release);
                }
                waiting.wait(&Bell::new(), &FutexSleeper, Instant::NEVER, || {
                    count += 1;
                    Some(()).filter(|()| other.load(Acquire) >= message)
                });
                own.store(message, Release);
                count
            })
            .collect();
        looks.sort_unstable();
        looks[MESSAGES / 2]
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| side(&answered, &asked, false));
        side(&asked, &answered, true).max(other.join().expect("it was requested"))
    })
}

#[test]
fn a_spinner_yields_its_processor_to_the_thread_it_waits_for() {
    let cpus = allowed_cpus().expect("a thread may ask for its own CPUs");
    let cpu = *cpus.last().expect("it has one");
    // A thread that spins through a whole time slice looks more than ten thousand times. Other work may
    // disturb the measurement, so the best of several runs is used.
    let looks = || (0..20).map(|_| looks_for_an_answer(cpu));
    assert!(looks().any(|looks| looks < 3000), "{:?}", looks().collect::<Vec<_>>());
}

#[test]
fn offers_pause_after_slices_that_others_kept() {
    const MS: u64 = 1_000_000;
    let offers = YieldLimiter::default();
    let mut now = 1000 * MS;
    // Records that another thread had the core for `length`, and returns the time until the next offer.
    let mut away = |pass: u64, length: u64| {
        let began = now.max(offers.next.load(Relaxed)) + pass;
        now = began + length;
        offers.on_yielded(began, now);
        offers.next.load(Relaxed) - now
    };
    assert_eq!([away(0, 300), away(0, MS / 2)], [1000; 2], "whoever was waited for");
    // After a slice to an unrelated thread, the pause is 16 times as long, and doubles while slices follow
    // each other, even if short offers come in between.
    assert_eq!([away(0, 3 * MS), away(5 * MS, 3 * MS)], [48 * MS, 96 * MS]);
    assert_eq!([away(MS, 300), away(MS, 300), away(MS, 3 * MS)], [1000, 1000, 192 * MS]);
    // If no slice follows within the length of the last pause, the next pause again has the initial length.
    (0..200).for_each(|_| assert_eq!(away(MS, 300), 1000));
    assert_eq!(away(0, 3 * MS), 48 * MS);
    assert_eq!(away(0, 900_000 * MS), 10_000 * MS, "no longer than that");
}

#[test]
fn a_thread_that_shares_its_core_notices_that_it_was_switched_away() {
    let cpu = allowed_cpus().expect("a thread may ask for its own CPUs")[0];
    let noticed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin_thread(cpu).expect("this CPU was allowed");
            while !noticed.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
        pin_thread(cpu).expect("this CPU was allowed");
        let before = switched_away();
        while switched_away() == before {
            std::hint::spin_loop();
        }
        noticed.store(true, Relaxed);
    });
}
