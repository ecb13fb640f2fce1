//! BER, the basic encoding rules of ASN.1 (X.690), and a notation for types that are encoded with them
//! (X.680).
//!
//! Purpose          PDUs of the OSI layers are declared once, in nearly the notation of their standards, and
//!                  can then be decoded and encoded: see [`asn1!`](crate::asn1!).
//! Decoding         accepts everything that X.690 allows (indefinite and long lengths, segmented strings,
//!                  high tag numbers), in one pass over contiguous bytes. Unknown, repeated or misplaced
//!                  elements of a SEQUENCE or SET are skipped, so that PDUs of later versions can be decoded.
//! Encoding         writes the contents first, then the header in front of them. Lengths are definite and
//!                  minimal, strings are not segmented, values equal to their DEFAULT are omitted, and a
//!                  string of named bits ends at the last bit that is set.
//! Payload          a [`Builder`] takes ropes and returns a rope, so that data of any length is shared, not
//!                  copied.
//! Limits           [`NESTING_MAX`] levels; 64 bits for an INTEGER; 64 named bits; [`OID_BYTES_MAX`] octets
//!                  for an OBJECT IDENTIFIER. Memory is never allocated for bytes that have not arrived,
//!                  whatever the length field says.
//! Not implemented  REAL and types added after 1990; dates are kept as text.
//!
//! ```
//! use kiban_osi::asn1;
//! use kiban_osi::wire::ber::{Asn1, GraphicString, Integer, Null, Oid, SequenceOf, Any};
//!
//! asn1! {
//!     /// A peer's question.                 Comments become documentation; a type is closed by `}` or `;`.
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
mod external;
mod oid;
mod strings;
mod tag;
mod types;

#[cfg(test)]
mod tests;

pub use builder::Builder;
pub use cursor::{Cursor, Element, NESTING_MAX};
pub use external::{Encoding, External};
pub use oid::{OID_BYTES_MAX, Oid, OidError};
pub use strings::{
    BitString, GeneralString, GeneralizedTime, GraphicString, Ia5String, NumericString, ObjectDescriptor,
    PrintableString, TeletexString, UtcTime, Utf8String, VideotexString, VisibleString,
};
pub use tag::{Class, Header, Tag};
pub use types::{Any, Asn1, Boolean, Integer, Null, OctetString, SequenceOf, SetOf, Tagged};

#[doc(hidden)]
pub use strings::{fmt_bits, fmt_number, named_bits, put_named_bits};
