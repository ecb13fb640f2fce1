//! Decoding of a TSDU. User data is cut out of the rope without copying; parameters are copied.

use super::code::{parameter, si};
use super::items::{Enclosure, RefuseReason, Resynchronisation, TokenSettings, Tokens, Units, Versions};
use super::spdu::{
    ADDITIONAL_BYTES_MAX, Abort, Accept, Connect, Enclosed, Identifier, OverflowAccept, REFERENCE_BYTES_MAX,
    Refuse, SELECTOR_BYTES_MAX, SERIAL_MAX, Spdu, TsduSizes,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use kiban_base::{Malformed, Rope};

const GIVE_TOKENS_AND_DATA: [u8; 4] = [si::GT_DT, 0, si::GT_DT, 0];
const GROUPS_MAX: usize = 8;

/// The contents of a transport service data unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tsdu {
    /// The SPDU to process first (X.225 §6.3.7.1): the category 2 SPDU, or the only one.
    pub first: Spdu,
    /// The token SPDU that preceded it, if that SPDU names tokens.
    pub then: Option<Spdu>,
}

impl Tsdu {
    /// Decodes a TSDU.
    ///
    /// # Errors
    /// `Truncated`; `TotalLength` if bytes are left over; `Concatenation` for SPDUs that must not be
    /// concatenated or must not occur alone; `ParameterLength`, `ParameterValue`, `ParameterMissing`.
    #[inline]
    pub fn read(mut tsdu: Rope) -> Result<Tsdu, Malformed> {
        // The most frequent case: GIVE TOKENS without tokens, then an unsegmented DATA TRANSFER.
        if tsdu.first_run().starts_with(&GIVE_TOKENS_AND_DATA) {
            tsdu.skip(GIVE_TOKENS_AND_DATA.len());
            return Ok(Tsdu { first: Spdu::Data(Enclosed::whole(tsdu)), then: None });
        }
        Tsdu::read_any(tsdu)
    }

    fn read_any(mut tsdu: Rope) -> Result<Tsdu, Malformed> {
        let (identifier, parameters) = unit(&mut tsdu)?;
        if !matches!(identifier, si::GT_DT | si::PT) {
            let first = Spdu::read_alone(identifier, parameters, &mut tsdu)?;
            return if tsdu.is_empty() {
                Ok(Tsdu { first, then: None })
            } else {
                Err(Malformed::TotalLength)
            };
        }
        let read = Parameters::read(parameters)?;
        let (tokens, data) = (read.tokens, read.enclosed());
        let has_data = !data.data.is_empty() || data.enclosure.is_some();
        let token = match identifier {
            si::PT => Spdu::PleaseTokens { tokens, data },
            _ => Spdu::GiveTokens { tokens, data },
        };
        if tsdu.is_empty() {
            // X.225 §8.3.16.6: without a Token Item, this SPDU only precedes another one. In later segments
            // the item is always absent.
            return match tokens {
                None if !has_data => Err(Malformed::Concatenation),
                _ => Ok(Tsdu { first: token, then: None }),
            };
        }
        // X.225 Table 7: this is allowed only without user data.
        if has_data {
            return Err(Malformed::Concatenation);
        }
        let (identifier, parameters) = unit(&mut tsdu)?;
        let first = Spdu::read_joined(identifier, parameters, &mut tsdu)?;
        match tsdu.is_empty() {
            true => Ok(Tsdu { first, then: tokens.is_some().then_some(token) }),
            false => Err(Malformed::Concatenation),
        }
    }
}

impl Spdu {
    /// Decodes an SPDU of category 1.
    fn read_alone(identifier: u8, parameters: Rope, rest: &mut Rope) -> Result<Spdu, Malformed> {
        // These two SPDUs are never segmented, so an Enclosure Item has no meaning in them.
        let read = || match identifier {
            si::CN | si::OA => Parameters::all(parameters),
            _ => Parameters::read(parameters),
        };
        Ok(match identifier {
            si::CN => Spdu::Connect(Box::new(read()?.connect()?)),
            si::OA => {
                let read = read()?;
                Spdu::OverflowAccept(OverflowAccept {
                    tsdu_sizes: read.tsdu_sizes,
                    versions: read.versions.ok_or(Malformed::ParameterMissing)?,
                })
            }
            si::CDO => Spdu::ConnectDataOverflow(read()?.enclosed()),
            si::AC => Spdu::Accept(Box::new(read()?.accept()?)),
            si::RF => Spdu::Refuse(Box::new(read()?.refuse()?)),
            si::FN => {
                let read = read()?;
                Spdu::Finish { keep: read.keeps(), data: read.enclosed() }
            }
            si::DN => Spdu::Disconnect(read()?.enclosed()),
            si::NF => Spdu::NotFinished(read()?.enclosed()),
            si::AB_AI => Spdu::Abort(read()?.abort()),
            si::AA_AIA => Spdu::AbortAccept,
            si::TD => {
                let enclosure = read()?.enclosure;
                Spdu::TypedData(Enclosed { enclosure, data: core::mem::take(rest) })
            }
            other => {
                *rest = Rope::new();
                Spdu::Other(other)
            }
        })
    }

    /// Decodes an SPDU of category 2, which follows a token SPDU.
    fn read_joined(identifier: u8, parameters: Rope, rest: &mut Rope) -> Result<Spdu, Malformed> {
        let read = || Parameters::read(parameters);
        Ok(match identifier {
            si::GT_DT => {
                let enclosure = read()?.enclosure;
                Spdu::Data(Enclosed { enclosure, data: core::mem::take(rest) })
            }
            si::MIP => {
                let read = read()?;
                let explicit = read.sync_type & 1 == 0;
                Spdu::SyncMinor { explicit, serial: read.serial()?, data: read.enclosed() }
            }
            si::MIA => {
                let read = read()?;
                Spdu::SyncMinorAck { serial: read.serial()?, data: read.enclosed() }
            }
            si::RS => {
                let read = read()?;
                let serial = read.serial()?;
                if serial.is_some() && read.resync_type.is_none() {
                    return Err(Malformed::ParameterMissing);
                }
                Spdu::Resynchronise {
                    tokens: read.token_settings(),
                    kind: read.resync_type,
                    serial,
                    data: read.enclosed(),
                }
            }
            si::RA => {
                let read = read()?;
                Spdu::ResynchroniseAck {
                    tokens: read.token_settings(),
                    serial: read.serial()?,
                    data: read.enclosed(),
                }
            }
            // SPDUs of categories 0 and 1 never follow another SPDU.
            si::PT | si::CN | si::OA | si::CDO | si::AC | si::RF | si::FN | si::DN | si::NF | si::TD => {
                return Err(Malformed::Concatenation);
            }
            other => {
                *rest = Rope::new();
                Spdu::Other(other)
            }
        })
    }
}

/// Splits off the SI and LI fields and the parameters of the next SPDU.
fn unit(tsdu: &mut Rope) -> Result<(u8, Rope), Malformed> {
    let mut front = [0; 4];
    let there = tsdu.copy_to(0, &mut front);
    let (length, used) = match front[..there] {
        [_, 0xff, high, low] => (usize::from(u16::from_be_bytes([high, low])), 4),
        [_, 0xff, ..] | [_] | [] => return Err(Malformed::Truncated),
        [_, length, ..] => (usize::from(length), 2),
    };
    if tsdu.len() - used < length {
        return Err(Malformed::Truncated);
    }
    tsdu.skip(used);
    Ok((front[0], tsdu.split_to(length)))
}

/// All parameters of the SPDUs that are decoded in this file.
#[derive(Default)]
struct Parameters {
    identifier: Identifier,
    options: u8,
    tsdu_sizes: TsduSizes,
    versions: Option<Versions>,
    initial_serial: Option<u32>,
    token_setting: Option<u8>,
    units: Option<Units>,
    calling: Vec<u8>,
    called: Vec<u8>,
    overflow: bool,
    tokens: Option<Tokens>,
    disconnect: Option<u8>,
    enclosure: Option<Enclosure>,
    sync_type: u8,
    resync_type: Option<Resynchronisation>,
    serial: Option<u32>,
    reason: Rope,
    reflect: Vec<u8>,
    user_data: Rope,
}

impl Parameters {
    /// Decodes the parameters of an SPDU that may be segmented. In segments after the first, only the user
    /// data has a meaning (X.225 §8.3).
    fn read(parameters: Rope) -> Result<Parameters, Malformed> {
        let read = Parameters::all(parameters)?;
        if read.begins() {
            return Ok(read);
        }
        Ok(Parameters {
            enclosure: read.enclosure,
            user_data: read.user_data,
            reason: read.reason,
            ..Parameters::default()
        })
    }

    fn all(parameters: Rope) -> Result<Parameters, Malformed> {
        let mut read = Parameters::default();
        read.group(parameters, &mut 0)?;
        Ok(read)
    }

    fn begins(&self) -> bool {
        self.enclosure.is_none_or(|enclosure| enclosure.begins)
    }

    fn group(&mut self, mut parameters: Rope, groups: &mut usize) -> Result<(), Malformed> {
        while !parameters.is_empty() {
            let (code, value) = unit(&mut parameters).map_err(|_| Malformed::ParameterLength)?;
            match code {
                parameter::IDENTIFIER | parameter::CONNECT_ACCEPT => {
                    *groups += 1;
                    if *groups > GROUPS_MAX {
                        return Err(Malformed::ParameterLength);
                    }
                    self.group(value, groups)?;
                }
                _ if value.is_empty() => {}
                parameter::USER_DATA | parameter::EXTENDED_USER_DATA => self.user_data = value,
                parameter::REASON => self.reason = value,
                _ => self.small(code, &value)?,
            }
        }
        Ok(())
    }

    fn small(&mut self, code: u8, value: &Rope) -> Result<(), Malformed> {
        let octet = || match value.len() {
            1 => Ok(value.first_run()[0]),
            _ => Err(Malformed::ParameterLength),
        };
        let up_to = |bytes_max: usize| {
            if value.len() > bytes_max { Err(Malformed::ParameterLength) } else { Ok(value.to_vec()) }
        };
        match code {
            parameter::CALLED_REFERENCE | parameter::CALLING_REFERENCE => {
                self.identifier.user_reference = up_to(REFERENCE_BYTES_MAX)?;
            }
            parameter::COMMON_REFERENCE => self.identifier.common_reference = up_to(REFERENCE_BYTES_MAX)?,
            parameter::ADDITIONAL => self.identifier.additional = up_to(ADDITIONAL_BYTES_MAX)?,
            parameter::SYNC_TYPE => self.sync_type = octet()?,
            parameter::TOKEN_ITEM => self.tokens = Some(Tokens(octet()? & 0x55)),
            parameter::TRANSPORT_DISCONNECT => self.disconnect = Some(octet()?),
            parameter::PROTOCOL_OPTIONS => self.options = octet()?,
            parameter::REQUIREMENTS => {
                self.units = Some(Units(u16::from_be_bytes(words(value)?) & 0x1fff));
            }
            parameter::TSDU_SIZES => {
                let [i0, i1, r0, r1] = words(value)?;
                self.tsdu_sizes = TsduSizes {
                    initiator_bytes_max: u16::from_be_bytes([i0, i1]),
                    responder_bytes_max: u16::from_be_bytes([r0, r1]),
                };
            }
            parameter::VERSION => self.versions = Some(Versions(octet()? & 3)),
            parameter::INITIAL_SERIAL | parameter::LARGE_INITIAL_SERIAL => {
                self.initial_serial = Some(digits(value)?);
            }
            parameter::ENCLOSURE => self.enclosure = Some(Enclosure::of_octet(octet()?)),
            parameter::TOKEN_SETTING => self.token_setting = Some(octet()?),
            parameter::RESYNC_TYPE => {
                let kind = Resynchronisation::of_octet(octet()?).ok_or(Malformed::ParameterValue)?;
                self.resync_type = Some(kind);
            }
            parameter::SERIAL => self.serial = Some(digits(value)?),
            parameter::REFLECT => self.reflect = up_to(9)?,
            parameter::CALLING_SELECTOR => self.calling = up_to(SELECTOR_BYTES_MAX)?,
            parameter::CALLED_SELECTOR => self.called = up_to(SELECTOR_BYTES_MAX)?,
            parameter::OVERFLOW => self.overflow = octet()? & 1 != 0,
            _ => {}
        }
        Ok(())
    }

    fn enclosed(self) -> Enclosed {
        Enclosed { enclosure: self.enclosure, data: self.user_data }
    }

    fn token_settings(&self) -> TokenSettings {
        TokenSettings::of_octet(self.token_setting.unwrap_or(0))
    }

    /// Returns whether the transport connection is kept (X.225 §8.3.6.3: if the parameter is absent, the
    /// connection is released).
    fn keeps(&self) -> bool {
        self.disconnect.is_some_and(|octet| octet & 1 == 0)
    }

    /// Returns the serial number, which is mandatory except in later segments.
    fn serial(&self) -> Result<Option<u32>, Malformed> {
        match self.serial {
            None if self.begins() => Err(Malformed::ParameterMissing),
            serial => Ok(serial),
        }
    }

    fn connect(self) -> Result<Connect, Malformed> {
        Ok(Connect {
            tokens: self.token_settings(),
            identifier: self.identifier,
            extended_concatenation: self.options & 1 != 0,
            tsdu_sizes: self.tsdu_sizes,
            versions: self.versions.unwrap_or(Versions::V1),
            initial_serial: self.initial_serial,
            units: self.units.unwrap_or(Units::DEFAULT),
            calling: self.calling,
            called: self.called,
            overflow: self.overflow,
            user_data: self.user_data,
        })
    }

    fn accept(self) -> Result<Accept, Malformed> {
        Ok(Accept {
            tokens: self.token_settings(),
            extended_concatenation: self.options & 1 != 0,
            tsdu_sizes: self.tsdu_sizes,
            versions: self.versions.unwrap_or(Versions::V1),
            initial_serial: self.initial_serial,
            please: self.tokens.unwrap_or_default(),
            units: self.units.unwrap_or(Units::DEFAULT),
            identifier: self.identifier,
            calling: self.calling,
            responding: self.called,
            data: Enclosed { enclosure: self.enclosure, data: self.user_data },
        })
    }

    fn refuse(mut self) -> Result<Refuse, Malformed> {
        // X.225 §8.4.2.2.4: a code, then user data; in later segments only user data.
        let reason = self.begins().then(|| match self.reason.first_run() {
            [] => RefuseReason::User,
            [code, ..] => RefuseReason::of_code(*code),
        });
        if reason.is_some() && !self.reason.is_empty() {
            self.reason.skip(1);
        }
        Ok(Refuse {
            keep: self.keeps(),
            units: self.units,
            versions: self.versions.unwrap_or(Versions::V1),
            reason,
            identifier: self.identifier,
            data: Enclosed { enclosure: self.enclosure, data: self.reason },
        })
    }

    fn abort(self) -> Abort {
        let octet = self.disconnect.unwrap_or(1);
        Abort {
            keep: octet & 1 == 0,
            user: octet & 2 != 0,
            protocol_error: octet & 4 != 0,
            no_reason: octet & 8 != 0,
            restriction: octet & 16 != 0,
            reflect: self.reflect,
            data: Enclosed { enclosure: self.enclosure, data: self.user_data },
        }
    }
}

fn words<const BYTES: usize>(value: &Rope) -> Result<[u8; BYTES], Malformed> {
    let mut bytes = [0; BYTES];
    if value.len() == BYTES {
        value.copy_to(0, &mut bytes);
        Ok(bytes)
    } else {
        Err(Malformed::ParameterLength)
    }
}

/// Parses a decimal number, with or without leading zeros (X.225 §8.3.1.10).
fn digits(value: &Rope) -> Result<u32, Malformed> {
    let mut digits = [0; 6];
    if value.len() > digits.len() {
        return Err(Malformed::ParameterLength);
    }
    let count = value.copy_to(0, &mut digits);
    let number = digits[..count].iter().try_fold(0, |number, digit| match digit {
        b'0'..=b'9' => Ok(number * 10 + u32::from(digit - b'0')),
        _ => Err(Malformed::ParameterValue),
    })?;
    debug_assert!(number <= SERIAL_MAX, "six digits");
    Ok(number)
}
