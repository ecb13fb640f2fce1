//! Shared memory in place of a socket, where both ends are processes of one host and user.
//!
//! Offer     who connects opens a door, who is connected to calls ([`shared`]). Both go on by the socket meanwhile; what follows the
//!           start frames goes through the memory if both have it by then.
//! Look      nobody announces what comes there to a driver that is awake: it looks at some streams a drive.

use super::carrier::Carrier;
use super::file::File;
use super::line::Offer;
use super::{Alarm, Core};
use crate::link::shared::{self, SharedLink};
use kiban_ground::Instant;
use rustix::event::epoll::{self, EventFlags};
use std::cmp::Reverse;
use std::mem;
use std::os::fd::AsFd;
use std::time::Duration;

/// How long a peer of this host may take to answer an offer of shared memory.
const OFFER: Duration = Duration::from_secs(1);
/// Streams in shared memory that one drive looks at.
const SHARED_MAX: usize = 64;

impl Core {
    /// From now on streams between processes of one host and user go through memory that they share.
    pub(crate) fn share_memory(&mut self) {
        self.shares = true;
    }

    /// Calls the peer of an end, if it is on this host and can share memory: whether to read from the socket now.
    pub(super) fn call_peer(&mut self, end: u32, now: Instant) -> bool {
        let Some(line) = self.lines.get_mut(&end) else { return false };
        let Some(link) = line.carrier.socket() else { return true };
        if !link.has_something() {
            return false;
        }
        line.offer = Offer::None;
        let Ok((own, peer)) = link.addresses() else { return true };
        let Ok(half) = shared::call(peer, own) else { return true };
        if epoll::add(&self.epoll, half.as_fd(), File::Offer(end).data(), EventFlags::IN).is_err() {
            return true;
        }
        line.offer = Offer::Calling(half);
        self.alarms.push(Reverse((now + OFFER, Alarm::Offer(end))));
        self.set_interest(end);
        false
    }

    /// An offer of shared memory goes on.
    pub(super) fn on_offer(&mut self, end: u32) {
        let Some(line) = self.lines.get_mut(&end) else { return };
        let (mut half, calling) = match mem::replace(&mut line.offer, Offer::None) {
            Offer::Open(door) => match door.caller() {
                Some(half) => {
                    let data = File::Offer(end).data();
                    let _ = epoll::add(&self.epoll, half.as_fd(), data, EventFlags::IN);
                    (half, false)
                }
                None => return line.offer = Offer::Open(door),
            },
            Offer::Called(half) => (half, false),
            Offer::Calling(half) => (half, true),
            offer => return line.offer = offer,
        };
        line.offer = match SharedLink::complete(&mut half) {
            Ok(Some(link)) => {
                // Its file is watched again when it takes the socket's place.
                let _ = epoll::modify(&self.epoll, link.file(), File::Offer(end).data(), EventFlags::empty());
                Offer::Ready(link)
            }
            Ok(None) if calling => Offer::Calling(half),
            Ok(None) => Offer::Called(half),
            Err(_) => Offer::None,
        };
        self.set_interest(end);
        self.nic.stir(end);
        self.more = true;
    }

    /// A peer did not answer: the socket stays.
    pub(super) fn withdraw_offer(&mut self, end: u32) {
        let Some(line) = self.lines.get_mut(&end) else { return };
        if matches!(line.offer, Offer::Calling(_)) {
            line.offer = Offer::None;
            self.set_interest(end);
            self.more = true;
        }
    }

    /// Shared memory takes the place of an end's socket, if both ends have it: whether.
    pub(super) fn change_over(&mut self, end: u32) -> bool {
        if !self.shares || !self.nic.stands(end) {
            return false;
        }
        let Some(line) = self.lines.get_mut(&end) else { return false };
        let Offer::Ready(mut link) = mem::replace(&mut line.offer, Offer::None) else { return false };
        if link.is_hung_up() {
            return false;
        }
        let Carrier::Socket { link: socket, shared } = &mut line.carrier else { return false };
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

    /// Looks at streams in shared memory.
    pub(super) fn look_at_shared(&mut self, now: Instant) {
        // Who is about to sleep has to have looked at all.
        let count = if self.armed { self.shared.len() } else { self.shared.len().min(SHARED_MAX) };
        for _ in 0..count {
            self.shared_at = (self.shared_at + 1) % self.shared.len().max(1);
            let Some(&end) = self.shared.get(self.shared_at) else { return };
            let Some(line) = self.lines.get_mut(&end) else { continue };
            let Some(shared) = line.carrier.shared_mut() else { continue };
            if line.blocked && shared.has_room() {
                line.blocked = false;
                self.nic.stir(end);
            }
            if shared.has_news() {
                self.read(end, false, now);
            }
        }
    }

    pub(super) fn shared_link(&self, end: &u32) -> Option<&SharedLink> {
        self.lines.get(end)?.carrier.shared()
    }
}
