//! Datagram queue pairs: their states, and the handling of posted work.
//!
//! ```text
//! verbs          here
//! RESET, INIT    neither receives nor sends
//! RTR            receives
//! RTS            receives and sends
//! SQE            stopped by a send error: receives, and flushes sends until its state is set again
//! ERR            QpState::Error
//! ```
//!
//! Kind   a queue pair is created either for datagrams or for a stream, and its kind never changes.
//! State  in every state except ERR, the [`QpState`] of a datagram queue pair is `Idle`, because there is no
//!        stream to change it.

use super::super::error::RequestError;
use super::super::work::Operation;
use super::state::{Post, QpState};
use crate::wire::datagram::QP_MAX;

/// The state of a datagram queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DatagramState {
    /// Whether incoming datagrams are accepted.
    pub receives: bool,
    /// Whether work requests are accepted and sent.
    pub sends: bool,
    /// A send error has stopped the send queue: sends are flushed until the host sets the state again.
    pub stopped: bool,
    /// The Q_Key that incoming datagrams must have.
    pub qkey: u32,
}

impl DatagramState {
    /// Returns whether posted work is sent.
    pub(in super::super) const fn goes(&self) -> bool {
        self.sends && !self.stopped
    }

    /// Decides whether posted work is refused, flushed or queued.
    pub(in super::super) fn validate_post(&self, operation: &Operation) -> Result<Post, RequestError> {
        match operation {
            _ if self.stopped => Ok(Post::Flushed),
            _ if !self.sends => Err(RequestError::BadState(QpState::Idle)),
            Operation::Datagram { qp, .. } if *qp > QP_MAX => Err(RequestError::BadNumber),
            _ => Ok(Post::Queued),
        }
    }
}
