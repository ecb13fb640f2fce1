//! The state of one connection, or of one service id resolution.

use crate::wire::roce::cm::Message;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use kiban_base::Instant;

/// The state, as in the table of the [module](super).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    ReqSent,
    RepReceived,
    ReqReceived,
    RepSent,
    Established,
    DreqSent,
    TimeWait,
    SidrReqSent,
    SidrReqReceived,
}

impl State {
    /// Returns whether a peer's request holds a slot in this state.
    pub(super) const fn is_pending(self) -> bool {
        matches!(self, State::ReqReceived | State::RepSent | State::SidrReqReceived)
    }
}

/// A peer's request: its address, its communication or request id, and whether it is a SIDR_REQ.
pub(super) type RequestKey = (SocketAddr, u32, bool);
/// A peer's queue pair: its address, its GUID and its number.
pub(super) type QpKey = (SocketAddr, u64, u32);

/// How long to wait for an answer, and how often to retransmit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Time between two transmissions.
    pub(super) interval: Duration,
    /// Number of retransmissions.
    pub(super) retries: u8,
    /// Time in TimeWait.
    pub(super) time_wait: Duration,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    /// Whether a peer's request began it.
    pub(super) is_passive: bool,
    pub(super) peer: SocketAddr,
    pub(super) local: IpAddr,
    /// The peer's communication id, once it is known.
    pub(super) remote_id: Option<u32>,
    /// The request of a peer that began it.
    pub(super) request: Option<RequestKey>,
    /// The peer's queue pair, once it is known.
    pub(super) remote_qp: Option<QpKey>,
    /// The local queue pair.
    pub(super) qpn: u32,
    /// Whether it connects an XRC initiator and a target.
    pub(super) is_xrc: bool,
    /// The service id of a SIDR_REQ.
    pub(super) service_id: u64,
    /// The transaction id of the message that was sent last.
    pub(super) transaction: u64,
    /// The message that was sent last: it is retransmitted, or answers duplicates.
    pub(super) sent: Option<Message>,
    pub(super) patience: Patience,
    pub(super) retries_left: u8,
    /// Whether an MRA has extended the current wait.
    pub(super) is_extended: bool,
    /// Number of times that its request was repeated because the peer had no listener.
    pub(super) refusals: u8,
    /// When to retransmit, to give up, or to leave TimeWait.
    pub(super) deadline: Option<Instant>,
    /// The caller is told when TimeWait ends.
    pub(super) was_connected: bool,
    /// The caller has aborted it: it causes no more events.
    pub(super) is_aborted: bool,
}

impl Connection {
    /// Returns a connection of which only the two addresses are known.
    pub(super) fn new(
        state: State,
        peer: SocketAddr,
        local: IpAddr,
        transaction: u64,
        patience: Patience,
    ) -> Connection {
        Connection {
            state,
            is_passive: false,
            peer,
            local,
            remote_id: None,
            request: None,
            remote_qp: None,
            qpn: 0,
            is_xrc: false,
            service_id: 0,
            transaction,
            sent: None,
            patience,
            retries_left: 0,
            is_extended: false,
            refusals: 0,
            deadline: None,
            was_connected: false,
            is_aborted: false,
        }
    }

    /// Enters a state in which `sent` is retransmitted until the peer answers.
    pub(super) fn await_answer(&mut self, state: State, now: Instant) {
        self.state = state;
        self.retries_left = self.patience.retries;
        self.is_extended = false;
        self.deadline = Some(now + self.patience.interval);
    }

    /// Enters a state without a timer.
    pub(super) fn rest(&mut self, state: State) {
        self.state = state;
        self.deadline = None;
    }

    /// Enters TimeWait, in which `answer` answers duplicates.
    pub(super) fn end(&mut self, answer: Option<Message>, now: Instant) {
        self.state = State::TimeWait;
        self.sent = answer;
        self.deadline = Some(now + self.patience.time_wait);
    }
}
