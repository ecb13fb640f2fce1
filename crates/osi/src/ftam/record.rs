//! Recovery records (dockets) as stored on disk: lines that each hold a keyword and a hexadecimal value.
//!
//! Purpose   an initiator and a responder can resume a transfer even after both programs have ended.
//! Format    each line has a keyword, a space and a hexadecimal value. Unknown keywords are ignored; a
//!           keyword may occur several times.
//! Limits    the disk limits the number and length of records.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A record: keywords with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record(Vec<(String, Vec<u8>)>);

impl Record {
    /// Adds a value.
    pub(super) fn put(&mut self, word: &str, value: &[u8]) {
        self.0.push((word.into(), value.into()));
    }

    /// Adds a number.
    pub(super) fn put_number(&mut self, word: &str, number: i64) {
        self.put(word, format!("{number}").as_bytes());
    }

    /// Returns the first value stored under a keyword.
    pub(super) fn get(&self, word: &str) -> Option<&[u8]> {
        self.0.iter().find(|(other, _)| other == word).map(|(_, value)| value.as_slice())
    }

    /// Returns the first value stored under a keyword, as text.
    pub(super) fn text(&self, word: &str) -> Option<&str> {
        core::str::from_utf8(self.get(word)?).ok()
    }

    /// Returns the first value stored under a keyword, as a number.
    pub(super) fn number(&self, word: &str) -> Option<i64> {
        self.text(word)?.parse().ok()
    }

    /// Returns all values stored under a keyword.
    pub(super) fn all<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |(other, _)| other == word).map(|(_, value)| value.as_slice())
    }

    /// Encodes the record.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut text = String::new();
        for (word, value) in &self.0 {
            text.push_str(word);
            text.push(' ');
            value.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
            text.push('\n');
        }
        text.into_bytes()
    }

    /// Decodes a record.
    pub(super) fn read(bytes: &[u8]) -> Option<Record> {
        let text = core::str::from_utf8(bytes).ok()?;
        let line = |line: &str| {
            let (word, digits) = line.split_once(' ')?;
            let pairs = digits.as_bytes().chunks(2);
            let value = pairs.map(|pair| match pair.len() {
                2 => u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok(),
                _ => None,
            });
            Some((word.into(), value.collect::<Option<Vec<u8>>>()?))
        };
        text.lines().map(line).collect::<Option<Vec<_>>>().map(Record)
    }
}

/// Hashes a name to a number for use in keys (FNV-1a).
pub(super) fn number_of(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_a_round_trip() {
        let mut record = Record::default();
        record.put("path", "a/ü".as_bytes());
        record.put("empty", b"");
        record.put_number("at", -7);
        record.put_number("at", 8);
        let read = Record::read(&record.to_vec()).unwrap();
        assert_eq!(read, record);
        assert_eq!((read.text("path"), read.number("at"), read.get("none")), (Some("a/ü"), Some(-7), None));
        assert_eq!(read.all("at").count(), 2);
        for bad in [&b"word"[..], b"word 0", b"word xx", b"\xff"] {
            assert_eq!(Record::read(bad), None);
        }
    }
}
