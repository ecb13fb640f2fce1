//! Measurements: a server whose calls fail, and clients of it that are honest.

use crate::place::{Place, Running, until};
use crate::soak::{Seen, Soak, can_trace};
use kiban_fault::Plan;
use std::process::Command;

const TOKEN: &str = "faults 7b0c1f53a94e8d26 of the laboratory";

/// Measures round trips of two sizes.
fn client(place: &Place, server: &str) -> Command {
    let mut command =
        place.kiban(&["lab", "delay", server, "--quiet", "--json", "--count", "5", "--sizes", "1,20000"]);
    command.env("KIBAN_LAB_TOKEN", TOKEN);
    command
}

/// Runs a server under a plan: it continues, or says why not; a client that comes after the faults is served.
fn server_under(place: &Place, plan: Plan, at_once: bool, seen: &mut Seen) -> Result<(), String> {
    let command =
        place.kiban(&["lab", "serve", "--quiet", "--listen", "127.0.0.1:0", "--token-file", "token"]);
    let mut server = Running::start(command, plan, at_once, &[]);
    let mut outcome = || -> Result<(), String> {
        let mut at = None;
        until(|| {
            let said = server.err();
            let address = said.split(" on ").nth(1).and_then(|rest| rest.split_once(';'));
            at = address.map(|(address, _)| address.to_owned());
            at.is_some() || server.has_ended()
        });
        let (Some(at), false) = (at, server.has_ended()) else { return Ok(()) };
        server.traced.arm();
        for _ in 0..2 {
            Running::honest(client(place, &at), &[]).ended().judge("the client")?;
        }
        server.traced.disarm();
        if server.has_ended() {
            return Ok(());
        }
        let next = Running::honest(client(place, &at), &[]).ended();
        match next.is_well() {
            true => Ok(()),
            // It was about to end; whether it was allowed to is checked below.
            false if until(|| server.has_ended()) => Ok(()),
            false => Err(format!("the next client is not served: {:?}: {}", next.end, next.err)),
        }
    };
    let outcome = outcome();
    seen.calls = server.traced.calls();
    seen.injections = server.traced.injections();
    seen.notes = server.traced.notes();
    outcome.map_err(|why: String| format!("{why}\n  server: {}", server.err()))?;
    server.signal("-KILL");
    server.ended().judge("the server")
}

#[test]
fn a_lab_server_whose_calls_fail_goes_on_or_says_why_not() {
    if can_trace() {
        let place = Place::new("lab");
        place.write("token", TOKEN);
        // It takes its seeds from those of the VI clients.
        Soak::new("lab server", 7)
            .run(|plan, seed, seen| server_under(&place, plan, seed.is_multiple_of(3), seen));
    }
}
