//! Packet headers: channel, type and sequence numbers.

use crate::wire::lapb::Modulo;
use kiban_base::Malformed;

/// Maximum length of a header in front of user data in bytes.
pub const HEADER_BYTES_MAX: usize = 4;

/// The first two octets of every packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Front {
    /// The modulus of sequence numbers.
    pub modulo: Modulo,
    /// The highest bit: Q in data packets; A (addresses in the long form) in packets for call set-up and
    /// clearing.
    pub qualifier: bool,
    /// The D bit.
    pub delivery: bool,
    /// Logical channel group and number.
    pub channel: u16,
}

impl Front {
    /// Reads the two octets.
    ///
    /// # Errors
    /// `Truncated`; `GeneralFormat` for a format identifier of neither modulo 8 nor modulo 128.
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
        /// M: more data follows in the same unit.
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

pub(super) const PLAIN: [(Kind, u8); 13] = [
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
    ///
    /// # Errors
    /// Same as for [`Front::read`].
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

    /// Returns the number of bytes that [`Header::write`] writes.
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
    /// If the target is too short.
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
