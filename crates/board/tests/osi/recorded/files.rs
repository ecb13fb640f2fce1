//! ISODE's FTAM initiator with our responder.
//!
//! Adapted   the filestore is empty at first, and the recorded user is configured.
//! Different `..` is refused here: no name leads above the root. A directory has no entries `.` and `..`, and
//! its entries are named by their last component only. After a failure in a group, ISODE's responder omits
//! the remaining answers; ours reports a failure for each. ISODE's responder treats any octet after a CR as
//! the LF of the line end, and sends LF.

use super::{Heard, Listener, Turn, connections, reads, units, values};
use kiban_base::{Instant, Rope};
use kiban_osi::ftam::filestore::memory::MemoryDisk;
use kiban_osi::ftam::filestore::{
    Actions, Admission, AuthRefusal, AuthResult, Authenticator, Credentials, Locks, Path,
};
use kiban_osi::ftam::responder::{self, Responder, Store};
use kiban_osi::ftam::{self, Machine, Role};
use kiban_osi::stack::end::End;
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::stack::stream::ConnectionAction;
use kiban_osi::wire::acse::{Apdu, AssociateResult};
use kiban_osi::wire::ber::Asn1;
use kiban_osi::wire::cotp::Tpdu;
use kiban_osi::wire::ftam::{ActionResult, DataElement, Kind, PathnameAttribute, Pdu, StateResult};
use kiban_osi::wire::presentation::{Cpa, Cpr, Pdv, UserData};
use kiban_osi::wire::session::{Spdu, Units};

const SESSION: &[u8] = include_bytes!("../../data/isode-ftam-session.pcap");
/// The number that the initiator has given to the context of FPDUs.
const PCI: i64 = 1;
const T0: Instant = Instant::ZERO;

/// An authenticator with one user.
struct Door {
    password: &'static [u8],
}

impl Authenticator for Door {
    fn authenticate(&mut self, visitor: &Credentials) -> AuthResult {
        let is_known = visitor.user.as_deref() == Some("ftamu");
        if is_known && visitor.password.as_deref() == Some(self.password) {
            let (user, home) = ("ftamu".into(), Path::root());
            AuthResult::Admitted(Admission { user, rights: Actions::ALL, home })
        } else {
            AuthResult::Refused(AuthRefusal::Password)
        }
    }
}

/// Our responder, as a service uses it.
struct Ours {
    end: End,
    responder: Responder,
    disk: MemoryDisk,
    locks: Locks,
    door: Door,
    listener: Listener,
}

impl Ours {
    fn new(password: &'static [u8]) -> Ours {
        let abstract_syntaxes = ftam::ABSTRACT_SYNTAXES.to_vec();
        let machine = Machine::new(ftam::Config { role: Role::Responder, abstract_syntaxes });
        let mut end = End::new(machine, &StackConfig::default());
        end.connected(T0, &mut ());
        Ours {
            end,
            responder: Responder::new(responder::Config::default(), "192.0.2.1"),
            disk: MemoryDisk::new(),
            locks: Locks::new(8),
            door: Door { password },
            listener: Listener::default(),
        }
    }

    /// Returns the reply to a run of TPKTs.
    fn answer(&mut self, said: &[Vec<u8>], in_two: bool) -> Vec<Answer> {
        for read in reads(said, in_two) {
            self.end.arrive(read, T0, &mut ());
            loop {
                let Ours { disk, locks, door, .. } = self;
                let room = self.end.room();
                self.responder.work(
                    self.end.machine(),
                    &mut Store { disk, locks, authenticator: door },
                    room,
                );
                if !self.end.settle(T0, &mut ()) {
                    break;
                }
            }
        }
        let bytes: Vec<u8> = self.end.outgoing().runs().flatten().copied().collect();
        self.end.outgoing().clear();
        answers(self.listener.hear(&units(&bytes)))
    }

    fn holds(&self, name: &str) -> Option<&[u8]> {
        self.disk.contents(&Path::read(name).expect("a name"))
    }
}

/// The parts of a reply that an initiator sees.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Answer {
    /// CC, in this class.
    Confirmed(u8),
    /// ACCEPT, with these functional units and contexts.
    Accepted(Units, Vec<bool>),
    /// AARE.
    Associated(AssociateResult),
    /// An FPDU, and whether it reports success.
    Fpdu(Kind, bool),
    /// The contents in a presentation context: all values of a turn, concatenated.
    Contents(i64, Vec<u8>),
    /// The names in a directory.
    Names(Vec<String>),
    /// REFUSE.
    Refused,
    /// DISCONNECT, with RLRE.
    Released,
}

/// Returns the responder's output in a turn.
fn answers(heard: Vec<Heard>) -> Vec<Answer> {
    let mut answers = Vec::new();
    for heard in heard {
        match heard {
            Heard::Tpdu(Tpdu::ConnectConfirm(connect)) => answers.push(Answer::Confirmed(connect.class)),
            Heard::Spdu(Spdu::Accept(accept)) => {
                let (cpa, _) = Cpa::read(&accept.data.data.to_vec()).expect("a CPA");
                let parameters = cpa.parameters.expect("normal mode");
                let results = parameters.results.expect("contexts were requested");
                let taken = results.iter().map(|result| result.is_acceptance()).collect();
                answers.push(Answer::Accepted(accept.units, taken));
                associated(parameters.user_data.expect("ACSE's"), &mut answers);
            }
            Heard::Spdu(Spdu::Data(data)) => values(&data.data).iter().for_each(|pdv| add(pdv, &mut answers)),
            Heard::Spdu(Spdu::Refuse(refuse)) => {
                answers.push(Answer::Refused);
                let (cpr, _) = Cpr::read(&refuse.data.data.to_vec()).expect("a CPR");
                associated(cpr.user_data.expect("ACSE's"), &mut answers);
            }
            Heard::Spdu(Spdu::Disconnect(data)) => {
                let (apdu, _) = Apdu::read(&values(&data.data)[0].octets().to_vec()).expect("an APDU");
                let Apdu::Rlre(rlre) = apdu else { panic!("{apdu:?}") };
                let information = rlre.user_information.expect("F-TERMINATE");
                information.into_iter().for_each(|value| add(&value.into(), &mut answers));
                answers.push(Answer::Released);
            }
            other => panic!("{other:?}"),
        }
    }
    answers
}

fn associated(user_data: UserData, answers: &mut Vec<Answer>) {
    let UserData::Full(values) = user_data else { panic!("{user_data:?}") };
    let (apdu, _) = Apdu::read(&values[0].octets().to_vec()).expect("an APDU");
    let Apdu::Aare(aare) = apdu else { panic!("{apdu:?}") };
    answers.push(Answer::Associated(aare.result));
    aare.user_information.expect("F-INITIALIZE").into_iter().for_each(|value| add(&value.into(), answers));
}

fn fpdus(pdv: &Pdv) -> Vec<Pdu> {
    let mut fpdus = Vec::new();
    Pdu::read_all(&pdv.octets().to_vec(), 16, &mut |pdu| fpdus.push(pdu)).expect("FPDUs");
    fpdus
}

fn add(pdv: &Pdv, answers: &mut Vec<Answer>) {
    if pdv.context == PCI {
        answers.extend(fpdus(pdv).iter().map(|pdu| {
            let done = pdu.state_result().is_none_or(|result| result == StateResult::SUCCESS)
                && pdu.action_result().is_none_or(|result| result == ActionResult::SUCCESS);
            Answer::Fpdu(pdu.kind(), done)
        }));
        return;
    }
    let mut rope: Rope = pdv.octets().clone();
    while !rope.is_empty() {
        match (DataElement::read(&mut rope).expect("a data element"), answers.last_mut()) {
            (DataElement::Value { contents, .. }, Some(Answer::Contents(_, all))) => {
                all.extend(contents.to_vec());
            }
            (DataElement::Value { contents, .. }, _) => {
                answers.push(Answer::Contents(pdv.context, contents.to_vec()));
            }
            (DataElement::DirectoryEntry(entry), last) => {
                let name = last_component(&entry.pathname.expect("asked for"));
                match last {
                    Some(Answer::Names(names)) => names.push(name),
                    _ => answers.push(Answer::Names(vec![name])),
                }
            }
            (DataElement::Structuring(structuring), _) => panic!("{structuring:?}"),
        }
    }
}

fn last_component(name: &PathnameAttribute) -> String {
    let (PathnameAttribute::Incomplete(name) | PathnameAttribute::Complete(name)) = name;
    let last = name.0.last().expect("a name").to_string();
    last.rsplit('/').next().expect("split is never empty").into()
}

/// Returns the answers in a turn, without the differences that are listed at the top of this file.
fn comparable(answers: Vec<Answer>) -> Vec<Answer> {
    let mut left = Vec::new();
    let mut group_failed = false;
    for mut answer in answers {
        match &mut answer {
            Answer::Fpdu(Kind::BeginGroupResponse | Kind::EndGroupResponse, _) => group_failed = false,
            Answer::Fpdu(_, false) if std::mem::replace(&mut group_failed, true) => continue,
            Answer::Accepted(_, taken) => taken.clear(),
            Answer::Names(names) => {
                names.retain(|name| name != "." && name != "..");
                names.sort();
                if names.is_empty() {
                    continue;
                }
            }
            Answer::Contents(_, octets) => {
                for at in 1..octets.len() {
                    if octets[at - 1] == b'\r' {
                        octets[at] = b'\n';
                    }
                }
            }
            _ => {}
        }
        left.push(answer);
    }
    left
}

/// Returns whether a turn selects a path that leads above the root.
fn asks_for_what_is_above(heard: &[Heard]) -> bool {
    let above = |pdu: &Pdu| match pdu {
        Pdu::SelectRequest(select) => last_component(&select.attributes.pathname) == "..",
        _ => false,
    };
    heard.iter().any(|heard| match heard {
        Heard::Spdu(Spdu::Data(data)) => {
            values(&data.data).iter().filter(|pdv| pdv.context == PCI).flat_map(fpdus).any(|pdu| above(&pdu))
        }
        _ => false,
    })
}

/// Returns the contents that the initiator sent in a turn.
fn put(heard: Vec<Heard>) -> Option<Vec<u8>> {
    let mut answers = Vec::new();
    for heard in heard {
        if let Heard::Spdu(Spdu::Data(data)) = heard {
            values(&data.data).iter().for_each(|pdv| add(pdv, &mut answers));
        }
    }
    answers.into_iter().find_map(|answer| match answer {
        Answer::Contents(_, octets) => Some(octets),
        _ => None,
    })
}

fn session() -> Vec<Turn> {
    let [session] = <[_; 1]>::try_from(connections(SESSION)).expect("one connection");
    session
}

#[test]
fn isode_receives_what_its_own_responder_sent() {
    for in_two in [false, true] {
        let mut ours = Ours::new(b"secret");
        let (mut initiator, mut responder) = (Listener::default(), Listener::default());
        let (mut sent, mut listed, mut turns_above) = (Vec::new(), 0, 0);
        for (number, turn) in session().iter().enumerate() {
            let heard = initiator.hear(&turn.said);
            let recorded = answers(responder.hear(&turn.answered));
            let answered = ours.answer(&turn.said, in_two);
            if asks_for_what_is_above(&heard) {
                turns_above += 1;
                assert!(answered.contains(&Answer::Fpdu(Kind::SelectResponse, false)), "{answered:?}");
                continue;
            }
            if let [Answer::Accepted(_, theirs), ..] = &recorded[..] {
                let Some(Answer::Accepted(_, taken)) = answered.first() else { panic!("{answered:?}") };
                assert_eq!(taken, theirs, "which contents types are accepted");
            }
            for answer in &answered {
                match answer {
                    // The initiator reads back exactly what it wrote.
                    Answer::Contents(_, octets) => assert_eq!(sent.last(), Some(octets)),
                    Answer::Names(_) => listed += 1,
                    _ => {}
                }
            }
            assert_eq!(comparable(answered), comparable(recorded), "turn {number}: {heard:?}");
            sent.extend(put(heard));
        }
        assert_eq!((sent.len(), listed, turns_above), (4, 3, 1));
        assert_eq!(ours.end.connection_action(), ConnectionAction::Close, "the initiator has ended it");
        assert_eq!((ours.end.files().crossed(), ours.responder.counters().internal_errors), (0, 0));
        assert_eq!(ours.disk.loose_ends(), (0, 0));
        assert_eq!(ours.locks.holders(), 0);
        // r1k was deleted, rtext was renamed.
        assert_eq!((ours.holds("r1k"), ours.holds("rtext")), (None, None));
        let lines = b"Hello FTAM line one\nline two\nthird line\n";
        assert_eq!(ours.holds("rtext2"), Some(&lines[..]));
        assert_eq!(ours.holds("name with spaces").map(<[u8]>::len), Some(263));
        assert!(ours.holds("d1/inner").is_some());
    }
}

#[test]
fn isode_with_a_wrong_password_is_refused() {
    let mut ours = Ours::new(b"another");
    let session = session();
    assert_eq!(ours.answer(&session[0].said, false), [Answer::Confirmed(0)]);
    let refused = ours.answer(&session[1].said, false);
    let no = Answer::Associated(AssociateResult::REJECTED_PERMANENT);
    assert_eq!(refused, [Answer::Refused, no, Answer::Fpdu(Kind::InitializeResponse, false)]);
}
