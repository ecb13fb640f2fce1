//! What the operating system reports about TCP connections, for measuring real networks.
//!
//! Purpose          sockets with chosen buffers, MSS and congestion control; the kernel's data on a
//!                  connection and on the host; and the packets themselves.
//! Limits           Linux only: TCP_INFO, /proc/net and AF_PACKET.
//! Not covered      interpretation: the evidence is collected here and explained in the laboratory.

pub mod capture;
pub mod counters;
pub mod datagrams;
pub mod info;
pub mod pause;
pub mod socket;

pub use capture::{Capture, Direction, Frame};
pub use counters::Counters;
pub use datagrams::Datagrams;
pub use info::TcpInfo;
pub use socket::Settings;
