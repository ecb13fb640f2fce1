//! TPDUs and their headers.

use alloc::vec::Vec;
use kiban_base::Malformed;

/// Length of a data TPDU's header in bytes.
pub const DATA_HEADER_BYTES: usize = 3;
/// Maximum length of a header in bytes: the length indicator 255 is reserved (X.224 §13.2.1).
pub const HEADER_BYTES_MAX: usize = 255;
/// The code of the smallest TPDU size, 128 octets: `1 << 7`.
pub const SIZE_CODE_MIN: u8 = 7;
/// The largest size code that is accepted, 65536 octets. X.224 allows up to 13, and up to 11 in class 0, but
/// peers over TCP use larger codes.
pub const SIZE_CODE_MAX: u8 = 16;
/// The unit of the preferred maximum TPDU size in bytes.
pub const PREFERRED_UNIT_BYTES: u32 = 128;

pub(super) mod code {
    pub(crate) const CR: u8 = 0xe0;
    pub(crate) const CC: u8 = 0xd0;
    pub(crate) const DR: u8 = 0x80;
    pub(crate) const DT: u8 = 0xf0;
    pub(crate) const ER: u8 = 0x70;
}

pub(super) mod parameter {
    pub(crate) const TPDU_SIZE: u8 = 0xc0;
    pub(crate) const CALLING: u8 = 0xc1;
    pub(crate) const CALLED: u8 = 0xc2;
    pub(crate) const VERSION: u8 = 0xc4;
    pub(crate) const OPTIONS: u8 = 0xc6;
    pub(crate) const ALTERNATIVES: u8 = 0xc7;
    pub(crate) const PREFERRED: u8 = 0xf0;
    pub(crate) const INFORMATION: u8 = 0xe0;
    pub(crate) const INVALID_TPDU: u8 = 0xc1;
}

/// The EOT mark: this is the last TPDU of a TSDU.
const END: u8 = 0x80;

/// A TPDU without its user data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tpdu {
    /// CR: requests a connection.
    ConnectRequest(Connect),
    /// CC: confirms a connection.
    ConnectConfirm(Connect),
    /// DR: refuses a connection. In class 0, it does not end an established connection.
    DisconnectRequest {
        /// The receiver's reference.
        destination: u16,
        /// The sender's reference; 0 means none.
        source: u16,
        /// The reason: see X.224 §13.5.3.
        reason: u8,
        /// Additional information.
        additional: Vec<u8>,
    },
    /// DT: a part of a TSDU.
    Data {
        /// Whether this is the last part of the TSDU.
        end: bool,
    },
    /// ER: reports an invalid TPDU.
    Error {
        /// The receiver's reference.
        destination: u16,
        /// The cause.
        cause: RejectCause,
        /// The octets of the invalid TPDU up to the error.
        invalid: Vec<u8>,
    },
    /// A TPDU of another class: its code, with the credit bits set to zero.
    Other(u8),
}

/// The contents of CR and CC.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Connect {
    /// The receiver's reference; 0 in a CR.
    pub destination: u16,
    /// The sender's reference.
    pub source: u16,
    /// The preferred class in a CR, or the selected class in a CC: 0 to 4.
    pub class: u8,
    /// The options of that class: 4 bits.
    pub options: u8,
    /// The calling transport selector.
    pub calling: Option<Vec<u8>>,
    /// The called transport selector; in a CC, the responding transport selector.
    pub called: Option<Vec<u8>>,
    /// The code of the TPDU size.
    pub tpdu_size: Option<u8>,
    /// The preferred maximum TPDU size, in units of 128 octets.
    pub preferred: Option<u32>,
    /// The version number.
    pub version: Option<u8>,
    /// The additional option selection.
    pub additional_options: Option<u8>,
    /// Alternative classes: one octet each, with the class in its upper half.
    pub alternatives: Vec<u8>,
}

/// The reason why a TPDU was rejected (X.224 §13.12.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RejectCause {
    /// Not specified (0).
    NotSpecified,
    /// Invalid parameter code (1).
    ParameterCode,
    /// Invalid TPDU type (2).
    Type,
    /// Invalid parameter value (3).
    ParameterValue,
    /// Another cause.
    Other(u8),
}

impl RejectCause {
    /// Returns the octet for a cause.
    pub const fn octet(self) -> u8 {
        match self {
            RejectCause::NotSpecified => 0,
            RejectCause::ParameterCode => 1,
            RejectCause::Type => 2,
            RejectCause::ParameterValue => 3,
            RejectCause::Other(octet) => octet,
        }
    }

    /// Returns the cause that an octet encodes.
    pub const fn of_octet(octet: u8) -> RejectCause {
        match octet {
            0 => RejectCause::NotSpecified,
            1 => RejectCause::ParameterCode,
            2 => RejectCause::Type,
            3 => RejectCause::ParameterValue,
            octet => RejectCause::Other(octet),
        }
    }
}

/// Reads a data TPDU's header from its first three bytes, and returns whether the TPDU is the last of its
/// TSDU. This is a fast path for most TPDUs. `None` means another TPDU, or bits that class 0 does not use;
/// use [`Tpdu::read`] in that case.
#[inline]
pub fn data_end(bytes: &[u8]) -> Option<bool> {
    match bytes {
        &[2, code::DT, number, ..] => Some(number & END != 0),
        _ => None,
    }
}

/// Returns the encoded header of a data TPDU.
#[inline]
pub const fn data_header(end: bool) -> [u8; DATA_HEADER_BYTES] {
    [2, code::DT, if end { END } else { 0 }]
}

/// Returns the size in bytes for a size code, or `None` if the code is invalid.
#[inline]
pub const fn size_bytes(size_code: u8) -> Option<u32> {
    match size_code {
        SIZE_CODE_MIN..=SIZE_CODE_MAX => Some(1 << size_code),
        _ => None,
    }
}

impl Connect {
    /// Returns whether class 0 may be selected: that is, if it is the preferred class, an alternative class,
    /// or implied by class 1 (X.224 §6.5.4, Table 3).
    pub fn offers_class_0(&self) -> bool {
        self.class <= 1 || self.alternatives.iter().any(|class| class >> 4 <= 1)
    }

    fn read_parameter(&mut self, code: u8, value: &[u8]) -> Result<(), Malformed> {
        let octet = || match value {
            &[octet] => Ok(octet),
            _ => Err(Malformed::OptionLength),
        };
        match code {
            parameter::TPDU_SIZE => self.tpdu_size = Some(octet()?),
            parameter::CALLING => self.calling = Some(value.to_vec()),
            parameter::CALLED => self.called = Some(value.to_vec()),
            parameter::VERSION => self.version = Some(octet()?),
            parameter::OPTIONS => self.additional_options = Some(octet()?),
            parameter::ALTERNATIVES => self.alternatives = value.to_vec(),
            parameter::PREFERRED => {
                if value.is_empty() || value.len() > 4 {
                    return Err(Malformed::OptionLength);
                }
                self.preferred = Some(value.iter().fold(0, |sum, &octet| sum << 8 | u32::from(octet)));
            }
            _ => {}
        }
        Ok(())
    }

    /// Calls `show` for every parameter, in the order in which they are sent.
    fn parameters(&self, show: &mut dyn FnMut(u8, &[u8])) {
        if let Some(calling) = &self.calling {
            show(parameter::CALLING, calling);
        }
        if let Some(called) = &self.called {
            show(parameter::CALLED, called);
        }
        if let Some(size) = self.tpdu_size {
            show(parameter::TPDU_SIZE, &[size]);
        }
        if let Some(preferred) = self.preferred {
            let bytes = preferred.to_be_bytes();
            show(parameter::PREFERRED, &bytes[(preferred.leading_zeros() as usize / 8).min(3)..]);
        }
        if let Some(version) = self.version {
            show(parameter::VERSION, &[version]);
        }
        if let Some(options) = self.additional_options {
            show(parameter::OPTIONS, &[options]);
        }
        if !self.alternatives.is_empty() {
            show(parameter::ALTERNATIVES, &self.alternatives);
        }
    }
}

impl Tpdu {
    /// Reads a TPDU's header; the user data follows it.
    ///
    /// # Errors
    /// `Truncated`; `HeaderLength` if the length indicator is invalid for the type; `OptionLength` if a
    /// parameter extends beyond the header or has an invalid length; `Operation` for an undefined code.
    pub fn read(bytes: &[u8]) -> Result<(Tpdu, usize), Malformed> {
        let &[length, ref rest @ ..] = bytes else { return Err(Malformed::Truncated) };
        let length = usize::from(length);
        if length == usize::from(u8::MAX) || length == 0 {
            return Err(Malformed::HeaderLength);
        }
        let header = rest.get(..length).ok_or(Malformed::Truncated)?;
        let tpdu = match (header[0] & 0xf0, header) {
            (code::CR | code::CC, &[code, d0, d1, s0, s1, class, ref parameters @ ..]) => {
                let mut connect = Connect {
                    destination: u16::from_be_bytes([d0, d1]),
                    source: u16::from_be_bytes([s0, s1]),
                    class: class >> 4,
                    options: class & 0x0f,
                    ..Connect::default()
                };
                each_parameter(parameters, |code, value| connect.read_parameter(code, value))?;
                match code & 0xf0 {
                    code::CR => Tpdu::ConnectRequest(connect),
                    _ => Tpdu::ConnectConfirm(connect),
                }
            }
            (code::DR, &[_, d0, d1, s0, s1, reason, ref parameters @ ..]) => Tpdu::DisconnectRequest {
                destination: u16::from_be_bytes([d0, d1]),
                source: u16::from_be_bytes([s0, s1]),
                reason,
                additional: one_parameter(parameters, parameter::INFORMATION)?,
            },
            (code::DT, &[_, number]) => Tpdu::Data { end: number & END != 0 },
            (code::ER, &[_, d0, d1, cause, ref parameters @ ..]) => Tpdu::Error {
                destination: u16::from_be_bytes([d0, d1]),
                cause: RejectCause::of_octet(cause),
                invalid: one_parameter(parameters, parameter::INVALID_TPDU)?,
            },
            (code::CR | code::CC | code::DR | code::DT | code::ER, _) => return Err(Malformed::HeaderLength),
            // DC, ED, AK, EA and RJ, which only other classes have.
            (other @ (0xc0 | 0x10 | 0x60 | 0x20 | 0x50), _) => Tpdu::Other(other),
            _ => return Err(Malformed::Operation),
        };
        Ok((tpdu, 1 + length))
    }

    /// Returns the length of the header in bytes.
    pub fn length(&self) -> usize {
        let mut length = 0;
        self.each_part(&mut |part| length += part.len());
        1 + length
    }

    /// Writes the header to the front of `target`.
    ///
    /// # Panics
    /// If `target` is shorter than [`Tpdu::length`], or the header longer than [`HEADER_BYTES_MAX`].
    pub fn write(&self, target: &mut [u8]) -> usize {
        let mut at = 1;
        self.each_part(&mut |part| {
            target[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        });
        assert!(at <= HEADER_BYTES_MAX, "a header of {at} bytes");
        target[0] = (at - 1) as u8;
        at
    }

    fn each_part(&self, put: &mut dyn FnMut(&[u8])) {
        match self {
            Tpdu::ConnectRequest(connect) | Tpdu::ConnectConfirm(connect) => {
                let code = if matches!(self, Tpdu::ConnectRequest(_)) { code::CR } else { code::CC };
                let ([d0, d1], [s0, s1]) = (connect.destination.to_be_bytes(), connect.source.to_be_bytes());
                put(&[code, d0, d1, s0, s1, connect.class << 4 | connect.options & 0x0f]);
                connect.parameters(&mut |code, value| put_parameter(put, code, value));
            }
            Tpdu::DisconnectRequest { destination, source, reason, additional } => {
                let ([d0, d1], [s0, s1]) = (destination.to_be_bytes(), source.to_be_bytes());
                put(&[code::DR, d0, d1, s0, s1, *reason]);
                if !additional.is_empty() {
                    put_parameter(put, parameter::INFORMATION, additional);
                }
            }
            Tpdu::Data { end } => put(&data_header(*end)[1..]),
            Tpdu::Error { destination, cause, invalid } => {
                let [d0, d1] = destination.to_be_bytes();
                put(&[code::ER, d0, d1, cause.octet()]);
                if !invalid.is_empty() {
                    put_parameter(put, parameter::INVALID_TPDU, invalid);
                }
            }
            Tpdu::Other(code) => put(&[*code]),
        }
    }
}

fn put_parameter(put: &mut dyn FnMut(&[u8]), code: u8, value: &[u8]) {
    put(&[code, value.len() as u8]);
    put(value);
}

fn each_parameter(
    mut parameters: &[u8],
    mut see: impl FnMut(u8, &[u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while let &[code, ref rest @ ..] = parameters {
        let &[length, ref rest @ ..] = rest else { return Err(Malformed::OptionLength) };
        let (value, rest) = rest.split_at_checked(length.into()).ok_or(Malformed::OptionLength)?;
        see(code, value)?;
        parameters = rest;
    }
    Ok(())
}

fn one_parameter(parameters: &[u8], wanted: u8) -> Result<Vec<u8>, Malformed> {
    let mut found = Vec::new();
    each_parameter(parameters, |code, value| {
        if code == wanted {
            found = value.to_vec();
        }
        Ok(())
    })?;
    Ok(found)
}
