//! Sends and receives messages.

use super::error::{self, IcmpError, read_quoted};
use crate::ip::{Delivery, IcmpErrorKind, IcmpErrorRequest};
use crate::wire::{discovery, icmp, icmpv6, ipv4, ipv6, mld};
use alloc::collections::VecDeque;
use core::net::IpAddr;
use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_base::{Context, Instant, Pdu, Sum};

/// Maximum number of errors sent per second (RFC 1812 §4.3.2.8 and RFC 4443 §2.4(f) call for a limit).
pub const ERRORS_PER_SECOND: u32 = 100;
/// Longest ICMP error packet that we send, bytes.
const ERROR_BYTES_MAX_4: usize = 576;
const ERROR_BYTES_MAX_6: usize = 1280;
/// Number of bytes examined at the front of a packet before it is quoted, and at the front of a received
/// quotation.
const LOOK_BYTES: usize = 128;
/// Length of the ICMP header in both families, bytes.
const HEADER_BYTES: usize = icmp::HEADER_BYTES;

kiban_base::counters! {
    /// ICMP counters of one board.
    pub struct IcmpCounters {
        /// Messages that arrived.
        messages_in,
        /// Messages too short or otherwise malformed.
        malformed,
        /// Messages with a wrong checksum.
        checksum_errors,
        /// Echo requests answered.
        echoes_answered,
        /// Echo requests to a multicast or broadcast address, which are not answered.
        echoes_to_groups,
        /// Echo replies to our requests.
        replies_in,
        /// Errors received.
        errors_in,
        /// Errors received whose quotation is too short, or does not match one of our packets.
        errors_unmatched,
        /// Errors sent.
        errors_out,
        /// Errors not sent because of the rate limit.
        errors_rate_limited,
        /// Packets that cannot be processed and to which the standard forbids an ICMP error in response.
        errors_not_allowed,
        /// Messages of neighbour discovery and multicast listener discovery received.
        discovery_in,
        /// Messages of other types received.
        others_in,
        /// Messages that could not be sent for lack of memory.
        no_memory,
    }
}

/// An event for the layer above.
#[derive(Debug)]
pub enum Indication {
    /// An echo reply arrived.
    EchoReply {
        /// The host that answered.
        source: IpAddr,
        /// The identifier of the request.
        identifier: u16,
        /// The sequence number of the request.
        sequence: u16,
        /// Payload bytes of the reply.
        bytes: usize,
    },
    /// An echo request to another host arrived ([`Ip::intercept`](crate::ip::Ip::intercept)).
    EchoRequest {
        /// The host that asks.
        source: IpAddr,
        /// The host that is asked.
        target: IpAddr,
        /// The identifier of the request.
        identifier: u16,
        /// The sequence number of the request.
        sequence: u16,
        /// The payload.
        pdu: Pdu,
    },
    /// An error arrived. The caller checks whether the quoted packet is really ours.
    Error(IcmpError),
    /// A message of neighbour discovery or multicast listener discovery arrived; its checksum is correct.
    Discovery(Delivery),
}

/// A message to send through IP.
#[derive(Debug)]
pub struct Message {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub target: IpAddr,
    /// Header and payload.
    pub pdu: Pdu,
}

impl Message {
    /// Returns the protocol number of ICMP in the message's family.
    pub fn protocol(&self) -> u8 {
        if self.target.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 }
    }
}

/// ICMP for one board.
#[derive(Default)]
pub struct Icmp {
    counters: IcmpCounters,
    errors_this_second: u32,
    ration_since: Instant,
}

/// Returns the sum of the pseudo-header that the checksum covers with IPv6 (RFC 4443 §2.3); zero with IPv4.
fn pseudo(source: IpAddr, target: IpAddr, length: usize) -> Sum {
    match (source, target) {
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            checksum::pseudo_ipv6(source, target, protocol::ICMPV6, length)
        }
        _ => Sum::ZERO,
    }
}

/// The content of an ICMP message of either family.
enum Content {
    EchoRequest(u16, u16),
    EchoReply(u16, u16),
    Error(Option<IcmpErrorKind>),
    Discovery,
    Other,
}

fn read4(head: &[u8]) -> Option<Content> {
    use icmp::Header;
    let (header, _) = Header::read(head).ok()?;
    Some(match header {
        Header::EchoRequest { identifier, sequence } => Content::EchoRequest(identifier, sequence),
        Header::EchoReply { identifier, sequence } => Content::EchoReply(identifier, sequence),
        Header::Unreachable { code: icmp::UNREACHABLE_TOO_LONG, next_hop_mtu } => {
            Content::Error(Some(IcmpErrorKind::FragmentationNeeded { mtu: next_hop_mtu.into() }))
        }
        Header::Unreachable { code, .. } => Content::Error(Some(IcmpErrorKind::Unreachable { code })),
        Header::TimeExceeded { code } => Content::Error(Some(IcmpErrorKind::TimeExceeded { code })),
        Header::ParameterProblem { code, pointer } => {
            Content::Error(Some(IcmpErrorKind::ParameterProblem { code, pointer: pointer.into() }))
        }
        other if other.is_error() => Content::Error(None),
        Header::Other { .. } => Content::Other,
    })
}

fn read6(head: &[u8]) -> Option<Content> {
    use icmpv6::Header;
    let (header, _) = Header::read(head).ok()?;
    Some(match header {
        Header::EchoRequest { identifier, sequence } => Content::EchoRequest(identifier, sequence),
        Header::EchoReply { identifier, sequence } => Content::EchoReply(identifier, sequence),
        Header::Unreachable { code } => Content::Error(Some(IcmpErrorKind::Unreachable { code })),
        Header::TooLong { mtu } => Content::Error(Some(IcmpErrorKind::FragmentationNeeded { mtu })),
        Header::TimeExceeded { code } => Content::Error(Some(IcmpErrorKind::TimeExceeded { code })),
        Header::ParameterProblem { code, pointer } => {
            Content::Error(Some(IcmpErrorKind::ParameterProblem { code, pointer }))
        }
        Header::Other { kind, .. } if discovery::is_discovery(kind) || mld::is_mld(kind) => {
            Content::Discovery
        }
        other if other.is_error() => Content::Error(None),
        Header::Other { .. } => Content::Other,
    })
}

fn write_echo(head: &mut [u8], is_ipv4: bool, is_reply: bool, identifier: u16, sequence: u16) {
    match (is_ipv4, is_reply) {
        (true, false) => icmp::Header::EchoRequest { identifier, sequence }.write(head),
        (true, true) => icmp::Header::EchoReply { identifier, sequence }.write(head),
        (false, false) => icmpv6::Header::EchoRequest { identifier, sequence }.write(head),
        (false, true) => icmpv6::Header::EchoReply { identifier, sequence }.write(head),
    };
}

/// Returns an echo request or a reply with the payload in `pdu`.
fn echo(
    (source, target): (IpAddr, IpAddr),
    is_reply: bool,
    identifier: u16,
    sequence: u16,
    mut pdu: Pdu,
) -> Message {
    let rest = pseudo(source, target, pdu.len() + HEADER_BYTES).plus(pdu.body_sum());
    let header = pdu.push_head(HEADER_BYTES);
    write_echo(header, target.is_ipv4(), is_reply, identifier, sequence);
    icmp::fill(header, rest);
    Message { source, target, pdu }
}

fn write_error(head: &mut [u8], is_ipv4: bool, kind: IcmpErrorKind) {
    if is_ipv4 {
        match kind {
            IcmpErrorKind::Unreachable { code } => icmp::Header::Unreachable { code, next_hop_mtu: 0 },
            IcmpErrorKind::FragmentationNeeded { mtu } => icmp::Header::Unreachable {
                code: icmp::UNREACHABLE_TOO_LONG,
                next_hop_mtu: mtu.min(0xffff) as u16,
            },
            IcmpErrorKind::TimeExceeded { code } => icmp::Header::TimeExceeded { code },
            IcmpErrorKind::ParameterProblem { code, pointer } => {
                icmp::Header::ParameterProblem { code, pointer: pointer.min(0xff) as u8 }
            }
        }
        .write(head);
    } else {
        match kind {
            IcmpErrorKind::Unreachable { code } => icmpv6::Header::Unreachable { code },
            IcmpErrorKind::FragmentationNeeded { mtu } => icmpv6::Header::TooLong { mtu },
            IcmpErrorKind::TimeExceeded { code } => icmpv6::Header::TimeExceeded { code },
            IcmpErrorKind::ParameterProblem { code, pointer } => {
                icmpv6::Header::ParameterProblem { code, pointer }
            }
        }
        .write(head);
    }
}

/// Copies the first bytes of a PDU. Returns how many.
fn look(pdu: &Pdu, target: &mut [u8]) -> usize {
    let mut count = 0;
    for run in pdu.runs() {
        let part = run.len().min(target.len() - count);
        target[count..count + part].copy_from_slice(&run[..part]);
        count += part;
    }
    count
}

impl Icmp {
    /// Returns the counters.
    pub fn counters(&self) -> &IcmpCounters {
        &self.counters
    }

    /// Sends an echo request with the payload in `pdu`.
    pub fn ping(
        &mut self,
        source: IpAddr,
        target: IpAddr,
        identifier: u16,
        sequence: u16,
        pdu: Pdu,
    ) -> Message {
        echo((source, target), false, identifier, sequence, pdu)
    }

    /// Sends an echo reply from `source` with the payload in `pdu`.
    pub fn reply(
        &mut self,
        source: IpAddr,
        target: IpAddr,
        identifier: u16,
        sequence: u16,
        pdu: Pdu,
    ) -> Message {
        self.counters.echoes_answered += 1;
        echo((source, target), true, identifier, sequence, pdu)
    }

    /// Sends an error about a packet to its sender, unless the rate limit is reached or the packet must not
    /// be answered.
    pub fn report(
        &mut self,
        complaint: IcmpErrorRequest,
        cx: &mut Context<'_>,
        down: &mut VecDeque<Message>,
    ) {
        let IcmpErrorRequest { kind, local, remote, mut pdu } = complaint;
        let mut beginning = [0; LOOK_BYTES];
        let seen = look(&pdu, &mut beginning);
        if error::is_not_to_be_answered(&beginning[..seen]) {
            self.counters.errors_not_allowed += 1;
            return;
        }
        if cx.now.since(self.ration_since).as_secs() >= 1 {
            self.ration_since = cx.now;
            self.errors_this_second = 0;
        }
        if self.errors_this_second >= ERRORS_PER_SECOND {
            self.counters.errors_rate_limited += 1;
            return;
        }
        let is_ipv4 = remote.is_ipv4();
        pdu.truncate(match is_ipv4 {
            true => ERROR_BYTES_MAX_4 - ipv4::HEADER_BYTES - HEADER_BYTES,
            false => ERROR_BYTES_MAX_6 - ipv6::HEADER_BYTES - HEADER_BYTES,
        });
        // Move the packet's headers into a page, so that there is room for ours in front.
        if pdu.freeze(&mut cx.memory.receive).is_none() {
            self.counters.no_memory += 1;
            return;
        }
        self.errors_this_second += 1;
        self.counters.errors_out += 1;
        let rest = pseudo(local, remote, pdu.len() + HEADER_BYTES).plus(pdu.body_sum());
        let header = pdu.push_head(HEADER_BYTES);
        write_error(header, is_ipv4, kind);
        icmp::fill(header, rest);
        down.push_back(Message { source: local, target: remote, pdu });
    }

    /// Processes a message that arrived. Its header is at the front of the head.
    pub fn arrive(
        &mut self,
        mut delivery: Delivery,
        cx: &mut Context<'_>,
        up: &mut VecDeque<Indication>,
        down: &mut VecDeque<Message>,
    ) {
        self.counters.messages_in += 1;
        let (source, target) = (delivery.source, delivery.target);
        let pdu = &mut delivery.pdu;
        let Some(moved) = pdu.pull_up(HEADER_BYTES) else {
            self.counters.malformed += 1;
            return;
        };
        cx.copies.header_bytes += moved as u64;
        let head = pdu.head();
        // The head may also hold payload. Headers have an even length, so the sums can be added.
        let after = &head[HEADER_BYTES..];
        let payload = checksum::of_header(after).then(after.len(), pdu.body_sum());
        if icmp::verify(head, pseudo(source, target, pdu.len()).plus(payload)).is_err() {
            self.counters.checksum_errors += 1;
            return;
        }
        let is_ipv4 = source.is_ipv4();
        let Some(said) = (if is_ipv4 { read4(head) } else { read6(head) }) else {
            self.counters.malformed += 1;
            return;
        };
        match said {
            // RFC 1122 §3.2.2.6, RFC 4443 §4.2: a request that was sent to a group, or from an unspecified
            // source, is not answered.
            Content::EchoRequest(..) if delivery.brief.to_group || source.is_unspecified() => {
                self.counters.echoes_to_groups += 1;
            }
            Content::EchoRequest(identifier, sequence) if delivery.brief.intercepted => {
                let mut pdu = delivery.pdu;
                pdu.pull_head(HEADER_BYTES);
                up.push_back(Indication::EchoRequest { source, target, identifier, sequence, pdu });
            }
            Content::EchoRequest(identifier, sequence) => {
                self.counters.echoes_answered += 1;
                let rest = pseudo(target, source, pdu.len()).plus(payload);
                let head = pdu.head_mut();
                write_echo(head, is_ipv4, true, identifier, sequence);
                icmp::fill(head, rest);
                down.push_back(Message { source: target, target: source, pdu: delivery.pdu });
            }
            Content::EchoReply(identifier, sequence) => {
                self.counters.replies_in += 1;
                let bytes = pdu.len() - HEADER_BYTES;
                up.push_back(Indication::EchoReply { source, identifier, sequence, bytes });
            }
            Content::Error(kind) => {
                self.counters.errors_in += 1;
                let mut beginning = [0; HEADER_BYTES + LOOK_BYTES];
                let seen = look(pdu, &mut beginning);
                match kind.and_then(|kind| read_quoted(&beginning[HEADER_BYTES..seen], kind, source)) {
                    // RFC 4443 §2.4: the quoted packet must be of the same family.
                    Some(trouble) if trouble.source.is_ipv4() == is_ipv4 => {
                        up.push_back(Indication::Error(trouble));
                    }
                    _ => self.counters.errors_unmatched += 1,
                }
            }
            Content::Discovery => {
                self.counters.discovery_in += 1;
                up.push_back(Indication::Discovery(delivery));
            }
            Content::Other => self.counters.others_in += 1,
        }
    }

    /// Counts a received error about a packet that this host did not send.
    pub fn on_implausible_error(&mut self) {
        self.counters.errors_unmatched += 1;
    }
}
