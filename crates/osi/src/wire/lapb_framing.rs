//! Framings that carry LAPB frames, or X.25 packets, over something other than a synchronous line.
//!
//! Purpose          one encoder and one decoder for each way in which Linux and asynchronous lines carry
//!                  frames.
//!
//! ```text
//! octet-stuffed   7E | frame and FCS, with 7D and 7E sent as 7D, octet XOR 20 | 7E     serial lines, streams
//! lapbether       length 16, lowest byte first | frame | padding                       EtherType 6000
//! X.25 device     kind 8 | packet                                                      devices with own LAPB
//! ```
//!
//! Octet-stuffed    RFC 1662 §4, without PPP's address, control and protocol fields. All octets are
//!                  transparent except 7D and 7E, so a serial line must be set to 8 bits without XON/XOFF.
//! lapbether        what Linux's lapbether driver sends; the length is needed because Ethernet pads frames.
//! X.25 device      what Linux passes between the packet layer and a device of type ARPHRD_X25
//!                  (`x25-iface`), whose driver contains LAPB: the kind says whether a packet follows, or
//!                  what happened to the link.
//! Limits           [`Deframer`] keeps at most `frame_bytes_max` octets of an incomplete frame; a longer
//!                  frame is skipped up to the next flag.
//! Not implemented  the receiver's removal of control characters that RFC 1662 §4.2 provides for modems.

use super::lapb::{FCS_BYTES, open, seal};
use alloc::vec::Vec;
use kiban_base::{Malformed, Rope, counters};

/// The octet that begins and ends a frame.
pub const FLAG: u8 = 0x7e;
/// The octet that announces a modified octet.
pub const ESCAPE: u8 = 0x7d;
/// What an escaped octet is combined with (exclusive or).
const ESCAPED: u8 = 0x20;
/// The EtherType of LAPB frames on Ethernet, which Linux calls ETH_P_DEC.
pub const ETHER_TYPE_LAPB: u16 = 0x6000;
/// Length in bytes of the header of LAPB on Ethernet.
const LENGTH_BYTES: usize = 2;

/// Encodes a frame for an octet-stuffed line, with FCS and flags.
pub fn stuff(frame: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(frame.len() + frame.len() / 8 + 8);
    line.push(FLAG);
    for octet in frame.iter().chain(&seal(frame)) {
        match *octet {
            FLAG | ESCAPE => line.extend([ESCAPE, octet ^ ESCAPED]),
            octet => line.push(octet),
        }
    }
    line.push(FLAG);
    line
}

counters! {
    /// Counters of a receiver of octet-stuffed frames.
    pub struct DeframerCounters {
        /// Frames received.
        frames,
        /// Frames whose FCS was wrong.
        crc,
        /// Frames that were too short to have an address, a control field and an FCS.
        short,
        /// Frames longer than the limit.
        long,
        /// Frames that the sender aborted: an escape before the flag.
        aborted,
    }
}

/// The receiver of an octet-stuffed line.
#[derive(Debug)]
pub struct Deframer {
    frame: Vec<u8>,
    bytes_max: usize,
    is_escaped: bool,
    /// Whether octets are ignored up to the next flag: before the first frame, and in a frame that is too
    /// long.
    is_skipping: bool,
    counters: DeframerCounters,
}

impl Deframer {
    /// Creates a receiver for frames of up to `frame_bytes_max` bytes, without FCS.
    pub fn new(frame_bytes_max: usize) -> Deframer {
        Deframer {
            frame: Vec::new(),
            bytes_max: frame_bytes_max + FCS_BYTES,
            is_escaped: false,
            is_skipping: true,
            counters: DeframerCounters::default(),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &DeframerCounters {
        &self.counters
    }

    /// Handles octets of the line, split anywhere, and passes each complete and correct frame to `accept`.
    pub fn arrive(&mut self, line: &[u8], mut accept: impl FnMut(Rope)) {
        for octet in line {
            match *octet {
                FLAG => self.on_flag(&mut accept),
                _ if self.is_skipping => {}
                ESCAPE => self.is_escaped = true,
                octet => {
                    if self.frame.len() >= self.bytes_max {
                        self.counters.long += 1;
                        self.is_skipping = true;
                        self.frame.clear();
                        continue;
                    }
                    let escaped = core::mem::take(&mut self.is_escaped);
                    self.frame.push(if escaped { octet ^ ESCAPED } else { octet });
                }
            }
        }
    }

    fn on_flag(&mut self, accept: &mut impl FnMut(Rope)) {
        let aborted = core::mem::take(&mut self.is_escaped);
        self.is_skipping = false;
        // RFC 1662 §4.3: frames that are too short, or end with an escape, are discarded. Consecutive flags
        // enclose nothing.
        match open(&self.frame) {
            _ if self.frame.is_empty() && !aborted => {}
            _ if aborted => self.counters.aborted += 1,
            Ok(frame) if frame.len() >= 2 => {
                self.counters.frames += 1;
                accept(Rope::copied(frame));
            }
            Ok(_) | Err(Malformed::Truncated) => self.counters.short += 1,
            Err(_) => self.counters.crc += 1,
        }
        self.frame.clear();
    }
}

/// Adds the length that precedes a frame on Ethernet.
///
/// # Panics
/// If the frame is longer than 65535 bytes.
pub fn write_lapbether(frame: &mut Rope) {
    let length = u16::try_from(frame.len()).expect("N1 is far below 65535");
    frame.prepend(&length.to_le_bytes());
}

/// Returns the frame in the payload of an Ethernet frame, without padding.
///
/// # Errors
/// `Truncated` if the payload is shorter than its length field says.
pub fn read_lapbether(payload: &[u8]) -> Result<&[u8], Malformed> {
    let (length, rest) = payload.split_first_chunk::<LENGTH_BYTES>().ok_or(Malformed::Truncated)?;
    rest.get(..usize::from(u16::from_le_bytes(*length))).ok_or(Malformed::Truncated)
}

/// What passes between the packet layer and an X.25 device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Device {
    /// A packet.
    Data(Rope),
    /// A request to set the link up, or the indication that it is up.
    Connect,
    /// A request to take the link down, or the indication that it is down.
    Disconnect,
    /// The link's parameters, which this program does not use.
    Parameters,
}

impl Device {
    /// Reads what the device sent.
    ///
    /// # Errors
    /// `Truncated` if there is no kind; `Operation` for an unknown one.
    pub fn read(mut bytes: Rope) -> Result<Device, Malformed> {
        let mut kind = [0];
        if bytes.copy_to(0, &mut kind) == 0 {
            return Err(Malformed::Truncated);
        }
        bytes.skip(1);
        match kind[0] {
            0 => Ok(Device::Data(bytes)),
            1 => Ok(Device::Connect),
            2 => Ok(Device::Disconnect),
            3 => Ok(Device::Parameters),
            _ => Err(Malformed::Operation),
        }
    }

    /// Returns the bytes for the device.
    pub fn write(self) -> Rope {
        match self {
            Device::Data(mut packet) => {
                packet.prepend(&[0]);
                packet
            }
            Device::Connect => Rope::copied(&[1]),
            Device::Disconnect => Rope::copied(&[2]),
            Device::Parameters => Rope::copied(&[3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn frames(deframer: &mut Deframer, line: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        deframer.arrive(line, |frame| frames.push(frame.to_vec()));
        frames
    }

    #[test]
    fn frames_are_stuffed_as_in_the_standard() {
        // SABM with P = 1 from the DTE, whose FCS is EB DF on the line.
        assert_eq!(stuff(&[1, 0x3f]), [0x7e, 1, 0x3f, 0xeb, 0xdf, 0x7e]);
        let line = stuff(&[3, 0x7e, 0x7d, 0x11]);
        assert_eq!(line[..7], [0x7e, 3, 0x7d, 0x5e, 0x7d, 0x5d, 0x11]);
    }

    proptest! {
        #[test]
        fn frames_survive_any_split(
            sent in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 2..40), 1..5),
            cut in 1..20usize,
        ) {
            let line: Vec<u8> = sent.iter().flat_map(|frame| stuff(frame)).collect();
            let mut deframer = Deframer::new(40);
            let got: Vec<_> = line.chunks(cut).flat_map(|piece| frames(&mut deframer, piece)).collect();
            prop_assert_eq!(got, sent);
        }
    }

    #[test]
    fn bad_frames_are_counted_and_do_not_hurt_the_next() {
        let good = stuff(&[1, 0x3f]);
        type Counter = fn(&DeframerCounters) -> u64;
        let rows: [(&[u8], Counter); 4] = [
            (&[0x7e, 1, 0x3f, 0, 0], |of| of.crc),
            (&[0x7e, 1], |of| of.short),
            (&[0x7e, 1, 0x3f, 0x5b, 0x7d], |of| of.aborted),
            (&[0x55; 20], |of| of.long),
        ];
        for (bad, counter) in rows {
            let mut deframer = Deframer::new(8);
            assert!(frames(&mut deframer, &[FLAG]).is_empty());
            assert!(frames(&mut deframer, bad).is_empty(), "{bad:x?}");
            assert_eq!(frames(&mut deframer, &good), [[1, 0x3f]], "{bad:x?}");
            assert_eq!((counter(deframer.counters()), deframer.counters().frames), (1, 1), "{bad:x?}");
        }
        // Noise before the first flag belongs to no frame.
        let mut deframer = Deframer::new(8);
        assert_eq!(frames(&mut deframer, &[&[9, 9, 9][..], &good].concat()), [[1, 0x3f]]);
        assert_eq!(deframer.counters().crc, 0);
    }

    #[test]
    fn ethernet_padding_is_removed() {
        let mut frame = Rope::copied(&[1, 0x3f]);
        write_lapbether(&mut frame);
        let padded = [&frame.to_vec()[..], &[0; 42]].concat();
        assert_eq!(padded[..4], [2, 0, 1, 0x3f]);
        assert_eq!(read_lapbether(&padded), Ok(&[1, 0x3f][..]));
        assert_eq!(read_lapbether(&[3, 0, 1, 0x3f]), Err(Malformed::Truncated));
        assert_eq!(read_lapbether(&[3]), Err(Malformed::Truncated));
    }

    #[test]
    fn a_device_announces_its_link() {
        for (said, bytes) in [
            (Device::Data(Rope::copied(&[0x10, 0, 0xfb])), vec![0, 0x10, 0, 0xfb]),
            (Device::Connect, vec![1]),
            (Device::Disconnect, vec![2]),
            (Device::Parameters, vec![3]),
        ] {
            assert_eq!(said.clone().write().to_vec(), bytes);
            assert_eq!(Device::read(bytes.into()), Ok(said));
        }
        assert_eq!(Device::read(Rope::new()), Err(Malformed::Truncated));
        assert_eq!(Device::read(Rope::copied(&[4])), Err(Malformed::Operation));
    }
}
