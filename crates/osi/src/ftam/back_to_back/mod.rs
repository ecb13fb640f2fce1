//! Tests of an initiator and a responder whose machines are joined by queues. They cover every job and every
//! error.

mod cuts;
mod hostile;
mod jobs;
mod worlds;

use crate::ftam::below::{Indication as Up, Request as Down, Resynchronise};
use crate::ftam::filestore::memory::{Call, MemoryDisk};
use crate::ftam::filestore::{
    Action, Actions, Admission, AuthRefusal, AuthResult, Authenticator, Credentials, DiskError, Locks, Path,
};
use crate::ftam::initiator::{self, Event, Initiator, Job, Outcome};
use crate::ftam::responder::{self, Responder, Store};
use crate::ftam::{Config, Machine, Role};
use crate::wire::ber::Null;
use crate::wire::ftam::{
    Account, AccountAttribute, AttributeNames, BinaryParameters, ChangeAttributes, DirectoryParameters,
    Document, ErrorIdentifier, LegalQualificationAttribute, QualityOfService, SizeAttribute, TextParameters,
};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use kiban_base::SimRng;

const BINARY: Document = Document::UnstructuredBinary(BinaryParameters::NONE);

fn text(universal_class: i64) -> Document {
    Document::UnstructuredText(TextParameters {
        universal_class_number: Some(universal_class),
        ..TextParameters::NONE
    })
}

fn records() -> Document {
    Document::SequentialText(TextParameters::NONE)
}

fn path(name: &str) -> Path {
    Path::read(name).unwrap()
}

/// Admits every user whose password equals the user name. Users with a `!` in their name have read-only
/// access.
struct TestAuthenticator {
    waits: u32,
    rights: Actions,
    home: Path,
}

impl Authenticator for TestAuthenticator {
    fn authenticate(&mut self, credentials: &Credentials) -> AuthResult {
        if self.waits > 0 {
            self.waits -= 1;
            return AuthResult::Wait;
        }
        let user = credentials.user.clone().unwrap_or_default();
        match credentials.password.as_deref() {
            Some(b"later") => AuthResult::Refused(AuthRefusal::Later),
            _ if credentials.account.as_deref() == Some("wrong") => AuthResult::Refused(AuthRefusal::Account),
            Some(password) if password == user.as_bytes() => {
                AuthResult::Admitted(Admission { user, rights: self.rights, home: self.home.clone() })
            }
            _ => AuthResult::Refused(AuthRefusal::Password),
        }
    }
}

/// The state that survives the end of an association.
struct Fixture {
    here: MemoryDisk,
    there: MemoryDisk,
    locks: Locks,
    authenticator: TestAuthenticator,
}

impl Fixture {
    fn new() -> Fixture {
        let authenticator = TestAuthenticator { waits: 0, rights: Actions::ALL, home: Path::root() };
        Fixture { here: MemoryDisk::new(), there: MemoryDisk::new(), locks: Locks::new(100), authenticator }
    }

    fn is_tidy(&mut self) {
        use crate::ftam::filestore::Disk;
        assert_eq!(self.here.loose_ends(), (0, 0), "here");
        assert_eq!(self.there.loose_ends(), (0, 0), "there");
        assert_eq!(self.locks.holders(), 0);
        assert_eq!((self.here.kept(), self.there.kept()), (vec![], vec![]));
    }
}

/// One association.
struct Pair {
    initiator: Initiator,
    responder: Responder,
    caller: Machine,
    called: Machine,
    serial: u32,
    /// Number of requests still to be delivered before the connection is lost; `None` if it is never lost.
    left: Option<u32>,
    events: Vec<Event>,
}

impl Pair {
    fn new(initiator: initiator::Config, responder: responder::Config) -> Pair {
        use crate::wire::ftam::oids;
        let syntaxes =
            vec![oids::FADU, oids::UNSTRUCTURED_TEXT, oids::UNSTRUCTURED_BINARY, oids::NBS_DIRECTORY_ENTRY];
        Pair {
            initiator: Initiator::new(initiator),
            responder: Responder::new(responder, "10.0.0.1"),
            caller: Machine::new(Config { role: Role::Initiator, abstract_syntaxes: vec![] }),
            called: Machine::new(Config { role: Role::Responder, abstract_syntaxes: syntaxes }),
            serial: 1,
            left: None,
            events: Vec::new(),
        }
    }

    fn connected(fixture: &mut Fixture) -> Pair {
        Pair::connected_with(fixture, small(), responder_small())
    }

    fn connected_with(fixture: &mut Fixture, ours: initiator::Config, theirs: responder::Config) -> Pair {
        let mut pair = Pair::new(ours, theirs);
        pair.initiator.connect(&mut pair.caller).unwrap();
        pair.run(fixture);
        assert_eq!(pair.events, [Event::Connected]);
        pair.events.clear();
        pair
    }

    /// Converts a request to the indication that the lower layers deliver at the other side.
    fn carry(&mut self, request: Down) -> Option<Up> {
        Some(match request {
            Down::Associate(associate) => Up::Associate(associate),
            Down::AssociateResponse(response) => Up::AssociateConfirm(response),
            Down::Release(value) => Up::Release(vec![value]),
            Down::ReleaseResponse(value) => Up::ReleaseConfirm(vec![value]),
            Down::Abort(value) => Up::Abort(vec![value]),
            Down::Data(values) => Up::Data(values),
            Down::SyncMinor => {
                self.serial += 1;
                Up::SyncMinor { serial: self.serial - 1 }
            }
            Down::SyncMinorResponse { serial } => Up::SyncMinorConfirm { serial },
            Down::Resynchronise(how, value) => {
                if let Resynchronise::Restart { serial, .. } = how {
                    self.serial = serial;
                }
                Up::Resynchronise { serial: self.serial, values: vec![value] }
            }
            Down::ResynchroniseResponse(value) => {
                Up::ResynchroniseConfirm { serial: self.serial, values: vec![value] }
            }
            Down::GiveToken => return None,
        })
    }

    /// Takes the undelivered requests of both sides. If one side resynchronises, the other side's requests
    /// are discarded. If both do, abandon prevails over restart; otherwise the calling side prevails.
    fn sent(&mut self) -> [Vec<Down>; 2] {
        let mut ours: Vec<Down> = core::iter::from_fn(|| self.caller.poll_down()).collect();
        let mut theirs: Vec<Down> = core::iter::from_fn(|| self.called.poll_down()).collect();
        let abandons = |sent: &[Down]| {
            sent.iter().find_map(|request| match request {
                Down::Resynchronise(how, _) => Some(*how == Resynchronise::Abandon),
                _ => None,
            })
        };
        match (abandons(&ours), abandons(&theirs)) {
            (None, None) => {}
            (Some(false), Some(true)) | (None, Some(_)) => ours.retain(|sent| matches!(sent, Down::Abort(_))),
            _ => theirs.retain(|sent| matches!(sent, Down::Abort(_))),
        }
        [ours, theirs]
    }

    /// Performs one round of deliveries. Returns true if anything was delivered; always false after the
    /// connection is lost.
    fn round(&mut self, fixture: &mut Fixture) -> bool {
        let mut crossed = false;
        for (by_caller, sent) in [true, false].into_iter().zip(self.sent()) {
            for request in sent {
                match &mut self.left {
                    Some(0) => return false,
                    Some(left) => *left -= 1,
                    None => {}
                }
                crossed = true;
                if let Some(up) = self.carry(request) {
                    if by_caller { self.called.arrive(up) } else { self.caller.arrive(up) }
                }
            }
        }
        self.initiator.work(&mut self.caller, &mut fixture.here, 3000);
        let mut store = Store {
            disk: &mut fixture.there,
            locks: &mut fixture.locks,
            authenticator: &mut fixture.authenticator,
        };
        self.responder.work(&mut self.called, &mut store, 3000);
        while let Some(event) = self.initiator.event() {
            self.events.push(event);
        }
        crossed
    }

    fn run(&mut self, fixture: &mut Fixture) {
        let mut quiet = 0;
        for _ in 0..1_000_000 {
            quiet = if self.round(fixture) { 0 } else { quiet + 1 };
            if quiet > 4 {
                assert_eq!(self.responder.counters().internal_errors, 0);
                return;
            }
        }
        panic!("it never ends");
    }

    fn job(&mut self, fixture: &mut Fixture, job: Job) -> Result<Outcome, initiator::Failure> {
        let about = format!("{job:?}");
        self.initiator.start(job, &mut self.caller, &mut fixture.here).unwrap();
        self.run(fixture);
        let mut ended = self.events.drain(..).filter_map(|event| match event {
            Event::Ended(result) => Some(result),
            _ => None,
        });
        ended.next().unwrap_or_else(|| panic!("{about} has not ended"))
    }

    fn close(mut self, fixture: &mut Fixture) {
        self.initiator.terminate(&mut self.caller).unwrap();
        self.run(fixture);
        assert_eq!(self.events, [Event::Closed]);
    }
}

/// Reports the loss of the connection to the initiator and the responder; returns the docket of the
/// interrupted transfer.
fn lose(pair: Pair, fixture: &mut Fixture) -> Option<String> {
    fail(pair, fixture)?.docket
}

/// Like [`lose`]; returns the failure of the interrupted transfer.
fn fail(mut pair: Pair, fixture: &mut Fixture) -> Option<initiator::Failure> {
    pair.initiator.lost(&mut fixture.here);
    let mut store = Store {
        disk: &mut fixture.there,
        locks: &mut fixture.locks,
        authenticator: &mut fixture.authenticator,
    };
    pair.responder.end(&mut store);
    let mut failed = None;
    while let Some(event) = pair.initiator.event() {
        if let Event::Ended(Err(failure)) = event {
            failed = Some(failure);
        }
    }
    failed
}

fn small() -> initiator::Config {
    initiator::Config {
        user: Some("ann".into()),
        password: Some("ann".into()),
        fdata_bytes: 1000,
        checkpoint_bytes: 3000,
        ..initiator::Config::default()
    }
}

fn responder_small() -> responder::Config {
    responder::Config { fdata_bytes: 700, checkpoint_bytes: 2500, ..responder::Config::default() }
}

fn lines(count: usize, chance: &mut SimRng) -> Vec<u8> {
    (0..count).flat_map(|n| format!("{n} {}\n", "x".repeat(chance.below(60) as usize)).into_bytes()).collect()
}

fn get(remote: &str, local: &str) -> Job {
    Job::Get { remote: remote.into(), local: path(local), document: None }
}

fn put(local: &str, remote: &str, document: Document) -> Job {
    Job::Put { local: path(local), remote: remote.into(), document }
}

fn errors(failure: &initiator::Failure) -> Vec<i64> {
    failure.diagnostics.iter().map(|item| item.error_identifier).collect()
}
