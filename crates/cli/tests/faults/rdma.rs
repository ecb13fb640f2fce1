//! `kiban rdma`, with faults injected into a server or its clients.

use crate::place::Place;
use crate::serving::Service;
use std::process::Command;

const RDMA: Service = Service { server, says: ("serving at ", " "), client, is_patient: false };

fn server(place: &Place) -> Command {
    place.kiban(&["rdma", "serve", "127.0.0.1:0"])
}

fn client(place: &Place, server: &str) -> Command {
    place.kiban(&["rdma", "stream", server, "--quiet", "--count", "50", "--bytes", "5000", "--json"])
}

#[test]
fn an_rdma_server_whose_calls_fail_goes_on_or_says_why_not() {
    RDMA.bears_faults("rdma server");
}

#[test]
fn an_rdma_client_that_fails_or_dies_at_any_call_leaves_a_server_that_serves() {
    RDMA.bears_clients("rdma client");
}

#[test]
fn an_rdma_server_whose_nth_allocation_fails_goes_on_or_says_why_not() {
    RDMA.bears_refused_allocations("rdma server");
}
