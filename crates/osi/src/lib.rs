//! OSI: the upper layers as the standards define them, from transport class 0 to the FTAM file service, and
//! X.25 below them. The design follows the OSI board of paper \[5\] (docs/reproduce-osi-board.md).
//!
//! ```
//! use kiban_osi::wire::tpkt;
//!
//! // RFC 1006 §6: a packet of 7 bytes has 3 bytes of payload behind its header.
//! let (header, header_bytes) = tpkt::Header::read(&[3, 0, 0, 7, 2, 0xf0, 0x80])?;
//! assert_eq!((header.payload_bytes, header_bytes), (3, 4));
//! # Ok::<(), kiban_base::Malformed>(())
//! ```
//!
//! Purpose   interoperability with other implementations: file transfer over FTAM, and any other application
//!           that uses ACSE, over RFC 1006 (TCP) or X.25.
//! Design    one sans-I/O machine for each layer of one connection (docs/machines.md). A layer never calls
//!           the next one; the owner of the stack moves the output of one layer into the next.
//!
//! ```text
//!   request    from above: the standard's request and response primitives.
//!              An Err is the caller's error, and changes nothing
//!   arrive     from below: validates whatever the peer sent; never an Err, never a panic
//!   poll_up    indications and confirmations, in order
//!   poll_down  requests to the layer below, in order
//!   deadline, settle    if the layer has a timer; requests and indications are given the current time `now`
//! ```
//!
//! ```text
//!   paper [5]'s tasks      the standard             module
//!   HIF   host interface   X.200's application      the program that owns the stack; osi::hif, if it is another process
//!   FTAM                   ISO 8571                 osi::ftam
//!   ACSE + PL              X.227, X.226             osi::acse, osi::presentation
//!   SL                     X.225                    osi::session
//!   TL                     X.224 class 0            osi::transport
//!   LIF   lower modules    X.25, LAPB; RFC 1006     x25, lapb; a stream of TPKTs (wire::tpkt)
//!   internal loopback      -                        two stacks whose transport machines are joined
//! ```
//!
//! Payload   is a [`Rope`](kiban_base::Rope) from the user to the line: headers are prepended, pieces are
//!           shared. This corresponds to the paper's buffer control. Primitives are enums with typed fields.
//! Tables    each protocol's state table is a function of (state, event) that returns the contents of the
//!           standard's cell, with the standard's names; a test checks every cell.
//! Limits    are documented in each machine. Poll all output after each input, so that queues never hold more
//!           than one input produces.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod lapb;
pub mod wire;
pub mod x25;

pub mod acse;
pub mod ftam;
pub mod hif;
pub mod network;
pub mod pad;
pub mod presentation;
pub mod session;
pub mod stack;
#[cfg(test)]
mod table;
pub mod transport;

use alloc::vec::Vec;
use core::fmt;

/// A selector: the octets of an address that identify a service user. It is empty if the selector is absent.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector(Vec<u8>);

impl Selector {
    /// The absent selector.
    pub const NONE: Selector = Selector(Vec::new());

    /// Returns the octets.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the selector is absent.
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

/// The presentation, session and transport selectors of an address. Only the code that opens network
/// connections knows the network address that precedes them.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Selectors {
    /// PSEL.
    pub presentation: Selector,
    /// SSEL.
    pub session: Selector,
    /// TSEL.
    pub transport: Selector,
}

/// The called selectors that a machine accepts.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub enum AcceptedSelectors {
    /// Accepts all selectors: the user above decides.
    #[default]
    Any,
    /// Accepts only these; a call to any other selector is refused as unknown.
    Only(Vec<Selector>),
}

impl AcceptedSelectors {
    /// Returns whether a called selector is accepted.
    pub fn has(&self, called: &Selector) -> bool {
        match self {
            AcceptedSelectors::Any => true,
            AcceptedSelectors::Only(known) => known.contains(called),
        }
    }
}

/// The reason why a request was rejected: either the state table does not currently allow it, or the protocol
/// cannot carry its parameters. The error is the caller's, and the request changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// The request is not allowed in this state.
    State,
    /// A parameter is longer than the protocol can carry.
    Length,
    /// A functional unit was not negotiated, or is not supported.
    Unit,
    /// The caller does not hold a required token.
    Token,
    /// A synchronisation point serial number is out of range.
    Serial,
    /// A parameter has an invalid value.
    Value,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestError::State => {
                "the request is not valid in this state: handle the pending indications first"
            }
            RequestError::Length => "a parameter is longer than the protocol allows",
            RequestError::Unit => "the request needs a functional unit that was not negotiated",
            RequestError::Token => "the other end holds the token that the request needs: request it first",
            RequestError::Serial => "the synchronisation point's serial number is out of range",
            RequestError::Value => "a parameter has an invalid value",
        })
    }
}

impl core::error::Error for RequestError {}

#[doc(hidden)]
pub use kiban_base::Malformed;
