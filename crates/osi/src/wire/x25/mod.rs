//! X.25 packets (X.25 §5, ISO 8208).
//!
//! Purpose          decodes the header of a data packet in one step, and everything else field by field.
//!
//! ```text
//! | GFI 4: Q or A, D, modulo 2 | logical channel 12 | type 8 ... |
//!
//! data, modulo 8      P(R) 3, M, P(S) 3, 0                     RR RNR REJ   P(R) 3, kind 5
//! data, modulo 128    P(S) 7, 0 | P(R) 7, M                    RR RNR REJ   kind 8 | P(R) 7, 0
//! call                addresses | facilities length 8, facilities | user data
//! clear               cause 8 | diagnostic 8 | addresses | facilities length 8, facilities | user data
//! reset, restart      cause 8 | diagnostic 8
//! ```
//!
//! Decoding         [`Header::read`] identifies the packet; [`Call`], [`Clear`] and [`Cause`] decode what
//!                  follows. [`crate::x25`] chooses the diagnostic to send in answer to an error. For that
//!                  purpose, the channel is decoded even if the packet is truncated ([`Front`]).
//! Limits           [`CONTROL_BYTES_MAX`] for a control packet; user data of data packets is not examined.
//! Not implemented  the extended format (GFI 11); the contents of registration packets, of which only the
//!                  type is recognised.

mod address;
mod code;
mod facility;
mod header;
mod packet;
#[cfg(test)]
mod tests;

pub use crate::wire::lapb::Modulo;
pub use address::{Address, AddressBlock, DIGITS_MAX, NotAnAddress};
pub use code::{cause, clearing_cause, diagnostic, diagnostic_name, resetting_cause, restarting_cause};
pub use facility::{Extension, FACILITIES_BYTES_MAX, Facility, FastSelect, facilities};
pub use header::{Front, HEADER_BYTES_MAX, Header, Kind};
pub use packet::{
    CALL_USER_DATA_BYTES_MAX, CONTROL_BYTES_MAX, Call, Cause, Clear, FAST_SELECT_BYTES_MAX,
    INTERRUPT_BYTES_MAX,
};
