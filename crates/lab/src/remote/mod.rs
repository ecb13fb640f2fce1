//! Measurements between two hosts: the server (`kiban lab serve`), its clients, and the protocol between
//! them.
//!
//! ```text
//! client ── control connection: the token, then requests and replies ── server
//!    ├───── a trial: one TCP connection with the trial's settings ─────────┤
//!    ├───── a mix: cells in UDP datagrams, TCP connections ────────────────┤
//!    └───── probes: UDP datagrams with replies, TCP connections ───────────┘
//! ```
//!
//! Purpose   all measurements between two hosts ([`crate::net`], [`crate::mix`]) use the same server, the
//!           same admission rules and the same control protocol.
//! Security  only clients with the token can start measurements ([`admission`]). Silent connections cannot
//!           keep others out (`server/unproven.rs`). Each end sends payload only to the other end's address;
//!           a client sends datagrams only to a port that the server has proved to be its own. It connects to
//!           any TCP port that the server names, but the server chooses none of the octets that the client
//!           sends there ([`protocol`]).
//! Bounds    the limits of the server ([`server::Limits`]) apply to all measurements.

pub mod admission;
pub mod client;
pub(crate) mod exchanges;
mod lines;
mod nonce;
pub(crate) mod probes;
pub mod protocol;
pub mod server;
pub(crate) mod tcp;
pub(crate) mod windows;
