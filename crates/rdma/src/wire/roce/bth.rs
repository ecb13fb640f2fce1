//! The base transport header (IBTA volume 1 §9.2).
//!
//! ```text
//!  0  opcode 8 | SE 1 | M 1 | pad count 2 | version 4 | P_Key 16
//!  4  FECN 1 | BECN 1 | reserved 6 | destination queue pair 24
//!  8  A 1 | reserved 7 | packet sequence number 24
//! ```
//!
//! Reserved   the seven bits before the PSN are ignored by receivers (the standard says so, and rdma_rxe
//!            masks them). Here they say that the sender retransmits selectively: see
//!            [`super::SelectiveAck`]. It is a pattern of several bits, so that another vendor's use of one
//!            bit is not mistaken for it.

use super::opcode::Opcode;
use kiban_base::Malformed;

/// Length of the header in bytes.
pub const BTH_BYTES: usize = 12;
/// The bits of a queue pair number.
pub const QPN_MASK: u32 = 0x00ff_ffff;
/// The queue pair number of all datagrams to a multicast group (IBTA volume 1 §10.5).
pub const MULTICAST_QPN: u32 = QPN_MASK;
/// The bits of a packet sequence number.
pub const PSN_MASK: u32 = 0x00ff_ffff;

const SOLICITED: u8 = 0x80;
const MIGRATED: u8 = 0x40;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQUEST: u8 = 0x80;
/// The reserved bits of a sender that retransmits selectively.
const SELECTIVE: u8 = 0x2d;
const RESERVED_MASK: u8 = 0x7f;

/// Returns the number of bytes that fill a payload up to a multiple of four.
pub const fn pad(payload_bytes: usize) -> u8 {
    (payload_bytes.wrapping_neg() % 4) as u8
}

/// The base transport header, at the front of every packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// Transport service and operation.
    pub opcode: Opcode,
    /// Whether the completion at the responder is a solicited event.
    pub solicited: bool,
    /// The migration state: set outside path migration.
    pub migrated: bool,
    /// Number of bytes, 0 to 3, that fill the payload up to a multiple of four.
    pub pad: u8,
    /// The partition key.
    pub pkey: u16,
    /// Whether the packet has met congestion on its way.
    pub fecn: bool,
    /// Whether packets in the other direction have met congestion.
    pub becn: bool,
    /// The destination queue pair, 24 bits.
    pub destination: u32,
    /// Whether the requester asks for an acknowledgement.
    pub ack_request: bool,
    /// Whether the sender retransmits selectively.
    pub selective: bool,
    /// The packet sequence number, 24 bits.
    pub psn: u32,
}

impl Bth {
    /// Returns a header without flags and pad.
    pub const fn new(opcode: Opcode, pkey: u16, destination: u32, psn: u32) -> Bth {
        Bth {
            opcode,
            solicited: false,
            migrated: true,
            pad: 0,
            pkey,
            fecn: false,
            becn: false,
            destination,
            ack_request: false,
            selective: false,
            psn,
        }
    }

    /// Decodes the header.
    ///
    /// # Errors
    /// `Truncated`; `Operation` for a reserved opcode; `Version` unless the transport version is 0.
    pub fn read(bytes: &[u8]) -> Result<(Bth, usize), Malformed> {
        let Some(bytes) = bytes.first_chunk::<BTH_BYTES>() else { return Err(Malformed::Truncated) };
        let opcode = Opcode::read(bytes[0])?;
        if bytes[1] & 0x0f != 0 {
            return Err(Malformed::Version);
        }
        let header = Bth {
            opcode,
            solicited: bytes[1] & SOLICITED != 0,
            migrated: bytes[1] & MIGRATED != 0,
            pad: bytes[1] >> 4 & 3,
            pkey: u16::from_be_bytes([bytes[2], bytes[3]]),
            fecn: bytes[4] & FECN != 0,
            becn: bytes[4] & BECN != 0,
            destination: u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]),
            ack_request: bytes[8] & ACK_REQUEST != 0,
            selective: bytes[8] & RESERVED_MASK == SELECTIVE,
            psn: u32::from_be_bytes([0, bytes[9], bytes[10], bytes[11]]),
        };
        Ok((header, BTH_BYTES))
    }

    /// Returns [`BTH_BYTES`].
    pub const fn length(&self) -> usize {
        BTH_BYTES
    }

    /// Writes the header. Only the low 24 bits of the queue pair and sequence numbers are written.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<BTH_BYTES>().expect("room for a BTH of 12 bytes");
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        bytes[4..8].copy_from_slice(&(self.destination & QPN_MASK).to_be_bytes());
        bytes[8..12].copy_from_slice(&(self.psn & PSN_MASK).to_be_bytes());
        bytes[0] = self.opcode.octet();
        bytes[1] = flag(self.solicited, SOLICITED) | flag(self.migrated, MIGRATED) | (self.pad & 3) << 4;
        bytes[2..4].copy_from_slice(&self.pkey.to_be_bytes());
        bytes[4] = flag(self.fecn, FECN) | flag(self.becn, BECN);
        bytes[8] = flag(self.ack_request, ACK_REQUEST) | flag(self.selective, SELECTIVE);
        BTH_BYTES
    }
}
