//! Associations for any user of ACSE: MMS, X.400, X.500, CMIP, custom protocols.
//!
//! Purpose          provides an association over RFC 1006, with or without TLS, to a program that exchanges
//!                  presentation data values. The program need not know about the lower layers.
//! Initiator        [`Association::connect`] with [`Parameters`]: names, the application context, the
//!                  presentation contexts.
//! Responder        [`Listener::accept`] returns an [`IncomingConnection`], and
//!                  [`IncomingConnection::request`] waits for the connection's A-ASSOCIATE.
//!                  [`AssociateRequest::accept`] or [`AssociateRequest::refuse`] answers it. A silent
//!                  connection does not block others.
//! Data             [`Association::send`] and [`Association::receive`], which may be called from different
//!                  tasks: all methods take `&self`.
//! End              [`Association::release`] ends the association in an orderly way, [`Association::abort`]
//!                  at once. Dropping an association aborts it.
//! Operation        the calling task does the protocol work; a separate task for each association moves bytes
//!                  ([`pump`](super::pump)).
//! Limits           [`Association::send`] waits while more than [`OUTGOING_BYTES_MAX`] bytes are waiting to
//!                  be sent. Reading stops while [`INCOMING_BYTES_MAX`] bytes or [`INCOMING_COUNT_MAX`]
//!                  indications wait for the user. `StackConfig` limits the length of a service data unit,
//!                  and therefore of a value.
//! Not implemented  presentation context management; negotiation of application contexts.

mod driven;
mod event;
mod handle;
mod listener;
mod parameters;
#[cfg(test)]
mod tests;

pub use driven::{INCOMING_BYTES_MAX, INCOMING_COUNT_MAX, OUTGOING_BYTES_MAX};
pub use event::Event;
pub use handle::Association;
pub use listener::{AssociateRequest, IncomingConnection, Listener};
pub use parameters::{Acceptance, AcceptedContexts, Failure, Parameters, Tls};
