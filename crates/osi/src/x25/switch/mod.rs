//! A switch: carries calls between interfaces and XOT connections.
//!
//! Purpose          an incoming call on one port becomes a call on another; then data, interrupts, resets and
//!                  clears pass between the two. Ports are lines ([`super::Interface`]) and XOT connections
//!                  ([`super::xot::Xot`]).
//! Routing          is the driver's: [`Event::Incoming`] asks for a port, and the driver answers with
//!                  [`Switch::connect`] or [`Switch::refuse`]. An XOT port carries one call.
//! Set-up           addresses, facilities and user data pass unchanged, except that packet and window sizes
//!                  are limited to what the other port allows. Each port negotiates its own sizes.
//! Data             an M-bit sequence is switched when it is complete, because the two ports may have
//!                  different packet sizes. Q bits pass unchanged. Payload is not copied.
//! Flow control     while the other port has no room for a unit, a circuit's units wait in their packet
//!                  layer, which does not acknowledge them; other circuits continue.
//! Clearing         a clear from one side passes to the other side when all data that came before it is
//!                  acknowledged, or after `clear_timeout`. A DTE's cause has its first bit set, as X.25
//!                  §5.2.3.1.1 and Table 20 require.
//! Limits           `circuits_max` circuits, and for each circuit in each direction the packet layers'
//!                  `unit_bytes_max` and `outgoing_bytes_max`. A call beyond the limit is cleared (network
//!                  congestion), a unit beyond it resets its circuit.
//! Not implemented  the D bit end to end (the switch confirms delivery itself), the D bit of call set-up,
//!                  permanent circuits, user data and addresses of clear confirmations, closed user groups.

mod circuit;
mod machine;
mod ports;
#[cfg(test)]
mod tests;

pub use machine::{Counters, Event, Switch, SwitchConfig};
pub use ports::PortId;

/// The number of a circuit, counted from 1.
pub type CircuitId = u64;
