//! ICMP errors (RFC 5927). Any host can send one, so it is accepted only if it quotes a sequence number that
//! is outstanding, and it never ends an established connection.
//!
//! Soft             on a synchronised session every error, even one that RFC 1122 §4.2.3.9 calls hard, is
//!                  only recorded for the host. If the error is real, retransmission timeouts will end the
//!                  session.
//! Hard             in SYN-SENT, an unreachable port or protocol refuses the connection (RFC 5461 §4.1).
//! SYN lost         an unreachable net or host in SYN-SENT is soft until it has been reported for
//!                  `syn_unreachable_max` different SYNs. Then the connection attempt fails (RFC 5461 §4.1:
//!                  4.4BSD does the same, while Linux fails at the first report).
//! Next hop         a next hop that our own link found unreachable needs no proof: connection attempts
//!                  through it fail at once.
//! Too big          the MSS is reduced, down to a floor, and outstanding data is resent (RFC 1191 §6.4). The
//!                  congestion window is unchanged, because the cause was packet size, not load.

use super::tcb::{Session, SessionContext};
use crate::tcp::config::Config;
use crate::tcp::congestion::Congestion;
use crate::tcp::icmp_error::IcmpErrorClass;
use crate::tcp::interface::indication::Reason;
use crate::tcp::state::State;
use crate::wire::tcp::{HEADER_BYTES, Sequence};

impl Session {
    /// Returns whether `sequence` is outstanding (RFC 5927 §4.1: SND.UNA ≤ SEG.SEQ < SND.NXT).
    pub(in crate::tcp) fn is_outstanding(&self, sequence: Sequence) -> bool {
        self.state != State::Closed && self.snd_una.le(sequence) && sequence.lt(self.snd_max)
    }

    /// Processes an ICMP error that quotes one of our segments, which began at `sequence`.
    pub(in crate::tcp) fn on_icmp(
        &mut self,
        trouble: IcmpErrorClass,
        sequence: Sequence,
        ctx: &mut SessionContext<'_, '_>,
    ) {
        if !self.is_outstanding(sequence) {
            ctx.counters.icmp_errors_rejected += 1;
            return;
        }
        ctx.counters.icmp_errors += 1;
        match trouble {
            IcmpErrorClass::PortUnreachable | IcmpErrorClass::ProtocolUnreachable
                if self.state == State::SynSent =>
            {
                return self.end(Reason::Refused, ctx);
            }
            IcmpErrorClass::Unreachable
                if self.state == State::SynSent && self.count_unreachable_syn(ctx.config) =>
            {
                return self.on_next_hop_unreachable(ctx);
            }
            IcmpErrorClass::PacketTooBig { mtu } => self.set_path_mtu(mtu, ctx),
            _ => {}
        }
        self.icmp_error = Some(trouble);
    }

    /// Counts the SYNs reported as unreachable. Returns whether there are enough to give up.
    fn count_unreachable_syn(&mut self, config: &Config) -> bool {
        // Several reports about one SYN count only once.
        if self.last_unreachable_syn != Some(self.consecutive_timeouts) {
            self.last_unreachable_syn = Some(self.consecutive_timeouts);
            self.unreachable_syns += 1;
        }
        self.unreachable_syns >= config.syn_unreachable_max
    }

    /// Ends a connection attempt whose peer is unreachable. Established sessions are not affected.
    pub(in crate::tcp) fn on_next_hop_unreachable(&mut self, ctx: &mut SessionContext<'_, '_>) {
        if self.state == State::SynSent {
            ctx.counters.connects_unreachable += 1;
            self.end(Reason::Unreachable, ctx);
        }
    }

    /// Sets the segment size and initial window for a path MTU of `mtu` bytes, before anything is sent.
    pub(in crate::tcp) fn set_initial_path_mtu(&mut self, mtu: u32, ctx: &mut SessionContext<'_, '_>) {
        self.set_path_mtu(mtu, ctx);
        let initial = Congestion::new(ctx.config, self.mss).cwnd();
        self.congestion.begin_with(initial.min(self.congestion.cwnd()));
    }

    /// Lowers the MSS for a path MTU of `mtu` bytes (IP packet), but not below `mss_min`, and never raises
    /// it. Outstanding data is resent in the new size.
    pub(in crate::tcp) fn set_path_mtu(&mut self, mtu: u32, ctx: &mut SessionContext<'_, '_>) {
        let network = if self.remote.is_ipv4() { 20 } else { 40 };
        let stamps = if self.timestamps.is_some() { super::segment_arrives::STAMPS_BYTES } else { 0 };
        let mss = mtu.saturating_sub(network + HEADER_BYTES as u32 + stamps);
        let mss = mss.max(u32::from(ctx.config.mss_min).min(self.mss));
        if mss >= self.mss {
            return;
        }
        self.mss = mss;
        ctx.counters.mss_lowered += 1;
        if self.state == State::SynSent {
            self.on_syn_too_long();
        }
        if self.state.is_synchronised() && self.snd_una != self.snd_max {
            self.scoreboard.shorten(mss as u16);
            self.scoreboard.mark_all_lost();
            self.force_retransmit = true;
        }
    }
}
