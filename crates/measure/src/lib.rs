//! The operating system's data about TCP connections, for measuring real networks.
//!
//! Purpose          provide sockets with chosen buffers, MSS and congestion control, the kernel's data about
//!                  a connection and about the host, and the packets themselves.
//! Limits           Linux only: TCP_INFO, /proc/net and AF_PACKET.
//! Not covered      interpretation: this crate collects the evidence, and the crate `kiban_lab` interprets
//!                  it.
//!
//! ```
//! use kiban_measure::{Settings, TcpInfo};
//! use std::time::Duration;
//!
//! let settings = Settings { no_delay: true, mss_bytes: Some(1000), ..Settings::default() };
//! let listener = settings.listen("127.0.0.1:0".parse().expect("an address"))?;
//! let stream = settings.connect(listener.local_addr()?, Duration::from_secs(10))?;
//! let info = TcpInfo::of(&stream)?;
//! assert!(info.snd_mss <= 1000, "{info:?}");
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod capture;
pub mod counters;
pub mod datagrams;
pub mod info;
pub mod pause;
pub mod socket;

pub use capture::{Capture, Direction, Frame};
pub use counters::Counters;
pub use datagrams::{Came, Datagrams};
pub use info::TcpInfo;
pub use socket::Settings;
