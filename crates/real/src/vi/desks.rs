//! Desks: hosts in other processes that use this NIC through rings in shared memory ([`kiban_board::queues`]).
//!
//! A host calls the door that [`super::Nic::serve`] opens, with memory of its own making: two rings and its arena. What it
//! posts is taken whenever the NIC is driven; when it ends, by whatever cause, all it had is taken back.

use super::core::Core;
use super::device::HostAddress;
use crate::attach::{ARENA_BYTES_MAX, layout};
use crate::clock::machine_nanos;
use crate::link::channel::{Channel, Door, Half};
use kiban_board::queues::Attachment;
use kiban_ground::Instant;
use kiban_ground::ring::{Consumer, Producer};
use kiban_stack::vi::Event;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

/// Hosts at most.
const HOSTS_MAX: usize = 64;
/// VIs of one host at most.
const VIS_MAX: usize = 64;

struct Desk {
    attachment: Attachment,
    channel: Channel,
    /// It broke a rule, or has gone.
    over: bool,
}

/// Where hosts attach, and those who have.
#[derive(Default)]
pub(crate) struct Desks {
    door: Option<Door>,
    halves: Vec<Half>,
    hosts: Vec<Desk>,
    /// Events that are nobody's here: the program's own.
    pub(super) events: VecDeque<Event>,
}

impl Desks {
    pub(crate) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    pub(crate) fn channels(&self) -> impl Iterator<Item = &Channel> {
        self.hosts.iter().map(|desk| &desk.channel)
    }
}

impl Core {
    /// Opens a door for hosts.
    pub(super) fn serve(&mut self, name: &str) -> io::Result<()> {
        let door = Door::open(&crate::attach::door_name(name)?)?;
        self.watch(door.as_fd(), false)?;
        self.desks.door = Some(door);
        Ok(())
    }

    /// The next event that is no attached host's.
    pub(crate) fn event(&mut self) -> Option<Event> {
        self.desks.events.pop_front().or_else(|| self.nic.event())
    }

    /// Hosts that call, hosts that have gone. Whether one has gone that still has to be heard.
    pub(super) fn look_for_hosts(&mut self) -> bool {
        while let Some(half) = self.desks.door.as_ref().and_then(Door::caller) {
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
            // What it posted before its end is taken first, as far as it goes.
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
        // The socket is watched since it called.
        self.rearm = true;
        // Refused: the channel closes, and the host sees that.
        if let Ok(attachment) = Attachment::new(&mut self.nic, work, done, memory.called(0), VIS_MAX) {
            self.desks.hosts.push(Desk { attachment, channel, over: false });
        }
    }

    /// Takes what hosts have posted, and tells them what has happened.
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
                // No address: this board's own.
                let host = match call.host.is_empty() {
                    true => Some(HostAddress::Loopback),
                    false => self.address().like(&call.host),
                };
                let path = host.and_then(|host| self.path_to(&host).ok());
                attachment.connect(&call, path, &mut self.nic, now);
            }
            match (taken, attachment.tell(&mut self.nic)) {
                // It may wait for what it is told, or for room in its work ring.
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
