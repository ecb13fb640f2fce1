//! Serves the hosts attached to the NIC (see [desks](super::desks)).

use super::core::Core;
use super::desks::Desk;
use super::device::HostAddress;
use crate::attach::{ARENA_BYTES_MAX, layout};
use kiban_base::Instant;
use kiban_base::ring::{Consumer, Producer};
use kiban_os::channel::{Channel, ChannelListener};
use kiban_os::clock::machine_nanos;
use kiban_vi::Event;
use kiban_vi::queues::Attachment;
use std::io;
use std::os::fd::AsFd;

/// Maximum attached hosts.
const HOSTS_MAX: usize = 64;
/// Maximum VIs per host.
const VIS_MAX: usize = 64;

impl Core {
    /// Opens a door for hosts.
    pub(super) fn serve(&mut self, name: &str) -> io::Result<()> {
        let door = ChannelListener::open(&crate::attach::door_name(name)?)?;
        self.watch(door.as_fd(), false)?;
        self.desks.door = Some(door);
        Ok(())
    }

    /// Returns the next event that concerns no attached host.
    pub(crate) fn event(&mut self) -> Option<Event> {
        self.desks.events.pop_front().or_else(|| self.nic.event())
    }

    /// Handles hosts that attach and hosts that have gone. Returns whether one that has gone still has
    /// entries to process.
    pub(super) fn look_for_hosts(&mut self) -> bool {
        while let Some(half) = self.desks.door.as_ref().and_then(ChannelListener::try_accept) {
            if self.desks.hosts.len() + self.desks.halves.len() < HOSTS_MAX
                && self.watch(half.as_fd(), true).is_ok()
            {
                self.desks.halves.push(half);
            }
        }
        for mut half in std::mem::take(&mut self.desks.halves) {
            let (_, _, arena, _) = layout();
            match half.complete(arena..=arena + ARENA_BYTES_MAX) {
                Ok(None) => self.desks.halves.push(half),
                Ok(Some(channel)) => self.attach(channel),
                Err(_) => {}
            }
        }
        let mut again = false;
        for desk in self.desks.hosts.iter_mut().filter(|desk| desk.channel.is_gone()) {
            // Entries posted before its end are processed first, as far as possible.
            match desk.attachment.is_ready() && !desk.attachment.is_full() {
                true => again = true,
                false => desk.over = true,
            }
        }
        self.end_desks();
        again
    }

    fn attach(&mut self, channel: Channel) {
        let (work, done, arena, shapes) = layout();
        let region = channel.region();
        let length = region.len() - arena;
        let memory = region.part(region.address() + arena as u64, length).expect("the channel is so long");
        let work = Consumer::new(region, work, shapes.0);
        let done = Producer::new(region, done, shapes.1);
        // The socket has been watched since the call.
        self.rearm = true;
        // On failure the channel closes, and the host notices that.
        if let Ok(attachment) = Attachment::new(&mut self.nic, work, done, memory.with_address(0), VIS_MAX) {
            self.desks.hosts.push(Desk { attachment, channel, over: false });
        }
    }

    /// Executes the entries that hosts have posted, and sends them indications.
    pub(super) fn serve_hosts(&mut self, now: Instant) {
        while let Some(event) = self.nic.event() {
            let taken = self.desks.hosts.iter_mut().any(|desk| desk.attachment.on_event(event));
            if !taken && self.desks.events.len() < self.nic.config().events_max {
                self.desks.events.push_back(event);
            }
        }
        let mut hosts = std::mem::take(&mut self.desks.hosts);
        for Desk { attachment, channel, over } in &mut hosts {
            let taken = if attachment.is_ready() { attachment.drain(&mut self.nic, now) } else { Ok(0) };
            while let Some(call) = attachment.call() {
                // An empty address means this NIC.
                let host = match call.host.is_empty() {
                    true => Some(HostAddress::Loopback),
                    false => self.address().like(&call.host),
                };
                let path = host.and_then(|host| self.path_to(&host).ok());
                attachment.connect(&call, path, &mut self.nic, now);
            }
            match (taken, attachment.tell(&mut self.nic)) {
                // It may wait for an indication, or for room in its work ring.
                (Ok(taken), Ok(told)) if told || taken > 0 => {
                    self.took = true;
                    channel.ring(machine_nanos);
                }
                (Ok(_), Ok(_)) => {}
                _ => *over = true,
            }
        }
        self.desks.hosts = hosts;
        self.end_desks();
    }

    fn end_desks(&mut self) {
        if self.desks.hosts.iter().any(|desk| desk.over) {
            for desk in std::mem::take(&mut self.desks.hosts) {
                if desk.over { desk.attachment.end(&mut self.nic) } else { self.desks.hosts.push(desk) }
            }
        }
    }
}
