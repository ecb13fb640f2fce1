//! XOT: X.25 packets over TCP (RFC 1613).
//!
//! Goal      the four bytes in front of a packet, and the packet that sets up a permanent circuit.
//!
//! ```text
//! | version 16 = 0 | length 16 | packet |
//!
//! PVC set-up: | GFI, LCN 16 | F5 | version 8 = 81 | status 8 | initiator's name length 8, LCN 16 | responder's: the same |
//!             | windows 8 8: in, out | packet sizes 8 8: in, out | initiator's name | responder's name |
//! ```
//!
//! Limits    a packet of [`PACKET_BYTES_MAX`]: RFC 1613 §4.1 wants a length that no packet can have to end the connection.

use crate::Malformed;
use crate::x25::Front;

/// The port of XOT.
pub const PORT: u16 = 1998;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 4;
/// Bytes of the shortest packet.
pub const PACKET_BYTES_MIN: usize = 3;
/// Bytes of the longest: 4096 of user data behind a header in modulo 128.
pub const PACKET_BYTES_MAX: usize = 4096 + 4;
/// The type of the packet that sets up a permanent circuit.
pub const PVC_SET_UP: u8 = 0xf5;

const PVC_VERSION: u8 = 0x81;
const PVC_FIXED_BYTES: usize = 15;

/// What stands in front of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Bytes of the packet.
    pub packet_bytes: u16,
}

impl Header {
    /// Reads the header: another version or a length that no packet has end the connection (§4.1).
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

    /// Bytes that [`Header::write`] fills.
    pub fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Writes the header: how many bytes.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn write(&self, bytes: &mut [u8]) -> usize {
        let [high, low] = self.packet_bytes.to_be_bytes();
        bytes[..HEADER_BYTES].copy_from_slice(&[0, 0, high, low]);
        HEADER_BYTES
    }
}

/// How a permanent circuit's set-up stands (§6.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PvcStatus(pub u8);

impl PvcStatus {
    /// It is asked for, or granted.
    pub const OK: PvcStatus = PvcStatus(0x00);
    /// There is no such interface.
    pub const NO_INTERFACE: PvcStatus = PvcStatus(0x13);
    /// There is no such circuit.
    pub const NO_PVC: PvcStatus = PvcStatus(0x16);
    /// It is configured otherwise, or in use.
    pub const MISMATCH: PvcStatus = PvcStatus(0x17);
    /// Windows or packet sizes differ.
    pub const FLOW_MISMATCH: PvcStatus = PvcStatus(0x18);
    /// Windows or packet sizes cannot be had.
    pub const FLOW_UNSUPPORTED: PvcStatus = PvcStatus(0x19);
    /// The packet was not as it should be.
    pub const PROTOCOL_ERROR: PvcStatus = PvcStatus(0x1a);

    /// In words.
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

/// The packet that sets up a permanent circuit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PvcSetUp<'a> {
    /// The first two octets, as any packet's.
    pub front: Front,
    /// Zero asks and grants; others refuse.
    pub status: PvcStatus,
    /// The initiator's interface and the channel there.
    pub initiator: (&'a [u8], u16),
    /// The responder's.
    pub responder: (&'a [u8], u16),
    /// The sender's windows: of what comes in there, and of what goes out.
    pub windows: (u8, u8),
    /// The sender's packet sizes, as powers of two, likewise.
    pub packet_sizes: (u8, u8),
}

impl<'a> PvcSetUp<'a> {
    /// Reads the packet.
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
        // §6.5: nothing pads the names and nothing follows them.
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

    /// Bytes that [`PvcSetUp::write`] fills.
    pub fn length(&self) -> usize {
        PVC_FIXED_BYTES + self.initiator.0.len() + self.responder.0.len()
    }

    /// Writes the packet: how many bytes.
    ///
    /// # Panics
    /// When they do not fit, or a name is longer than 255.
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
