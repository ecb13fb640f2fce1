//! `kiban vi`, with faults injected into a server or its clients.

use crate::place::Place;
use crate::serving::Service;
use std::process::Command;

const SHARED: Service =
    Service { server: |place| server(place, "shm:faults"), says: SAYS, client, is_patient: false };
const UDP: Service =
    Service { server: |place| server(place, "udp:127.0.0.1:0"), says: SAYS, client, is_patient: true };
const SAYS: (&str, &str) = ("serving at ", ";");
/// By default a connection over UDP ends when its peer has not been scheduled for 0.9 s, as happens on a busy
/// machine.
const SILENCE: [&str; 2] = ["--silence", "10min"];

fn server(place: &Place, device: &str) -> Command {
    let mut command = place.kiban(&["vi", "serve", "--device", device]);
    command.args(SILENCE);
    command
}

fn client(place: &Place, server: &str) -> Command {
    let mut command =
        place.kiban(&["vi", "stream", server, "--quiet", "--count", "50", "--bytes", "5000", "--json"]);
    command.args(SILENCE);
    command
}

#[test]
fn a_vi_server_in_shared_memory_whose_calls_fail_goes_on_or_says_why_not() {
    SHARED.bears_faults("vi server");
}

#[test]
fn a_vi_server_on_udp_whose_calls_fail_goes_on_or_says_why_not() {
    UDP.bears_faults("vi server on udp");
}

#[test]
fn a_vi_client_that_fails_or_dies_at_any_call_leaves_a_server_that_serves() {
    SHARED.bears_clients("vi client");
}

#[test]
fn a_vi_server_in_shared_memory_whose_nth_allocation_fails_goes_on_or_says_why_not() {
    SHARED.bears_refused_allocations("vi server");
}

#[test]
fn a_vi_server_on_udp_whose_nth_allocation_fails_goes_on_or_says_why_not() {
    UDP.bears_refused_allocations("vi server on udp");
}
