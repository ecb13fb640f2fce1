//! Packet scripts: readable timelines of a protocol exchange, against which a board is tested.
//!
//! Purpose   one file per test case, which says what the peer and the host do and what the board must send,
//!           with exact times.
//! Operation a [`Talk`] is parsed from text (`parse`). [`run`] drives a real board with one IP port through
//! the script in virtual time, without threads or a clock; the only randomness comes from a seed. An event
//! that no line expects is a failure.
//! Numbers   sequence numbers are relative to each side's SYN, and timestamps are relative to the side's
//!           first one. Payload bytes are generated from their position in the stream, so all bytes are
//!           checked without being written in the script.
//! Programs  [`Exchange`] is the same board, host and peer for a Rust program: lines of script in turn with
//!           code, for loops over thousands of packets, random input and measurements.
//! Trace     every run is recorded in the form of a script: see [`Report::trace`].
//! Grammar   `docs/talks.md`.
//! Limits    one board with one port; no ICMP errors about UDP datagrams that the board has sent.
//!
//! ```
//! let talk = kiban_talk::Talk::read(
//!     "hello.talk",
//!     "# A byte is acknowledged when the timer expires.
//!      established mss 1460
//!           <- seq 1:2 ack 1
//!      +40ms -> ack 2",
//!     &|_| None,
//! )
//! .unwrap();
//! let report = kiban_talk::run(&talk);
//! assert_eq!(report.failures, []);
//! ```
#![forbid(unsafe_code)]

mod exchange;
mod packet;
mod parse;
mod run;
mod script;
mod settings;
mod side;
mod words;
mod world;

pub use exchange::Exchange;
pub use run::{Failure, Report, run};
pub use script::{ParseError, Talk};

use std::path::{Path, PathBuf};

/// Reads a script and the files that it includes; paths in `include` are relative to the including file.
///
/// # Errors
/// A message, if a file cannot be read; or all syntax errors ([`ParseError`]), each on its own lines.
pub fn load(path: &Path) -> Result<Talk, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let include = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    Talk::read_all(&path.display().to_string(), &text, &include)
        .map_err(|errors| errors.iter().map(ParseError::to_string).collect::<Vec<_>>().join("\n"))
}

/// Returns the scripts at these paths: a file itself, or every `*.talk` below a directory, sorted.
///
/// # Errors
/// A message, if a path does not exist or cannot be read.
pub fn find(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for path in paths {
        let before = found.len();
        if path.is_dir() {
            search(path, &mut found).map_err(|error| format!("{}: {error}", path.display()))?;
            found[before..].sort();
        } else if path.exists() {
            found.push(path.clone());
        } else {
            return Err(format!("{}: no such file or directory", path.display()));
        }
    }
    Ok(found)
}

fn search(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            search(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "talk") {
            found.push(path);
        }
    }
    Ok(())
}
