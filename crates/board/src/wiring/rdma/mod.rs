//! RDMA on a board: the NIC over the board's own TCP, and over EFE on a separate port.
//!
//! Place     at the host edge, like a program. The NIC's streams and listeners belong to it
//!           ([`Upper::Rdma`](crate::edge::Upper)), and it alone gets their events. Programs that use the NIC
//!           get [`crate::Completion::Rdma`] when work completes or a connection has an event.
//! Down      a burst of frames is written to its stream as far as TCP has room; the rest waits for
//!           `Writable`. Payload is copied from the host's memory into pages. The port's line fetches EFE
//!           frames.
//! Up        bytes are taken from the stream's pages and placed; while a message waits for a receive, its
//!           stream is not read, so TCP's window closes.
//! Copies    one when sending, from the host's memory into pages, and one when receiving, from pages into the
//!           host's memory. With MPA's CRC there is one more, because the frame that it covers is built in a
//!           buffer.

mod host;
mod nic;
mod streams;

pub use host::RdmaHost;
pub(crate) use nic::RdmaWiring;
