//! Transport class 0 (X.224) over RFC 1006 or X.25.
//!
//! Purpose          carries TSDUs of any length over a reliable network service whose NSDUs have a limited
//!                  length.
//! Transmit path    a TSDU is cut into DT TPDUs that share its memory, each with a header of three bytes; the
//!                  last one has the EOT mark. CR and CC establish the connection.
//! Receive path     DT TPDUs are joined up to EOT and passed up as one rope of the pieces that arrived.
//! Disconnecting    class 0 has no TPDU that ends a transport connection, so the network connection is
//!                  closed. A DR serves only to refuse a connection, but many peers send one later as well;
//!                  the connection then ends.
//! Protocol errors  an invalid TPDU, or one that the state does not allow, is answered with an ER TPDU, and
//!                  the network connection is closed (X.224 §6.22.1.3 a, b). A CR that does not permit class
//!                  0 is refused with a DR, "negotiation failed".
//! Sizes            the TPDU size is negotiated (`size.rs`). Larger TPDUs are accepted, since the network
//!                  limits their length anyway.
//! Limits           `tsdu_bytes_max` for a TSDU in reassembly; `connect_timeout` for establishing a
//!                  connection, in either role. Pieces shorter than [`GATHER_BYTES`] are copied into one, so
//!                  that data that arrives byte by byte needs no more memory than its length.
//! Not implemented  classes 1 to 4; expedited data, which RFC 1006 would allow; user data in CR, CC and DR,
//!                  which class 0 does not have.

mod assembly;
mod config;
mod counters;
mod machine;
mod primitives;
mod size;
mod state;
#[cfg(test)]
mod tests;

pub use assembly::GATHER_BYTES;
pub use config::{Config, Network, TPDU_BYTES_MAX_X25, TPDU_BYTES_MIN};
pub use counters::TransportCounters;
pub use machine::{ADDITIONAL_BYTES_MAX, SELECTOR_BYTES_MAX, Transport};
pub use primitives::{DisconnectReason, Disconnected, Indication, Origin, Request};
