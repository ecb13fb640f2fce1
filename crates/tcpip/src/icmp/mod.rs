//! ICMP of both families: echo, errors sent, errors received (RFC 792, RFC 1122 §3.2.2, RFC 4443).
//!
//! Purpose          answer and send pings, report packets that cannot be processed, and match received errors
//!                  to our packets.
//! Receive path     an echo request is answered in its own PDU, without moving its payload. Replies to our
//!                  requests are indicated; so are received errors, as an [`IcmpError`] with the content of
//!                  the quoted packet. Neighbour discovery messages are passed on whole, for the port on
//!                  which they arrived.
//! Transmit path    a [`IcmpErrorRequest`] of IP becomes an error that quotes the packet by reference: up to
//!                  576 bytes with IPv4 (RFC 1812 §4.3.2.3), up to 1280 with IPv6 (RFC 4443 §2.4(c)).
//! Limits           at most [`ERRORS_PER_SECOND`] errors are sent, so that a flood does not cause another. No
//!                  error answers an error, a packet to or from a group, a later fragment or an unspecified
//!                  source.
//! Not implemented  redirects and router discovery of IPv4, source quench, timestamps and address masks are
//!                  counted and ignored (RFC 6633, RFC 6918); an echo request to a group is not answered.

mod error;
mod machine;

pub use error::{IcmpError, TRANSPORT_BYTES, read_quoted, undelivered};
pub use machine::{ERRORS_PER_SECOND, Icmp, IcmpCounters, Indication, Message};
