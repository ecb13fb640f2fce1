//! Transport class 0 (X.224) over RFC 1006 or X.25.
//!
//! Purpose          TSDUs of any length over a reliable network service with NSDUs of limited length.
//! Transmit path    CR, CC. A TSDU is cut into DT TPDUs that share its memory, with a header of three bytes
//!                  each; the last one has the EOT mark.
//! Receive path     DT TPDUs are joined up to EOT and passed up as one rope of the pieces that arrived.
//! Disconnecting    class 0 cannot end a transport connection by itself, so the network connection is closed.
//!                  A DR only refuses a connection. If a peer sends one later, as many do, it ends the
//!                  connection.
//! Protocol errors  an invalid TPDU, or one that the state does not allow, is answered by an ER TPDU, and the
//!                  network connection is closed (X.224 §6.22.1.3 a, b). A CR that does not permit class 0 is
//!                  refused by a DR, "negotiation failed".
//! Sizes            the TPDU size is negotiated (`size.rs`). Received TPDUs may be larger, since the network
//!                  limits their length.
//! Limits           `tsdu_bytes_max` for a TSDU in reassembly. Pieces shorter than [`GATHER_BYTES`] are
//!                  copied together, so that single bytes from a peer need no more memory than their length.
//!                  `connect_timeout` for establishing a connection, in either role.
//! Not implemented  classes 1 to 4; expedited data, which RFC 1006 would allow; user data in CR, CC and DR,
//!                  which class 0 lacks.

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
