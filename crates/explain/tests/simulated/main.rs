//! Connections with known causes, made by boards in virtual time, and explained from their captures.

#[path = "../made/mod.rs"]
mod made;
mod programs;
mod scenarios;
#[path = "../score/mod.rs"]
mod score;
mod world;

use kiban_explain::Cause;
use made::Set;

/// Returns the causes that the simulator can produce.
fn simulated() -> Vec<Cause> {
    use Cause::{NoHandshake, NoResponse, PathFull, PathMtu, Refused};
    let is_simulated =
        |cause: &Cause| !matches!(cause, PathMtu | PathFull | Refused | NoHandshake | NoResponse);
    Cause::ALL.into_iter().filter(is_simulated).collect()
}

#[test]
fn a_bulk_transfer_that_fills_a_link_is_not_slow() {
    let mut losses = 0;
    for seed in 0..12 {
        let report = kiban_explain::explain(&scenarios::full(seed).run()).expect("a capture");
        let one = &report.connections[0];
        losses += one.directions.iter().map(|direction| direction.retransmits).sum::<u32>();
        assert!(!one.is_slow(), "{seed}: {one}");
    }
    assert!(losses > 100, "{losses}");
}

#[test]
fn the_causes_of_simulated_connections_are_found() {
    let run = |cause, seed| scenarios::scenario(cause, seed).run();
    Set { causes: simulated(), run, first: [0, 19001], each: 24, floor: 0.9 }.check();
}
