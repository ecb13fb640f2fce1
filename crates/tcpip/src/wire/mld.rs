//! Multicast listener discovery messages of ICMPv6 (RFC 3810 §5, RFC 2710 §3).
//!
//! ```text
//! | type 8 | code 8 | checksum 16 | by type
//!   130 query, version 1       | maximum response delay 16, 0 16 | group 128
//!   130 query, version 2       | maximum response code 16, 0 16  | group 128 | S 1, QRV 3 | QQIC 8 | sources
//!   131 report, version 1      | 0 32                            | group 128
//!   132 done                   | 0 32                            | group 128
//!   143 report, version 2      | 0 16, records 16                | records
//!
//!   record: | type 8 | auxiliary data/4 8 | sources 16 | group 128 | sources | auxiliary data |
//! ```
//!
//! Receive path     a query of 24 bytes is of version 1, one of at least 28 of version 2; other lengths are
//!                  invalid (RFC 3810 §8.1). The caller checks the checksum, the hop limit, the source and
//!                  the router alert option. Auxiliary data is skipped (§5.2.10).

use core::net::Ipv6Addr;
use core::time::Duration;
use kiban_base::Malformed;

/// Hop limit of every message (RFC 3810 §5).
pub const HOP_LIMIT: u8 = 1;
/// The group of all routers that speak version 2, to which reports are sent (RFC 3810 §5.2.14).
pub const ALL_V2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Length of a record without sources, bytes.
pub const RECORD_BYTES: usize = 20;

const QUERY: u8 = 130;
const REPORT_V1: u8 = 131;
const DONE: u8 = 132;
const REPORT: u8 = 143;

/// Length of a report of version 2 without its records, bytes.
const FIXED_BYTES: usize = 8;
/// Length of a message of version 1, bytes.
const V1_BYTES: usize = 24;
/// Length of a query of version 2 without sources, bytes.
const QUERY_BYTES: usize = 28;

/// Returns whether an ICMPv6 type is a message of multicast listener discovery.
pub const fn is_mld(kind: u8) -> bool {
    matches!(kind, QUERY | REPORT_V1 | DONE | REPORT)
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A query of version 1.
    QueryV1 {
        /// Maximum response delay, ms.
        max_response_ms: u16,
        /// The group; unspecified in a general query.
        group: Ipv6Addr,
    },
    /// A query of version 2.
    Query {
        /// Maximum response code: see [`max_response_delay`].
        max_response_code: u16,
        /// The group; unspecified in a general query.
        group: Ipv6Addr,
        /// S: routers do not update their timers.
        suppress: bool,
        /// QRV: the querier's robustness variable; 0 if it exceeds 7.
        robustness: u8,
        /// QQIC: see [`query_interval`].
        interval_code: u8,
        /// The sources, 16 bytes each.
        sources: &'a [u8],
    },
    /// A report of version 1.
    ReportV1 {
        /// The group that has a listener.
        group: Ipv6Addr,
    },
    /// A listener has left a group (version 1).
    Done {
        /// The group.
        group: Ipv6Addr,
    },
    /// A report of version 2.
    Report(Records<'a>),
}

/// The type of a record (RFC 3810 §5.2.12).
pub mod record {
    /// The current state: all sources except the listed ones are wanted.
    pub const IS_EXCLUDE: u8 = 2;
    /// The state has changed to: only the listed sources are wanted; without sources, the group was left.
    pub const TO_INCLUDE: u8 = 3;
    /// The state has changed to: all sources except the listed ones are wanted.
    pub const TO_EXCLUDE: u8 = 4;
}

/// One record of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The type, one of [`record`].
    pub kind: u8,
    /// The group.
    pub group: Ipv6Addr,
    /// The sources, 16 bytes each.
    pub sources: &'a [u8],
}

impl Record<'_> {
    /// Writes the record at the front of `target`. Returns the number of bytes written.
    ///
    /// # Panics
    /// If `target` is too short.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let end = RECORD_BYTES + self.sources.len();
        target[0] = self.kind;
        target[1] = 0;
        target[2..4].copy_from_slice(&((self.sources.len() / 16) as u16).to_be_bytes());
        target[4..RECORD_BYTES].copy_from_slice(&self.group.octets());
        target[RECORD_BYTES..end].copy_from_slice(self.sources);
        end
    }
}

/// The records of a report; an iterator over [`Record`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    count: u16,
}

impl<'a> Records<'a> {
    /// Creates records from their encoding.
    pub const fn new(bytes: &'a [u8], count: u16) -> Records<'a> {
        Records { bytes, count }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        if self.count == 0 {
            return None;
        }
        let (&[kind, aux, s0, s1], rest) = self.bytes.split_first_chunk::<4>()?;
        let (group, rest) = rest.split_first_chunk::<16>()?;
        let sources_bytes = 16 * usize::from(u16::from_be_bytes([s0, s1]));
        let (sources, rest) = rest.split_at_checked(sources_bytes)?;
        (self.bytes, self.count) = (rest.get(4 * usize::from(aux)..)?, self.count - 1);
        Some(Record { kind, group: Ipv6Addr::from(*group), sources })
    }
}

impl<'a> Message<'a> {
    /// Decodes a message. The checksum is not verified.
    ///
    /// # Errors
    /// `Truncated`; `Operation` if the type or code is unknown; `TotalLength` if the length is none that the
    /// type allows, or sources or records exceed the message.
    pub fn read(bytes: &'a [u8]) -> Result<(Message<'a>, usize), Malformed> {
        let Some((&[kind, code, _, _, a, b, c, d], rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else {
            return Err(Malformed::Truncated);
        };
        if !is_mld(kind) || code != 0 {
            return Err(Malformed::Operation);
        }
        let word = u16::from_be_bytes([a, b]);
        if kind == REPORT {
            let count = u16::from_be_bytes([c, d]);
            let records = Records::new(rest, count);
            let good = records.count() == usize::from(count);
            return if good {
                Ok((Message::Report(records), bytes.len()))
            } else {
                Err(Malformed::TotalLength)
            };
        }
        let Some((group, rest)) = rest.split_first_chunk::<16>() else { return Err(Malformed::Truncated) };
        let group = Ipv6Addr::from(*group);
        let message = match (kind, rest) {
            (REPORT_V1, _) => Message::ReportV1 { group },
            (DONE, _) => Message::Done { group },
            (_, []) => Message::QueryV1 { max_response_ms: word, group },
            (_, [flags, interval_code, s0, s1, sources @ ..]) => {
                let sources_bytes = 16 * usize::from(u16::from_be_bytes([*s0, *s1]));
                let sources = sources.get(..sources_bytes).ok_or(Malformed::TotalLength)?;
                Message::Query {
                    max_response_code: word,
                    group,
                    suppress: flags & 8 != 0,
                    robustness: flags & 7,
                    interval_code: *interval_code,
                    sources,
                }
            }
            _ => return Err(Malformed::TotalLength),
        };
        Ok((message, message.length()))
    }

    /// Returns the number of bytes that [`write`](Self::write) writes.
    pub fn length(&self) -> usize {
        match self {
            Message::Query { sources, .. } => QUERY_BYTES + sources.len(),
            Message::Report(records) => FIXED_BYTES + records.bytes.len(),
            _ => V1_BYTES,
        }
    }

    /// Writes the message at the front of `target`, with a zero checksum. Returns the number of bytes
    /// written.
    ///
    /// # Panics
    /// If `target` is shorter than [`length`](Self::length).
    pub fn write(&self, target: &mut [u8]) -> usize {
        let length = self.length();
        let target = &mut target[..length];
        target.fill(0);
        let (kind, word, group) = match *self {
            Message::QueryV1 { max_response_ms, group } => (QUERY, max_response_ms, group),
            Message::Query { max_response_code, group, .. } => (QUERY, max_response_code, group),
            Message::ReportV1 { group } => (REPORT_V1, 0, group),
            Message::Done { group } => (DONE, 0, group),
            Message::Report(records) => {
                target[0] = REPORT;
                target[6..FIXED_BYTES].copy_from_slice(&records.count.to_be_bytes());
                target[FIXED_BYTES..].copy_from_slice(records.bytes);
                return length;
            }
        };
        target[0] = kind;
        target[4..6].copy_from_slice(&word.to_be_bytes());
        target[FIXED_BYTES..V1_BYTES].copy_from_slice(&group.octets());
        if let Message::Query { suppress, robustness, interval_code, sources, .. } = *self {
            target[V1_BYTES] = u8::from(suppress) << 3 | robustness & 7;
            target[V1_BYTES + 1] = interval_code;
            target[V1_BYTES + 2..QUERY_BYTES].copy_from_slice(&((sources.len() / 16) as u16).to_be_bytes());
            target[QUERY_BYTES..].copy_from_slice(sources);
        }
        length
    }
}

/// Returns the maximum response delay of a query of version 2 (RFC 3810 §5.1.3): a code from 32,768 on is a
/// floating-point number.
pub const fn max_response_delay(code: u16) -> Duration {
    let ms = match code {
        0..0x8000 => code as u64,
        _ => ((code & 0x0fff | 0x1000) as u64) << ((code >> 12 & 7) + 3),
    };
    Duration::from_millis(ms)
}

/// Returns the querier's query interval (RFC 3810 §5.1.9): a code from 128 on is a floating-point number.
pub const fn query_interval(code: u8) -> Duration {
    let seconds = match code {
        0..0x80 => code as u64,
        _ => ((code & 0x0f | 0x10) as u64) << ((code >> 4 & 7) + 3),
    };
    Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn group(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    #[test]
    fn every_message_round_trips_and_a_truncated_one_is_rejected() {
        let mut records = vec![0; 2 * RECORD_BYTES + 32];
        let sources = [7; 32];
        let two = [
            Record { kind: record::TO_EXCLUDE, group: group("ff02::1:ff00:1"), sources: &[] },
            Record { kind: record::IS_EXCLUDE, group: group("ff05::2"), sources: &sources },
        ];
        let at = two[0].write(&mut records);
        assert_eq!(at + two[1].write(&mut records[at..]), records.len());
        let messages = [
            Message::QueryV1 { max_response_ms: 10_000, group: Ipv6Addr::UNSPECIFIED },
            Message::Query {
                max_response_code: 0x8001,
                group: group("ff05::2"),
                suppress: true,
                robustness: 3,
                interval_code: 125,
                sources: &sources,
            },
            Message::ReportV1 { group: group("ff05::2") },
            Message::Done { group: group("ff05::2") },
            Message::Report(Records::new(&records, 2)),
        ];
        for message in messages {
            let mut bytes = vec![0xee; 200];
            let length = message.write(&mut bytes);
            assert_eq!(length, message.length());
            assert_eq!(Message::read(&bytes[..length]), Ok((message, length)));
            for cut in 0..length {
                // A query of version 2 cut to 24 bytes is one of version 1 (RFC 3810 §8.1).
                let is_v1 = cut == V1_BYTES && bytes[0] == QUERY;
                assert_eq!(Message::read(&bytes[..cut]).is_ok(), is_v1, "{message:?} cut to {cut}");
            }
        }
        assert_eq!(Records::new(&records, 2).collect::<Vec<_>>(), two);
    }

    #[test]
    fn codes_are_linear_below_their_highest_bit_and_floating_point_above() {
        let rows = [(0, 0), (1000, 1000), (0x7fff, 32_767), (0x8000, 32_768), (0xffff, 8_387_584)];
        for (code, ms) in rows {
            assert_eq!(max_response_delay(code), Duration::from_millis(ms), "{code:#x}");
        }
        for (code, seconds) in [(0, 0), (125, 125), (0x80, 128), (0xff, 31_744)] {
            assert_eq!(query_interval(code), Duration::from_secs(seconds), "{code:#x}");
        }
    }
}
