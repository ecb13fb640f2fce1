//! The control interface: a Unix socket for requests to a board; each request and each answer is a line of
//! JSON.
//!
//! Path             `NAME.sock` in the user's socket directory ([`kiban_os::unix::names`]).
//! Access           the user who runs the board, and root: the socket has mode 0600, and the board checks the
//!                  client's user as the kernel reports it.
//! Requests         `{"verb":"status"}`, `reload`, `down`, `capture` with `port`, `file` and optionally
//!                  `seconds` and `packets`; `loopback` with `port`, `vc`, `segment`; `echo` with `target`,
//!                  `bytes` and `wait` (seconds).
//! Answers          `{"status":{…}}`, `{"done":"…"}`, `{"loopback":123.4}` (microseconds; null without an
//!                  answer), `{"echo":{"reply":{…}}}`, `{"echo":{"error":{…}}}`, `{"echo":{"timeout":{}}}` or
//!                  `{"refused":"…"}`.
//! Capture          a `capture` request has two answers. The first is `{"done":"…"}`, sent when the capture
//!                  has started. The second is sent when it has ended: `{"captured":{…}}`, or
//!                  `{"refused":"…"}` if the file is incomplete. A capture ends when it reaches a limit, or
//!                  when the client sends more data or shuts down its side of the connection.

mod admission;
mod client;
mod messages;
mod scrape;
mod server;

pub use client::{CaptureEnd, ControlClient, boards};
pub use messages::{CAPTURE_MAX, Question, Reply};
pub use scrape::MetricsListener;
pub use server::ControlServer;
