//! A port: an interface or an XOT connection, and its channels' circuits.

use super::CircuitId;
use crate::x25::xot::{CHANNEL, Xot};
use crate::x25::{Indication, Interface, Layer, Misuse, Request};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use kiban_base::{Instant, Rope};

/// The number of a port; numbers are not reused.
pub type PortId = u64;

#[derive(Debug)]
pub(super) enum Kind {
    Interface(Box<Interface>),
    Xot(Box<Xot>),
}

#[derive(Debug)]
pub(super) struct Port {
    pub(super) kind: Kind,
    /// The circuits of the channels in use.
    pub(super) circuits: BTreeMap<u16, CircuitId>,
    /// Whether an XOT connection has had its call.
    pub(super) is_used: bool,
    /// Whether [`super::Event::Finished`] was reported for the XOT connection.
    pub(super) is_finished: bool,
}

impl Port {
    pub(super) fn new(kind: Kind) -> Port {
        Port { kind, circuits: BTreeMap::new(), is_used: false, is_finished: false }
    }

    pub(super) fn layer(&self) -> &Layer {
        match &self.kind {
            Kind::Interface(interface) => interface.layer(),
            Kind::Xot(xot) => xot.packet_layer(),
        }
    }

    pub(super) fn request(&mut self, request: Request, now: Instant) -> Result<(), Misuse> {
        match &mut self.kind {
            Kind::Interface(interface) => interface.layer_mut().request(request, now),
            Kind::Xot(xot) => xot.request(request, now),
        }
    }

    /// Returns a channel on which to call.
    pub(super) fn free_channel(&self) -> Option<u16> {
        match &self.kind {
            Kind::Interface(interface) => interface.layer().free_channel(),
            Kind::Xot(_) => (!self.is_used).then_some(CHANNEL),
        }
    }

    pub(super) fn arrive(&mut self, bytes: Rope, now: Instant) {
        match &mut self.kind {
            Kind::Interface(interface) => interface.arrive(bytes, now),
            Kind::Xot(xot) => xot.arrive(bytes, now),
        }
    }

    pub(super) fn poll_down(&mut self, now: Instant) -> Option<Rope> {
        match &mut self.kind {
            Kind::Interface(interface) => interface.poll_frame(now),
            Kind::Xot(xot) => xot.poll_down(),
        }
    }

    /// Returns the indication at a place of [`Layer::next_up`].
    pub(super) fn poll_up_at(&mut self, place: usize) -> Option<Indication> {
        match &mut self.kind {
            Kind::Interface(interface) => interface.layer_mut().poll_up_at(place),
            Kind::Xot(xot) => xot.poll_up_at(place),
        }
    }

    pub(super) fn down(&mut self, now: Instant) {
        match &mut self.kind {
            Kind::Interface(interface) => interface.line_down(now),
            Kind::Xot(xot) => xot.closed(now),
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        match &self.kind {
            Kind::Interface(interface) => interface.deadline(),
            Kind::Xot(xot) => xot.deadline(),
        }
    }

    pub(super) fn settle(&mut self, now: Instant) {
        match &mut self.kind {
            Kind::Interface(interface) => interface.settle(now),
            Kind::Xot(xot) => xot.settle(now),
        }
    }

    /// Returns whether an XOT connection has nothing more to carry, so that it should be closed.
    pub(super) fn is_over(&self) -> bool {
        match &self.kind {
            Kind::Interface(_) => false,
            Kind::Xot(xot) => {
                let is_idle = self.circuits.is_empty() && xot.is_idle();
                is_idle && (self.is_used || xot.is_broken() || xot.refusal().is_some())
            }
        }
    }
}
