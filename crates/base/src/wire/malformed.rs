//! The protocol rules that received bytes can violate: one list for all crates.
//!
//! Purpose   a counter per violated rule, with the same word in code, counters and reports.
//! Names     [`Malformed::name`] is stable, because records are compared by it. New rules are appended.

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
            /// All rules in order: `ALL[rule as usize] == rule`, so that a rule can index an array of
            /// counters.
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
    Version, "version", "not the version this format belongs to";
    HeaderLength, "header_length", "the header length field is below the minimum or beyond the bytes";
    TotalLength, "total_length", "the length field is below the header or beyond the bytes";
    FragmentRange, "fragment_range", "a fragment that would end beyond the largest packet";
    Checksum, "checksum", "the one's-complement checksum does not match";
    Crc, "crc", "the cyclic redundancy check does not match";
    OptionLength, "option_length", "an option's length is not the one its kind has, or runs beyond the header";
    CommonPartIndicator, "common_part_indicator", "the common part indicator is not zero";
    Aborted, "aborted", "the frame's length is zero: its sender gave it up";
    PadLength, "pad_length", "the length leaves a pad of 48 bytes or more, or less room than the payload";
    Encapsulation, "encapsulation", "the bytes before the payload name no encapsulation that is known";
    HardwareType, "hardware_type", "the hardware type is not the one of this medium";
    ProtocolType, "protocol_type", "the protocol type is not IPv4";
    AddressLength, "address_length", "an address length that its kind of address cannot have";
    Operation, "operation", "the operation code is not defined";
    Magic, "magic", "the bytes do not begin with the mark of this format";
    RecordLength, "record_length", "the record's length is below its header or beyond the bytes";
    RecordType, "record_type", "a type of record that is not read here";
    TagNumber, "tag_number", "a tag's number begins with zeros or has more than 32 bits";
    ElementLength, "element_length", "an element's length is of the reserved form or has more than 32 bits";
    ElementForm, "element_form", "an element is primitive where it must be constructed, or the other way round";
    ElementValue, "element_value", "an element's contents are no value of its type";
    ElementMissing, "element_missing", "an element that must be there is not";
    Alternative, "alternative", "an element is none of those that can stand there";
    Nesting, "nesting", "more elements within each other than are read here";
    Concatenation, "concatenation", "data units are joined that may not be, or one stands alone that may not";
    ParameterLength, "parameter_length", "a parameter's length is not one it can have, or runs beyond the unit";
    ParameterValue, "parameter_value", "a parameter has a value that it cannot have";
    ParameterMissing, "parameter_missing", "a parameter is missing that has to be there";
    TooMany, "too_many", "more in a list than are taken here";
    LinkAddress, "link_address", "a frame to or from an address that this link does not have";
    GeneralFormat, "general_format", "a general format identifier that no modulo has";
    AddressDigits, "address_digits", "an address longer than its kind, or with digits that are none";
    FacilityLength, "facility_length", "facilities that are longer than their field, or the field than the packet";
    UserData, "user_data", "more user data than the packet may carry, or in a packet that carries none";
    PointerParity, "pointer_parity", "a pointer's parity is odd";
    PointerRange, "pointer_range", "a pointer that points beyond what it can reach";
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Malformed {}
