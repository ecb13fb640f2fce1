//! The host edge's memory: streams and sockets between the protocols and the application.
//!
//! Receive path     events of TCP, UDP and ICMP are kept here until the host takes them, and are delivered as
//!                  [`Completion`]s, once each: `Readable` when bytes arrive on an empty stream, `Writable`
//!                  when there is room after a partial `write`.
//! Memory           a writer that finds no memory, and whose own ACKs will not free any, waits in a queue
//!                  ([`line`](self)). Short segments that the host has not read are packed together, so that
//!                  they do not each hold a whole page.
//! Numbers          stream numbers contain a generation: the number of a closed stream is invalid.

mod compaction;
mod completion;
mod intercepted;
mod line;
mod memory_waiters;
mod partial_pages;
mod stream;
mod table;

pub(crate) use completion::Upper;
pub use completion::{Completion, Consumer, StreamId};
pub use intercepted::{Intercepted, InterceptedKind};
pub(crate) use line::NEXT_TURN;
pub use stream::DatagramInfo;
pub(crate) use stream::{Inbox, NicDatagram};
pub(crate) use table::Edge;
