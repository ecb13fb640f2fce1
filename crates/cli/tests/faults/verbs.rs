//! Programs on the drop-in libraries: a client that fails or dies at any call, and a server whose calls fail.

#[path = "../../../verbs/tests/common/libraries.rs"]
mod libraries;

use crate::place::{Running, compile, until};
use crate::soak::{Seen, Soak, can_trace};
use kiban_fault::{End, Plan};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

static LIBRARIES: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = libraries::linked("faults-verbs");
    let search = format!("-L{}", folder.display());
    compile(
        "tests/faults/verbs.c",
        &folder.join("verbs"),
        &[&search, "-l:librdmacm.so.1", "-l:libibverbs.so.1"],
    );
    folder
});

fn program(words: &[&str]) -> Command {
    let mut command = Command::new(LIBRARIES.join("verbs"));
    command.args(words).env("LD_LIBRARY_PATH", &*LIBRARIES).env("LD_PRELOAD", "libkiban_paths.so");
    command
}

fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port().to_string()
}

fn client(port: &str) -> Command {
    program(&["client", "127.0.0.1", port, "20"])
}

/// Starts a server; returns it and its port.
fn server(plan: Plan, at_once: bool) -> (Running, String, bool) {
    let port = free_port();
    let mut server = Running::start(program(&["server", "127.0.0.1", &port]), plan, at_once, &[]);
    until(|| server.out().starts_with(b"ready") || server.has_ended());
    let is_ready = !server.has_ended();
    (server, port, is_ready)
}

fn remember(running: &Running, seen: &mut Seen) {
    seen.calls = running.traced.calls();
    seen.injections = running.traced.injections();
    seen.notes = running.traced.notes();
}

fn served(port: &str) -> Result<(), String> {
    let ended = Running::honest(client(port), &[]).ended();
    match ended.is_well() {
        true => Ok(()),
        false => Err(format!("the next client is not served: {:?}: {}", ended.end, ended.err)),
    }
}

#[test]
fn a_verbs_client_that_fails_or_dies_at_any_call_leaves_a_server_that_serves() {
    if !can_trace() {
        return;
    }
    let (mut server, port, is_ready) = server(Plan::Watch, false);
    assert!(is_ready, "{}", server.err());
    for _ in 0..2 {
        served(&port).expect("no fault was injected");
    }
    let before = server.descriptors();
    Soak::new("verbs client", 6).run(|plan, _, seen| {
        let mut client = Running::start(client(&port), plan, true, &[]);
        let ended = client.ended();
        remember(&client, seen);
        ended.judge("the client")?;
        if ended.end == Some(End::Code(2)) {
            return Err(format!("the client: {}", ended.err));
        }
        if server.has_ended() {
            return Err(format!("the server has ended: {}", server.err()));
        }
        served(&port)?;
        match until(|| server.descriptors() <= before) {
            true => Ok(()),
            false => Err(format!("descriptors leak: {before} became {}", server.listed())),
        }
    });
}

#[test]
fn a_verbs_server_whose_calls_fail_goes_on_or_says_why_not() {
    if !can_trace() {
        return;
    }
    // It takes its seeds from those of the clients.
    Soak::new("verbs server", 6).run(|plan, seed, seen| {
        let at_once = seed.is_multiple_of(3);
        let (mut server, port, is_ready) = server(plan, at_once);
        let mut outcome = || -> Result<(), String> {
            if !is_ready {
                return Ok(());
            }
            server.traced.arm();
            for _ in 0..2 {
                let ended = Running::honest(client(&port), &[]).ended();
                ended.judge("the client")?;
                if ended.end == Some(End::Code(2)) {
                    return Err(format!("the client: {}", ended.err));
                }
            }
            server.traced.disarm();
            if server.has_ended() {
                return Ok(());
            }
            served(&port)
        };
        let outcome = outcome();
        remember(&server, seen);
        outcome.map_err(|why: String| format!("{why}\n  server: {}", server.err()))?;
        server.signal("-KILL");
        server.ended().judge("the server")
    });
}
