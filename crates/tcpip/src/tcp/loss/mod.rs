//! Loss detection: SACK scoreboard (RFC 2018, 6675), RACK-TLP (RFC 8985), round-trip time estimate (RFC
//! 6298).

pub(crate) mod rack;
pub(crate) mod rtt;
pub(crate) mod scoreboard;
pub(crate) mod undo;
