//! Reads RoCEv2 packets of a capture, which may be cut off after their headers.

use kiban_base::Malformed;
use kiban_rdma::wire::roce::cm::{Message, mtu_bytes};
use kiban_rdma::wire::roce::icrc::Icrc;
use kiban_rdma::wire::roce::{
    Aeth, BTH_BYTES, GSI_QPN, ICRC_BYTES, MAD_BYTES, MadHeader, Opcode, Operation, Packet, Service,
};
use kiban_tcpip::wire::ip;
use std::net::{IpAddr, SocketAddr};

pub(crate) use kiban_rdma::wire::roce::PORT;

/// More than the bytes of all headers of a packet: what follows is only counted.
const HEADERS_MAX: usize = 128;
const UDP_BYTES: usize = 8;

/// What a packet does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A request or a response of a reliable connection.
    Transport(Operation),
    /// An acknowledgement between kiban's ends that says which packets have arrived.
    SelectiveAck,
    /// A congestion notification.
    Cnp,
    /// A message of communication management.
    Management(Option<Cm>),
    /// A datagram (UD).
    Datagram,
    /// A packet of an unreliable connection (UC).
    Unreliable,
    /// Another opcode.
    Unknown,
}

/// What a message of communication management says of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cm {
    Request { id: u32, qpn: u32, path_mtu: Option<u32> },
    Reply { id: u32, request: u32, qpn: u32 },
    Ready { id: u32, reply: u32 },
}

/// A RoCEv2 packet of a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captured {
    /// The number of the packet in the file, from 1, as in Wireshark.
    pub(crate) number: u32,
    /// Nanoseconds since the first packet.
    pub(crate) at: u64,
    pub(crate) source: IpAddr,
    pub(crate) target: IpAddr,
    pub(crate) kind: Kind,
    /// The destination queue pair.
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) aeth: Option<Aeth>,
    /// The length of a whole Read or Write.
    pub(crate) dma_bytes: Option<u32>,
    /// Payload, without pad.
    pub(crate) bytes: u32,
    /// Congestion experienced (RFC 3168 §5).
    pub(crate) is_marked: bool,
    /// Whether the ICRC is wrong. `None`: the packet is cut off, or the ICRC covers what is not known.
    pub(crate) is_damaged: Option<bool>,
}

/// Reads the packet in an IP packet whose UDP header, with RoCEv2's port, begins at `head`.
///
/// # Errors
/// If it is malformed or cut off before the end of its headers.
pub(crate) fn read(
    packet: &[u8],
    front: &ip::Front,
    head: usize,
    number: u32,
    at: u64,
) -> Result<Captured, Malformed> {
    // UDP's own decoder takes whole datagrams only.
    let datagram = packet.get(head..).ok_or(Malformed::Truncated)?;
    let (udp, data) = datagram.split_first_chunk::<UDP_BYTES>().ok_or(Malformed::Truncated)?;
    let source_port = u16::from_be_bytes([udp[0], udp[1]]);
    let total = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
    let whole = total.checked_sub(UDP_BYTES).ok_or(Malformed::TotalLength)?;
    if head - front.header_bytes + total > front.payload_bytes {
        return Err(Malformed::TotalLength);
    }
    let data = &data[..data.len().min(whole)];
    // The decoder wants a whole packet: what was cut off counts as zeros, and a long payload as a short one.
    let left_out = if whole > 2 * HEADERS_MAX { (whole - HEADERS_MAX) & !3 } else { 0 };
    let mut room = [0; 2 * HEADERS_MAX];
    let kept = &mut room[..whole - left_out];
    let known = data.len().min(kept.len());
    kept[..known].copy_from_slice(&data[..known]);
    let mut captured = Captured {
        number,
        at,
        source: front.source,
        target: front.target,
        kind: Kind::Unknown,
        qpn: 0,
        psn: 0,
        aeth: None,
        dma_bytes: None,
        bytes: 0,
        is_marked: ecn(packet) == 3,
        is_damaged: icrc(packet, front, head, source_port, data, whole),
    };
    let (decoded, payload) = match Packet::read(kept) {
        Ok(decoded) => decoded,
        Err(Malformed::Operation) if data.len() >= BTH_BYTES => return Ok(captured),
        Err(rule) => return Err(rule),
    };
    if data.len() < decoded.length() {
        return Err(Malformed::Truncated);
    }
    let bth = decoded.bth;
    (captured.qpn, captured.psn) = (bth.destination, bth.psn);
    (captured.aeth, captured.dma_bytes) = (decoded.aeth, decoded.reth.map(|reth| reth.length));
    captured.bytes = (payload.len() + left_out) as u32;
    captured.kind = match bth.opcode {
        Opcode::Cnp => Kind::Cnp,
        Opcode::SelectiveAck => Kind::SelectiveAck,
        Opcode::Transport(Service::Rc | Service::Xrc, operation) => Kind::Transport(operation),
        Opcode::Transport(Service::Uc, _) => Kind::Unreliable,
        Opcode::Transport(Service::Ud, _) if bth.destination == GSI_QPN => {
            let begin = decoded.length();
            Kind::Management(data.get(begin..).and_then(|mad| management(mad, captured.bytes as usize)))
        }
        Opcode::Transport(Service::Ud, _) => Kind::Datagram,
    };
    Ok(captured)
}

/// Returns the ECN field of an IP packet.
fn ecn(packet: &[u8]) -> u8 {
    match packet {
        [first, second, ..] if first >> 4 == 6 => second >> 4 & 3,
        [_, second, ..] => second & 3,
        _ => 0,
    }
}

/// Returns whether the ICRC is wrong, if the packet was captured as a whole.
fn icrc(
    packet: &[u8],
    front: &ip::Front,
    head: usize,
    source_port: u16,
    data: &[u8],
    whole: usize,
) -> Option<bool> {
    const DONT_FRAGMENT: [u8; 2] = [0x40, 0];
    if data.len() < whole || whole < BTH_BYTES + ICRC_BYTES || head != front.header_bytes {
        return None;
    }
    let identification = match packet {
        // The ICRC covers the IPv4 header, of which `Icrc` knows the usual form.
        [0x45, _, _, _, high, low, flags @ ..] if flags.starts_with(&DONT_FRAGMENT) => {
            u16::from_be_bytes([*high, *low])
        }
        [first, ..] if first >> 4 == 6 => 0,
        _ => return None,
    };
    let [source, target] = [(front.source, source_port), (front.target, PORT)].map(SocketAddr::from);
    let mut icrc = Icrc::new(source, target, whole, identification);
    let (covered, received) = data.split_at(whole - ICRC_BYTES);
    icrc.headers(covered);
    Some(icrc.octets() != *received)
}

/// Returns what a MAD of `whole` bytes says, of which this front was captured.
fn management(front: &[u8], whole: usize) -> Option<Cm> {
    // IBTA volume 1 §12.6: where a REQ's queue pair and path MTU end, and a REP's queue pair.
    const REQUEST_QPN: usize = MadHeader::BYTES + 35;
    const REQUEST_MTU: usize = MadHeader::BYTES + 51;
    const REPLY_QPN: usize = MadHeader::BYTES + 15;
    let known = front.len().min(whole).min(MAD_BYTES);
    let mut mad = [0; MAD_BYTES];
    mad[..known].copy_from_slice(&front[..known]);
    match Message::read(&mad).ok()?.1 {
        Message::Req(request) if known >= REQUEST_QPN => Some(Cm::Request {
            id: request.local_comm_id,
            qpn: request.qpn,
            path_mtu: mtu_bytes(request.mtu).filter(|_| known >= REQUEST_MTU).map(|bytes| bytes as u32),
        }),
        Message::Rep(reply) if known >= REPLY_QPN => {
            // Annex A14: an XRC target is in the field of the EE context.
            let qpn = if reply.qpn == 0 { reply.ee_context } else { reply.qpn };
            Some(Cm::Reply { id: reply.local_comm_id, request: reply.remote_comm_id, qpn })
        }
        Message::Rtu(ready) => Some(Cm::Ready { id: ready.local_comm_id, reply: ready.remote_comm_id }),
        _ => None,
    }
}
