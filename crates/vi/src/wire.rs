//! Packets between VI NICs, in kiban's own format, since the VI Architecture (1.0, 1997) does not define one.
//!
//! ```text
//!  0  version 4 | kind 4 | flags 8 | payload bytes 16
//!  4  VI 32              the receiver's number for the VI; 0 in a connection request
//!  8  key 32             random key that the receiver chose at set-up
//! 12  sequence 32        of packets with data and read requests; in a refusal, that of the refused packet
//! 16  acknowledged 32    the sequence that the sender of this packet expects next
//! 20  offset 32          of the payload in its message
//! 24  immediate 32       immediate data, or the code of a refusal or an acknowledgement
//! 28  check 32 CRC-32C of the whole packet with this field zero, if the flag is set
//! 32  payload
//! ```
//!
//! RDMA      the payload of every packet of an RDMA Write starts with its [`RemoteRange`], so that each
//!           packet can be placed independently; the payload of a read request is the [`RemoteRange`] to
//!           read.
//! Order     network byte order. The 32-byte header and 24 bytes of payload fit one slot of a ring
//!           (`kiban_base::ring`).
//! Set-up    the payload of connection requests and of their acceptance is a [`Setup`].

use kiban_base::Malformed;
use kiban_base::crc::Crc32c;

/// Size of the header in bytes.
pub const HEADER_BYTES: usize = 32;
/// Size of a [`RemoteRange`] in bytes.
pub const REMOTE_RANGE_BYTES: usize = 16;
/// Maximum length in bytes of a discriminator, the part of an address that selects an endpoint on a host.
pub const DISCRIMINATOR_BYTES_MAX: usize = 64;
/// Size of the largest set-up packet in bytes.
pub const SETUP_PACKET_BYTES_MAX: usize = HEADER_BYTES + SETUP_FIXED_BYTES + 2 * DISCRIMINATOR_BYTES_MAX;

const VERSION: u8 = 1;
const SETUP_FIXED_BYTES: usize = 26;

/// Code of an acknowledgement that reports a new receive descriptor to a waiting sender.
pub const ACK_RECEIVE_POSTED: u32 = 1;

/// Type of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A client requests a connection; the payload is a [`Setup`].
    ConnectRequest = 0,
    /// A peer requests a connection that the other peer must request as well.
    PeerRequest = 1,
    /// The connection is accepted; the payload is a [`Setup`].
    Accept = 2,
    /// The connection is rejected; the code is the reason ([`refusal`]).
    Reject = 3,
    /// The connection has ended; the code is the reason ([`fault`]).
    Disconnect = 4,
    /// Part of a message.
    Send = 5,
    /// Part of an RDMA Write.
    Write = 6,
    /// Requests an RDMA Read.
    ReadRequest = 7,
    /// Part of the data for an RDMA Read.
    ReadResponse = 8,
    /// Pure acknowledgement.
    Ack = 9,
    /// The packet with this sequence was not accepted; the code is the reason ([`fault`]).
    Refuse = 10,
}

impl Kind {
    /// All kinds of packet, in the order of their numbers.
    pub const ALL: [Kind; 11] = [
        Kind::ConnectRequest,
        Kind::PeerRequest,
        Kind::Accept,
        Kind::Reject,
        Kind::Disconnect,
        Kind::Send,
        Kind::Write,
        Kind::ReadRequest,
        Kind::ReadResponse,
        Kind::Ack,
        Kind::Refuse,
    ];

    /// Returns whether packets of this kind have sequence numbers of their own.
    pub const fn is_sequenced(self) -> bool {
        matches!(self, Kind::Send | Kind::Write | Kind::ReadRequest | Kind::ReadResponse)
    }
}

/// Packet flags.
pub mod flag {
    /// First packet of a message.
    pub const FIRST: u8 = 1;
    /// Last packet of a message.
    pub const LAST: u8 = 2;
    /// The message has immediate data.
    pub const IMMEDIATE: u8 = 4;
    /// The sender requests an acknowledgement.
    pub const WANTS_ACK: u8 = 8;
    /// The check field is filled in.
    pub const CHECKED: u8 = 16;
}

/// Reasons for rejecting a connection.
pub mod refusal {
    /// There is no listener.
    pub const NO_MATCH: u32 = 1;
    /// The host rejected it.
    pub const REJECTED: u32 = 2;
    /// The reliability levels differ.
    pub const RELIABILITY: u32 = 3;
    /// The maximum transfer sizes differ.
    pub const TRANSFER_BYTES: u32 = 4;
    /// The qualities of service differ.
    pub const QOS: u32 = 5;
}

/// Reasons for refusing a packet or ending a connection.
pub mod fault {
    /// The host disconnected.
    pub const NONE: u32 = 0;
    /// No receive descriptor was posted.
    pub const NO_RECEIVE_DESCRIPTOR: u32 = 1;
    /// The message is longer than its receive descriptor.
    pub const LENGTH: u32 = 2;
    /// The receive descriptor refers to memory that the VI may not use.
    pub const PROTECTION: u32 = 3;
    /// The VI may not access the target memory of an RDMA operation.
    pub const RDMA_PROTECTION: u32 = 4;
    /// A sequence is missing.
    pub const GAP: u32 = 5;
    /// The peer violated the protocol.
    pub const PROTOCOL: u32 = 6;
    /// The peer did not answer, or its path was closed.
    pub const TRANSPORT: u32 = 7;
    /// One of the sender's descriptors was in error.
    pub const DESCRIPTOR: u32 = 8;
}

/// The header of every packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Packet type.
    pub kind: Kind,
    /// Flags, see [`flag`].
    pub flags: u8,
    /// Length of the payload in bytes.
    pub payload_bytes: u16,
    /// The receiver's number for the VI.
    pub vi: u32,
    /// The receiver's key.
    pub key: u32,
    /// Sequence of this packet.
    pub sequence: u32,
    /// The sequence number that the sender of this packet expects next.
    pub acknowledged: u32,
    /// Offset of the payload within the message, in bytes.
    pub offset: u32,
    /// Immediate data, or a code.
    pub immediate: u32,
}

impl Header {
    /// Reads the header at the front of a packet and returns it with its length. Checks only the length of
    /// the payload; call [`verify`] for the CRC.
    ///
    /// # Errors
    /// `Truncated`; `Version`; `Operation` for an unknown kind; `TotalLength` if the payload does not end
    /// exactly at `packet_bytes`.
    #[inline]
    pub fn read(bytes: &[u8], packet_bytes: usize) -> Result<(Header, usize), Malformed> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else { return Err(Malformed::Truncated) };
        if bytes[0] >> 4 != VERSION {
            return Err(Malformed::Version);
        }
        let Some(&kind) = Kind::ALL.get(usize::from(bytes[0] & 15)) else { return Err(Malformed::Operation) };
        let payload_bytes = u16::from_be_bytes([bytes[2], bytes[3]]);
        if HEADER_BYTES + usize::from(payload_bytes) != packet_bytes {
            return Err(Malformed::TotalLength);
        }
        let word = |at| word(bytes, at);
        let header = Header {
            kind,
            flags: bytes[1],
            payload_bytes,
            vi: word(4),
            key: word(8),
            sequence: word(12),
            acknowledged: word(16),
            offset: word(20),
            immediate: word(24),
        };
        Ok((header, HEADER_BYTES))
    }

    /// Returns the length of the header, always [`HEADER_BYTES`].
    #[inline]
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Writes the header with a check field of zero (see [`fill`]) and returns its length.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<HEADER_BYTES>().expect("room for a VI header of 32 bytes");
        bytes[0] = (VERSION << 4) | self.kind as u8;
        bytes[1] = self.flags;
        bytes[2..4].copy_from_slice(&self.payload_bytes.to_be_bytes());
        let words = [self.vi, self.key, self.sequence, self.acknowledged, self.offset, self.immediate, 0];
        for (place, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        HEADER_BYTES
    }

    /// Returns whether a flag is set.
    #[inline]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Computes the CRC of a whole packet, writes it into the check field and sets its flag.
///
/// # Panics
/// If `packet` is shorter than the header.
pub fn fill(packet: &mut [u8]) {
    packet[1] |= flag::CHECKED;
    packet[28..32].fill(0);
    let check = Crc32c::of(packet);
    packet[28..32].copy_from_slice(&check.to_be_bytes());
}

/// Verifies the CRC of a whole packet.
///
/// # Errors
/// `Truncated`; `Crc`, also if the flag is not set.
pub fn verify(packet: &[u8]) -> Result<(), Malformed> {
    let Some(header) = packet.first_chunk::<HEADER_BYTES>() else { return Err(Malformed::Truncated) };
    let mut crc = Crc32c::new();
    crc.update(&header[..28]);
    crc.update(&[0; 4]);
    crc.update(&packet[HEADER_BYTES..]);
    if header[1] & flag::CHECKED != 0 && crc.value() == word(header, 28) {
        Ok(())
    } else {
        Err(Malformed::Crc)
    }
}

/// A range in the peer's registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteRange {
    /// Address of the first byte.
    pub address: u64,
    /// Handle of the memory.
    pub handle: u32,
    /// Number of bytes to read; zero for a write.
    pub length: u32,
}

impl RemoteRange {
    /// Reads a range at the front of `bytes` and returns it with its length.
    ///
    /// # Errors
    /// `Truncated`.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<(RemoteRange, usize), Malformed> {
        let Some(bytes) = bytes.first_chunk::<REMOTE_RANGE_BYTES>() else { return Err(Malformed::Truncated) };
        let address = (u64::from(word(bytes, 0)) << 32) | u64::from(word(bytes, 4));
        Ok((RemoteRange { address, handle: word(bytes, 8), length: word(bytes, 12) }, REMOTE_RANGE_BYTES))
    }

    /// Returns the encoded length, always [`REMOTE_RANGE_BYTES`].
    pub const fn length(&self) -> usize {
        REMOTE_RANGE_BYTES
    }

    /// Writes the range and returns its encoded length.
    ///
    /// # Panics
    /// If `target` is shorter than [`REMOTE_RANGE_BYTES`].
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        target[..8].copy_from_slice(&self.address.to_be_bytes());
        target[8..12].copy_from_slice(&self.handle.to_be_bytes());
        target[12..16].copy_from_slice(&self.length.to_be_bytes());
        REMOTE_RANGE_BYTES
    }
}

/// The parameters that two ends exchange when they connect.
///
/// ```text
/// VI 32 | key 32 | maximum transfer size 32 | quality of service 64 | reliability 8 | rdma 8 |
/// lengths 8, 8 | reserved 16 | discriminators
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup<'a> {
    /// The sender's number for the VI, which packets to the sender must carry.
    pub vi: u32,
    /// The sender's key, which packets to the sender must carry.
    pub key: u32,
    /// Maximum transfer size in bytes.
    pub transfer_bytes_max: u32,
    /// Quality of service, opaque.
    pub qos: u64,
    /// 0 unreliable delivery, 1 reliable delivery, 2 reliable reception.
    pub reliability: u8,
    /// Bit 0: RDMA Write accepted; bit 1: RDMA Read accepted.
    pub rdma: u8,
    /// Discriminator of the endpoint on the sender's host.
    pub local: &'a [u8],
    /// Discriminator of the endpoint on the receiver's host.
    pub remote: &'a [u8],
}

impl<'a> Setup<'a> {
    /// Reads a set-up that fills `bytes` and returns it with its length.
    ///
    /// # Errors
    /// `Truncated`; `Operation` for an unknown reliability; `TotalLength` if the discriminators do not
    /// exactly fill `bytes` or are too long.
    pub fn read(bytes: &'a [u8]) -> Result<(Setup<'a>, usize), Malformed> {
        let Some(fixed) = bytes.first_chunk::<SETUP_FIXED_BYTES>() else { return Err(Malformed::Truncated) };
        let (reliability, rdma) = (fixed[20], fixed[21]);
        if reliability > 2 {
            return Err(Malformed::Operation);
        }
        let lengths = (usize::from(fixed[22]), usize::from(fixed[23]));
        let names = &bytes[SETUP_FIXED_BYTES..];
        if names.len() != lengths.0 + lengths.1 || lengths.0.max(lengths.1) > DISCRIMINATOR_BYTES_MAX {
            return Err(Malformed::TotalLength);
        }
        let (local, remote) = names.split_at(lengths.0);
        let qos = (u64::from(word(fixed, 12)) << 32) | u64::from(word(fixed, 16));
        let setup = Setup {
            vi: word(fixed, 0),
            key: word(fixed, 4),
            transfer_bytes_max: word(fixed, 8),
            qos,
            reliability,
            rdma,
            local,
            remote,
        };
        Ok((setup, bytes.len()))
    }

    /// Returns the encoded length in bytes.
    pub const fn length(&self) -> usize {
        SETUP_FIXED_BYTES + self.local.len() + self.remote.len()
    }

    /// Writes the set-up and returns its length.
    ///
    /// # Panics
    /// If `target` is too short, or a discriminator is longer than [`DISCRIMINATOR_BYTES_MAX`].
    pub fn write(&self, target: &mut [u8]) -> usize {
        assert!(
            self.local.len().max(self.remote.len()) <= DISCRIMINATOR_BYTES_MAX,
            "a discriminator is too long"
        );
        target[..4].copy_from_slice(&self.vi.to_be_bytes());
        target[4..8].copy_from_slice(&self.key.to_be_bytes());
        target[8..12].copy_from_slice(&self.transfer_bytes_max.to_be_bytes());
        target[12..20].copy_from_slice(&self.qos.to_be_bytes());
        target[20..26].copy_from_slice(&[
            self.reliability,
            self.rdma,
            self.local.len() as u8,
            self.remote.len() as u8,
            0,
            0,
        ]);
        let end = SETUP_FIXED_BYTES + self.local.len();
        target[SETUP_FIXED_BYTES..end].copy_from_slice(self.local);
        target[end..end + self.remote.len()].copy_from_slice(self.remote);
        self.length()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn header() -> impl Strategy<Value = Header> {
        let fields = (0usize..11, 0u8..16, any::<[u32; 6]>(), 0u16..2000);
        fields.prop_map(
            |(kind, flags, [vi, key, sequence, acknowledged, offset, immediate], payload_bytes)| Header {
                kind: Kind::ALL[kind],
                flags,
                payload_bytes,
                vi,
                key,
                sequence,
                acknowledged,
                offset,
                immediate,
            },
        )
    }

    #[test]
    fn the_bytes_of_a_write() {
        let header = Header {
            kind: Kind::Write,
            flags: flag::FIRST | flag::LAST,
            payload_bytes: 20,
            vi: 1,
            key: 2,
            sequence: 3,
            acknowledged: 4,
            offset: 5,
            immediate: 6,
        };
        let mut packet = [0u8; 52];
        header.write(&mut packet);
        RemoteRange { address: 0x0102_0304_0506_0708, handle: 9, length: 0 }
            .write(&mut packet[HEADER_BYTES..]);
        let expected = [
            0x16, 3, 0, 20, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0,
            0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(packet, expected);
    }

    #[test]
    fn each_malformed_header_has_its_own_error() {
        let header = Header {
            kind: Kind::Ack,
            flags: 0,
            payload_bytes: 0,
            vi: 0,
            key: 0,
            sequence: 0,
            acknowledged: 0,
            offset: 0,
            immediate: 0,
        };
        let mut packet = [0; 32];
        header.write(&mut packet);
        assert_eq!(Header::read(&packet[..31], 31), Err(Malformed::Truncated));
        assert_eq!(Header::read(&packet, 33), Err(Malformed::TotalLength));
        packet[0] = 0x1b;
        assert_eq!(Header::read(&packet, 32), Err(Malformed::Operation));
        packet[0] = 0x29;
        assert_eq!(Header::read(&packet, 32), Err(Malformed::Version));
        assert_eq!(Setup::read(&[0; 25]).map(|_| ()), Err(Malformed::Truncated));
        let mut setup = [0; 27];
        assert_eq!(Setup::read(&setup).map(|_| ()), Err(Malformed::TotalLength));
        setup[23] = 1;
        assert!(Setup::read(&setup).is_ok());
        setup[20] = 3;
        assert_eq!(Setup::read(&setup).map(|_| ()), Err(Malformed::Operation));
    }

    proptest! {
        #[test]
        fn headers_round_trip(header in header()) {
            let mut bytes = [0; 40];
            prop_assert_eq!(header.write(&mut bytes), header.length());
            let whole = HEADER_BYTES + usize::from(header.payload_bytes);
            prop_assert_eq!(Header::read(&bytes, whole), Ok((header, HEADER_BYTES)));
        }

        #[test]
        fn setups_round_trip(
            words in any::<[u32; 3]>(), qos in any::<u64>(), reliability in 0u8..3, rdma in 0u8..4,
            local in prop::collection::vec(any::<u8>(), 0..=64), remote in prop::collection::vec(any::<u8>(), 0..=64),
        ) {
            let [vi, key, transfer_bytes_max] = words;
            let setup = Setup { vi, key, transfer_bytes_max, qos, reliability, rdma, local: &local, remote: &remote };
            let mut bytes = alloc::vec![0; setup.length()];
            prop_assert_eq!(setup.write(&mut bytes), setup.length());
            prop_assert_eq!(Setup::read(&bytes), Ok((setup, bytes.len())));
        }

        #[test]
        fn a_flipped_bit_is_detected(payload in prop::collection::vec(any::<u8>(), 0..200), header in header(), bit in any::<prop::sample::Index>()) {
            let mut packet: Vec<u8> = alloc::vec![0; HEADER_BYTES];
            header.write(&mut packet);
            packet.extend_from_slice(&payload);
            prop_assert_eq!(verify(&packet), Err(Malformed::Crc));
            fill(&mut packet);
            prop_assert_eq!(verify(&packet), Ok(()));
            let bit = bit.index(packet.len() * 8);
            packet[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(verify(&packet), Err(Malformed::Crc));
        }
    }
}
