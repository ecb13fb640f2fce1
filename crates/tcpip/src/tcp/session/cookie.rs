//! Sessions created from a SYN cookie: the last segment of the handshake carries all the state (RFC 4987
//! §3.6).

use super::tcb::{Session, SessionContext};
use crate::tcp::listen::cookie;
use crate::tcp::state::State;
use crate::wire::tcp::Header;
use kiban_base::Pdu;

impl Session {
    /// Establishes the session. `syn` is the peer's SYN as decoded from the cookie; `ack` acknowledges our
    /// SYN-ACK, for which no state was kept.
    pub(in crate::tcp) fn on_cookie(
        &mut self,
        syn: &Header,
        ack: &Header,
        pdu: Pdu,
        ctx: &mut SessionContext<'_, '_>,
    ) {
        self.state = State::SynReceived;
        // Our SYN-ACK has offered this window.
        self.rcv_adv = self.rcv_nxt + u32::from(cookie::window(ctx.config));
        self.learn_from_syn(syn, ctx);
        self.snd_max = self.snd_una + 1;
        self.snd_nxt = self.snd_max;
        self.on_segment(ack, pdu, ctx);
    }
}
