//! BER, the basic encoding rules of ASN.1 (X.690), and a notation for what is encoded in them (X.680).
//!
//! Goal      PDUs of the OSI layers are written down once, nearly as their standards have them, and can then be read and
//!           written: see [`asn1!`](crate::asn1!).
//! Up        liberal (everything X.690 allows: indefinite and long lengths, strings in segments, high tag numbers), looked
//!           at once, over bytes that lie together. Elements of a SEQUENCE or SET that are unknown, repeated or out of
//!           their place are passed over, so that later versions' PDUs can be read.
//! Down      contents first, then the header in front of them: lengths are definite and minimal, strings are whole,
//!           values equal to their DEFAULT are left out, named bits end at the last one that is set.
//! Payload   a [`Builder`] takes ropes and leaves a rope: data of any length are only referred to.
//! Limits    [`NESTING_MAX`] levels; INTEGER of 64 bits; named bits 0 to 63; [`OID_BYTES_MAX`] octets of an OBJECT IDENTIFIER;
//!           nothing is allocated for a length before the bytes are there.
//! Left out  REAL and what came after 1990; dates are kept as they were sent.
//!
//! ```
//! use kiban_wire::{asn1, ber::{Asn1, GraphicString, Integer, Null, Oid, SequenceOf, Any}};
//!
//! asn1! {
//!     /// What can be asked.                 Comments become documentation; a type is closed by `}` or `;`.
//!     Question ::= CHOICE {
//!         Name    [0] IMPLICIT OpenRequest,
//!         Nothing [1] IMPLICIT Null,
//!         Other   [APPLICATION 40] EXPLICIT Any,
//!     }
//!
//!     OpenRequest ::= SEQUENCE {
//!         units      Units DEFAULT Units::READ,          // a type that brings its own tag
//!         title      [1] IMPLICIT GraphicString OPTIONAL,
//!         numbers    [2] IMPLICIT SequenceOf<Integer> OPTIONAL,
//!         syntax     Oid,
//!         result     Outcome DEFAULT Outcome::SUCCESS,
//!     }
//!
//!     Units   ::= [4] IMPLICIT BIT STRING { READ(2), WRITE(3), RESTART(10) }
//!     Outcome ::= [APPLICATION 5] IMPLICIT INTEGER { SUCCESS(0), FAILURE(1) }      // ENUMERATED likewise
//!     Titles  ::= SEQUENCE OF Title;                                               // SET OF likewise
//!     Title   ::= [APPLICATION 14] IMPLICIT GraphicString;
//! }
//!
//! let question = Question::Name(OpenRequest {
//!     units: Units::READ | Units::RESTART,
//!     title: Some("greetings".into()),
//!     numbers: None,
//!     syntax: Oid::of("1.0.8571.2.1"),
//!     result: Outcome::SUCCESS,                                  // not sent: it is the DEFAULT
//! });
//! let bytes = question.to_vec();
//! assert_eq!(bytes[..6], [0xa0, 23, 0x84, 3, 5, 0x20]);
//! assert_eq!(Question::read(&bytes), Ok((question, bytes.len())));
//! assert_eq!(Outcome(7).to_string(), "7");                       // unknown numbers are kept
//! ```

mod asn1;
mod builder;
mod cursor;
mod oid;
mod strings;
mod tag;
mod types;

#[cfg(test)]
mod tests;

pub use builder::Builder;
pub use cursor::{Cursor, Element, NESTING_MAX};
pub use oid::{OID_BYTES_MAX, Oid, OidError};
pub use strings::{
    BitString, GeneralString, GeneralizedTime, GraphicString, Ia5String, NumericString, ObjectDescriptor,
    PrintableString, TeletexString, UtcTime, Utf8String, VideotexString, VisibleString,
};
pub use tag::{Class, Header, Tag};
pub use types::{
    Any, Asn1, Boolean, Encoding, External, Integer, Null, OctetString, SequenceOf, SetOf, Tagged,
};

#[doc(hidden)]
pub use strings::{fmt_bits, fmt_number, named_bits, put_named_bits};
