//! `kiban vi`: tests that inject faults into a server, and into its clients.

use crate::place::Place;
use crate::serving::Service;
use std::process::Command;

const SHARED: Service =
    Service { server: |place| server(place, "shm:faults"), says: SAYS, client, is_hasty: false };
const UDP: Service =
    Service { server: |place| server(place, "udp:127.0.0.1:0"), says: SAYS, client, is_hasty: true };
const SAYS: (&str, &str) = ("serving at ", ";");

fn server(place: &Place, device: &str) -> Command {
    place.kiban(&["vi", "serve", "--device", device])
}

fn client(place: &Place, server: &str) -> Command {
    place.kiban(&["vi", "stream", server, "--quiet", "--count", "50", "--bytes", "5000", "--json"])
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
