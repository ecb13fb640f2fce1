//! OSI: the seven layers as the standards have them, from transport class 0 up to the file service (paper \[5\]).
//!
//! Goal      associations that real peers take for their own kind: files over FTAM, and anything else that stands on
//!           ACSE, over RFC 1006 (TCP) or over X.25.
//! Shape     one machine for each layer of one connection, pure: a value that is told and asked. A layer never calls its
//!           neighbour; whoever holds the tower carries what comes out of one into the next.
//!
//! ```text
//!   request    from above: the standard's request and response primitives. An Err is the caller's fault; nothing changed
//!   indicate   from below: whatever the peer says is judged here. Never an Err, never a panic
//!   poll_up    indications and confirmations, in order            poll_down  requests to the layer below, in order
//!   deadline, timeout   where the layer has a timer; `now` is lent with every request and every indication
//! ```
//!
//! ```text
//!   paper [5]'s tasks      the standard             here
//!   HIF   host interface   X.200's application      the program that holds the tower
//!   FTAM                   ISO 8571                 osi::ftam
//!   ACSE + PL              X.227, X.226             osi::acse, osi::presentation
//!   SL                     X.225                    osi::session
//!   TL                     X.224 class 0            osi::transport
//!   LIF   lower modules    X.25, LAPB; RFC 1006     x25, lapb; a stream of TPKTs (wire::tpkt)
//!   internal loopback      -                        two towers whose transport machines are joined
//! ```
//!
//! Payload   is a [`Rope`](kiban_ground::Rope) from the user to the line: headers are prepended, pieces referred to.
//!           That is the paper's buffer control; primitives are enums with typed fields, which is its second point.
//! Tables    each protocol's state table is a function of (state, event) that says what the standard's cell says, with the
//!           standard's names; a test walks every cell of it.
//! Limits    each machine names its own. What comes out must be polled after each thing that goes in, so that queues
//!           stay as short as one thing's consequences.

pub mod acse;
pub mod ftam;
pub mod network;
pub mod presentation;
pub mod session;
#[cfg(test)]
mod table;
pub mod transport;

use alloc::vec::Vec;
use core::fmt;

/// Which user of a service is meant: a suffix of an address, of any bytes. Empty: none is given.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector(Vec<u8>);

impl Selector {
    /// No selector.
    pub const NONE: Selector = Selector(Vec::new());

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Vec<u8>> for Selector {
    fn from(bytes: Vec<u8>) -> Selector {
        Selector(bytes)
    }
}

impl From<&[u8]> for Selector {
    fn from(bytes: &[u8]) -> Selector {
        Selector(bytes.to_vec())
    }
}

impl From<&str> for Selector {
    fn from(text: &str) -> Selector {
        text.as_bytes().into()
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// The selectors of an address: which user of presentation, session and transport. What stands before them, the network
/// address, belongs to whoever makes network connections.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Selectors {
    /// PSEL.
    pub presentation: Selector,
    /// SSEL.
    pub session: Selector,
    /// TSEL.
    pub transport: Selector,
}

/// Which called selectors a machine answers to.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub enum Attached {
    /// All: whoever stands above decides.
    #[default]
    Any,
    /// These; any other is refused as unknown.
    Only(Vec<Selector>),
}

impl Attached {
    /// Whether a called selector is one of them.
    pub fn has(&self, called: &Selector) -> bool {
        match self {
            Attached::Any => true,
            Attached::Only(known) => known.contains(called),
        }
    }
}

/// A request for which the state table has no cell, or whose parameters the protocol cannot carry: the caller's fault.
/// Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misuse {
    /// Not in this state.
    State,
    /// A parameter is longer than the protocol carries.
    Length,
    /// A functional unit that was not negotiated, or that is not offered here.
    Unit,
    /// A token that the caller does not hold.
    Token,
    /// A synchronisation point that is out of range.
    Serial,
    /// A value that the parameter cannot have.
    Value,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Misuse::State => "the connection is in no state for this: look at the indications first",
            Misuse::Length => "a parameter is longer than the protocol carries",
            Misuse::Unit => "this needs a functional unit that is not selected",
            Misuse::Token => "this needs a token that the other end holds: ask for it",
            Misuse::Serial => "the synchronisation point is outside of what may be named now",
            Misuse::Value => "a parameter has a value that is not possible here",
        })
    }
}

impl core::error::Error for Misuse {}
