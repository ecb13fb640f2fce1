//! X.25 packets (X.25 §5, ISO 8208).
//!
//! Purpose          decodes the header of a data packet in one step, everything else field by field.
//!
//! ```text
//! | GFI 4: Q or A, D, modulo 2 | logical channel 12 | type 8 ... |
//!
//! data, modulo 8      P(R) 3, M, P(S) 3, 0                     RR RNR REJ   P(R) 3, kind 5
//! data, modulo 128    P(S) 7, 0 | P(R) 7, M                    RR RNR REJ   kind 8 | P(R) 7, 0
//! call                addresses | facilities length 8, facilities | user data
//! clear               cause 8 | diagnostic 8 | addresses | facilities length 8, facilities | user data
//! reset, restart      cause 8 | diagnostic 8
//! ```
//!
//! Decoding         [`Header::read`] identifies the packet; [`Call`], [`Clear`] and [`Cause`] decode what
//!                  follows. [`crate::x25`] chooses the diagnostic that answers an error; for that purpose,
//!                  the channel of a truncated packet is still decoded ([`Front`]).
//! Limits           [`CONTROL_BYTES_MAX`] for a control packet; user data of data packets is not examined.
//! Not implemented  the extended format (GFI 11); the contents of registration packets, of which only the
//!                  type is recognised.

mod address;
mod code;
mod facility;

pub use address::{Address, AddressBlock, DIGITS_MAX, NotAnAddress};
pub use code::{cause, clearing_cause, diagnostic, diagnostic_name, resetting_cause, restarting_cause};
pub use facility::{Extension, FACILITIES_BYTES_MAX, Facility, FastSelect, facilities};

use kiban_base::Malformed;

pub use crate::wire::lapb::Modulo;

/// Maximum length of a header in front of user data in bytes.
pub const HEADER_BYTES_MAX: usize = 4;
/// Maximum length of a call's user data without fast select in bytes (§6.16).
pub const CALL_USER_DATA_BYTES_MAX: usize = 16;
/// Maximum length of user data in a call, its acceptance and a clear with fast select in bytes (§6.16).
pub const FAST_SELECT_BYTES_MAX: usize = 128;
/// Maximum length of an interrupt's user data in bytes (§4.3.5).
pub const INTERRUPT_BYTES_MAX: usize = 32;
/// Maximum length of a control packet in bytes: header, cause and diagnostic, addresses in the long form,
/// facilities, user data.
pub const CONTROL_BYTES_MAX: usize = 3 + 2 + 2 + 17 + 1 + FACILITIES_BYTES_MAX + FAST_SELECT_BYTES_MAX;

/// The first two octets of every packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Front {
    /// The modulus of sequence numbers.
    pub modulo: Modulo,
    /// The highest bit: Q in data packets; A (addresses in the long form) in call set-up and clearing.
    pub qualifier: bool,
    /// The D bit.
    pub delivery: bool,
    /// Logical channel group and number.
    pub channel: u16,
}

impl Front {
    /// Reads the two octets.
    pub fn read(bytes: &[u8]) -> Result<(Front, usize), Malformed> {
        let [first, second, ..] = *bytes else { return Err(Malformed::Truncated) };
        let modulo = match first >> 4 & 3 {
            1 => Modulo::Eight,
            2 => Modulo::OneTwentyEight,
            _ => return Err(Malformed::GeneralFormat),
        };
        let front = Front {
            modulo,
            qualifier: first & 0x80 != 0,
            delivery: first & 0x40 != 0,
            channel: u16::from(first & 15) << 8 | u16::from(second),
        };
        Ok((front, 2))
    }

    /// Returns the two octets.
    pub fn bytes(&self) -> [u8; 2] {
        let modulo = match self.modulo {
            Modulo::Eight => 0x10,
            Modulo::OneTwentyEight => 0x20,
        };
        let [group, number] = self.channel.to_be_bytes();
        [u8::from(self.qualifier) << 7 | u8::from(self.delivery) << 6 | modulo | group & 15, number]
    }
}

/// The packet type, with the names that a DTE uses; for example, a DCE's incoming call has the same octet as
/// a call request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// User data.
    Data {
        /// P(S).
        p_s: u8,
        /// P(R).
        p_r: u8,
        /// M: more data of the same unit follows.
        more: bool,
    },
    /// RR.
    ReceiveReady(u8),
    /// RNR.
    ReceiveNotReady(u8),
    /// REJ, if subscribed to.
    Reject(u8),
    /// Call request, incoming call.
    CallRequest,
    /// Call accepted, call connected.
    CallAccepted,
    /// Clear request, clear indication.
    ClearRequest,
    /// Clear confirmation.
    ClearConfirmation,
    /// Interrupt.
    Interrupt,
    /// Interrupt confirmation.
    InterruptConfirmation,
    /// Reset request, reset indication.
    ResetRequest,
    /// Reset confirmation.
    ResetConfirmation,
    /// Restart request, restart indication.
    RestartRequest,
    /// Restart confirmation.
    RestartConfirmation,
    /// Diagnostic.
    Diagnostic,
    /// Registration request.
    RegistrationRequest,
    /// Registration confirmation.
    RegistrationConfirmation,
    /// An undefined type.
    Unknown(u8),
}

const PLAIN: [(Kind, u8); 13] = [
    (Kind::CallRequest, 0x0b),
    (Kind::CallAccepted, 0x0f),
    (Kind::ClearRequest, 0x13),
    (Kind::ClearConfirmation, 0x17),
    (Kind::Interrupt, 0x23),
    (Kind::InterruptConfirmation, 0x27),
    (Kind::ResetRequest, 0x1b),
    (Kind::ResetConfirmation, 0x1f),
    (Kind::RestartRequest, 0xfb),
    (Kind::RestartConfirmation, 0xff),
    (Kind::Diagnostic, 0xf1),
    (Kind::RegistrationRequest, 0xf3),
    (Kind::RegistrationConfirmation, 0xf7),
];

/// The header: channel, type, sequence numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// The first two octets.
    pub front: Front,
    /// The packet type.
    pub kind: Kind,
}

impl Header {
    /// Reads the header of any packet.
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let (front, _) = Front::read(bytes)?;
        let extended = front.modulo == Modulo::OneTwentyEight;
        let code = *bytes.get(2).ok_or(Malformed::Truncated)?;
        let mut used = 3;
        let mut second = || {
            used = 4;
            bytes.get(3).copied().ok_or(Malformed::Truncated)
        };
        let kind = if code & 1 == 0 {
            if extended {
                let second = second()?;
                Kind::Data { p_s: code >> 1, p_r: second >> 1, more: second & 1 != 0 }
            } else {
                Kind::Data { p_s: code >> 1 & 7, p_r: code >> 5, more: code & 0x10 != 0 }
            }
        } else if let 0x01 | 0x05 | 0x09 = if extended { code } else { code & 0x1f } {
            let p_r = if extended { second()? } else { code >> 4 } >> 1;
            match code & 0x0f {
                0x01 => Kind::ReceiveReady(p_r),
                0x05 => Kind::ReceiveNotReady(p_r),
                _ => Kind::Reject(p_r),
            }
        } else {
            PLAIN.iter().find(|(_, of)| *of == code).map_or(Kind::Unknown(code), |(kind, _)| *kind)
        };
        Ok((Header { front, kind }, used))
    }

    /// Returns the number of bytes that [`Header::write`] fills.
    pub fn length(&self) -> usize {
        let numbered = matches!(
            self.kind,
            Kind::Data { .. } | Kind::ReceiveReady(_) | Kind::ReceiveNotReady(_) | Kind::Reject(_)
        );
        if numbered && self.front.modulo == Modulo::OneTwentyEight { 4 } else { 3 }
    }

    /// Writes the header; returns its length in bytes.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn write(&self, bytes: &mut [u8]) -> usize {
        let extended = self.front.modulo == Modulo::OneTwentyEight;
        bytes[..2].copy_from_slice(&self.front.bytes());
        let numbered = |code, p_r: u8| if extended { [code, p_r << 1] } else { [(p_r & 7) << 5 | code, 0] };
        let octets = match self.kind {
            Kind::Data { p_s, p_r, more } if extended => [p_s << 1, p_r << 1 | u8::from(more)],
            Kind::Data { p_s, p_r, more } => [(p_r & 7) << 5 | u8::from(more) << 4 | (p_s & 7) << 1, 0],
            Kind::ReceiveReady(p_r) => numbered(0x01, p_r),
            Kind::ReceiveNotReady(p_r) => numbered(0x05, p_r),
            Kind::Reject(p_r) => numbered(0x09, p_r),
            Kind::Unknown(code) => [code, 0],
            plain => {
                let (_, code) = PLAIN.iter().find(|(of, _)| *of == plain).expect("the others are numbered");
                [*code, 0]
            }
        };
        let length = self.length();
        bytes[2..length].copy_from_slice(&octets[..length - 2]);
        length
    }
}

/// The fields after the header of a call request or a call accepted packet (§5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Call<'a> {
    /// Called and calling address.
    pub addresses: AddressBlock,
    /// The raw facility field; [`facilities`] decodes it.
    pub facilities: &'a [u8],
    /// Call user data, or called user data.
    pub user_data: &'a [u8],
}

impl<'a> Call<'a> {
    /// Reads the fields after the header; `extended` is the packet's A bit. A call accepted packet may end
    /// after any field.
    pub fn read(bytes: &'a [u8], extended: bool) -> Result<(Call<'a>, usize), Malformed> {
        if bytes.is_empty() {
            return Ok((Call::default(), 0));
        }
        let (addresses, used) = AddressBlock::read(bytes, extended)?;
        let (facilities, user_data) = split_facilities(&bytes[used..])?;
        Ok((Call { addresses, facilities, user_data }, bytes.len()))
    }

    /// Returns the number of bytes that [`Call::write`] fills.
    pub fn length(&self) -> usize {
        self.addresses.length() + 1 + self.facilities.len() + self.user_data.len()
    }

    /// Writes all fields, present or empty; returns their length in bytes.
    ///
    /// # Panics
    /// If they do not fit, or there are more facilities than [`FACILITIES_BYTES_MAX`].
    pub fn write(&self, bytes: &mut [u8]) -> usize {
        let at = self.addresses.write(bytes);
        at + write_rest(self.facilities, self.user_data, &mut bytes[at..])
    }
}

/// The fields after the header of a clear request (§5.2.3). A clear confirmation has no cause and no
/// diagnostic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clear<'a> {
    /// Cause and diagnostic.
    pub cause: Cause,
    /// The fields of the extended format, if present.
    pub more: Option<Call<'a>>,
}

impl<'a> Clear<'a> {
    /// Reads the fields after the header.
    pub fn read(bytes: &'a [u8], extended: bool) -> Result<(Clear<'a>, usize), Malformed> {
        let (cause, used) = Cause::read(bytes)?;
        let more = match &bytes[used..] {
            [] => None,
            rest => Some(Call::read(rest, extended)?.0),
        };
        Ok((Clear { cause, more }, bytes.len()))
    }

    /// Returns the number of bytes that [`Clear::write`] fills.
    pub fn length(&self) -> usize {
        // The diagnostic is required if other fields follow it.
        self.more.map_or(self.cause.length(), |more| 2 + more.length())
    }

    /// Writes the fields; returns their length in bytes.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, bytes: &mut [u8]) -> usize {
        let Some(more) = self.more else { return self.cause.write(bytes) };
        let diagnostic = Some(self.cause.diagnostic.unwrap_or(0));
        let at = Cause { diagnostic, ..self.cause }.write(bytes);
        at + more.write(&mut bytes[at..])
    }
}

/// Cause and diagnostic of a clear, a reset or a restart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Cause {
    /// The cause; zero, or with the highest bit set, if a DTE originated it.
    pub cause: u8,
    /// The diagnostic ([`diagnostic_name`]).
    pub diagnostic: Option<u8>,
}

impl Cause {
    /// Reads one or two octets.
    pub fn read(bytes: &[u8]) -> Result<(Cause, usize), Malformed> {
        let (cause, rest) = bytes.split_first().ok_or(Malformed::Truncated)?;
        Ok((Cause { cause: *cause, diagnostic: rest.first().copied() }, bytes.len().min(2)))
    }

    /// Returns the number of bytes that [`Cause::write`] fills.
    pub fn length(&self) -> usize {
        1 + usize::from(self.diagnostic.is_some())
    }

    /// Writes the octets; returns their number.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, bytes: &mut [u8]) -> usize {
        bytes[0] = self.cause;
        if let Some(diagnostic) = self.diagnostic {
            bytes[1] = diagnostic;
        }
        self.length()
    }
}

fn split_facilities(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let Some((length, rest)) = bytes.split_first() else { return Ok((&[], &[])) };
    if usize::from(*length) > FACILITIES_BYTES_MAX {
        return Err(Malformed::FacilityLength);
    }
    rest.split_at_checked(usize::from(*length)).ok_or(Malformed::FacilityLength)
}

fn write_rest(facilities: &[u8], user_data: &[u8], bytes: &mut [u8]) -> usize {
    assert!(facilities.len() <= FACILITIES_BYTES_MAX, "{} bytes of facilities", facilities.len());
    bytes[0] = facilities.len() as u8;
    let end = 1 + facilities.len();
    bytes[1..end].copy_from_slice(facilities);
    bytes[end..end + user_data.len()].copy_from_slice(user_data);
    end + user_data.len()
}

#[cfg(test)]
mod tests;
