//! ARP: resolves IPv4 neighbours, announces and defends our addresses (RFC 826, RFC 5227).
//!
//! Updates          any packet from a known sender updates its entry. Only a request for one of our addresses
//!                  creates an entry; announcements from unknown senders are ignored.
//! Conflict         if another station uses one of our addresses, the conflict is counted. The address is
//!                  defended by an announcement at most once per [`DEFEND_INTERVAL`], and sessions continue
//!                  (RFC 5227 §2.4(c)).

use super::cache::Advertised;
use super::link::Link;
use crate::wire::arp::{Operation, PACKET_BYTES, Packet};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use kiban_base::ethernet::Mac;
use kiban_base::numbers::ether_type;
use kiban_base::{Context, Instant, Pdu};

/// Minimum time between two defences of an address (RFC 5227 §1.1).
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two announcements of an address (RFC 5227 §1.1).
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);

impl Link {
    pub(super) fn on_arp(&mut self, mut pdu: Pdu, frame_source: Mac, cx: &mut Context<'_>) {
        let Some(moved) = pdu.pull_up(PACKET_BYTES) else {
            self.counters.arp_malformed += 1;
            return;
        };
        cx.copies.header_bytes += moved as u64;
        let Ok((packet, _)) = Packet::read(pdu.head()) else {
            self.counters.arp_malformed += 1;
            return;
        };
        let Packet { operation, sender_mac, sender, target, .. } = packet;
        // The sender must not be a group, broadcast or loopback address, and must match the source of the
        // frame.
        let is_nobody = sender.is_multicast() || sender.is_broadcast() || sender.is_loopback();
        if sender_mac.is_group() || sender_mac != frame_source || is_nobody {
            self.counters.arp_malformed += 1;
            return;
        }
        if sender_mac == self.config.mac {
            self.counters.arp_ignored += 1;
            return;
        }
        // RFC 5227 §2.1.1: an address that we probe is in use if another station sends from it, or probes it
        // at the same time.
        let claimed = if sender.is_unspecified() { target } else { sender };
        self.dhcp_conflict(claimed, cx);
        let is_ours = |address: Ipv4Addr| self.own4.iter().any(|(own, _)| *own == address);
        let for_us = is_ours(target);
        if is_ours(sender) {
            return self.on_conflict(sender, cx);
        }
        let is_near = self.own4.iter().any(|(_, prefix)| prefix.contains(sender.into()));
        if !sender.is_unspecified() && is_near {
            let word = Advertised {
                mac: Some(sender_mac),
                solicited: operation == Operation::Reply && for_us && packet.target_mac == self.config.mac,
                overrides: true,
                router: None,
                learn: operation == Operation::Request && for_us,
            };
            self.learn(sender.into(), word, cx);
        }
        if operation == Operation::Request && for_us {
            let reply = Packet {
                operation: Operation::Reply,
                sender_mac: self.config.mac,
                sender: target,
                target_mac: sender_mac,
                target: sender,
            };
            if self.send_arp(sender_mac, reply, cx) {
                self.counters.arp_replies_out += 1;
            }
        } else if !for_us && self.cache.reach(sender.into()).is_none() {
            self.counters.arp_ignored += 1;
        }
    }

    fn on_conflict(&mut self, address: Ipv4Addr, cx: &mut Context<'_>) {
        self.counters.arp_conflicts += 1;
        let now = cx.now;
        let ours = self.announcements.iter_mut().find(|ours| ours.address == address);
        if let Some(ours) = ours
            && ours.defended.is_none_or(|at| now.since(at) >= DEFEND_INTERVAL)
        {
            ours.defended = Some(now);
            self.announce(address, cx);
        }
    }

    /// Sends an ARP announcement (RFC 5227 §3): a request whose sender and target addresses are the same.
    fn announce(&mut self, address: Ipv4Addr, cx: &mut Context<'_>) {
        let packet = Packet {
            operation: Operation::Request,
            sender_mac: self.config.mac,
            sender: address,
            target_mac: Mac::default(),
            target: address,
        };
        if self.send_arp(Mac::BROADCAST, packet, cx) {
            self.counters.arp_announced += 1;
        }
    }

    pub(super) fn settle_announcements(&mut self, cx: &mut Context<'_>) {
        for index in 0..self.announcements.len() {
            let ours = &mut self.announcements[index];
            if ours.at > cx.now {
                continue;
            }
            ours.left = ours.left.saturating_sub(1);
            ours.at = if ours.left > 0 { cx.now + ANNOUNCE_INTERVAL } else { Instant::NEVER };
            let address = ours.address;
            self.announce(address, cx);
        }
    }

    pub(super) fn send_arp_request(&mut self, neighbour: Ipv4Addr, mac: Option<Mac>, cx: &mut Context<'_>) {
        // Use our address on the neighbour's subnet as the sender address, or else our first address.
        let near = self.own4.iter().find(|(_, prefix)| prefix.contains(IpAddr::V4(neighbour)));
        let Some((sender, _)) = near.or(self.own4.first()).copied() else { return };
        let packet = Packet {
            operation: Operation::Request,
            sender_mac: self.config.mac,
            sender,
            target_mac: Mac::default(),
            target: neighbour,
        };
        if self.send_arp(mac.unwrap_or(Mac::BROADCAST), packet, cx) {
            self.counters.arp_requests_out += 1;
        }
    }

    /// Sends a request from the unspecified address, which changes no cache (RFC 5227 §2.1.1).
    pub(super) fn send_arp_probe(&mut self, target: Ipv4Addr, cx: &mut Context<'_>) {
        let sender = Ipv4Addr::UNSPECIFIED;
        let packet = Packet {
            operation: Operation::Request,
            sender_mac: self.config.mac,
            sender,
            target_mac: Mac::default(),
            target,
        };
        if self.send_arp(Mac::BROADCAST, packet, cx) {
            self.counters.arp_requests_out += 1;
        }
    }

    fn send_arp(&mut self, target: Mac, packet: Packet, cx: &mut Context<'_>) -> bool {
        let mut bytes = [0; PACKET_BYTES];
        packet.write(&mut bytes);
        self.send_frame(target, ether_type::ARP, &bytes, cx)
    }
}
