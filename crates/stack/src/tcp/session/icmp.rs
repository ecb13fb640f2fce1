//! ICMP errors (RFC 5927): anybody may send one, so it is believed only if it quotes a byte that is on its way, and it
//! never ends a connection that has been made.
//!
//! Soft      everything on a synchronised session, hard or not by RFC 1122 §4.2.3.9: remembered for the host; if it is
//!           true, timeouts will end the session.
//! Hard      an unreachable port or protocol while our SYN is out (RFC 5461 §4.1): the session is refused.
//! Firm      an unreachable net or host about one SYN is soft; about `syn_troubles` of them, each sent after the last, it ends the
//!           session (RFC 5461 §4.1: as 4.4BSD has it, where Linux ends it at the first). Who opens again loses nothing.
//! Nobody    what our own links say of the next hop needs no proof: one that nobody answers for ends what is not open yet.
//! Too big   smaller segments, down to a floor, and what is out goes again (RFC 1191 §6.4). The window is not
//!           touched: it was the size, not the load.

use super::{Desk, Session};
use crate::tcp::congestion::Congestion;
use crate::tcp::state::State;
use crate::tcp::{Config, Reason, Trouble};
use kiban_wire::tcp::{HEADER_BYTES, Sequence};

impl Session {
    /// RFC 5927 §4.1: SND.UNA ≤ SEG.SEQ < SND.NXT.
    pub(in crate::tcp) fn is_on_its_way(&self, sequence: Sequence) -> bool {
        self.state != State::Closed && self.una.le(sequence) && sequence.lt(self.max)
    }

    /// An ICMP error quotes a segment of ours that began at `sequence`.
    pub(in crate::tcp) fn on_icmp(&mut self, trouble: Trouble, sequence: Sequence, desk: &mut Desk<'_, '_>) {
        if !self.is_on_its_way(sequence) {
            desk.counters.troubles_disbelieved += 1;
            return;
        }
        desk.counters.troubles += 1;
        match trouble {
            Trouble::PortUnreachable | Trouble::ProtocolUnreachable if self.state == State::SynSent => {
                return self.end(Reason::Refused, desk);
            }
            Trouble::Unreachable if self.state == State::SynSent && self.is_astray(desk.config) => {
                return self.on_nobody(desk);
            }
            Trouble::PacketTooBig { mtu } => self.set_path_mtu(mtu, desk),
            _ => {}
        }
        self.trouble = Some(trouble);
    }

    /// One more of our SYNs has found no way, of those that have left: whether that is enough.
    fn is_astray(&mut self, config: &Config) -> bool {
        // Told twice of one SYN is told once.
        if self.astray_at != Some(self.silence) {
            self.astray_at = Some(self.silence);
            self.astray += 1;
        }
        self.astray >= config.syn_troubles
    }

    /// Nobody answers on the way.
    pub(in crate::tcp) fn on_nobody(&mut self, desk: &mut Desk<'_, '_>) {
        if self.state == State::SynSent {
            desk.counters.unreachable += 1;
            self.end(Reason::Unreachable, desk);
        }
    }

    /// Nothing has been sent yet: segments and the initial window are as the way takes them.
    pub(in crate::tcp) fn learn_way(&mut self, mtu: u32, desk: &mut Desk<'_, '_>) {
        self.set_path_mtu(mtu, desk);
        let initial = Congestion::new(desk.config, self.mss).window();
        self.congestion.begin_with(initial.min(self.congestion.window()));
    }

    /// The path takes IP packets of `mtu` bytes. Segments become smaller, never larger, and not smaller than
    /// `mss_min`; what is out is sent again in the new size.
    pub(in crate::tcp) fn set_path_mtu(&mut self, mtu: u32, desk: &mut Desk<'_, '_>) {
        let network = if self.remote.is_ipv4() { 20 } else { 40 };
        let stamps = if self.stamps.is_some() { super::options::STAMPS_BYTES } else { 0 };
        let mss = mtu.saturating_sub(network + HEADER_BYTES as u32 + stamps);
        let mss = mss.max(u32::from(desk.config.mss_min).min(self.mss));
        if mss >= self.mss {
            return;
        }
        self.mss = mss;
        desk.counters.mss_lowered += 1;
        if self.state.is_synchronised() && self.una != self.max {
            self.board.shorten(mss as u16);
            self.board.lose_all();
            self.at_once = true;
        }
    }
}
