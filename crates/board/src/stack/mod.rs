//! The stack of a board: its ports, the IP family, the host edge, and the memory that they share.
//!
//! ```text
//!    Host (programs)      RDMA            streams.rs: calls on streams
//!    ─────────────────────────
//!          host edge                      edge/: streams and sockets, and the events for their owners
//!          IP family                      wiring/ip.rs
//!    ─────────────────────────
//!          ports                          arrive.rs: input; machine.rs: settling, output
//! ```
//!
//! The NICs of a board (VI, RDMA) are not part of the stack. The RDMA NIC borrows the stack for each call, as
//! `Host` does.

mod arrive;
mod machine;
mod streams;

pub(crate) use machine::Stack;
