//! The reports that a responder makes to its caller.

use crate::wire::ftam::{DiagnosticItem, Kind as FpduKind};
use alloc::string::String;

/// A refusal or failure for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailureReport {
    /// The FPDU that carried the diagnostic.
    pub kind: FpduKind,
    /// The name that the peer used for the last requested file, truncated if it was too long.
    pub file: String,
    /// The diagnostic.
    pub item: DiagnosticItem,
}

/// The condition for which a responder waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Waits for the peer.
    Peer,
    /// There is more to send, but no room in the lower layers.
    Room,
    /// Waits for the authenticator.
    Authentication,
}
