//! Serves streams of this board to other processes through shared memory: the board's side of
//! [`kiban_attach`].

mod client;
mod listen;
mod provider;
mod tcp_info;

pub use client::{ClientCounters, ClientStreams, why};
pub(crate) use listen::choose;
pub use listen::{bind, listen};
pub use provider::{Chunk, Provider};
pub use tcp_info::{TCP_INFO_BYTES, tcp_info};
