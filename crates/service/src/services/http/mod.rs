//! Files over HTTP/1.1: GET and HEAD, ranges, persistent connections (RFC 9110, RFC 9112).
//!
//! Session          receives a request head, sends the response head, then the body in pieces as the stream
//!                  has room; then the next request. Pipelined requests wait in the board's receive buffer.
//! Limits           8 KiB of head within `head_time`; `idle` between requests; while a response is sent, the
//!                  peer must take `MINIMUM_RATE` bytes per second, averaged over each `idle`.
//! Store            the source of files ([`Store`]): a directory, or memory in a test.
//! Content type     by the file name's extension; unknown ones are bytes.
//! Not implemented  conditional requests, compression, multiple ranges, TLS.

pub(super) mod disk;
mod request;
mod response;
mod server;
mod store;

pub use server::{Http, HttpConfig};
pub use store::{Content, Entry, Found, Store};
