//! A bridge between an Ethernet link and ATM circuits that carry Ethernet frames (RFC 2684 §5.2, §6.2).
//!
//! Members   the port's own link is member 0, its circuits follow in their order. Station addresses are
//!           learned ([`kiban_tcpip::ethernet::Bridge`]).
//! Copies    only the head of a frame for several members is copied; its payload is shared.
//! Limits    frames longer than a circuit allows are dropped and counted.

mod forward;
mod members;

pub(crate) use forward::forward;
pub(crate) use members::{Bridging, FRAME_BYTES_MIN};
