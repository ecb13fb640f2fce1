//! Queue pairs for datagrams: what they may do, and what is done to work that is posted.
//!
//! ```text
//! verbs          here
//! RESET, INIT    neither receives nor sends
//! RTR            receives
//! RTS            receives and sends
//! SQE            stopped: a send was wrong; it receives, and sends are flushed until its state is set anew
//! ERR            QpState::Error
//! ```
//!
//! Kind      a queue pair is for datagrams or for a stream, from when it is made.
//! State     in all but ERR its [`QpState`] is `Idle`: there is no stream that would make it anything else.

use super::super::work::Operation;
use super::super::{Desk, Event, Refusal};
use super::qp::{Post, Qp, QpState};
use kiban_wire::datagram::QP_MAX;

/// What a queue pair for datagrams may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DatagramState {
    /// Datagrams that come are taken.
    pub receives: bool,
    /// Work is taken, and leaves.
    pub sends: bool,
    /// A send was wrong: all others are flushed until the state is set anew.
    pub stopped: bool,
    /// The key that datagrams for it must have.
    pub qkey: u32,
}

impl DatagramState {
    /// Whether what is posted leaves.
    pub(in super::super) const fn goes(&self) -> bool {
        self.sends && !self.stopped
    }

    /// What is done with work that is posted.
    pub(in super::super) fn judge(&self, operation: &Operation) -> Result<Post, Refusal> {
        match operation {
            _ if self.stopped => Ok(Post::Flushed),
            _ if !self.sends => Err(Refusal::BadState(QpState::Idle)),
            Operation::Datagram { qp, .. } if *qp > QP_MAX => Err(Refusal::BadNumber),
            _ => Ok(Post::Goes),
        }
    }
}

impl Qp {
    /// The queue pair is over: what is posted is flushed.
    pub(in super::super) fn fail_datagrams(&mut self, desk: &mut Desk) {
        if self.state == QpState::Error {
            return;
        }
        self.state = QpState::Error;
        desk.event(Event::QpFailed { qp: self.number, reason: None });
        if self.attributes.srq.is_some() {
            desk.event(Event::LastReceive { qp: self.number });
        }
        self.flush(desk);
    }
}
