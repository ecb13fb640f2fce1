//! What can be wrong with bytes from a peer: one list for the whole crate.
//!
//! Goal      a counter per broken rule, the same word in code, counters and reports.
//! Rules     [`Malformed::name`] is stable: records are compared by it. New rules are appended.

use core::fmt;

/// Declares the rules once: variant, stable name, sentence.
macro_rules! rules {
    ($($variant:ident, $name:literal, $text:literal;)*) => {
        /// The rule that a peer's bytes break.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Malformed {
            $(#[doc = $text] $variant,)*
        }

        impl Malformed {
            /// Every rule, in order: `ALL[rule as usize] == rule`, so an array of counters can be indexed by it.
            pub const ALL: &[Malformed] = &[$(Malformed::$variant),*];

            /// The stable name for counters and records, in `snake_case`.
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
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Malformed {}
