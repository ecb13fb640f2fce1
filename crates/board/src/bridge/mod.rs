//! A bridge between a link of Ethernet frames and circuits that carry such frames (RFC 2684 §5.2, §6.2).
//!
//! Members   the port's own link is member 0, its circuits follow in their order. Station addresses are
//!           learned ([`kiban_tcpip::ethernet::Bridge`]).
//! Copies    a frame for several members is copied by its head alone; its payload is shared.
//! Limits    frames longer than a circuit's are dropped and counted.

mod forward;
mod members;

pub(crate) use forward::forward;
pub(crate) use members::{Bridging, FRAME_BYTES_MIN};
