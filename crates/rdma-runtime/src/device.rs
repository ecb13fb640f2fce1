//! The NIC of a context: its own, or that of a running board.

use super::board_nic::BoardNic;
use super::error::Error;
use super::linked_nic::{EndState, LinkedNic};
use kiban_base::Instant;
use kiban_os::turn::Machine;
use kiban_rdma::nic;
use kiban_rdma::rnic::{Completion, Event, ReceiveWork, SendWork};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// A NIC.
#[expect(clippy::large_enum_variant, reason = "each context has one, behind its lock")]
pub(crate) enum Device {
    /// A NIC of this context.
    Own(LinkedNic),
    /// The NIC of a running board.
    Board(BoardNic),
}

impl Device {
    #[inline]
    pub(super) fn poll(&mut self, cq: u32) -> Option<Completion> {
        match self {
            Device::Own(core) => core.nic.core.poll(cq).ok().flatten(),
            Device::Board(nic) => nic.poll(cq),
        }
    }

    #[inline]
    pub(super) fn post_send(&mut self, qp: u32, work: SendWork) -> Result<(), Error> {
        match self {
            Device::Own(core) => Ok(core.nic.core.post_send(qp, work)?),
            Device::Board(nic) => nic.post_send(qp, work),
        }
    }

    #[inline]
    pub(super) fn post_receive(&mut self, qp: u32, work: ReceiveWork) -> Result<(), Error> {
        match self {
            Device::Own(core) => Ok(core.nic.core.post_receive(qp, work)?),
            Device::Board(nic) => nic.post_receive(qp, work),
        }
    }

    pub(super) fn post_srq_receive(&mut self, srq: u32, work: ReceiveWork) -> Result<(), Error> {
        match self {
            Device::Own(core) => Ok(core.nic.core.post_srq_receive(srq, work)?),
            Device::Board(nic) => nic.post_srq_receive(srq, work),
        }
    }

    pub(super) fn end_state(&mut self, end: u32) -> Option<&mut EndState> {
        match self {
            Device::Own(core) => core.end_states.get_mut(&end),
            Device::Board(nic) => nic.end_states.get_mut(&end),
        }
    }

    /// Returns the next request at a listener, and the peer's address if it is known.
    pub(super) fn request(&mut self, listener: u32) -> Option<(nic::Request, Option<SocketAddr>)> {
        match self {
            Device::Own(core) => core.request(listener),
            Device::Board(nic) => nic.request(listener),
        }
    }

    /// Returns whether the board below or behind the NIC has ended.
    pub(super) fn board_has_gone(&self) -> bool {
        match self {
            Device::Own(core) => core.board_has_gone(),
            Device::Board(nic) => nic.has_gone,
        }
    }

    pub(super) fn unlisten(&mut self, listener: u32, now: Instant) {
        match self {
            Device::Own(core) => core.unlisten(listener, now),
            Device::Board(nic) => nic.unlisten(listener),
        }
    }

    pub(super) fn release(&mut self, end: u32, now: Instant) {
        match self {
            Device::Own(core) => core.release(end, now),
            Device::Board(nic) => nic.release(end),
        }
    }

    pub(super) fn addresses(&self, end: u32) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Device::Own(core) => core.addresses(end),
            Device::Board(nic) => nic.addresses(end),
        }
    }

    pub(super) fn events(&mut self) -> &mut VecDeque<Event> {
        match self {
            Device::Own(core) => &mut core.events,
            Device::Board(nic) => &mut nic.events,
        }
    }

    pub(super) fn cq_events(&mut self) -> &mut VecDeque<u32> {
        match self {
            Device::Own(core) => &mut core.cq_events,
            Device::Board(nic) => &mut nic.cq_events,
        }
    }

    fn machine(&mut self) -> &mut dyn Machine {
        match self {
            Device::Own(core) => core,
            Device::Board(nic) => nic,
        }
    }
}

impl Machine for Device {
    #[inline]
    fn drive(&mut self, now: Instant) {
        match self {
            Device::Own(core) => core.drive(now),
            Device::Board(nic) => nic.drive(now),
        }
    }

    #[inline]
    fn settle(&mut self, now: Instant) {
        match self {
            Device::Own(core) => core.settle(now),
            Device::Board(nic) => nic.settle(now),
        }
    }

    #[inline]
    fn flush(&mut self, now: Instant) {
        match self {
            Device::Own(core) => core.flush(now),
            Device::Board(nic) => nic.flush(now),
        }
    }

    #[inline]
    fn take_progress(&mut self) -> bool {
        match self {
            Device::Own(core) => core.take_progress(),
            Device::Board(nic) => nic.take_progress(),
        }
    }

    #[inline]
    fn deadline(&self) -> Instant {
        match self {
            Device::Own(core) => core.deadline(),
            Device::Board(nic) => nic.deadline(),
        }
    }

    #[inline]
    fn has_more(&self) -> bool {
        match self {
            Device::Own(core) => core.has_more(),
            Device::Board(nic) => nic.has_more(),
        }
    }

    fn arm(&mut self) {
        self.machine().arm();
    }

    fn disarm(&mut self) -> Option<u64> {
        self.machine().disarm()
    }

    fn after_sleep(&mut self) {
        self.machine().after_sleep();
    }
}
