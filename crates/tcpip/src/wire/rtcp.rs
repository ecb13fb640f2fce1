//! RTCP packets (RFC 3550 §6.4 to §6.7): sender and receiver reports, source descriptions, goodbyes.
//!
//! ```text
//! | version 2 | padding 1 | count 5 | packet type 8 | length in words, minus one 16 | body |
//! ```
//!
//! Compound         a datagram holds several packets, the first of which is a report ([`Compound`], A.2).
//! Lists            report blocks, chunks and sources stay in the packet's bytes and are read by iterators.
//!                  [`Packet::read`] has validated their lengths.
//! Not implemented  the contents of application-defined packets (APP) and of other types: [`Packet::Other`].

use super::rtp::VERSION;
use alloc::vec::Vec;
use kiban_base::Malformed;

/// Length of a packet's header, bytes.
pub const HEADER_BYTES: usize = 4;
/// Length of a report block, bytes.
pub const REPORT_BYTES: usize = 24;
/// The maximum number of report blocks, chunks or sources in a packet.
pub const COUNT_MAX: usize = 31;

/// Packet types (§12.1).
pub mod packet_type {
    /// Sender report.
    pub const SENDER_REPORT: u8 = 200;
    /// Receiver report.
    pub const RECEIVER_REPORT: u8 = 201;
    /// Source description.
    pub const SOURCE_DESCRIPTION: u8 = 202;
    /// Goodbye.
    pub const BYE: u8 = 203;
}

/// The item of a source description with its canonical name (§6.5.1).
pub const CNAME: u8 = 1;

/// One receiver's statistics of one source (§6.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReportBlock {
    /// The source.
    pub ssrc: u32,
    /// The fraction of packets lost since the last report, in 256ths.
    pub fraction_lost: u8,
    /// All packets lost so far; negative if there are duplicates. 24 bits.
    pub lost: i32,
    /// The extended highest sequence number received.
    pub highest_sequence: u32,
    /// The interarrival jitter, in units of the payload's clock.
    pub jitter: u32,
    /// The middle 32 bits of the NTP timestamp of the source's last sender report; zero if there was none.
    pub last_report: u32,
    /// The delay since that report, in 1/65536 s.
    pub delay_since_last_report: u32,
}

impl ReportBlock {
    /// Decodes a block.
    pub fn read(bytes: &[u8; REPORT_BYTES]) -> ReportBlock {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        // Shifting up and down again extends the sign of the 24-bit number.
        let lost = (word(4) << 8) as i32 >> 8;
        ReportBlock {
            ssrc: word(0),
            fraction_lost: bytes[4],
            lost,
            highest_sequence: word(8),
            jitter: word(12),
            last_report: word(16),
            delay_since_last_report: word(20),
        }
    }

    /// Encodes the block. The number of lost packets is limited to 24 bits (A.3).
    pub fn bytes(&self) -> [u8; REPORT_BYTES] {
        let lost = self.lost.clamp(-0x80_0000, 0x7f_ffff) as u32 & 0xff_ffff;
        let words = [
            self.ssrc,
            u32::from(self.fraction_lost) << 24 | lost,
            self.highest_sequence,
            self.jitter,
            self.last_report,
            self.delay_since_last_report,
        ];
        let mut bytes = [0; REPORT_BYTES];
        for (target, word) in bytes.chunks_exact_mut(4).zip(words) {
            target.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

/// The report blocks of a report, and its profile-specific extension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reports<'a> {
    count: u8,
    bytes: &'a [u8],
}

impl<'a> Reports<'a> {
    /// Refers to encoded blocks.
    ///
    /// # Panics
    /// If there are more than [`COUNT_MAX`], or an incomplete one.
    pub fn of(bytes: &'a [u8]) -> Reports<'a> {
        let count = bytes.len() / REPORT_BYTES;
        assert!(count <= COUNT_MAX && bytes.len().is_multiple_of(REPORT_BYTES), "up to 31 report blocks");
        Reports { count: count as u8, bytes }
    }

    fn read(count: u8, bytes: &'a [u8]) -> Result<Reports<'a>, Malformed> {
        let fits = bytes.len() >= usize::from(count) * REPORT_BYTES;
        if fits { Ok(Reports { count, bytes }) } else { Err(Malformed::ParameterLength) }
    }

    /// Iterates over the blocks.
    pub fn iter(&self) -> impl Iterator<Item = ReportBlock> + use<'a> {
        let (blocks, _) = self.bytes.as_chunks::<REPORT_BYTES>();
        blocks.iter().take(self.count.into()).map(ReportBlock::read)
    }
}

/// The chunks of a source description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunks<'a> {
    count: u8,
    bytes: &'a [u8],
}

/// What is known of one source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk<'a> {
    /// The source.
    pub ssrc: u32,
    items: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// Returns the first item of a type, such as [`CNAME`].
    pub fn item(&self, kind: u8) -> Option<&'a [u8]> {
        let mut rest = self.items;
        while let [its, length, after @ ..] = rest {
            let (text, next) = after.split_at_checked((*length).into())?;
            if *its == kind {
                return Some(text);
            }
            rest = next;
        }
        None
    }
}

impl<'a> Chunks<'a> {
    fn read(count: u8, bytes: &'a [u8]) -> Result<Chunks<'a>, Malformed> {
        let mut rest = bytes;
        for _ in 0..count {
            (_, rest) = split_chunk(rest)?;
        }
        if rest.is_empty() { Ok(Chunks { count, bytes }) } else { Err(Malformed::ParameterLength) }
    }

    /// Iterates over the chunks.
    pub fn iter(&self) -> impl Iterator<Item = Chunk<'a>> + use<'a> {
        let mut rest = self.bytes;
        (0..self.count).map_while(move |_| {
            let (chunk, next) = split_chunk(rest).ok()?;
            rest = next;
            Some(chunk)
        })
    }
}

/// Splits the first chunk off: an SSRC, items, and one to four null octets up to the next word (§6.5).
fn split_chunk(bytes: &[u8]) -> Result<(Chunk<'_>, &[u8]), Malformed> {
    let (ssrc, items) = bytes.split_first_chunk::<4>().ok_or(Malformed::ParameterLength)?;
    let mut length = 0;
    loop {
        match items.get(length..) {
            Some([0, ..]) => break,
            Some([_, text, ..]) => length += 2 + usize::from(*text),
            _ => return Err(Malformed::ParameterLength),
        }
    }
    let rest = items.get((length + 1).next_multiple_of(4)..).ok_or(Malformed::ParameterLength)?;
    Ok((Chunk { ssrc: u32::from_be_bytes(*ssrc), items: &items[..length] }, rest))
}

/// The sources that leave, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goodbye<'a> {
    count: u8,
    bytes: &'a [u8],
}

impl<'a> Goodbye<'a> {
    fn read(count: u8, bytes: &'a [u8]) -> Result<Goodbye<'a>, Malformed> {
        let reason = bytes.get(4 * usize::from(count)..).ok_or(Malformed::ParameterLength)?;
        match reason {
            [length, text @ ..] if text.len() < usize::from(*length) => Err(Malformed::ParameterLength),
            _ => Ok(Goodbye { count, bytes }),
        }
    }

    /// Iterates over the sources.
    pub fn ssrcs(&self) -> impl Iterator<Item = u32> + use<'a> {
        let (words, _) = self.bytes.as_chunks::<4>();
        words.iter().take(self.count.into()).map(|word| u32::from_be_bytes(*word))
    }

    /// Returns the reason, if one is given.
    pub fn reason(&self) -> Option<&'a [u8]> {
        let (length, text) = self.bytes.get(4 * usize::from(self.count)..)?.split_first()?;
        text.get(..usize::from(*length))
    }
}

/// A sender's account of its stream (§6.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SenderInfo {
    /// The time of this report, as an NTP timestamp.
    pub ntp: u64,
    /// The same time, in units of the payload's clock.
    pub rtp_timestamp: u32,
    /// Packets sent so far.
    pub packets: u32,
    /// Octets of payload sent so far.
    pub octets: u32,
}

const SENDER_INFO_BYTES: usize = 20;

/// One packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet<'a> {
    /// Sender report.
    SenderReport {
        /// Who sent the report.
        ssrc: u32,
        /// Its stream.
        info: SenderInfo,
        /// What it received.
        reports: Reports<'a>,
    },
    /// Receiver report.
    ReceiverReport {
        /// Who sent the report.
        ssrc: u32,
        /// What it received.
        reports: Reports<'a>,
    },
    /// Source description.
    SourceDescription(Chunks<'a>),
    /// Goodbye.
    Bye(Goodbye<'a>),
    /// Any other type.
    Other {
        /// The packet type.
        kind: u8,
        /// The count or subtype.
        count: u8,
        /// The body, whole words.
        body: &'a [u8],
    },
}

impl<'a> Packet<'a> {
    /// Decodes the packet at the front of a datagram. Padding is not part of the packet: see [`Compound`].
    ///
    /// # Errors
    /// `Truncated`; `Version`; `TotalLength` if the packet exceeds the datagram; `ParameterLength` if
    /// something in it exceeds the packet.
    pub fn read(bytes: &'a [u8]) -> Result<(Packet<'a>, usize), Malformed> {
        let (first, kind, body) = split(bytes)?;
        Ok((Packet::of(first & 0x1f, kind, body)?, HEADER_BYTES + body.len()))
    }

    fn of(count: u8, kind: u8, body: &'a [u8]) -> Result<Packet<'a>, Malformed> {
        let reporter = || {
            let (ssrc, rest) = body.split_first_chunk::<4>().ok_or(Malformed::ParameterLength)?;
            Ok((u32::from_be_bytes(*ssrc), rest))
        };
        Ok(match kind {
            packet_type::SENDER_REPORT => {
                let (ssrc, rest) = reporter()?;
                let (info, rest) =
                    rest.split_first_chunk::<SENDER_INFO_BYTES>().ok_or(Malformed::ParameterLength)?;
                let word =
                    |at: usize| u32::from_be_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
                let info = SenderInfo {
                    ntp: u64::from(word(0)) << 32 | u64::from(word(4)),
                    rtp_timestamp: word(8),
                    packets: word(12),
                    octets: word(16),
                };
                Packet::SenderReport { ssrc, info, reports: Reports::read(count, rest)? }
            }
            packet_type::RECEIVER_REPORT => {
                let (ssrc, rest) = reporter()?;
                Packet::ReceiverReport { ssrc, reports: Reports::read(count, rest)? }
            }
            packet_type::SOURCE_DESCRIPTION => Packet::SourceDescription(Chunks::read(count, body)?),
            packet_type::BYE => Packet::Bye(Goodbye::read(count, body)?),
            kind => Packet::Other { kind, count, body },
        })
    }

    fn parts(&self) -> (u8, u8, &'a [u8]) {
        match *self {
            Packet::SenderReport { reports, .. } => {
                (packet_type::SENDER_REPORT, reports.count, reports.bytes)
            }
            Packet::ReceiverReport { reports, .. } => {
                (packet_type::RECEIVER_REPORT, reports.count, reports.bytes)
            }
            Packet::SourceDescription(chunks) => {
                (packet_type::SOURCE_DESCRIPTION, chunks.count, chunks.bytes)
            }
            Packet::Bye(goodbye) => (packet_type::BYE, goodbye.count, goodbye.bytes),
            Packet::Other { kind, count, body } => (kind, count, body),
        }
    }

    /// Returns the length of the packet, bytes.
    pub fn length(&self) -> usize {
        let fields = match self {
            Packet::SenderReport { .. } => 4 + SENDER_INFO_BYTES,
            Packet::ReceiverReport { .. } => 4,
            _ => 0,
        };
        HEADER_BYTES + fields + self.parts().2.len()
    }

    /// Writes the packet at the front of `target`, and returns the number of bytes written.
    ///
    /// # Panics
    /// If `target` is too short, or the packet does not consist of whole words.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let (kind, count, list) = self.parts();
        let length = self.length();
        assert!(length.is_multiple_of(4), "a packet consists of whole words");
        let words = u16::try_from(length / 4 - 1).expect("a packet has at most 65,536 words");
        target[0] = VERSION << 6 | count;
        target[1] = kind;
        target[2..4].copy_from_slice(&words.to_be_bytes());
        match *self {
            Packet::SenderReport { ssrc, info, .. } => {
                target[4..8].copy_from_slice(&ssrc.to_be_bytes());
                target[8..16].copy_from_slice(&info.ntp.to_be_bytes());
                target[16..20].copy_from_slice(&info.rtp_timestamp.to_be_bytes());
                target[20..24].copy_from_slice(&info.packets.to_be_bytes());
                target[24..28].copy_from_slice(&info.octets.to_be_bytes());
            }
            Packet::ReceiverReport { ssrc, .. } => target[4..8].copy_from_slice(&ssrc.to_be_bytes()),
            _ => {}
        }
        target[length - list.len()..length].copy_from_slice(list);
        length
    }

    /// Appends the packet to a datagram.
    pub fn append(&self, datagram: &mut Vec<u8>) {
        let at = datagram.len();
        datagram.resize(at + self.length(), 0);
        self.write(&mut datagram[at..]);
    }
}

/// Returns a header's first octet, the packet type and the body.
fn split(bytes: &[u8]) -> Result<(u8, u8, &[u8]), Malformed> {
    let Some(&[first, kind, l0, l1]) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Err(Malformed::Truncated);
    };
    if first >> 6 != VERSION {
        return Err(Malformed::Version);
    }
    let length = HEADER_BYTES + 4 * usize::from(u16::from_be_bytes([l0, l1]));
    Ok((first, kind, bytes.get(HEADER_BYTES..length).ok_or(Malformed::TotalLength)?))
}

/// Appends a source description with a canonical name.
///
/// # Panics
/// If the name is longer than 255 bytes.
pub fn append_cname(ssrc: u32, cname: &[u8], datagram: &mut Vec<u8>) {
    let length = u8::try_from(cname.len()).expect("a name has at most 255 bytes");
    let mut chunk = ssrc.to_be_bytes().to_vec();
    chunk.extend_from_slice(&[CNAME, length]);
    chunk.extend_from_slice(cname);
    chunk.resize((chunk.len() + 1).next_multiple_of(4), 0);
    Packet::SourceDescription(Chunks { count: 1, bytes: &chunk }).append(datagram);
}

/// Appends a goodbye.
pub fn append_bye(ssrc: u32, datagram: &mut Vec<u8>) {
    Packet::Bye(Goodbye { count: 1, bytes: &ssrc.to_be_bytes() }).append(datagram);
}

/// A compound packet: the packets of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compound<'a>(&'a [u8]);

impl<'a> Compound<'a> {
    /// Validates a datagram (A.2): all packets have the version and add up to the datagram, the first is a
    /// report, and only the last may be padded.
    ///
    /// # Errors
    /// Those of [`Packet::read`]; `Concatenation` if the first packet is no report, or another than the last
    /// is padded.
    pub fn read(bytes: &'a [u8]) -> Result<Compound<'a>, Malformed> {
        let (mut rest, mut is_first) = (bytes, true);
        while is_first || !rest.is_empty() {
            let (packet, is_padded, next) = Compound::step(rest)?;
            let is_report = matches!(packet, Packet::SenderReport { .. } | Packet::ReceiverReport { .. });
            if is_first && !is_report || is_padded && (is_first || !next.is_empty()) {
                return Err(Malformed::Concatenation);
            }
            (rest, is_first) = (next, false);
        }
        Ok(Compound(bytes))
    }

    /// Returns the first packet, whether it is padded, and what follows it.
    fn step(bytes: &'a [u8]) -> Result<(Packet<'a>, bool, &'a [u8]), Malformed> {
        let (first, kind, mut body) = split(bytes)?;
        let next = &bytes[HEADER_BYTES + body.len()..];
        let is_padded = first & 0x20 != 0;
        if is_padded {
            let count = usize::from(*body.last().ok_or(Malformed::ParameterLength)?);
            if count == 0 || count > body.len() || !count.is_multiple_of(4) {
                return Err(Malformed::ParameterLength);
            }
            body = &body[..body.len() - count];
        }
        Ok((Packet::of(first & 0x1f, kind, body)?, is_padded, next))
    }

    /// Iterates over the packets.
    pub fn iter(&self) -> impl Iterator<Item = Packet<'a>> + use<'a> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (packet, _, next) = Compound::step(rest).ok()?;
            rest = next;
            Some(packet)
        })
    }
}

/// Returns whether a datagram on a port that RTP and RTCP share is RTCP (RFC 5761 §4).
pub fn is_rtcp(bytes: &[u8]) -> bool {
    bytes.get(1).is_some_and(|kind| (192..=223).contains(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> ReportBlock {
        ReportBlock {
            ssrc: 7,
            fraction_lost: 64,
            lost: -3,
            highest_sequence: 0x1_0005,
            jitter: 80,
            last_report: 0x1234_5678,
            delay_since_last_report: 0x8000,
        }
    }

    fn compound() -> Vec<u8> {
        let info = SenderInfo { ntp: 0x83aa_7e80_8000_0000, rtp_timestamp: 160, packets: 9, octets: 1440 };
        let bytes = block().bytes();
        let mut datagram = Vec::new();
        Packet::SenderReport { ssrc: 5, info, reports: Reports::of(&bytes) }.append(&mut datagram);
        append_cname(5, b"a@b", &mut datagram);
        append_bye(5, &mut datagram);
        datagram
    }

    #[test]
    fn a_compound_packet_is_written_and_read() {
        let datagram = compound();
        assert!(is_rtcp(&datagram) && datagram.len() == 52 + 16 + 8);
        let packets: Vec<Packet<'_>> = Compound::read(&datagram).expect("valid").iter().collect();
        let [
            Packet::SenderReport { ssrc: 5, info, reports },
            Packet::SourceDescription(chunks),
            Packet::Bye(bye),
        ] = packets[..]
        else {
            panic!("{packets:?}")
        };
        assert_eq!((info.packets, reports.iter().collect::<Vec<_>>()), (9, alloc::vec![block()]));
        let chunk = chunks.iter().next().expect("one");
        assert_eq!((chunk.ssrc, chunk.item(CNAME), chunk.item(2)), (5, Some(&b"a@b"[..]), None));
        assert_eq!((bye.ssrcs().collect::<Vec<_>>(), bye.reason()), (alloc::vec![5], None));
        for count in 0..datagram.len() {
            let whole = [52, 68].contains(&count);
            assert_eq!(Compound::read(&datagram[..count]).is_ok(), whole, "{count}");
        }
    }

    #[test]
    fn each_violated_rule_is_named() {
        let report = [0x80, 201, 0, 1, 0, 0, 0, 5];
        let padded = [0xa0, 203, 0, 1, 0, 0, 0, 4];
        let join = |parts: &[&[u8]]| parts.concat();
        for (what, datagram, expected) in [
            ("a report alone", join(&[&report]), None),
            ("padding of the last packet", join(&[&report, &padded]), None),
            ("padding before the last", join(&[&report, &padded, &report]), Some(Malformed::Concatenation)),
            ("no report first", join(&[&[0x81, 203, 0, 1, 0, 0, 0, 5]]), Some(Malformed::Concatenation)),
            ("version 1", join(&[&[0x40, 201, 0, 1, 0, 0, 0, 5]]), Some(Malformed::Version)),
            (
                "a length beyond the end",
                join(&[&[0x80, 201, 0, 2, 0, 0, 0, 5]]),
                Some(Malformed::TotalLength),
            ),
            (
                "a block beyond the end",
                join(&[&[0x81, 201, 0, 1, 0, 0, 0, 5]]),
                Some(Malformed::ParameterLength),
            ),
            (
                "an item beyond the end",
                join(&[&report, &[0x81, 202, 0, 2, 0, 0, 0, 5, 1, 9, 0, 0]]),
                Some(Malformed::ParameterLength),
            ),
            (
                "a reason beyond the end",
                join(&[&report, &[0x81, 203, 0, 2, 0, 0, 0, 5, 9, 0, 0, 0]]),
                Some(Malformed::ParameterLength),
            ),
            ("no sources", join(&[&report, &[0x81, 203, 0, 0]]), Some(Malformed::ParameterLength)),
            ("nothing", Vec::new(), Some(Malformed::Truncated)),
        ] {
            assert_eq!(Compound::read(&datagram).err(), expected, "{what}");
        }
    }

    #[test]
    fn losses_are_a_signed_number_of_24_bits() {
        for (lost, read) in [(5, 5), (-5, -5), (0x80_0000, 0x7f_ffff), (-0x80_0001, -0x80_0000)] {
            let bytes = ReportBlock { lost, ..block() }.bytes();
            assert_eq!(ReportBlock::read(&bytes).lost, read);
            assert_eq!(ReportBlock::read(&bytes).fraction_lost, 64);
        }
    }
}
