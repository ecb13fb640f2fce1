//! A running board: its links, services, control requests and shutdown.
//!
//! Start            links are opened first, then the board is built, because its configuration depends on
//!                  what the links can segment.
//! Links            a lost link is reported and reopened, after 1 s at first, then with growing pauses up to
//!                  30 s; the board continues.
//! Reload           only services, routes and links that differ are changed. A change that needs a new board
//!                  is refused; the message names the key.
//! Stop             services stop listening; sessions have a limited time to end, and are then reset.

use crate::capture::{CapturePoint, Wanted};
use crate::config::{Carries, Kind, Plan, PortPlan, RoutePlan};
use crate::confinement;
use crate::link;
use crate::link_state::LinkState;
use crate::loopback::Loopbacks;
use crate::losses;
use crate::requests::{Answer, Captured, Request, RequestQueue, RunningCapture};
use crate::services::{self, Services};
use crate::status::{self, Counters, Rates, Status, named, rounded};
use kiban_atm::wire::atm::{Interface, Vc};
use kiban_base::Instant;
use kiban_board::{
    AtmPortConfig, Board, BridgePortConfig, EthernetPortConfig, Host, HostPortConfig, IpPortConfig,
    PortAddress, PortConfig,
};
use kiban_link::Driver;
use kiban_link::driver::Waker;
use kiban_link::{AnyLink, LinkCounters};
use kiban_os::exposure;
use kiban_os::exposure::Private;
use kiban_os::lines::LogLimiter;
use kiban_os::unix::names;
use kiban_os::{Clock, Waiting};
use kiban_os::{random, regular};
use kiban_sandbox as sandbox;
use kiban_sandbox::{OnRefusal, Sandbox};
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::ip::{Prefix, Route};
use kiban_tcpip::tcp::State;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Interval of the samples of link counters.
const SAMPLE: Duration = Duration::from_secs(1);
/// Size limit of a configuration, in bytes: enough for ten thousand circuits, and small enough to be parsed
/// on the board's own thread.
const CONFIG_BYTES_MAX: usize = 1 << 20;
/// The largest segment passed to links that segment themselves.
const SEGMENT_BYTES: u32 = 65_000;

/// A port's link, or the device through which this host's kernel shares the port.
struct PortLink {
    plan: PortPlan,
    /// The device, if this is the kernel's side of a port.
    device: Option<String>,
    capture: Arc<CapturePoint>,
    state: LinkState,
    sampled: LinkCounters,
    rates: Rates,
}

/// A running board.
pub struct Running {
    plan: Plan,
    /// The file from which the plan was read, if any.
    file: Option<PathBuf>,
    driver: Driver,
    waiting: Waiting,
    clock: Clock,
    began: Instant,
    services: usize,
    loopbacks: usize,
    links: Vec<PortLink>,
    requests: Arc<RequestQueue>,
    sampled_at: Instant,
    /// When sessions that remain are reset; `None` unless the board is stopping.
    stops_at: Option<Instant>,
    reloads: u64,
    on_change: Box<dyn FnMut(&Plan)>,
    /// Number of captures started.
    captures: u64,
    /// The active parts of the sandbox; `None` if it is off.
    sandbox: Option<Sandbox>,
    /// Limits the rate of log lines about requests, because clients may send any number of requests.
    lines: LogLimiter,
}

impl Running {
    /// Opens the links of a plan, and builds its board. `file` is the file that the plan was read from, if
    /// any; a reload reads it again.
    ///
    /// # Errors
    /// A required link cannot be opened (the message says what to do), or a service cannot listen.
    pub fn start(plan: Plan, file: Option<&Path>) -> Result<Running, String> {
        let clock = Clock::new();
        // Ports first, then the kernel's sides of ports: the board numbers them in this order.
        let mut links: Vec<PortLink> =
            plan.ports.iter().map(|port| PortLink::new(port.clone(), None)).collect();
        let sides = plan.ports.iter().filter(|port| port.host.is_some());
        links.extend(sides.map(|port| PortLink::new(port.clone(), port.host.clone())));
        let mut opened = Vec::new();
        for link in &links {
            opened.push(match link.open() {
                Err(error) if !link.plan.retry => return Err(format!("port {}: {error}", link.plan.name)),
                result => result,
            });
        }
        let config = plan_board(&plan, &opened);
        let key =
            random::key().map_err(|error| format!("cannot get random numbers from the system: {error}"))?;
        has_memory(config.memory.transmit_bytes + config.memory.receive_bytes)?;
        let mut board = Board::new(&config, key);
        plan.routes.iter().for_each(|route| board.add_route(route_of(&plan, route)));
        let say = |error: io::Error| format!("cannot set up event polling for the board: {error}");
        let mut driver = Driver::new(board, clock).map_err(say)?;
        let now = clock.now();
        for (number, (link, opened)) in links.iter_mut().zip(opened).enumerate() {
            match opened {
                Ok(opened) => {
                    driver.attach(number, opened);
                    link.rise(now);
                }
                Err(error) => link.lose(&error, now),
            }
        }
        let mut services = Services::new().map_err(say)?;
        for plan in &plan.services {
            let service = services::make(plan, services.chime()).map_err(|error| error.to_string())?;
            services.put(plan.clone(), service);
        }
        let services = driver.add_fd_program(Box::new(services));
        let loopbacks = driver.add(Box::<Loopbacks>::default());
        let requests = Arc::new(RequestQueue::new(driver.waker()));
        let mut running = Running {
            waiting: driver.waiting(plan.wait),
            plan,
            file: file.map(Path::to_owned),
            driver,
            clock,
            began: now,
            services,
            loopbacks,
            links,
            requests,
            sampled_at: now,
            stops_at: None,
            reloads: 0,
            on_change: Box::new(|_| {}),
            captures: 0,
            sandbox: None,
            lines: LogLimiter::new(now),
        };
        running.begin()?;
        Ok(running)
    }

    /// Starts the services; fails if any of them fails.
    fn begin(&mut self) -> Result<(), String> {
        match self.with_services(|services, _, _| services.failures().first().cloned()) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    fn with_services<T>(&mut self, work: impl FnOnce(&mut Services, &mut Host<'_>, Instant) -> T) -> T {
        self.driver.with_program(self.services, work).expect("the services are the driver's program")
    }

    /// Drops the privileges that are no longer needed, on all threads. Call it after everything else has
    /// started.
    ///
    /// # Errors
    /// If they could not be dropped.
    pub fn confine(&mut self) -> Result<(), String> {
        if !self.plan.sandbox.enabled {
            tracing::warn!("all privileges are kept: the sandbox is off (`enabled` in [sandbox])");
            return Ok(());
        }
        let needs = confinement::of_plan(&self.plan, self.file.as_deref());
        let on_refusal = if self.plan.sandbox.kill { OnRefusal::Kill } else { OnRefusal::Error };
        let sandbox = Sandbox::enter(&needs, on_refusal).map_err(|error| {
            format!("cannot drop privileges: {error}; `enabled = false` in [sandbox] keeps them")
        })?;
        self.sandbox = Some(sandbox);
        Ok(())
    }

    /// Returns the current plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the queue of requests.
    pub fn requests(&self) -> Arc<RequestQueue> {
        self.requests.clone()
    }

    /// Returns a handle that wakes the board's thread from another thread.
    pub fn waker(&self) -> Waker {
        self.driver.waker()
    }

    /// Sets a callback that is called with every configuration that is applied.
    pub fn tell(&mut self, on_change: impl FnMut(&Plan) + 'static) {
        self.on_change = Box::new(on_change);
    }

    /// Runs until it is stopped.
    pub fn run(&mut self) {
        loop {
            let until = self.next_look();
            let Running { driver, waiting, requests, services, stops_at, links, .. } = self;
            driver.run(waiting, until, |driver| {
                requests.waits()
                    || driver.has_lost_links()
                    || links.iter().any(|link| link.capture.is_full())
                    || stops_at.is_some() && is_quiet(driver, *services)
            });
            let now = self.clock.now();
            for (port, error) in self.driver.take_lost_links() {
                if let Some(link) = self.links.get_mut(port) {
                    link.lose(&error, now);
                }
            }
            self.reopen(now);
            if now >= self.sampled_at + SAMPLE {
                self.sample(now);
            }
            self.end_captures(|capture| capture.end(now));
            while let Some((request, sender)) = self.requests.next() {
                match request {
                    Request::Loopback { port, vc, segment } => self.ping(&port, vc, segment, sender),
                    // The client may have disconnected.
                    request => drop(sender.send(self.answer(request, now))),
                }
            }
            if let Some(stops_at) = self.stops_at
                && (now >= stops_at || is_quiet(&self.driver, self.services))
            {
                let left = self.with_services(|services, host, _| {
                    let left = services.sessions();
                    services.cut(host);
                    left
                });
                self.driver.turn();
                self.end_captures(CapturePoint::end_any);
                tracing::info!(cut = left, "stopped");
                return;
            }
        }
    }

    fn next_look(&self) -> Instant {
        let links = self.links.iter().map(|link| link.state.retry_at).min().unwrap_or(Instant::NEVER);
        let look = if self.stops_at.is_some() { QUIET_LOOK } else { SAMPLE };
        let captures = self.links.iter().map(|link| link.capture.ends()).min().unwrap_or(Instant::NEVER);
        links
            .min(captures)
            .min(self.sampled_at + SAMPLE)
            .min(self.clock.now() + look)
            .min(self.stops_at.unwrap_or(Instant::NEVER))
    }

    // ---- Links ------------------------------------------------------------------------------------

    /// Reopens lost links that are due.
    fn reopen(&mut self, now: Instant) {
        for (number, link) in self.links.iter_mut().enumerate() {
            if !link.state.is_due(now) {
                continue;
            }
            match link.open().map(|opened| self.driver.attach(number, opened)) {
                Ok(()) => link.rise(now),
                Err(error) => link.fail(&error, now),
            }
        }
    }

    fn end_captures(&self, end: impl Fn(&CapturePoint) -> Option<Result<Captured, String>>) {
        for link in &self.links {
            match end(&link.capture) {
                Some(Ok(Captured { port, file, packets, .. })) => {
                    tracing::info!(port, file = ?file, packets, "capture complete");
                }
                Some(Err(error)) => tracing::error!(port = link.name(), "{error}"),
                None => {}
            }
        }
    }

    fn sample(&mut self, now: Instant) {
        let seconds = now.since(self.sampled_at).as_secs_f64();
        self.sampled_at = now;
        for (number, link) in self.links.iter_mut().enumerate() {
            let counters = self.driver.link_counters(number).unwrap_or_default();
            // The counters of a reopened link start at zero.
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            let rate = |now: u64, before: u64| rounded(rate(now, before));
            link.rates = Rates {
                units_in: rate(counters.units_in, link.sampled.units_in),
                units_out: rate(counters.units_out, link.sampled.units_out),
                bits_in: rate(8 * counters.bytes_in, 8 * link.sampled.bytes_in),
                bits_out: rate(8 * counters.bytes_out, 8 * link.sampled.bytes_out),
            };
            link.sampled = counters;
        }
    }

    // ---- Requests ---------------------------------------------------------------------------------

    fn answer(&mut self, request: Request, now: Instant) -> Answer {
        match request {
            Request::Status => Answer::Status(Box::new(self.status(now))),
            Request::Down => {
                self.stop(now);
                Answer::Done(format!("board {} is stopping", self.plan.name))
            }
            Request::Reload => match self.reload(now) {
                Ok(what) => {
                    if let Some(untold) = self.lines.try_take(now) {
                        tracing::info!(untold = not_zero(untold), "configuration reloaded: {what}");
                    }
                    Answer::Done(what)
                }
                Err(why) => {
                    if let Some(untold) = self.lines.try_take(now) {
                        tracing::error!(
                            untold = not_zero(untold),
                            "reload failed, the configuration is unchanged: {why}"
                        );
                    }
                    Answer::Refused(why)
                }
            },
            Request::Loopback { .. } => Answer::Refused("a ping is answered when its cell returns".into()),
            Request::Capture { port, file, time, packets } => {
                match self.capture(&port, &file, time, packets, now) {
                    Ok(capturing) => Answer::Capturing(capturing),
                    Err(why) => Answer::Refused(why),
                }
            }
            Request::EndCapture(number) => {
                self.end_captures(|capture| capture.end_number(number));
                Answer::Done(format!("capture {number} ended"))
            }
        }
    }

    /// Pings a circuit; the client gets its answer when the OAM cell returns.
    fn ping(&mut self, port: &str, vc: Vc, segment: bool, sender: oneshot::Sender<Answer>) {
        let ports = &self.plan.ports;
        let circuit = match ports.iter().position(|its| its.name == port) {
            None => {
                let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
                Err(format!("no port {port}; the ports are {}", names.join(", ")))
            }
            Some(number) => match ports[number].circuits.iter().position(|circuit| circuit.vc == vc) {
                Some(circuit) => Ok((number, circuit as u32)),
                None => {
                    let all: Vec<String> =
                        ports[number].circuits.iter().map(|circuit| circuit.vc.to_string()).collect();
                    let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
                    Err(format!("port {port} has no circuit {vc}; its circuits are {all}"))
                }
            },
        };
        match circuit {
            Ok(circuit) => {
                let ask = |loopbacks: &mut Loopbacks, host: &mut Host<'_>, now| {
                    loopbacks.ask(circuit, segment, sender, host, now);
                };
                self.driver.with_program(self.loopbacks, ask).expect("it is the driver's program");
            }
            Err(why) => drop(sender.send(Answer::Refused(why))),
        }
    }

    fn capture(
        &mut self,
        port: &str,
        file: &Path,
        time: Duration,
        packets: u64,
        now: Instant,
    ) -> Result<RunningCapture, String> {
        let Some(link) = self.links.iter().find(|link| link.name() == port) else {
            let names: Vec<String> = self.links.iter().map(PortLink::name).collect();
            return Err(format!("no port {port}; the ports are {}", names.join(", ")));
        };
        if let Some(why) = self.sandbox.as_ref().and_then(|its| confinement::refuses_file(its, file)) {
            return Err(why);
        }
        self.captures += 1;
        let (number, port) = (self.captures, port.to_owned());
        link.capture.begin(Wanted { number, port, file, ends: now + time, packets }, now)
    }

    fn stop(&mut self, now: Instant) {
        let drain = self.plan.drain;
        let sessions = self.with_services(|services, host, _| {
            services.close(host, |_| true);
            services.sessions()
        });
        self.stops_at = match self.stops_at {
            Some(_) => Some(now),
            None => Some(now + drain),
        };
        if let Some(untold) = self.lines.try_take(now) {
            tracing::info!(sessions, untold = not_zero(untold), "stopping");
        }
    }

    fn reload(&mut self, now: Instant) -> Result<String, String> {
        if self.stops_at.is_some() {
            return Err("the board is stopping".into());
        }
        let Some(file) = &self.file else {
            return Err(format!(
                "board {} was configured on the command line and has no configuration file to reload: \
                 stop it (kiban down {0}) and start it again",
                self.plan.name
            ));
        };
        let plan = read_again(file, self.sandbox.is_some())?;
        if let Some(key) = self.plan.needs_new_board(&plan) {
            return Err(format!("{key} has changed, which requires a restart: kiban down, then kiban up"));
        }
        if let Some(why) = self.sandbox.as_ref().and_then(|its| confinement::refuses(its, &self.plan, &plan))
        {
            return Err(why);
        }
        // Create the new services before anything is changed, because this may fail.
        let chime = self.with_services(|services, _, _| services.chime().clone());
        let is_new = |service: &&crate::config::ServicePlan| !self.plan.services.contains(service);
        let made: Vec<_> = plan
            .services
            .iter()
            .filter(is_new)
            .map(|service| Ok((service.clone(), services::make(service, &chime)?)))
            .collect::<io::Result<_>>()
            .map_err(|error| match self.sandbox {
                Some(_) => format!("{error}{}", sandbox::hint(&error)),
                None => error.to_string(),
            })?;
        let (added, kept) = (made.len(), plan.services.len() - made.len());
        let closed = self.plan.services.len() - kept;
        let failed = self.with_services(|services, host, now| {
            services.close(host, |old| !plan.services.contains(old));
            let mut failed = Vec::new();
            for (plan, service) in made {
                let name = plan.name.clone();
                if let Err(error) = services.add(plan, service, host, now) {
                    failed.push((name, error));
                }
            }
            failed
        });
        let board = self.driver.board();
        let mut said = format!("services: {kept} kept, {added} new, {closed} closed");
        let mut say = |what: &str, new: usize, gone: usize| {
            if new + gone > 0 {
                said.push_str(&format!("; {what}: {new} new, {gone} gone"));
            }
        };
        let gone = self.plan.routes.iter().filter(|route| !plan.routes.contains(route));
        let new = plan.routes.iter().filter(|route| !self.plan.routes.contains(route));
        say("routes", new.clone().count(), gone.clone().count());
        for route in gone {
            board.remove_route(route.port, route.prefix, Some(route.gateway));
        }
        for route in new {
            board.add_route(route_of(&plan, route));
        }
        let mut links = 0;
        for (number, link) in self.links.iter_mut().enumerate() {
            let Some(port) = plan.ports.iter().find(|port| port.name == link.plan.name) else { continue };
            let is_other = link.device.is_none()
                && (link.plan.link != port.link || link.plan.host_address != port.host_address);
            link.plan = port.clone();
            if is_other {
                self.driver.detach(number);
                link.state.renew(now);
                links += 1;
            }
        }
        say("links", links, links);
        if let Some(at) = plan.metrics.filter(|_| plan.metrics != self.plan.metrics) {
            said.push_str(&format!("; metrics at {at}"));
        }
        self.plan = plan;
        // Remove services that could not start from the plan, so that the next reload tries them again.
        self.plan.services.retain(|service| failed.iter().all(|(name, _)| *name != service.name));
        self.reloads += 1;
        self.reopen(now);
        (self.on_change)(&self.plan);
        if failed.is_empty() {
            Ok(said)
        } else {
            let why: Vec<String> = failed.into_iter().map(|(_, error)| error).collect();
            Err(format!("reloaded, but some services failed: {}", why.join("; ")))
        }
    }

    fn status(&mut self, now: Instant) -> Status {
        let views = self.with_services(|services, _, _| services.views().collect::<Vec<_>>());
        let services = views.into_iter().map(|view| status::Service {
            name: view.plan.name.clone(),
            kind: view.plan.kind.word().into(),
            listen: view.plan.listen.to_string(),
            state: if view.closed { "ending" } else { "listening" }.into(),
            sessions: view.sessions as u64,
            sessions_max: view.plan.sessions_max as u64,
            counters: named(|see| view.counters.each(see)),
        });
        let services = services.collect();
        let ports = (0..self.links.len()).map(|number| self.port_status(number)).collect();
        let circuits = (0..self.plan.ports.len()).flat_map(|number| self.circuits(number)).collect();
        let at_ports: Vec<BTreeMap<String, Counters>> =
            (0..self.links.len()).map(|number| self.port_counters(number)).collect();
        let board = self.driver.board();
        let mut counters: BTreeMap<String, Counters> = BTreeMap::new();
        board.counters(&mut |family, name, value| {
            // Skip counters that are reported with their port.
            if !at_ports.iter().any(|port| port.contains_key(family)) {
                *counters.entry(family.into()).or_default().entry(name.into()).or_default() += value;
            }
        });
        let mut sessions = Counters::new();
        for info in board.infos() {
            *sessions.entry(state_word(info.state)).or_default() += 1;
        }
        let page_bytes = self.plan.board.memory.page_bytes as u64;
        let memory = board.memory_mut();
        let of = |capacity: usize, at_home: usize, unit: u64| status::Use {
            capacity: capacity as u64 * unit,
            used: capacity.saturating_sub(at_home) as u64 * unit,
        };
        let memory = status::Memory {
            transmit_bytes: of(memory.transmit.capacity(), memory.transmit.available(), page_bytes),
            receive_bytes: of(memory.receive.capacity(), memory.receive.available(), page_bytes),
            pdus: of(memory.pdus.capacity(), memory.pdus.available(), 1),
        };
        Status {
            name: self.plan.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            state: if self.stops_at.is_some() { "stopping" } else { "running" }.into(),
            config: self.file.as_ref().map_or("(command line)".into(), |file| file.display().to_string()),
            uptime_seconds: rounded(now.since(self.began).as_secs_f64()),
            reloads: self.reloads,
            sandbox: self.sandbox.as_ref().map(Sandbox::report).map(status::Sandbox::from),
            memory,
            sessions,
            ports,
            circuits,
            services,
            counters,
        }
    }

    fn port_counters(&mut self, number: usize) -> BTreeMap<String, Counters> {
        let mut counters: BTreeMap<String, Counters> = BTreeMap::new();
        self.driver.board().port_counters(number, &mut |family, name, value| {
            counters.entry(family.into()).or_default().insert(name.into(), value);
        });
        counters
    }

    fn port_status(&mut self, number: usize) -> status::Port {
        let link_counters = self.driver.link_counters(number).unwrap_or_default();
        let counters = self.port_counters(number);
        let waiting = self.driver.board().waiting(number) as u64;
        let link = &self.links[number];
        status::Port {
            name: link.name(),
            link: link.address().to_owned(),
            carries: if link.device.is_none() { link.plan.carries } else { Carries::Packets }.to_string(),
            state: if link.state.is_up { "up" } else { "down" }.into(),
            error: link.state.error.clone(),
            addresses: link
                .plan
                .addresses
                .iter()
                .map(|(address, net)| format!("{address}/{}", net.bits()))
                .collect(),
            host: if link.device.is_none() { link.plan.host.clone() } else { None },
            mtu_bytes: link.plan.mtu_bytes as u64,
            waiting,
            losses: link.state.losses,
            lost: losses::of_port(&link_counters, &counters),
            rates: link.rates,
            link_counters: named(|see| link_counters.each(see)),
            counters,
        }
    }

    fn circuits(&mut self, number: usize) -> Vec<status::Circuit> {
        let peers: Vec<_> = self.driver.board().circuit_peers(number).collect();
        let plan = &self.links[number].plan;
        let bridged = |index: usize| {
            let mut all = self.plan.ports.iter().filter_map(|port| port.bridge.as_ref()).flatten();
            all.any(|its| (its.port, its.circuit as usize) == (number, index))
        };
        let circuits = plan.circuits.iter().zip(peers).enumerate();
        let circuits = circuits.map(|(index, (circuit, peer))| status::Circuit {
            port: plan.name.clone(),
            vc: circuit.vc.to_string(),
            peer: peer.map(|peer| peer.to_string()),
            state: match (circuit.peer, peer) {
                _ if bridged(index) => "bridged",
                (Some(_), _) => "fixed",
                (None, Some(_)) => "known",
                (None, None) => "asking",
            }
            .into(),
        });
        circuits.collect()
    }
}

/// While the board stops, the interval between checks whether all sessions have ended.
const QUIET_LOOK: Duration = Duration::from_millis(100);

/// Reads a plan from a file at start; if it is a pipe (`kiban up <(…)`, `/dev/stdin`), waits for its end.
///
/// # Errors
/// If the file cannot be read, or is invalid; the message names the line.
pub fn read(file: &Path) -> Result<Plan, String> {
    validate(file, File::open(file), false)
}

/// Reads a plan again. Accepts a regular file only, because the board's thread must not block.
fn read_again(file: &Path, is_confined: bool) -> Result<Plan, String> {
    validate(file, regular::open(file), is_confined)
}

fn validate(file: &Path, opened: io::Result<File>, is_confined: bool) -> Result<Plan, String> {
    // For a pipe or a terminal, relative paths are relative to the working directory.
    let is_regular = opened.as_ref().is_ok_and(|opened| opened.metadata().is_ok_and(|about| about.is_file()));
    let folder = file.parent().filter(|_| is_regular).unwrap_or(Path::new(""));
    let text = opened.and_then(|opened| regular::text(opened, CONFIG_BYTES_MAX));
    let text = text.map_err(|error| {
        let hint = if is_confined { sandbox::hint(&error) } else { "" };
        format!("{}: {error}{hint}", file.display())
    })?;
    let name = file.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    let plan =
        Plan::read_in(&text, &name, folder).map_err(|mistake| format!("{}: {mistake}", file.display()))?;
    let folders = names::paths();
    let sockets = folders.iter().map(|path| Private { what: "the directory of kiban's sockets", path });
    let private: Vec<_> =
        [Private { what: "the configuration", path: file }].into_iter().chain(sockets).collect();
    for service in &plan.services {
        if let Kind::Http { root, .. } = &service.kind {
            exposure::check(root, &private).map_err(|error| format!("service {}: {error}", service.name))?;
        }
    }
    Ok(plan)
}

/// Returns the number of suppressed lines, if any.
fn not_zero(untold: u64) -> Option<u64> {
    (untold > 0).then_some(untold)
}

/// Returns whether all sessions have ended (TIME-WAIT excepted).
fn is_quiet(driver: &Driver, services: usize) -> bool {
    let sessions = driver.program::<Services>(services).map_or(0, Services::sessions);
    sessions == 0 && driver.view().infos().all(|info| info.state == State::TimeWait)
}

/// Checks that enough memory is available: a board allocates its packet memory at start, and a failed
/// allocation would abort the process.
fn has_memory(wanted: usize) -> Result<(), String> {
    let host = rustix::system::sysinfo();
    let there = (host.totalram as u64).saturating_mul(host.mem_unit.into());
    if wanted as u64 <= there {
        return Ok(());
    }
    let mib = |bytes: u64| bytes >> 20;
    let (wanted, there) = (mib(wanted as u64), mib(there));
    Err(format!("memory: transmit and receive need {wanted} MiB, and this host has {there} MiB: reduce them"))
}

/// Converts a state to snake case: `Established` to `established`, `FinWait1` to `fin_wait1`.
fn state_word(state: State) -> String {
    let mut word = String::new();
    for character in format!("{state:?}").chars() {
        if character.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(character.to_ascii_lowercase());
    }
    word
}

impl PortLink {
    fn new(plan: PortPlan, device: Option<String>) -> PortLink {
        PortLink {
            plan,
            device,
            capture: Arc::default(),
            state: LinkState::new(),
            sampled: LinkCounters::default(),
            rates: Rates::default(),
        }
    }

    fn open(&self) -> io::Result<AnyLink> {
        match &self.device {
            None => link::open(&self.plan, &self.capture),
            Some(device) => link::open_host(&self.plan, device, &self.capture),
        }
    }

    /// Returns the link's name; the kernel's side of a port has a name of its own.
    fn name(&self) -> String {
        match self.device {
            None => self.plan.name.clone(),
            Some(_) => format!("{}.host", self.plan.name),
        }
    }

    /// Returns the address of its link.
    fn address(&self) -> &str {
        self.device.as_deref().unwrap_or(&self.plan.link)
    }

    fn lose(&mut self, error: &io::Error, now: Instant) {
        tracing::warn!(port = self.plan.name, link = self.address(), %error, "link lost");
        self.state.lose(error, now);
    }

    fn fail(&mut self, error: &io::Error, now: Instant) {
        self.state.fail(error, now);
        tracing::debug!(port = self.plan.name, %error, "link still lost");
    }

    fn rise(&mut self, now: Instant) {
        tracing::info!(port = self.plan.name, link = self.address(), "link up");
        self.state.rise(now);
    }
}

fn route_of(plan: &Plan, route: &RoutePlan) -> Route {
    Route {
        prefix: route.prefix,
        port: route.port,
        gateway: Some(route.gateway),
        source: route.source,
        mtu_bytes: plan.ports[route.port].mtu_bytes,
    }
}

/// Returns the configuration of a plan's board, for the links that were opened.
fn plan_board(plan: &Plan, opened: &[io::Result<AnyLink>]) -> kiban_board::BoardConfig {
    let mut board = plan.board.clone();
    // Ports of bridges do not carry IP.
    let own = plan.ports.iter().filter(|port| port.bridge.is_none()).count();
    let mtu = plan.ports[..own].iter().map(|port| port.mtu_bytes).min().unwrap_or(1500);
    if !plan.mss_is_configured {
        board.tcp.mss = mtu.saturating_sub(40) as u16;
    }
    // TCP may produce larger segments only if every port can cut them into cells or packets.
    let may_be_whole = plan.ports[..own].iter().all(|port| port.carries != Carries::Cells);
    let is_whole =
        |opened: &io::Result<AnyLink>| opened.as_ref().is_ok_and(|link| link.traits().whole_segments);
    let opened = &opened[..plan.ports.len()];
    let any_whole = may_be_whole && opened[..own].iter().any(is_whole);
    board.tcp.segment_bytes_max = if any_whole { SEGMENT_BYTES } else { board.tcp.mss.into() };
    board.tcp.segmentation_offload = any_whole && !opened[..own].iter().all(is_whole);
    for (number, (port, opened)) in plan.ports.iter().zip(opened).enumerate() {
        let whole = is_whole(opened);
        // Packets to the kernel's side pass unchanged.
        let (cuts, merges) = (!whole, !whole && port.host.is_none());
        let PortPlan { mtu_bytes, packets_max, .. } = *port;
        if let Some(circuits) = &port.bridge {
            let circuits = circuits.clone();
            board.ports.push(PortConfig::Bridge(BridgePortConfig { circuits, packets_max }));
            continue;
        }
        board.ports.push(match port.carries {
            Carries::Packets => {
                let (address, prefix) = port.addresses[0];
                for (address, prefix) in &port.addresses[1..] {
                    board.addresses.push(PortAddress { port: number, address: *address, prefix: *prefix });
                }
                let believe_sums = true;
                PortConfig::Ip(IpPortConfig {
                    address,
                    prefix,
                    mtu_bytes,
                    packets_max,
                    cuts,
                    merges,
                    believe_sums,
                })
            }
            Carries::Frames => {
                let link =
                    LinkConfig { addresses: port.addresses.clone(), mtu_bytes, ..LinkConfig::new(port.mac) };
                let believe_sums = true;
                PortConfig::Ethernet(EthernetPortConfig { link, packets_max, cuts, merges, believe_sums })
            }
            Carries::Cells => {
                // A port without an address: its circuits belong to bridges.
                let none = (IpAddr::from([0; 4]), Prefix::new(IpAddr::from([0; 4]), 32));
                let (address, prefix) = port.addresses.first().copied().unwrap_or(none);
                for (address, prefix) in port.addresses.iter().skip(1) {
                    board.addresses.push(PortAddress { port: number, address: *address, prefix: *prefix });
                }
                PortConfig::Atm(AtmPortConfig {
                    line_bits_per_second: port.bits_per_second,
                    interface: Interface::Uni,
                    address,
                    prefix,
                    mtu_bytes,
                    circuits: port.circuits.clone(),
                })
            }
        });
    }
    for (of, port) in plan.ports.iter().enumerate().filter(|(_, port)| port.host.is_some()) {
        board.ports.push(PortConfig::Host(HostPortConfig { of, packets_max: port.packets_max }));
    }
    board
}
