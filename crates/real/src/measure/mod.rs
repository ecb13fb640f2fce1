//! What the operating system says of TCP connections: for measuring real networks.
//!
//! Goal      sockets with chosen buffers, MSS and congestion control; what the kernel knows of a connection and of the host; and
//!           the packets themselves.
//! Limits    Linux: TCP_INFO, /proc/net and AF_PACKET are its own.
//! Left out  anything that judges: evidence is read here and explained in the laboratory.

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
