//! The interface to the network services below the transport layer.
//!
//! ```text
//!   Stream    TPKTs in a byte stream       (RFC 1006)
//!   Line      X.25 over LAPB on a line     (ISO 8878: the lower module of paper [5])
//!   Loop      another end of this board    (the paper's internal loopback)
//! ```

use super::stream::Stream;
use crate::network::{Indication, Request};
use kiban_base::Instant;

/// A network connection, as the transport layer uses it.
pub trait NetworkService {
    /// Accepts a request from the transport layer. Requests on a connection that has ended are ignored.
    fn request(&mut self, request: Request, now: Instant);
    /// Returns the network's next indication. An NSDU that has not been polled stays in the network service,
    /// where flow control stops its sender.
    fn poll(&mut self, now: Instant) -> Option<Indication>;
    /// Passes on as much waiting data as the network has room for. Returns true if it passed on any.
    fn push(&mut self, now: Instant) -> bool;
    /// Returns the number of bytes that are waiting for room.
    fn waiting_bytes(&self) -> usize;
    /// Returns when [`NetworkService::settle`] must be called even if no input arrives.
    fn deadline(&self) -> Instant;
    /// Handles timers that have expired at `now`.
    fn settle(&mut self, now: Instant);
}

impl NetworkService for Stream {
    fn request(&mut self, request: Request, _now: Instant) {
        Stream::request(self, request);
    }

    fn poll(&mut self, _now: Instant) -> Option<Indication> {
        Stream::poll(self)
    }

    fn push(&mut self, _now: Instant) -> bool {
        false
    }

    fn waiting_bytes(&self) -> usize {
        self.outgoing_bytes()
    }

    fn deadline(&self) -> Instant {
        Instant::NEVER
    }

    fn settle(&mut self, _now: Instant) {}
}
