//! MPA: messages with an end on a TCP stream (RFC 5044), and how a connection begins (RFC 6581).
//!
//! Goal      what the upper layer (DDP) gives in one piece arrives in one piece, checked if either end wants it so.
//! Start     [`Initiator`] and [`Responder`] exchange one frame each and end with [`Agreed`], which says how FPDUs look.
//! Down      [`begin`] and [`end`] frame what stands in one buffer; [`length_field`] and [`Trailer`] what is sent from where it
//!           lies. [`Weaver`] adds markers where the peer asked for them.
//! Up        [`Deframer`] looks at the front of what came and says what stands there.
//! Limits    no timer: siw gives a request 10 s and a reply 5 s, which is the caller's to do. A start frame is at most 532
//!           bytes, an FPDU 65,544 and its markers.
//! Left out  framing aligned with TCP segments, and finding an FPDU behind a hole in the stream by its markers (RFC 5044
//!           §6): the stream below has no holes.

mod deframe;
mod frame;
mod setup;

pub use deframe::{Deframer, Fault, Front, front};
pub use frame::{Trailer, Weaver, begin, end, length_field};
pub use kiban_wire::mpa::{Rtr, fpdu_bytes, trailer_bytes, ulpdu_bytes_max};
pub use setup::{
    Agreed, Answer, Asked, Config, CrcUse, Initiator, PrivateDataTooLong, Refused, Rejected, Responder,
    SetupFault,
};
