//! ICMP of both families: echo, errors sent, errors received (RFC 792, RFC 1122 §3.2.2, RFC 4443).
//!
//! Purpose          answer and send pings, report packets that cannot be processed, and match received errors
//!                  to our packets.
//! Receive path     an echo request is answered in its own PDU, without moving its payload. Replies to our
//!                  requests are indicated to the layer above; so are received errors, as an [`IcmpError`]
//!                  with the fields of the quoted packet. Neighbour discovery messages are passed on whole,
//!                  for handling by the port on which they arrived.
//! Transmit path    an `IcmpErrorRequest` from IP becomes an error that quotes the packet by reference: up
//!                  to 576 bytes with IPv4 (RFC 1812 §4.3.2.3), up to 1280 with IPv6 (RFC 4443 §2.4(c)).
//! Limits           at most [`ERRORS_PER_SECOND`] errors are sent, so that a flood of packets does not
//!                  trigger a flood of errors. No error is sent in answer to an error, a packet to or from a
//!                  group, a later fragment or a packet with an unspecified source.
//! Not implemented  IPv4 redirects and router discovery, source quench, timestamps and address masks: they
//!                  are counted and ignored (RFC 6633, RFC 6918). Echo requests to a group are not answered.

mod error;
mod machine;

pub use error::{IcmpError, TRANSPORT_BYTES, read_quoted, undelivered};
pub use machine::{ERRORS_PER_SECOND, Icmp, IcmpCounters, Indication, Message};
