//! Tests in which both sides make random requests, and messages are delivered after random delays.

use crate::pair::*;
use crate::table::mirror;
use kiban_osi::ftam::{Indication, Machine, Request, State};
use kiban_osi::wire::ftam::*;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};

/// Makes a user's next request. Most such requests are not allowed in the current state, and change nothing.
fn attempt(machine: &mut Machine, number: u8) {
    let (checkpoint, is_first) = (i64::from(number / 16 % 4), (number / 16).is_multiple_of(2));
    let request = match number % 16 {
        0 => Request::Pdu(read()),
        1 => Request::Pdu(write()),
        4 => data(b"some octets"),
        5 | 6 => Request::Check,
        7 | 8 => Request::CheckResponse { checkpoint },
        2 | 9 => Request::Pdu(data_end()),
        3 | 10 => Request::Pdu(transfer_end()),
        11 => Request::Pdu(Pdu::CancelRequest(Cancel::new(ActionResult::TRANSIENT_ERROR, None).into())),
        12 => Request::Pdu(Pdu::RestartRequest(Restart::new(checkpoint).into())),
        13 => Request::Pdu(if is_first { select() } else { deselect() }),
        14 => Request::Pdu(if is_first { open(None) } else { close() }),
        _ => {
            let group = if is_first {
                [begin(2), select(), open(None), end()]
            } else {
                [begin(2), close(), deselect(), end()]
            };
            for pdu in group {
                if machine.request(Request::Pdu(pdu)).is_err() {
                    return;
                }
            }
            return;
        }
    };
    let before = machine.state();
    if machine.request(request).is_err() {
        assert_eq!(machine.state(), before, "a request that cannot be changes nothing");
    }
}

/// Handles indications. Requests are queued, to be answered in order.
fn receive(machine: &mut Machine, pending: &mut VecDeque<Pdu>) {
    while let Some(indication) = machine.poll_up() {
        match indication {
            Indication::Pdu(Pdu::ProviderAbort(abort)) => panic!("both ends keep the rules: {abort:?}"),
            Indication::Pdu(request) => {
                // Requests that were cancelled or restarted are no longer answered.
                if matches!(request, Pdu::CancelRequest(_) | Pdu::RestartRequest(_)) {
                    pending.clear();
                }
                pending.extend(answer(&request, true).is_some().then_some(request));
            }
            Indication::Check { .. } | Indication::CheckConfirm { .. } | Indication::Data(_) => {}
            Indication::Initialize(_) => unreachable!("the association is already established"),
        }
    }
}

fn answer_pending(machine: &mut Machine, pending: &mut VecDeque<Pdu>, succeeds: bool) {
    if let Some(request) = pending.front() {
        let _ = match machine
            .request(Request::Pdu(answer(request, succeeds).expect("every request has a response")))
        {
            Ok(()) => pending.pop_front(),
            // Either a checkpoint must be answered first, or this side has cancelled the transfer in the
            // meantime.
            Err(_) => {
                secure(machine);
                match machine
                    .request(Request::Pdu(answer(request, succeeds).expect("every request has a response")))
                {
                    Ok(()) => pending.pop_front(),
                    Err(_)
                        if !matches!(
                            machine.state(),
                            State::CancelRequested
                                | State::WriteRestartRequested
                                | State::ReadRestartRequested
                        ) =>
                    {
                        pending.pop_front()
                    }
                    Err(_) => None,
                }
            }
        };
    }
}

fn secure(machine: &mut Machine) {
    let last =
        machine.docket().and_then(|docket| docket.transfer.as_ref()).map(|transfer| transfer.checkpoint_last);
    if let Some(checkpoint) = last {
        let _ = machine.request(Request::CheckResponse { checkpoint });
    }
}

#[test]
fn conforming_ends_never_see_protocol_errors_or_deadlocks() {
    let seen = RefCell::new(BTreeSet::new());
    let act = proptest::collection::vec((0..7u8, any::<u8>()), 0..300);
    let programs = (any::<bool>(), any::<bool>(), 1..4i64, act);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2048) };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let ran = runner.run(&programs, |(recoverable, unconstrained, window, acts)| {
        seen_in(&mut seen.borrow_mut(), recoverable, unconstrained, window, acts);
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
    // The random requests only open, transfer and close; other tests cover the remaining states.
    use State::{
        ChangeAttributesPending, Closed, CreatePending, DeletePending, ErasePending, InitializePending,
        LocatePending, ReadAttributesPending, RecoverPending, TerminatePending,
    };
    let elsewhere = [
        Closed,
        InitializePending,
        TerminatePending,
        CreatePending,
        RecoverPending,
        DeletePending,
        ReadAttributesPending,
        ChangeAttributesPending,
        LocatePending,
        ErasePending,
    ];
    let seen = seen.into_inner();
    let missed: Vec<_> =
        State::ALL.iter().filter(|state| !seen.contains(state) && !elsewhere.contains(state)).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

/// A regression test for one recorded input.
#[test]
fn an_interrupted_recoverable_transfer_sees_no_protocol_error() {
    let acts = vec![
        (0, 30),
        (3, 8),
        (2, 47),
        (2, 19),
        (2, 141),
        (2, 19),
        (0, 0),
        (0, 0),
        (0, 0),
        (0, 0),
        (3, 1),
        (2, 0),
        (0, 0),
        (0, 0),
        (3, 48),
        (0, 139),
        (0, 0),
    ];
    seen_in(&mut BTreeSet::new(), true, false, 1, acts);
}

fn seen_in(
    seen: &mut BTreeSet<State>,
    recoverable: bool,
    unconstrained: bool,
    window: i64,
    acts: Vec<(u8, u8)>,
) {
    let units = FunctionalUnits::RECOVERY | FunctionalUnits::RESTART_DATA_TRANSFER;
    let class = if unconstrained { ServiceClass::UNCONSTRAINED } else { ServiceClass::TRANSFER };
    let mut pair = Pair::initialized(class, if recoverable { units } else { FunctionalUnits::NONE }, window);
    let mut pending = [VecDeque::new(), VecDeque::new()];
    for (act, number) in acts {
        let side = usize::from(number % 2);
        match act {
            0 | 1 => attempt(&mut pair.machines[side], number / 2),
            // Both sides make a request, and the requests cross.
            6 if number < 24 => pair.machines.iter_mut().for_each(|machine| attempt(machine, 11)),
            2 => answer_pending(&mut pair.machines[side], &mut pending[side], number % 8 > 1),
            _ => {
                pair.collect();
                pair.deliver(side);
                receive(&mut pair.machines[1 - side], &mut pending[1 - side]);
            }
        }
        seen.extend(pair.machines.each_ref().map(Machine::state));
    }
    // Both sides answer all pending requests; then they must be in the same state.
    for _ in 0..2000 {
        pair.carry_all();
        for side in [0, 1] {
            receive(&mut pair.machines[side], &mut pending[side]);
            answer_pending(&mut pair.machines[side], &mut pending[side], true);
        }
        pair.collect();
        if pair.under_way.iter().all(VecDeque::is_empty) && pending.iter().all(VecDeque::is_empty) {
            break;
        }
    }
    let [initiator, responder] = [&pair.machines[0], &pair.machines[1]];
    assert_eq!(mirror(initiator.state()), responder.state());
    let pending = format!("{:?}", initiator.state());
    assert!(
        !pending.contains("Pending") && !pending.contains("Requested") && !pending.contains("Indicated"),
        "{}",
        pending
    );
    for machine in [initiator, responder] {
        assert_eq!(machine.counters().misplaced_in + machine.counters().malformed_in, 0);
    }
}
