//! Interception: connections to any address and port, each of which the host admits or refuses (a transparent
//! proxy).
//!
//! Purpose          a proxy answers a peer's SYN only when its own connection to the destination is
//!                  established, so that the peer sees refusals and timeouts as it would without a proxy.
//! Receive path     a SYN that no session and no other listener takes is kept, and reported
//!                  ([`Indication::Requested`]). Repetitions of it are dropped.
//! Transmit path    [`Tcp::admit`] begins the session as if the SYN arrived now; [`Tcp::refuse`] answers it
//!                  with a RST (RFC 9293 §3.10.7.1).
//! Limits           [`Config::backlog`](crate::tcp::Config::backlog) requests and half-open connections
//!                  together; SYNs beyond it are dropped, and their senders repeat them. A request has no
//!                  timer: the host decides, or the peer resets it.

use super::listener::{Listener, Request};
use super::time_wait::isn_not_before;
use crate::tcp::fairness::claims::Owner;
use crate::tcp::interface::indication::Indication;
use crate::tcp::interface::refusal::Refusal;
use crate::tcp::machine::Tcp;
use crate::tcp::segment::Outbox;
use crate::wire::tcp::{Header, Sequence};
use alloc::collections::VecDeque;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use kiban_base::{Context, Instant};

impl Tcp {
    /// Listens for connections to all addresses and ports that no other listener has. Returns the listener's
    /// number. Each connection waits for [`Tcp::admit`] or [`Tcp::refuse`].
    ///
    /// # Errors
    /// `AddressInUse` if there is such a listener.
    pub fn intercept(&mut self, owner: Owner) -> Result<u32, Refusal> {
        if self.listeners.iter().any(|listener| listener.intercepts) {
            return Err(Refusal::AddressInUse);
        }
        self.next_listener += 1;
        self.listeners.push(Listener {
            number: self.next_listener,
            owner,
            local: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            dual: true,
            intercepts: true,
            dscp: self.config.dscp,
            half_open_count: 0,
            half_open: VecDeque::new(),
            cookies_until: Instant::ZERO,
            fast_open_pending: 0,
            fast_open_pending_max: 0,
            fast_open_resets: VecDeque::new(),
        });
        Ok(self.next_listener)
    }

    /// Keeps a SYN, and reports it, unless there is room for no more requests.
    pub(super) fn request(
        &mut self,
        listener: u32,
        addresses: (SocketAddr, SocketAddr),
        header: &Header,
        (tx_queue, least): (usize, Option<Sequence>),
        room: usize,
        out: &mut Outbox,
    ) {
        if self.requests.iter().any(|request| request.addresses == addresses) {
            return;
        }
        if self.requests.len() >= room {
            self.counters.syns_dropped += 1;
            return;
        }
        self.requests.push(Request { listener, addresses, header: *header, tx_queue, least });
        let (local, remote) = addresses;
        out.up.push_back(Indication::Requested { listener, local, remote });
    }

    fn take_request(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<Request, Refusal> {
        let at = self.requests.iter().position(|request| request.addresses == (local, remote));
        at.map(|at| self.requests.swap_remove(at)).ok_or(Refusal::UnknownSession)
    }

    /// Answers the SYN of a requested connection: [`Indication::Accepted`] follows once it is established.
    ///
    /// # Errors
    /// `UnknownSession` if no such connection is requested; `TooMany` if no session is free, and the SYN is
    /// forgotten.
    pub fn admit(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let Request { listener, header, tx_queue, least, .. } = self.take_request(local, remote)?;
        let at = self.listeners.iter().position(|other| other.number == listener);
        let at = at.ok_or(Refusal::UnknownSession)?;
        let is_full = self.table.len() >= self.config.sessions_max
            || !self.may_own_more(self.listeners[at].owner, remote.ip(), true);
        if is_full || self.table.find(local, remote).is_some() {
            self.counters.syns_dropped += 1;
            return Err(Refusal::TooMany);
        }
        let listener = &mut self.listeners[at];
        listener.half_open_count += 1;
        let made_by = (listener.owner, Some(listener.number));
        self.counters.syns_in += 1;
        let beginning = isn_not_before(self.secret.initial_numbers(local, remote, cx.now), least);
        let id = self.begin((local, remote), beginning, made_by, tx_queue);
        self.with(id.index, cx, out, |session, ctx| session.on_first_syn(&header, ctx));
        Ok(())
    }

    /// Answers the SYN of a requested connection with a RST.
    ///
    /// # Errors
    /// `UnknownSession` if no such connection is requested; `NoRoom` if no PDU is free, and the SYN is
    /// forgotten.
    pub fn refuse(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let Request { header, .. } = self.take_request(local, remote)?;
        let pdu = cx.memory.pdus.take().ok_or(Refusal::NoRoom)?;
        self.answer_reset(local, remote, &header, pdu, out);
        Ok(())
    }

    /// Forgets a requested connection without an answer, as if its SYN had been lost.
    pub fn ignore(&mut self, local: SocketAddr, remote: SocketAddr) {
        // It may have been decided already.
        let _ = self.take_request(local, remote);
    }

    /// Returns whether a session exists, in any state.
    pub fn has_connection(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.table.find(local, remote).is_some()
    }

    /// Forgets the request that a peer has reset. The host learns of it when it decides.
    pub(super) fn on_request_reset(&mut self, addresses: (SocketAddr, SocketAddr), header: &Header) {
        self.requests.retain(|request| {
            request.addresses != addresses || request.header.sequence + 1 != header.sequence
        });
    }

    /// Forgets the requests of a listener that is closed.
    pub(in crate::tcp) fn forget_requests(&mut self, listener: u32) {
        self.requests.retain(|request| request.listener != listener);
    }
}
