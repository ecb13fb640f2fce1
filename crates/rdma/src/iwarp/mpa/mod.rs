//! MPA: message boundaries on a TCP stream (RFC 5044), and connection setup (RFC 6581).
//!
//! Purpose          delivers each ULPDU of the upper layer (DDP) as a unit, protected by a CRC if either end
//!                  requests it.
//! Setup            [`Initiator`] and [`Responder`] exchange one frame each and end with [`Agreed`], which
//!                  determines the format of FPDUs.
//! Transmit path    [`begin`] and [`end`] frame a ULPDU in one buffer; [`length_field`] and [`Trailer`]
//!                  frame one that is sent in place. [`MarkerInserter`] adds markers for a peer that
//!                  requested them.
//! Receive path     [`Deframer`] parses the beginning of the received bytes.
//! Limits           no timers: the caller enforces siw's timeouts, 10 s for a request and 5 s for a reply. A
//!                  start frame has at most 532 bytes; an FPDU has at most 65,544 bytes plus its markers.
//! Not implemented  alignment of frames with TCP segments; resynchronisation by markers after a gap in the
//!                  stream (RFC 5044 §6), because the stream below has no gaps.

mod deframe;
mod frame;
mod setup;

pub use crate::wire::mpa::{Rtr, fpdu_bytes, trailer_bytes, ulpdu_bytes_max};
pub use deframe::{Deframer, Fault, Front, front};
pub use frame::{MarkerInserter, Trailer, begin, end, length_field};
pub use setup::{
    Agreed, Answer, Config, CrcUse, Initiator, PeerRequest, PrivateDataTooLong, Refused, Rejected, Responder,
    SetupFault,
};
