//! A relay between OSI over X.25 and OSI over TCP: calls in XOT (RFC 1613) on one side, TPKTs (RFC 1006) on
//! the other.
//!
//! Purpose          gives a system that has only X.25 and one that has only TCP transport connections with
//!                  each other, without changing either.
//! From XOT         a call is compared with [`Route`]s by its called address or its user data; it is accepted
//!                  when the TCP connection is established.
//! To XOT           a TCP connection makes a call through a router; data from TCP waits until the call is
//!                  accepted.
//! Data             one NSDU is a TPKT's payload on one side, an M-bit sequence on the other. It is passed on
//!                  uncopied and unchanged, except the first NSDU each way (`sizes`), because an absent TPDU
//!                  size parameter means different sizes on the two networks.
//! End              a clear closes the TCP connection when all data is delivered; a close of TCP clears the
//!                  call when all data is acknowledged. A reset ends both, as class 0 requires (X.224 §6.15).
//!                  Packets with the Q bit are not for the transport layer and are ignored.
//! Flow control     while one side does not accept data, the relay does not read from the other; at most
//!                  [`WAITING_BYTES_MAX`] and one more NSDU wait in each direction.
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
pub use route::{Called, Route};
pub use settings::{Settings, WAITING_BYTES_MAX};
