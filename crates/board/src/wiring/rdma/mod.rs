//! RDMA on a board: the NIC over the board's own TCP, and over EFE on a port of its own.
//!
//! Place     on the edge, beside the host. Streams and listeners of the NIC belong to it
//!           ([`Upper::Rdma`](crate::edge::Upper)), and it alone gets their events. Programs that use the NIC
//!           get [`crate::Completion::Rdma`] when work is done or a connection has news.
//! Down      a burst of frames is written to its stream as far as TCP has room, the rest waits for
//!           `Writable`. Payload is copied from the host's memory into pages. EFE's frames are fetched by the
//!           port's line.
//! Up        bytes are taken from the stream's pages and placed; a stream whose message waits for a receive
//!           is not read, so TCP's window closes.
//! Copies    one from the host's memory into pages, one from pages into the host's memory. MPA's CRC costs
//!           one more: the frame that it covers is formed in a buffer.

mod host;
mod nic;
mod streams;

pub use host::RdmaHost;
pub(crate) use nic::RdmaWiring;
