//! Files over HTTP/1.1: GET and HEAD, ranges, persistent connections (RFC 9110, RFC 9112).
//!
//! Session          a session receives a request head, sends the response head, and sends the body in pieces
//!                  as the stream has room; then handles the next request. Pipelined requests wait in the
//!                  board's receive buffer.
//! Limits           a request head has at most 8 KiB and must arrive within `head_time`. A session may be
//!                  idle for `idle` between requests. While a response is being sent, the peer must read at
//!                  least `MINIMUM_RATE` bytes per second, averaged over each period of `idle`.
//! Store            the source of files ([`Store`]): a directory, or memory in tests.
//! Content type     chosen by the file extension; `application/octet-stream` if the extension is unknown.
//! Not implemented  conditional requests, compression, multiple ranges, TLS.

pub(super) mod disk;
mod request;
mod response;
mod server;
mod store;

pub use server::{Http, HttpConfig};
pub use store::{Content, Entry, Found, Store};
