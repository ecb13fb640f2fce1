//! LAPB: frames of the data link below X.25 (X.25 §2.2 and §2.3, ISO 7776).
//!
//! Purpose          one decoder and one encoder for control fields of both lengths.
//!
//! ```text
//! | address 8 | control 8, or 16 in modulo 128 | information | FCS 16 |
//!
//! modulo 8      I  N(R) 3, P, N(S) 3, 0      S  N(R) 3, P/F, kind 2, 0 1      U  kind 3, P/F, kind 2, 1 1
//! modulo 128    I  N(S) 7, 0 | N(R) 7, P     S  0000, kind 2, 0 1 | N(R) 7, P/F     U  one octet, as in modulo 8
//! ```
//!
//! Address          A = 3 is the DTE and B = 1 the DCE. A command carries its receiver's address, a response
//!                  its sender's.
//! Line             a virtual line carries the bytes between two flags, without the flags, zero insertion and
//!                  FCS, as do captures and LAPB over Ethernet; [`seal`] and [`open`] add and remove the FCS
//!                  for a raw serial line.
//! Decoding         an undefined control field is decoded as [`Control::Undefined`], because the FRMR that
//!                  answers it quotes it (§2.3.4.9).
//! Not implemented  the addresses C and D of multilink procedures. [`crate::lapb`] implements the rules about
//!                  which frames may be sent when.

use kiban_base::Malformed;

/// The address of the DTE.
pub const A: u8 = 0x03;
/// The address of the DCE.
pub const B: u8 = 0x01;
/// Maximum length of a header in bytes.
pub const HEADER_BYTES_MAX: usize = 3;
/// Length of the frame check sequence in bytes.
pub const FCS_BYTES: usize = 2;

/// The modulus of sequence numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Modulo {
    /// Basic: 0 to 7.
    Eight,
    /// Extended: 0 to 127.
    OneTwentyEight,
}

impl Modulo {
    /// Returns the bit mask for sequence numbers.
    pub const fn mask(self) -> u8 {
        match self {
            Modulo::Eight => 7,
            Modulo::OneTwentyEight => 127,
        }
    }
}

/// The kinds of supervisory frame (§2.3.4.2 to §2.3.4.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Supervisory {
    /// RR: ready to receive.
    ReceiveReady,
    /// RNR: busy, not ready to receive.
    ReceiveNotReady,
    /// REJ: requests retransmission from N(R).
    Reject,
}

/// The kinds of unnumbered frame (§2.3.4.5 to §2.3.4.9).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unnumbered {
    /// SABM: set asynchronous balanced mode.
    Sabm,
    /// SABME: set asynchronous balanced mode extended (modulo 128).
    Sabme,
    /// DISC: disconnect.
    Disc,
    /// UA: unnumbered acknowledgement.
    Ua,
    /// DM: disconnected mode.
    Dm,
    /// FRMR: frame reject.
    Frmr,
}

const UNNUMBERED: [(Unnumbered, u8); 6] = [
    (Unnumbered::Sabm, 0x2f),
    (Unnumbered::Sabme, 0x6f),
    (Unnumbered::Disc, 0x43),
    (Unnumbered::Ua, 0x63),
    (Unnumbered::Dm, 0x0f),
    (Unnumbered::Frmr, 0x87),
];

/// The control field of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Control {
    /// I: an information frame.
    Information {
        /// N(S).
        n_s: u8,
        /// N(R).
        n_r: u8,
    },
    /// S: a supervisory frame, with N(R).
    Supervisory(Supervisory, u8),
    /// U: an unnumbered frame.
    Unnumbered(Unnumbered),
    /// An undefined control field, with its first octet.
    Undefined(u8),
}

/// The header of a frame: address and control field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// [`A`] or [`B`].
    pub address: u8,
    /// The kind of frame and its sequence numbers.
    pub control: Control,
    /// The P bit in a command, or the F bit in a response.
    pub poll_final: bool,
}

impl Header {
    /// Reads a header; an address other than A or B makes the frame invalid (§2.3.5.3).
    ///
    /// # Errors
    /// `Truncated`; `LinkAddress`.
    pub fn read(bytes: &[u8], modulo: Modulo) -> Result<(Header, usize), Malformed> {
        let (address, first) = match *bytes {
            [address, first, ..] => (address, first),
            _ => return Err(Malformed::Truncated),
        };
        if address != A && address != B {
            return Err(Malformed::LinkAddress);
        }
        let mut used = 2;
        let mut poll_final = first & 0x10 != 0;
        let control = if first & 3 == 3 {
            let kind = UNNUMBERED.iter().find(|(_, code)| *code == first & !0x10);
            kind.map_or(Control::Undefined(first), |(kind, _)| Control::Unnumbered(*kind))
        } else {
            let second = if modulo == Modulo::OneTwentyEight {
                used = 3;
                let second = *bytes.get(2).ok_or(Malformed::Truncated)?;
                poll_final = second & 1 != 0;
                Some(second)
            } else {
                None
            };
            let n_r = second.unwrap_or(first >> 4) >> 1;
            if first & 1 == 0 {
                let n_s = if second.is_some() { first >> 1 } else { first >> 1 & 7 };
                Control::Information { n_s, n_r }
            } else {
                // With modulo 128, the high four bits are reserved and must be zero.
                match first & if second.is_some() { 0xff } else { 0x0f } {
                    0x01 => Control::Supervisory(Supervisory::ReceiveReady, n_r),
                    0x05 => Control::Supervisory(Supervisory::ReceiveNotReady, n_r),
                    0x09 => Control::Supervisory(Supervisory::Reject, n_r),
                    _ => Control::Undefined(first),
                }
            }
        };
        if let Control::Undefined(_) = control {
            // The length of an undefined control field is unknown.
            used = 2;
        }
        Ok((Header { address, control, poll_final }, used))
    }

    /// Returns the number of bytes that [`Header::write`] writes.
    pub fn length(&self, modulo: Modulo) -> usize {
        match (self.control, modulo) {
            (Control::Information { .. } | Control::Supervisory(..), Modulo::OneTwentyEight) => 3,
            _ => 2,
        }
    }

    /// Writes the header; returns its length in bytes.
    ///
    /// # Panics
    /// If the target is too short.
    pub fn write(&self, modulo: Modulo, bytes: &mut [u8]) -> usize {
        let extended = modulo == Modulo::OneTwentyEight;
        let poll = u8::from(self.poll_final);
        bytes[0] = self.address;
        match self.control {
            Control::Information { n_s, n_r } if extended => {
                bytes[1] = n_s << 1;
                bytes[2] = n_r << 1 | poll;
            }
            Control::Information { n_s, n_r } => bytes[1] = n_r << 5 | poll << 4 | (n_s & 7) << 1,
            Control::Supervisory(kind, n_r) => {
                let code = match kind {
                    Supervisory::ReceiveReady => 0x01,
                    Supervisory::ReceiveNotReady => 0x05,
                    Supervisory::Reject => 0x09,
                };
                if extended {
                    bytes[1] = code;
                    bytes[2] = n_r << 1 | poll;
                } else {
                    bytes[1] = n_r << 5 | poll << 4 | code;
                }
            }
            Control::Unnumbered(kind) => {
                let (_, code) = UNNUMBERED.iter().find(|(of, _)| *of == kind).expect("every kind has a code");
                bytes[1] = code | poll << 4;
            }
            Control::Undefined(first) => bytes[1] = first,
        }
        self.length(modulo)
    }
}

/// The reason why a frame was rejected (§2.3.4.9): the bits W, X, Y and Z.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reasons(pub u8);

impl Reasons {
    /// W: the control field is undefined or not implemented.
    pub const W: Reasons = Reasons(1);
    /// X: an information field is not permitted, or has the wrong length; W is set as well.
    pub const X: Reasons = Reasons(3);
    /// Y: the information field is too long.
    pub const Y: Reasons = Reasons(4);
    /// Z: an invalid N(R).
    pub const Z: Reasons = Reasons(8);
}

/// The information field of an FRMR (Tables 7 and 8 of X.25).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FrameReject {
    /// The control field of the rejected frame; the second octet is zero if it has only one.
    pub rejected: [u8; 2],
    /// Whether the rejected frame was a response.
    pub response: bool,
    /// V(S) of the rejecting end.
    pub v_s: u8,
    /// V(R) of the rejecting end.
    pub v_r: u8,
    /// The reasons.
    pub reasons: Reasons,
}

impl FrameReject {
    /// Reads an information field. Some implementations send a shorter or longer one; the caller should
    /// tolerate that.
    ///
    /// # Errors
    /// `Truncated` for fewer than 3 octets, or 5 with modulo 128.
    pub fn read(bytes: &[u8], modulo: Modulo) -> Result<(FrameReject, usize), Malformed> {
        match (modulo, bytes) {
            (Modulo::Eight, [rejected, numbers, reasons, ..]) => Ok((
                FrameReject {
                    rejected: [*rejected, 0],
                    response: numbers & 0x10 != 0,
                    v_s: numbers >> 1 & 7,
                    v_r: numbers >> 5,
                    reasons: Reasons(reasons & 15),
                },
                3,
            )),
            (Modulo::OneTwentyEight, [first, second, v_s, v_r, reasons, ..]) => Ok((
                FrameReject {
                    rejected: [*first, *second],
                    response: v_r & 1 != 0,
                    v_s: v_s >> 1,
                    v_r: v_r >> 1,
                    reasons: Reasons(reasons & 15),
                },
                5,
            )),
            _ => Err(Malformed::Truncated),
        }
    }

    /// Returns the number of bytes that [`FrameReject::write`] writes.
    pub fn length(&self, modulo: Modulo) -> usize {
        match modulo {
            Modulo::Eight => 3,
            Modulo::OneTwentyEight => 5,
        }
    }

    /// Writes the information field; returns its length in bytes.
    ///
    /// # Panics
    /// If the target is too short.
    pub fn write(&self, modulo: Modulo, bytes: &mut [u8]) -> usize {
        let response = u8::from(self.response);
        match modulo {
            Modulo::Eight => {
                let numbers = (self.v_r & 7) << 5 | response << 4 | (self.v_s & 7) << 1;
                bytes[..3].copy_from_slice(&[self.rejected[0], numbers, self.reasons.0 & 15]);
            }
            Modulo::OneTwentyEight => {
                let [first, second] = self.rejected;
                let numbers = [self.v_s << 1, self.v_r << 1 | response];
                bytes[..5].copy_from_slice(&[first, second, numbers[0], numbers[1], self.reasons.0 & 15]);
            }
        }
        self.length(modulo)
    }
}

/// An incremental FCS-16 (§2.2.7). The check value of `123456789` is `906E`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fcs16(u16);

impl Fcs16 {
    /// Starts an FCS.
    pub const fn new() -> Fcs16 {
        Fcs16(0xffff)
    }

    /// Adds `bytes`; the data may be split anywhere.
    pub fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 >> 8) ^ FCS[usize::from(self.0 as u8 ^ byte)];
        }
    }

    /// Returns the FCS, which is sent lowest byte first (`to_le_bytes`).
    pub const fn value(self) -> u16 {
        !self.0
    }
}

impl Default for Fcs16 {
    fn default() -> Fcs16 {
        Fcs16::new()
    }
}

static FCS: [u16; 256] = fcs_table();

const fn fcs_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u16;
        let mut bit = 0;
        while bit < 8 {
            register = (register >> 1) ^ ((register & 1) * 0x8408);
            bit += 1;
        }
        table[byte] = register;
        byte += 1;
    }
    table
}

/// Returns the FCS octets that follow a frame on a raw serial line.
pub fn seal(frame: &[u8]) -> [u8; FCS_BYTES] {
    let mut fcs = Fcs16::new();
    fcs.update(frame);
    fcs.value().to_le_bytes()
}

/// Checks and removes the FCS of a frame from a raw serial line.
///
/// # Errors
/// `Truncated` if the frame is shorter than its FCS; `Crc`.
pub fn open(sealed: &[u8]) -> Result<&[u8], Malformed> {
    let (frame, fcs) = sealed.split_last_chunk().ok_or(Malformed::Truncated)?;
    if seal(frame) == *fcs { Ok(frame) } else { Err(Malformed::Crc) }
}

/// Returns the number of bits that a frame occupies on a serial line, including its FCS and one flag. Zero
/// insertion, which depends on the data, is not counted; it adds one bit in 62 on average.
pub const fn line_bits(frame_bytes: usize) -> usize {
    (frame_bytes + FCS_BYTES + 1) * 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn control(modulo: Modulo) -> impl Strategy<Value = Control> {
        let number = move || 0..=modulo.mask();
        let kind = prop_oneof![
            Just(Supervisory::ReceiveReady),
            Just(Supervisory::ReceiveNotReady),
            Just(Supervisory::Reject)
        ];
        prop_oneof![
            (number(), number()).prop_map(|(n_s, n_r)| Control::Information { n_s, n_r }),
            (kind, number()).prop_map(|(kind, n_r)| Control::Supervisory(kind, n_r)),
            (0..6usize).prop_map(|at| Control::Unnumbered(UNNUMBERED[at].0)),
        ]
    }

    fn modulos() -> impl Strategy<Value = Modulo> {
        prop_oneof![Just(Modulo::Eight), Just(Modulo::OneTwentyEight)]
    }

    proptest! {
        #[test]
        fn encoding_and_decoding_agree(
            (modulo, control) in modulos().prop_flat_map(|modulo| (Just(modulo), control(modulo))),
            poll_final in any::<bool>(),
            to_dte in any::<bool>(),
        ) {
            let header = Header { address: if to_dte { A } else { B }, control, poll_final };
            let mut bytes = [0; 3];
            let length = header.write(modulo, &mut bytes);
            prop_assert_eq!(Header::read(&bytes[..length], modulo), Ok((header, length)));
            prop_assert_eq!(Header::read(&bytes[..length - 1], modulo), Err(Malformed::Truncated));
        }

        #[test]
        fn every_bit_error_in_a_frame_is_detected(frame in proptest::collection::vec(any::<u8>(), 2..40), bit in any::<usize>()) {
            let mut sealed = [&frame[..], &seal(&frame)].concat();
            prop_assert_eq!(open(&sealed), Ok(&frame[..]));
            let bit = bit % (sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(open(&sealed), Err(Malformed::Crc));
        }
    }

    #[test]
    fn frames_are_encoded_as_in_the_standard() {
        let frame = |control, poll_final| Header { address: A, control, poll_final };
        let unnumbered = |kind| Control::Unnumbered(kind);
        use Supervisory::*;
        use Unnumbered::*;
        let rows: [(Control, bool, &[u8], &[u8]); 14] = [
            (unnumbered(Sabm), true, &[3, 0x3f], &[3, 0x3f]),
            (unnumbered(Sabme), true, &[3, 0x7f], &[3, 0x7f]),
            (unnumbered(Disc), false, &[3, 0x43], &[3, 0x43]),
            (unnumbered(Disc), true, &[3, 0x53], &[3, 0x53]),
            (unnumbered(Ua), true, &[3, 0x73], &[3, 0x73]),
            (unnumbered(Dm), false, &[3, 0x0f], &[3, 0x0f]),
            (unnumbered(Frmr), true, &[3, 0x97], &[3, 0x97]),
            (Control::Supervisory(ReceiveReady, 5), false, &[3, 0xa1], &[3, 0x01, 0x0a]),
            (Control::Supervisory(ReceiveNotReady, 0), true, &[3, 0x15], &[3, 0x05, 0x01]),
            (Control::Supervisory(Reject, 7), true, &[3, 0xf9], &[3, 0x09, 0x0f]),
            (Control::Information { n_s: 0, n_r: 0 }, false, &[3, 0x00], &[3, 0x00, 0x00]),
            (Control::Information { n_s: 3, n_r: 6 }, true, &[3, 0xd6], &[3, 0x06, 0x0d]),
            (Control::Undefined(0xef), false, &[3, 0xef], &[3, 0xef]),
            (Control::Undefined(0x0d), false, &[3, 0x0d], &[3, 0x0d]),
        ];
        for (control, poll_final, basic, extended) in rows {
            for (modulo, bytes) in [(Modulo::Eight, basic), (Modulo::OneTwentyEight, extended)] {
                let mut written = [0; 3];
                let length = frame(control, poll_final).write(modulo, &mut written);
                assert_eq!(&written[..length], bytes, "{control:?}");
                if !matches!(control, Control::Undefined(_)) {
                    assert_eq!(Header::read(bytes, modulo), Ok((frame(control, poll_final), bytes.len())));
                }
            }
        }
        assert_eq!(
            Header::read(&[3, 0x0d], Modulo::Eight).map(|(h, _)| h.control),
            Ok(Control::Undefined(0x0d))
        );
        assert_eq!(Header::read(&[7, 0x3f], Modulo::Eight), Err(Malformed::LinkAddress));
    }

    #[test]
    fn a_frame_reject_carries_the_reason() {
        let reject = FrameReject { rejected: [0x2e, 0], response: true, v_s: 5, v_r: 2, reasons: Reasons::Z };
        let rows: [(Modulo, &[u8]); 2] =
            [(Modulo::Eight, &[0x2e, 0x5a, 0x08]), (Modulo::OneTwentyEight, &[0x2e, 0, 0x0a, 0x05, 0x08])];
        for (modulo, bytes) in rows {
            let mut written = [0; 5];
            let length = reject.write(modulo, &mut written);
            assert_eq!(&written[..length], bytes);
            assert_eq!(FrameReject::read(bytes, modulo), Ok((reject, length)));
        }
    }

    #[test]
    fn the_fcs_matches_the_standard() {
        let mut fcs = Fcs16::new();
        fcs.update(b"12345");
        fcs.update(b"6789");
        assert_eq!(fcs.value(), 0x906e);
        // X.25 Appendix I: the FCS in the order in which its bits are sent.
        let rows = [
            ([A, 0x3f], 0b1101_1010_0011_0111),
            ([B, 0x73], 0b1100_0001_1110_1010),
            ([B, 0x3f], 0b1101_0111_1111_1011),
            ([A, 0x73], 0b1100_1100_0010_0110),
        ];
        for (frame, bits) in rows {
            let line: Vec<u8> = seal(&frame).iter().map(|byte| byte.reverse_bits()).collect();
            assert_eq!(line, u16::to_be_bytes(bits));
        }
    }
}
