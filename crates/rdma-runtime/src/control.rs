//! Requests that create, change or destroy an object, on a NIC of the context's own or on that of a board.

use super::board_nic::{BoardNic, Door};
use super::device::Device;
use super::linked_nic::LinkedNic;
use super::{Context, Error, Queue, RequestError};
use kiban_base::Instant;
use kiban_rdma::hif::{Answer, Request};
use std::time::Duration;

/// How long a board may take to reply. It replies at its next turn unless it has stopped.
const REPLY: Duration = Duration::from_secs(10);

impl Context {
    /// Returns the way to the board whose NIC this context uses, if it uses one.
    pub(super) fn door(&self) -> Option<&Door> {
        self.door.as_deref()
    }

    /// Works on the NIC of this context, which is not that of a board.
    pub(super) fn own<T, E: Into<Error>>(
        &self,
        work: impl FnOnce(&mut LinkedNic, Instant) -> Result<T, E>,
    ) -> Result<T, Error> {
        self.turn.work(|device, now| match device {
            Device::Own(core) => work(core, now).map_err(Into::into),
            Device::Board(_) => Err(RequestError::OtherKind.into()),
        })
    }

    /// Executes a request: `own` on a NIC of this context, `request` on that of a board. `taken` records the
    /// board's answer here.
    pub(super) fn control<E: Into<Error>>(
        &self,
        own: impl FnOnce(&mut LinkedNic, Instant) -> Result<u32, E>,
        request: impl FnOnce() -> Request,
        taken: impl FnOnce(&mut BoardNic, u32),
    ) -> Result<u32, Error> {
        if self.door.is_none() {
            return self.own(own);
        }
        let number = match self.ask(&request())? {
            Answer::Number(number) => number,
            _ => 0,
        };
        self.with_board(|nic| taken(nic, number));
        Ok(number)
    }

    /// Works on the NIC of a board, if this context uses one.
    pub(super) fn with_board<T>(&self, work: impl FnOnce(&mut BoardNic) -> T) -> Option<T> {
        self.turn.work(|device, _| match device {
            Device::Board(nic) => Some(work(nic)),
            Device::Own(_) => None,
        })
    }

    /// Sends a request to the board and waits for the reply.
    pub(super) fn ask(&self, request: &Request) -> Result<Answer, Error> {
        let asked = self.with_board(|nic| nic.ask(request));
        let number = asked.unwrap_or(Err(RequestError::OtherKind.into()))?;
        let look = |device: &mut Device| match device {
            Device::Board(nic) => nic.reply(number),
            Device::Own(_) => None,
        };
        let reply = self.turn.wait(Queue::Control, None, REPLY, look);
        if reply.is_err() {
            self.with_board(|nic| nic.forget_reply(number));
        }
        reply?
    }
}
