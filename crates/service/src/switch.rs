//! A running ATM switch: its links, its table, its status and its shutdown.
//!
//! Links            the loss of a link is reported, and cells for the link are lost until it is reopened. The
//!                  first attempt to reopen it is made after 1 s; the pauses then grow to 30 s.
//! Status           a [`Status`] is reported periodically, on request, and at the end.

pub use crate::config::switch::{LinkCircuit, LinkPlan, LinkWords, Plan, RoutePlan};

use crate::confinement;
use crate::link_state::LinkState;
use crate::losses;
use crate::signals::{self, SignalRequest};
use crate::status::{Counters, named, rounded};
use kiban_atm::{Interval, Route, Switch, SwitchPort};
use kiban_base::Instant;
use kiban_link::atm::switch::SwitchDriver;
use kiban_link::{Address, AnyLink};
use kiban_os::{Clock, Flag, Waiting};
use kiban_sandbox::{OnRefusal, Sandbox};
use serde::Serialize;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Status of a switch.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Seconds since it started.
    pub uptime_seconds: f64,
    /// Links.
    pub links: Vec<LinkStatus>,
    /// Table entries.
    pub routes: Vec<RouteStatus>,
    /// Switch-wide counters.
    pub counters: Counters,
}

/// Status of a link.
#[derive(Clone, Debug, Serialize)]
pub struct LinkStatus {
    /// Its name.
    pub name: String,
    /// Its address.
    pub link: String,
    /// `up` or `down`.
    pub state: &'static str,
    /// Why it is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Times that it was lost.
    pub losses: u64,
    /// Cells received on circuits without a table entry.
    pub unknown: u64,
    /// Cells received with an invalid HEC, and dropped.
    pub hec_bad: u64,
    /// Headers in which a single-bit error was corrected.
    pub hec_corrected: u64,
    /// Losses on the link, by cause; each cause is also a counter below.
    pub lost: Counters,
    /// Segment loopbacks answered.
    pub answered: u64,
    /// Cells queued for the link.
    pub waiting: u64,
    /// The link's counters since it was opened.
    pub counters: Counters,
}

/// Status of a table entry.
#[derive(Clone, Debug, Serialize)]
pub struct RouteStatus {
    /// Where its cells arrive.
    pub from: String,
    /// Where they leave.
    pub to: String,
    /// Counters of its cells.
    #[serde(flatten)]
    pub counters: Counters,
}

/// Reads a plan from a file.
///
/// # Errors
/// If the file cannot be read or is invalid; the message names the line.
pub fn read(file: &Path) -> Result<Plan, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let name = file.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    Plan::read(&text, &name).map_err(|mistake| format!("{}: {mistake}", file.display()))
}

/// Requests from signals.
#[derive(Default)]
struct SignalRequests {
    stop: Flag,
    report: Flag,
}

/// A running switch.
pub struct RunningSwitch {
    plan: Plan,
    driver: SwitchDriver,
    waiting: Waiting,
    clock: Clock,
    began: Instant,
    link_states: Vec<LinkState>,
    requests: Arc<SignalRequests>,
}

impl RunningSwitch {
    /// Builds a plan's switch, opens its links, and starts handling signals.
    ///
    /// # Errors
    /// If a required link cannot be opened; the message says what to do.
    pub fn start(plan: Plan) -> Result<RunningSwitch, String> {
        let clock = Clock::new();
        let ports: Vec<SwitchPort> = plan
            .links
            .iter()
            .map(|link| {
                let cell_time = Interval::of_line(link.bits_per_second);
                SwitchPort::plain(cell_time, link.interface, link.cells_max)
            })
            .collect();
        let mut switch = Switch::new(&ports, Duration::ZERO);
        for route in &plan.routes {
            let RoutePlan { from, to, cells_max, police, shape, service, frame_discard } = *route;
            let route = Route {
                police,
                shape,
                service,
                frame_discard,
                ..Route::plain(from.link, from.name, to.link, to.name, cells_max)
            };
            switch.add(route).map_err(|refused| format!("route {}: {refused}", plan.word(from)))?;
        }
        let sides: Vec<_> = plan.links.iter().map(|link| (link.interface, link.ends_segment)).collect();
        let say = |error: io::Error| format!("cannot set up event polling for the switch: {error}");
        let mut driver = SwitchDriver::new(switch, &sides, clock).map_err(say)?;
        let now = clock.now();
        let mut link_states = Vec::new();
        for (port, link) in plan.links.iter().enumerate() {
            let mut state = LinkState::new();
            match open(link).map(|opened| driver.attach(port, opened)) {
                Ok(()) => state.rise(now),
                Err(error) if link.retry => state.lose(&error, now),
                Err(error) => return Err(format!("link {}: {error}", link.name)),
            }
            link_states.push(state);
        }
        let requests = Arc::<SignalRequests>::default();
        let (wished, waker) = (requests.clone(), driver.waker());
        let on_signal = move |wish| {
            let flag = if wish == SignalRequest::Stop { &wished.stop } else { &wished.report };
            flag.set(true);
            waker.wake();
        };
        signals::handle(on_signal).map_err(say)?;
        let waiting = driver.waiting();
        Ok(RunningSwitch { plan, driver, waiting, clock, began: now, link_states, requests })
    }

    /// Drops the privileges that are no longer needed, in all threads.
    ///
    /// # Errors
    /// If the privileges could not be dropped.
    pub fn confine(&self) -> Result<(), String> {
        let needs = confinement::of_links(self.plan.links.iter().map(|link| link.link.as_str()));
        let entered = Sandbox::enter(&needs, OnRefusal::Error);
        entered.map(drop).map_err(|error| format!("cannot drop privileges: {error}; --no-sandbox keeps them"))
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs until the switch is stopped. Calls `tell` with the status periodically and on request.
    ///
    /// # Errors
    /// An error from `tell`, which also ends the run.
    pub fn run(
        &mut self,
        every: Option<Duration>,
        mut tell: impl FnMut(&Status) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut next = every.map_or(Instant::NEVER, |every| self.clock.now() + every);
        loop {
            let links = self.link_states.iter().map(|state| state.retry_at).min();
            let until = next.min(links.unwrap_or(Instant::NEVER));
            let RunningSwitch { driver, waiting, .. } = self;
            driver.run(waiting, until);
            let now = self.clock.now();
            for (port, error) in self.driver.take_lost_links() {
                let link = &self.plan.links[port];
                tracing::warn!(name = link.name, link = link.link, %error, "link lost");
                self.link_states[port].lose(&error, now);
            }
            self.reopen(now);
            let wished = self.requests.report.take();
            if self.requests.stop.get() {
                return Ok(());
            }
            if wished || now >= next {
                tell(&self.status())?;
            }
            if let (Some(every), true) = (every, now >= next) {
                next = now + every;
            }
        }
    }

    /// Reopens lost links that are due.
    fn reopen(&mut self, now: Instant) {
        for (port, state) in self.link_states.iter_mut().enumerate() {
            if !state.is_due(now) {
                continue;
            }
            let link = &self.plan.links[port];
            match open(link).map(|opened| self.driver.attach(port, opened)) {
                Ok(()) => {
                    tracing::info!(name = link.name, link = link.link, "link up");
                    state.rise(now);
                }
                Err(error) => state.fail(&error, now),
            }
        }
    }

    /// Returns the status.
    pub fn status(&mut self) -> Status {
        let RunningSwitch { plan, driver, link_states, .. } = self;
        let links = plan.links.iter().zip(link_states).enumerate().map(|(port, (link, state))| {
            let counters = driver.link_counters(port).unwrap_or_default();
            LinkStatus {
                name: link.name.clone(),
                link: link.link.clone(),
                state: if state.is_up { "up" } else { "down" },
                error: state.error.clone(),
                losses: state.losses,
                unknown: driver.switch().unrouted(port),
                hec_bad: driver.switch().hec(port).bad,
                hec_corrected: driver.switch().hec(port).corrected,
                lost: losses::of_link(&counters),
                answered: driver.answered(port),
                waiting: driver.switch().waiting(port) as u64,
                counters: named(|see| counters.each(see)),
            }
        });
        let links = links.collect();
        let routes = plan.routes.iter().map(|route| {
            let counters = driver.switch().route_counters(route.from.link, route.from.name);
            let counters = counters.unwrap_or_default();
            RouteStatus {
                from: plan.word(route.from),
                to: plan.word(route.to),
                counters: named(|see| counters.each(see)),
            }
        });
        let routes = routes.collect();
        let all = *driver.switch().counters();
        Status {
            name: plan.name.clone(),
            uptime_seconds: rounded(self.clock.now().since(self.began).as_secs_f64()),
            links,
            routes,
            counters: named(|see| all.each(see)),
        }
    }
}

fn open(link: &LinkPlan) -> io::Result<Box<dyn kiban_link::Link<kiban_atm::TimedCell>>> {
    let address: Address = link.link.parse().map_err(io::Error::other)?;
    match address.open()? {
        AnyLink::Cells(link) => Ok(link),
        _ => Err(io::Error::other("the link carries no cells")),
    }
}
