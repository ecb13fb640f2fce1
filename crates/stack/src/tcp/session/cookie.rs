//! A session that begins with the last segment of its handshake: the cookie has told the rest (RFC 4987 §3.6).

use super::{Desk, Session};
use crate::tcp::cookie;
use crate::tcp::state::State;
use kiban_ground::Pdu;
use kiban_wire::tcp::Header;

impl Session {
    /// `syn` is what the cookie tells of the peer's SYN, `ack` answers our SYN, which nobody remembers.
    pub(in crate::tcp) fn on_cookie(
        &mut self,
        syn: &Header,
        ack: &Header,
        pdu: Pdu,
        desk: &mut Desk<'_, '_>,
    ) {
        self.state = State::SynReceived;
        // The answer to the SYN has offered a window.
        self.edge = self.expected + u32::from(cookie::window(desk.config));
        self.learn(syn, desk);
        self.max = self.una + 1;
        self.next = self.max;
        self.on_segment(ack, pdu, desk);
    }
}
