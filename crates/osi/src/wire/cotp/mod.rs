//! The TPDUs of transport class 0 (X.224 §13).
//!
//! Purpose   encodes and decodes the TPDUs that establish and refuse connections, report errors, and carry
//!           segments of TSDUs.
//!
//! ```text
//!   length indicator 8    number of header octets after this one: at most 254
//!   code 4, credit 4      E CR, D CC, 8 DR, F DT, 7 ER
//!   CR CC   destination reference 16, source reference 16, class 4 + options 4, parameters
//!   DR      destination reference 16, source reference 16, reason 8, parameters
//!   DT      EOT mark 1, number 7 (ignored in class 0); then user data
//!   ER      destination reference 16, cause 8, parameters
//!   parameter   code 8, length 8, value
//! ```
//!
//! Classes   a CR for another class is decoded, so that it can be refused, or answered by selecting class 0.
//!           For all other TPDUs of other classes, only the code is returned ([`Tpdu::Other`]).
//! Lenient   unknown parameters, and those without meaning in class 0 (checksum, timers, quality of service),
//!           are skipped; if a parameter is repeated, the last one counts. User data after a CR, CC or DR,
//!           which class 0 does not allow, is ignored.
//! Sizes     codes from 7 (128 octets) upwards are accepted, including those above X.224's maximum for class
//!           0, because implementations of RFC 1006 use them.

#[cfg(test)]
mod tests;
mod tpdu;

pub use tpdu::{
    Connect, DATA_HEADER_BYTES, HEADER_BYTES_MAX, PREFERRED_UNIT_BYTES, RejectCause, SIZE_CODE_MAX,
    SIZE_CODE_MIN, Tpdu, data_end, data_header, size_bytes,
};
