//! Network measurements with a server whose system calls fail and clients that have no faults.

use crate::place::Place;
use crate::serving::Service;
use std::process::Command;

const TOKEN: &str = "faults 7b0c1f53a94e8d26 of the laboratory";

const LAB: Service = Service { server, says: (" on ", ";"), client, is_patient: false };

fn server(place: &Place) -> Command {
    place.write("token", TOKEN);
    place.kiban(&["lab", "serve", "--quiet", "--listen", "127.0.0.1:0", "--token-file", "token"])
}

/// Measures round trips with two message sizes.
fn client(place: &Place, server: &str) -> Command {
    let mut command =
        place.kiban(&["lab", "delay", server, "--quiet", "--json", "--count", "5", "--sizes", "1,20000"]);
    command.env("KIBAN_LAB_TOKEN", TOKEN);
    command
}

#[test]
fn a_lab_server_whose_calls_fail_goes_on_or_says_why_not() {
    LAB.bears_faults("lab server");
}

#[test]
fn a_lab_server_whose_nth_allocation_fails_goes_on_or_says_why_not() {
    LAB.bears_refused_allocations("lab server");
}
