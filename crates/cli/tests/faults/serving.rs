//! A server that serves one client after another, and its clients: faults in either, or an allocation of a
//! client's that fails.

use crate::memory;
use crate::place::{Ended, Place, Running, until};
use crate::soak::{Seen, Soak, can_trace};
use kiban_fault::{End, Plan};
use std::process::Command;

/// A server and its clients, as commands. Their exit status 2 means that other bytes came than were sent.
pub(crate) struct Service {
    /// A server, at an address of its choice.
    pub(crate) server: fn(&Place) -> Command,
    /// What it prints before its address, once it serves, and what follows the address.
    pub(crate) says: (&'static str, &'static str),
    /// A client of a server at this address.
    pub(crate) client: fn(&Place, &str) -> Command,
    /// Whether clients give up a server that a busy machine keeps waiting: over UDP, after 0.9 s of silence.
    pub(crate) is_hasty: bool,
}

/// A server that runs, and where.
struct Serving<'a> {
    service: &'a Service,
    place: &'a Place,
    running: Running,
    /// Unknown if the server ended before it served, or hangs.
    at: Option<String>,
}

impl Service {
    /// Starts a server, and waits until it serves or has ended.
    fn start<'a>(&'a self, place: &'a Place, plan: Plan, at_once: bool) -> Serving<'a> {
        let mut running = Running::start((self.server)(place), plan, at_once, &[]);
        let mut at = None;
        until(|| {
            let said = String::from_utf8_lossy(&running.out()).into_owned() + &running.err();
            let address = said.split_once(self.says.0).and_then(|(_, rest)| rest.split_once(self.says.1));
            // A thread without a signal stack may print its end within this line (`Ended::judge`).
            let address = address.filter(|(address, _)| !address.contains(char::is_whitespace));
            at = address.map(|(address, _)| address.to_owned());
            at.is_some() || running.has_ended()
        });
        Serving { service: self, place, running, at }
    }

    /// Runs a server under a plan: it continues, or says why not; a client that comes after the faults is
    /// served.
    fn server_under(&self, place: &Place, plan: Plan, at_once: bool, seen: &mut Seen) -> Result<(), String> {
        let mut serving = self.start(place, plan, at_once);
        let outcome = serving.bears_faults();
        remember(&serving.running, seen);
        outcome.map_err(|why| format!("{why}\n  server: {}", serving.running.err()))?;
        serving.running.signal("-KILL");
        serving.running.ended().judge("the server")
    }

    /// A server under faults: `name` is the scenario's.
    pub(crate) fn bears_faults(&self, name: &'static str) {
        if can_trace() {
            let place = Place::new("serving");
            Soak::new(name)
                .run(|plan, seed, seen| self.server_under(&place, plan, seed.is_multiple_of(3), seen));
        }
    }

    /// Clients under faults: a server is left as it was. `name` is the scenario's.
    pub(crate) fn bears_clients(&self, name: &'static str) {
        if can_trace() {
            self.beside(|serving, at, before| {
                Soak::new(name).run(|plan, _, seen| {
                    let mut client = Running::start((self.client)(serving.place, at), plan, true, &[]);
                    let ended = client.ended();
                    remember(&client, seen);
                    if plan == Plan::Watch && !ended.is_well() {
                        return Err(ended.err);
                    }
                    serving.is_as_before(&ended, before)
                });
            });
        }
    }

    /// The same with an allocation that fails.
    pub(crate) fn bears_refused_clients(&self, name: &str) {
        if can_trace() {
            self.beside(|serving, at, before| {
                memory::each(name, |allocations| {
                    let client = allocations.of((self.client)(serving.place, at));
                    let ended = Running::honest(client, &[]).ended();
                    if allocations.all_succeed() && !ended.is_well() {
                        return Err(ended.err);
                    }
                    serving.is_as_before(&ended, before)
                });
            });
        }
    }

    /// Runs a test beside a server without faults, which has so many descriptors.
    fn beside(&self, test: impl FnOnce(&mut Serving<'_>, &str, usize)) {
        let place = Place::new("serving");
        let mut serving = self.start(&place, Plan::Watch, false);
        let at = serving.at.clone().unwrap_or_else(|| panic!("{}", serving.running.err()));
        // Its own threads start with the first clients.
        for _ in 0..2 {
            serving.serves().expect("no fault was injected");
        }
        let before = serving.running.descriptors();
        test(&mut serving, &at, before);
    }
}

impl Serving<'_> {
    fn client(&self) -> Ended {
        let at = self.at.as_deref().expect("it serves");
        Running::honest((self.service.client)(self.place, at), &[]).ended()
    }

    /// Checks that a client without faults is served.
    fn serves(&self) -> Result<(), String> {
        let ended = self.client();
        match ended.is_well() {
            true => Ok(()),
            false => Err(format!("the next client is not served: {:?}: {}", ended.end, ended.err)),
        }
    }

    fn bears_faults(&mut self) -> Result<(), String> {
        if self.running.has_ended() {
            return Ok(());
        }
        if self.at.is_none() {
            return Err("the server neither serves nor ends".into());
        }
        self.running.traced.arm();
        for _ in 0..2 {
            judge(&self.client())?;
            if self.running.has_ended() {
                return Ok(());
            }
        }
        self.running.traced.disarm();
        if self.running.has_ended() {
            return Ok(());
        }
        let mut outcome = self.serves();
        if self.service.is_hasty {
            until(|| {
                if outcome.is_err() {
                    outcome = self.serves();
                }
                outcome.is_ok() || self.running.has_ended()
            });
        }
        match outcome {
            // It was about to end; the caller checks whether it was allowed to.
            Err(_) if until(|| self.running.has_ended()) => Ok(()),
            outcome => outcome,
        }
    }

    /// Checks that a client that had faults may end as it did, and that it has left the server as it was.
    fn is_as_before(&mut self, ended: &Ended, before: usize) -> Result<(), String> {
        judge(ended)?;
        if self.running.has_ended() {
            return Err(format!("the server has ended: {}", self.running.err()));
        }
        self.serves().map_err(|why| format!("{why}\n  server: {}", self.running.err()))?;
        match until(|| self.running.descriptors() <= before) {
            true => Ok(()),
            false => Err(format!("descriptors leak: {before} became {}", self.running.listed())),
        }
    }
}

fn judge(ended: &Ended) -> Result<(), String> {
    ended.judge("the client")?;
    match ended.end {
        Some(End::Code(2)) => Err(format!("the client: {}", ended.err)),
        _ => Ok(()),
    }
}

/// Keeps what is known of a run under a plan.
pub(crate) fn remember(running: &Running, seen: &mut Seen) {
    seen.calls = running.traced.calls();
    seen.injections = running.traced.injections();
    seen.notes = running.traced.notes();
}
