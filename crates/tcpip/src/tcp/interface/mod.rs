//! The interface to the host (RFC 9293 §3.9.1): indications, session statistics, errors of refused requests,
//! and the writer of a session.

pub(super) mod indication;
pub(super) mod info;
pub(super) mod refusal;
pub(super) mod writer;
