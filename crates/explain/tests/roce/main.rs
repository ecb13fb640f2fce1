//! RoCEv2 connections with known causes, made by boards in virtual time, and explained from their captures.

#[path = "../made/mod.rs"]
mod made;
mod programs;
mod scenarios;
#[path = "../score/mod.rs"]
mod score;
mod world;

use kiban_explain::{Cause, roce};
use made::Set;

fn run(cause: Option<Cause>, seed: u64) -> Vec<u8> {
    let cause = cause.map(|cause| match cause {
        Cause::Roce(cause) => cause,
        _ => unreachable!("{cause:?} is a cause of TCP connections"),
    });
    scenarios::scenario(cause, seed).run()
}

#[test]
fn the_causes_of_simulated_connections_are_found() {
    let causes = roce::Cause::ALL.map(Cause::Roce).to_vec();
    Set { causes, run, first: [0, 2001], each: 6, floor: 0.75 }.check();
}
