//! Faults that a check finds.

use serde::Serialize;

/// A fault of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Long packets vanish without an ICMP message.
    MtuBlackHole,
    /// ECN marks are removed.
    EcnBleached,
    /// Packets with ECN marks are dropped.
    EcnDropped,
    /// A device between the hosts resets connections.
    ForgedReset,
}

impl Cause {
    /// Returns the name for people.
    pub fn words(self) -> &'static str {
        match self {
            Cause::MtuBlackHole => "path MTU black hole",
            Cause::EcnBleached => "ECN bleaching",
            Cause::EcnDropped => "ECN packets dropped",
            Cause::ForgedReset => "forged reset",
        }
    }
}

/// A fault that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The fault.
    pub cause: Cause,
    /// The direction in which it happens.
    pub direction: &'static str,
    /// The evidence.
    pub because: String,
    /// What to do.
    pub advice: &'static str,
}
