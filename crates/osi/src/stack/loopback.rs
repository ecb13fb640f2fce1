//! The internal loopback of paper \[5\] (docs/reproduce-osi-board.md): two connections on one board, joined
//! below the transport layer.
//!
//! Purpose    runs the whole stack without a network: NSDUs move between the two queues as ropes.
//! Limits     none in the loopback itself; the sender must limit the data that waits for the other end to
//!            take it ([`NetworkService::waiting_bytes`]).

use super::below::NetworkService;
use crate::network::{Indication, Origin, Request};
use alloc::collections::VecDeque;
use kiban_base::Instant;

/// One end of a loopback.
#[derive(Debug, Default)]
pub struct Loop {
    out: VecDeque<Request>,
    up: VecDeque<Indication>,
    /// Bytes that this end has sent and the other end has not yet taken.
    out_bytes: usize,
    /// Bytes that this end has taken, but that have not yet been subtracted from the other end's `out_bytes`.
    taken_bytes: usize,
    is_open: bool,
}

impl Loop {
    /// Creates an end without a connection.
    pub fn new() -> Loop {
        Loop::default()
    }

    /// Exchanges pending units between the two ends. Returns true if any unit was moved.
    pub fn join(one: &mut Loop, other: &mut Loop) -> bool {
        Loop::pass(one, other) | Loop::pass(other, one)
    }

    fn pass(from: &mut Loop, to: &mut Loop) -> bool {
        from.out_bytes -= core::mem::take(&mut to.taken_bytes).min(from.out_bytes);
        let mut moved = false;
        while let Some(request) = from.out.pop_front() {
            moved = true;
            match request {
                Request::Connect => to.up.push_back(Indication::Connected),
                Request::Accept => {
                    (from.is_open, to.is_open) = (true, true);
                    to.up.push_back(Indication::Connected);
                }
                Request::Data(unit) if to.is_open => to.up.push_back(Indication::Data(unit)),
                Request::Data(_) => {}
                Request::Disconnect { reason } => {
                    (from.is_open, to.is_open) = (false, false);
                    to.up.push_back(Indication::Disconnected { origin: Origin::User, reason });
                }
            }
        }
        moved
    }
}

impl NetworkService for Loop {
    fn request(&mut self, request: Request, _now: Instant) {
        if let Request::Data(unit) = &request {
            self.out_bytes += unit.len();
        }
        self.out.push_back(request);
    }

    fn poll(&mut self, _now: Instant) -> Option<Indication> {
        let indication = self.up.pop_front()?;
        if let Indication::Data(unit) = &indication {
            self.taken_bytes += unit.len();
        }
        Some(indication)
    }

    fn push(&mut self, _now: Instant) -> bool {
        false
    }

    fn waiting_bytes(&self) -> usize {
        self.out_bytes
    }

    fn deadline(&self) -> Instant {
        Instant::NEVER
    }

    fn settle(&mut self, _now: Instant) {}
}
