//! The protocol rules that received bytes can violate: one list for all crates.
//!
//! Purpose   provide a counter per violated rule, with the same word in code, counters and reports.
//! Names     [`Malformed::name`] is stable, because records are compared by name. New rules are appended.

use core::fmt;

/// Declares each rule once: variant, stable name, sentence.
macro_rules! rules {
    ($($variant:ident, $name:literal, $text:literal;)*) => {
        /// The rule that a peer's bytes violate.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Malformed {
            $(#[doc = $text] $variant,)*
        }

        impl Malformed {
            /// All rules in order, so that a rule can index an array of counters: `ALL[rule as usize] ==
            /// rule`.
            pub const ALL: &[Malformed] = &[$(Malformed::$variant),*];

            /// Returns the stable name for counters and records, in `snake_case`.
            pub const fn name(self) -> &'static str {
                match self { $(Malformed::$variant => $name,)* }
            }

            const fn text(self) -> &'static str {
                match self { $(Malformed::$variant => $text,)* }
            }
        }
    };
}

rules! {
    Truncated, "truncated", "fewer bytes than the header needs";
    Version, "version", "unsupported version";
    HeaderLength, "header_length", "the header length is below the minimum or exceeds the bytes received";
    TotalLength, "total_length", "the length field is below the header length or exceeds the bytes received";
    FragmentRange, "fragment_range", "the fragment would end beyond the largest packet";
    Checksum, "checksum", "the one's-complement checksum does not match";
    Crc, "crc", "the cyclic redundancy check does not match";
    OptionLength, "option_length", "an option length is invalid for its kind, or beyond the header";
    CommonPartIndicator, "common_part_indicator", "the common part indicator is not zero";
    Aborted, "aborted", "the frame's length field is zero: the sender aborted the frame";
    PadLength, "pad_length", "the length field does not match the number of cells";
    Encapsulation, "encapsulation", "unknown encapsulation";
    HardwareType, "hardware_type", "wrong hardware type for this medium";
    ProtocolType, "protocol_type", "the protocol type is not IPv4";
    AddressLength, "address_length", "invalid address length";
    Operation, "operation", "the operation code is not defined";
    Magic, "magic", "the format's magic number is missing";
    RecordLength, "record_length", "the record length is below its header or exceeds the bytes received";
    RecordType, "record_type", "unsupported record type";
    TagNumber, "tag_number", "a tag number has leading zeros or more than 32 bits";
    ElementLength, "element_length", "an element has a length of the reserved form or of more than 32 bits";
    ElementForm, "element_form", "an element is primitive where it must be constructed, or vice versa";
    ElementValue, "element_value", "the contents of an element are not a valid value of its type";
    ElementMissing, "element_missing", "a mandatory element is missing";
    Alternative, "alternative", "an element is none of the permitted alternatives";
    Nesting, "nesting", "elements are nested too deeply";
    Concatenation, "concatenation", "data units are concatenated where they must not be, or vice versa";
    ParameterLength, "parameter_length", "a parameter has an invalid length, or runs beyond the data unit";
    ParameterValue, "parameter_value", "a parameter has an invalid value";
    ParameterMissing, "parameter_missing", "a mandatory parameter is missing";
    TooMany, "too_many", "a list has too many entries";
    LinkAddress, "link_address", "the source or destination address is invalid on this link";
    GeneralFormat, "general_format", "invalid general format identifier";
    AddressDigits, "address_digits", "an address is too long for its kind, or has invalid digits";
    FacilityLength, "facility_length", "a facility exceeds its field, or that field exceeds the packet";
    UserData, "user_data", "the user data is longer than this packet type may carry";
    PointerParity, "pointer_parity", "a pointer has odd parity";
    PointerRange, "pointer_range", "a pointer is out of range";
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Malformed {}
