//! RoCEv2 connections with known causes, made by boards in virtual time, and explained from their captures.

mod programs;
mod scenarios;
#[path = "../score/mod.rs"]
mod score;
mod world;

use kiban_explain::{Cause, Explained, roce};
use scenarios::scenario;
use score::{Score, words};

fn file_name(cause: Option<roce::Cause>, seed: u64) -> String {
    format!("{}-{seed}.pcap", cause.map_or("healthy", roce::Cause::name))
}

/// Explains the connection of a scenario.
fn explained(cause: Option<roce::Cause>, seed: u64) -> Explained {
    let file = scenario(cause, seed).run();
    if let Ok(dir) = std::env::var("KIBAN_EXPLAIN_KEEP") {
        use std::io::Write;
        let target = std::fs::File::create(format!("{dir}/{}", file_name(cause, seed)));
        let mut target = target.expect("KIBAN_EXPLAIN_KEEP names a directory");
        target.write_all(&file).expect("the disk has room");
    }
    let mut report = kiban_explain::explain(&file).expect("the file is a capture");
    assert_eq!((report.connections.len(), report.skipped), (1, 0), "{cause:?} {seed}: {report}");
    report.connections.remove(0)
}

/// The first seeds with which the rules were written, and of those that were held out: even and odd ones.
const FIRST: [u64; 2] = [0, 2001];

/// Explains connections of every kind, `each` per cause and half as many healthy ones as there are others, of
/// every other seed from `first`.
fn score(each: u64, first: u64) -> Score {
    let mut score = Score::default();
    let healthy = each * roce::Cause::ALL.len() as u64 / 2;
    let kinds = roce::Cause::ALL.map(|cause| (Some(cause), each)).into_iter().chain([(None, healthy)]);
    for (cause, count) in kinds {
        let label = cause.map(Cause::Roce);
        for seed in (0..count).map(|seed| 2 * seed + first) {
            let explained = explained(cause, seed);
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

/// Connections per cause. `KIBAN_EXPLAIN_EACH` asks for another number, `KIBAN_EXPLAIN_FIRST` for one set of
/// seeds.
const EACH: u64 = 6;
/// The least precision and recall of any verdict, below the figures in docs/explain.md. Seeds and virtual
/// time make the result the same in every run.
const FLOOR: f64 = 0.75;

#[test]
fn the_causes_of_simulated_connections_are_found() {
    let each = std::env::var("KIBAN_EXPLAIN_EACH").ok().and_then(|each| each.parse().ok()).unwrap_or(EACH);
    for (first, name) in FIRST.into_iter().zip(["seeds that the rules were written with", "seeds held out"]) {
        if std::env::var("KIBAN_EXPLAIN_FIRST").is_ok_and(|only| only != first.to_string()) {
            continue;
        }
        let score = score(each, first);
        println!("simulated, {name}:\n{score}");
        for label in roce::Cause::ALL.map(|cause| Some(Cause::Roce(cause))).into_iter().chain([None]) {
            let (precision, recall) = score.of(label);
            let holds = precision >= Some(FLOOR) && recall >= Some(FLOOR);
            assert!(holds, "{}, {name}:\n{score}", words(label));
        }
    }
}
