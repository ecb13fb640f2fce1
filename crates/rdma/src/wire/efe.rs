//! Frames of the EFE-like transport. The format is kiban's own, since the format of NEC's Ether Forwarding
//! Engine (paper \[3\]) is not public.
//!
//! ```text
//!  0  version 4 | kind 4
//!  1  credit 8           number of frames, from `acknowledged` on, that this frame's sender has room for
//!  2  flags 5 | payload bytes 11
//!  4  flow 32            the receiver's number for the flow; 0 in a connection request
//!  8  key 32             chosen by the receiver at setup, unknown to third parties
//! 12  sequence 32        of a segment or an end; in other frames the next one to be used; or a reason
//! 16  acknowledged 32    the sequence that this frame's sender expects next
//! 20  transmission 24    number of this transmission: a retransmission keeps its sequence but gets a new one
//! 23  echo 24            the transmission that arrived last, if the flag says so
//! 26  held 16            how long ago it arrived, in units of 64 ns; all ones: longer than that
//! 28  payload
//! ```
//!
//! Order    network byte order.
//! Size     a header of 28 bytes and a segment of 1472 bytes fill the 1500 bytes of an Ethernet frame.
//! Padding  bytes after the payload are Ethernet's padding and ignored.
//! Check    where no Ethernet FCS covers the whole path, a CRC-32C of header and payload follows the
//!          payload, lowest byte first, as in iSCSI (RFC 3720 §12.1). A flag indicates that it is present.
//! Setup    the payload of a connection request and of its accept is a [`Setup`].
//! Gaps     the payload of an acknowledgement is a map of 64 bits: bit n is set if `acknowledged` + 1 + n has
//!          arrived. A second word of 64 bits follows if one of its bits is set, which needs a window of more
//!          than 64 frames.

use kiban_base::Malformed;
use kiban_base::crc::Crc32c;

/// The UDP port of endpoints. It is not assigned; its value is the EtherType for local experiments.
pub const UDP_PORT: u16 = 0x88b5;
/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 28;
/// Maximum segment length in an Ethernet frame in bytes, as in paper \[3\].
pub const SEGMENT_BYTES_MAX: usize = 1500 - HEADER_BYTES;
/// Length of the CRC in bytes.
pub const CHECK_BYTES: usize = 4;
/// Length of the map in an acknowledgement in bytes.
pub const SACK_MAP_BYTES: usize = 8;
/// Length of a map of two words in bytes.
pub const SACK_MAP_BYTES_MAX: usize = 2 * SACK_MAP_BYTES;
/// Maximum number of frames in a flow's window: a map covers the window.
pub const WINDOW_FRAMES_MAX: u32 = 8 * SACK_MAP_BYTES_MAX as u32;
/// Maximum length, in bytes, of a greeting: the upper layer's private data at setup.
pub const GREETING_BYTES_MAX: usize = 1024;
/// Length of a [`Setup`] without its greeting in bytes.
pub const SETUP_FIXED_BYTES: usize = 12;
/// Transmissions are counted modulo this.
pub const TRANSMISSIONS: u32 = 1 << 24;
/// Unit of `held` in nanoseconds.
pub const HELD_NANOS: u64 = 64;
/// Value of `held` for times too long to represent.
pub const HELD_LONG: u16 = u16::MAX;

const VERSION: u8 = 1;
const FLAG_BITS: u32 = 5;
const PAYLOAD_BITS: u32 = 16 - FLAG_BITS;
const PAYLOAD_MASK: u16 = (1 << PAYLOAD_BITS) - 1;

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Requests a connection; the payload is a [`Setup`].
    Ask = 0,
    /// Accepts a request; the payload is a [`Setup`].
    Accept = 1,
    /// Rejects a request; the sequence is a [`reason`], the payload a greeting.
    Reject = 2,
    /// A segment of the upper layer.
    Data = 3,
    /// No more segments follow.
    End = 4,
    /// Only acknowledges; the payload is the map.
    Ack = 5,
    /// Ends the flow at once; the sequence is a [`reason`].
    Abort = 6,
}

impl Kind {
    /// All kinds, in numerical order.
    pub const ALL: [Kind; 7] =
        [Kind::Ask, Kind::Accept, Kind::Reject, Kind::Data, Kind::End, Kind::Ack, Kind::Abort];

    /// Returns whether each frame of this kind has a sequence number of its own.
    pub const fn is_sequenced(self) -> bool {
        matches!(self, Kind::Data | Kind::End)
    }

    /// Returns whether a frame of this kind may have this payload length.
    const fn allows(self, payload_bytes: usize) -> bool {
        match self {
            Kind::Ask | Kind::Accept => {
                payload_bytes >= SETUP_FIXED_BYTES && payload_bytes <= SETUP_FIXED_BYTES + GREETING_BYTES_MAX
            }
            Kind::Reject => payload_bytes <= GREETING_BYTES_MAX,
            Kind::Data => payload_bytes <= SEGMENT_BYTES_MAX,
            Kind::End | Kind::Abort => payload_bytes == 0,
            Kind::Ack => matches!(payload_bytes, SACK_MAP_BYTES | SACK_MAP_BYTES_MAX),
        }
    }
}

/// Flags of a frame.
pub mod flag {
    /// `echo` and `held` are valid.
    pub const ECHO: u8 = 1;
    /// The sender requests an acknowledgement.
    pub const ACK_REQUEST: u8 = 2;
    /// When this flag changes, all senders to the endpoint that sets it pause for a moment.
    pub const DRAIN: u8 = 4;
    /// A CRC follows the payload.
    pub const CHECKED: u8 = 8;
}

/// Reasons for a reject or an abort.
pub mod reason {
    /// Requested by the upper layer.
    pub const HOST: u32 = 0;
    /// There is no listener for that service.
    pub const NO_SERVICE: u32 = 1;
    /// The flow is unknown, or has ended.
    pub const NO_FLOW: u32 = 2;
}

/// The header of every frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The kind of frame.
    pub kind: Kind,
    /// Flags: see [`flag`].
    pub flags: u8,
    /// Number of frames, from `acknowledged` on, that the sender has room for.
    pub credit: u8,
    /// Payload length in bytes.
    pub payload_bytes: u16,
    /// The receiver's number for the flow.
    pub flow: u32,
    /// The receiver's key.
    pub key: u32,
    /// The sequence number of this frame, or the next one to be used, or a [`reason`].
    pub sequence: u32,
    /// The sequence expected next.
    pub acknowledged: u32,
    /// The transmission number of this frame, below [`TRANSMISSIONS`].
    pub transmission: u32,
    /// The transmission that arrived last, below [`TRANSMISSIONS`].
    pub echo: u32,
    /// How long ago the transmission in `echo` arrived, in units of [`HELD_NANOS`], or [`HELD_LONG`].
    pub held: u16,
}

impl Header {
    /// Reads the header at the front of a frame. Checks that the payload is complete, as well as the CRC if
    /// its flag is set, but does not verify the CRC: see [`verify`].
    ///
    /// # Errors
    /// `Truncated`; `Version`; `Operation` for an unknown kind; `TotalLength` if the payload is longer than
    /// the frame, or has a length that its kind does not allow.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let frame_bytes = bytes.len();
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else { return Err(Malformed::Truncated) };
        if bytes[0] >> 4 != VERSION {
            return Err(Malformed::Version);
        }
        let Some(&kind) = Kind::ALL.get(usize::from(bytes[0] & 15)) else { return Err(Malformed::Operation) };
        let shape = u16::from_be_bytes([bytes[2], bytes[3]]);
        let (flags, payload_bytes) = ((shape >> PAYLOAD_BITS) as u8, shape & PAYLOAD_MASK);
        let check_bytes = if flags & flag::CHECKED != 0 { CHECK_BYTES } else { 0 };
        if HEADER_BYTES + usize::from(payload_bytes) + check_bytes > frame_bytes
            || !kind.allows(usize::from(payload_bytes))
        {
            return Err(Malformed::TotalLength);
        }
        let triple = |at: usize| u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]]);
        let header = Header {
            kind,
            flags,
            credit: bytes[1],
            payload_bytes,
            flow: word(bytes, 4),
            key: word(bytes, 8),
            sequence: word(bytes, 12),
            acknowledged: word(bytes, 16),
            transmission: triple(20),
            echo: triple(23),
            held: u16::from_be_bytes([bytes[26], bytes[27]]),
        };
        Ok((header, HEADER_BYTES))
    }

    /// Returns [`HEADER_BYTES`].
    #[inline]
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<HEADER_BYTES>().expect("room for an EFE header of 28 bytes");
        bytes[0] = (VERSION << 4) | self.kind as u8;
        bytes[1] = self.credit;
        let shape = (u16::from(self.flags) << PAYLOAD_BITS) | (self.payload_bytes & PAYLOAD_MASK);
        bytes[2..4].copy_from_slice(&shape.to_be_bytes());
        let words = [self.flow, self.key, self.sequence, self.acknowledged];
        for (place, word) in bytes[4..20].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes[20..23].copy_from_slice(&self.transmission.to_be_bytes()[1..]);
        bytes[23..26].copy_from_slice(&self.echo.to_be_bytes()[1..]);
        bytes[26..28].copy_from_slice(&self.held.to_be_bytes());
        HEADER_BYTES
    }

    /// Returns whether a flag is set.
    #[inline]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the payload of the frame from which this header was read.
    #[inline]
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[HEADER_BYTES..HEADER_BYTES + usize::from(self.payload_bytes)]
    }
}

/// Writes the payload of an acknowledgement, and returns its length.
pub fn write_sack_map(map: u128, room: &mut [u8]) -> usize {
    room[..SACK_MAP_BYTES].copy_from_slice(&(map as u64).to_be_bytes());
    let more = (map >> 64) as u64;
    if more == 0 {
        return SACK_MAP_BYTES;
    }
    room[SACK_MAP_BYTES..SACK_MAP_BYTES_MAX].copy_from_slice(&more.to_be_bytes());
    SACK_MAP_BYTES_MAX
}

/// Reads the map in the payload of an acknowledgement.
pub fn read_sack_map(payload: &[u8]) -> u128 {
    let word = |at: usize| {
        let bytes = payload.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u128::from(u64::from_be_bytes(*bytes)))
    };
    word(0) | word(SACK_MAP_BYTES) << 64
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Appends the CRC to a complete frame of `length` bytes at the front of `room`, and sets its flag. Returns
/// the new length.
///
/// # Panics
/// If `room` is too short for the CRC.
pub fn fill(room: &mut [u8], length: usize) -> usize {
    room[2] |= flag::CHECKED << (8 - FLAG_BITS);
    let check = Crc32c::of(&room[..length]);
    room[length..length + CHECK_BYTES].copy_from_slice(&check.to_le_bytes());
    length + CHECK_BYTES
}

/// Verifies the CRC of a complete frame from which `header` was read.
///
/// # Errors
/// `Crc`, also if the flag is missing.
pub fn verify(header: &Header, frame: &[u8]) -> Result<(), Malformed> {
    let length = HEADER_BYTES + usize::from(header.payload_bytes);
    let check = Crc32c::of(&frame[..length]).to_le_bytes();
    if header.has(flag::CHECKED) && frame.get(length..length + CHECK_BYTES) == Some(&check[..]) {
        Ok(())
    } else {
        Err(Malformed::Crc)
    }
}

/// The data that two ends exchange when they connect.
///
/// ```text
/// flow 32 | key 32 | service 16 | longest segment 16 | greeting
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup<'a> {
    /// The sender's number for the flow, which frames to the sender must carry.
    pub flow: u32,
    /// The key that frames to the sender must carry.
    pub key: u32,
    /// The requested service. An accept repeats it.
    pub service: u16,
    /// Maximum segment length, in bytes, that the sender accepts and sends.
    pub segment_bytes: u16,
    /// Data for the upper layer.
    pub greeting: &'a [u8],
}

impl<'a> Setup<'a> {
    /// Reads a setup that fills `bytes`.
    ///
    /// # Errors
    /// `Truncated`; `TotalLength` if the greeting is too long.
    pub fn read(bytes: &'a [u8]) -> Result<(Setup<'a>, usize), Malformed> {
        let Some((fixed, greeting)) = bytes.split_first_chunk::<SETUP_FIXED_BYTES>() else {
            return Err(Malformed::Truncated);
        };
        if greeting.len() > GREETING_BYTES_MAX {
            return Err(Malformed::TotalLength);
        }
        let short = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let setup = Setup {
            flow: word(fixed, 0),
            key: word(fixed, 4),
            service: short(8),
            segment_bytes: short(10),
            greeting,
        };
        Ok((setup, bytes.len()))
    }

    /// Returns the number of bytes that `write` fills.
    pub const fn length(&self) -> usize {
        SETUP_FIXED_BYTES + self.greeting.len()
    }

    /// Writes the setup.
    ///
    /// # Panics
    /// If `target` is shorter, or the greeting longer than [`GREETING_BYTES_MAX`].
    pub fn write(&self, target: &mut [u8]) -> usize {
        assert!(self.greeting.len() <= GREETING_BYTES_MAX, "a greeting is too long");
        target[..4].copy_from_slice(&self.flow.to_be_bytes());
        target[4..8].copy_from_slice(&self.key.to_be_bytes());
        target[8..10].copy_from_slice(&self.service.to_be_bytes());
        target[10..12].copy_from_slice(&self.segment_bytes.to_be_bytes());
        target[SETUP_FIXED_BYTES..self.length()].copy_from_slice(self.greeting);
        self.length()
    }
}

/// The flow of a frame that another host has not delivered, from the beginning of the frame that its ICMP
/// message quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quoted {
    /// A request of the flow with this key.
    Ask {
        /// The key that frames to the flow's requester must carry.
        key: u32,
    },
    /// Any other frame.
    Other {
        /// The receiver's number for the flow.
        flow: u32,
        /// The receiver's key.
        key: u32,
    },
}

impl Quoted {
    /// Reads the beginning of a frame. The rest may be missing.
    ///
    /// # Errors
    /// `Truncated`; `Version`; `Operation` for an unknown kind.
    pub fn read(bytes: &[u8]) -> Result<Quoted, Malformed> {
        const KEY_AT: usize = HEADER_BYTES + 4;
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Err(Malformed::Truncated) };
        if header[0] >> 4 != VERSION {
            return Err(Malformed::Version);
        }
        match Kind::ALL.get(usize::from(header[0] & 15)) {
            Some(Kind::Ask) if bytes.len() >= KEY_AT + 4 => Ok(Quoted::Ask { key: word(bytes, KEY_AT) }),
            Some(Kind::Ask) => Err(Malformed::Truncated),
            Some(_) => Ok(Quoted::Other { flow: word(header, 4), key: word(header, 8) }),
            None => Err(Malformed::Operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn plain(kind: Kind) -> Header {
        Header {
            kind,
            flags: 0,
            credit: 0,
            payload_bytes: 0,
            flow: 0,
            key: 0,
            sequence: 0,
            acknowledged: 0,
            transmission: 0,
            echo: 0,
            held: 0,
        }
    }

    #[test]
    fn the_bytes_of_a_segment() {
        let header = Header {
            flags: flag::ECHO | flag::ACK_REQUEST,
            credit: 64,
            payload_bytes: 1472,
            flow: 0x0102_0304,
            key: 0x0506_0708,
            sequence: 9,
            acknowledged: 10,
            transmission: 0x0b_0c0d,
            echo: 0x0e_0f10,
            held: 0x1112,
            ..plain(Kind::Data)
        };
        let mut frame = [0u8; 1500];
        header.write(&mut frame);
        let expected = [
            0x13, 64, 0x1d, 0xc0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 0, 0, 0, 10, 0x0b, 0x0c, 0x0d, 0x0e,
            0x0f, 0x10, 0x11, 0x12,
        ];
        assert_eq!(frame[..HEADER_BYTES], expected);
        assert_eq!(Header::read(&frame), Ok((header, HEADER_BYTES)));
    }

    #[test]
    fn each_malformed_header_has_its_own_error() {
        let of = |kind: Kind, payload_bytes: u16| {
            let mut frame = [0; 2048];
            Header { payload_bytes, ..plain(kind) }.write(&mut frame);
            frame
        };
        let rows: [(Kind, u16, usize, Result<(), Malformed>); 15] = [
            (Kind::Data, 0, 27, Err(Malformed::Truncated)),
            (Kind::Data, 100, 127, Err(Malformed::TotalLength)),
            (Kind::Data, 100, 128, Ok(())),
            (Kind::Data, 0, 46, Ok(())), // padded
            (Kind::Data, 1473, 2048, Err(Malformed::TotalLength)),
            (Kind::Ack, 8, 36, Ok(())),
            (Kind::Ack, 0, 36, Err(Malformed::TotalLength)),
            (Kind::Ack, 16, 44, Ok(())),
            (Kind::Ack, 12, 44, Err(Malformed::TotalLength)),
            (Kind::End, 1, 46, Err(Malformed::TotalLength)),
            (Kind::Abort, 1, 46, Err(Malformed::TotalLength)),
            (Kind::Ask, 11, 46, Err(Malformed::TotalLength)),
            (Kind::Ask, 12, 46, Ok(())),
            (Kind::Accept, 1037, 2048, Err(Malformed::TotalLength)),
            (Kind::Reject, 1025, 2048, Err(Malformed::TotalLength)),
        ];
        for (kind, payload_bytes, frame_bytes, expected) in rows {
            let frame = of(kind, payload_bytes);
            let read = Header::read(&frame[..frame_bytes]).map(|_| ());
            assert_eq!(read, expected, "{kind:?} of {payload_bytes} in {frame_bytes}");
        }
        let mut frame = of(Kind::Data, 0);
        frame[0] = 0x17;
        assert_eq!(Header::read(&frame), Err(Malformed::Operation));
        frame[0] = 0x23;
        assert_eq!(Header::read(&frame), Err(Malformed::Version));
        // If the flag is set, the CRC must be present.
        let mut frame = of(Kind::Data, 4);
        fill(&mut frame, 32);
        assert_eq!(Header::read(&frame[..35]), Err(Malformed::TotalLength));
        assert_eq!(Setup::read(&[0; 11]).map(|_| ()), Err(Malformed::Truncated));
    }

    #[test]
    fn a_map_has_a_second_word_only_if_needed() {
        for (map, bytes) in [(0, 8), (1, 8), (1 << 63, 8), (1 << 64, 16), (u128::MAX, 16), (1 << 127 | 5, 16)]
        {
            let mut room = [0; SACK_MAP_BYTES_MAX];
            assert_eq!(write_sack_map(map, &mut room), bytes);
            assert_eq!(read_sack_map(&room[..bytes]), map);
        }
        assert_eq!(read_sack_map(&[]), 0);
    }

    fn header() -> impl Strategy<Value = Header> {
        let fields = (
            0usize..7,
            0u8..8,
            any::<u8>(),
            any::<[u32; 4]>(),
            0u32..TRANSMISSIONS,
            0u32..TRANSMISSIONS,
            any::<u16>(),
        );
        fields.prop_map(|(kind, flags, credit, words, transmission, echo, held)| {
            let [flow, key, sequence, acknowledged] = words;
            let kind = Kind::ALL[kind];
            let payload_bytes = match kind {
                Kind::Ask | Kind::Accept | Kind::Data => 20,
                Kind::Ack => 8,
                _ => 0,
            };
            let words = Header { flow, key, sequence, acknowledged, ..plain(kind) };
            Header { flags, credit, payload_bytes, transmission, echo, held, ..words }
        })
    }

    proptest! {
        #[test]
        fn headers_round_trip(header in header()) {
            let mut frame = [0; 48];
            prop_assert_eq!(header.write(&mut frame), header.length());
            prop_assert_eq!(Header::read(&frame), Ok((header, HEADER_BYTES)));
            prop_assert_eq!(header.payload(&frame).len(), usize::from(header.payload_bytes));
        }

        #[test]
        fn setups_round_trip(
            words in any::<[u32; 2]>(), service in any::<u16>(), segment_bytes in any::<u16>(),
            greeting in prop::collection::vec(any::<u8>(), 0..=1024),
        ) {
            let setup = Setup { flow: words[0], key: words[1], service, segment_bytes, greeting: &greeting };
            let mut bytes = alloc::vec![0; setup.length()];
            prop_assert_eq!(setup.write(&mut bytes), setup.length());
            prop_assert_eq!(Setup::read(&bytes), Ok((setup, bytes.len())));
        }

        #[test]
        fn a_flipped_bit_is_detected(header in header(), payload in any::<[u8; 20]>(), bit in any::<prop::sample::Index>()) {
            let length = HEADER_BYTES + usize::from(header.payload_bytes);
            let mut frame: Vec<u8> = alloc::vec![0; length + CHECK_BYTES];
            header.write(&mut frame);
            frame[HEADER_BYTES..length].copy_from_slice(&payload[..length - HEADER_BYTES]);
            prop_assert_eq!(verify(&header, &frame), Err(Malformed::Crc), "without the flag");
            prop_assert_eq!(fill(&mut frame, length), frame.len());
            let bit = bit.index(frame.len() * 8);
            let (whole, _) = Header::read(&frame).expect("it was just written");
            prop_assert_eq!(verify(&whole, &frame), Ok(()));
            frame[bit / 8] ^= 1 << (bit % 8);
            if let Ok((changed, _)) = Header::read(&frame) {
                prop_assert_eq!(verify(&changed, &frame), Err(Malformed::Crc));
            }
        }
    }
}
