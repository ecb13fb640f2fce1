//! Measurements of real networks: a sweep that finds slow regions and explains them.
//!
//! ```text
//! server ── control connection (lines of JSON, a token first) ── client
//!    └───── data connection, one per trial, with the trial's settings ─┘
//!
//! trial → record → slow? → cause → recommendation → the same point with this remedy: proved or not proved
//! ```
//!
//! Sweep     a run of the engine ([`crate::engine`]) whose question is [`Network`], followed by its
//!           [findings](findings::Findings).
//! Trial     in real time: [`transactions`] (write, write, read) or a [`stream`].
//! Evidence  the state of the connection in the kernels of both ends (TCP_INFO), their counters, and a short
//!           capture.
//! Cause     derived from the evidence alone ([`cause`]). If the evidence does not show the cause, the case
//!           is not explained, and the evidence is shown.
//! Direction  the client or the server sends the messages, depending on the
//!           [pattern](evidence::Pattern::is_back).
//! Limits    Linux at both ends. Captures are made by the client.
//! Beside    [`latency`] measures round trips while several connections fill the path, and [`udp`] one-way
//!           delays, losses and reordering of datagrams; [`check`] looks for path MTU black holes,
//!           removed ECN marks and forged resets; [`hosts`] compares several hosts.
//!           [`request`] needs no server of its own: it splits HTTP requests into their parts.
//! Left out  captures at the server.

pub mod check;
pub mod delay;
mod diagnosis;
pub mod grid;
pub mod hosts;
pub mod latency;
pub mod question;
pub mod request;
pub mod session;
pub mod sweep;
pub mod trace;
mod trial;
pub mod udp;

pub use crate::remote::exchanges::Asked;
pub use crate::remote::tcp::{BoardTcp, Listener, ReadCounters, Stream, TcpStack};
pub use crate::remote::{admission, client, protocol, server};
pub use client::Client;
pub use diagnosis::findings::Findings;
pub use diagnosis::threshold::SlowBelow;
pub use diagnosis::{advice, boundary, cause, directions, findings, map};
pub use grid::Grid;
pub use question::Network;
pub use server::{Limits, Server};
pub use session::Session;
pub use trial::{digest, evidence, setup, stream, transactions};
