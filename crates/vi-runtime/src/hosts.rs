//! Serves the hosts attached to the NIC (see [attached](super::attached)).

use super::attached::AttachedHost;
use super::device::HostAddress;
use super::linked_nic::LinkedNic;
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

impl LinkedNic {
    /// Opens a listener for hosts.
    pub(super) fn serve(&mut self, name: &str) -> io::Result<()> {
        let listener = ChannelListener::open(&crate::attach::listener_name(name)?)?;
        self.watch(listener.as_fd(), false)?;
        self.hosts.listener = Some(listener);
        Ok(())
    }

    /// Returns the next event that concerns no attached host.
    pub(crate) fn event(&mut self) -> Option<Event> {
        self.hosts.events.pop_front().or_else(|| self.nic.event())
    }

    /// Handles hosts that attach and hosts that have ended. Returns whether a host that has ended still has
    /// entries to be processed.
    pub(super) fn look_for_hosts(&mut self) -> bool {
        while let Some(half) = self.hosts.listener.as_ref().and_then(ChannelListener::try_accept) {
            if self.hosts.hosts.len() + self.hosts.halves.len() < HOSTS_MAX
                && self.watch(half.as_fd(), true).is_ok()
            {
                self.hosts.halves.push(half);
            }
        }
        for mut half in std::mem::take(&mut self.hosts.halves) {
            let (_, _, arena, _) = layout();
            match half.complete(arena..=arena + ARENA_BYTES_MAX) {
                Ok(None) => self.hosts.halves.push(half),
                Ok(Some(channel)) => self.attach(channel),
                Err(_) => {}
            }
        }
        let mut again = false;
        for attached in self.hosts.hosts.iter_mut().filter(|attached| attached.channel.is_gone()) {
            // First process as many as possible of the entries that the host posted before it ended.
            match attached.attachment.is_ready() && !attached.attachment.is_full() {
                true => again = true,
                false => attached.over = true,
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
        // The socket has been watched by epoll since the call, but the bell is not armed yet.
        self.rearm = true;
        // On failure, the channel closes, which the host notices.
        if let Ok(attachment) = Attachment::new(&mut self.nic, work, done, memory.with_address(0), VIS_MAX) {
            self.hosts.hosts.push(AttachedHost { attachment, channel, over: false });
        }
    }

    /// Executes the entries that hosts have posted, and sends indications to the hosts.
    pub(super) fn serve_hosts(&mut self, now: Instant) {
        while let Some(event) = self.nic.event() {
            let taken = self.hosts.hosts.iter_mut().any(|attached| attached.attachment.on_event(event));
            if !taken && self.hosts.events.len() < self.nic.config().events_max {
                self.hosts.events.push_back(event);
            }
        }
        let mut hosts = std::mem::take(&mut self.hosts.hosts);
        for AttachedHost { attachment, channel, over } in &mut hosts {
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
            match (taken, attachment.deliver_indications(&mut self.nic)) {
                // The host may be waiting for an indication, or for room in its work ring.
                (Ok(taken), Ok(has_indications)) if has_indications || taken > 0 => {
                    self.took = true;
                    channel.ring(machine_nanos);
                }
                (Ok(_), Ok(_)) => {}
                _ => *over = true,
            }
        }
        self.hosts.hosts = hosts;
        self.end_desks();
    }

    fn end_desks(&mut self) {
        if self.hosts.hosts.iter().any(|attached| attached.over) {
            for attached in std::mem::take(&mut self.hosts.hosts) {
                if attached.over {
                    attached.attachment.end(&mut self.nic)
                } else {
                    self.hosts.hosts.push(attached)
                }
            }
        }
    }
}
