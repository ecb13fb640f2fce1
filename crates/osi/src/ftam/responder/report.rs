//! What a responder reports to its caller.

use crate::wire::ftam::{DiagnosticItem, Kind as FpduKind};
use alloc::string::String;

/// A refusal or failure to be logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailureReport {
    /// The FPDU that carried the diagnostic.
    pub kind: FpduKind,
    /// The name that the peer used for the last requested file, possibly truncated.
    pub file: String,
    /// The diagnostic.
    pub item: DiagnosticItem,
}

/// What a responder waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Waits for the peer.
    Peer,
    /// Waits for room in the layers below, because there is more to send.
    Room,
    /// Waits for the authenticator.
    Authentication,
}
