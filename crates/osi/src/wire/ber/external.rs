//! EXTERNAL (X.690 §8.18).

use super::{Any, BitString, Integer, ObjectDescriptor, OctetString, Oid};
use crate::asn1;

asn1! {
    /// EXTERNAL: a value of a type that is defined elsewhere (X.690 §8.18).
    External ::= [UNIVERSAL 8] IMPLICIT SEQUENCE {
        /// The type of the value, or the encoding rules used for it.
        direct_reference      Oid OPTIONAL,
        /// The presentation context, which determines both the type and the encoding rules.
        indirect_reference    Integer OPTIONAL,
        /// A description for people.
        data_value_descriptor ObjectDescriptor OPTIONAL,
        /// The value.
        encoding              Encoding,
    }

    /// The form of an EXTERNAL's value.
    Encoding ::= CHOICE {
        /// A BER element.
        SingleAsn1Type [0] EXPLICIT Any,
        /// Octets in any encoding, including one or more BER elements.
        OctetAligned   [1] IMPLICIT OctetString,
        /// Bits in any encoding.
        Arbitrary      [2] IMPLICIT BitString,
    }
}
