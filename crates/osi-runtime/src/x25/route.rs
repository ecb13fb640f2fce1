//! Routes of a node: where a call goes, depending on where it comes from and whom it calls.

use crate::relay::{Called, Via};
use kiban_osi::x25::{Address, Call};

/// Where a call comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A line of this name.
    Line(String),
    /// An XOT connection.
    Xot,
    /// A program of this process.
    Local,
}

/// Where a call goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// The line of this name.
    Line(String),
    /// Another XOT router.
    Xot {
        /// Its host.
        host: String,
        /// Its port.
        port: u16,
    },
    /// A system that speaks TPKT (RFC 1006), to which the call's transport connection is relayed.
    Tpkt {
        /// Its host.
        host: String,
        /// Its port.
        port: u16,
    },
    /// A program of this process.
    Local,
}

/// A route; the first that matches a call is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchRoute {
    /// The calls that take this route.
    pub called: Called,
    /// Where they come from; `None` for anywhere.
    pub from: Option<Origin>,
    /// Where they go.
    pub to: Target,
    /// The called address with which they continue, if it is another.
    pub called_as: Option<Address>,
}

impl SwitchRoute {
    /// Returns whether a call from `origin` takes this route.
    pub(super) fn has(&self, call: &Call, origin: &Origin) -> bool {
        let via = match self.to {
            Target::Tpkt { .. } => Via::Tpkt,
            Target::Line(_) | Target::Xot { .. } | Target::Local => Via::Xot,
        };
        self.from.as_ref().is_none_or(|from| from == origin) && self.called.has(call, via)
    }

    /// Returns the call as it continues on this route.
    pub(super) fn onward(&self, call: &Call) -> Call {
        let mut call = call.clone();
        if let Some(called) = self.called_as {
            call.addresses.called = called;
        }
        call
    }
}
