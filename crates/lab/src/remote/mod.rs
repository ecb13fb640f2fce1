//! The measurement of a remote end: the server (`kiban lab serve`), its clients, and the protocol between
//! them.
//!
//! ```text
//! client ── control connection: the token, then requests and replies ── server
//!    ├───── a trial: one TCP connection with the trial's settings ─────────┤
//!    └───── a mix: cells in UDP datagrams, TCP connections ────────────────┘
//! ```
//!
//! Purpose   whatever is measured between two hosts ([`crate::net`], [`crate::mix`]) uses one server, one
//!           admission and one control protocol.
//! Security  only clients with the token measure ([`admission`]). Silent connections cannot keep others out
//!           (`server/unproven.rs`). Neither end sends payload to an address other than the other end's, or
//!           to a port that the other end has not proved its own ([`protocol`]).
//! Bounds    the limits of the server ([`server::Limits`]) apply to all measurements.

pub mod admission;
pub mod client;
mod lines;
pub mod protocol;
pub mod server;
