//! Shared memory instead of a socket, if both ends are processes of the same user on the same host.
//!
//! Setup    the connecting side opens a rendezvous socket, and the accepting side connects to it
//!          ([`shared`]). Meanwhile, both exchange the start frames over TCP. If both sides have the shared
//!          memory by the time the start frames are complete, the connection continues there.
//! Polling  shared memory raises no events while the driver is awake, so the driver polls a limited number of
//!          streams each time it runs.

use super::carrier::Transport;
use super::file::File;
use super::line::SharedMemoryOffer;
use super::state::{LinkedNic, Timer};
use crate::shared;
use crate::shared::SharedLink;
use kiban_base::Instant;
use rustix::event::epoll::{self, EventFlags};
use std::cmp::Reverse;
use std::mem;
use std::os::fd::AsFd;
use std::time::Duration;

/// How long a peer on this host may take to answer an offer of shared memory.
const OFFER: Duration = Duration::from_secs(1);
/// Maximum number of shared-memory streams polled in one `drive` call. Before the driver sleeps, all are
/// polled.
const SHARED_MAX: usize = 64;

impl LinkedNic {
    /// Enables shared memory for streams between processes of the same user on the same host.
    pub(crate) fn share_memory(&mut self) {
        self.shares = true;
    }

    /// If data has arrived and the peer can share memory, connects to the rendezvous socket of an end's
    /// peer. Returns whether to read from the TCP socket now.
    pub(super) fn call_peer(&mut self, end: u32, now: Instant) -> bool {
        let Some(line) = self.connections.get_mut(&end) else { return false };
        let Some(link) = line.transport.socket() else { return true };
        if !link.has_something() {
            return false;
        }
        line.offer = SharedMemoryOffer::None;
        let Ok((own, peer)) = link.addresses() else { return true };
        let Ok(half) = shared::connect(peer, own) else { return true };
        if epoll::add(&self.epoll, half.as_fd(), File::Offer(end).data(), EventFlags::IN).is_err() {
            return true;
        }
        line.offer = SharedMemoryOffer::Calling(half);
        self.timers.push(Reverse((now + OFFER, Timer::Offer(end))));
        self.set_interest(end);
        false
    }

    /// Continues the handshake of an offer.
    pub(super) fn on_offer(&mut self, end: u32) {
        let Some(line) = self.connections.get_mut(&end) else { return };
        let (mut half, calling) = match mem::replace(&mut line.offer, SharedMemoryOffer::None) {
            SharedMemoryOffer::Open(listener) => match listener.try_accept() {
                Some(half) => {
                    let data = File::Offer(end).data();
                    if epoll::add(&self.epoll, half.as_fd(), data, EventFlags::IN).is_err() {
                        // Without epoll, the handshake could never be completed. Drop the offer; both sides
                        // then keep the TCP socket.
                        drop(half);
                        self.set_interest(end);
                        self.nic.schedule(end);
                        return self.more = true;
                    }
                    (half, false)
                }
                None => return line.offer = SharedMemoryOffer::Open(listener),
            },
            SharedMemoryOffer::Called(half) => (half, false),
            SharedMemoryOffer::Calling(half) => (half, true),
            offer => return line.offer = offer,
        };
        line.offer = match SharedLink::complete(&mut half) {
            Ok(Some(link)) => {
                // Watch no events of the shared memory until it replaces the socket.
                let _ = epoll::modify(&self.epoll, link.file(), File::Offer(end).data(), EventFlags::empty());
                SharedMemoryOffer::Ready(link)
            }
            Ok(None) if calling => SharedMemoryOffer::Calling(half),
            Ok(None) => SharedMemoryOffer::Called(half),
            Err(_) => SharedMemoryOffer::None,
        };
        self.set_interest(end);
        self.nic.schedule(end);
        self.more = true;
    }

    /// Gives up an offer that the peer did not answer; the socket stays in use.
    pub(super) fn withdraw_offer(&mut self, end: u32) {
        let Some(line) = self.connections.get_mut(&end) else { return };
        if matches!(line.offer, SharedMemoryOffer::Calling(_)) {
            line.offer = SharedMemoryOffer::None;
            self.set_interest(end);
            self.more = true;
        }
    }

    /// Replaces an end's socket with shared memory, if both ends have it. Returns whether it did.
    pub(super) fn change_over(&mut self, end: u32) -> bool {
        if !self.shares || !self.nic.is_established(end) {
            return false;
        }
        let Some(line) = self.connections.get_mut(&end) else { return false };
        let SharedMemoryOffer::Ready(mut link) = mem::replace(&mut line.offer, SharedMemoryOffer::None)
        else {
            return false;
        };
        if link.is_hung_up() {
            return false;
        }
        let Transport::Socket { link: socket, shared } = &mut line.transport else { return false };
        let _ = epoll::delete(&self.epoll, socket.as_fd());
        let data = File::Shared(end).data();
        let _ = epoll::modify(&self.epoll, link.file(), data, EventFlags::IN);
        if self.armed {
            link.arm();
        }
        *shared = Some(link);
        line.blocked = false;
        self.shared.push(end);
        self.more = true;
        true
    }

    /// Polls streams in shared memory.
    pub(super) fn look_at_shared(&mut self, now: Instant) {
        // Before a driver sleeps, it must have polled all streams.
        let count = if self.armed { self.shared.len() } else { self.shared.len().min(SHARED_MAX) };
        for _ in 0..count {
            self.shared_at = (self.shared_at + 1) % self.shared.len().max(1);
            let Some(&end) = self.shared.get(self.shared_at) else { return };
            let Some(line) = self.connections.get_mut(&end) else { continue };
            let Some(shared) = line.transport.shared_mut() else { continue };
            if line.blocked && shared.has_room() {
                line.blocked = false;
                self.nic.schedule(end);
            }
            if shared.is_readable() {
                self.read(end, false, now);
            }
        }
    }

    pub(super) fn shared_link(&self, end: &u32) -> Option<&SharedLink> {
        self.connections.get(end)?.transport.shared()
    }
}
