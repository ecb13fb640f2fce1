//! The interface to the host (RFC 9293 §3.9.1): what a session reports, what it tells of itself, why a call
//! is refused, and the writer of a session.

pub(super) mod indication;
pub(super) mod info;
pub(super) mod refusal;
pub(super) mod writer;
