//! The TCP header and its options (RFC 9293 §3.1 and §3.2, RFC 7323, RFC 2018).
//!
//! Purpose          decode and encode headers. The two common cases of an established connection, no options
//!                  and timestamps only, take one comparison each.
//!
//! ```text
//! | source port 16 | target port 16 | sequence 32 | acknowledgment 32 |
//! | words 4, reserved 4, flags 8 | window 16 | checksum 16 | urgent 16 | options 0..40 |
//!
//! 0 end | 1 no operation | 2 4 MSS 16 | 3 3 window shift 8 | 4 2 SACK permitted
//! 5 n SACK: (left 32, right 32) 1..4 | 8 10 timestamps: value 32, echo 32
//! 34 n Fast Open: cookie 0, 32..128 (RFC 7413)
//! ```
//!
//! Receive path     unknown options are skipped (RFC 9293 §3.1, MUST-6). An option length that is invalid for
//!                  its kind, or runs beyond the header, makes the segment malformed.
//! Transmit path    options are written in Linux's order and padding, so that a peer's fast path matches
//!                  them: first MSS, then SACK permitted and timestamps in 12 bytes, window scale, Fast Open,
//!                  and SACK blocks.
//! Checksum         the checksum covers pseudo-header, header and payload; `rest` is the sum of pseudo-header
//!                  and payload.
//! Not implemented  the meaning of options, and on which segments they are valid: see [`crate::tcp`].

use core::{
    fmt,
    ops::{Add, AddAssign, BitOr, Sub},
};

use kiban_base::Sum;

use kiban_base::{Malformed, checksum};

/// Length of a header without options, bytes.
pub const HEADER_BYTES: usize = 20;
/// Length of the longest header, bytes.
pub const HEADER_BYTES_MAX: usize = 60;
/// Maximum number of SACK blocks in one segment; 3 if timestamps are present (RFC 2018 §3).
pub const SACK_BLOCKS_MAX: usize = 4;

/// Length of the timestamps option with padding, bytes.
pub const TIMESTAMPS_BYTES: usize = 12;
/// `NOP NOP`, kind 8, length 10: the bytes that Linux and BSD put in front of timestamps (RFC 7323 appendix
/// A).
pub const TIMESTAMPS_ALONE: [u8; 4] = [NOP, NOP, TIMESTAMPS, 10];
/// `SACK permitted`, kind 8, length 10: the same bytes with the SACK-permitted option instead of the padding.
const TIMESTAMPS_AND_SACK: [u8; 4] = [SACK_PERMITTED, 2, TIMESTAMPS, 10];

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SHIFT: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const FAST_OPEN: u8 = 34;

/// Length of the longest Fast Open cookie (RFC 7413 §4.1.1), bytes.
pub const COOKIE_BYTES_MAX: usize = 16;

/// A sequence number: 32 bits that wrap, compared modulo 2^32 (RFC 9293 §3.4).
///
/// Not `Ord`, because sequence numbers have no total order: `a.lt(b)` is true if `b` is less than 2^31 ahead
/// of `a`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sequence(pub u32);

impl Sequence {
    /// Returns whether `self` is before `other`.
    #[inline]
    pub const fn lt(self, other: Sequence) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Returns whether `self` is before or equal to `other`.
    #[inline]
    pub const fn le(self, other: Sequence) -> bool {
        self.0.wrapping_sub(other.0) as i32 <= 0
    }

    /// Returns whether `self` is after `other`.
    #[inline]
    pub const fn gt(self, other: Sequence) -> bool {
        other.lt(self)
    }

    /// Returns whether `self` is after or equal to `other`.
    #[inline]
    pub const fn ge(self, other: Sequence) -> bool {
        other.le(self)
    }

    /// Returns the number of bytes from `self` to `later`; below 2^31 if `self.le(later)`.
    #[inline]
    pub const fn distance(self, later: Sequence) -> u32 {
        later.0.wrapping_sub(self.0)
    }

    /// Returns the later of two sequence numbers.
    #[inline]
    pub const fn max(self, other: Sequence) -> Sequence {
        if self.lt(other) { other } else { self }
    }

    /// Returns the earlier of two sequence numbers.
    #[inline]
    pub const fn min(self, other: Sequence) -> Sequence {
        if self.lt(other) { self } else { other }
    }
}

impl Add<u32> for Sequence {
    type Output = Sequence;

    #[inline]
    fn add(self, bytes: u32) -> Sequence {
        Sequence(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for Sequence {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for Sequence {
    type Output = Sequence;

    #[inline]
    fn sub(self, bytes: u32) -> Sequence {
        Sequence(self.0.wrapping_sub(bytes))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The eight control bits (RFC 9293 §3.1, RFC 3168 §6.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No flag set.
    pub const NONE: Flags = Flags(0);
    /// FIN: the sender has no more data.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push: deliver the data at once.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgment field is valid.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer is valid.
    pub const URG: Flags = Flags(0x20);
    /// ECN echo: congestion was experienced (RFC 3168).
    pub const ECE: Flags = Flags(0x40);
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: Flags = Flags(0x80);

    /// Returns whether all flags of `other` are set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any flag of `other` is set.
    #[inline]
    pub const fn has_any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the union of these flags and `other`.
    #[inline]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Returns these flags without the flags in `other`.
    #[inline]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;

    #[inline]
    fn bitor(self, other: Flags) -> Flags {
        self.with(other)
    }
}

impl fmt::Display for Flags {
    /// Writes the names of the bits that are set, such as `SYN ACK`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        if *self == Flags::NONE {
            return f.write_str("none");
        }
        let mut space = "";
        for (bit, name) in NAMES.iter().enumerate() {
            if self.0 >> bit & 1 == 1 {
                write!(f, "{space}{name}")?;
                space = " ";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The timestamps option (RFC 7323 §3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timestamps {
    /// TSval: the sender's timestamp clock.
    pub value: u32,
    /// TSecr: the peer's timestamp that the sender echoes.
    pub echo: u32,
}

/// The Fast Open option: a cookie, or the request for one (RFC 7413 §4.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FastOpenCookie {
    bytes: [u8; COOKIE_BYTES_MAX],
    length: u8,
}

impl FastOpenCookie {
    /// The request for a cookie.
    pub const REQUEST: FastOpenCookie = FastOpenCookie { bytes: [0; COOKIE_BYTES_MAX], length: 0 };

    /// Creates a cookie, or a request if there are no bytes. Returns `None` for an invalid length: a cookie
    /// has 4 to 16 bytes, an even number.
    pub fn new(cookie: &[u8]) -> Option<FastOpenCookie> {
        let length = cookie.len();
        if length != 0 && !(4..=COOKIE_BYTES_MAX).contains(&length) || !length.is_multiple_of(2) {
            return None;
        }
        let mut bytes = [0; COOKIE_BYTES_MAX];
        bytes[..length].copy_from_slice(cookie);
        Some(FastOpenCookie { bytes, length: length as u8 })
    }

    /// Returns the bytes of the cookie.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Returns whether this is the request for a cookie.
    pub const fn is_request(&self) -> bool {
        self.length == 0
    }

    /// Returns the length of the option with padding, bytes.
    const fn option_bytes(&self) -> usize {
        (2 + self.length as usize).next_multiple_of(4)
    }
}

/// A SACK block: a contiguous run of bytes that arrived out of order (RFC 2018 §3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SackBlock {
    /// The first byte of the run.
    pub left: Sequence,
    /// The byte after the run.
    pub right: Sequence,
}

/// Up to [`SACK_BLOCKS_MAX`] blocks, the most recent first.
#[derive(Clone, Copy, Default)]
pub struct SackBlocks {
    blocks: [SackBlock; SACK_BLOCKS_MAX],
    count: u8,
}

impl SackBlocks {
    /// Creates an empty list.
    #[inline]
    pub const fn new() -> Self {
        const EMPTY: SackBlock = SackBlock { left: Sequence(0), right: Sequence(0) };
        SackBlocks { blocks: [EMPTY; SACK_BLOCKS_MAX], count: 0 }
    }

    /// Appends a block and returns true; returns false if there are [`SACK_BLOCKS_MAX`] already.
    #[inline]
    pub fn push(&mut self, block: SackBlock) -> bool {
        match self.blocks.get_mut(usize::from(self.count)) {
            Some(place) => {
                *place = block;
                self.count += 1;
                true
            }
            None => false,
        }
    }

    /// Returns the blocks.
    #[inline]
    pub fn as_slice(&self) -> &[SackBlock] {
        &self.blocks[..usize::from(self.count)]
    }

    /// Returns whether the list is empty.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// The supported options of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// MSS: the largest payload that the sender accepts, bytes (RFC 9293 §3.7.1).
    pub mss: Option<u16>,
    /// Window scale: the shift of the sender's windows, as on the wire; values above 14 count as 14 (RFC 7323
    /// §2.3).
    pub window_shift: Option<u8>,
    /// SACK permitted: the sender accepts SACK blocks (RFC 2018 §2).
    pub sack_permitted: bool,
    /// Timestamps (RFC 7323 §3).
    pub timestamps: Option<Timestamps>,
    /// Fast Open, in a SYN (RFC 7413 §4.1.1). An option of an invalid length counts as absent.
    pub fast_open: Option<FastOpenCookie>,
    /// SACK blocks: the data that the sender of the segment holds out of order (RFC 2018 §3).
    pub sack: SackBlocks,
}

impl Options {
    /// No options.
    pub const NONE: Options = Options {
        mss: None,
        window_shift: None,
        sack_permitted: false,
        timestamps: None,
        fast_open: None,
        sack: SackBlocks::new(),
    };

    /// Returns the length of the options with padding, bytes: a multiple of 4, at most 40.
    ///
    /// Counts only the SACK blocks that fit: 4, or 3 with timestamps, fewer with further options.
    #[inline]
    pub const fn length(&self) -> usize {
        let before = self.bytes_before_sack();
        match self.sack_blocks_written(before) {
            0 => before,
            blocks => before + 4 + 8 * blocks,
        }
    }

    /// Decodes the options: the bytes between the fixed header and the payload.
    ///
    /// # Errors
    /// `OptionLength`.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Options, Malformed> {
        if bytes.is_empty() {
            return Ok(Options::NONE);
        }
        if bytes.len() == TIMESTAMPS_BYTES
            && let Some((&TIMESTAMPS_ALONE, value)) = bytes.split_first_chunk::<4>()
        {
            let timestamps = Some(read_timestamps(value)?);
            return Ok(Options { timestamps, ..Options::NONE });
        }
        Options::read_any(bytes)
    }

    fn read_any(mut bytes: &[u8]) -> Result<Options, Malformed> {
        let mut options = Options::NONE;
        while let Some((&kind, rest)) = bytes.split_first() {
            match kind {
                END => break,
                NOP => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            // RFC 9293 §3.1: the length includes the kind and length bytes.
            let length = usize::from(*rest.first().ok_or(Malformed::OptionLength)?);
            if length < 2 {
                return Err(Malformed::OptionLength);
            }
            let (option, after) = bytes.split_at_checked(length).ok_or(Malformed::OptionLength)?;
            options.take(kind, &option[2..])?;
            bytes = after;
        }
        Ok(options)
    }

    fn take(&mut self, kind: u8, value: &[u8]) -> Result<(), Malformed> {
        match (kind, value) {
            (MSS, &[high, low]) => self.mss = Some(u16::from_be_bytes([high, low])),
            (WINDOW_SHIFT, &[shift]) => self.window_shift = Some(shift),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, value) => self.timestamps = Some(read_timestamps(value)?),
            (SACK, value) => {
                let (blocks, odd) = value.as_chunks::<8>();
                if blocks.is_empty() || !odd.is_empty() {
                    return Err(Malformed::OptionLength);
                }
                for &[l0, l1, l2, l3, r0, r1, r2, r3] in blocks {
                    let left = Sequence(u32::from_be_bytes([l0, l1, l2, l3]));
                    let right = Sequence(u32::from_be_bytes([r0, r1, r2, r3]));
                    self.sack.push(SackBlock { left, right });
                }
            }
            // RFC 7413 §4.1.1: an invalid length is ignored.
            (FAST_OPEN, cookie) => self.fast_open = FastOpenCookie::new(cookie),
            (MSS | WINDOW_SHIFT | SACK_PERMITTED, _) => return Err(Malformed::OptionLength),
            _ => {}
        }
        Ok(())
    }

    /// Writes the options into exactly [`Options::length`] bytes.
    #[inline]
    fn write(&self, target: &mut [u8]) {
        if target.is_empty() {
            return;
        }
        // Common case: timestamps only.
        if let (Some(stamps), Ok(place)) =
            (self.timestamps, <&mut [u8; TIMESTAMPS_BYTES]>::try_from(&mut *target))
            && !self.sack_permitted
        {
            let ([v0, v1, v2, v3], [e0, e1, e2, e3]) =
                (stamps.value.to_be_bytes(), stamps.echo.to_be_bytes());
            let [n0, n1, kind, length] = TIMESTAMPS_ALONE;
            *place = [n0, n1, kind, length, v0, v1, v2, v3, e0, e1, e2, e3];
            return;
        }
        let mut line = Line { rest: target };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            line.put([MSS, 4, high, low]);
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            line.put(if self.sack_permitted { TIMESTAMPS_AND_SACK } else { TIMESTAMPS_ALONE });
            line.put(value.to_be_bytes());
            line.put(echo.to_be_bytes());
        } else if self.sack_permitted {
            line.put([NOP, NOP, SACK_PERMITTED, 2]);
        }
        if let Some(shift) = self.window_shift {
            line.put([NOP, WINDOW_SHIFT, 3, shift]);
        }
        if let Some(cookie) = self.fast_open {
            let mut option = [NOP; COOKIE_BYTES_MAX + 4];
            let (padded, length) = (cookie.option_bytes(), cookie.as_slice().len());
            option[..2].copy_from_slice(&[FAST_OPEN, (2 + length) as u8]);
            option[2..2 + length].copy_from_slice(cookie.as_slice());
            option[..padded].as_chunks::<4>().0.iter().for_each(|word| line.put(*word));
        }
        let blocks = self.sack_blocks_written(self.bytes_before_sack());
        if blocks > 0 {
            line.put([NOP, NOP, SACK, (2 + 8 * blocks) as u8]);
            for block in &self.sack.as_slice()[..blocks] {
                line.put(block.left.0.to_be_bytes());
                line.put(block.right.0.to_be_bytes());
            }
        }
    }

    #[inline]
    const fn bytes_before_sack(&self) -> usize {
        let mss = if self.mss.is_some() { 4 } else { 0 };
        let window_shift = if self.window_shift.is_some() { 4 } else { 0 };
        let timestamps = match (self.timestamps.is_some(), self.sack_permitted) {
            (true, _) => TIMESTAMPS_BYTES,
            (false, true) => 4,
            (false, false) => 0,
        };
        let fast_open = match &self.fast_open {
            Some(cookie) => cookie.option_bytes(),
            None => 0,
        };
        mss + window_shift + timestamps + fast_open
    }

    #[inline]
    const fn sack_blocks_written(&self, bytes_before: usize) -> usize {
        let room = (HEADER_BYTES_MAX - HEADER_BYTES).saturating_sub(bytes_before + 4) / 8;
        let count = self.sack.count as usize;
        if count < room { count } else { room }
    }
}

/// A TCP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub target_port: u16,
    /// SEG.SEQ: sequence number of the first payload byte, or of the SYN.
    pub sequence: Sequence,
    /// SEG.ACK: the next sequence number that the sender expects. Valid with ACK.
    pub acknowledgment: Sequence,
    /// The flags.
    pub flags: Flags,
    /// SEG.WND: the window field as on the wire, unscaled.
    pub window: u16,
    /// Urgent pointer: the end of the urgent data, relative to `sequence`. Valid with URG.
    pub urgent: u16,
    /// The options.
    pub options: Options,
}

impl Header {
    /// Decodes the header at the front of a segment. The checksum is not verified: see [`verify`].
    ///
    /// # Errors
    /// `Truncated`; `HeaderLength` if the data offset is below 5 words or beyond the segment; `OptionLength`.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let Some((fixed, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(Malformed::Truncated);
        };
        let &[s0, s1, t0, t1, q0, q1, q2, q3, a0, a1, a2, a3, words, flags, w0, w1, _, _, u0, u1] = fixed;
        let header_bytes = usize::from(words >> 4) * 4;
        let options_bytes = header_bytes.checked_sub(HEADER_BYTES).ok_or(Malformed::HeaderLength)?;
        let options = Options::read(rest.get(..options_bytes).ok_or(Malformed::HeaderLength)?)?;
        let header = Header {
            source_port: u16::from_be_bytes([s0, s1]),
            target_port: u16::from_be_bytes([t0, t1]),
            sequence: Sequence(u32::from_be_bytes([q0, q1, q2, q3])),
            acknowledgment: Sequence(u32::from_be_bytes([a0, a1, a2, a3])),
            flags: Flags(flags),
            window: u16::from_be_bytes([w0, w1]),
            urgent: u16::from_be_bytes([u0, u1]),
            options,
        };
        Ok((header, header_bytes))
    }

    /// Returns the length of the header with options, bytes.
    #[inline]
    pub const fn length(&self) -> usize {
        HEADER_BYTES + self.options.length()
    }

    /// Writes the header at the front of `target` with a zero checksum, to be completed by [`fill`]. Returns
    /// the number of bytes written.
    ///
    /// # Panics
    /// If `target` is shorter than [`Header::length`].
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        let header_bytes = self.length();
        let (fixed, options) = target[..header_bytes]
            .split_first_chunk_mut::<HEADER_BYTES>()
            .expect("length counts the fixed part");
        let [s0, s1] = self.source_port.to_be_bytes();
        let [t0, t1] = self.target_port.to_be_bytes();
        let [q0, q1, q2, q3] = self.sequence.0.to_be_bytes();
        let [a0, a1, a2, a3] = self.acknowledgment.0.to_be_bytes();
        let [w0, w1] = self.window.to_be_bytes();
        let [u0, u1] = self.urgent.to_be_bytes();
        let words = ((header_bytes / 4) << 4) as u8;
        *fixed = [s0, s1, t0, t1, q0, q1, q2, q3, a0, a1, a2, a3, words, self.flags.0, w0, w1, 0, 0, u0, u1];
        self.options.write(options);
        header_bytes
    }

    /// Returns SEG.LEN, the sequence space of a segment with `payload_bytes`: SYN and FIN count one each (RFC
    /// 9293 §3.4).
    #[inline]
    pub const fn sequence_bytes(&self, payload_bytes: usize) -> u32 {
        payload_bytes as u32 + self.flags.has(Flags::SYN) as u32 + self.flags.has(Flags::FIN) as u32
    }
}

/// The first eight bytes of a segment, which every ICMP error quotes (RFC 792): ports and sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quoted {
    /// Source port of the quoted segment, a port of the host that receives the error.
    pub source_port: u16,
    /// Destination port of the quoted segment.
    pub target_port: u16,
    /// Sequence number of the quoted segment.
    pub sequence: Sequence,
}

impl Quoted {
    /// Decodes the first eight bytes of a segment. For a UDP datagram the ports are valid and `sequence` is
    /// meaningless.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn read(bytes: &[u8]) -> Result<Quoted, Malformed> {
        let &[s0, s1, t0, t1, q0, q1, q2, q3] = bytes.first_chunk::<8>().ok_or(Malformed::Truncated)?;
        Ok(Quoted {
            source_port: u16::from_be_bytes([s0, s1]),
            target_port: u16::from_be_bytes([t0, t1]),
            sequence: Sequence(u32::from_be_bytes([q0, q1, q2, q3])),
        })
    }
}

/// Returns SEG.SEQ of a header, without validating anything.
///
/// # Panics
/// If `header` is shorter than 20 bytes.
#[inline]
pub fn sequence(header: &[u8]) -> Sequence {
    Sequence(u32::from_be_bytes([header[4], header[5], header[6], header[7]]))
}

/// Returns the length of a header with its options, in bytes, as its data offset states.
///
/// # Panics
/// If `header` is shorter than 20 bytes.
#[inline]
pub fn header_bytes(header: &[u8]) -> usize {
    usize::from(header[12] >> 4) * 4
}

/// Returns the flags of a header.
///
/// # Panics
/// If `header` is shorter than 20 bytes.
#[inline]
pub fn flags(header: &[u8]) -> Flags {
    Flags(header[13])
}

/// Overwrites the flags of a header. [`fill`] must correct the checksum afterwards.
///
/// # Panics
/// If `header` is shorter than 20 bytes.
#[inline]
pub fn set_flags(header: &mut [u8], flags: Flags) {
    header[13] = flags.0;
}

/// Returns whether the fixed parts of two headers differ at most in SEG.SEQ, flags and checksum, so that the
/// segments may be parts of one larger segment.
#[inline]
pub fn may_be_joined(one: &[u8; HEADER_BYTES], other: &[u8; HEADER_BYTES]) -> bool {
    one[..4] == other[..4]
        && one[8..13] == other[8..13]
        && one[14..16] == other[14..16]
        && one[18..] == other[18..]
}

/// Computes and stores the checksum of a segment; `rest` is the sum of pseudo-header and payload.
///
/// # Panics
/// If `header` is shorter than 20 bytes.
#[inline]
pub fn fill(header: &mut [u8], rest: Sum) {
    header[16..18].fill(0);
    let checksum = checksum::of_header(header).plus(rest).checksum();
    header[16..18].copy_from_slice(&checksum.to_be_bytes());
}

/// Verifies the checksum of a segment. `header` must be exactly the bytes that [`Header::read`] returned as
/// its length; `rest` is the sum of pseudo-header and payload.
///
/// # Errors
/// `Checksum` if it does not match.
#[inline]
pub fn verify(header: &[u8], rest: Sum) -> Result<(), Malformed> {
    if checksum::of_header(header).plus(rest).is_intact() { Ok(()) } else { Err(Malformed::Checksum) }
}

#[inline]
fn read_timestamps(value: &[u8]) -> Result<Timestamps, Malformed> {
    let &[v0, v1, v2, v3, e0, e1, e2, e3] = value else {
        return Err(Malformed::OptionLength);
    };
    Ok(Timestamps { value: u32::from_be_bytes([v0, v1, v2, v3]), echo: u32::from_be_bytes([e0, e1, e2, e3]) })
}

/// The remaining space for options, filled in words of four bytes.
struct Line<'a> {
    rest: &'a mut [u8],
}

impl Line<'_> {
    #[inline]
    fn put(&mut self, word: [u8; 4]) {
        let rest = core::mem::take(&mut self.rest);
        let (place, after) = rest.split_first_chunk_mut::<4>().expect("length counts every option");
        *place = word;
        self.rest = after;
    }
}
