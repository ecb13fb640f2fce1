//! Connections of the Linux kernel with known causes, captured by `captures.py`, and explained.

#[path = "../score/mod.rs"]
mod score;

use kiban_explain::Cause;
use score::{Score, words};
use std::io::Read;
use std::path::Path;

/// Returns the cause in a file's name, such as `slow_reader-17.pcap`, and the seed.
fn label(name: &str) -> Option<(Option<Cause>, u64)> {
    let (cause, seed) = name.strip_suffix(".pcap")?.split_once('-')?;
    let seed = seed.parse().ok()?;
    let known = Cause::ALL.into_iter().find(|one| one.name() == cause);
    (known.is_some() || cause == "healthy").then_some((known, seed))
}

fn contents(file: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut file = std::fs::File::open(file).expect("the folder lists it");
    file.read_to_end(&mut bytes).expect("the file can be read");
    bytes
}

/// Explains the captures in the folder `KIBAN_EXPLAIN_CAPTURES`, for even seeds, with which the rules were
/// written, and odd ones.
#[test]
#[ignore = "needs captures: make bench BENCH=explain"]
fn precision_and_recall() {
    let dir = std::env::var("KIBAN_EXPLAIN_CAPTURES").expect("a folder written by captures.py");
    let mut scores = [Score::default(), Score::default()];
    let files = Path::new(&dir).read_dir().expect("a folder").map(|entry| entry.expect("readable").path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some((cause, seed)) = label(&name) else { continue };
        let report = kiban_explain::explain(&contents(&file)).expect("the file is a capture");
        let explained = &report.connections[0];
        let verdict = explained.verdict.as_ref().map(|finding| finding.cause);
        scores[(seed % 2) as usize].add(cause, verdict);
        let shows = std::env::var("KIBAN_EXPLAIN_SHOW").is_ok_and(|parity| parity == (seed % 2).to_string());
        if verdict != cause && shows {
            println!("{}\n{} {seed}: {explained}", file.display(), words(cause));
        }
    }
    for (score, name) in scores.iter().zip(["seeds that the rules were written with", "seeds held out"]) {
        println!("kernel, {name}:\n{score}");
    }
}
