//! Measuring real networks: a sweep that finds slow regions, and says why.
//!
//! ```text
//! server ── control connection (lines of JSON, a token first) ── client
//!    └───── data connection, one a trial, with the trial's settings ─┘
//!
//! trial → record → slow? → cause → recommendation → the same point with it: proved, or not
//! ```
//!
//! Trial     a [`Question`](crate::engine::Question) in real time: [`transactions`] (write, write, read) or a [`stream`].
//! Evidence  what the kernels of both ends say of the connection (TCP_INFO), what they counted, and a short capture.
//! Cause     of evidence alone ([`cause`]); what it does not decide is not explained, and the evidence is shown.
//! Limits    Linux at both ends; one sender, the client.
//! Left out  the way back (run the server at the other end), UDP, several streams at once.

pub mod admission;
pub mod advice;
pub mod boundary;
pub mod cause;
pub mod client;
pub mod delay;
pub mod digest;
pub mod evidence;
pub mod map;
pub mod protocol;
pub mod server;
pub mod session;
pub mod setup;
pub mod store;
pub mod stream;
pub mod sweep;
pub mod trace;
pub mod transactions;

pub use client::Client;
pub use server::{Limits, Server};
pub use session::Session;
