//! IGMP messages, by which hosts report IPv4 groups (RFC 3376 §4, RFC 2236 §2).
//!
//! ```text
//! | type 8 | maximum response code 8 | checksum 16 | by type
//!   0x11 query, versions 1, 2 | group 32
//!   0x11 query, version 3     | group 32 | S 1, QRV 3 | QQIC 8 | sources
//!   0x12 report, version 1    | group 32
//!   0x16 report, version 2    | group 32
//!   0x17 leave, version 2     | group 32
//!   0x22 report, version 3    | 0 16, records 16 | records
//!
//!   record: | type 8 | auxiliary data/4 8 | sources 16 | group 32 | sources | auxiliary data |
//! ```
//!
//! Receive path     a query of 8 bytes is of version 1 if its code is zero, else of version 2; one of at
//!                  least 12 bytes is of version 3; other lengths are invalid (RFC 3376 §7.1). The caller
//!                  checks the TTL, and the checksum with [`verify`]. Auxiliary data is skipped (§4.2.6).

use core::net::Ipv4Addr;
use core::time::Duration;
use kiban_base::{Malformed, Sum};

pub use super::mld::{query_interval, record};

/// TTL of every message (RFC 3376 §4).
pub const TIME_TO_LIVE: u8 = 1;
/// The group of all hosts, to which general queries are sent (RFC 1112 §4).
pub const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// The group of all routers, to which leaves are sent (RFC 2236 §3).
pub const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// The group of all routers that speak version 3, to which reports are sent (RFC 3376 §4.2.14).
pub const ALL_V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// Length of a record without sources, bytes.
pub const RECORD_BYTES: usize = 8;

const QUERY: u8 = 0x11;
const REPORT_V1: u8 = 0x12;
const REPORT_V2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const REPORT: u8 = 0x22;

/// Length of a message of version 1 or 2, and of a report of version 3 without its records, bytes.
const FIXED_BYTES: usize = 8;
/// Length of a query of version 3 without sources, bytes.
const QUERY_BYTES: usize = 12;

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A query of version 1 or 2.
    OldQuery {
        /// Maximum response time, tenths of a second; zero in version 1.
        max_response_code: u8,
        /// The group; unspecified in a general query.
        group: Ipv4Addr,
    },
    /// A query of version 3.
    Query {
        /// Maximum response code: see [`max_response_time`].
        max_response_code: u8,
        /// The group; unspecified in a general query.
        group: Ipv4Addr,
        /// S: routers do not update their timers.
        suppress: bool,
        /// QRV: the querier's robustness variable; 0 if it exceeds 7.
        robustness: u8,
        /// QQIC: see [`query_interval`].
        interval_code: u8,
        /// The sources, 4 bytes each.
        sources: &'a [u8],
    },
    /// A report of version 1.
    ReportV1 {
        /// The group that has a member.
        group: Ipv4Addr,
    },
    /// A report of version 2.
    ReportV2 {
        /// The group that has a member.
        group: Ipv4Addr,
    },
    /// A member has left a group (version 2).
    Leave {
        /// The group.
        group: Ipv4Addr,
    },
    /// A report of version 3.
    Report(Records<'a>),
}

/// One record of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The type, one of [`record`].
    pub kind: u8,
    /// The group.
    pub group: Ipv4Addr,
    /// The sources, 4 bytes each.
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
        target[2..4].copy_from_slice(&((self.sources.len() / 4) as u16).to_be_bytes());
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
        let (&[kind, aux, s0, s1, a, b, c, d], rest) = self.bytes.split_first_chunk::<RECORD_BYTES>()?;
        let sources_bytes = 4 * usize::from(u16::from_be_bytes([s0, s1]));
        let (sources, rest) = rest.split_at_checked(sources_bytes)?;
        (self.bytes, self.count) = (rest.get(4 * usize::from(aux)..)?, self.count - 1);
        Some(Record { kind, group: Ipv4Addr::new(a, b, c, d), sources })
    }
}

impl<'a> Message<'a> {
    /// Decodes a message. The checksum is not verified.
    ///
    /// # Errors
    /// `Truncated`; `Operation` if the type is unknown; `TotalLength` if the length is none that the type
    /// allows, or sources or records exceed the message.
    pub fn read(bytes: &'a [u8]) -> Result<(Message<'a>, usize), Malformed> {
        let Some((&[kind, code, _, _, a, b, c, d], rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else {
            return Err(Malformed::Truncated);
        };
        let group = Ipv4Addr::new(a, b, c, d);
        let message = match (kind, rest) {
            (REPORT, _) => {
                let count = u16::from_be_bytes([c, d]);
                let records = Records::new(rest, count);
                if records.count() != usize::from(count) {
                    return Err(Malformed::TotalLength);
                }
                return Ok((Message::Report(records), bytes.len()));
            }
            (REPORT_V1, _) => Message::ReportV1 { group },
            (REPORT_V2, _) => Message::ReportV2 { group },
            (LEAVE, _) => Message::Leave { group },
            (QUERY, []) => Message::OldQuery { max_response_code: code, group },
            (QUERY, [flags, interval_code, s0, s1, sources @ ..]) => {
                let sources_bytes = 4 * usize::from(u16::from_be_bytes([*s0, *s1]));
                let sources = sources.get(..sources_bytes).ok_or(Malformed::TotalLength)?;
                Message::Query {
                    max_response_code: code,
                    group,
                    suppress: flags & 8 != 0,
                    robustness: flags & 7,
                    interval_code: *interval_code,
                    sources,
                }
            }
            (QUERY, _) => return Err(Malformed::TotalLength),
            _ => return Err(Malformed::Operation),
        };
        Ok((message, message.length()))
    }

    /// Returns the number of bytes that [`write`](Self::write) writes.
    pub fn length(&self) -> usize {
        match self {
            Message::Query { sources, .. } => QUERY_BYTES + sources.len(),
            Message::Report(records) => FIXED_BYTES + records.bytes.len(),
            _ => FIXED_BYTES,
        }
    }

    /// Writes the message, with its checksum, at the front of `target`. Returns the number of bytes written.
    ///
    /// # Panics
    /// If `target` is shorter than [`length`](Self::length).
    pub fn write(&self, target: &mut [u8]) -> usize {
        let length = self.length();
        let target = &mut target[..length];
        target.fill(0);
        let (kind, code, group) = match *self {
            Message::OldQuery { max_response_code, group } => (QUERY, max_response_code, group),
            Message::Query { max_response_code, group, .. } => (QUERY, max_response_code, group),
            Message::ReportV1 { group } => (REPORT_V1, 0, group),
            Message::ReportV2 { group } => (REPORT_V2, 0, group),
            Message::Leave { group } => (LEAVE, 0, group),
            Message::Report(records) => {
                target[FIXED_BYTES..].copy_from_slice(records.bytes);
                (REPORT, 0, Ipv4Addr::from_bits(records.count.into()))
            }
        };
        (target[0], target[1]) = (kind, code);
        target[4..FIXED_BYTES].copy_from_slice(&group.octets());
        if let Message::Query { suppress, robustness, interval_code, sources, .. } = *self {
            target[FIXED_BYTES] = u8::from(suppress) << 3 | robustness & 7;
            target[FIXED_BYTES + 1] = interval_code;
            target[FIXED_BYTES + 2..QUERY_BYTES].copy_from_slice(&((sources.len() / 4) as u16).to_be_bytes());
            target[QUERY_BYTES..].copy_from_slice(sources);
        }
        let sum = Sum::of(target).checksum();
        target[2..4].copy_from_slice(&sum.to_be_bytes());
        length
    }
}

/// Checks the checksum of a message.
///
/// # Errors
/// `Checksum` if it is wrong.
pub fn verify(bytes: &[u8]) -> Result<(), Malformed> {
    if Sum::of(bytes).is_intact() { Ok(()) } else { Err(Malformed::Checksum) }
}

/// Returns the maximum response time of a query of version 3 (RFC 3376 §4.1.1): tenths of a second, in the
/// encoding of [`query_interval`].
pub const fn max_response_time(code: u8) -> Duration {
    Duration::from_millis(query_interval(code).as_secs() * 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    #[test]
    fn every_message_round_trips_and_a_truncated_one_is_rejected() {
        let mut records = vec![0; 2 * RECORD_BYTES + 8];
        let sources = [7; 8];
        let two = [
            Record { kind: record::TO_EXCLUDE, group: GROUP, sources: &[] },
            Record { kind: record::IS_EXCLUDE, group: Ipv4Addr::new(224, 0, 0, 251), sources: &sources },
        ];
        let at = two[0].write(&mut records);
        assert_eq!(at + two[1].write(&mut records[at..]), records.len());
        let messages = [
            Message::OldQuery { max_response_code: 100, group: Ipv4Addr::UNSPECIFIED },
            Message::Query {
                max_response_code: 0x81,
                group: GROUP,
                suppress: true,
                robustness: 3,
                interval_code: 125,
                sources: &sources,
            },
            Message::ReportV1 { group: GROUP },
            Message::ReportV2 { group: GROUP },
            Message::Leave { group: GROUP },
            Message::Report(Records::new(&records, 2)),
        ];
        for message in messages {
            let mut bytes = vec![0xee; 100];
            let length = message.write(&mut bytes);
            assert_eq!(length, message.length());
            assert_eq!(Message::read(&bytes[..length]), Ok((message, length)));
            assert_eq!(verify(&bytes[..length]), Ok(()));
            for cut in 0..length {
                // A query of version 3 cut to 8 bytes is an old one (RFC 3376 §7.1).
                let is_old = cut == FIXED_BYTES && bytes[0] == QUERY;
                assert_eq!(Message::read(&bytes[..cut]).is_ok(), is_old, "{message:?} cut to {cut}");
            }
            bytes[1] ^= 0x10;
            assert_eq!(verify(&bytes[..length]), Err(Malformed::Checksum));
        }
        assert_eq!(Records::new(&records, 2).collect::<Vec<_>>(), two);
        assert_eq!(Message::read(&[0x13; 8]), Err(Malformed::Operation));
    }

    #[test]
    fn response_codes_are_tenths_of_seconds_and_floating_point_from_128_on() {
        for (code, ms) in [(0, 0), (100, 10_000), (127, 12_700), (0x80, 12_800), (0xff, 3_174_400)] {
            assert_eq!(max_response_time(code), Duration::from_millis(ms), "{code:#x}");
        }
    }
}
