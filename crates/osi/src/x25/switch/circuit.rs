//! A circuit through the switch: its two legs, and what is left to do at its end.

use super::PortId;
use crate::x25::{Call, Cause, Config, Facilities, FastSelect, Role};
use alloc::vec::Vec;
use kiban_base::Instant;

/// One end of a circuit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Leg {
    pub(super) port: PortId,
    pub(super) channel: u16,
}

/// The state of a circuit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The driver has been asked for a port.
    Routing,
    /// The call is made on the second leg.
    Calling,
    /// The call was accepted.
    Open,
    /// One leg has ended; the other will be cleared, with this cause and user data.
    Clearing { cause: Cause, user_data: Vec<u8>, due: Instant },
}

#[derive(Debug)]
pub(super) struct Circuit {
    /// The legs: the calling side first. An absent leg does not exist yet, or has ended.
    pub(super) legs: [Option<Leg>; 2],
    pub(super) state: State,
    pub(super) call: Call,
    /// The number of bytes sent by the calling and by the called side.
    pub(super) bytes: [u64; 2],
}

impl Circuit {
    /// Returns the index of a leg.
    pub(super) fn side(&self, leg: Leg) -> Option<usize> {
        self.legs.iter().position(|own| *own == Some(leg))
    }
}

/// Adapts a call to the port on which it will be made: sizes that the port does not allow are reduced.
pub(super) fn adapt(call: &mut Call, config: &Config) {
    let Facilities { packet_bytes, window, .. } = &mut call.facilities;
    if let Some(sizes) = packet_bytes {
        *sizes = sizes.map(|bytes| bytes.min(config.packet_bytes_max));
    }
    if let Some(sizes) = window {
        *sizes = sizes.map(|packets| packets.min(config.window_max));
    }
}

/// Converts a cause for a port: a DTE may send only 0, or a code with the first bit set (X.25 §5.2.3.1.1).
pub(super) fn adapt_cause(cause: Cause, config: &Config) -> Cause {
    let code = match cause.cause {
        0 => 0,
        // XOT connects two switches, which pass causes on (RFC 1613 §6.2).
        code if config.role == Role::Dte && config.restarts => code | 0x80,
        code => code,
    };
    Cause { cause: code, ..cause }
}

/// Returns the answer for the calling side: the sizes are those that its port negotiates itself.
pub(super) fn answer(mut call: Call, asked: &Call) -> Call {
    call.facilities.packet_bytes = None;
    call.facilities.window = None;
    if asked.facilities.fast_select == FastSelect::No {
        call.user_data.clear();
    }
    call
}
