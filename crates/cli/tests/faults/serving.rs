//! A server that serves one client after another. The tests inject faults into the server or into a client,
//! or make one of their allocations fail.

use crate::memory;
use crate::place::{Ended, Place, Running, until};
use crate::soak::{Seen, Soak, can_trace};
use kiban_fault::{End, Plan};
use std::process::Command;

/// The commands for a server and its clients. A client's exit status 2 means that the bytes received differ
/// from the bytes sent.
pub(crate) struct Service {
    /// The command for a server, which chooses its own address.
    pub(crate) server: fn(&Place) -> Command,
    /// The texts before and after the address in the line that the server prints when it is ready.
    pub(crate) says: (&'static str, &'static str),
    /// The command for a client that connects to a server at this address.
    pub(crate) client: fn(&Place, &str) -> Command,
    /// Whether a client keeps waiting for a server that has died. Over UDP the client does not notice the
    /// death, and the tests make it wait for longer than a busy machine may delay a server (`--silence`).
    pub(crate) is_patient: bool,
}

/// A running server and its address.
struct Serving<'a> {
    service: &'a Service,
    place: &'a Place,
    running: Running,
    /// The server's address; `None` if the server exited or hung before it was ready.
    at: Option<String>,
}

impl Service {
    /// Starts a server and waits until it is ready or has exited; `change` can modify the server's command.
    fn start<'a>(
        &'a self,
        place: &'a Place,
        plan: Plan,
        at_once: bool,
        change: impl FnOnce(Command) -> Command,
    ) -> Serving<'a> {
        let mut running = Running::start(change((self.server)(place)), plan, at_once, &[]);
        let mut at = None;
        until(|| {
            let said = String::from_utf8_lossy(&running.out()).into_owned() + &running.err();
            let address = said.split_once(self.says.0).and_then(|(_, rest)| rest.split_once(self.says.1));
            at = address.map(|(address, _)| address.to_owned());
            at.is_some() || running.has_ended()
        });
        Serving { service: self, place, running, at }
    }

    /// Runs a server under a fault plan. The server must continue, or exit with a reason; a client that
    /// connects after the faults must be served.
    fn server_under(&self, place: &Place, plan: Plan, at_once: bool, seen: &mut Seen) -> Result<(), String> {
        let mut serving = self.start(place, plan, at_once, |command| command);
        let outcome = serving.bears_faults(plan == Plan::Watch, &|| true);
        remember(&serving.running, seen);
        serving.ends_well(outcome)
    }

    /// Runs a server and makes one of its allocations fail. The server must continue, or exit with a reason;
    /// the next client must be served.
    fn server_refused(&self, allocations: &memory::Allocations) -> Result<(), String> {
        let place = Place::new("serving");
        let mut serving = self.start(&place, Plan::Watch, false, |command| allocations.of(command));
        let outcome = serving.bears_faults(allocations.all_succeed(), &|| allocations.is_reached());
        serving.ends_well(outcome)
    }

    /// Runs a server repeatedly, each time making another of its allocations fail.
    pub(crate) fn bears_refused_allocations(&self, name: &str) {
        if can_trace() {
            memory::each_in_parallel(name, 1, |allocations| self.server_refused(allocations));
        }
    }

    /// Tests a server under faults; `name` is the name of the scenario.
    pub(crate) fn bears_faults(&self, name: &'static str) {
        if can_trace() {
            let place = Place::new("serving");
            Soak::new(name)
                .run(|plan, seed, seen| self.server_under(&place, plan, seed.is_multiple_of(3), seen));
        }
    }

    /// Tests clients under faults, which must leave the server unaffected; `name` is the name of the
    /// scenario.
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

    /// Like [`Service::bears_clients`], but makes one of the client's allocations fail.
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

    /// Runs a test with a server that has no faults. The test is passed the number of the server's open file
    /// descriptors.
    fn beside(&self, test: impl FnOnce(&mut Serving<'_>, &str, usize)) {
        let place = Place::new("serving");
        let mut serving = self.start(&place, Plan::Watch, false, |command| command);
        let at = serving.at.clone().unwrap_or_else(|| panic!("{}", serving.running.err()));
        // The server starts its own threads when its first clients connect, so connect two clients before
        // counting descriptors.
        for _ in 0..2 {
            serving.serves().expect("no fault was injected");
        }
        let before = serving.running.descriptors();
        test(&mut serving, &at, before);
    }
}

impl Serving<'_> {
    /// Runs a client without faults; returns `None` if the server died and the client would wait for it.
    fn client(&mut self) -> Option<Ended> {
        let at = self.at.as_deref().expect("it serves");
        let mut client = Running::honest((self.service.client)(self.place, at), &[]);
        match self.service.is_patient {
            true => client.ended_beside(&mut self.running),
            false => Some(client.ended()),
        }
    }

    /// Checks that a client without faults is served.
    fn serves(&mut self) -> Result<(), String> {
        match self.client() {
            Some(ended) if ended.is_well() => Ok(()),
            Some(ended) => Err(format!("the next client is not served: {:?}: {}", ended.end, ended.err)),
            None => Err("the server died before the next client".into()),
        }
    }

    /// Runs clients while the server is under faults, and afterwards. If nothing fails (`is_whole`), all must
    /// be served. Otherwise one client may fail because of a fault that occurs while it is served (before
    /// `is_over`).
    fn bears_faults(&mut self, is_whole: bool, is_over: &dyn Fn() -> bool) -> Result<(), String> {
        let outcome = self.serves_under_faults(is_whole, is_over);
        match outcome {
            Ok(()) if is_whole && self.running.has_ended() => Err("the server ended without a fault".into()),
            outcome => outcome,
        }
    }

    /// Ends the server, and checks how it ended.
    fn ends_well(&mut self, outcome: Result<(), String>) -> Result<(), String> {
        outcome.map_err(|why| format!("{why}\n  server: {}", self.running.err()))?;
        self.running.signal("-KILL");
        self.running.ended().judge("the server")
    }

    fn serves_under_faults(&mut self, is_whole: bool, is_over: &dyn Fn() -> bool) -> Result<(), String> {
        if self.running.has_ended() {
            return Ok(());
        }
        if self.at.is_none() {
            return Err("the server neither serves nor ends".into());
        }
        self.running.traced.arm();
        for _ in 0..2 {
            match self.client() {
                Some(ended) if is_whole && !ended.is_well() => {
                    return Err(format!("a client: {}", ended.err));
                }
                Some(ended) => judge(&ended)?,
                None => return Ok(()),
            }
            if self.running.has_ended() {
                return Ok(());
            }
        }
        self.running.traced.disarm();
        if self.running.has_ended() {
            return Ok(());
        }
        // The last fault may occur only now and cost this client its connection.
        let is_over = is_over();
        let mut outcome = self.serves();
        if outcome.is_err() && !is_over {
            outcome = self.serves();
        }
        match outcome {
            // The server was about to exit; the caller checks whether it was allowed to exit.
            Err(_) if until(|| self.running.has_ended()) => Ok(()),
            outcome => outcome,
        }
    }

    /// Checks that a client under faults ended in a permitted way, that the server still works, and that it
    /// has no more descriptors than `before`.
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

/// Copies the number of calls, the number of injections and the list of faults from a run to `seen`.
pub(crate) fn remember(running: &Running, seen: &mut Seen) {
    seen.calls = running.traced.calls();
    seen.injections = running.traced.injections();
    seen.notes = running.traced.notes();
}
