//! The key of a trial: SHA-256 over everything that determines its result.
//!
//! Format    the hexadecimal hash of a JSON object without spaces and with its names in alphabetical order:
//!           `point`, `question`, `repetition` (only in real time), `seed`, `version`.
//! Identity  in virtual time, equal keys mean equal records. In real time, the key includes the number of the
//!           repetition, because results differ.
//! Limits    the version in the key is that of the release, so two builds of one release give the same keys
//!           even if their code differs. A sweep that finds records therefore repeats one of them and
//!           compares the results ([`mod@crate::engine::sweep`]).

use crate::engine::point::Point;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The version of this kiban, as stored in records.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The hashed object. The order of the fields is the order in which they are hashed.
#[derive(Serialize)]
struct Content<'a> {
    point: &'a Point,
    question: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    repetition: Option<u32>,
    seed: u64,
    version: &'a str,
}

/// Returns the key of a trial: 64 hexadecimal digits. `repetition` is `None` in virtual time.
pub fn key(question: &str, version: &str, point: &Point, seed: u64, repetition: Option<u32>) -> String {
    let content = Content { point, question, repetition, seed, version };
    let text = serde_json::to_vec(&content).expect("values are plain");
    Sha256::digest(text).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Value;

    /// The expected hashes were computed with sha256sum from the text in the comments.
    #[test]
    fn a_key_is_the_hash_of_its_canonical_text() {
        let point: Point =
            [("message_bytes", Value::Count(4000)), ("delay_ms", Value::Figure(0.5))].into_iter().collect();
        // {"point":{"delay_ms":0.5,"message_bytes":4000},"question":"q","seed":7,"version":"0.1.0"}
        let expected = "ed2f3955ef21903f109dae5d2be1740d994086f3952bff7cfa59a130e99d83fb";
        assert_eq!(key("q", "0.1.0", &point, 7, None), expected);
        // {"point":{"delay_ms":0.5,"message_bytes":4000},"question":"q","repetition":2,"seed":7,"version":"0.1.0"}
        let expected = "5530bdc24b48d8459cc1e14590e0612e0fc12db03d51b6040b4c8e75f5ba089d";
        assert_eq!(key("q", "0.1.0", &point, 7, Some(2)), expected);
    }
}
