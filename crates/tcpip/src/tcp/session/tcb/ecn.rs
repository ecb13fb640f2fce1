//! ECN state of one session.

use crate::wire::tcp::Sequence;

/// The ECN state of one session.
#[derive(Debug)]
pub(in crate::tcp::session) struct EcnState {
    /// Whether every SYN that we sent asked for ECN, and at least one was sent.
    pub(in crate::tcp::session) asks: bool,
    /// Whether both ends use ECN.
    pub(in crate::tcp::session) is_on: bool,
    /// Whether our ACKs carry ECE.
    pub(in crate::tcp::session) echoes: bool,
    /// Whether the next new data carries CWR.
    pub(in crate::tcp::session) cwr_due: bool,
    /// Highest byte sent when the window was last reduced, for any reason.
    pub(in crate::tcp::session) reduced_at: Sequence,
    /// Highest byte sent when an ECE last reduced the window, until the window is reduced for a loss.
    pub(in crate::tcp::session) echo_reduced_at: Option<Sequence>,
}

impl EcnState {
    pub(in crate::tcp::session) fn new(initial: Sequence) -> EcnState {
        EcnState {
            asks: false,
            is_on: false,
            echoes: false,
            cwr_due: false,
            reduced_at: initial,
            echo_reduced_at: None,
        }
    }

    /// Moves sequence numbers kept for comparison along with the cumulative acknowledgement.
    #[inline]
    pub(in crate::tcp::session) fn on_acknowledged(&mut self, ack: Sequence) {
        self.reduced_at = self.reduced_at.max(ack - 1);
        self.echo_reduced_at = self.echo_reduced_at.filter(|end| ack.le(*end));
    }
}
