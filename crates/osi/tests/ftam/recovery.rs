//! Tests of recovery: the association is lost at an arbitrary point of a transfer, and the transfer is
//! resumed.

use crate::pair::*;
use kiban_osi::ftam::{Docket, Indication, Request, State};
use kiban_osi::wire::ftam::*;
use proptest::prelude::*;

/// A transfer of numbered data elements, with a checkpoint after every few elements.
struct Job {
    is_write: bool,
    elements: u32,
    between: u32,
    window: i64,
}

const UNITS: FunctionalUnits =
    FunctionalUnits(FunctionalUnits::RECOVERY.0 | FunctionalUnits::RESTART_DATA_TRANSFER.0);

/// The state of both users: the sender's position, and the elements that the receiver has received.
struct Ends {
    sent: u32,
    is_ended: bool,
    got: Vec<u32>,
    /// Checkpoints that have arrived and are not yet answered.
    to_answer: Vec<i64>,
}

impl Job {
    fn sender(&self) -> usize {
        usize::from(!self.is_write)
    }

    /// Lets both sides do everything that they can do at the moment. The initiator may restart once, from the
    /// acknowledged checkpoint or from a later one.
    fn step(&self, pair: &mut Pair, ends: &mut Ends, restart: &mut Option<(usize, i64)>) {
        let (sender, receiver) = (self.sender(), 1 - self.sender());
        if let Some((_, behind)) = restart.take_if(|(at, _)| {
            pair.carried >= *at && matches!(pair.machines[0].state(), State::Reading | State::Writing)
        }) {
            let transfer = pair.machines[0].docket().and_then(|docket| docket.transfer.as_ref()).unwrap();
            let checkpoint = transfer.checkpoint_last.min(transfer.checkpoint_answered + behind);
            pair.send_pdu(0, Pdu::RestartRequest(Restart::new(checkpoint).into()));
        }
        while matches!(pair.machines[sender].state(), State::Reading | State::Writing) {
            if ends.sent == self.elements {
                pair.send_pdu(sender, data_end());
                ends.is_ended = true;
                break;
            }
            let last = pair.machines[sender]
                .docket()
                .and_then(|docket| docket.transfer.as_ref())
                .unwrap()
                .checkpoint_last;
            if ends.sent > 0
                && ends.sent.is_multiple_of(self.between)
                && last < i64::from(ends.sent / self.between)
            {
                if pair.machines[sender].request(Request::Check).is_err() {
                    break;
                }
                continue;
            }
            ends.sent += 1;
            pair.machines[sender].request(data(&ends.sent.to_be_bytes())).unwrap();
        }
        if matches!(
            pair.machines[receiver].state(),
            State::Reading
                | State::Writing
                | State::ReadEnded
                | State::WriteEnded
                | State::WriteTransferEndPending
        ) {
            for checkpoint in ends.to_answer.drain(..) {
                pair.machines[receiver].request(Request::CheckResponse { checkpoint }).unwrap();
            }
        }
        if matches!(pair.machines[0].state(), State::ReadEnded | State::WriteEnded) {
            // The request fails as long as a checkpoint is unanswered.
            let _ = pair.machines[0].request(Request::Pdu(transfer_end()));
        }
    }

    fn deliver(&self, pair: &mut Pair, ends: &mut Ends) -> bool {
        let mut is_done = false;
        for side in [0, 1] {
            while let Some(indication) = pair.machines[side].poll_up() {
                match indication {
                    Indication::Data(DataElement::Value { contents, .. }) => {
                        let number = contents.to_vec().try_into().expect("four octets");
                        ends.got.push(u32::from_be_bytes(number));
                    }
                    Indication::Check { checkpoint } => ends.to_answer.push(checkpoint),
                    Indication::Pdu(Pdu::TransferEndResponse(_)) => is_done = true,
                    Indication::Pdu(Pdu::ProviderAbort(abort)) => panic!("{abort:?}"),
                    Indication::Pdu(Pdu::RestartRequest(restart)) => {
                        pair.send_pdu(side, Pdu::RestartResponse(restart.clone()));
                        self.go_back(ends, side, restart.checkpoint_identifier);
                    }
                    Indication::Pdu(Pdu::RestartResponse(restart)) => {
                        self.go_back(ends, side, restart.checkpoint_identifier)
                    }
                    Indication::Pdu(request) => {
                        if let Some(answer) = answer(&request, true) {
                            pair.send_pdu(side, answer);
                        }
                    }
                    _ => {}
                }
            }
        }
        is_done
    }

    fn go_back(&self, ends: &mut Ends, side: usize, checkpoint: i64) {
        let elements = checkpoint as u32 * self.between;
        if side == self.sender() {
            (ends.sent, ends.is_ended) = (elements, false);
        } else {
            ends.got.truncate(elements as usize);
            ends.to_answer.clear();
        }
    }

    /// Runs until the transfer ends, or until this many messages have been delivered.
    fn run(&self, pair: &mut Pair, ends: &mut Ends, until: usize, mut restart: Option<(usize, i64)>) -> bool {
        for _ in 0..10_000 {
            self.step(pair, ends, &mut restart);
            pair.collect();
            for side in [0, 1, 1, 0] {
                if pair.carried >= until {
                    return false;
                }
                pair.deliver(side);
            }
            if self.deliver(pair, ends) {
                return true;
            }
            pair.collect();
        }
        panic!("deadlock: {:?}", pair.machines);
    }
}

fn begin_job(job: &Job) -> (Pair, Ends) {
    let mut pair = Pair::initialized(ServiceClass::TRANSFER, UNITS, job.window);
    for pdu in [begin(2), select(), open(Some(99)), end()] {
        pair.send_pdu(0, pdu);
    }
    for indication in pair.indications(1) {
        let Indication::Pdu(request) = indication else { panic!() };
        pair.send_pdu(1, answer(&request, true).unwrap());
    }
    pair.indications(0);
    pair.send_pdu(0, if job.is_write { write() } else { read() });
    pair.indications(1);
    (pair, Ends { sent: 0, is_ended: false, got: vec![], to_answer: vec![] })
}

/// Establishes a new association and recovers the interrupted transfer.
fn recover(job: &Job, dockets: [Docket; 2], ends: &mut Ends) -> Pair {
    let mut pair = Pair::initialized(ServiceClass::TRANSFER, UNITS, job.window);
    let secured = |docket: &Docket| docket.transfer.as_ref().map(|transfer| transfer.checkpoint_answered);
    let [initiator, responder] = dockets;
    let asked = secured(&initiator).expect("there was a transfer");
    let activity = initiator.activity.expect("it had a name");
    let number = initiator.bulk_transfer_number;
    pair.send_pdu(
        0,
        Pdu::RecoverRequest(RecoverRequest::new(activity, number, initiator.access, asked).into()),
    );
    let indications = pair.indications(1);
    let [Indication::Pdu(Pdu::RecoverRequest(request))] = &indications[..] else { panic!("{indications:?}") };
    assert_eq!(
        (Some(request.activity_identifier.0), request.bulk_transfer_number),
        (responder.activity, number)
    );
    // The sender can go back to any of its checkpoints, the receiver to those that it has acknowledged.
    let point = request.recovery_point;
    pair.send_pdu(1, Pdu::RecoverResponse(RecoverResponse::new(responder.contents_type, point).into()));
    let indications = pair.indications(0);
    assert!(matches!(&indications[..], [Indication::Pdu(Pdu::RecoverResponse(_))]), "{indications:?}");
    assert_eq!(pair.machines[0].state(), State::DataTransferIdle);
    job.go_back(ends, 0, point);
    job.go_back(ends, 1, point);
    ends.to_answer.clear();
    pair.send_pdu(0, initiator.transfer.unwrap().request);
    pair.indications(1);
    assert_eq!(pair.machines[1].docket().unwrap().bulk_transfer_number, number);
    pair
}

proptest! {
    #[test]
    fn a_transfer_lost_and_restarted_anywhere_arrives_once(
        is_write in any::<bool>(),
        elements in 0..40u32,
        between in 1..8u32,
        window in 1..5i64,
        losses in proptest::collection::vec(0..60usize, 0..4),
        restart in proptest::option::of((0..80usize, 0..3i64)),
    ) {
        let job = Job { is_write, elements, between, window };
        let (mut pair, mut ends) = begin_job(&job);
        let mut done = false;
        for loss in losses {
            let until = pair.carried + loss;
            let restart = restart.map(|(at, behind)| (pair.carried + at, behind));
            done = job.run(&mut pair, &mut ends, until, restart);
            if done {
                break;
            }
            let is_open = pair.machines.iter().all(|machine| {
                machine.docket().is_some_and(|docket| docket.transfer.is_some())
            });
            pair.lose();
            if !is_open {
                // The responder has answered the end of the transfer, and only that response was lost.
                done = true;
                break;
            }
            let dockets = pair.machines.each_ref().map(|machine| machine.docket().unwrap().clone());
            // Indications that were not polled are lost with the association.
            pair = recover(&job, dockets, &mut ends);
        }
        if !done {
            let restart = restart.map(|(at, behind)| (pair.carried + at, behind));
            prop_assert!(job.run(&mut pair, &mut ends, usize::MAX, restart));
        }
        prop_assert_eq!(ends.got, (1..=elements).collect::<Vec<_>>());
    }
}
