//! VIs through shared memory: a client that fails or dies at any call, beside a server that goes on.

use crate::place::{Place, Running, until};
use crate::soak::{Soak, can_trace};
use kiban_fault::Plan;
use std::process::Command;

fn client(place: &Place, name: &str) -> Command {
    place.kiban(&["vi", "stream", name, "--quiet", "--count", "50", "--bytes", "5000", "--json"])
}

#[test]
fn a_vi_client_that_fails_or_dies_at_any_call_leaves_a_server_that_serves() {
    if !can_trace() {
        return;
    }
    let place = Place::new("vi");
    let name = format!("shm:faults-{}", std::process::id());
    let mut server = Running::honest(place.kiban(&["vi", "serve", "--quiet", "--device", &name]), &[]);
    let serves = || Running::honest(client(&place, &name), &[]).ended();
    assert!(until(|| serves().is_well()), "{}", server.err());
    let before = server.descriptors();
    Soak::new("vi client", 7).run(|plan, _, seen| {
        let mut client = Running::start(client(&place, &name), plan, true, &[]);
        let ended = client.ended();
        seen.calls = client.traced.calls();
        seen.injections = client.traced.injections();
        seen.notes = client.traced.notes();
        ended.judge("the client")?;
        if plan == Plan::Watch && !ended.is_well() {
            return Err(ended.err);
        }
        if server.has_ended() {
            return Err(format!("the server has ended: {}", server.err()));
        }
        let next = serves();
        if !next.is_well() {
            return Err(format!("the next client is not served: {:?}: {}", next.end, next.err));
        }
        match until(|| server.descriptors() <= before) {
            true => Ok(()),
            false => Err(format!("descriptors leak: {before} became {}", server.listed())),
        }
    });
}
