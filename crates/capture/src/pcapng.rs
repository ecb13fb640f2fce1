//! pcapng, the format that Wireshark writes by default (draft-ietf-opsawg-pcapng).
//!
//! Purpose          read the packets of a file, with the time and the link type of each.
//!
//! ```text
//! block            | type 4 | length 4 | body, padded to 4 | length 4 |
//! section header   0A0D0D0A: | byte order 1A2B3C4D | version 2 2 | section length 8 | options
//! interface        1: | link type 2 | reserved 2 | snapshot length 4 | options
//! packet           6: | interface 4 | time 4 4 | captured 4 | on the wire 4 | data | options
//! simple packet    3: | on the wire 4 | data
//! old packet       2: | interface 2 | drops 2 | time 4 4 | captured 4 | on the wire 4 | data | options
//! option           | code 2 | length 2 | value, padded to 4 |    9 time unit 1, 14 seconds to add 8
//! ```
//!
//! Order            each section has its own byte order and its own interfaces (§4.1).
//! Limits           at most [`INTERFACES_MAX`] interfaces in a section.
//! Not implemented  writing; blocks of other types, such as names and secrets, which are skipped.

use alloc::vec::Vec;

use kiban_base::Malformed;

/// Maximum number of interfaces in a section.
pub const INTERFACES_MAX: usize = 4096;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

const OPTION_END: u16 = 0;
const OPTION_TIME_UNIT: u16 = 9;
const OPTION_SECONDS: u16 = 14;

const SECOND: u64 = 1_000_000_000;

/// A packet of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Time in nanoseconds since 1970-01-01 00:00; 0 for a simple packet, which has no time.
    pub nanoseconds: u64,
    /// Link type of the interface: see the `LINK_TYPE_` constants of this crate.
    pub link_type: u32,
    /// Length of the packet on the wire in bytes.
    pub original_bytes: u32,
    /// The bytes captured.
    pub data: &'a [u8],
}

/// What the packets of an interface have in common.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u32,
    snap_bytes: u32,
    /// Units of time per second: a power of ten or of two.
    units_per_second: u64,
    /// Seconds to add to each time.
    offset_seconds: i64,
}

/// An iterator over the packets of a file. The last item is an error if the file is damaged.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    rest: &'a [u8],
    big_endian: bool,
    interfaces: Vec<Interface>,
}

/// Returns whether `bytes` begin like a pcapng file.
pub fn is_pcapng(bytes: &[u8]) -> bool {
    bytes.first_chunk() == Some(&SECTION_HEADER.to_be_bytes())
}

/// Iterates over the packets of a file in the order in which they were recorded.
///
/// # Errors
/// `Magic` if it does not begin with a section header.
pub fn packets(bytes: &[u8]) -> Result<Packets<'_>, Malformed> {
    if !is_pcapng(bytes) {
        return Err(Malformed::Magic);
    }
    Ok(Packets { rest: bytes, big_endian: false, interfaces: Vec::new() })
}

impl<'a> Packets<'a> {
    fn half(&self, bytes: &[u8], at: usize) -> Result<u16, Malformed> {
        let bytes = *bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(Malformed::Truncated)?;
        Ok(if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn word(&self, bytes: &[u8], at: usize) -> Result<u32, Malformed> {
        let bytes = *bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(Malformed::Truncated)?;
        Ok(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// Takes the next block from the file: its type and its body.
    fn block(&mut self) -> Result<(u32, &'a [u8]), Malformed> {
        let mut kind = self.word(self.rest, 0)?;
        if self.rest.first_chunk() == Some(&SECTION_HEADER.to_be_bytes()) {
            // The type reads the same in both byte orders; the first field of the body tells the order.
            kind = SECTION_HEADER;
            let magic = *self.rest.get(8..).and_then(<[u8]>::first_chunk).ok_or(Malformed::Truncated)?;
            self.big_endian = match (u32::from_be_bytes(magic), u32::from_le_bytes(magic)) {
                (BYTE_ORDER, _) => true,
                (_, BYTE_ORDER) => false,
                _ => return Err(Malformed::Magic),
            };
        }
        let length = self.word(self.rest, 4)? as usize;
        if length < 12 || !length.is_multiple_of(4) {
            return Err(Malformed::RecordLength);
        }
        let (block, rest) = self.rest.split_at_checked(length).ok_or(Malformed::RecordLength)?;
        self.rest = rest;
        Ok((kind, &block[8..length - 4]))
    }

    fn interface(&self, body: &[u8]) -> Result<Interface, Malformed> {
        let mut interface = Interface {
            link_type: u32::from(self.half(body, 0)?),
            snap_bytes: self.word(body, 4)?,
            units_per_second: 1_000_000,
            offset_seconds: 0,
        };
        let mut options = body.get(8..).unwrap_or(&[]);
        while options.len() >= 4 {
            let (code, length) = (self.half(options, 0)?, usize::from(self.half(options, 2)?));
            let value = options.get(4..4 + length).ok_or(Malformed::OptionLength)?;
            match (code, value) {
                (OPTION_END, _) => break,
                // §4.2: the highest bit selects a power of two.
                (OPTION_TIME_UNIT, &[power]) => {
                    let base = if power & 0x80 == 0 { 10u64 } else { 2 };
                    interface.units_per_second =
                        base.checked_pow(u32::from(power & 0x7f)).ok_or(Malformed::OptionLength)?;
                }
                (OPTION_SECONDS, &[s0, s1, s2, s3, s4, s5, s6, s7]) => {
                    let bytes = [s0, s1, s2, s3, s4, s5, s6, s7];
                    interface.offset_seconds =
                        if self.big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
                }
                _ => {}
            }
            options = options.get(4 + length.next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ok(interface)
    }

    /// Returns a packet whose fields begin with its time, at `at` in the body.
    fn packet(&self, body: &'a [u8], interface: usize, at: usize) -> Result<Packet<'a>, Malformed> {
        let interface = self.interfaces.get(interface).ok_or(Malformed::RecordType)?;
        let units = u64::from(self.word(body, at)?) << 32 | u64::from(self.word(body, at + 4)?);
        let captured_bytes = self.word(body, at + 8)? as usize;
        let data = body.get(at + 16..).and_then(|data| data.get(..captured_bytes));
        let data = data.ok_or(Malformed::RecordLength)?;
        let per_second = interface.units_per_second;
        let fraction = u128::from(units % per_second) * u128::from(SECOND) / u128::from(per_second);
        let seconds = (units / per_second).saturating_add_signed(interface.offset_seconds);
        Ok(Packet {
            nanoseconds: seconds.saturating_mul(SECOND).saturating_add(fraction as u64),
            link_type: interface.link_type,
            original_bytes: self.word(body, at + 12)?,
            data,
        })
    }

    /// Returns a packet without a time (§4.4), limited by the snapshot length of the first interface.
    fn simple(&self, body: &'a [u8]) -> Result<Packet<'a>, Malformed> {
        let Interface { link_type, snap_bytes, .. } =
            *self.interfaces.first().ok_or(Malformed::RecordType)?;
        let original_bytes = self.word(body, 0)?;
        let limit = if snap_bytes == 0 { original_bytes } else { original_bytes.min(snap_bytes) };
        let data = body[4..].get(..limit as usize).ok_or(Malformed::RecordLength)?;
        Ok(Packet { nanoseconds: 0, link_type, original_bytes, data })
    }

    fn next_packet(&mut self) -> Result<Option<Packet<'a>>, Malformed> {
        while !self.rest.is_empty() {
            let (kind, body) = self.block()?;
            match kind {
                SECTION_HEADER => {
                    if self.half(body, 4)? != 1 {
                        return Err(Malformed::Version);
                    }
                    self.interfaces.clear();
                }
                INTERFACE if self.interfaces.len() == INTERFACES_MAX => return Err(Malformed::TooMany),
                INTERFACE => {
                    let interface = self.interface(body)?;
                    self.interfaces.push(interface);
                }
                PACKET => return self.packet(body, self.word(body, 0)? as usize, 4).map(Some),
                OLD_PACKET => return self.packet(body, self.half(body, 0)?.into(), 4).map(Some),
                SIMPLE_PACKET => return self.simple(body).map(Some),
                _ => {}
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Packet<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let packet = self.next_packet();
        if packet.is_err() {
            self.rest = &[];
        }
        packet.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(big_endian: bool, kind: u32, body: &[u8]) -> Vec<u8> {
        let word = |word: u32| if big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
        let length = 12 + body.len().next_multiple_of(4);
        let mut block = Vec::from(word(kind));
        block.extend(word(length as u32));
        block.extend(body);
        block.resize(length - 4, 0);
        block.extend(word(length as u32));
        block
    }

    /// Returns a section with one Ethernet interface, whose options are given, and one packet.
    fn section(big_endian: bool, options: &[u8], time: u64) -> Vec<u8> {
        let half = |half: u16| if big_endian { half.to_be_bytes() } else { half.to_le_bytes() };
        let word = |word: u32| if big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
        let head = [&word(BYTE_ORDER)[..], &half(1), &half(0), &[0xff; 8]].concat();
        let interface = [&half(1)[..], &half(0), &word(65535), options].concat();
        let stamp = [word((time >> 32) as u32), word(time as u32)].concat();
        let packet = [&word(0)[..], &stamp, &word(5), &word(60), b"frame"].concat();
        let blocks = [
            block(big_endian, SECTION_HEADER, &head),
            block(big_endian, INTERFACE, &interface),
            block(big_endian, 5, &[0; 8]),
            block(big_endian, PACKET, &packet),
        ];
        blocks.concat()
    }

    #[test]
    fn packets_of_both_byte_orders_have_their_times() {
        // The unit: absent (microseconds), nanoseconds, 2^-10 s; and an offset of 100 s.
        let little_nanos = [&9u16.to_le_bytes()[..], &[1, 0, 9, 0, 0, 0], &[0, 0, 0, 0]].concat();
        let big_binary = [&9u16.to_be_bytes()[..], &[0, 1, 0x8a, 0, 0, 0]].concat();
        let little_offset = [&14u16.to_le_bytes()[..], &[8, 0], &100u64.to_le_bytes()].concat();
        let rows = [
            (false, &[][..], 1_000_001, 1_000_001_000),
            (false, &little_nanos, (5 << 32) + 7, (5 << 32) + 7),
            (true, &big_binary, 1024 + 512, 1_500_000_000),
            (false, &little_offset, 0, 100_000_000_000),
        ];
        let mut all = Vec::new();
        for (big_endian, options, time, nanoseconds) in rows {
            let section = section(big_endian, options, time);
            let found: Vec<_> = packets(&section).expect("pcapng").collect();
            let packet = Packet { nanoseconds, link_type: 1, original_bytes: 60, data: b"frame" };
            assert_eq!(found, [Ok(packet)], "{options:?}");
            all.extend(section);
        }
        assert_eq!(packets(&all).expect("pcapng").flatten().count(), rows.len());
    }

    #[test]
    fn simple_packets_have_no_time_and_old_packets_have_short_interface_numbers() {
        let mut file = section(false, &[], 0);
        file.extend(block(false, SIMPLE_PACKET, &[&6u32.to_le_bytes()[..], b"simple"].concat()));
        let old = [&[0; 12][..], &3u32.to_le_bytes(), &3u32.to_le_bytes(), b"old"].concat();
        file.extend(block(false, OLD_PACKET, &old));
        let data: Vec<&[u8]> = packets(&file).expect("pcapng").flatten().map(|packet| packet.data).collect();
        assert_eq!(data, [&b"frame"[..], b"simple", b"old"]);
    }

    #[test]
    fn a_damaged_file_ends_with_the_broken_rule() {
        let whole = section(false, &[], 0);
        let mut bad_length = whole.clone();
        bad_length[4] = 13;
        let mut bad_version = whole.clone();
        bad_version[12] = 2;
        let lone_packet = [&whole[..28], &whole[whole.len() - 40..]].concat();
        let rows = [
            (&whole[..whole.len() - 4], Malformed::RecordLength),
            (&whole[..30], Malformed::Truncated),
            (&bad_length, Malformed::RecordLength),
            (&bad_version, Malformed::Version),
            (&lone_packet, Malformed::RecordType),
        ];
        for (file, rule) in rows {
            assert_eq!(packets(file).expect("pcapng").last(), Some(Err(rule)));
        }
        assert_eq!(packets(b"no").err(), Some(Malformed::Magic));
    }
}
