//! A relay between OSI over X.25 and OSI over TCP: calls in XOT (RFC 1613) on one side, TPKTs (RFC 1006) on
//! the other.
//!
//! Purpose          lets a system that supports only X.25 and one that supports only TCP establish transport
//!                  connections with each other, without changes to either.
//! From XOT         the called address or the user data of a call selects a [`Route`]; the call is accepted
//!                  when the TCP connection is established. A route may lead to another XOT router; it
//!                  then passes on packets of any protocol unchanged ([`Via::Xot`]).
//! To XOT           for each TCP connection, the relay makes a call through a router; data from TCP waits
//!                  until the call is accepted.
//! Data             an NSDU is the payload of a TPKT on one side, and an M-bit sequence on the other. It is
//!                  passed on without copying or changes. The exception is the first NSDU in each direction
//!                  (`sizes`), because an absent TPDU size parameter means different sizes on the two
//!                  networks.
//! End              after a clear, the TCP connection is closed when all data has been delivered; after TCP
//!                  is closed, the call is cleared when all data has been acknowledged. A reset ends both, as
//!                  class 0 requires (X.224 §6.15). Packets with the Q bit are not for the transport layer
//!                  and are ignored.
//! Flow control     while one side does not accept data, the relay does not read from the other; at most
//!                  [`WAITING_BYTES_MAX`] plus one NSDU wait in each direction.
//! Limits           a maximum number of circuits; further connections are closed at once.
//!                  [`Settings::state_timeout`] limits every intermediate state: a call not yet received,
//!                  accepted or cleared; a TCP connection not yet established, or one that does not accept
//!                  the remaining data.
//! Not implemented  permanent circuits; X.25 over anything other than XOT; a transport entity in the relay
//!                  (transport class 0 runs end to end).

mod circuit;
mod event;
mod listener;
mod route;
mod settings;
mod sizes;
#[cfg(test)]
mod tests;

pub use event::{CircuitEvent, Event};
pub use listener::Relay;
pub use route::{Called, Route, Via};
pub use settings::{Settings, WAITING_BYTES_MAX};
