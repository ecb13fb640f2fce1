//! XOT: X.25 packets over TCP (RFC 1613).
//!
//! Purpose   encodes and decodes the four-byte header of each packet, and the packet that sets up a permanent
//!           virtual circuit.
//!
//! ```text
//! | version 16 = 0 | length 16 | packet |
//!
//! PVC set-up: | GFI, LCN 16 | F5 | version 8 = 81 | status 8 | initiator's name length 8, LCN 16 | responder's: the same |
//!             | windows 8 8: in, out | packet sizes 8 8: in, out | initiator's name | responder's name |
//! ```
//!
//! Limits    [`PACKET_BYTES_MAX`] for a packet; an impossible length ends the connection (RFC 1613 §4.1).

use crate::wire::x25::Front;
use kiban_base::Malformed;

/// The TCP port of XOT.
pub const PORT: u16 = 1998;
/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 4;
/// Minimum length of a packet in bytes.
pub const PACKET_BYTES_MIN: usize = 3;
/// Maximum length of a packet in bytes: 4096 bytes of user data after a header with modulo 128.
pub const PACKET_BYTES_MAX: usize = 4096 + 4;
/// The packet type of PVC set-up.
pub const PVC_SET_UP: u8 = 0xf5;

const PVC_VERSION: u8 = 0x81;
const PVC_FIXED_BYTES: usize = 15;

/// The XOT header in front of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Length of the packet in bytes.
    pub packet_bytes: u16,
}

impl Header {
    /// Reads the header; a different version or an impossible length ends the connection (§4.1).
    ///
    /// # Errors
    /// `Truncated`; `Version`; `TotalLength` if the length is not that of an X.25 packet.
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let [first, second, high, low, ..] = *bytes else { return Err(Malformed::Truncated) };
        if [first, second] != [0, 0] {
            return Err(Malformed::Version);
        }
        let packet_bytes = u16::from_be_bytes([high, low]);
        if !(PACKET_BYTES_MIN..=PACKET_BYTES_MAX).contains(&usize::from(packet_bytes)) {
            return Err(Malformed::TotalLength);
        }
        Ok((Header { packet_bytes }, HEADER_BYTES))
    }

    /// Returns the number of bytes that [`Header::write`] writes.
    pub fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Writes the header; returns its length in bytes.
    ///
    /// # Panics
    /// If the target is too short.
    pub fn write(&self, bytes: &mut [u8]) -> usize {
        let [high, low] = self.packet_bytes.to_be_bytes();
        bytes[..HEADER_BYTES].copy_from_slice(&[0, 0, high, low]);
        HEADER_BYTES
    }
}

/// The status in a permanent virtual circuit's set-up (§6.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PvcStatus(pub u8);

impl PvcStatus {
    /// Requested, or accepted.
    pub const OK: PvcStatus = PvcStatus(0x00);
    /// The interface does not exist.
    pub const NO_INTERFACE: PvcStatus = PvcStatus(0x13);
    /// The circuit does not exist.
    pub const NO_PVC: PvcStatus = PvcStatus(0x16);
    /// The circuit is configured differently, or in use.
    pub const MISMATCH: PvcStatus = PvcStatus(0x17);
    /// Windows or packet sizes differ.
    pub const FLOW_MISMATCH: PvcStatus = PvcStatus(0x18);
    /// Windows or packet sizes are not supported.
    pub const FLOW_UNSUPPORTED: PvcStatus = PvcStatus(0x19);
    /// The packet was malformed.
    pub const PROTOCOL_ERROR: PvcStatus = PvcStatus(0x1a);

    /// Returns a description.
    pub fn name(self) -> &'static str {
        match self.0 {
            0x00 => "waiting to connect",
            0x08 => "destination disconnected",
            0x09 => "connection refused",
            0x0a => "routing error",
            0x0b => "connect timed out",
            0x10 => "trying to connect via TCP",
            0x11 => "awaiting the set-up's reply",
            0x12 => "connected",
            0x13 => "no such destination interface",
            0x14 => "destination interface is not up",
            0x15 => "destination interface is not X.25",
            0x16 => "no such destination PVC",
            0x17 => "destination PVC configuration mismatch",
            0x18 => "mismatched flow control values",
            0x19 => "flow control values cannot be supported",
            0x1a => "PVC set-up protocol error",
            _ => "unknown status",
        }
    }
}

/// The PVC set-up packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PvcSetUp<'a> {
    /// The first two octets, as in any packet.
    pub front: Front,
    /// Zero requests or accepts a circuit; any other value refuses it.
    pub status: PvcStatus,
    /// The initiator's interface and the channel there.
    pub initiator: (&'a [u8], u16),
    /// The responder's interface and the channel there.
    pub responder: (&'a [u8], u16),
    /// The sender's windows: incoming, outgoing.
    pub windows: (u8, u8),
    /// The sender's packet sizes as powers of two: incoming, outgoing.
    pub packet_sizes: (u8, u8),
}

impl<'a> PvcSetUp<'a> {
    /// Reads the packet.
    ///
    /// # Errors
    /// Any error of [`Front::read`]; `Truncated`; `Operation` for another packet type; `Version`;
    /// `TotalLength` if the names do not fill the packet exactly (§6.5).
    pub fn read(bytes: &'a [u8]) -> Result<(PvcSetUp<'a>, usize), Malformed> {
        let (front, _) = Front::read(bytes)?;
        let Some((fixed, names)) = bytes.split_first_chunk::<PVC_FIXED_BYTES>() else {
            return Err(Malformed::Truncated);
        };
        let [_, _, kind, version, status, n, n_high, n_low, m, m_high, m_low, win, wout, pin, pout] = *fixed;
        if kind != PVC_SET_UP {
            return Err(Malformed::Operation);
        }
        if version != PVC_VERSION {
            return Err(Malformed::Version);
        }
        let both = usize::from(n) + usize::from(m);
        // §6.5: the names are not padded, and no bytes follow them.
        if names.len() != both {
            return Err(Malformed::TotalLength);
        }
        let (initiator, responder) = names.split_at(usize::from(n));
        let set_up = PvcSetUp {
            front,
            status: PvcStatus(status),
            initiator: (initiator, u16::from_be_bytes([n_high, n_low])),
            responder: (responder, u16::from_be_bytes([m_high, m_low])),
            windows: (win, wout),
            packet_sizes: (pin, pout),
        };
        Ok((set_up, bytes.len()))
    }

    /// Returns the number of bytes that [`PvcSetUp::write`] writes.
    pub fn length(&self) -> usize {
        PVC_FIXED_BYTES + self.initiator.0.len() + self.responder.0.len()
    }

    /// Writes the packet; returns its length in bytes.
    ///
    /// # Panics
    /// If the target is too short, or a name is longer than 255 bytes.
    pub fn write(&self, bytes: &mut [u8]) -> usize {
        let [first, second] = self.front.bytes();
        let name = |(name, channel): (&[u8], u16)| {
            let length = u8::try_from(name.len()).expect("an interface's name is shorter than 256");
            let [high, low] = channel.to_be_bytes();
            [length, high, low]
        };
        let ([n, n_high, n_low], [m, m_high, m_low]) = (name(self.initiator), name(self.responder));
        let ((win, wout), (pin, pout)) = (self.windows, self.packet_sizes);
        bytes[..PVC_FIXED_BYTES].copy_from_slice(&[
            first,
            second,
            PVC_SET_UP,
            PVC_VERSION,
            self.status.0,
            n,
            n_high,
            n_low,
            m,
            m_high,
            m_low,
            win,
            wout,
            pin,
            pout,
        ]);
        let (middle, end) = (PVC_FIXED_BYTES + self.initiator.0.len(), self.length());
        bytes[PVC_FIXED_BYTES..middle].copy_from_slice(self.initiator.0);
        bytes[middle..end].copy_from_slice(self.responder.0);
        end
    }
}
