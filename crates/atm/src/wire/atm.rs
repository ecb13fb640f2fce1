//! Cells (I.361) and their header error control (I.432.1 §4.3.2).
//!
//! Purpose          convert 53 bytes to a header word and back, with the single-bit correction of the HEC.
//!
//! ```text
//!        bit 31    27        19                      3      0
//! UNI     | GFC 4  | VPI 8   | VCI 16               | PTI 3 | CLP 1 |  then HEC 8, payload 48 bytes
//! NNI     | VPI 12           | VCI 16               | PTI 3 | CLP 1 |
//! ```
//!
//! Word             a header without its HEC is represented as a `u32` whose big-endian bytes are the first
//!                  bytes of the cell; [`Header`] is its decoded form. The link knows which of the two
//!                  layouts applies: [`Interface`].
//! No HEC           some links omit the HEC (SONET framers towards a host, RFC 4717, Linux AAL0): 52 bytes
//!                  per cell.
//! Not implemented  cell delineation and the switch between correction and detection mode (I.432.1 §4.3.2.2),
//!                  which need state.

use core::{fmt, str::FromStr};

use kiban_base::crc;

/// Size of a cell on the wire in bytes.
pub const CELL_BYTES: usize = 53;
/// Size of a cell's payload in bytes.
pub const CELL_PAYLOAD_BYTES: usize = 48;
/// Size of a cell's header including the HEC, in bytes.
pub const CELL_HEADER_BYTES: usize = 5;
/// Size of a cell in bytes on links that omit the HEC.
pub const CELL_BYTES_WITHOUT_HEC: usize = 52;

/// The PTI bit that marks the last cell of an AAL5 frame, in user cells (I.361 §2.2.4, I.363.5 §9.2.1).
pub const PTI_LAST: u8 = 0b001;
/// The PTI bit that indicates congestion, in user cells (I.361 §2.2.4).
pub const PTI_CONGESTED: u8 = 0b010;
/// The PTI bit that distinguishes management cells from user cells (I.361 §2.2.4).
pub const PTI_MANAGEMENT: u8 = 0b100;
/// PTI of a segment OAM F5 cell.
pub const PTI_OAM_SEGMENT: u8 = 0b100;
/// PTI of an end-to-end OAM F5 cell.
pub const PTI_OAM_END_TO_END: u8 = 0b101;
/// PTI of a resource management cell.
pub const PTI_RESOURCE_MANAGEMENT: u8 = 0b110;

/// The VCI of segment OAM F4 cells, in every path (I.361 §2.2.3).
pub const VCI_F4_SEGMENT: u16 = 3;
/// The VCI of end-to-end OAM F4 cells, in every path (I.361 §2.2.3).
pub const VCI_F4_END_TO_END: u16 = 4;
/// The first VCI that no standard reserves (I.361 §2.2.3).
pub const VCI_USER_FIRST: u16 = 32;

/// The header word of an idle cell, which the physical layer inserts and removes (I.432.1 §4.4).
pub const IDLE_WORD: u32 = 0x0000_0001;
/// The value of every byte of an idle cell's payload (I.432.1 §4.4).
pub const IDLE_PAYLOAD_BYTE: u8 = 0x6a;
/// The header word of an unassigned cell, a slot that the ATM layer left empty (I.361 §2.2.1).
pub const UNASSIGNED_WORD: u32 = 0x0000_0000;

/// The identifier of a virtual circuit on one link. Written `vpi.vci`, such as `0.100`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Vc {
    /// Virtual path identifier: 8 bits at a UNI, 12 at an NNI.
    pub vpi: u16,
    /// Virtual channel identifier: 16 bits.
    pub vci: u16,
}

impl Vc {
    /// The largest VPI of any interface.
    pub const VPI_MAX: u16 = 0xfff;

    /// Creates the identifier `vpi.vci`.
    #[inline]
    pub const fn new(vpi: u16, vci: u16) -> Self {
        Vc { vpi, vci }
    }

    /// Returns the shard of a circuit, on a board of several shards that distributes circuits. Shard 0 has
    /// the reserved VCIs.
    #[inline]
    pub const fn shard(self, shards: usize) -> usize {
        match self.vci {
            ..VCI_USER_FIRST => 0,
            vci => (self.vpi as usize + vci as usize) % shards,
        }
    }
}

impl fmt::Display for Vc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.vpi, self.vci)
    }
}

impl FromStr for Vc {
    type Err = NotAVc;

    fn from_str(text: &str) -> Result<Self, NotAVc> {
        let (vpi, vci) = text.split_once('.').ok_or(NotAVc)?;
        let vpi = vpi.parse().map_err(|_| NotAVc)?;
        let vci = vci.parse().map_err(|_| NotAVc)?;
        if vpi > Vc::VPI_MAX { Err(NotAVc) } else { Ok(Vc { vpi, vci }) }
    }
}

/// The text is not a circuit identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAVc;

impl fmt::Display for NotAVc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write a circuit as vpi.vci, such as 0.100, with a vpi of at most 4095 and a vci of at most 65535")
    }
}

impl core::error::Error for NotAVc {}

/// The type of interface, which determines the meaning of the first four header bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Interface {
    /// User-network interface: four bits of generic flow control and eight of VPI.
    #[default]
    Uni,
    /// Network-node interface: twelve bits of VPI.
    Nni,
}

/// A cell's header without its HEC (I.361 §2.2 and §2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Generic flow control, 4 bits; 0 and not carried at an NNI.
    pub gfc: u8,
    /// Circuit identifier.
    pub vc: Vc,
    /// Payload type, 3 bits: see the `PTI_` constants.
    pub pti: u8,
    /// Cell loss priority: cells with `true` are dropped first.
    pub clp: bool,
}

impl Header {
    /// Creates the header of a user cell of `vc`; `last` marks the last cell of a frame.
    #[inline]
    pub const fn user(vc: Vc, last: bool) -> Self {
        Header { gfc: 0, vc, pti: if last { PTI_LAST } else { 0 }, clp: false }
    }

    /// Decodes a header word. Every word is valid.
    #[inline]
    pub const fn from_word(interface: Interface, word: u32) -> Self {
        let (gfc, vpi) = match interface {
            Interface::Uni => ((word >> 28) as u8, (word >> 20) as u16 & 0xff),
            Interface::Nni => (0, (word >> 20) as u16),
        };
        let vc = Vc { vpi, vci: (word >> 4) as u16 };
        Header { gfc, vc, pti: (word >> 1) as u8 & 0b111, clp: word & 1 == 1 }
    }

    /// Encodes the header word. Bits beyond a field's width are dropped.
    #[inline]
    pub const fn to_word(&self, interface: Interface) -> u32 {
        let path = match interface {
            Interface::Uni => (self.gfc as u32) << 28 | (self.vc.vpi as u32 & 0xff) << 20,
            Interface::Nni => (self.vc.vpi as u32 & 0xfff) << 20,
        };
        path | (self.vc.vci as u32) << 4 | (self.pti as u32 & 0b111) << 1 | self.clp as u32
    }

    /// Returns whether this is a user cell, not a management cell.
    #[inline]
    pub const fn is_user(&self) -> bool {
        self.pti & PTI_MANAGEMENT == 0
    }

    /// Returns whether this user cell ends an AAL5 frame.
    #[inline]
    pub const fn is_last(&self) -> bool {
        self.pti & (PTI_MANAGEMENT | PTI_LAST) == PTI_LAST
    }

    /// Returns whether this user cell carries the congestion indication.
    #[inline]
    pub const fn is_congested(&self) -> bool {
        self.pti & (PTI_MANAGEMENT | PTI_CONGESTED) == PTI_CONGESTED
    }

    /// Returns whether this is an OAM cell, either of the circuit (F5, by its PTI) or of the path (F4, by its
    /// VCI).
    #[inline]
    pub const fn is_oam(&self) -> bool {
        let f5 = self.pti == PTI_OAM_SEGMENT || self.pti == PTI_OAM_END_TO_END;
        f5 || self.vc.vci == VCI_F4_SEGMENT || self.vc.vci == VCI_F4_END_TO_END
    }
}

/// Returns whether a header word belongs to an idle or other physical layer cell: circuit 0.0 and CLP 1
/// (I.361 §2.2.1).
#[inline]
pub const fn is_physical(word: u32) -> bool {
    word & 0x0fff_fff1 == 1
}

/// Returns whether a header word belongs to an unassigned cell: circuit 0.0 and CLP 0 (I.361 §2.2.1).
///
/// At a UNI the flow control bits may have any value.
#[inline]
pub const fn is_unassigned(interface: Interface, word: u32) -> bool {
    let decisive = match interface {
        Interface::Uni => 0x0fff_fff1,
        Interface::Nni => 0xffff_fff1,
    };
    word & decisive == 0
}

/// The result of checking a header against its HEC (I.432.1 §4.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HecCheck {
    /// The header has no error. Holds the header word as received.
    Intact(u32),
    /// One bit was wrong, possibly in the HEC itself. Holds the header word as sent.
    Corrected(u32),
    /// More than one bit is wrong: drop the cell.
    Bad,
}

impl HecCheck {
    /// Returns the header word unless it is bad.
    #[inline]
    pub const fn word(self) -> Option<u32> {
        match self {
            HecCheck::Intact(word) | HecCheck::Corrected(word) => Some(word),
            HecCheck::Bad => None,
        }
    }
}

/// Checks a header of five bytes and corrects a single-bit error.
///
/// The code has distance 4: two wrong bits are always [`HecCheck::Bad`].
#[inline]
pub fn check(header: &[u8; CELL_HEADER_BYTES]) -> HecCheck {
    let [a, b, c, d, received] = *header;
    let word = u32::from_be_bytes([a, b, c, d]);
    let syndrome = crc::hec([a, b, c, d]) ^ received;
    if syndrome == 0 { HecCheck::Intact(word) } else { correct(word, syndrome) }
}

/// Writes a whole cell with its HEC.
#[inline]
pub fn pack(word: u32, payload: &[u8; CELL_PAYLOAD_BYTES], cell: &mut [u8; CELL_BYTES]) {
    let (header, body) = cell.split_first_chunk_mut::<CELL_HEADER_BYTES>().expect("53 is more than 5");
    *header = header_bytes(word);
    body.copy_from_slice(payload);
}

/// Reads a whole cell: the result of its HEC check, and its payload.
#[inline]
pub fn unpack(cell: &[u8; CELL_BYTES]) -> (HecCheck, &[u8; CELL_PAYLOAD_BYTES]) {
    let header = cell.first_chunk().expect("53 is more than 5");
    let payload = cell.last_chunk().expect("53 is more than 48");
    (check(header), payload)
}

/// Writes a cell for a link that omits the HEC.
#[inline]
pub fn pack_without_hec(
    word: u32,
    payload: &[u8; CELL_PAYLOAD_BYTES],
    cell: &mut [u8; CELL_BYTES_WITHOUT_HEC],
) {
    let (header, body) = cell.split_first_chunk_mut::<4>().expect("52 is more than 4");
    *header = word.to_be_bytes();
    body.copy_from_slice(payload);
}

/// Reads a cell from a link that omits the HEC: its unprotected header word, and its payload.
#[inline]
pub fn unpack_without_hec(cell: &[u8; CELL_BYTES_WITHOUT_HEC]) -> (u32, &[u8; CELL_PAYLOAD_BYTES]) {
    let header = cell.first_chunk().expect("52 is more than 4");
    let payload = cell.last_chunk().expect("52 is more than 48");
    (u32::from_be_bytes(*header), payload)
}

/// Returns the five bytes of a header: the word and its HEC.
#[inline]
pub const fn header_bytes(word: u32) -> [u8; CELL_HEADER_BYTES] {
    let [a, b, c, d] = word.to_be_bytes();
    [a, b, c, d, crc::hec([a, b, c, d])]
}

/// Finds the single-bit error that causes the given syndrome, if there is one.
#[cold]
fn correct(word: u32, syndrome: u8) -> HecCheck {
    match SYNDROMES[usize::from(syndrome)] {
        NO_SINGLE_BIT => HecCheck::Bad,
        bit @ 0..32 => HecCheck::Corrected(word ^ (1 << bit)),
        _ => HecCheck::Corrected(word),
    }
}

const NO_SINGLE_BIT: u8 = 0xff;
const IN_THE_HEC: u8 = 32;

/// The wrong bit, indexed by syndrome: 0..32 means a bit of the word, `IN_THE_HEC` the HEC itself, and
/// `NO_SINGLE_BIT` neither.
static SYNDROMES: [u8; 256] = {
    let mut table = [NO_SINGLE_BIT; 256];
    let mut bit = 0;
    while bit < 8 {
        table[1 << bit] = IN_THE_HEC;
        bit += 1;
    }
    let mut bit = 0;
    while bit < 32 {
        // The HEC is linear except for the constant 55, so the syndrome of a bit is the HEC of that bit
        // without the constant.
        table[(crc::hec((1u32 << bit).to_be_bytes()) ^ 0x55) as usize] = bit;
        bit += 1;
    }
    table
};
