//! The parameters of an event that are needed by the actions that it causes.

use super::primitives::Request;
use crate::wire::session::{Spdu, TokenSettings, Tokens, Units};

#[derive(Default)]
pub(super) struct Cause {
    pub(super) request: Option<Request>,
    pub(super) spdu: Option<Spdu>,
    pub(super) serial: u32,
    pub(super) tokens: Tokens,
    /// The values that an ACCEPT, sent or received, has agreed on.
    pub(super) accepted: Option<Accepted>,
    /// The sides that hold the tokens after a resynchronisation.
    pub(super) settled: Option<TokenSettings>,
}

/// The parameters of an ACCEPT that actions [5] and [11] use.
pub(super) struct Accepted {
    pub(super) units: Units,
    pub(super) serial: u32,
    pub(super) tokens: TokenSettings,
}
