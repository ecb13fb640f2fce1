//! What a board does for others: services at its host edge.
//!
//! ```text
//! completions ─► Services ─┬─► Echo, Discard, Source ─┐
//!                          ├─► Http                   ├─► Host
//! files ready ─► Services ─┴─► Forward, Attach, Sockets ─┘
//! ```
//!
//! Service   knows its own streams and nothing of time but what it is lent, so that the simulator runs it, too; only `forward`, `attach`
//!           and `sockets` have files of the system.
//! Bound     each has so many sessions at most; who comes beyond is reset and counted. Who says nothing for too long is ended; that
//!           is looked for once a second, however many there are.
//! Change    services come and go while the board runs: one that goes listens no more, and its sessions end in their time.

mod attach;
mod forward;
mod http;
mod plain;
mod relay;
mod sockets;

pub use attach::{Attach, Chime};
pub use forward::Forward;
pub use http::{Content, Entry, Found, Http, HttpConfig, Store, disk::Folder};
pub use plain::{Plain, Role};
pub use sockets::Sockets;

use crate::config::{End, Kind, ServicePlan};
use kiban_board::{Completion, Host, Program};
use kiban_ground::Instant;
use kiban_real::wait::Doorbell;
use kiban_real::{Files, Interest, Outward};
use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are moved in one piece.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// Between two looks for those who say nothing.
const LOOK: Duration = Duration::from_secs(1);

kiban_ground::counters! {
    /// What happened at a service.
    pub struct ServiceCounters {
        /// Sessions that began.
        accepted,
        /// Callers who found no place.
        refused,
        /// Sessions that ended in order.
        ended,
        /// Sessions that were cut: reset, given up, or by us.
        cut,
        /// Sessions that said nothing for too long, among those that were cut.
        idle,
        /// Payload bytes that came.
        bytes_in,
        /// Payload bytes that were sent.
        bytes_out,
        /// Requests that were answered as asked.
        requests,
        /// Requests that were not.
        errors,
    }
}

/// Something that a board does.
pub trait Service {
    /// Begins to listen.
    ///
    /// # Errors
    /// Why it cannot.
    fn start(&mut self, host: &mut Host<'_>, now: Instant) -> Result<(), String>;
    /// Something has happened, perhaps to somebody else.
    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant);
    /// Looks for those who say nothing: what is due after so long.
    fn look(&mut self, host: &mut Host<'_>, now: Instant);
    /// Listens no more. Who is there ends in their time.
    fn close(&mut self, host: &mut Host<'_>);
    /// Cuts all sessions.
    fn cut(&mut self, host: &mut Host<'_>);
    /// Sessions that are there.
    fn sessions(&self) -> usize;
    /// What has happened.
    fn counters(&self) -> ServiceCounters;
    /// What can be read when there is something to do beside the board.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Whether there is something to do of which no file tells.
    fn is_ready(&self) -> bool {
        false
    }
    /// That can be read, or there is something to do.
    fn on_file(&mut self, _host: &mut Host<'_>, _now: Instant) {}
}

/// A service among the others.
struct Place {
    number: u64,
    plan: ServicePlan,
    service: Box<dyn Service>,
    /// Whether it listens no more.
    closed: bool,
}

/// All services of a board: one program.
pub struct Services {
    files: Files,
    chime: Arc<Chime>,
    places: Vec<Place>,
    next: u64,
    look_at: Instant,
    ready: Vec<u64>,
    /// Those that begin with the board.
    waiting: Vec<(ServicePlan, Box<dyn Service>)>,
    /// Why some of them could not.
    failures: Vec<String>,
}

/// A service as others see it.
#[derive(Clone, Debug)]
pub struct View {
    /// What was asked for.
    pub plan: ServicePlan,
    /// Whether it listens no more, and ends with its sessions.
    pub closed: bool,
    /// Sessions that are there.
    pub sessions: usize,
    /// What has happened.
    pub counters: ServiceCounters,
}

impl Services {
    /// None yet.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new() -> io::Result<Services> {
        let (files, places, ready) = (Files::new()?, Vec::new(), Vec::new());
        let (waiting, failures, chime) = (Vec::new(), Vec::new(), Arc::default());
        Ok(Services { files, chime, places, next: 0, look_at: Instant::NEVER, ready, waiting, failures })
    }

    /// What rings for all of them.
    pub fn chime(&self) -> &Arc<Chime> {
        &self.chime
    }

    /// Adds one that begins when the board does.
    pub fn put(&mut self, plan: ServicePlan, service: Box<dyn Service>) {
        self.waiting.push((plan, service));
    }

    /// Adds one that begins now.
    ///
    /// # Errors
    /// It cannot, and is not there then.
    pub fn add(
        &mut self,
        plan: ServicePlan,
        mut service: Box<dyn Service>,
        host: &mut Host<'_>,
        now: Instant,
    ) -> Result<(), String> {
        service.start(host, now).map_err(|error| format!("service {}: {error}", plan.name))?;
        let number = self.next;
        if let Some(file) = service.file()
            && let Err(error) = self.files.watch(file, number, Interest::READ)
        {
            service.close(host);
            return Err(format!("service {}: {error}", plan.name));
        }
        self.next += 1;
        self.places.push(Place { number, plan, service, closed: false });
        self.look_at = self.look_at.min(now + LOOK);
        Ok(())
    }

    /// Closes those for which it is asked; they go when their last session has ended.
    pub fn close(&mut self, host: &mut Host<'_>, which: impl Fn(&ServicePlan) -> bool) {
        for place in self.places.iter_mut().filter(|place| !place.closed && which(&place.plan)) {
            place.service.close(host);
            place.closed = true;
        }
        self.forget();
    }

    /// Cuts the sessions of those that are closed.
    pub fn cut(&mut self, host: &mut Host<'_>) {
        self.places.iter_mut().filter(|place| place.closed).for_each(|place| place.service.cut(host));
        self.forget();
    }

    /// Why services that were to begin with the board could not.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Sessions of all.
    pub fn sessions(&self) -> usize {
        self.places.iter().map(|place| place.service.sessions()).sum()
    }

    /// How they are.
    pub fn views(&self) -> impl Iterator<Item = View> + '_ {
        self.places.iter().map(|place| View {
            plan: place.plan.clone(),
            closed: place.closed,
            sessions: place.service.sessions(),
            counters: place.service.counters(),
        })
    }

    /// A service that listens, to ask it.
    pub fn service(&self, name: &str) -> Option<&dyn Service> {
        let place = self.places.iter().find(|place| !place.closed && place.plan.name == name)?;
        Some(&*place.service)
    }

    fn forget(&mut self) {
        self.places.retain(|place| !place.closed || place.service.sessions() > 0);
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
        for place in &mut self.places {
            place.service.on_completion(completion, host, now);
        }
        if matches!(completion, Completion::Ended { .. } | Completion::PeerFinished { .. }) {
            self.forget();
        }
    }

    fn deadline(&self) -> Instant {
        self.look_at
    }

    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        self.look_at = if self.places.is_empty() { Instant::NEVER } else { now + LOOK };
        self.places.iter_mut().for_each(|place| place.service.look(host, now));
        self.forget();
    }

    fn is_done(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Outward for Services {
    fn file(&self) -> BorrowedFd<'_> {
        self.files.as_fd()
    }

    fn is_ready(&self) -> bool {
        self.places.iter().any(|place| place.service.is_ready()) || self.files.has_ready()
    }

    fn doorbell(&self) -> Option<Arc<dyn Doorbell + Send + Sync>> {
        Some(self.chime.clone())
    }

    fn on_file(&mut self, host: &mut Host<'_>, now: Instant) {
        self.ready.clear();
        self.files.ready(&mut self.ready);
        for place in &mut self.places {
            if self.ready.contains(&place.number) || place.service.is_ready() {
                place.service.on_file(host, now);
            }
        }
        self.forget();
    }
}

/// Makes the folder in which a door is to be.
fn make_folder(door: &Path) -> io::Result<()> {
    let Some(folder) = door.parent() else { return Ok(()) };
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)
}

/// Makes a service of its plan; `chime` is that of the services to which it goes.
///
/// # Errors
/// A directory that is not there, or no more files.
pub fn make(plan: &ServicePlan, chime: &Arc<Chime>) -> Result<Box<dyn Service>, String> {
    let say = |error: io::Error| format!("service {}: {error}", plan.name);
    let bounds = Bounds { sessions_max: plan.sessions_max, idle: plan.idle };
    let on_board = || match plan.listen {
        End::Board(address) => Ok(address),
        _ => Err(format!("service {} listens on the board", plan.name)),
    };
    Ok(match &plan.kind {
        Kind::Echo => Box::new(Plain::new(on_board()?, Role::Echo, bounds)),
        Kind::Discard => Box::new(Plain::new(on_board()?, Role::Discard, bounds)),
        Kind::Source { bytes } => Box::new(Plain::new(on_board()?, Role::Source { bytes: *bytes }, bounds)),
        Kind::Http { root, list, head_time } => {
            let folder = Folder::open(root)
                .map_err(|error| format!("service {}: {}: {error}", plan.name, root.display()))?;
            let config = HttpConfig { list: *list, head_time: *head_time, bounds };
            Box::new(Http::new(on_board()?, Box::new(folder), config))
        }
        Kind::Attach { door } => Box::new(Attach::new(door.clone(), bounds, chime.clone()).map_err(say)?),
        Kind::Sockets { door } => Box::new(Sockets::new(door.clone(), bounds).map_err(say)?),
        Kind::Forward { to } => Box::new(Forward::new(plan.listen, *to, bounds).map_err(say)?),
    })
}

/// What a service grants.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Sessions at once.
    pub sessions_max: usize,
    /// How long a session may say nothing; none: for ever.
    pub idle: Option<Duration>,
}
