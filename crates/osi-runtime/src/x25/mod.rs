//! X.25 on real lines: interfaces on serial lines, streams and network devices, and a switch between them.
//!
//! ```text
//! address       where a line is: a serial line, a TCP stream, an Ethernet, an HDLC or X.25 device
//! line          opens a line, and moves frames between it and the switch; opens it again when it fails
//! node          a switch with its lines, XOT connections and routes
//! circuit       one end of a call, over the XOT format: how programs use a node, or a router
//! ```
//!
//! Every program that makes or takes calls does so over an XOT stream: a TCP connection to a router, or a
//! pipe into a [`Node`] of the same process ([`Handle`]). So there is one kind of circuit for programs, and
//! one kind of stream for the switch.

mod address;
mod circuit;
mod input;
mod line;
mod node;
mod route;
#[cfg(test)]
mod tests;

pub use address::{AddressError, LineAddress};
pub use circuit::Circuit;
pub use line::LineSettings;
pub use node::{Handle, Node, NodeEvent, NodeSettings};
pub use route::{Origin, SwitchRoute, Target};

use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Any byte stream.
pub type BoxedStream = Box<dyn Stream>;
