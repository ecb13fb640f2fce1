//! RDMA on a board: the NIC over the board's own TCP (iWARP) and UDP (RoCEv2, EFE), or over EFE on a separate
//! port.
//!
//! Place     the NIC is at the host edge, like a program. Its streams and listeners belong to it
//!           ([`Upper::Rdma`](crate::edge::Upper)), and it alone gets their events. Programs that use the NIC
//!           get [`crate::Completion::Rdma`] when work completes or a connection has an event.
//! Down      a burst of frames is written to its stream as far as TCP has room; the rest waits until the
//!           stream is writable. Payload is copied from the host's memory into pages. The port's line fetches
//!           EFE frames. Datagrams are sent as far as their ports have room.
//! Up        bytes are taken from the stream's pages and placed; while a message waits for a receive, its
//!           stream is not read, so TCP's window closes.
//! Copies    data is copied once when sending, from the host's memory into pages, and once when receiving,
//!           from pages into the host's memory. With MPA's CRC there is one more copy, because the frame that
//!           the CRC covers is built in a buffer; RoCEv2's packets and EFE's frames are built in one, too. A
//!           received datagram that lies in several pages is first joined in a buffer.

mod efe;
mod host;
mod nic;
mod roce;
mod streams;

pub use host::RdmaHost;
pub(crate) use nic::RdmaWiring;
