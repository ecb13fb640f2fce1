//! ACSE and MMS initiators (josistack and libiec61850) against our layers up to ACSE.
//!
//! Adapted   this test is the user above ACSE. Like josistack's server, it echoes what it receives. For
//!           libiec61850, whose server spoke MMS, it sends the recorded values.
//! Different names, references and the order of optional parameters. Our values keep the encoding in which
//! the user passes them.

use super::{Heard, Listener, Turn, connections, reads, units, values};
use kiban_base::Instant;
use kiban_osi::acse::{self, Associate, AssociateAnswer};
use kiban_osi::ftam::{self, Machine, Role};
use kiban_osi::presentation;
use kiban_osi::stack::end::End;
use kiban_osi::stack::layers::{Indication, Request, Stack, StackConfig};
use kiban_osi::stack::stream::{ConnectionAction, Stream};
use kiban_osi::wire::acse::{Aare, Apdu, AssociateDiagnostic, AssociateResult, UserDiagnostic};
use kiban_osi::wire::ber::{Asn1, Oid};
use kiban_osi::wire::cotp::Tpdu;
use kiban_osi::wire::presentation::{ContextResult, Cpa, Cpr, Pdv, UserData};
use kiban_osi::wire::session::{Spdu, Units};
use kiban_osi::wire::tpkt;

const JOSISTACK: &[u8] = include_bytes!("../../data/josistack-acse.pcap");
const MMS_FILES: &[u8] = include_bytes!("../../data/mms-files.pcap");
const MMS: Oid = Oid::of("1.0.9506.2.3");
const T0: Instant = Instant::ZERO;

/// Our layers, as the called system.
struct Ours {
    stack: Stack,
    stream: Stream,
    listener: Listener,
    aborted: bool,
}

impl Ours {
    fn new() -> Ours {
        let mut stack = Stack::new(&StackConfig::default());
        let mut stream = Stream::new(tpkt::TPDU_BYTES_MAX);
        stack.arrive(stream.connected(), T0, &mut ());
        stack.settle(T0, &mut ());
        Ours { stack, stream, listener: Listener::default(), aborted: false }
    }

    /// Returns the reply to a run of TPKTs; `user` answers the indications.
    fn answer(
        &mut self,
        said: &[Vec<u8>],
        in_two: bool,
        user: &mut dyn FnMut(Indication) -> Option<Request>,
    ) -> Vec<Heard> {
        for read in reads(said, in_two) {
            self.stream.arrive(read);
            while let Some(indication) = self.stream.poll() {
                self.stack.arrive(indication, T0, &mut ());
                self.stack.settle(T0, &mut ());
                while let Some(indication) = self.stack.poll() {
                    let acse = if let Indication::Acse(indication) = &indication {
                        Some(&**indication)
                    } else {
                        None
                    };
                    self.aborted |= matches!(acse, Some(acse::Indication::Abort(_)));
                    if let Some(request) = user(indication) {
                        self.stack.request(request, &mut ()).expect("it can be asked for");
                        self.stack.settle(T0, &mut ());
                    }
                }
                while let Some(request) = self.stack.poll_network() {
                    self.stream.request(request);
                }
            }
        }
        let bytes: Vec<u8> = self.stream.outgoing().runs().flatten().copied().collect();
        self.stream.outgoing().clear();
        self.listener.hear(&units(&bytes))
    }
}

/// Returns the answer of a user that accepts everything.
fn granted(asked: Associate, user_information: Vec<Pdv>) -> Request {
    let answer = asked.accept(Units::DUPLEX, |_| true);
    acse::Request::AssociateResponse(AssociateAnswer { user_information, ..answer }).into()
}

/// The parts of a reply that an initiator sees.
#[derive(PartialEq, Eq, Debug)]
enum Answer {
    /// CC: class, TPDU size.
    Confirmed(u8, Option<u8>),
    /// ACCEPT, CPA and AARE: the results of the negotiation.
    Accepted(Units, Vec<ContextResult>, AssociateResult, Oid, Vec<Pdv>),
    /// Values.
    Data(Vec<Pdv>),
}

fn answers(heard: Vec<Heard>) -> Vec<Answer> {
    let answer = |heard| match heard {
        Heard::Tpdu(Tpdu::ConnectConfirm(connect)) => Answer::Confirmed(connect.class, connect.tpdu_size),
        Heard::Spdu(Spdu::Accept(accept)) => {
            let (cpa, _) = Cpa::read(&accept.data.data.to_vec()).expect("a CPA");
            let parameters = cpa.parameters.expect("normal mode");
            let aare = aare(parameters.user_data);
            let information = aare.user_information.unwrap_or_default();
            Answer::Accepted(
                accept.units,
                parameters.results.expect("contexts were requested"),
                aare.result,
                aare.application_context,
                information.into_iter().map(Pdv::from).collect(),
            )
        }
        Heard::Spdu(Spdu::Data(data)) => Answer::Data(values(&data.data)),
        other => panic!("{other:?}"),
    };
    heard.into_iter().map(answer).collect()
}

fn aare(user_data: Option<UserData>) -> Aare {
    let apdu = match user_data {
        Some(UserData::Full(values)) => values[0].octets().to_vec(),
        // Simple encoding is used if only one presentation context was negotiated.
        Some(UserData::Simple(value)) => value.to_vec(),
        None => panic!("there is no user data"),
    };
    match Apdu::read(&apdu) {
        Ok((Apdu::Aare(aare), _)) => aare,
        other => panic!("{other:?}"),
    }
}

/// Returns the data that the recorded responder's user supplied: the user information of the association,
/// then the values.
fn given(recorded: &[Answer]) -> Option<Vec<Pdv>> {
    recorded.iter().find_map(|answer| match answer {
        Answer::Accepted(.., values) | Answer::Data(values) => Some(values.clone()),
        Answer::Confirmed(..) => None,
    })
}

/// Replays a connection; `user` derives the answer to values from the recorded one.
fn replay(
    turns: &[Turn],
    in_two: bool,
    user: fn(asked: Vec<Pdv>, recorded: Vec<Pdv>) -> Vec<Pdv>,
) -> (Ours, usize) {
    let (mut ours, mut recorder, mut data) = (Ours::new(), Listener::default(), 0);
    for (number, turn) in turns.iter().enumerate() {
        let recorded = answers(recorder.hear(&turn.answered));
        let heard = ours.answer(&turn.said, in_two, &mut |indication| match indication.into_acse() {
            Ok(acse::Indication::Associate(asked)) => {
                assert_eq!(asked.application_context, MMS);
                Some(granted(asked, given(&recorded).unwrap_or_default()))
            }
            Err(presentation::Indication::Data(values)) => {
                data += 1;
                let values = user(values, given(&recorded).unwrap_or_default());
                Some(Request::Presentation(presentation::Request::Data(values)))
            }
            _ => None,
        });
        assert_eq!(answers(heard), recorded, "turn {number}");
    }
    (ours, data)
}

#[test]
fn josistack_receives_what_its_own_responder_sent() {
    let connections = connections(JOSISTACK);
    assert_eq!(connections.len(), 2);
    for in_two in [false, true] {
        for turns in &connections {
            let (ours, data) = replay(turns, in_two, |asked, _| asked);
            // The connection ends with a DR, without a release.
            assert_eq!(
                (data, ours.stream.connection_action(), ours.stack.crossed()),
                (4, ConnectionAction::Close, 0)
            );
        }
    }
}

#[test]
fn libiec61850_gets_an_association_and_its_answers() {
    let connections = connections(MMS_FILES);
    assert_eq!(connections.len(), 2);
    for in_two in [false, true] {
        for (turns, asked) in connections.iter().zip([1, 3]) {
            let (ours, data) = replay(turns, in_two, |_, recorded| recorded);
            assert_eq!((data, ours.aborted, ours.stack.crossed()), (asked, true, 0));
        }
    }
}

/// Returns the diagnostic of a refused association.
fn refusal(heard: Vec<Heard>) -> (AssociateResult, AssociateDiagnostic, Oid) {
    let [Heard::Spdu(Spdu::Refuse(refuse))] = &heard[..] else { panic!("{heard:?}") };
    let (cpr, _) = Cpr::read(&refuse.data.data.to_vec()).expect("a CPR");
    assert_eq!(cpr.reason, None, "the user refuses, not presentation");
    let aare = aare(cpr.user_data);
    (aare.result, aare.diagnostic, aare.application_context)
}

#[test]
fn a_file_service_says_that_it_does_not_speak_mms() {
    let not_supported =
        AssociateDiagnostic::ServiceUser(UserDiagnostic::APPLICATION_CONTEXT_NAME_NOT_SUPPORTED);
    for turns in connections(MMS_FILES).iter().chain(&connections(JOSISTACK)) {
        let machine = Machine::new(ftam::Config {
            role: Role::Responder,
            abstract_syntaxes: ftam::ABSTRACT_SYNTAXES.to_vec(),
        });
        let mut end = End::new(machine, &StackConfig::default());
        end.connected(T0, &mut ());
        let mut listener = Listener::default();
        let mut heard = Vec::new();
        for turn in &turns[..2] {
            end.arrive(turn.said.concat().into(), T0, &mut ());
            let bytes: Vec<u8> = end.outgoing().runs().flatten().copied().collect();
            end.outgoing().clear();
            heard.extend(listener.hear(&units(&bytes)));
        }
        let Heard::Tpdu(Tpdu::ConnectConfirm(_)) = heard.remove(0) else { panic!("{heard:?}") };
        let ftam = Oid::of("1.0.8571.1.1");
        assert_eq!(refusal(heard), (AssociateResult::REJECTED_PERMANENT, not_supported.clone(), ftam));
    }
}
