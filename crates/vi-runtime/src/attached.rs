//! Hosts in other processes that use this NIC through rings in shared memory ([`kiban_vi::queues`]).
//!
//! A host connects to the listener that [`super::Nic::serve`] opens, with memory that holds two rings and
//! its arena. Its posted entries are processed whenever the NIC is driven; when it ends for any reason,
//! everything that it owned is released.

use kiban_os::channel::{Channel, ChannelListener, PendingChannel};
use kiban_vi::Event;
use kiban_vi::queues::Attachment;
use std::collections::VecDeque;

/// An attached host.
pub(super) struct AttachedHost {
    pub(super) attachment: Attachment,
    pub(super) channel: Channel,
    /// The host violated the ring's protocol or has ended.
    pub(super) over: bool,
}

/// The listener to which hosts attach, and the attached hosts.
#[derive(Default)]
pub(crate) struct HostTable {
    pub(super) listener: Option<ChannelListener>,
    pub(super) halves: Vec<PendingChannel>,
    pub(super) hosts: Vec<AttachedHost>,
    /// Events for the program itself, which concern no attached host.
    pub(super) events: VecDeque<Event>,
}

impl HostTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    pub(crate) fn channels(&self) -> impl Iterator<Item = &Channel> {
        self.hosts.iter().map(|host| &host.channel)
    }
}
