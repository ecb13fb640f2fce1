//! Reads capture files down to TCP segments and RoCEv2 packets.
//!
//! Purpose          return every TCP segment and RoCEv2 packet of a pcap or pcapng file, with its number in
//!                  the file and its time.
//! Link layers      Ethernet with VLAN tags, raw IP, BSD loopback, Linux cooked (both versions).
//! Limits           only headers are read, so packets may be cut off after the TCP options, or the headers of
//!                  RoCEv2. At most [`SEGMENTS_MAX`] segments and packets are read, which need about 1 GB of
//!                  memory; times end [`SPAN_MAX`] after the first one.
//! Not implemented  tunnels; segments in IP fragments and behind IPv6 headers other than options and routing,
//!                  which are counted as skipped.

use crate::roce;
use kiban_base::Malformed;
use kiban_capture::{FileHeader, pcapng};
use kiban_tcpip::wire::{ip, ipv6_extension, tcp};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

/// Maximum number of segments that are read.
pub(crate) const SEGMENTS_MAX: usize = 2_000_000;
/// Maximum time from the first to the last segment, ns: two years. Later times, of a damaged file, count as
/// this one, so that sums of times do not overflow.
const SPAN_MAX: u64 = 1 << 56;

/// A TCP segment of a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captured {
    /// The number of its packet in the file, from 1, as in Wireshark.
    pub(crate) number: u32,
    /// Nanoseconds since the first segment.
    pub(crate) at: u64,
    pub(crate) source: SocketAddr,
    pub(crate) target: SocketAddr,
    pub(crate) header: tcp::Header,
    pub(crate) payload_bytes: u32,
    /// The identification of an IPv4 packet; 0 for IPv6.
    pub(crate) identification: u16,
}

/// The contents of a file.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) segments: Vec<Captured>,
    pub(crate) roce: Vec<roce::Captured>,
    /// RoCEv2 packets that are only counted.
    pub(crate) uncounted: roce::Uncounted,
    /// Packets that are neither TCP nor RoCEv2.
    pub(crate) other: BTreeMap<Other, u32>,
    /// Packets in the file.
    pub(crate) packets: u32,
    /// TCP and RoCEv2 packets that could not be read.
    pub(crate) skipped: u32,
    /// The link type of packets that were passed over because it is not supported.
    pub(crate) unsupported_link_type: Option<u32>,
    /// Why the rest of the file was not read.
    pub(crate) unread: Option<Unread>,
}

/// Why the end of a file was not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unread {
    /// It is damaged.
    Damaged(Malformed),
    /// It has more segments than the limit.
    TooMany(usize),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::Damaged(rule) => write!(f, "it is damaged or cut off there ({rule})"),
            Unread::TooMany(most) => write!(f, "it has more than {most} TCP segments and RoCEv2 packets"),
        }
    }
}

/// What a packet is, if it is neither TCP nor RoCEv2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Other {
    NotIp,
    Arp,
    /// The lower port.
    Udp(u16),
    /// The protocol number of IP.
    Ip(u8),
}

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Other::NotIp => f.write_str("not IP"),
            Other::Arp => f.write_str("ARP"),
            Other::Udp(443) => f.write_str("UDP port 443 (QUIC)"),
            Other::Udp(port) => write!(f, "UDP port {port}"),
            Other::Ip(1 | 58) => f.write_str("ICMP"),
            Other::Ip(17) => f.write_str("fragments of UDP"),
            Other::Ip(47) => f.write_str("GRE"),
            Other::Ip(50) => f.write_str("IPsec (ESP)"),
            Other::Ip(132) => f.write_str("SCTP"),
            Other::Ip(protocol) => write!(f, "IP protocol {protocol}"),
        }
    }
}

/// Reads a file, at most `most` segments.
///
/// # Errors
/// If it is neither pcap nor pcapng.
pub(crate) fn read(bytes: &[u8], most: usize) -> Result<Contents, Malformed> {
    let mut contents = Contents::default();
    if pcapng::is_pcapng(bytes) {
        let packets = pcapng::packets(bytes)?;
        contents.take_all(
            packets.map(|packet| packet.map(|packet| (packet.nanoseconds, packet.link_type, packet.data))),
            most,
        );
    } else {
        let (file, _) = FileHeader::read(bytes)?;
        let records = file.records(bytes);
        contents.take_all(
            records.map(|record| record.map(|(record, data)| (record.nanoseconds, file.link_type, data))),
            most,
        );
    }
    // Records of several interfaces may be slightly out of order.
    contents.segments.sort_by_key(|segment| segment.at);
    contents.roce.sort_by_key(|packet| packet.at);
    let first = contents.segments.first().map_or(0, |segment| segment.at);
    for segment in &mut contents.segments {
        segment.at = (segment.at - first).min(SPAN_MAX);
    }
    let first = contents.roce.first().map_or(0, |packet| packet.at);
    for packet in &mut contents.roce {
        packet.at = (packet.at - first).min(SPAN_MAX);
    }
    Ok(contents)
}

/// A packet: its time, its link type, and its data.
type Packet<'a> = Result<(u64, u32, &'a [u8]), Malformed>;

impl Contents {
    fn take_all<'a>(&mut self, packets: impl Iterator<Item = Packet<'a>>, most: usize) {
        for packet in packets {
            match packet {
                Ok(_) if self.segments.len() + self.roce.len() == most => {
                    self.unread = Some(Unread::TooMany(most));
                    return;
                }
                Ok((at, link_type, data)) => self.take(at, link_type, data),
                Err(rule) => self.unread = Some(Unread::Damaged(rule)),
            }
        }
    }

    fn take(&mut self, at: u64, link_type: u32, data: &[u8]) {
        self.packets += 1;
        let Some(packet) = network(link_type, data) else {
            self.unsupported_link_type = Some(link_type);
            return;
        };
        match segment(packet, self.packets, at) {
            Ok(Read::Segment(segment)) => self.segments.push(segment),
            Ok(Read::Roce(packet)) => {
                self.uncounted.take(&packet);
                self.roce.push(packet);
            }
            Ok(Read::Other(other)) => *self.other.entry(other).or_default() += 1,
            Err(_) => self.skipped += 1,
        }
    }
}

/// Returns the network packet in a frame: possibly not IP, or empty. `None` if the link layer is not
/// supported.
fn network(link_type: u32, data: &[u8]) -> Option<&[u8]> {
    const TAGS: [[u8; 2]; 3] = [[0x81, 0], [0x88, 0xa8], [0x91, 0]];
    let head = match link_type {
        // Ethernet. IEEE 802.1Q §9: each tag takes four bytes and is followed by another type.
        1 => {
            let mut head = 14;
            while data.get(head - 2..head).is_some_and(|kind| TAGS.iter().any(|tag| kind == tag)) {
                head += 4;
            }
            head
        }
        // BSD loopback, in either byte order: the address family.
        0 | 108 => 4,
        12 | 14 | 101 | 228 | 229 => 0,
        // Linux cooked, versions 1 and 2.
        113 => 16,
        276 => 20,
        _ => return None,
    };
    Some(data.get(head..).unwrap_or(&[]))
}

/// What is read of a packet.
enum Read {
    Segment(Captured),
    Roce(roce::Captured),
    Other(Other),
}

/// Returns the TCP segment or the RoCEv2 packet in a packet, or what else it is.
fn segment(packet: &[u8], number: u32, at: u64) -> Result<Read, Malformed> {
    if !matches!(ip::version(packet), Some(4 | 6)) {
        // RFC 826: Ethernet addresses for those of IPv4.
        let is_arp = packet.starts_with(&[0, 1, 8, 0]);
        return Ok(Read::Other(if is_arp { Other::Arp } else { Other::NotIp }));
    }
    let front = ip::Front::read(packet)?;
    let (mut protocol, mut head) = (front.protocol, front.header_bytes);
    // RFC 8200 §4: hop-by-hop options, routing and destination options.
    while ip::version(packet) == Some(6) && matches!(protocol, 0 | 43 | 60) {
        let header = packet.get(head..).ok_or(Malformed::Truncated)?;
        let length = ipv6_extension::length(header)?;
        (protocol, head) = (header[0], head + length);
    }
    let port = |at: usize| Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?));
    let ports = [port(head), port(head + 2)];
    let is_roce = protocol == 17 && ports[1] == Some(roce::PORT);
    if protocol != 6 && !is_roce {
        let udp = ports[0].min(ports[1]).filter(|_| protocol == 17 && !front.is_fragment);
        return Ok(Read::Other(udp.map_or(Other::Ip(protocol), Other::Udp)));
    }
    if front.is_fragment {
        return Err(Malformed::FragmentRange);
    }
    if is_roce {
        return roce::read(packet, &front, head, number, at).map(Read::Roce);
    }
    let (header, header_bytes) = tcp::Header::read(packet.get(head..).ok_or(Malformed::Truncated)?)?;
    let before = head - front.header_bytes + header_bytes;
    let identification = if front.source.is_ipv4() { u16::from_be_bytes([packet[4], packet[5]]) } else { 0 };
    Ok(Read::Segment(Captured {
        number,
        at,
        source: SocketAddr::new(front.source, header.source_port),
        target: SocketAddr::new(front.target, header.target_port),
        header,
        payload_bytes: front.payload_bytes.checked_sub(before).ok_or(Malformed::TotalLength)? as u32,
        identification,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_capture::{LINK_TYPE_RAW, RecordHeader};
    use kiban_tcpip::wire::ipv6;

    /// Returns an IPv6 packet with destination options, a TCP header and the first of 100 bytes of payload.
    fn packet() -> Vec<u8> {
        let header = tcp::Header {
            source_port: 1,
            target_port: 2,
            sequence: tcp::Sequence(3),
            acknowledgment: tcp::Sequence(4),
            flags: tcp::Flags::ACK,
            window: 5,
            urgent: 0,
            options: tcp::Options::NONE,
        };
        let outer = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_bytes: 128,
            next_header: 60,
            hop_limit: 9,
            source: "2001:db8::1".parse().unwrap(),
            target: "2001:db8::2".parse().unwrap(),
        };
        let mut bytes = vec![0; 40 + 8 + 20 + 1];
        outer.write(&mut bytes);
        bytes[40] = 6;
        header.write(&mut bytes[48..]);
        bytes
    }

    #[test]
    fn every_link_layer_is_removed() {
        let tagged = [&[0; 12][..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x86, 0xdd]].concat();
        let rows = [
            (1, vec![2; 14]),
            (1, tagged),
            (101, vec![]),
            (0, vec![0; 4]),
            (113, vec![0; 16]),
            (276, vec![0; 20]),
        ];
        for (link_type, head) in rows {
            let frame = [head, packet()].concat();
            let found = segment(network(link_type, &frame).expect("supported"), 1, 0);
            let Ok(Read::Segment(found)) = found else { panic!("a TCP segment") };
            assert_eq!(found.source, "[2001:db8::1]:1".parse().unwrap());
            assert_eq!((found.header.window, found.payload_bytes), (5, 100), "{link_type}");
        }
        assert_eq!(network(197, &[]), None);
    }

    #[test]
    fn packets_that_are_not_tcp_are_passed_over_and_damaged_ones_are_errors() {
        let arp = [&[0, 1, 8, 0][..], &[0; 24]].concat();
        let [mut udp, mut icmp] = [packet(), packet()];
        (udp[40], icmp[40]) = (17, 58);
        for (packet, words) in
            [(&[0; 40][..], "not IP"), (&arp, "ARP"), (&udp, "UDP port 1"), (&icmp, "ICMP")]
        {
            let Ok(Read::Other(other)) = segment(packet, 1, 0) else { panic!("{words}") };
            assert_eq!(other.to_string(), words);
        }
        assert!(segment(&packet()[..60], 1, 0).is_err());
    }

    /// Returns a file with a packet at each of these times, seconds.
    fn file(link_type: u32, times: &[u64]) -> Vec<u8> {
        let header = FileHeader::new(link_type);
        let mut file = Vec::new();
        header.write(&mut file);
        let data = packet();
        for time in times {
            let bytes = data.len() as u32;
            let nanoseconds = time * 1_000_000_000;
            RecordHeader { nanoseconds, captured_bytes: bytes, original_bytes: bytes }
                .write(&header, &mut file);
            file.extend(&data);
        }
        file
    }

    #[test]
    fn times_begin_with_the_first_segment_and_have_a_limit() {
        let contents = read(&file(LINK_TYPE_RAW, &[7, 0, 4_000_000_000]), 3).expect("a capture");
        let times: Vec<u64> = contents.segments.iter().map(|segment| segment.at).collect();
        assert_eq!(times, [0, 7_000_000_000, SPAN_MAX]);
        assert_eq!((contents.packets, contents.unread), (3, None));
    }

    #[test]
    fn what_is_beyond_a_limit_is_reported() {
        let whole = file(LINK_TYPE_RAW, &[1, 2, 3]);
        let contents = read(&whole, 2).expect("a capture");
        assert_eq!((contents.segments.len(), contents.unread), (2, Some(Unread::TooMany(2))));
        let contents = read(&whole[..whole.len() - 1], 3).expect("a capture");
        let damaged = Unread::Damaged(Malformed::RecordLength);
        assert_eq!((contents.segments.len(), contents.unread), (2, Some(damaged)));
        let contents = read(&file(127, &[1]), 3).expect("a capture");
        assert_eq!((contents.segments.len(), contents.unsupported_link_type), (0, Some(127)));
    }
}
