//! The states of a session (RFC 9293 §3.3.2). LISTEN is not among them, because a listener is not a session.

/// The state of a session, from its first SYN to the end of TIME-WAIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum State {
    /// Our SYN has been sent.
    SynSent,
    /// The peer's SYN has arrived; our SYN is not acknowledged yet.
    SynReceived,
    /// Both directions are open.
    Established,
    /// We have finished sending, and our FIN is not acknowledged. The peer has not finished.
    FinWait1,
    /// Our FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer has finished sending; we may still send.
    CloseWait,
    /// Both sides have finished; our FIN is not acknowledged yet.
    Closing,
    /// The peer finished first, then we did; our FIN is not acknowledged yet.
    LastAck,
    /// Both FINs are acknowledged. The 4-tuple is kept so that old segments match it.
    TimeWait,
    /// The session has ended.
    Closed,
}

impl State {
    /// Returns whether the peer may still send data.
    #[inline]
    pub(super) fn receives(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Returns whether the host may still write data.
    #[inline]
    pub(super) fn takes_data(self) -> bool {
        matches!(self, State::SynSent | State::SynReceived | State::Established | State::CloseWait)
    }

    /// Returns whether the connection is synchronised (RFC 9293 §3.3.2: both SYNs acknowledged).
    #[inline]
    pub(super) fn is_synchronised(self) -> bool {
        !matches!(self, State::SynSent | State::SynReceived | State::Closed)
    }

    /// Returns whether our FIN, sent or not, has yet to be acknowledged.
    #[inline]
    pub(super) fn owes_finish(self) -> bool {
        matches!(self, State::FinWait1 | State::Closing | State::LastAck)
    }

    /// Returns the state after the host has finished sending.
    pub(super) fn on_finish(self) -> State {
        match self {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            other => other,
        }
    }

    /// Returns the state after the peer has acknowledged our FIN.
    pub(super) fn on_finish_acknowledged(self) -> State {
        match self {
            State::FinWait1 => State::FinWait2,
            State::Closing => State::TimeWait,
            State::LastAck => State::Closed,
            other => other,
        }
    }

    /// Returns the state after the peer's FIN has arrived in order.
    pub(super) fn on_peer_finish(self) -> State {
        match self {
            State::SynReceived | State::Established => State::CloseWait,
            State::FinWait1 => State::Closing,
            State::FinWait2 => State::TimeWait,
            other => other,
        }
    }
}
