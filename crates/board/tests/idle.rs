//! The memory cost of idle sessions. This is a separate test binary, because it measures the memory of the
//! whole process.

mod common;

use common::{Pair, config, socket};
use kiban_board::{BoardConfig, Completion, MemoryConfig};
use std::collections::BTreeMap;
use std::time::Duration;

const SESSIONS: usize = 10_000;
const BYTES_MAX: usize = 100_000_000;

/// Returns the resident memory of the process in bytes.
fn resident_bytes() -> usize {
    #[expect(clippy::disallowed_methods, reason = "the system's account of memory is what is asked about")]
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages: usize =
        text.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("a number of pages");
    pages * 4096
}

/// Both sides of ten thousand sessions, including packet memory and tables, fit in 100 MB.
#[test]
#[cfg(target_os = "linux")]
fn both_ends_of_ten_thousand_idle_sessions_fit_in_a_hundred_megabytes() {
    let before = resident_bytes();
    let configs = [0, 1].map(|side| {
        let mut config: BoardConfig = config(side);
        config.memory = MemoryConfig::default();
        config.tcp.backlog = SESSIONS;
        config
    });
    let mut pair = Pair::of(configs);
    pair.boards[1].host().listen(socket(1, 80)).unwrap();
    let mut streams = Vec::new();
    while streams.len() < SESSIONS {
        for _ in 0..32 {
            streams.push(pair.boards[0].host().open(socket(1, 80)).unwrap());
        }
        pair.run();
    }
    let accepted: BTreeMap<_, _> = pair
        .completions(1)
        .into_iter()
        .filter_map(|completion| match completion {
            Completion::Accepted { stream, remote, .. } => Some((remote, stream)),
            _ => None,
        })
        .collect();
    assert_eq!(accepted.len(), streams.len());
    // Use each session once, so that the memory that a session keeps after its first data is included.
    for (at, from) in streams.iter().enumerate() {
        if at % 256 == 0 {
            // Wait for the delayed acknowledgements, which release pages.
            let later = pair.now + Duration::from_millis(50);
            pair.run_until(later);
        }
        assert_eq!(pair.boards[0].host().write(*from, &[0x5a; 1000]), Ok(1000));
        pair.run();
        let name = pair.boards[0].host().info(*from).unwrap().local;
        assert_eq!(pair.boards[1].host().read(accepted[&name], &mut [0; 2000]), Ok(1000));
    }
    pair.completions = Default::default();
    let later = pair.now + Duration::from_secs(60);
    pair.run_until(later);
    assert_eq!(pair.boards.each_ref().map(|board| board.sessions()), [streams.len(); 2]);
    let grown = resident_bytes() - before;
    println!("{} sessions: {} bytes each for both ends", streams.len(), grown / streams.len());
    assert!(grown < BYTES_MAX, "{grown} bytes");
}
