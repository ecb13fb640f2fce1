//! Stored sequence numbers must not compare as ahead after the sequence space has advanced by half.

use super::tcb::{Session, Urgent};
use crate::tcp::config::Config;
use crate::tcp::loss::rack::Rack;
use crate::wire::tcp::Sequence;
use alloc::boxed::Box;
use core::net::SocketAddr;
use kiban_base::{Instant, RngKey, SecureRng};

fn session() -> Session {
    let name = |n: u8| SocketAddr::from(([10, 0, 0, n], 80));
    let mut rng = SecureRng::new(RngKey::for_simulation(1));
    let secret = crate::tcp::listen::secret::Secret::new(&mut rng);
    let beginning = secret.initial_numbers(name(1), name(2), Instant::ZERO);
    let mut table = super::super::table::Table::new(&mut rng);
    let make = |id| Session::new(id, name(1), name(2), beginning, None, &Config::default());
    let id = table.insert(name(1), name(2), make);
    table.take(id).expect("it was inserted")
}

#[test]
fn sender_marks_stay_at_or_below_snd_una_across_a_wrap() {
    let mut session = session();
    let begin = session.snd_una;
    for step in 1..=12u32 {
        // Transfers 3 GB, a sixteenth of the sequence space at a time, without loss and without short
        // segments.
        let ack = begin + step * (1 << 28);
        session.keep_marks_near(ack);
        session.snd_una = ack;
        assert!(session.recover.lt(session.snd_una), "three duplicates would say nothing at {step}");
        assert!(!session.snd_una.lt(session.snd_sml), "Nagle would wait for what was answered at {step}");
    }
    // While a loss is not repaired, its recovery point stays ahead.
    session.recover = session.snd_una + 5000;
    session.keep_marks_near(session.snd_una + 1000);
    assert_eq!(session.recover, session.snd_una + 5000);
}

#[test]
fn a_finished_dsack_round_stays_finished_across_a_wrap() {
    let mut rack = Rack::default();
    let begin = Sequence(0xffff_0000);
    rack.on_duplicate_sack(begin, begin + 1000);
    for step in 1..=12u32 {
        rack.on_acknowledged(begin + step * (1 << 28));
    }
    assert!(!rack.counts_a_round());
}

#[test]
fn an_urgent_mark_that_was_passed_does_not_hide_the_next_one() {
    let mut session = session();
    session.rcv_nxt = Sequence(0xffff_0000);
    let mark = session.rcv_nxt + 100;
    session.urgent = Some(Box::new(Urgent::heard_at(mark)));
    session.pass_urgent();
    assert!(session.urgent.as_ref().is_some_and(|urgent| urgent.heard() == Some(mark)), "it lies ahead");
    session.rcv_nxt += 100;
    session.pass_urgent();
    assert!(session.urgent.as_ref().is_some_and(|urgent| urgent.heard().is_none()));
}
