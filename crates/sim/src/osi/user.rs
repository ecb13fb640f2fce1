//! The users of the file service, each with its host's disk: an initiator that runs jobs, and a responder
//! that accepts every caller.

use kiban_osi::ftam::filestore::memory::MemoryDisk;
use kiban_osi::ftam::filestore::{Actions, Admission, AuthResult, Authenticator, Credentials, Locks, Path};
use kiban_osi::ftam::initiator::{self, Event, Failure, Initiator, Job, Outcome};
use kiban_osi::ftam::responder::{self, Progress, Responder, Store};
use kiban_osi::ftam::{Config, Machine, Role};
use kiban_osi::wire::ftam::{FunctionalUnits, QualityOfService, oids};

/// Paper \[5\]'s units: kernel, read, write, limited file management, grouping. No recovery.
const UNITS: FunctionalUnits = FunctionalUnits::READ
    .with(FunctionalUnits::WRITE)
    .with(FunctionalUnits::LIMITED_FILE_MANAGEMENT)
    .with(FunctionalUnits::GROUPING);

/// Number of associations that may hold a file open at the same time; a simulation has only one.
const HOLDERS_MAX: usize = 4;

/// An authenticator that admits every user.
struct Open;

impl Authenticator for Open {
    fn authenticate(&mut self, _: &Credentials) -> AuthResult {
        AuthResult::Admitted(Admission { user: "sim".into(), rights: Actions::ALL, home: Path::root() })
    }
}

enum RoleState {
    Initiator(Box<Initiator>, Vec<Event>),
    Responder(Box<Responder>, Locks),
}

/// A user, and its disk.
pub(super) struct User {
    role_state: RoleState,
    pub(super) disk: MemoryDisk,
}

impl User {
    pub(super) fn new(is_initiator: bool, fdata_bytes: usize) -> (User, Machine) {
        let (role_state, role) = if is_initiator {
            let config = initiator::Config {
                units: UNITS,
                quality: QualityOfService::NO_RECOVERY,
                fdata_bytes,
                ..initiator::Config::default()
            };
            (RoleState::Initiator(Box::new(Initiator::new(config)), Vec::new()), Role::Initiator)
        } else {
            let config = responder::Config {
                units: UNITS,
                quality: QualityOfService::NO_RECOVERY,
                fdata_bytes,
                ..responder::Config::default()
            };
            let responder = Responder::new(config, "the other end");
            (RoleState::Responder(Box::new(responder), Locks::new(HOLDERS_MAX)), Role::Responder)
        };
        let abstract_syntaxes =
            vec![oids::FADU, oids::UNSTRUCTURED_TEXT, oids::UNSTRUCTURED_BINARY, oids::NBS_DIRECTORY_ENTRY];
        (User { role_state, disk: MemoryDisk::new() }, Machine::new(Config { role, abstract_syntaxes }))
    }

    /// Returns the number of bytes of contents transferred between host and board.
    pub(super) fn moved_bytes(&self) -> u64 {
        match &self.role_state {
            RoleState::Initiator(initiator, _) => initiator.progress().0,
            RoleState::Responder(responder, _) => {
                responder.counters().bytes_in + responder.counters().bytes_out
            }
        }
    }

    /// Does all pending work. Returns true if there is more to send.
    pub(super) fn work(&mut self, machine: &mut Machine, room_bytes: usize) -> bool {
        match &mut self.role_state {
            RoleState::Initiator(initiator, events) => {
                let more = initiator.work(machine, &mut self.disk, room_bytes);
                events.extend(std::iter::from_fn(|| initiator.event()));
                more
            }
            RoleState::Responder(responder, locks) => {
                let mut store = Store { disk: &mut self.disk, locks, authenticator: &mut Open };
                responder.work(machine, &mut store, room_bytes) == Progress::Room
            }
        }
    }

    fn initiator(&mut self) -> (&mut Initiator, &mut Vec<Event>, &mut MemoryDisk) {
        let RoleState::Initiator(initiator, events) = &mut self.role_state else {
            unreachable!("side 0 is the initiator")
        };
        (initiator, events, &mut self.disk)
    }

    pub(super) fn connect(&mut self, machine: &mut Machine) {
        self.initiator().0.connect(machine).expect("there is no association yet");
    }

    pub(super) fn start(&mut self, job: Job, machine: &mut Machine) {
        let (initiator, events, disk) = self.initiator();
        let started = initiator.start(job, machine, disk);
        if started.is_err() {
            events.push(Event::Ended(Err(Failure::default())));
        }
        events.extend(std::iter::from_fn(|| initiator.event()));
    }

    pub(super) fn terminate(&mut self, machine: &mut Machine) {
        let (initiator, events, _) = self.initiator();
        if initiator.terminate(machine).is_err() {
            events.push(Event::Lost);
        }
    }

    fn take<T>(&mut self, of: impl Fn(&Event) -> Option<Result<T, Failure>>) -> Option<Result<T, Failure>> {
        let (_, events, _) = self.initiator();
        let found = events.iter().enumerate().find_map(|(at, event)| match event {
            Event::Lost => Some((at, Err(Failure::default()))),
            event => Some((at, of(event)?)),
        });
        let (at, result) = found?;
        events.remove(at);
        Some(result)
    }

    pub(super) fn take_connected(&mut self) -> Option<Result<(), Failure>> {
        self.take(|event| match event {
            Event::Connected => Some(Ok(())),
            Event::Refused(failure) => Some(Err(failure.clone())),
            _ => None,
        })
    }

    pub(super) fn take_ended(&mut self) -> Option<Result<Outcome, Failure>> {
        self.take(|event| if let Event::Ended(result) = event { Some(result.clone()) } else { None })
    }

    pub(super) fn take_closed(&mut self) -> Option<Result<(), Failure>> {
        self.take(|event| (*event == Event::Closed).then_some(Ok(())))
    }
}
