//! Segments between TCP and IP, and the output queues of TCP.

use crate::tcp::interface::indication::Indication;
use alloc::collections::VecDeque;
use core::net::IpAddr;
use kiban_base::Pdu;

/// A segment passed to or from IP. The TCP header is at the front of the PDU's head.
#[derive(Debug)]
pub struct Segment {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub target: IpAddr,
    /// DSCP and ECN of the IP packet (RFC 2474 §3).
    pub traffic_class: u8,
    /// TCP header and payload.
    pub pdu: Pdu,
}

/// The outputs of TCP, in order. The caller takes them from here and passes them on.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Indications for the host.
    pub up: VecDeque<Indication>,
    /// Segments for IP.
    pub down: VecDeque<Segment>,
}
