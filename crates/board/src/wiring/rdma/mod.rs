//! RDMA on a board: the NIC over the board's own TCP, and over EFE on a separate port.
//!
//! Place     at the host edge, like a program. Streams and listeners of the NIC belong to it
//!           ([`Upper::Rdma`](crate::edge::Upper)), and only it gets their events. Programs that use the NIC
//!           get [`crate::Completion::Rdma`] when work completes or a connection has an event.
//! Down      a burst of frames is written to its stream as far as TCP has room; the rest waits for
//!           `Writable`. Payload is copied from the host's memory into pages. The port's line fetches EFE
//!           frames.
//! Up        bytes are taken from the stream's pages and placed; while a message waits for a receive, its
//!           stream is not read, so TCP's window closes.
//! Copies    one from the host's memory into pages, one from pages into the host's memory. MPA's CRC needs
//!           one more, because the covered frame is built in a buffer.

mod host;
mod nic;
mod streams;

pub use host::RdmaHost;
pub(crate) use nic::RdmaWiring;
