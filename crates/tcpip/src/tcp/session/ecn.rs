//! Explicit congestion notification (RFC 3168): routers mark packets instead of dropping them.
//!
//! Opening          our SYN asks with ECE and CWR (`tcp.ecn = on`); a SYN-ACK with ECE alone agrees. A
//!                  retransmitted SYN does not ask, because a middlebox may drop those that do.
//! Sender           new data is sent as ECT(0). An ACK with ECE reduces the window once per round trip; the
//!                  next new data carries CWR.
//! Receiver         after a mark (CE), all ACKs carry ECE until a segment with CWR arrives.
//! Never marked     SYNs, pure ACKs, retransmissions, window probes (RFC 3168 §6.1.1, §6.1.4 to §6.1.6).
//! Not implemented  ECN with SYN cookies; a window of less than two segments; accurate feedback (RFC 9768).

use super::tcb::{PendingAck, Session, SessionContext};
use crate::tcp::config::{Config, Ecn};
use crate::tcp::congestion::AckSample;
use crate::tcp::state::State;
use crate::wire::tcp::{Flags, Header};

/// The ECN bits of the traffic class (RFC 3168 §5).
const MASK: u8 = 0b11;
const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;

impl Session {
    /// Returns the flags that negotiate ECN in our SYN, or in our SYN-ACK (`answer`).
    pub(in crate::tcp::session) fn ecn_syn_flags(&mut self, answer: bool, config: &Config) -> Flags {
        if answer {
            // RFC 3168 §6.1.1: an ECN-setup SYN-ACK has ECE without CWR.
            return if self.ecn.is_on { Flags::ECE } else { Flags::NONE };
        }
        // §6.1.1.1: a SYN that was not answered is sent again without asking.
        self.ecn.asks = config.ecn == Ecn::On && self.snd_max == self.snd_una;
        if self.ecn.asks { Flags::ECE | Flags::CWR } else { Flags::NONE }
    }

    /// Takes the peer's request or answer from its SYN.
    pub(in crate::tcp::session) fn learn_ecn(&mut self, header: &Header, config: &Config) {
        let flags = header.flags;
        // RFC 3168 §6.1.1: a host that has sent a SYN without asking does not use ECN. A SYN-ACK with both
        // bits comes from a peer that reflects reserved bits.
        let may = self.state == State::SynReceived || self.ecn.asks;
        self.ecn.is_on = config.ecn != Ecn::Off
            && may
            && flags.has(Flags::ECE)
            && flags.has(Flags::CWR) != flags.has(Flags::ACK);
    }

    /// Returns the ECN bits for a data segment, and CWR if it is due.
    pub(in crate::tcp::session) fn ecn_data_marks(&mut self, is_new: bool) -> (u8, Flags) {
        if !self.ecn.is_on || !is_new {
            return (0, Flags::NONE);
        }
        // RFC 3168 §6.1.2: the first new data after a reduction.
        (ECT_0, if core::mem::take(&mut self.ecn.cwr_due) { Flags::CWR } else { Flags::NONE })
    }

    /// Returns ECE if a segment with `flags` must carry it.
    #[inline]
    pub(in crate::tcp::session) fn ecn_echo(&self, flags: Flags) -> Flags {
        let echoes = self.ecn.echoes && flags.has(Flags::ACK) && !flags.has_any(Flags::SYN | Flags::RST);
        if echoes { Flags::ECE } else { Flags::NONE }
    }

    /// Processes the marks of acceptable data from the peer (RFC 3168 §6.1.3).
    pub(in crate::tcp::session) fn on_ecn_data(&mut self, flags: Flags, ctx: &mut SessionContext<'_, '_>) {
        if flags.has(Flags::CWR) {
            self.ecn.echoes = false;
        }
        if self.received_traffic_class & MASK == CE {
            ctx.counters.ce_marked += 1;
            if !self.ecn.echoes {
                // The sooner the sender knows, the shorter the queue.
                self.pending_ack = PendingAck::Immediate;
            }
            self.ecn.echoes = true;
        }
    }

    /// Returns whether an acknowledgement reports congestion.
    #[inline]
    pub(in crate::tcp::session) fn is_ecn_echo(&self, header: &Header) -> bool {
        self.ecn.is_on && header.flags.has(Flags::ECE)
    }

    /// Reduces the window after an ACK with ECE, at most once per window of data (RFC 3168 §6.1.2).
    pub(in crate::tcp::session) fn on_ecn_echo(
        &mut self,
        heard: &AckSample,
        ctx: &mut SessionContext<'_, '_>,
    ) {
        if self.congestion.in_recovery() || !self.ecn.reduced_at.lt(self.snd_una) {
            return;
        }
        ctx.counters.ecn_reductions += 1;
        self.congestion.on_ecn_echo(heard, ctx.config.ecn_alternative_backoff);
        (self.ecn.reduced_at, self.ecn.cwr_due) = (self.snd_max, true);
        self.ecn.echo_reduced_at = Some(self.snd_max);
    }

    /// Records that the window was reduced for a loss; the next new data carries CWR (RFC 3168 §6.1.2).
    pub(in crate::tcp::session) fn on_loss_reduction(&mut self) {
        self.ecn.cwr_due = self.ecn.is_on;
        (self.ecn.reduced_at, self.ecn.echo_reduced_at) = (self.snd_max, None);
    }

    /// Returns whether an ECE has already reduced the window for the data that is being acknowledged.
    pub(in crate::tcp::session) fn is_reduced_by_echo(&self) -> bool {
        self.ecn.echo_reduced_at.is_some_and(|end| self.snd_una.lt(end))
    }
}
