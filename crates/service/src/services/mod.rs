//! The services of a board; they use it through its host edge.
//!
//! ```text
//! completions ─► Services ─┬─► Echo, Discard, Source ─┐
//!                          ├─► Http                   ├─► Host
//! files ready ─► Services ─┴─► Forward, Attach, Sockets ─┘
//! ```
//!
//! Services         get the completions of their own streams ([`kiban_board::Consumer`]) and receive the time
//!                  as an argument, so they also run in the simulator; only `forward`, `attach` and `sockets`
//!                  use files of the system.
//! Limits           each service has a limit of sessions, shared among peer addresses (`slots.rs`); further
//!                  connections are reset and counted. One check a second ends the idle sessions.
//! Reload           services are added and removed while the board runs: a removed service stops listening;
//!                  its open sessions continue until they end.

mod attach;
mod forward;
mod http;
mod pace;
mod plain;
mod relay;
mod slots;
mod sockets;

pub use attach::{Attach, ClientBells};
pub use forward::Forward;
pub use http::{Content, Entry, Found, Http, HttpConfig, Store, disk::Folder};
pub use plain::{Plain, Role};
pub use sockets::Sockets;

use crate::config::{Endpoint, Kind, ServicePlan};
use kiban_base::Instant;
use kiban_board::{Completion, Host, Program};
use kiban_link::{EpollSet, FdProgram, Interest};
use kiban_os::unix::names;
use kiban_os::wait::Doorbell;
use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of bytes that are moved in one call.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// Bytes per second below which a peer counts as slow.
const MINIMUM_RATE: u64 = 512;
/// Interval of the checks for idle sessions.
const LOOK: Duration = Duration::from_secs(1);

kiban_base::counters! {
    /// Counters of a service.
    pub struct ServiceCounters {
        /// Sessions started.
        accepted,
        /// Callers refused because no session slot was free.
        refused,
        /// Sessions that ended in order.
        ended,
        /// Sessions that were reset, timed out, or cut by the service.
        aborted,
        /// Sessions cut because they were idle.
        idle_timeouts,
        /// Sessions cut to make room for another address.
        displaced,
        /// Payload bytes received.
        bytes_in,
        /// Payload bytes sent.
        bytes_out,
        /// Requests answered successfully.
        requests,
        /// Requests answered with an error.
        errors,
    }
}

/// A service of a board.
pub trait Service {
    /// Starts to listen.
    ///
    /// # Errors
    /// A message, if it cannot listen.
    fn start(&mut self, host: &mut Host<'_>, now: Instant) -> Result<(), String>;
    /// Handles a completion of one of the service's streams.
    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant);
    /// Ends idle sessions, and does other periodic work.
    fn look(&mut self, host: &mut Host<'_>, now: Instant);
    /// Stops listening. Open sessions continue until they end.
    fn close(&mut self, host: &mut Host<'_>);
    /// Resets all sessions.
    fn cut(&mut self, host: &mut Host<'_>);
    /// Returns the number of open sessions.
    fn sessions(&self) -> usize;
    /// Returns the service's counters.
    fn counters(&self) -> ServiceCounters;
    /// Returns a file that becomes readable when there is work for the service from outside the board, if
    /// any.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Returns whether there is work that no file has signalled.
    fn is_ready(&self) -> bool {
        false
    }
    /// Handles work: called when the file is readable, or when `is_ready` returns true.
    fn on_file(&mut self, _host: &mut Host<'_>, _now: Instant) {}
}

/// One service of the set.
struct ServiceEntry {
    number: u32,
    plan: ServicePlan,
    service: Box<dyn Service>,
    /// Whether it has stopped listening.
    closed: bool,
}

/// All services of a board, as one program.
pub struct Services {
    files: EpollSet,
    chime: Arc<ClientBells>,
    entries: Vec<ServiceEntry>,
    next: u32,
    look_at: Instant,
    ready: Vec<u64>,
    /// Services that are started when the board starts.
    waiting: Vec<(ServicePlan, Box<dyn Service>)>,
    /// Errors of services that could not be started.
    failures: Vec<String>,
}

/// The public state of a service.
#[derive(Clone, Debug)]
pub struct View {
    /// Its configuration.
    pub plan: ServicePlan,
    /// Whether it has stopped listening, and ends with its last session.
    pub closed: bool,
    /// The number of open sessions.
    pub sessions: usize,
    /// Its counters.
    pub counters: ServiceCounters,
}

impl Services {
    /// Returns an empty set.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn new() -> io::Result<Services> {
        let (files, entries, ready) = (EpollSet::new()?, Vec::new(), Vec::new());
        let (waiting, failures, chime) = (Vec::new(), Vec::new(), Arc::default());
        Ok(Services { files, chime, entries, next: 0, look_at: Instant::NEVER, ready, waiting, failures })
    }

    /// Returns the bells of the attached clients of all services.
    pub fn chime(&self) -> &Arc<ClientBells> {
        &self.chime
    }

    /// Adds a service that starts with the board.
    pub fn put(&mut self, plan: ServicePlan, service: Box<dyn Service>) {
        self.waiting.push((plan, service));
    }

    /// Adds a service and starts it now.
    ///
    /// # Errors
    /// If the service cannot start; it is then not added.
    pub fn add(
        &mut self,
        plan: ServicePlan,
        mut service: Box<dyn Service>,
        host: &mut Host<'_>,
        now: Instant,
    ) -> Result<(), String> {
        let (number, host) = (self.next, &mut host.for_service(self.next));
        service.start(host, now).map_err(|error| format!("service {}: {error}", plan.name))?;
        if let Some(file) = service.file()
            && let Err(error) = self.files.watch(file, number.into(), Interest::READ)
        {
            service.close(host);
            return Err(format!("service {}: {error}", plan.name));
        }
        self.next += 1;
        self.entries.push(ServiceEntry { number, plan, service, closed: false });
        self.look_at = self.look_at.min(now + LOOK);
        Ok(())
    }

    /// Stops the services that `which` selects from listening; each is removed when its last session has
    /// ended.
    pub fn close(&mut self, host: &mut Host<'_>, which: impl Fn(&ServicePlan) -> bool) {
        for entry in self.entries.iter_mut().filter(|entry| !entry.closed && which(&entry.plan)) {
            entry.service.close(host);
            entry.closed = true;
        }
        self.forget();
    }

    /// Resets the sessions of closed services.
    pub fn cut(&mut self, host: &mut Host<'_>) {
        self.entries.iter_mut().filter(|entry| entry.closed).for_each(|entry| entry.service.cut(host));
        self.forget();
    }

    /// Returns the errors of services that could not be started with the board.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Returns the number of sessions of all services.
    pub fn sessions(&self) -> usize {
        self.entries.iter().map(|entry| entry.service.sessions()).sum()
    }

    /// Returns the state of each service.
    pub fn views(&self) -> impl Iterator<Item = View> + '_ {
        self.entries.iter().map(|entry| View {
            plan: entry.plan.clone(),
            closed: entry.closed,
            sessions: entry.service.sessions(),
            counters: entry.service.counters(),
        })
    }

    /// Returns a listening service by its name.
    pub fn service(&self, name: &str) -> Option<&dyn Service> {
        let entry = self.entries.iter().find(|entry| !entry.closed && entry.plan.name == name)?;
        Some(&*entry.service)
    }

    fn forget(&mut self) {
        self.entries.retain(|entry| !entry.closed || entry.service.sessions() > 0);
    }
}

impl Program for Services {
    fn start(&mut self, host: &mut Host<'_>, now: Instant) {
        for (plan, service) in std::mem::take(&mut self.waiting) {
            if let Err(error) = self.add(plan, service, host, now) {
                self.failures.push(error);
            }
        }
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        let number = host.consumer().service;
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.number == number) {
            entry.service.on_completion(completion, host, now);
        }
        if matches!(completion, Completion::Ended { .. } | Completion::PeerFinished { .. }) {
            self.forget();
        }
    }

    fn deadline(&self) -> Instant {
        self.look_at
    }

    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        self.look_at = if self.entries.is_empty() { Instant::NEVER } else { now + LOOK };
        self.entries.iter_mut().for_each(|entry| entry.service.look(host, now));
        self.forget();
    }

    fn is_done(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl FdProgram for Services {
    fn file(&self) -> BorrowedFd<'_> {
        self.files.as_fd()
    }

    fn is_ready(&self) -> bool {
        self.entries.iter().any(|entry| entry.service.is_ready()) || self.files.has_ready()
    }

    fn doorbell(&self) -> Option<Arc<dyn Doorbell + Send + Sync>> {
        Some(self.chime.clone())
    }

    fn on_file(&mut self, host: &mut Host<'_>, now: Instant) {
        self.ready.clear();
        self.files.ready(&mut self.ready);
        for entry in &mut self.entries {
            if self.ready.contains(&entry.number.into()) || entry.service.is_ready() {
                entry.service.on_file(&mut host.for_service(entry.number), now);
            }
        }
        self.forget();
    }
}

/// Watches the socket of a new client, unless there are `most` clients already; `here` is their number.
///
/// # Errors
/// The reason for a refusal, for the client and for the log.
fn admit(
    callers: &str,
    here: usize,
    most: usize,
    watch: impl FnOnce() -> io::Result<()>,
) -> Result<(), String> {
    if here >= most {
        return Err(format!("too many {callers}: the limit of {most} is reached"));
    }
    watch().map_err(|error| format!("the board cannot watch the socket: {error}"))
}

/// Creates and checks the directory of a Unix socket if it is the default one. Any other directory is the
/// responsibility of its owner.
fn make_folder(path: &Path) -> Result<(), String> {
    if path.parent() == Some(&names::own_path()) {
        names::own_folder().map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Creates a service from its plan; `chime` holds the bells of its [`Services`].
///
/// # Errors
/// If a directory does not exist, or no descriptors are left.
pub fn make(plan: &ServicePlan, chime: &Arc<ClientBells>) -> io::Result<Box<dyn Service>> {
    let say = |error: io::Error| io::Error::new(error.kind(), format!("service {}: {error}", plan.name));
    let bounds = SessionLimits { sessions_max: plan.sessions_max, idle: plan.idle };
    let on_board = || match plan.listen {
        Endpoint::Board(address) => Ok(address),
        _ => Err(io::Error::other(format!("service {} must listen on the board", plan.name))),
    };
    Ok(match &plan.kind {
        Kind::Echo => Box::new(Plain::new(on_board()?, Role::Echo, bounds)),
        Kind::Discard => Box::new(Plain::new(on_board()?, Role::Discard, bounds)),
        Kind::Source { bytes } => Box::new(Plain::new(on_board()?, Role::Source { bytes: *bytes }, bounds)),
        Kind::Http { root, list, head_time, .. } => {
            let folder = Folder::open(root)
                .map_err(|error| say(io::Error::new(error.kind(), format!("{}: {error}", root.display()))))?;
            let config = HttpConfig { list: *list, head_time: *head_time, bounds };
            Box::new(Http::new(on_board()?, Box::new(folder), config))
        }
        Kind::Attach { path } => Box::new(Attach::new(path.clone(), bounds, chime.clone()).map_err(say)?),
        Kind::Sockets { path } => Box::new(Sockets::new(path.clone(), bounds).map_err(say)?),
        Kind::Forward { to } => Box::new(Forward::new(plan.listen, *to, bounds).map_err(say)?),
    })
}

/// Limits of a service.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// Limit of concurrent sessions.
    pub sessions_max: usize,
    /// How long a session may be idle; `None`: for ever.
    pub idle: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_caller_gets_the_actual_cause() {
        let full = || Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
        assert_eq!(admit("clients", 255, 256, || Ok(())), Ok(()));
        let why = admit("clients", 256, 256, || panic!("it has no entry")).expect_err("full");
        assert_eq!(why, "too many clients: the limit of 256 is reached");
        let why = admit("clients", 3, 256, full).expect_err("no watch");
        assert!(why.starts_with("the board cannot watch the socket: No space left"), "{why}");
        assert!(!why.contains("256"), "{why}");
    }
}
