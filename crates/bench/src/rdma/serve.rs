//! The program in the role of the peer process: executes commands, one after another.

use super::peer::next_word;
use super::setting::{BLOCKING, POLLING};
use super::{idle, raw, verbs};
use kiban_base::Wait;

/// Executes commands from standard input until it ends. `further` executes those of other families, and
/// returns whether it knows one.
pub(crate) fn serve(further: impl Fn(&[&str]) -> bool) {
    while let Some(line) = next_word() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<usize>().expect("a number");
        match words[0] {
            "raw-sink" => raw::sink(number(1), wait(words[2])),
            "raw-echo" => raw::echo(number(1), wait(words[2])),
            "verbs" => verbs::serve(words[1] == "crc", wait(words[2]), verbs::Over::of(words[3])),
            "idle-accept" => idle::accept(number(1)),
            "idle-connect" => idle::connect(number(1), words[2]),
            other => assert!(further(&words), "the benchmark asks for {other}"),
        }
    }
}

/// Returns the wait policy with this name.
pub(crate) fn wait(word: &str) -> Wait {
    [BLOCKING, POLLING].into_iter().find(|known| known.0 == word).expect("a wait policy").1
}
