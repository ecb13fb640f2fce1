//! The states of a session (RFC 9293 §3.3.2). LISTEN is no session here: a listener makes sessions.

/// Where a session stands between its first SYN and its last timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum State {
    /// Our SYN is out.
    SynSent,
    /// Their SYN has come, ours is out.
    SynReceived,
    /// Both directions are open.
    Established,
    /// We have finished; neither our FIN is acknowledged nor theirs here.
    FinWait1,
    /// Our FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer has finished; we may still send.
    CloseWait,
    /// Both have finished; our FIN is not acknowledged yet.
    Closing,
    /// The peer had finished, then we; our FIN is not acknowledged yet.
    LastAck,
    /// All is said; the name is kept so that old segments find it.
    TimeWait,
    /// Nothing is left.
    Closed,
}

impl State {
    /// Whether the peer may still send us data.
    #[inline]
    pub(super) fn receives(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Whether the host may still hand us data.
    #[inline]
    pub(super) fn takes_data(self) -> bool {
        matches!(self, State::SynSent | State::SynReceived | State::Established | State::CloseWait)
    }

    /// Whether the connection has been made.
    #[inline]
    pub(super) fn is_synchronised(self) -> bool {
        !matches!(self, State::SynSent | State::SynReceived | State::Closed)
    }

    /// Whether our FIN is still to be acknowledged, sent or not.
    #[inline]
    pub(super) fn owes_finish(self) -> bool {
        matches!(self, State::FinWait1 | State::Closing | State::LastAck)
    }

    /// After the host has finished sending.
    pub(super) fn on_finish(self) -> State {
        match self {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            other => other,
        }
    }

    /// After the peer has acknowledged our FIN.
    pub(super) fn on_finish_acknowledged(self) -> State {
        match self {
            State::FinWait1 => State::FinWait2,
            State::Closing => State::TimeWait,
            State::LastAck => State::Closed,
            other => other,
        }
    }

    /// After the peer's FIN has come in order.
    pub(super) fn on_peer_finish(self) -> State {
        match self {
            State::SynReceived | State::Established => State::CloseWait,
            State::FinWait1 => State::Closing,
            State::FinWait2 => State::TimeWait,
            other => other,
        }
    }
}
