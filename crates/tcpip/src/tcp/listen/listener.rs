//! Listeners: local addresses that accept connections.

use crate::tcp::fairness::claims::Owner;
use crate::tcp::interface::indication::SessionId;
use crate::wire::tcp::{Header, Sequence};
use alloc::collections::VecDeque;
use core::net::SocketAddr;
use kiban_base::Instant;

/// A listener.
pub(crate) struct Listener {
    pub(crate) number: u32,
    /// The owner of the sessions that the listener accepts.
    pub(crate) owner: Owner,
    pub(crate) local: SocketAddr,
    /// Whether an unspecified IPv6 address accepts IPv4 connections too.
    pub(crate) dual: bool,
    /// Whether it takes connections to all addresses and ports that no other listener has.
    pub(crate) intercepts: bool,
    /// The DSCP of its connections' packets.
    pub(crate) dscp: u8,
    /// Number of half-open connections.
    pub(crate) half_open_count: usize,
    /// Half-open connections, oldest first, used if only their number is limited (without cookies). Some may
    /// since have been established or have ended.
    pub(crate) half_open: VecDeque<SessionId>,
    /// The time until which an ACK may return a cookie.
    pub(crate) cookies_until: Instant,
    /// Number of Fast Open sessions whose handshake is not complete, and its limit.
    pub(crate) fast_open_pending: u32,
    pub(crate) fast_open_pending_max: u32,
    /// When each session that a RST ended stops counting as pending, oldest first.
    pub(crate) fast_open_resets: VecDeque<Instant>,
}

/// A SYN about which the host has not decided.
pub(crate) struct Request {
    pub(super) listener: u32,
    pub(super) addresses: (SocketAddr, SocketAddr),
    pub(super) header: Header,
    pub(super) tx_queue: usize,
    /// What the initial sequence number must not be below: that of a connection in TIME-WAIT which this one
    /// replaces.
    pub(super) least: Option<Sequence>,
}

/// Returns the listener with this number.
pub(crate) fn numbered(listeners: &mut [Listener], number: u32) -> Option<&mut Listener> {
    listeners.iter_mut().find(|listener| listener.number == number)
}

/// Returns the listener for `local`: one on that exact address is preferred to one on all addresses, and that
/// to one that intercepts.
pub(crate) fn find_listener(listeners: &mut [Listener], local: SocketAddr) -> Option<&mut Listener> {
    let serves = |listener: &&mut Listener| {
        let address = listener.local.ip();
        listener.intercepts
            || listener.local.port() == local.port()
                && (address == local.ip()
                    || (address.is_unspecified() && (listener.dual || address.is_ipv4() == local.is_ipv4())))
    };
    listeners.iter_mut().filter(serves).max_by_key(|listener| (!listener.intercepts, listener.local == local))
}
