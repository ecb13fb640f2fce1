//! The lower module of an association over TCP: NSDUs as TPKTs in a byte stream (RFC 1006).
//!
//! Purpose          the transport layer sees the network service of X.213; the driver sees bytes received and
//!                  ropes to send.
//! Transmit path    a header is prepended to an NSDU's rope without copying. [`Stream::outgoing`] holds all
//!                  data that waits to be sent.
//! Receive path     received data is split at the headers; an NSDU is a rope of the pieces in which it
//!                  arrived.
//! Small pieces     short pieces of an NSDU are joined, so that an NSDU received byte by byte takes little
//!                  more memory than its length.
//! Limits           one incomplete NSDU of at most `nsdu_bytes_max`; a header that announces more ends the
//!                  connection.
//! Not implemented  opening and closing connections, which is the driver's task
//!                  ([`Stream::connection_action`] says when).

use crate::network::{Indication, Origin, Reason, Request};
use crate::wire::tpkt;
use kiban_base::Malformed;
use kiban_base::{Bytes, Rope, RopeQueue};

/// Pieces of an NSDU that are shorter than this are joined with the piece before them.
const GATHER_BYTES: usize = 512;

/// The action that the driver must take on the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionAction {
    /// Nothing: keep the connection, and transfer bytes.
    Keep,
    /// Connect, then call [`Stream::connected`].
    Connect,
    /// Close the connection when all pending data has been sent.
    Close,
}

/// The byte stream of one connection.
#[derive(Debug)]
pub struct Stream {
    received: Rope,
    outgoing: RopeQueue,
    nsdu_bytes_max: usize,
    wish: ConnectionAction,
    ended: bool,
    broken: Option<Malformed>,
}

impl Stream {
    /// Creates a stream that accepts NSDUs of at most `nsdu_bytes_max`.
    pub fn new(nsdu_bytes_max: usize) -> Stream {
        Stream {
            received: Rope::new(),
            outgoing: RopeQueue::new(),
            nsdu_bytes_max,
            wish: ConnectionAction::Keep,
            ended: false,
            broken: None,
        }
    }

    /// Accepts a request from the transport layer. Requests on a connection that has ended are ignored.
    pub fn request(&mut self, request: Request) {
        match request {
            _ if self.ended => {}
            Request::Connect => self.wish = ConnectionAction::Connect,
            Request::Accept => {}
            Request::Disconnect { .. } => self.wish = ConnectionAction::Close,
            Request::Data(mut unit) => {
                let mut header = [0; tpkt::HEADER_BYTES];
                let payload_bytes = unit.len().try_into().expect("transport keeps to the size it was given");
                tpkt::Header { payload_bytes }.write(&mut header);
                unit.prepend(&header);
                self.outgoing.push(unit);
            }
        }
    }

    /// Reports that the driver has connected.
    pub fn connected(&mut self) -> Indication {
        self.wish = ConnectionAction::Keep;
        Indication::Connected
    }

    /// Handles received bytes.
    pub fn arrive(&mut self, bytes: Bytes) {
        if self.broken.is_none() && !self.ended {
            match self.received.is_empty() || bytes.len() >= GATHER_BYTES {
                true => self.received.push(bytes),
                false => self.received.push_short(&bytes),
            }
        }
    }

    /// Returns the next complete unit. A malformed header ends the connection.
    pub fn poll(&mut self) -> Option<Indication> {
        if self.ended {
            return None;
        }
        let mut front = [0; tpkt::HEADER_BYTES];
        let count = self.received.copy_to(0, &mut front);
        let header = match tpkt::Header::read(&front[..count]) {
            Ok((header, _)) => header,
            Err(Malformed::Truncated) => return None,
            Err(rule) => return Some(self.broke(rule)),
        };
        let bytes = usize::from(header.payload_bytes);
        if bytes > self.nsdu_bytes_max {
            return Some(self.broke(Malformed::TotalLength));
        }
        if self.received.len() < tpkt::HEADER_BYTES + bytes {
            return None;
        }
        self.received.skip(tpkt::HEADER_BYTES);
        Some(Indication::Data(self.received.split_to(bytes)))
    }

    /// Reports that the peer has closed its end, or that the connection is broken.
    pub fn ended(&mut self, origin: Origin) -> Option<Indication> {
        if core::mem::replace(&mut self.ended, true) {
            return None;
        }
        // The end is abnormal if it occurs within an NSDU, or because the connection broke.
        let whole = self.received.is_empty() && origin == Origin::User;
        let reason = if whole { Reason::Normal } else { Reason::Abnormal };
        self.wish = ConnectionAction::Close;
        self.drop_all();
        Some(Indication::Disconnected { origin, reason })
    }

    /// Returns the bytes to be sent; the driver takes them from the front.
    pub fn outgoing(&mut self) -> &mut RopeQueue {
        &mut self.outgoing
    }

    /// Returns the number of bytes that are waiting to be sent.
    pub fn outgoing_bytes(&self) -> usize {
        self.outgoing.len()
    }

    /// Returns what the driver must do with the connection.
    pub fn connection_action(&self) -> ConnectionAction {
        self.wish
    }

    /// Returns the rule that the peer's bytes broke, if any.
    pub fn broken(&self) -> Option<Malformed> {
        self.broken
    }

    fn broke(&mut self, rule: Malformed) -> Indication {
        self.broken = Some(rule);
        self.ended = true;
        self.wish = ConnectionAction::Close;
        self.drop_all();
        Indication::Disconnected { origin: Origin::Provider, reason: Reason::Protocol }
    }

    fn drop_all(&mut self) {
        self.received = Rope::new();
        self.outgoing.clear();
    }
}
