//! One logical channel: its states, its two flows of data, and the choice of its next packet.
//!
//! Flow      packets are counted from the last reset; P(S) and P(R) are the low bits of the counts. A unit's
//!           last packet is acknowledged once the host has taken the unit; its earlier packets are
//!           acknowledged when they are received.

use alloc::collections::VecDeque;

use crate::wire::x25::{FastSelect, Front, HEADER_BYTES_MAX, Header, Kind, Modulo, diagnostic};
use kiban_base::{Instant, Rope};

use super::call::{Facilities, Sizes};
use super::state::{Call, Reset};

/// Packets with less data than this are copied into the unit that they are part of. By reference, each would
/// keep the whole buffer in which it was received.
const SHORT_BYTES: usize = 512;

/// The unsent part of a unit that is being sent.
#[derive(Debug)]
struct Unit {
    rest: Rope,
    qualifier: bool,
    delivery: bool,
}

/// A unit that has been received.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) data: Rope,
    pub(super) qualifier: bool,
    pub(super) delivery: bool,
}

/// A channel in use.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) number: u16,
    pub(super) is_permanent: bool,
    /// Whether the call has been indicated to the host.
    pub(super) is_known: bool,
    pub(super) call: Call,
    pub(super) reset: Reset,
    pub(super) sizes: Sizes,
    /// The facilities that the call proposed.
    pub(super) asked: Facilities,
    pub(super) fast_select: FastSelect,
    /// The time at which T21, T22 or T23 (depending on the state) expires; the next field is the deadline for
    /// T26.
    pub(super) due: Instant,
    pub(super) interrupt_due: Instant,
    pub(super) tries: u32,
    /// Counts calls and resets, so that indications of an earlier call or reset can be recognised.
    pub(super) generation: u32,
    pub(super) is_listed: bool,
    /// Whether a reset indication is queued for the host.
    pub(super) reset_is_told: bool,

    outgoing: VecDeque<Unit>,
    outgoing_bytes: usize,
    sent: u64,
    acknowledged: u64,
    peer_is_ready: bool,
    /// The numbers of packets sent with the D bit, whose acknowledgements confirm delivery.
    marks: VecDeque<u64>,
    pub(super) interrupt_out: bool,

    received: u64,
    acknowledged_in: u64,
    /// The numbers of the last packets of units that the host has not taken yet.
    held: VecDeque<u64>,
    assembly: Rope,
    assembly_qualifier: Option<bool>,
    assembly_delivery: bool,
    is_ready: bool,
    ready_sent: bool,
    pub(super) interrupt_in: bool,
}

impl Channel {
    pub(super) fn new(number: u16, is_permanent: bool, sizes: Sizes) -> Channel {
        Channel {
            number,
            is_permanent,
            is_known: is_permanent,
            call: if is_permanent { Call::Transfer } else { Call::Ready },
            reset: Reset::Ready,
            sizes,
            asked: Facilities::default(),
            fast_select: FastSelect::No,
            due: Instant::NEVER,
            interrupt_due: Instant::NEVER,
            tries: 0,
            generation: 0,
            is_listed: false,
            reset_is_told: false,
            outgoing: VecDeque::new(),
            outgoing_bytes: 0,
            sent: 0,
            acknowledged: 0,
            peer_is_ready: true,
            marks: VecDeque::new(),
            interrupt_out: false,
            received: 0,
            acknowledged_in: 0,
            held: VecDeque::new(),
            assembly: Rope::new(),
            assembly_qualifier: None,
            assembly_delivery: false,
            is_ready: true,
            ready_sent: true,
            interrupt_in: false,
        }
    }

    /// Returns whether data may be transferred, in states p4 and d1.
    pub(super) fn is_open(&self) -> bool {
        self.call == Call::Transfer && self.reset == Reset::Ready
    }

    /// Resets both flows (§4.4.3): no packet is in transit any more, and all counts are zero.
    pub(super) fn flush(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.outgoing.clear();
        self.outgoing_bytes = 0;
        (self.sent, self.acknowledged, self.received, self.acknowledged_in) = (0, 0, 0, 0);
        self.peer_is_ready = true;
        self.marks.clear();
        (self.interrupt_out, self.interrupt_in) = (false, false);
        self.interrupt_due = Instant::NEVER;
        self.held.clear();
        self.assembly = Rope::new();
        self.assembly_qualifier = None;
        self.assembly_delivery = false;
        self.ready_sent = true;
    }

    pub(super) fn outgoing_bytes(&self) -> usize {
        self.outgoing_bytes
    }

    /// Returns whether all packets are acknowledged and no unit is queued or being sent.
    pub(super) fn is_quiet(&self) -> bool {
        self.outgoing.is_empty() && self.sent == self.acknowledged
    }

    pub(super) fn push(&mut self, data: Rope, qualifier: bool, delivery: bool) {
        self.outgoing_bytes += data.len();
        self.outgoing.push_back(Unit { rest: data, qualifier, delivery });
    }

    pub(super) fn set_ready(&mut self, ready: bool) {
        self.is_ready = ready;
    }

    /// Reports that the host has taken a unit, whose last packet may then be acknowledged.
    pub(super) fn taken(&mut self) {
        self.held.pop_front();
    }

    /// Returns the number of the first packet that may not be acknowledged yet.
    fn allowed(&self) -> u64 {
        if self.is_ready { self.held.front().copied().unwrap_or(self.received) } else { self.acknowledged_in }
    }

    /// Returns whether [`Channel::next_packet`] would return a packet.
    pub(super) fn has_packet(&self) -> bool {
        self.is_open()
            && (self.may_send() || self.allowed() > self.acknowledged_in || self.is_ready != self.ready_sent)
    }

    fn may_send(&self) -> bool {
        self.peer_is_ready
            && !self.outgoing.is_empty()
            && self.sent - self.acknowledged < u64::from(self.sizes.window_out)
    }

    /// Returns the next packet of an open channel: data, or an acknowledgement.
    pub(super) fn next_packet(&mut self, modulo: Modulo) -> Option<Rope> {
        let mask = u64::from(modulo.mask());
        let is_changed = self.is_ready != self.ready_sent;
        let mut front = Front { modulo, qualifier: false, delivery: false, channel: self.number };
        if !is_changed && self.may_send() {
            let unit = self.outgoing.front_mut()?;
            let size = usize::from(self.sizes.packet_bytes_out);
            let more = unit.rest.len() > size;
            let mut packet = if more { unit.rest.split_to(size) } else { core::mem::take(&mut unit.rest) };
            // The D bit is set in the last packet only: it requests confirmation of the whole unit.
            (front.qualifier, front.delivery) = (unit.qualifier, unit.delivery && !more);
            self.outgoing_bytes -= packet.len();
            if !more {
                self.outgoing.pop_front();
            }
            if front.delivery {
                self.marks.push_back(self.sent);
            }
            self.acknowledged_in = self.allowed();
            let kind =
                Kind::Data { p_s: (self.sent & mask) as u8, p_r: (self.acknowledged_in & mask) as u8, more };
            self.sent += 1;
            put_header(&mut packet, Header { front, kind });
            return Some(packet);
        }
        if !is_changed && self.allowed() <= self.acknowledged_in {
            return None;
        }
        self.acknowledged_in = self.allowed();
        self.ready_sent = self.is_ready;
        let p_r = (self.acknowledged_in & mask) as u8;
        let kind = if self.is_ready { Kind::ReceiveReady(p_r) } else { Kind::ReceiveNotReady(p_r) };
        let mut packet = Rope::new();
        put_header(&mut packet, Header { front, kind });
        Some(packet)
    }

    /// Handles the peer's P(R); returns the number of units for which it confirms delivery.
    pub(super) fn on_acknowledged(&mut self, p_r: u8, modulo: Modulo) -> Result<usize, u8> {
        let count = u64::from(p_r.wrapping_sub(self.acknowledged as u8) & modulo.mask());
        if count > self.sent - self.acknowledged {
            return Err(diagnostic::INVALID_P_R);
        }
        self.acknowledged += count;
        let before = self.marks.len();
        while self.marks.front().is_some_and(|mark| *mark < self.acknowledged) {
            self.marks.pop_front();
        }
        Ok(before - self.marks.len())
    }

    /// Handles an RR or RNR packet.
    pub(super) fn on_peer_ready(&mut self, ready: bool) {
        self.peer_is_ready = ready;
    }

    /// Handles a data packet. Returns the unit if the packet completes one, or a diagnostic if the packet
    /// violates the protocol.
    pub(super) fn on_data(
        &mut self,
        p_s: u8,
        more: bool,
        front: Front,
        data: Rope,
        unit_bytes_max: usize,
    ) -> Result<Option<Arrived>, u8> {
        let is_next = p_s == self.received as u8 & front.modulo.mask();
        if !is_next || self.received - self.acknowledged_in >= u64::from(self.sizes.window_in) {
            return Err(diagnostic::INVALID_P_S);
        }
        if data.len() > usize::from(self.sizes.packet_bytes_in) {
            return Err(diagnostic::TOO_LONG);
        }
        if self.assembly_qualifier.is_some_and(|qualifier| qualifier != front.qualifier) {
            return Err(diagnostic::INCONSISTENT_QUALIFIER);
        }
        if self.assembly.len() + data.len() > unit_bytes_max {
            return Err(diagnostic::DTE_RESOURCE);
        }
        self.received += 1;
        if data.len() < SHORT_BYTES {
            self.assembly.push_short(&data.to_vec());
        } else {
            self.assembly.append(data);
        }
        self.assembly_delivery |= front.delivery;
        if more {
            self.assembly_qualifier = Some(front.qualifier);
            return Ok(None);
        }
        self.assembly_qualifier = None;
        self.held.push_back(self.received - 1);
        Ok(Some(Arrived {
            data: core::mem::take(&mut self.assembly),
            qualifier: front.qualifier,
            delivery: core::mem::take(&mut self.assembly_delivery),
        }))
    }
}

/// Prepends a header to user data.
pub(super) fn put_header(packet: &mut Rope, header: Header) {
    let mut bytes = [0; HEADER_BYTES_MAX];
    let length = header.write(&mut bytes);
    packet.prepend(&bytes[..length]);
}
