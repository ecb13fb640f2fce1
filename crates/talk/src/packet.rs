//! Builds packets from a script's descriptions, and describes packets in the notation of scripts.
//!
//! TCP options are encoded and decoded here rather than by the TCP/IP crate, because a script may contain any
//! options in any order, valid or not, and because a second decoder checks the board's output independently.

use crate::script::{
    Content, Cookie, IpFields, Message, Number, Packet, Quote, Segment, TcpOption, UNREACHABLE,
};
use crate::side::Connection;
use kiban_base::Sum;
use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_tcpip::wire::ip::version;
use kiban_tcpip::wire::tcp::{Flags, HEADER_BYTES};
use kiban_tcpip::wire::{icmp, icmpv6, ipv4, ipv6, udp};
use std::net::IpAddr;

/// The fill byte of payload that must never be delivered.
const EVIL: u8 = 0xee;

/// The protocol number of the IPv6 fragment header (RFC 8200 §4.5), and its length.
const FRAGMENT: u8 = 44;
const FRAGMENT_BYTES: usize = 8;

/// Returns an IP packet that carries `payload`.
pub(crate) fn ip(source: IpAddr, target: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    ip_with(source, target, protocol, payload, IpFields::default())
}

fn ip_with(source: IpAddr, target: IpAddr, protocol: u8, payload: &[u8], ip_fields: IpFields) -> Vec<u8> {
    let mut packet;
    let traffic_class = ip_fields.traffic_class.unwrap_or(0);
    let hops = ip_fields.time_to_live.unwrap_or(64);
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            packet = vec![0; ipv4::HEADER_BYTES];
            ipv4::Header {
                traffic_class,
                total_bytes: (ipv4::HEADER_BYTES + payload.len()) as u16,
                identification: 7,
                dont_fragment: ip_fields.dont_fragment.unwrap_or(true),
                more_fragments: false,
                fragment_offset_bytes: 0,
                time_to_live: hops,
                protocol,
                source,
                target,
                options: &[],
            }
            .write(&mut packet);
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            packet = vec![0; ipv6::HEADER_BYTES];
            ipv6::Header {
                traffic_class,
                flow_label: 0,
                payload_bytes: payload.len() as u16,
                next_header: protocol,
                hop_limit: hops,
                source,
                target,
            }
            .write(&mut packet);
        }
        _ => unreachable!("a script has addresses of one family"),
    }
    packet.extend_from_slice(payload);
    packet
}

/// Splits an IP packet into fragments of `by` bytes of payload, as a router (IPv4) or the sender (IPv6) does.
pub(crate) fn cut(packet: &[u8], by: usize) -> Vec<Vec<u8>> {
    let is_six = version(packet) == Some(6);
    let (header, payload) = packet.split_at(if is_six { ipv6::HEADER_BYTES } else { ipv4::HEADER_BYTES });
    let pieces = payload.chunks(by).enumerate();
    pieces
        .map(|(index, piece)| {
            let more = (index + 1) * by < payload.len();
            let mut fragment = header.to_vec();
            if is_six {
                let length = (FRAGMENT_BYTES + piece.len()) as u16;
                fragment[4..6].copy_from_slice(&length.to_be_bytes());
                let next_header = std::mem::replace(&mut fragment[6], FRAGMENT);
                let place = (index * by) as u16 | u16::from(more);
                fragment.extend([next_header, 0]);
                fragment.extend(place.to_be_bytes());
                fragment.extend([0, 0, 0, 7]);
            } else {
                let length = (header.len() + piece.len()) as u16;
                fragment[2..4].copy_from_slice(&length.to_be_bytes());
                let place = (index * by / 8) as u16 | u16::from(more) << 13;
                fragment[6..8].copy_from_slice(&place.to_be_bytes());
                fragment[10..12].fill(0);
                let sum = Sum::of(&fragment).checksum();
                fragment[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            fragment.extend(piece);
            fragment
        })
        .collect()
}

/// Returns the bytes of a segment from the peer; all of its fields must be set.
pub(crate) fn segment(connection: &Connection, local: IpAddr, said: &Segment) -> Vec<u8> {
    let mut options = Vec::new();
    for option in said.options.iter().flatten() {
        write_option(connection, option, &mut options);
    }
    options.resize(options.len().next_multiple_of(4), 1);
    let (Number::Is(sequence), acknowledgment) = (said.sequence, said.acknowledgment) else {
        unreachable!("the segment was completed")
    };
    let acknowledgment = match acknowledgment {
        Number::Is(place) => connection.board.absolute(place),
        _ => 0,
    };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + options.len() + said.bytes);
    bytes.extend(connection.remote.port().to_be_bytes());
    bytes.extend(connection.local_port.unwrap_or(0).to_be_bytes());
    bytes.extend(connection.peer.absolute(sequence).to_be_bytes());
    bytes.extend(acknowledgment.to_be_bytes());
    bytes.push((((HEADER_BYTES + options.len()) / 4) as u8) << 4);
    bytes.push(said.flags.0);
    bytes.extend(said.window.unwrap_or(0).to_be_bytes());
    bytes.extend([0; 2]);
    bytes.extend(said.urgent.unwrap_or(0).to_be_bytes());
    bytes.extend(options);
    let first = sequence + i64::from(said.flags.has(Flags::SYN));
    match &said.content {
        Content::Stream => {
            bytes.extend((first..first + said.bytes as i64).map(|place| connection.peer_byte(place)));
        }
        Content::Evil => bytes.extend(std::iter::repeat_n(EVIL, said.bytes)),
        Content::Literal(literal) => bytes.extend(literal),
    }
    let sum =
        checksum::pseudo(connection.remote.ip(), local, protocol::TCP, bytes.len()).plus(Sum::of(&bytes));
    let checksum = sum.checksum() ^ u16::from(said.wrong_sum);
    bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
    ip_with(connection.remote.ip(), local, protocol::TCP, &bytes, said.ip_fields)
}

/// Returns a UDP datagram from the peer, with its IP header.
pub(crate) fn datagram(connection: &Connection, local: IpAddr, count: usize, wrong_sum: bool) -> Vec<u8> {
    let mut bytes = vec![0; udp::HEADER_BYTES];
    let total_bytes = (udp::HEADER_BYTES + count) as u16;
    let (source_port, target_port) = (connection.remote.port(), connection.local_port.unwrap_or(80));
    udp::Header { source_port, target_port, total_bytes }.write(&mut bytes);
    bytes.extend(Connection::datagram(count, false));
    let remote = connection.remote.ip();
    let sum = checksum::pseudo(remote, local, protocol::UDP, bytes.len()).plus(Sum::of(&bytes));
    // RFC 768: a checksum of zero would mean "no checksum".
    let checksum = match sum.checksum() ^ u16::from(wrong_sum) {
        0 => 0xffff,
        other => other,
    };
    bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
    ip(remote, local, protocol::UDP, &bytes)
}

/// Returns the ports and the payload of a datagram from the board.
pub(crate) fn open_udp<'a>(opened: &Opened<'a>) -> Result<(u16, u16, &'a [u8]), &'static str> {
    let (header, length) = udp::Header::read(opened.payload).map_err(|_| "its UDP header is wrong")?;
    let whole = opened.payload.get(..header.total_bytes.into()).ok_or("its UDP length is wrong")?;
    let pseudo = checksum::pseudo(opened.source, opened.target, protocol::UDP, whole.len());
    if !pseudo.plus(Sum::of(whole)).is_intact() {
        return Err("its UDP checksum is wrong");
    }
    Ok((header.source_port, header.target_port, &whole[length..]))
}

fn write_option(connection: &Connection, option: &TcpOption, to: &mut Vec<u8>) {
    let number = |number: &Number| match number {
        Number::Is(number) => *number,
        _ => 0,
    };
    match option {
        TcpOption::Mss(mss) => to.extend([2, 4, (mss >> 8) as u8, *mss as u8]),
        TcpOption::SackPermitted => to.extend([4, 2]),
        TcpOption::Shift(shift) => to.extend([3, 3, *shift]),
        TcpOption::Timestamps { value, echo } => {
            to.extend([8, 10]);
            to.extend(connection.peer.stamp(number(value)).to_be_bytes());
            let echo = match echo {
                Number::Is(echo) => connection.board.stamp(*echo),
                _ => 0,
            };
            to.extend(echo.to_be_bytes());
        }
        TcpOption::FastOpen(cookie) => {
            let bytes = match cookie {
                Cookie::Is(bytes) => bytes.as_slice(),
                Cookie::Request | Cookie::Granted => &[],
            };
            to.extend([34, (2 + bytes.len()) as u8]);
            to.extend(bytes);
        }
        TcpOption::Sack(blocks) => {
            to.extend([5, (2 + 8 * blocks.len()) as u8]);
            for (left, right) in blocks {
                to.extend(connection.board.absolute(*left).to_be_bytes());
                to.extend(connection.board.absolute(*right).to_be_bytes());
            }
        }
        TcpOption::Raw(bytes) => to.extend(bytes),
    }
}

/// Returns an ICMP message from the peer or a router as an IP packet.
pub(crate) fn message(
    connection: &Connection,
    local: IpAddr,
    message: &Message,
    quoting: Option<Quote>,
) -> Vec<u8> {
    let remote = connection.remote.ip();
    let mut rest = Vec::new();
    if let Message::EchoRequest { bytes } | Message::EchoReply { bytes } = message {
        rest.resize(*bytes, 0x42);
    }
    if let Some(Quote { sequence, bytes }) = quoting {
        let mut quoted = Vec::new();
        quoted.extend(connection.local_port.unwrap_or(0).to_be_bytes());
        quoted.extend(connection.remote.port().to_be_bytes());
        quoted.extend(connection.board.absolute(sequence).to_be_bytes());
        // The quoted IP header keeps the length of the whole segment, although only eight bytes of the
        // segment follow (RFC 792).
        let kept = quoted.len();
        quoted.resize(HEADER_BYTES + bytes, 0);
        rest = ip(local, remote, protocol::TCP, &quoted);
        rest.truncate(rest.len() - quoted.len() + kept);
    }
    let code = |six: bool| match message {
        Message::Unreachable(what) => UNREACHABLE
            .iter()
            .find(|(name, _, _)| name == what)
            .map_or(0, |(_, code, code6)| if six { *code6 } else { *code }),
        _ => 0,
    };
    if local.is_ipv4() {
        let header = match *message {
            Message::EchoRequest { .. } => icmp::Header::EchoRequest { identifier: 1, sequence: 1 },
            Message::EchoReply { .. } => icmp::Header::EchoReply { identifier: 1, sequence: 1 },
            Message::Unreachable(_) => icmp::Header::Unreachable { code: code(false), next_hop_mtu: 0 },
            Message::TooLong { mtu } => {
                icmp::Header::Unreachable { code: icmp::UNREACHABLE_TOO_LONG, next_hop_mtu: mtu as u16 }
            }
            Message::TimeExceeded => icmp::Header::TimeExceeded { code: 0 },
            Message::ParameterProblem => icmp::Header::ParameterProblem { code: 0, pointer: 0 },
            Message::SourceQuench => icmp::Header::Other { kind: 4, code: 0, rest: [0; 4] },
        };
        let mut bytes = vec![0; icmp::HEADER_BYTES];
        header.write(&mut bytes);
        icmp::fill(&mut bytes, Sum::of(&rest));
        bytes.extend(rest);
        ip(remote, local, protocol::ICMP, &bytes)
    } else {
        let header = match *message {
            Message::EchoRequest { .. } => icmpv6::Header::EchoRequest { identifier: 1, sequence: 1 },
            Message::EchoReply { .. } => icmpv6::Header::EchoReply { identifier: 1, sequence: 1 },
            Message::Unreachable(_) => icmpv6::Header::Unreachable { code: code(true) },
            Message::TooLong { mtu } => icmpv6::Header::TooLong { mtu },
            Message::TimeExceeded => icmpv6::Header::TimeExceeded { code: 0 },
            Message::ParameterProblem => icmpv6::Header::ParameterProblem { code: 0, pointer: 0 },
            // IPv6 has no such message, so send an unassigned type.
            Message::SourceQuench => icmpv6::Header::Other { kind: 100, code: 0, rest: [0; 4] },
        };
        let mut bytes = vec![0; icmpv6::HEADER_BYTES];
        header.write(&mut bytes);
        let length = bytes.len() + rest.len();
        let pseudo = checksum::pseudo(remote, local, protocol::ICMPV6, length);
        icmpv6::fill(&mut bytes, pseudo.plus(Sum::of(&rest)));
        bytes.extend(rest);
        ip(remote, local, protocol::ICMPV6, &bytes)
    }
}

/// A decoded packet from the board.
pub(crate) struct Opened<'a> {
    pub(crate) source: IpAddr,
    pub(crate) target: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) payload: &'a [u8],
    pub(crate) ip_fields: IpFields,
    /// The fragment offset, and whether more fragments follow; `None` if the packet is not a fragment.
    pub(crate) fragment: Option<(usize, bool)>,
}

/// Decodes an IP packet from the board.
pub(crate) fn open(packet: &[u8]) -> Result<Opened<'_>, &'static str> {
    if version(packet) == Some(6) {
        let (header, length) = ipv6::Header::read(packet).map_err(|_| "its IPv6 header is wrong")?;
        if usize::from(header.payload_bytes) + length != packet.len() {
            return Err("its IPv6 length is wrong");
        }
        let (mut protocol, mut payload, mut fragment) = (header.next_header, &packet[length..], None);
        if protocol == FRAGMENT {
            let &[next_header, _, high, low, ..] = payload else {
                return Err("its fragment header is truncated");
            };
            let place = u16::from_be_bytes([high, low]);
            fragment = Some((usize::from(place & !7), place & 1 == 1));
            protocol = next_header;
            payload = payload.get(FRAGMENT_BYTES..).ok_or("its fragment header is truncated")?;
        }
        return Ok(Opened {
            source: header.source.into(),
            target: header.target.into(),
            protocol,
            payload,
            ip_fields: IpFields {
                time_to_live: Some(header.hop_limit),
                dont_fragment: None,
                traffic_class: Some(header.traffic_class),
            },
            fragment,
        });
    }
    let (header, length) = ipv4::Header::read(packet).map_err(|_| "its IPv4 header is wrong")?;
    if ipv4::verify(&packet[..length]).is_err() {
        return Err("its IPv4 checksum is wrong");
    }
    if usize::from(header.total_bytes) != packet.len() {
        return Err("its IPv4 length is wrong");
    }
    Ok(Opened {
        source: header.source.into(),
        target: header.target.into(),
        protocol: header.protocol,
        payload: &packet[length..],
        ip_fields: IpFields {
            time_to_live: Some(header.time_to_live),
            dont_fragment: Some(header.dont_fragment),
            traffic_class: Some(header.traffic_class),
        },
        fragment: (header.more_fragments || header.fragment_offset_bytes > 0)
            .then_some((usize::from(header.fragment_offset_bytes), header.more_fragments)),
    })
}

/// A TCP segment from the board, with absolute sequence numbers.
pub(crate) struct Raw<'a> {
    pub(crate) source_port: u16,
    pub(crate) target_port: u16,
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: &'a [u8],
    pub(crate) payload: &'a [u8],
}

/// Decodes a TCP segment from the board.
pub(crate) fn open_tcp<'a>(opened: &Opened<'a>) -> Result<Raw<'a>, &'static str> {
    let bytes = opened.payload;
    if bytes.len() < HEADER_BYTES {
        return Err("its TCP header is truncated");
    }
    let sum = checksum::pseudo(opened.source, opened.target, protocol::TCP, bytes.len()).plus(Sum::of(bytes));
    if !sum.is_intact() {
        return Err("its TCP checksum is wrong");
    }
    let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
    let header_bytes = usize::from(bytes[12] >> 4) * 4;
    if header_bytes < HEADER_BYTES || header_bytes > bytes.len() {
        return Err("its TCP header length is wrong");
    }
    if bytes[12] & 0x0f != 0 {
        return Err("its reserved bits are not zero");
    }
    Ok(Raw {
        source_port: half(0),
        target_port: half(2),
        sequence: word(4),
        acknowledgment: word(8),
        flags: Flags(bytes[13]),
        window: half(14),
        urgent: half(18),
        options: &bytes[HEADER_BYTES..header_bytes],
        payload: &bytes[header_bytes..],
    })
}

/// Describes a segment in the notation of scripts.
pub(crate) fn in_words(raw: &Raw<'_>, connection: &Connection) -> Segment {
    let acknowledges = raw.flags.has(Flags::ACK);
    Segment {
        flags: raw.flags,
        sequence: Number::Is(connection.board.relative(raw.sequence)),
        bytes: raw.payload.len(),
        acknowledgment: if acknowledges {
            Number::Is(connection.peer.relative(raw.acknowledgment))
        } else {
            Number::Absent
        },
        window: Some(raw.window),
        urgent: raw.flags.has(Flags::URG).then_some(raw.urgent),
        options: Some(read_options(raw.options, connection)),
        ..Segment::default()
    }
}

/// Returns the timestamp value among options.
pub(crate) fn stamp_in(mut options: &[u8]) -> Option<u32> {
    while let Some((kind, _, rest)) = cut_option(options) {
        if kind == 8 {
            return options
                .get(2..6)
                .map(|value| u32::from_be_bytes([value[0], value[1], value[2], value[3]]));
        }
        options = rest;
    }
    None
}

/// Returns the first option that is not padding, as kind, value, and the remaining options. Advances
/// `options` to the option's kind.
fn cut_option(options: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    match options {
        [] | [0, ..] => None,
        [1, rest @ ..] => Some((1, &[], rest)),
        [kind, length, ..] => {
            let length = usize::from(*length).max(2).min(options.len());
            Some((*kind, &options[2..length], &options[length..]))
        }
        [_] => Some((options[0], &[], &[])),
    }
}

fn read_options(mut bytes: &[u8], connection: &Connection) -> Vec<TcpOption> {
    let mut options = Vec::new();
    let word = |at: &[u8]| u32::from_be_bytes([at[0], at[1], at[2], at[3]]);
    while let Some((kind, value, rest)) = cut_option(bytes) {
        let whole = &bytes[..bytes.len() - rest.len()];
        match (kind, value.len()) {
            (1, _) => {}
            (2, 2) => options.push(TcpOption::Mss(u16::from_be_bytes([value[0], value[1]]))),
            (3, 1) => options.push(TcpOption::Shift(value[0])),
            (4, 0) => options.push(TcpOption::SackPermitted),
            (5, length) if length > 0 && length.is_multiple_of(8) => options.push(TcpOption::Sack(
                value
                    .chunks(8)
                    .map(|block| {
                        (connection.peer.relative(word(block)), connection.peer.relative(word(&block[4..])))
                    })
                    .collect(),
            )),
            (8, 8) => options.push(TcpOption::Timestamps {
                value: Number::Is(connection.board.relative_stamp(word(value))),
                echo: Number::Is(connection.peer.relative_stamp(word(&value[4..]))),
            }),
            (34, 0) => options.push(TcpOption::FastOpen(Cookie::Request)),
            (34, _) => options.push(TcpOption::FastOpen(Cookie::Is(value.to_vec()))),
            _ => options.push(TcpOption::Raw(whole.to_vec())),
        }
        bytes = rest;
    }
    options
}

/// Describes a packet that is not TCP in the notation of scripts.
pub(crate) fn other_in_words(opened: &Opened<'_>) -> Packet {
    if let Some((begin, more)) = opened.fragment {
        return Packet::Fragment { begin, end: begin + opened.payload.len(), more };
    }
    let unknown = || Packet::Payload { protocol: opened.protocol, bytes: opened.payload.to_vec() };
    let name = |code: u8, six: bool| {
        UNREACHABLE
            .iter()
            .find(|(_, four, other)| code == if six { *other } else { *four })
            .map(|(name, _, _)| *name)
    };
    let rest = opened.payload.len().saturating_sub(icmp::HEADER_BYTES);
    let message = match opened.protocol {
        protocol::ICMP => match icmp::Header::read(opened.payload) {
            Ok((icmp::Header::EchoRequest { .. }, _)) => Some(Message::EchoRequest { bytes: rest }),
            Ok((icmp::Header::EchoReply { .. }, _)) => Some(Message::EchoReply { bytes: rest }),
            Ok((icmp::Header::Unreachable { code, .. }, _)) => name(code, false).map(Message::Unreachable),
            Ok((icmp::Header::TimeExceeded { .. }, _)) => Some(Message::TimeExceeded),
            Ok((icmp::Header::ParameterProblem { .. }, _)) => Some(Message::ParameterProblem),
            _ => None,
        },
        protocol::ICMPV6 => match icmpv6::Header::read(opened.payload) {
            Ok((icmpv6::Header::EchoRequest { .. }, _)) => Some(Message::EchoRequest { bytes: rest }),
            Ok((icmpv6::Header::EchoReply { .. }, _)) => Some(Message::EchoReply { bytes: rest }),
            Ok((icmpv6::Header::Unreachable { code }, _)) => name(code, true).map(Message::Unreachable),
            Ok((icmpv6::Header::TimeExceeded { .. }, _)) => Some(Message::TimeExceeded),
            Ok((icmpv6::Header::ParameterProblem { .. }, _)) => Some(Message::ParameterProblem),
            _ => None,
        },
        _ => None,
    };
    message.map_or_else(unknown, |message| Packet::Icmp { message, quoting: None })
}
