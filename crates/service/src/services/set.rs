//! All services of a board, run as one program.

use super::attach::ClientBells;
use super::counters::{GuestView, ProgramView, ServiceCounters};
use super::service::Service;
use crate::config::ServicePlan;
use kiban_base::Instant;
use kiban_board::{Completion, Host, Program};
use kiban_link::{EpollSet, FdProgram, Interest};
use kiban_os::wait::Doorbell;
use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// The interval between checks for idle sessions.
const LOOK: Duration = Duration::from_secs(1);

/// One service of the set.
struct ServiceEntry {
    number: u32,
    plan: ServicePlan,
    service: Box<dyn Service>,
    /// Whether it has stopped listening.
    closed: bool,
}

/// All services of a board, run as one program.
pub struct Services {
    files: EpollSet,
    chime: Arc<ClientBells>,
    entries: Vec<ServiceEntry>,
    next: u32,
    look_at: Instant,
    ready: Vec<u64>,
    /// Services that will be started when the board starts.
    waiting: Vec<(ServicePlan, Box<dyn Service>)>,
    /// The errors of services that could not be started.
    failures: Vec<String>,
}

/// The public state of a service.
#[derive(Clone, Debug)]
pub struct View {
    /// Its configuration.
    pub plan: ServicePlan,
    /// Whether the service has stopped listening. It is removed when its last session ends.
    pub closed: bool,
    /// The number of open sessions.
    pub sessions: usize,
    /// Its counters.
    pub counters: ServiceCounters,
    /// The programs that use a NIC through it.
    pub programs: Vec<ProgramView>,
    /// The state of its guest.
    pub guest: GuestView,
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

    /// Returns the bells of all clients attached to these services.
    pub fn chime(&self) -> &Arc<ClientBells> {
        &self.chime
    }

    /// Adds a service that will start when the board starts.
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

    /// Stops the services selected by `which` from listening. Each is removed when its last session has
    /// ended.
    pub fn close(&mut self, host: &mut Host<'_>, which: impl Fn(&ServicePlan) -> bool) {
        for entry in self.entries.iter_mut().filter(|entry| !entry.closed && which(&entry.plan)) {
            entry.service.close(host);
            entry.closed = true;
        }
        self.forget();
    }

    /// Resets the sessions of services that have stopped listening.
    pub fn cut(&mut self, host: &mut Host<'_>) {
        self.entries.iter_mut().filter(|entry| entry.closed).for_each(|entry| entry.service.cut(host));
        self.forget();
    }

    /// Returns the errors of services that could not be started when the board started.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Returns the total number of sessions in all services.
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
            programs: entry.service.programs(),
            guest: entry.service.guest(),
        })
    }

    /// Returns a listening service by name.
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
        let deadlines = self.entries.iter().map(|entry| entry.service.deadline());
        deadlines.fold(self.look_at, Instant::min)
    }

    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        if now >= self.look_at {
            self.look_at = if self.entries.is_empty() { Instant::NEVER } else { now + LOOK };
            self.entries.iter_mut().for_each(|entry| entry.service.look(host, now));
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.service.deadline() <= now) {
            entry.service.on_timeout(&mut host.for_service(entry.number), now);
        }
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
