//! Connections with known causes, made by boards in virtual time, and explained from their captures.

mod programs;
mod scenarios;
#[path = "../score/mod.rs"]
mod score;
mod world;

use kiban_explain::{Cause, Explained};
use scenarios::scenario;
use score::{Score, words};

/// Explains the connection of a scenario.
fn explained(cause: Option<Cause>, seed: u64) -> Explained {
    let file = scenario(cause, seed).run();
    if let Ok(dir) = std::env::var("KIBAN_EXPLAIN_KEEP") {
        keep(&dir, cause, seed, &file);
    }
    let mut report = kiban_explain::explain(&file).expect("the file is a capture");
    assert_eq!((report.connections.len(), report.skipped), (1, 0), "{cause:?} {seed}");
    report.connections.remove(0)
}

/// Keeps a capture, to be looked at with Wireshark.
fn keep(dir: &str, cause: Option<Cause>, seed: u64, file: &[u8]) {
    use std::io::Write;
    let name = format!("{dir}/{}-{seed}.pcap", cause.map_or("healthy", Cause::name));
    let mut target = std::fs::File::create(name).expect("KIBAN_EXPLAIN_KEEP names a directory");
    target.write_all(file).expect("the disk has room");
}

/// The first seeds with which the rules were written, and of those that were held out: even and odd ones.
const FIRST: [u64; 2] = [0, 3001];

/// Returns the causes that the simulator can produce.
fn simulated() -> impl Iterator<Item = Cause> {
    use Cause::{NoHandshake, NoResponse, PathFull, PathMtu, Refused};
    Cause::ALL
        .into_iter()
        .filter(|cause| !matches!(cause, PathMtu | PathFull | Refused | NoHandshake | NoResponse))
}

/// Explains connections of every kind, `each` per cause and half as many healthy ones as there are others, of
/// every other seed from `first`.
fn score(each: u64, first: u64) -> Score {
    let mut score = Score::default();
    let healthy = each * 11 / 2;
    let kinds = simulated().map(|cause| (Some(cause), each)).chain([(None, healthy)]);
    for (label, count) in kinds {
        for seed in (0..count).map(|seed| 2 * seed + first) {
            let explained = explained(label, seed);
            let verdict = explained.verdict.as_ref().map(|finding| finding.cause);
            score.add(label, verdict);
            if verdict != label
                && std::env::var("KIBAN_EXPLAIN_SHOW").is_ok_and(|shown| shown == (first % 2).to_string())
            {
                println!("{} {seed}: {explained}", words(label));
            }
        }
    }
    score
}

/// Connections per cause. `KIBAN_EXPLAIN_EACH` asks for another number.
const EACH: u64 = 24;
/// The least precision and recall of any verdict, below the figures in docs/explain.md. Seeds and virtual
/// time make the result the same in every run.
const FLOOR: f64 = 0.8;

#[test]
fn the_causes_of_simulated_connections_are_found() {
    let each = std::env::var("KIBAN_EXPLAIN_EACH").ok().and_then(|each| each.parse().ok()).unwrap_or(EACH);
    for (first, name) in FIRST.into_iter().zip(["seeds that the rules were written with", "seeds held out"]) {
        let score = score(each, first);
        println!("simulated, {name}:\n{score}");
        for label in simulated().map(Some).chain([None]) {
            let (precision, recall) = score.of(label);
            let holds = precision >= Some(FLOOR) && recall >= Some(FLOOR);
            assert!(holds, "{}, {name}:\n{score}", words(label));
        }
    }
}
