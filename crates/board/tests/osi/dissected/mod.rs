//! Whole FTAM sessions as decoded by Wireshark, over TPKTs, XOT, and LAPB with X.25: every layer in every
//! frame, every FPDU.
//!
//! Goal      tshark reports no frame as malformed and no error, and counts as many FPDUs as our machines have
//!           sent.
//! How       two systems with disks in memory exchange frames, which are recorded in a capture.
//! Limits    tshark 4.0 mistakes the entries of a directory (NBS-9) for FPDUs and reports an error, even for
//!           ISODE's directories. It decodes other contents only if they are text; for the rest it reports
//!           that it has no dissector, which is not an error. It has no link type for bare LAPB.

mod lower_layers;
mod tape;

use kiban_base::Instant;
use kiban_osi::ftam::filestore::memory::MemoryDisk;
use kiban_osi::ftam::filestore::{Actions, Admission, AuthResult, Authenticator, Credentials, Locks, Path};
use kiban_osi::ftam::initiator::{self, Event, Initiator, Job, Outcome};
use kiban_osi::ftam::responder::{self, Responder, Store};
use kiban_osi::ftam::{self, Machine, Role};
use kiban_osi::stack::end::End;
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::transport;
use kiban_osi::wire::ftam::{BinaryParameters, Document, Kind, TextParameters};
use lower_layers::{Line, LowerLayer, Stream, Xot};
use tape::{Dissected, Frame, Tape};

const BINARY: Document = Document::UnstructuredBinary(BinaryParameters::NONE);
const TEXT: Document = Document::UnstructuredText(TextParameters::NONE);
const RECORDS: Document = Document::SequentialText(TextParameters::NONE);

struct Door;

impl Authenticator for Door {
    fn authenticate(&mut self, visitor: &Credentials) -> AuthResult {
        let user = visitor.user.clone().unwrap_or_default();
        AuthResult::Admitted(Admission { user, rights: Actions::ALL, home: Path::root() })
    }
}

/// The state that outlives an association: the disks of initiator and responder, and the capture.
struct Fixture {
    here: MemoryDisk,
    there: MemoryDisk,
    locks: Locks,
    tape: Tape,
    /// FPDUs that our machines have sent.
    fpdus: u64,
}

impl Fixture {
    fn new(tape: Tape) -> Fixture {
        let (here, there) = (MemoryDisk::new(), MemoryDisk::new());
        Fixture { here, there, locks: Locks::new(8), tape, fpdus: 0 }
    }
}

/// One association: the initiator has index 0, the responder index 1.
struct Session<W: LowerLayer> {
    ends: [End<W::Lower>; 2],
    initiator: Initiator,
    responder: Responder,
}

impl<W: LowerLayer> Session<W> {
    fn connect(fixture: &mut Fixture, tpdu_bytes: usize) -> Session<W> {
        let transport = transport::Config {
            network: W::NETWORK,
            tpdu_bytes_max: tpdu_bytes,
            ..transport::Config::default()
        };
        let stack = StackConfig { transport, ..StackConfig::default() };
        let end = |role| {
            let abstract_syntaxes = ftam::ABSTRACT_SYNTAXES.to_vec();
            End::over(W::lower(role), Machine::new(ftam::Config { role, abstract_syntaxes }), &stack)
        };
        let ours = initiator::Config {
            user: Some("ann".into()),
            password: Some("secret".into()),
            fdata_bytes: 1000,
            checkpoint_bytes: 3000,
            ..initiator::Config::default()
        };
        let theirs =
            responder::Config { fdata_bytes: 700, checkpoint_bytes: 2500, ..responder::Config::default() };
        let mut session = Session {
            ends: [end(Role::Initiator), end(Role::Responder)],
            initiator: Initiator::new(ours),
            responder: Responder::new(theirs, "192.0.2.1"),
        };
        let [caller, called] = &mut session.ends;
        W::begin(called);
        session.initiator.connect(caller.machine()).expect("it can be asked for");
        assert_eq!(session.run(fixture), [Event::Connected]);
        session
    }

    /// Lets both users act, then delivers all pending output once. Returns false if there was nothing to
    /// deliver.
    fn round(&mut self, fixture: &mut Fixture) -> bool {
        let Session { ends: [caller, called], initiator, responder } = self;
        let room = caller.room();
        initiator.work(caller.machine(), &mut fixture.here, room);
        let room = called.room();
        let mut store =
            Store { disk: &mut fixture.there, locks: &mut fixture.locks, authenticator: &mut Door };
        responder.work(called.machine(), &mut store, room);
        let mut moved = false;
        for from in 0..2 {
            moved |= self.ends[from].settle(Instant::ZERO, &mut ());
            for frame in W::leave(&mut self.ends[from]) {
                moved = true;
                fixture.tape.say(from, &frame);
                W::arrive(&mut self.ends[1 - from], &frame);
            }
        }
        moved
    }

    fn run(&mut self, fixture: &mut Fixture) -> Vec<Event> {
        let rounds = (0..10_000).take_while(|_| self.round(fixture)).count();
        assert!(rounds < 10_000, "it never ends");
        std::iter::from_fn(|| self.initiator.event()).collect()
    }

    fn start(&mut self, fixture: &mut Fixture, job: Job) {
        self.initiator.start(job, self.ends[0].machine(), &mut fixture.here).expect("it can be asked for");
    }

    fn job(&mut self, fixture: &mut Fixture, job: Job) -> Outcome {
        self.start(fixture, job);
        self.ended(fixture).expect("it is done")
    }

    fn ended(&mut self, fixture: &mut Fixture) -> Result<Outcome, initiator::Failure> {
        let mut events = self.run(fixture);
        match events.pop() {
            Some(Event::Ended(ended)) if events.is_empty() => ended,
            other => panic!("{events:?} {other:?}"),
        }
    }

    /// Runs until the current job has moved `bytes` bytes of contents.
    fn move_bytes(&mut self, fixture: &mut Fixture, bytes: u64) {
        while self.initiator.progress().0 < bytes {
            assert!(self.round(fixture), "it does not move");
        }
    }

    /// Breaks the connection. Returns the name under which the interrupted transfer can be recovered.
    fn lose(mut self, fixture: &mut Fixture) -> String {
        self.initiator.lost(&mut fixture.here);
        let mut store =
            Store { disk: &mut fixture.there, locks: &mut fixture.locks, authenticator: &mut Door };
        self.responder.end(&mut store);
        let dockets = std::iter::from_fn(|| self.initiator.event()).filter_map(|event| match event {
            Event::Ended(Err(failure)) => failure.docket,
            _ => None,
        });
        let docket = dockets.last().expect("it can be gone on with");
        self.count(fixture);
        docket
    }

    fn close(mut self, fixture: &mut Fixture) {
        self.initiator.terminate(self.ends[0].machine()).expect("it can be asked for");
        assert_eq!(self.run(fixture), [Event::Closed]);
        self.count(fixture);
    }

    fn count(&mut self, fixture: &mut Fixture) {
        fixture.fpdus += self.ends.iter_mut().map(|end| end.machine().counters().fpdus_out).sum::<u64>();
    }
}

fn path(name: &str) -> Path {
    Path::read(name).expect("a name")
}

fn put(local: &str, remote: &str, document: Document) -> Job {
    Job::Put { local: path(local), remote: remote.into(), document }
}

fn get(remote: &str, local: &str) -> Job {
    Job::Get { remote: remote.into(), local: path(local), document: None }
}

/// Performs every file operation.
fn everything<W: LowerLayer>(fixture: &mut Fixture, tpdu_bytes: usize) {
    let binary: Vec<u8> = (0..20_000u32).map(|n| (n * 7 / 3) as u8).collect();
    let lines = b"the first line\nthe second\n".repeat(100);
    fixture.here.put(&path("binary"), &binary);
    fixture.here.put(&path("lines"), &lines);
    let mut session = Session::<W>::connect(fixture, tpdu_bytes);
    session.job(fixture, Job::MakeDirectory { remote: "d".into() });
    for (name, document) in [("binary", BINARY), ("lines", TEXT), ("lines", RECORDS)] {
        session.job(fixture, put(name, "d/f", document));
        session.job(fixture, get("d/f", "back"));
        assert_eq!(fixture.here.contents(&path("back")), fixture.here.contents(&path(name)));
    }
    session.job(fixture, Job::Append { local: path("lines"), remote: "d/f".into(), document: RECORDS });
    session.job(fixture, Job::Stat { remote: "d/f".into() });
    session.job(fixture, Job::Rename { remote: "d/f".into(), to: "d/g".into() });
    let listed = session.job(fixture, Job::List { remote: "d".into() });
    assert!(matches!(&listed, Outcome::Entries(entries) if entries.len() == 1), "{listed:?}");
    session.job(fixture, Job::Remove { remote: "d/g".into() });
    session.start(fixture, get("d/nothing", "back"));
    session.ended(fixture).expect_err("there is no such file");

    // A transfer that restarts at a checkpoint, and one that is cancelled.
    session.start(fixture, put("binary", "e", BINARY));
    session.move_bytes(fixture, 1);
    session.initiator.restart(session.ends[0].machine()).expect("data are under way");
    session.ended(fixture).expect("it is done");
    assert_eq!(fixture.there.contents(&path("e")), Some(&binary[..]));
    session.start(fixture, get("e", "back"));
    session.move_bytes(fixture, 1);
    session.initiator.cancel(session.ends[0].machine(), &mut fixture.here).expect("data are under way");
    session.ended(fixture).expect_err("it was given up");
    session.close(fixture);
}

/// A transfer whose connection breaks is recovered on the next connection.
fn recovered<W: LowerLayer>(fixture: &mut Fixture, tpdu_bytes: usize) {
    let mut session = Session::<W>::connect(fixture, tpdu_bytes);
    session.start(fixture, put("binary", "again", BINARY));
    // Transfer more data than the checkpoint window allows, so that the responder must have confirmed a
    // checkpoint.
    session.move_bytes(fixture, 13_000);
    let docket = session.lose(fixture);
    fixture.tape.connect_again();
    let mut session = Session::<W>::connect(fixture, tpdu_bytes);
    let Session { initiator, ends, .. } = &mut session;
    initiator.recover(&docket, ends[0].machine(), &mut fixture.here).expect("there is a note");
    session.ended(fixture).expect("it is done");
    assert_eq!(fixture.there.contents(&path("again")), fixture.here.contents(&path("binary")));
    session.close(fixture);
}

/// The number that both ISODE's initiator and ours assign to the presentation context for directories.
const DIRECTORY: i64 = 7;

/// FPDUs that no session in these tests sends: aborts, and the FPDUs of functional units that are not
/// offered.
const ABSENT: [Kind; 6] = [
    Kind::UserAbort,
    Kind::ProviderAbort,
    Kind::LocateRequest,
    Kind::LocateResponse,
    Kind::EraseRequest,
    Kind::EraseResponse,
];

fn judge(dissected: &Dissected, fixture: &Fixture, layers: &[&str]) {
    assert_eq!(dissected.frames.len(), fixture.tape.frames(), "no frame is left out");
    let wrong: Vec<&Frame> = dissected.frames.iter().filter(|frame| frame.is_wrong()).collect();
    assert!(matches!(wrong[..], [listing] if listing.is_a_listing(DIRECTORY)), "{wrong:?}");
    for layer in layers {
        assert!(dissected.with(layer) > 50, "{layer}: {}", dissected.with(layer));
    }
    let absent: Vec<Kind> =
        Kind::ALL.iter().copied().filter(|kind| !dissected.fpdus().any(|fpdu| fpdu == *kind)).collect();
    assert_eq!(absent, ABSENT);
    assert_eq!(dissected.fpdus().count() as u64, fixture.fpdus, "as many FPDUs as were sent");
}

/// Returns the reason why one frame in each of our sessions is excused.
#[test]
fn wireshark_decodes_directories_as_fpdus_from_any_sender() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/isode-ftam-session.pcap");
    let isode = Dissected::of(path.as_ref());
    let (of_listings, others) = isode.frames.iter().partition::<Vec<_>, _>(|frame| frame.is_in(DIRECTORY));
    assert_eq!(of_listings.len(), 4);
    assert!(of_listings.iter().all(|frame| frame.is_a_listing(DIRECTORY)), "{of_listings:?}");
    assert!(others.len() > 100);
}

#[test]
fn wireshark_reads_a_session_in_tpkts() {
    for tpdu_bytes in [128, 65531] {
        let mut fixture = Fixture::new(Tape::tcp(kiban_osi::wire::tpkt::PORT));
        everything::<Stream>(&mut fixture, tpdu_bytes);
        recovered::<Stream>(&mut fixture, tpdu_bytes);
        let dissected = fixture.tape.dissect(&format!("tpkt-{tpdu_bytes}"));
        let layers = ["tcp", "tpkt", "cotp", "ses", "pres", "ftam"];
        judge(&dissected, &fixture, &layers);
    }
}

#[test]
fn wireshark_reads_a_session_in_xot() {
    let mut fixture = Fixture::new(Tape::tcp(kiban_osi::wire::xot::PORT));
    everything::<Xot>(&mut fixture, 512);
    recovered::<Xot>(&mut fixture, 512);
    let dissected = fixture.tape.dissect("xot");
    judge(&dissected, &fixture, &["tcp", "xot", "x25", "cotp", "ses", "pres", "ftam"]);
}

#[test]
fn wireshark_reads_a_session_on_a_line() {
    let mut fixture = Fixture::new(Tape::lapb());
    everything::<Line>(&mut fixture, 512);
    recovered::<Line>(&mut fixture, 512);
    let dissected = fixture.tape.dissect("lapb");
    judge(&dissected, &fixture, &["lapb", "x25", "cotp", "ses", "pres", "ftam"]);
}
