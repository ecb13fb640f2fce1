//! X.25 as the network service below transport class 0 (the parts of X.223 and ISO 8878 that class 0 uses).
//!
//! Purpose          provides the primitives of [`crate::network`] for one circuit of a [`super::Layer`] or a
//!                  [`super::xot::Xot`].
//! Transmit path    an NSDU is sent as an M-bit sequence. A disconnect becomes a clear, which waits until all
//!                  data is acknowledged, because a clear destroys data in transit.
//! Receive path     a unit with the Q bit is not for the transport layer and is ignored. A reset ends the
//!                  connection (X.224 §6.15).
//! Calls            the user data of a call for the transport layer begins with [`TRANSPORT`] (X.264, ISO
//!                  11570): length, a UN TPDU, class 0, not shared.
//! Not implemented  expedited data, receipt confirmation, addresses other than those in the configured call.

use super::call::Call;
use super::primitives::{Indication, Request};
use crate::network::{self, Origin, Reason};
use crate::wire::x25::{Cause, diagnostic};
use alloc::vec::Vec;

/// The first octets of the user data in a call for the transport layer.
pub const TRANSPORT: [u8; 4] = [3, 1, 1, 0];

/// Returns whether a call is for the transport layer. A call without user data is assumed to be.
pub fn is_for_transport(call: &Call) -> bool {
    call.user_data.is_empty() || call.user_data.starts_with(&TRANSPORT[..3])
}

/// One X.25 circuit as a network connection.
#[derive(Debug)]
pub struct Network {
    channel: u16,
    /// The call to make for [`network::Request::Connect`].
    call: Call,
    /// The reason of a pending clear.
    ending: Option<Reason>,
    is_over: bool,
}

impl Network {
    /// Creates a circuit for an outgoing call; if the call has no user data, [`TRANSPORT`] is added.
    pub fn calling(channel: u16, mut call: Call) -> Network {
        if call.user_data.is_empty() {
            call.user_data = TRANSPORT.to_vec();
        }
        Network { channel, call, ending: None, is_over: false }
    }

    /// Creates a circuit for an incoming call.
    pub fn called(channel: u16) -> Network {
        Network { channel, call: Call::default(), ending: None, is_over: false }
    }

    /// Returns whether the circuit is finished and may be dropped.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Converts a request from the transport layer to one for the packet layer; a disconnect becomes a clear,
    /// which [`Network::poll`] returns.
    pub fn request(&mut self, request: network::Request) -> Option<Request> {
        let channel = self.channel;
        match request {
            network::Request::Connect => Some(Request::Call { channel, call: self.call.clone() }),
            network::Request::Accept => Some(Request::Accept { channel, call: Call::default() }),
            network::Request::Data(data) => {
                Some(Request::Data { channel, data, qualifier: false, delivery: false })
            }
            network::Request::Disconnect { reason } => {
                self.ending = Some(reason);
                None
            }
        }
    }

    /// Returns the pending clear once all of the circuit's data is acknowledged ([`super::Layer::is_quiet`]).
    pub fn poll(&mut self, is_quiet: bool) -> Option<Request> {
        if !is_quiet || self.is_over {
            return None;
        }
        let code = match self.ending.take()? {
            Reason::Normal => diagnostic::NORMAL,
            Reason::Abnormal | Reason::Protocol => diagnostic::ABNORMAL,
            Reason::Refused | Reason::Unreachable => REJECTED_PERMANENTLY,
        };
        self.is_over = true;
        let cause = Cause { cause: 0, diagnostic: Some(code) };
        Some(Request::Clear { channel: self.channel, cause, user_data: Vec::new() })
    }

    /// Converts an indication from the packet layer to one for the transport layer; `None` for other
    /// channels, and for indications that class 0 does not use.
    pub fn arrive(&mut self, indication: Indication) -> Option<network::Indication> {
        let (of, up) = match indication {
            Indication::Incoming { channel, .. } | Indication::Accepted { channel, .. } => {
                (channel, network::Indication::Connected)
            }
            Indication::Data { channel, data, qualifier: false, .. } => {
                (channel, network::Indication::Data(data))
            }
            Indication::Cleared { channel, by_peer, cause, .. } => (channel, disconnected(by_peer, cause)),
            Indication::Reset { channel, by_peer, .. } => {
                let origin = if by_peer { Origin::Unknown } else { Origin::Provider };
                (channel, network::Indication::Disconnected { origin, reason: Reason::Protocol })
            }
            Indication::Down => {
                let (origin, reason) = (Origin::Provider, Reason::Abnormal);
                (self.channel, network::Indication::Disconnected { origin, reason })
            }
            _ => return None,
        };
        if of != self.channel || self.is_over {
            return None;
        }
        if let network::Indication::Disconnected { reason, .. } = up {
            // The circuit still exists after a reset, so clear it.
            match reason {
                Reason::Protocol => self.ending = Some(Reason::Abnormal),
                _ => self.is_over = true,
            }
        }
        Some(up)
    }
}

/// Connection rejection, permanent condition (ISO 8208).
const REJECTED_PERMANENTLY: u8 = 245;

/// X.223 §11: the originator and the reason are derived from the cause and the diagnostic.
fn disconnected(by_peer: bool, cause: Cause) -> network::Indication {
    let origin = match cause.cause {
        _ if !by_peer => Origin::Provider,
        0x00 | 0x80.. => Origin::User,
        _ => Origin::Provider,
    };
    let reason = match (cause.cause, cause.diagnostic.unwrap_or(0)) {
        (0x00 | 0x80.., diagnostic::NORMAL) => Reason::Normal,
        (0x00 | 0x80.., 227..=230 | 244..=249) | (0x01 | 0x0b | 0x19 | 0x21 | 0x29, _) => Reason::Refused,
        (0x00 | 0x80.., 231 | 232 | 235) | (0x09 | 0x0d | 0x39, _) => Reason::Unreachable,
        _ => Reason::Abnormal,
    };
    network::Indication::Disconnected { origin, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn end(cause: u8, code: u8, by_peer: bool) -> Option<network::Indication> {
        let cause = Cause { cause, diagnostic: Some(code) };
        let cleared = Indication::Cleared { channel: 5, by_peer, cause, user_data: Vec::new() };
        Network::called(5).arrive(cleared)
    }

    #[test]
    fn the_end_of_a_circuit_has_origin_and_reason() {
        for (cause, code, by_peer, origin, reason) in [
            (0x00, 241, true, Origin::User, Reason::Normal),
            (0x80, 242, true, Origin::User, Reason::Abnormal),
            (0x00, 249, true, Origin::User, Reason::Refused),
            (0x00, 235, true, Origin::User, Reason::Unreachable),
            (0x01, 0, true, Origin::Provider, Reason::Refused),
            (0x0d, 67, true, Origin::Provider, Reason::Unreachable),
            (0x13, 1, true, Origin::Provider, Reason::Abnormal),
            (0x00, 49, false, Origin::Provider, Reason::Abnormal),
        ] {
            let expected = network::Indication::Disconnected { origin, reason };
            assert_eq!(end(cause, code, by_peer), Some(expected), "{cause:02x} {code}");
        }
    }

    #[test]
    fn a_disconnect_waits_for_pending_data() {
        let mut network = Network::calling(5, Call::default());
        let Some(Request::Call { channel: 5, call }) = network.request(network::Request::Connect) else {
            panic!()
        };
        assert_eq!(call.user_data, TRANSPORT);
        assert!(is_for_transport(&call));
        let sent = network.request(network::Request::Data(vec![1].into()));
        assert!(matches!(sent, Some(Request::Data { channel: 5, qualifier: false, .. })));
        let reason = Reason::Normal;
        assert!(network.request(network::Request::Disconnect { reason }).is_none());
        assert!(network.poll(false).is_none());
        let Some(Request::Clear { cause, .. }) = network.poll(true) else { panic!("no clear") };
        assert_eq!(
            (cause.diagnostic, network.is_over(), network.poll(true).is_none()),
            (Some(241), true, true)
        );
    }

    #[test]
    fn a_reset_ends_the_connection_and_then_the_circuit() {
        let mut network = Network::called(5);
        let cause = Cause { cause: 0, diagnostic: Some(250) };
        let reset = |channel| Indication::Reset { channel, by_peer: true, cause };
        assert_eq!(network.arrive(reset(6)), None);
        assert!(matches!(network.arrive(reset(5)), Some(network::Indication::Disconnected { .. })));
        assert!(matches!(network.poll(true), Some(Request::Clear { .. })));
        assert_eq!(network.arrive(reset(5)), None);
        assert!(!is_for_transport(&Call { user_data: vec![1, 0, 0, 0], ..Call::default() }));
    }
}
