//! The DHCP client of a link: its datagrams, and the address that it leases.
//!
//! Receive path     replies are taken before IP, because they are addressed to an address that is not ours
//!                  yet. Only a whole, correct datagram to port 68 is taken; everything else, such as a
//!                  fragment whose data looks like one, goes to IP.
//! Transmit path    before there is an address, messages are sent from 0.0.0.0 to all stations.

use super::announcement::Announcement;
use super::link::{Link, Output};
use crate::dhcp::{self, Destination, Lease};
use crate::ip::Prefix;
use crate::wire::dhcp::{CLIENT_PORT, SERVER_PORT};
use crate::wire::{ipv4, udp};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use kiban_base::ethernet::Mac;
use kiban_base::numbers::protocol;
use kiban_base::{Context, Instant, Pdu, Sum, checksum};

/// Offset of the protocol in an IPv4 header.
const PROTOCOL_AT: usize = 9;
/// Hop limit of messages.
const TIME_TO_LIVE: u8 = 64;

/// Returns the destination and the payload of a packet if it is a whole, correct datagram to a port.
pub(super) fn datagram(pdu: &mut Pdu, port: u16) -> Option<(Ipv4Addr, Vec<u8>)> {
    pdu.pull_up(ipv4::HEADER_BYTES)?;
    // Most packets end here.
    if pdu.head()[PROTOCOL_AT] != protocol::UDP {
        return None;
    }
    let header_bytes = ipv4::header_bytes(pdu.head());
    pdu.pull_up(header_bytes + udp::HEADER_BYTES)?;
    let head = pdu.head();
    let (header, length) = ipv4::Header::read_quoted(head).ok()?;
    let to = head.get(length + 2..length + 4)?;
    if header.is_fragment() || to != port.to_be_bytes() {
        return None;
    }
    ipv4::verify(&head[..length]).ok()?;
    let bytes: Vec<u8> = pdu.runs().flatten().copied().collect();
    let datagram = bytes.get(length..usize::from(header.total_bytes))?;
    let (about, at) = udp::Header::read(datagram).ok()?;
    let datagram = datagram.get(..about.total_bytes.into())?;
    let pseudo = checksum::pseudo(header.source.into(), header.target.into(), protocol::UDP, datagram.len());
    if !pdu.is_verified() {
        udp::verify_over_ipv4(&datagram[..at], pseudo.plus(Sum::of(&datagram[at..]))).ok()?;
    }
    Some((header.target, datagram[at..].to_vec()))
}

impl Link {
    /// Passes a packet to the DHCP client if it is for it. Returns whether it is.
    pub(super) fn take_dhcp(&mut self, pdu: &mut Pdu, from: Mac, cx: &mut Context<'_>) -> bool {
        let Some(dhcp) = &mut self.dhcp else { return false };
        let Some((_, message)) = datagram(pdu, CLIENT_PORT) else { return false };
        cx.copies.header_bytes += message.len() as u64;
        dhcp.arrive(&message, from, cx.now, cx.rng);
        true
    }

    /// Returns the DHCP client, if the link has one.
    pub fn dhcp(&self) -> Option<&dhcp::Client> {
        self.dhcp.as_deref()
    }

    /// Sets the nets of the other ports, which a lease must not overlap.
    pub fn set_other_nets(&mut self, nets: impl Iterator<Item = Prefix>) {
        if let Some(dhcp) = &mut self.dhcp {
            dhcp.set_others(nets.collect());
        }
    }

    /// Verifies the lease, because the link works again.
    pub fn verify_lease(&mut self, now: Instant) {
        if let Some(dhcp) = &mut self.dhcp {
            dhcp.on_link_up(now);
        }
    }

    /// Gives the lease back, because the board stops.
    pub fn release_lease(&mut self, now: Instant) {
        if let Some(dhcp) = &mut self.dhcp {
            dhcp.release(now);
        }
    }

    /// Tells the DHCP client that another station has an address.
    pub(super) fn dhcp_conflict(&mut self, address: Ipv4Addr, cx: &mut Context<'_>) {
        if let Some(dhcp) = &mut self.dhcp {
            dhcp.on_conflict(address, cx.now, cx.rng);
        }
    }

    pub(super) fn dhcp_deadline(&self) -> Instant {
        self.dhcp.as_ref().map_or(Instant::NEVER, |dhcp| dhcp.deadline())
    }

    pub(super) fn settle_dhcp(&mut self, cx: &mut Context<'_>) {
        let Some(dhcp) = &mut self.dhcp else { return };
        dhcp.settle(cx.now, cx.rng);
        while let Some(output) = self.dhcp.as_mut().and_then(|dhcp| dhcp.poll()) {
            match output {
                dhcp::Output::Send { source, target, message } => {
                    self.send_dhcp(source, target, &message, cx);
                }
                dhcp::Output::Probe(address) => self.send_arp_probe(address, cx),
                dhcp::Output::Bound(lease) => self.begin_lease(lease, cx.now),
                dhcp::Output::Unbound(lease) => self.end_lease(lease),
            }
        }
    }

    fn begin_lease(&mut self, lease: Lease, now: Instant) {
        self.own4.push((lease.address, lease.prefix));
        let count = self.config.announcements;
        self.announcements.push(Announcement::from(lease.address, count, now));
        self.due.push_back(Output::Lease(lease, true));
    }

    fn end_lease(&mut self, lease: Lease) {
        self.own4.retain(|(own, _)| *own != lease.address);
        self.announcements.retain(|ours| ours.address != lease.address);
        self.due.push_back(Output::Lease(lease, false));
    }

    fn send_dhcp(&mut self, source: Ipv4Addr, target: Destination, message: &[u8], cx: &mut Context<'_>) {
        let Some(dhcp) = &self.dhcp else { return };
        let lease = dhcp.lease();
        let (address, mac, next) = match target {
            Destination::Broadcast => (Ipv4Addr::BROADCAST, Some(Mac::BROADCAST), Ipv4Addr::BROADCAST),
            Destination::ServerAtOnce(server, mac) => (server, Some(mac), server),
            Destination::Server(server) => {
                let is_near = lease.is_none_or(|lease| lease.prefix.contains(server.into()));
                let router = lease.and_then(|lease| lease.router).filter(|_| !is_near);
                (server, None, router.unwrap_or(server))
            }
        };
        let ports = [CLIENT_PORT, SERVER_PORT];
        let Some(pdu) = self.dhcp_packet(source, address, ports, message, cx) else { return };
        match mac {
            Some(mac) => self.due.push_back(Output::Packet { mac, pdu }),
            None => {
                if let Some((mac, pdu)) = self.resolve(next.into(), pdu, cx) {
                    self.due.push_back(Output::Packet { mac, pdu });
                }
            }
        }
    }

    /// Builds the packet for a message between two ports. Returns `None` if there is no memory.
    pub(super) fn dhcp_packet(
        &mut self,
        source: Ipv4Addr,
        target: Ipv4Addr,
        [source_port, target_port]: [u16; 2],
        message: &[u8],
        cx: &mut Context<'_>,
    ) -> Option<Pdu> {
        let mut pdu = self.pdu_of(message, cx)?;
        let total = message.len() + udp::HEADER_BYTES;
        let header = pdu.push_head(udp::HEADER_BYTES);
        udp::Header { source_port, target_port, total_bytes: total as u16 }.write(header);
        let pseudo = checksum::pseudo(source.into(), target.into(), protocol::UDP, total);
        udp::fill(header, pseudo.plus(Sum::of(message)));
        let header = ipv4::Header {
            traffic_class: 0,
            total_bytes: (total + ipv4::HEADER_BYTES) as u16,
            identification: cx.rng.draw_u32() as u16,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset_bytes: 0,
            time_to_live: TIME_TO_LIVE,
            protocol: protocol::UDP,
            source,
            target,
            options: &[],
        };
        header.write(pdu.push_head(ipv4::HEADER_BYTES));
        Some(pdu)
    }
}
