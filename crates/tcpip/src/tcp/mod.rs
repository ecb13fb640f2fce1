//! TCP (RFC 9293).
//!
//! Purpose          carry byte streams over packets. The fast path is data in order without loss, in segments
//!                  of up to 64 KB handed down in one piece.
//! Transmit path    the host calls open, listen, write, finish, abort and consume. Each call changes a
//!                  session and adds it to its TX queue; nothing is sent yet.
//! Receive path     [`Tcp::arrive`] verifies a segment, finds its session by hash and updates it. Events for
//!                  the host are output as [`Indication`]s; a pending acknowledgement is only recorded.
//! TX queues        each session sends through one TX queue: a port or a circuit. A TX queue without room
//!                  holds back only its own sessions.
//! Settle           after a burst, [`Tcp::settle`] lets every queued session send what it may and at most one
//!                  acknowledgement. Each turn is limited to a few segments, so that many sessions share a
//!                  port evenly; sessions stay queued while the port has no room.
//! Memory           windows and send buffers are shares of the available memory: see `fairness::share`.
//! Timers           one timer per session, in a timer wheel: see [`kiban_base::TimerWheel`].
//! Limits           [`Config`] bounds sessions, backlog and buffers; `out_of_order` bounds the number of its
//!                  slices.
//! Not implemented  Multipath TCP; `docs/tcp.md` lists every clause with its state.

mod buffers;
mod config;
mod congestion;
mod counters;
mod cubic;
mod fairness;
mod icmp;
mod icmp_error;
mod interface;
mod listen;
mod loss;
mod machine;
mod profile;
mod segment;
mod session;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod throttle;

pub use config::{
    AckUnit, Config, CongestionControl, Ecn, Fairness, KeepAlive, LossDetection, Nagle, Offer, SynCookies,
};
pub use counters::TcpCounters;
pub use fairness::claims::{Owner, PeerNet};
pub use icmp_error::IcmpErrorClass;
pub use interface::indication::{Indication, Reason, SessionId};
pub use interface::info::Info;
pub use interface::refusal::Refusal;
pub use interface::writer::Writer;
pub use machine::Tcp;
pub use profile::PROFILES;
pub use segment::{Outbox, Segment};
pub use state::State;
