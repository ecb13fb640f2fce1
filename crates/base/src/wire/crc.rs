//! Cyclic redundancy checks for ATM, iWARP and Ethernet.
//!
//! Purpose   AAL5 and MPA CRCs at memory speed, for whole frames and for frames that arrive 48 bytes at a
//!           time.
//!
//! ```text
//! name         polynomial                      register      used for
//! CRC-32       04C11DB7, highest bit first     ~0, inverted  AAL5 frame       I.363.5 §9.2.1.2
//! CRC-32 (FCS) 04C11DB7, lowest bit first      ~0, inverted  Ethernet frame   IEEE 802.3 §3.2.9
//! CRC-32C      1EDC6F41, lowest bit first      ~0, inverted  MPA, iSCSI       RFC 5044 §4.4, RFC 3720 §12.1
//! CRC-10       x^10 + x^9 + x^5 + x^4 + x + 1  0             OAM cell         I.610 §7.1
//! CRC-8 (HEC)  x^8 + x^2 + x + 1               0, plus 55    cell header      I.432.1 §4.3.2
//! ```
//!
//! Speed     AAL5 runs below `TABLES_BYTES_MAX` use tables built at compile time, with 16 independent
//!           look-ups per step (slicing: Kounavis and Berry, 2005). The three steps of a cell start from zero
//!           and are combined with the register at the end, so that the next cell does not have to wait for
//!           them. Longer runs use carry-less multiplication in `crc-fast`, whose set-up costs more than five
//!           cells do here. CRC-32C has its own instruction, which `crc-fast` uses for all lengths. The FCS
//!           uses tables in the same way for short runs, such as the headers that the ICRC of RoCEv2 covers.
//! State     four bytes per running CRC, because a board keeps one per circuit.

use crc_fast::{CrcAlgorithm, Digest};

/// The usual length of a run: the payload of a cell.
const RUN_BYTES: usize = 48;

/// AAL5 runs of at least this length use `crc-fast`. Measurements show no difference between the methods from
/// here up to 400 bytes.
const TABLES_BYTES_MAX: usize = 256;

/// FCS runs of at least this length use `crc-fast`.
const FCS_TABLES_BYTES_MAX: usize = 128;

/// A running AAL5 CRC-32 (I.363.5 §9.2.1.2). The check value of `123456789` is `FC891918`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crc32Aal5 {
    register: u32,
}

impl Crc32Aal5 {
    /// The register value after a frame and its own CRC: `C704DD7B` (I.363.5 §9.2.1.2).
    const RESIDUE: u32 = 0xc704_dd7b;

    /// Starts a CRC.
    #[inline]
    pub const fn new() -> Self {
        Crc32Aal5 { register: !0 }
    }

    /// Computes the CRC of one run.
    #[inline]
    pub fn of(bytes: &[u8]) -> u32 {
        let mut crc = Self::new();
        crc.update(bytes);
        crc.value()
    }

    /// Adds `bytes` to the CRC; runs may be cut anywhere.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.register = if bytes.len() < TABLES_BYTES_MAX {
            aal5_short(self.register, bytes)
        } else {
            aal5_long(self.register, bytes)
        };
    }

    /// Returns the CRC of the bytes so far; the trailer carries it in big-endian order.
    #[inline]
    pub const fn value(&self) -> u32 {
        !self.register
    }

    /// Returns whether the bytes so far are an intact frame *followed by its CRC*.
    #[inline]
    pub const fn is_intact(&self) -> bool {
        self.register == Self::RESIDUE
    }
}

impl Default for Crc32Aal5 {
    fn default() -> Self {
        Self::new()
    }
}

/// A running Ethernet frame check sequence (IEEE 802.3 §3.2.9). The check value of `123456789` is `CBF43926`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crc32Ethernet {
    register: u32,
}

impl Crc32Ethernet {
    /// Starts a CRC.
    #[inline]
    pub const fn new() -> Self {
        Crc32Ethernet { register: !0 }
    }

    /// Adds `bytes` to the CRC; runs may be cut anywhere.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.register = if bytes.len() < FCS_TABLES_BYTES_MAX {
            fcs_short(self.register, bytes)
        } else {
            fcs_long(self.register, bytes)
        };
    }

    /// Returns the CRC of the bytes so far. It is sent lowest byte first: `to_le_bytes`.
    #[inline]
    pub const fn value(&self) -> u32 {
        !self.register
    }
}

impl Default for Crc32Ethernet {
    fn default() -> Self {
        Self::new()
    }
}

/// A running CRC-32C (RFC 3720 §12.1, RFC 5044 §4.4). The check value of `123456789` is `E3069283`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crc32c {
    register: u32,
}

impl Crc32c {
    /// Starts a CRC.
    #[inline]
    pub const fn new() -> Self {
        Crc32c { register: !0 }
    }

    /// Computes the CRC of one run.
    #[inline]
    pub fn of(bytes: &[u8]) -> u32 {
        let mut crc = Self::new();
        crc.update(bytes);
        crc.value()
    }

    /// Adds `bytes` to the CRC; runs may be cut anywhere.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(self.register));
        digest.update(bytes);
        self.register = digest.get_state() as u32;
    }

    /// Returns the CRC of the bytes so far. It is sent lowest byte first (RFC 3720 §12.1): `to_le_bytes`.
    #[inline]
    pub const fn value(&self) -> u32 {
        !self.register
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// Computes the header error control byte of the four bytes before it (I.432.1 §4.3.2.1).
///
/// Uses four independent look-ups, one per byte, so that none depends on the previous byte.
#[inline]
pub const fn hec(header: [u8; 4]) -> u8 {
    let [first, second, third, fourth] = header;
    // I.432.1 §4.3.2.1: the pattern 01010101 is added, so that a run of zeros is not a valid header.
    HEC[3][first as usize] ^ HEC[2][second as usize] ^ HEC[1][third as usize] ^ HEC[0][fourth as usize] ^ 0x55
}

/// Computes the CRC-10 of whole bytes (I.610 §7.1). The check value of `123456789` is `199`.
///
/// Over an intact OAM payload of 48 bytes, whose last ten bits are its CRC, the result is 0.
#[inline]
pub fn crc10(bytes: &[u8]) -> u16 {
    let mut register = 0u16;
    for byte in bytes {
        register = ((register << 8) & 0x3ff) ^ CRC10[usize::from((register >> 2) as u8 ^ byte)];
    }
    register
}

/// Computes the CRC-10 of whole bytes followed by the six high bits of `last`. In an OAM payload, these are
/// the 374 bits before the CRC.
#[inline]
pub fn crc10_and_six_bits(bytes: &[u8], last: u8) -> u16 {
    let register = crc10(bytes);
    ((register << 6) & 0x3ff) ^ CRC10[usize::from((register >> 4) as u8 ^ (last >> 2))]
}

#[inline(never)]
fn fcs_long(register: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32IsoHdlc, u64::from(register));
    digest.update(bytes);
    digest.get_state() as u32
}

#[inline]
fn fcs_short(register: u32, bytes: &[u8]) -> u32 {
    let (steps, rest) = bytes.as_chunks::<16>();
    let register = steps.iter().fold(register, fcs_step);
    let (words, rest) = rest.as_chunks::<4>();
    let register = words.iter().fold(register, |register, word| {
        let [a, b, c, d] = (register ^ u32::from_le_bytes(*word)).to_le_bytes();
        FCS[3][usize::from(a)] ^ FCS[2][usize::from(b)] ^ FCS[1][usize::from(c)] ^ FCS[0][usize::from(d)]
    });
    rest.iter().fold(register, |register, byte| (register >> 8) ^ FCS[0][usize::from(register as u8 ^ byte)])
}

/// Advances `register` by sixteen bytes.
#[inline(always)]
fn fcs_step(register: u32, step: &[u8; 16]) -> u32 {
    let t = &FCS;
    let [a, b, c, d] = register.to_le_bytes();
    let mut value = 0;
    for position in 4..16 {
        value ^= t[15 - position][usize::from(step[position])];
    }
    let first = t[15][usize::from(step[0] ^ a)] ^ t[14][usize::from(step[1] ^ b)];
    let second = t[13][usize::from(step[2] ^ c)] ^ t[12][usize::from(step[3] ^ d)];
    value ^ (first ^ second)
}

#[inline(never)]
fn aal5_long(register: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Bzip2, u64::from(register));
    digest.update(bytes);
    digest.get_state() as u32
}

#[inline]
fn aal5_short(mut register: u32, bytes: &[u8]) -> u32 {
    let (cells, rest) = bytes.as_chunks::<RUN_BYTES>();
    for cell in cells {
        // A CRC is linear, so add the old register, advanced by a cell of zeros, to the CRC of the cell
        // alone.
        let (steps, _) = cell.as_chunks::<16>();
        let alone = steps.iter().fold(0, aal5_step);
        let [a, b, c, d] = register.to_be_bytes();
        let t = &AAL5_CELL;
        let before =
            t[3][usize::from(a)] ^ t[2][usize::from(b)] ^ t[1][usize::from(c)] ^ t[0][usize::from(d)];
        register = before ^ alone;
    }
    let (steps, rest) = rest.as_chunks::<16>();
    register = steps.iter().fold(register, aal5_step);
    for byte in rest {
        register = (register << 8) ^ AAL5[0][usize::from((register >> 24) as u8 ^ byte)];
    }
    register
}

/// Advances `register` by sixteen bytes.
#[inline(always)]
fn aal5_step(register: u32, step: &[u8; 16]) -> u32 {
    let t = &AAL5;
    let [a, b, c, d] = register.to_be_bytes();
    let mut value = 0;
    for position in 4..16 {
        value ^= t[15 - position][usize::from(step[position])];
    }
    let first = t[15][usize::from(step[0] ^ a)] ^ t[14][usize::from(step[1] ^ b)];
    let second = t[13][usize::from(step[2] ^ c)] ^ t[12][usize::from(step[3] ^ d)];
    value ^ (first ^ second)
}

/// `FCS[k][b]` is the register after the byte `b` and `k` bytes of zero.
static FCS: [[u32; 256]; 16] = fcs_tables();
/// `AAL5[k][b]` is the register after the byte `b` and `k` bytes of zero.
static AAL5: [[u32; 256]; 16] = aal5_tables();
/// `AAL5_CELL[k][b]` is a register that held only `b` in its byte `k` (0 the lowest), advanced by a cell of
/// zeros.
static AAL5_CELL: [[u32; 256]; 4] = aal5_cell_tables();
static HEC: [[u8; 256]; 4] = hec_tables();
static CRC10: [u16; 256] = crc10_table();

const fn fcs_tables() -> [[u32; 256]; 16] {
    let mut tables = [[0; 256]; 16];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            register = (register >> 1) ^ ((register & 1) * 0xedb8_8320);
            bit += 1;
        }
        tables[0][byte] = register;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 16 {
        let mut byte = 0;
        while byte < 256 {
            let register = tables[zeros - 1][byte];
            tables[zeros][byte] = (register >> 8) ^ tables[0][register as u8 as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

const fn aal5_tables() -> [[u32; 256]; 16] {
    let mut tables = [[0; 256]; 16];
    let mut byte = 0;
    while byte < 256 {
        let mut register = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            let carry = register >> 31;
            register = (register << 1) ^ (carry * 0x04c1_1db7);
            bit += 1;
        }
        tables[0][byte] = register;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 16 {
        let mut byte = 0;
        while byte < 256 {
            tables[zeros][byte] = aal5_zero(&tables[0], tables[zeros - 1][byte]);
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

const fn aal5_cell_tables() -> [[u32; 256]; 4] {
    let table = aal5_tables()[0];
    let mut tables = [[0; 256]; 4];
    let mut place = 0;
    while place < 4 {
        let mut byte = 0;
        while byte < 256 {
            let mut register = (byte as u32) << (8 * place);
            let mut zeros = 0;
            while zeros < RUN_BYTES {
                register = aal5_zero(&table, register);
                zeros += 1;
            }
            tables[place][byte] = register;
            byte += 1;
        }
        place += 1;
    }
    tables
}

/// Advances `register` by one zero byte.
const fn aal5_zero(table: &[u32; 256], register: u32) -> u32 {
    (register << 8) ^ table[(register >> 24) as usize]
}

const fn hec_tables() -> [[u8; 256]; 4] {
    let mut tables = [[0; 256]; 4];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u8;
        let mut zeros = 0;
        while zeros < 4 {
            let mut bit = 0;
            while bit < 8 {
                let carry = register >> 7;
                register = (register << 1) ^ (carry * 0x07);
                bit += 1;
            }
            tables[zeros][byte] = register;
            zeros += 1;
        }
        byte += 1;
    }
    tables
}

const fn crc10_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut register = (byte as u16) << 2;
        let mut bit = 0;
        while bit < 8 {
            let carry = register >> 9;
            register = ((register << 1) & 0x3ff) ^ (carry * 0x233);
            bit += 1;
        }
        table[byte] = register;
        byte += 1;
    }
    table
}
