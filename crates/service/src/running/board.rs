//! A running board: starts, answers requests, reloads and stops.

use super::configuration::read_again;
use super::part::is_quiet;
use super::plan::{has_memory, plan_board, route_of};
use super::port_link::PortLink;
use super::shards::{Shards, config_of, share_of};
use crate::capture::{CapturePoint, Wanted};
use crate::config::{Plan, ServicePlan};
use crate::confinement;
use crate::echo::Echoes;
use crate::loopback::Loopbacks;
use crate::requests::{Answer, Captured, Echo, Request, RequestQueue, RunningCapture};
use crate::services::{Maker, Services};
use crate::status::{Rates, rounded};
use kiban_atm::wire::atm::Vc;
use kiban_base::{Instant, SecureRng};
use kiban_board::{Board, Host, ShardConfig, Steering};
use kiban_link::board_driver::Waker;
use kiban_link::{AnyLink, Driver, ShardRings};
use kiban_os::lines::LogLimiter;
use kiban_os::{Clock, Waiting, random};
use kiban_sandbox as sandbox;
use kiban_sandbox::{OnRefusal, Sandbox};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The interval at which link counters are sampled.
const SAMPLE: Duration = Duration::from_secs(1);

/// A running board.
pub struct Running {
    pub(super) plan: Plan,
    /// The file from which the plan was read, if any.
    pub(super) file: Option<PathBuf>,
    pub(super) driver: Driver,
    /// The other shards, if the board is divided.
    pub(super) shards: Shards,
    waiting: Waiting,
    clock: Clock,
    pub(super) began: Instant,
    pub(super) services: usize,
    loopbacks: usize,
    echoes: usize,
    pub(super) links: Vec<PortLink>,
    requests: Arc<RequestQueue>,
    sampled_at: Instant,
    /// When the remaining sessions are reset. `None` unless the board is stopping.
    pub(super) stops_at: Option<Instant>,
    pub(super) reloads: u64,
    on_change: Box<dyn FnMut(&Plan)>,
    /// Number of captures started.
    captures: u64,
    /// The active parts of the sandbox. `None` if the sandbox is off.
    pub(super) sandbox: Option<Sandbox>,
    /// Limits the rate of log lines about requests, because clients may send any number of them.
    lines: LogLimiter,
}

impl Running {
    /// Opens the links of a plan and builds its board. `file` is the file that the plan was read from, if
    /// any. A reload reads the file again.
    ///
    /// # Errors
    /// If a required link cannot be opened (the message says what to do), or a service cannot listen.
    pub fn start(plan: Plan, file: Option<&Path>) -> Result<Running, String> {
        let clock = Clock::new();
        // Ports come first, then the kernel's sides of ports, because the board numbers them in this order.
        let mut links: Vec<PortLink> =
            plan.ports.iter().map(|port| PortLink::new(port.clone(), None)).collect();
        let sides = plan.ports.iter().filter(|port| port.host.is_some());
        links.extend(sides.map(|port| PortLink::new(port.clone(), port.host.clone())));
        let mut opened = Vec::new();
        for link in &links {
            opened.push(match link.open(plan.shards) {
                Err(error) if !link.plan.retry => return Err(format!("port {}: {error}", link.plan.name)),
                result => result,
            });
        }
        let config = plan_board(&plan, &opened);
        let key =
            random::key().map_err(|error| format!("cannot get random numbers from the system: {error}"))?;
        let identifier =
            random::bytes().map_err(|error| format!("cannot get random numbers from the system: {error}"))?;
        has_memory(config.memory.transmit_bytes + config.memory.receive_bytes)?;
        let say = |error: io::Error| format!("cannot set up event polling for the board: {error}");
        let (mut driver, shards) = if plan.shards == 1 {
            let board = with_routes(Board::new(&config, key), &plan);
            (Driver::new(board, clock).map_err(say)?, Shards::default())
        } else {
            let mut keys = SecureRng::new(key);
            let steering = Steering::new(plan.shards, keys.draw_key());
            let boards = (0..plan.shards).map(|number| {
                let config = config_of(&config, &plan, ShardConfig { number, steering });
                with_routes(Board::new(&config, keys.draw_key()), &plan)
            });
            let mut boards: Vec<_> = boards.zip(ShardRings::between(plan.shards).map_err(say)?).collect();
            let (first, rings) = boards.remove(0);
            let shards = Shards::start(boards, (steering, rings.waker()), clock, plan.wait)?;
            (Driver::of_shard(first, clock, rings), shards)
        };
        let now = clock.now();
        for (number, (link, opened)) in links.iter_mut().zip(opened).enumerate() {
            match opened {
                Ok(opened) => {
                    attach(&mut driver, &shards, number, opened);
                    link.rise(now);
                }
                Err(error) => link.lose(&error, now),
            }
        }
        let shard_count = plan.shards;
        let mut services = Services::new().map_err(say)?;
        let mut parts = Vec::new();
        for plan in &plan.services {
            let plan = share_of(plan, shard_count);
            let made = shards.make_service(&plan, services.chime()).map_err(|error| error.to_string())?;
            parts.push((plan.clone(), made.1));
            services.put(plan, made.0);
        }
        let services = driver.add_fd_program(Box::new(services));
        let loopbacks = driver.add(Box::<Loopbacks>::default());
        let echoes = driver.add(Box::new(Echoes::new(u16::from_le_bytes(identifier))));
        let requests = Arc::new(RequestQueue::new(driver.waker()));
        let mut running = Running {
            waiting: driver.waiting(plan.wait),
            shards,
            plan,
            file: file.map(Path::to_owned),
            driver,
            clock,
            began: now,
            services,
            loopbacks,
            echoes,
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
        running.begin(parts)?;
        Ok(running)
    }

    /// Starts the services, with their parts on the other shards; fails if any of them fails.
    fn begin(&mut self, parts: Vec<(ServicePlan, Vec<Maker>)>) -> Result<(), String> {
        match self.with_services(|services, _, _| services.failures().first().cloned()) {
            Some(failure) => Err(failure),
            None => parts.into_iter().try_for_each(|(plan, parts)| self.shards.add_service(&plan, parts)),
        }
    }

    pub(super) fn with_services<T>(
        &mut self,
        work: impl FnOnce(&mut Services, &mut Host<'_>, Instant) -> T,
    ) -> T {
        self.driver.with_program(self.services, work).expect("the services are the driver's program")
    }

    /// Drops the privileges that are no longer needed, in all threads. Must be called after everything else
    /// has started.
    ///
    /// # Errors
    /// If the privileges could not be dropped.
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

    /// Sets a callback that is called with every configuration applied.
    pub fn tell(&mut self, on_change: impl FnMut(&Plan) + 'static) {
        self.on_change = Box::new(on_change);
    }

    /// Runs until it is stopped.
    pub fn run(&mut self) {
        loop {
            let until = self.next_look();
            let Running { driver, shards, waiting, requests, services, stops_at, links, .. } = self;
            driver.run(waiting, until, |driver| {
                requests.waits()
                    || driver.has_lost_links()
                    || links.iter().any(|link| link.capture.is_full())
                    || stops_at.is_some() && !shards.are_there() && is_quiet(driver, *services)
            });
            let now = self.clock.now();
            let lost = self.driver.take_lost_links();
            self.lose(lost, now);
            self.reopen(now);
            for (number, link) in self.links.iter_mut().enumerate() {
                if let Some(client) = self.driver.view().dhcp(number) {
                    link.log_lease(client);
                }
            }
            if now >= self.sampled_at + SAMPLE {
                self.sample(now);
            }
            self.end_captures(|capture| capture.end(now));
            while let Some((request, sender)) = self.requests.next() {
                match request {
                    Request::Loopback { port, vc, segment } => self.ping(&port, vc, segment, sender),
                    Request::Echo(echo) => self.ping_host(echo, sender),
                    // The client may have disconnected.
                    request => drop(sender.send(self.answer(request, now))),
                }
            }
            if let Some(stops_at) = self.stops_at
                && (now >= stops_at || is_quiet(&self.driver, self.services) && self.shards.are_quiet())
            {
                let left = self.with_services(|services, host, _| {
                    let left = services.sessions();
                    services.cut(host);
                    left
                });
                let left = left + self.shards.cut();
                self.driver.turn();
                self.driver.board().release_leases();
                // This sends the releases.
                self.with_services(|_, _, _| ());
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

    /// Handles the loss of links. A link that one shard has lost is opened again for all.
    fn lose(&mut self, lost: Vec<(usize, io::Error)>, now: Instant) {
        for (port, error) in lost {
            let Some(link) = self.links.get_mut(port).filter(|link| link.state.is_up) else { continue };
            link.lose(&error, now);
            self.driver.detach(port);
            self.shards.detach(port);
        }
    }

    /// Reopens lost links that are due.
    fn reopen(&mut self, now: Instant) {
        let mut any = false;
        for (number, link) in self.links.iter_mut().enumerate() {
            if !link.state.is_due(now) {
                continue;
            }
            let opened = link.open(self.plan.shards);
            match opened.map(|opened| attach(&mut self.driver, &self.shards, number, opened)) {
                Ok(()) => {
                    link.rise(now);
                    self.driver.board().verify_lease(number);
                    any = true;
                }
                Err(error) => link.fail(&error, now),
            }
        }
        if any {
            // This sends the requests that verify leases.
            self.with_services(|_, _, _| ());
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
        let others = self.shards.link_states(self.links.len());
        for (number, link) in self.links.iter_mut().enumerate() {
            let mut counters = self.driver.link_counters(number).unwrap_or_default();
            others.iter().for_each(|(theirs, _)| counters.add(&theirs[number]));
            // The counters of a reopened link start from zero.
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
        others.into_iter().for_each(|(_, lost)| self.lose(lost, now));
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
            Request::Loopback { .. } | Request::Echo(_) => {
                Answer::Refused("a ping is answered when its reply arrives".into())
            }
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

    /// Pings a host; the client is answered when the reply arrives.
    fn ping_host(&mut self, echo: Echo, sender: oneshot::Sender<Answer>) {
        let ask = |echoes: &mut Echoes, host: &mut Host<'_>, now| echoes.ask(echo, sender, host, now);
        self.driver.with_program(self.echoes, ask).expect("it is the driver's program");
    }

    /// Pings a circuit; the client is answered when the OAM cell returns.
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
        self.shards.close_services(Vec::new());
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
        // Create the new services before changing anything, because their creation may fail.
        let chime = self.with_services(|services, _, _| services.chime().clone());
        // A limit that changes by less than one session per shard changes no shard.
        let shares = |services: &[ServicePlan]| -> Vec<ServicePlan> {
            services.iter().map(|service| share_of(service, plan.shards)).collect()
        };
        let old_shares = shares(&self.plan.services);
        let is_new = |service: &&ServicePlan| !old_shares.contains(&share_of(service, plan.shards));
        let new = plan.services.iter().filter(is_new);
        let made: Vec<_> = new
            .map(|service| {
                let service = share_of(service, plan.shards);
                let made = self.shards.make_service(&service, &chime)?;
                Ok((service, made))
            })
            .collect::<io::Result<_>>()
            .map_err(|error| match self.sandbox {
                Some(_) => format!("{error}{}", sandbox::hint(&error)),
                None => error.to_string(),
            })?;
        let (added, kept) = (made.len(), plan.services.len() - made.len());
        let closed = self.plan.services.len() - kept;
        let kept_shares = shares(&plan.services);
        let (parts, mut failed) = self.with_services(|services, host, now| {
            services.close(host, |old| !kept_shares.contains(old));
            let (mut added, mut failed) = (Vec::new(), Vec::new());
            for (plan, (service, parts)) in made {
                match services.add(plan.clone(), service, host, now) {
                    Ok(()) => added.push((plan, parts)),
                    Err(error) => failed.push((plan.name, error)),
                }
            }
            (added, failed)
        });
        if self.shards.are_there() {
            self.shards.close_services(plan.services.clone());
            let started = failed.len();
            for (plan, parts) in parts {
                if let Err(error) = self.shards.add_service(&plan, parts) {
                    failed.push((plan.name, error));
                }
            }
            if failed.len() > started {
                // A service that one shard cannot start must not run on the others.
                let has_failed = |plan: &ServicePlan| failed.iter().any(|(name, _)| *name == plan.name);
                self.with_services(|services, host, _| services.close(host, has_failed));
                let stays = plan.services.iter().filter(|service| !has_failed(service)).cloned();
                self.shards.close_services(stays.collect());
            }
        }
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
            let (port, prefix, gateway) = (route.port, route.prefix, Some(route.gateway));
            board.remove_route(port, prefix, gateway);
            self.shards.each(move |shard| shard.driver.board().remove_route(port, prefix, gateway));
        }
        for route in new {
            let route = route_of(&plan, route);
            board.add_route(route);
            self.shards.each(move |shard| shard.driver.board().add_route(route));
        }
        let mut links = 0;
        for (number, link) in self.links.iter_mut().enumerate() {
            let Some(port) = plan.ports.iter().find(|port| port.name == link.plan.name) else { continue };
            let is_other = link.device.is_none()
                && (link.plan.link != port.link || link.plan.host_address != port.host_address);
            link.plan = port.clone();
            if is_other {
                self.driver.detach(number);
                self.shards.detach(number);
                link.state.renew(now);
                links += 1;
            }
        }
        say("links", links, links);
        if let Some(at) = plan.metrics.filter(|_| plan.metrics != self.plan.metrics) {
            said.push_str(&format!("; metrics at {at}"));
        }
        self.plan = plan;
        // If services failed to start, remove them from the plan, so that the next reload tries to start them
        // again.
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
}

/// The interval at which a stopping board checks whether all sessions have ended.
const QUIET_LOOK: Duration = Duration::from_millis(100);

/// Adds the routes of a plan to a board.
fn with_routes(mut board: Board, plan: &Plan) -> Board {
    plan.routes.iter().for_each(|route| board.add_route(route_of(plan, route)));
    board
}

/// Attaches the queues of a link to the shards.
fn attach(driver: &mut Driver, shards: &Shards, port: usize, queues: Vec<AnyLink>) {
    let mut queues = queues.into_iter();
    queues.next().into_iter().for_each(|first| driver.attach(port, first));
    shards.attach(port, queues);
}

/// Returns the number of suppressed log lines; `None` if there are none.
fn not_zero(untold: u64) -> Option<u64> {
    (untold > 0).then_some(untold)
}
