//! The lower module of an association over TCP: network service data units as TPKTs in a byte stream (RFC 1006).
//!
//! Goal      transport sees the network service of X.213; who drives sees bytes that come and ropes that leave.
//! Down      a header is put in front of a unit's rope; nothing is copied. [`Stream::outgoing`] is what waits to be sent.
//! Up        what a read brought is cut along the headers; a unit is a rope of the pieces that it came in.
//! Trickles  a unit that comes byte by byte costs what it holds: pieces that are short and no unit's beginning are joined.
//! Limits    one unit that is not whole, at most `nsdu_bytes_max`; longer ones end the connection as soon as their header says so.
//! Left out  making and closing connections: the driver does, as [`Stream::wish`] says.

use kiban_ground::{Bytes, Rope, RopeQueue};
use kiban_stack::osi::network::{Indication, Origin, Reason, Request};
use kiban_wire::{Malformed, tpkt};

/// Pieces of a unit that are shorter are joined with those before them.
const GATHER_BYTES: usize = 512;

/// What the driver is to do with the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Nothing: let bytes come and go.
    Keep,
    /// Connect, then say [`Stream::connected`].
    Connect,
    /// Close, when all that waits has been sent.
    Close,
}

/// One connection's bytes.
#[derive(Debug)]
pub struct Stream {
    received: Rope,
    outgoing: RopeQueue,
    nsdu_bytes_max: usize,
    wish: Wish,
    ended: bool,
    broken: Option<Malformed>,
}

impl Stream {
    /// A stream that takes units of at most `nsdu_bytes_max`.
    pub fn new(nsdu_bytes_max: usize) -> Stream {
        Stream {
            received: Rope::new(),
            outgoing: RopeQueue::new(),
            nsdu_bytes_max,
            wish: Wish::Keep,
            ended: false,
            broken: None,
        }
    }

    /// Transport asks. What it asks of a connection that has ended goes nowhere.
    pub fn request(&mut self, request: Request) {
        match request {
            _ if self.ended => {}
            Request::Connect => self.wish = Wish::Connect,
            Request::Accept => {}
            Request::Disconnect { .. } => self.wish = Wish::Close,
            Request::Data(mut unit) => {
                let mut header = [0; tpkt::HEADER_BYTES];
                let payload_bytes = unit.len().try_into().expect("transport keeps to the size it was given");
                tpkt::Header { payload_bytes }.write(&mut header);
                unit.prepend(&header);
                self.outgoing.push(unit);
            }
        }
    }

    /// The driver has connected.
    pub fn connected(&mut self) -> Indication {
        self.wish = Wish::Keep;
        Indication::Connected
    }

    /// Bytes have come.
    pub fn receive(&mut self, bytes: Bytes) {
        if self.broken.is_none() && !self.ended {
            match self.received.is_empty() || bytes.len() >= GATHER_BYTES {
                true => self.received.push(bytes),
                false => self.received.push_short(&bytes),
            }
        }
    }

    /// The next whole unit. A header that breaks the rules ends the connection.
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

    /// The peer has closed its end, or the connection is broken.
    pub fn ended(&mut self, origin: Origin) -> Option<Indication> {
        if core::mem::replace(&mut self.ended, true) {
            return None;
        }
        // Within a unit, or broken: not as things go.
        let whole = self.received.is_empty() && origin == Origin::User;
        let reason = if whole { Reason::Normal } else { Reason::Abnormal };
        self.wish = Wish::Close;
        self.drop_all();
        Some(Indication::Disconnected { origin, reason })
    }

    /// What is to be sent; the driver takes from its front.
    pub fn outgoing(&mut self) -> &mut RopeQueue {
        &mut self.outgoing
    }

    /// Bytes that wait to be sent.
    pub fn outgoing_bytes(&self) -> usize {
        self.outgoing.len()
    }

    /// What is to be done with the connection.
    pub fn wish(&self) -> Wish {
        self.wish
    }

    /// The rule that the peer's bytes broke, if they did.
    pub fn broken(&self) -> Option<Malformed> {
        self.broken
    }

    fn broke(&mut self, rule: Malformed) -> Indication {
        self.broken = Some(rule);
        self.ended = true;
        self.wish = Wish::Close;
        self.drop_all();
        Indication::Disconnected { origin: Origin::Provider, reason: Reason::Protocol }
    }

    fn drop_all(&mut self) {
        self.received = Rope::new();
        self.outgoing.clear();
    }
}
