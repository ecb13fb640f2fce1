//! TCP Fast Open (RFC 7413) in one session: data in the SYN.
//!
//! Client           the first SYN carries a cookie and the first data, or asks for a cookie. Whatever the
//!                  SYN-ACK does not acknowledge is sent again as usual. A SYN that is retransmitted carries
//!                  neither. The host may open a session before it has any data; the SYN then waits for it.
//! Listener         the session is established as soon as the SYN has arrived: its data is delivered, and the
//!                  host may answer. The SYN-ACK is retransmitted until an ACK shows that it has arrived.

use super::tcb::{FastOpen, Progress, Session, SessionContext};
use crate::tcp::config::Config;
use crate::tcp::interface::indication::Indication;
use crate::wire::tcp::{FastOpenCookie, Flags, HEADER_BYTES, HEADER_BYTES_MAX, Header, Sequence};
use kiban_base::{Instant, Pdu};

impl Session {
    /// Offers Fast Open in our SYN: `cookie`, or the request for one. `mss` is the server's, if it is known.
    /// A SYN with a cookie waits for data.
    pub(in crate::tcp) fn offer_fast_open(&mut self, cookie: FastOpenCookie, mss: u16) {
        self.fast_open = FastOpen::Offer { cookie, mss, sent: 0, waits: !cookie.is_request() };
    }

    /// Sends our SYN without waiting for data.
    pub(in crate::tcp) fn release_syn(&mut self) {
        if let FastOpen::Offer { waits, .. } = &mut self.fast_open {
            *waits = false;
        }
    }

    /// Returns whether our SYN waits for the host's first data.
    pub(in crate::tcp) fn syn_waits(&self) -> bool {
        matches!(self.fast_open, FastOpen::Offer { waits: true, .. })
    }

    /// Grants a cookie in our SYN-ACK.
    pub(in crate::tcp) fn grant_fast_open(&mut self, cookie: FastOpenCookie) {
        self.fast_open = FastOpen::Grant(cookie);
    }

    /// Returns the listener whose limit of pending Fast Open sessions counts this one.
    pub(in crate::tcp) fn fast_open_listener(&self) -> Option<u32> {
        match self.fast_open {
            FastOpen::Pending { listener, .. } => Some(listener),
            _ => None,
        }
    }

    /// Handles a RST that ends the session.
    pub(super) fn on_fast_open_reset(&mut self) {
        if let FastOpen::Pending { listener, .. } = self.fast_open {
            self.fast_open = FastOpen::Reset { listener };
        }
    }

    /// Returns the listener of a session that a RST has ended while it was pending.
    pub(in crate::tcp) fn fast_open_reset(&self) -> Option<u32> {
        match self.fast_open {
            FastOpen::Reset { listener } => Some(listener),
            _ => None,
        }
    }

    /// Returns whether the data of a SYN was accepted and our SYN-ACK is not acknowledged.
    #[inline]
    pub(super) fn is_fast_open_pending(&self) -> bool {
        matches!(self.fast_open, FastOpen::Pending { .. })
    }

    /// Returns the option for our SYN or SYN-ACK.
    pub(super) fn fast_open_option(&self, is_first: bool) -> Option<FastOpenCookie> {
        match self.fast_open {
            FastOpen::Offer { cookie, .. } if is_first => Some(cookie),
            FastOpen::Grant(cookie) => Some(cookie),
            _ => None,
        }
    }

    /// Adds data to our first SYN, if we have a cookie. Returns the number of bytes.
    pub(super) fn gather_syn_data(&mut self, is_first: bool, pdu: &mut Pdu) -> u32 {
        let FastOpen::Offer { cookie, mss, sent, waits } = &mut self.fast_open else { return 0 };
        *waits = false;
        if !is_first || cookie.is_request() {
            return 0;
        }
        // RFC 7413 §4.1.3: the server's MSS, from the cache, without the options.
        let most = u32::from(*mss).min(self.mss).saturating_sub((HEADER_BYTES_MAX - HEADER_BYTES) as u32);
        *sent = self.send_queue.gather(0, most.min(self.send_queue.bytes()), pdu);
        *sent
    }

    /// Handles the loss of our SYN: no data is sent in SYNs to this server for a while (RFC 7413 §4.1.3.1).
    pub(super) fn on_syn_lost(&mut self, ctx: &mut SessionContext<'_, '_>) {
        if let FastOpen::Offer { sent: 1.., .. } = self.fast_open {
            ctx.counters.fast_open_syns_lost += 1;
            ctx.fast_open.suspend(self.remote.ip(), ctx.cx.now);
        }
    }

    /// Sends our SYN again, without data, because a router could not forward it.
    pub(super) fn on_syn_too_long(&mut self) {
        if let FastOpen::Offer { sent: 1.., .. } = self.fast_open {
            self.snd_nxt = self.snd_una;
        }
    }

    /// Stores the cookie and the MSS of a SYN-ACK.
    pub(super) fn learn_fast_open(&mut self, header: &Header, ctx: &mut SessionContext<'_, '_>) {
        if !matches!(self.fast_open, FastOpen::Offer { .. }) {
            return;
        }
        let mss = header.options.mss.unwrap_or(Config::mss_unsaid(self.remote));
        match header.options.fast_open.filter(|cookie| !cookie.is_request()) {
            Some(cookie) => ctx.fast_open.store(self.remote.ip(), cookie, mss),
            None => ctx.fast_open.set_mss(self.remote.ip(), mss),
        }
    }

    /// Frees the data of our SYN that the SYN-ACK acknowledges; SND.UNA is the SYN's sequence number. Returns
    /// the number of bytes.
    pub(super) fn take_acked_syn_data(&mut self, ack: Sequence, ctx: &mut SessionContext<'_, '_>) -> u32 {
        let queued = self.send_queue.bytes();
        let bytes = (self.snd_una + 1).distance(ack).min(queued);
        if bytes > 0 {
            self.send_queue.acknowledged(bytes, &mut ctx.cx.memory.transmit);
            ctx.send_share.change(queued, self.send_queue.bytes(), self.claim);
            self.tally.bytes_acknowledged += u64::from(bytes);
            ctx.counters.bytes_out += u64::from(bytes);
            ctx.counters.fast_opens_out += 1;
        }
        bytes
    }

    /// Establishes a session from a SYN with a valid cookie, and delivers the SYN's data (RFC 7413 §4.2.2).
    pub(in crate::tcp) fn on_fast_open_syn(
        &mut self,
        header: &Header,
        mut pdu: Pdu,
        ctx: &mut SessionContext<'_, '_>,
    ) {
        let Some(listener) = self.listener else { return };
        self.on_first_syn(header, ctx);
        ctx.counters.fast_opens_in += 1;
        // Our SYN, which is sent below, takes one number. It counts as acknowledged, so that data may follow.
        self.establish(self.snd_una + 1, ctx);
        self.fast_open = FastOpen::Pending { syn: header.sequence, listener, due: true, is_sent: false };
        // What exceeds the window that we are going to offer is sent again.
        let most = self.window_most(ctx) as usize;
        pdu.truncate_body(most.min(pdu.body_len()));
        self.rcv_adv = self.rcv_nxt + pdu.body_len() as u32;
        let sequence = self.rcv_nxt;
        self.on_data(sequence, pdu, Flags::ACK, ctx);
    }

    /// Makes the SYN-ACK due again if the peer has retransmitted its SYN, `sequence`. Returns whether it has.
    pub(super) fn on_fast_open_syn_again(&mut self, sequence: Sequence) -> bool {
        match &mut self.fast_open {
            FastOpen::Pending { syn, due, .. } if *syn == sequence => {
                *due = true;
                true
            }
            _ => false,
        }
    }

    /// Handles the retransmission timeout of the SYN-ACK. Data that followed it is not retransmitted before
    /// it has arrived (RFC 7413 §4.2.2).
    pub(super) fn on_fast_open_timeout(&mut self) {
        if let FastOpen::Pending { due, .. } = &mut self.fast_open {
            *due = true;
        }
    }

    /// Completes the handshake: an ACK acknowledges our SYN-ACK.
    pub(super) fn on_fast_open_acked(&mut self, ctx: &mut SessionContext<'_, '_>) {
        self.fast_open = FastOpen::None;
        if let Some(sent_at) = self.syn_sent_at.take() {
            self.rtt.on_delivered(sent_at, ctx.cx.now, ctx.config);
        }
        // RFC 6928 §2: after more than one lost SYN-ACK, the initial window is one segment.
        if self.rtt.on_opened() > 1 {
            self.congestion.begin_with(self.mss);
        }
        self.rto_deadline =
            if self.snd_una == self.snd_max { Instant::NEVER } else { ctx.cx.now + self.rtt.rto(ctx.config) };
    }

    /// Sends the SYN-ACK of a Fast Open session if it is due.
    pub(super) fn output_fast_open(&mut self, ctx: &mut SessionContext<'_, '_>) -> Progress {
        let FastOpen::Pending { due: true, is_sent, .. } = self.fast_open else { return Progress::Done };
        let Some(pdu) = ctx.cx.memory.pdus.take() else { return Progress::Starved };
        ctx.counters.retransmits += u64::from(is_sent);
        // RFC 6298 §3: a SYN-ACK that has been sent several times is not measured.
        self.syn_sent_at = (!is_sent).then_some(ctx.cx.now);
        let (flags, options) = self.syn_flags_and_options(true, !is_sent, ctx.config);
        self.emit(self.snd_una - 1, flags, options, pdu, ctx);
        if let FastOpen::Pending { due, is_sent, .. } = &mut self.fast_open {
            (*due, *is_sent) = (false, true);
        }
        self.rto_deadline = ctx.cx.now + self.rtt.rto(ctx.config);
        Progress::Done
    }

    /// Reports the data of our SYN that the SYN-ACK has acknowledged.
    pub(super) fn report_syn_data(&self, bytes: u32, ctx: &mut SessionContext<'_, '_>) {
        if bytes > 0 {
            ctx.up.push_back(Indication::Sent { session: self.id, bytes, left: self.send_queue.bytes() });
        }
    }
}
