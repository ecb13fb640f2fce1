//! ICMP for IPv4: echo, and errors that are reported (RFC 792, RFC 1122 §3.2.2).
//!
//! Goal      answer pings, send pings, say that a port is closed.
//! Up        an echo request is turned round in its own PDU: no byte of its payload moves. A reply to one of ours goes
//!           up. Errors from others are counted and go up as they are.
//! Limits    errors that we send are rationed: [`ERRORS_PER_SECOND`], so that a flood makes no flood.
//! Left out  (next) what TCP and UDP do about errors; redirects and router messages are counted and ignored.

use alloc::collections::VecDeque;
use core::net::IpAddr;
use kiban_ground::{Context, Instant, Pdu, Sum};
use kiban_wire::checksum;
use kiban_wire::icmp::{self, Header};

/// Errors that we send in one second, at most (RFC 1812 §4.3.2.8 asks for some such bound).
pub const ERRORS_PER_SECOND: u32 = 100;
/// Bytes of a packet that an error quotes: its IP header and 8 bytes of what follows (RFC 792).
const QUOTE_BYTES: usize = 28;

kiban_ground::counters! {
    /// What happened in ICMP.
    pub struct IcmpCounters {
        /// Messages that arrived.
        messages_in,
        /// Messages too short or otherwise wrong.
        malformed,
        /// Messages whose checksum does not match.
        checksum_wrong,
        /// Echo requests answered.
        echoes_answered,
        /// Echo replies to requests of ours.
        replies_in,
        /// Errors that others reported.
        errors_in,
        /// Errors that we reported.
        errors_out,
        /// Errors that we did not report, to make no flood.
        errors_withheld,
        /// Messages of other kinds.
        others_in,
        /// Requests that found no memory.
        starved,
    }
}

/// What comes up to the host's edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indication {
    /// The answer to a ping.
    EchoReply {
        /// Who answered.
        source: IpAddr,
        /// As in the request.
        identifier: u16,
        /// As in the request.
        sequence: u16,
        /// Payload bytes that came back.
        bytes: usize,
    },
}

/// A message on its way to IP.
#[derive(Debug)]
pub struct Message {
    /// The address it comes from.
    pub source: IpAddr,
    /// The address it goes to.
    pub target: IpAddr,
    /// Header and payload.
    pub pdu: Pdu,
}

/// ICMP for one board.
#[derive(Default)]
pub struct Icmp {
    counters: IcmpCounters,
    ration: u32,
    ration_since: Instant,
}

impl Icmp {
    /// What has been counted.
    pub fn counters(&self) -> &IcmpCounters {
        &self.counters
    }

    /// An echo request with the payload that `pdu` carries.
    pub fn ping(
        &mut self,
        source: IpAddr,
        target: IpAddr,
        identifier: u16,
        sequence: u16,
        mut pdu: Pdu,
    ) -> Message {
        let rest = pdu.body_sum();
        let header = pdu.push_head(icmp::HEADER_BYTES);
        Header::EchoRequest { identifier, sequence }.write(header);
        icmp::fill(header, rest);
        Message { source, target, pdu }
    }

    /// A datagram for a port where nobody is: the packet, from its IP header on, is quoted back to its sender.
    /// `quoted` holds the first bytes of the packet.
    pub fn port_unreachable(
        &mut self,
        source: IpAddr,
        target: IpAddr,
        quoted: &[u8],
        cx: &mut Context<'_>,
        down: &mut VecDeque<Message>,
    ) {
        if cx.now.since(self.ration_since).as_secs() >= 1 {
            self.ration_since = cx.now;
            self.ration = 0;
        }
        if self.ration >= ERRORS_PER_SECOND {
            self.counters.errors_withheld += 1;
            return;
        }
        let Some(mut pdu) = cx.memory.blocks.take() else {
            self.counters.starved += 1;
            return;
        };
        self.ration += 1;
        self.counters.errors_out += 1;
        let quoted = &quoted[..quoted.len().min(QUOTE_BYTES)];
        pdu.push_head(quoted.len()).copy_from_slice(quoted);
        let rest = Sum::of(quoted);
        let header = pdu.push_head(icmp::HEADER_BYTES);
        Header::Unreachable { code: icmp::UNREACHABLE_PORT, next_hop_mtu: 0 }.write(header);
        icmp::fill(header, rest);
        down.push_back(Message { source, target, pdu });
    }

    /// A message has arrived: the header stands at the front of the head.
    pub fn arrive(
        &mut self,
        source: IpAddr,
        target: IpAddr,
        mut pdu: Pdu,
        cx: &mut Context<'_>,
        up: &mut VecDeque<Indication>,
        down: &mut VecDeque<Message>,
    ) {
        self.counters.messages_in += 1;
        let Some(moved) = pdu.pull_up(icmp::HEADER_BYTES) else {
            self.counters.malformed += 1;
            return;
        };
        cx.copies.header_bytes += moved as u64;
        let head = pdu.head();
        // The head may hold payload too; headers are of even length, so the runs add.
        let after = &head[icmp::HEADER_BYTES..];
        let rest = checksum::of_header(after).then(after.len(), pdu.body_sum());
        if icmp::verify(head, rest).is_err() {
            self.counters.checksum_wrong += 1;
            return;
        }
        let Ok((header, _)) = Header::read(head) else {
            self.counters.malformed += 1;
            return;
        };
        match header {
            Header::EchoRequest { identifier, sequence } => {
                self.counters.echoes_answered += 1;
                let head = pdu.head_mut();
                Header::EchoReply { identifier, sequence }.write(head);
                icmp::fill(head, rest);
                down.push_back(Message { source: target, target: source, pdu });
            }
            Header::EchoReply { identifier, sequence } => {
                self.counters.replies_in += 1;
                let bytes = pdu.len() - icmp::HEADER_BYTES;
                up.push_back(Indication::EchoReply { source, identifier, sequence, bytes });
            }
            header if header.is_error() => self.counters.errors_in += 1,
            _ => self.counters.others_in += 1,
        }
    }
}
