//! All headers of a packet, and where its payload lies.

use super::bth::{Bth, QPN_MASK};
use super::extended::{Aeth, AtomicAckEth, AtomicEth, Deth, Reth};
use super::opcode::Opcode;
use super::selective::SelectiveAck;
use alloc::vec::Vec;
use core::ops::Range;
use kiban_base::Malformed;

/// Length of the invariant CRC in bytes.
pub const ICRC_BYTES: usize = 4;
/// Reserved bytes after the BTH of a congestion notification packet (IBTA §A17.9.3).
pub const CNP_RESERVED_BYTES: usize = 16;

/// The headers of a packet. The opcode decides which extended headers there are; the others are `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The base transport header.
    pub bth: Bth,
    /// The shared receive queue of an XRC request, 24 bits.
    pub xrc_srq: Option<u32>,
    /// The source of a datagram.
    pub deth: Option<Deth>,
    /// Where to write or read.
    pub reth: Option<Reth>,
    /// An atomic request.
    pub atomic: Option<AtomicEth>,
    /// An acknowledgement.
    pub aeth: Option<Aeth>,
    /// The result of an atomic request.
    pub atomic_ack: Option<AtomicAckEth>,
    /// Which packets have arrived.
    pub selective_ack: Option<SelectiveAck>,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// The R_Key to invalidate.
    pub invalidate: Option<u32>,
}

impl Packet {
    /// Returns a packet without extended headers.
    pub const fn new(bth: Bth) -> Packet {
        Packet {
            bth,
            xrc_srq: None,
            deth: None,
            reth: None,
            atomic: None,
            aeth: None,
            atomic_ack: None,
            selective_ack: None,
            immediate: None,
            invalidate: None,
        }
    }

    /// Decodes the payload of a UDP datagram, ICRC included. Returns the headers, and where the payload lies.
    /// The ICRC is not verified.
    ///
    /// # Errors
    /// `Truncated`; `Version`; `Operation`; `ParameterValue` for a reserved syndrome; `PadLength` if the
    /// length is not a multiple of four, or the pad is longer than what follows the headers; `TotalLength` if
    /// an operation that carries no payload has some.
    pub fn read(bytes: &[u8]) -> Result<(Packet, Range<usize>), Malformed> {
        let (bth, mut at) = Bth::read(bytes)?;
        let headers = bth.opcode.headers();
        let mut packet = Packet::new(bth);
        if headers.xrc {
            packet.xrc_srq = Some(next_word(bytes, &mut at)? & QPN_MASK);
        }
        if headers.datagram {
            packet.deth = Some(next(bytes, &mut at, Deth::read)?);
        }
        if headers.rdma {
            packet.reth = Some(next(bytes, &mut at, Reth::read)?);
        }
        if headers.atomic {
            packet.atomic = Some(next(bytes, &mut at, AtomicEth::read)?);
        }
        if headers.ack {
            packet.aeth = Some(next(bytes, &mut at, Aeth::read)?);
        }
        if headers.atomic_ack {
            packet.atomic_ack = Some(next(bytes, &mut at, AtomicAckEth::read)?);
        }
        if headers.selective_ack {
            packet.selective_ack = Some(next(bytes, &mut at, SelectiveAck::read)?);
        }
        if headers.immediate {
            packet.immediate = Some(next_word(bytes, &mut at)?);
        }
        if headers.invalidate {
            packet.invalidate = Some(next_word(bytes, &mut at)?);
        }
        if bth.opcode == Opcode::Cnp {
            at += CNP_RESERVED_BYTES;
        }
        let end = bytes.len().checked_sub(ICRC_BYTES).filter(|end| *end >= at).ok_or(Malformed::Truncated)?;
        let payload = (end - at).checked_sub(bth.pad.into()).ok_or(Malformed::PadLength)?;
        if !bytes.len().is_multiple_of(4) {
            return Err(Malformed::PadLength);
        }
        let carries_payload = match bth.opcode {
            Opcode::Transport(_, operation) => operation.carries_payload(),
            Opcode::Cnp | Opcode::SelectiveAck => false,
        };
        if !carries_payload && end > at {
            return Err(Malformed::TotalLength);
        }
        Ok((packet, at..at + payload))
    }

    /// Returns the length of all headers in bytes.
    pub fn length(&self) -> usize {
        let headers = self.bth.opcode.headers();
        let words = headers.xrc as usize + headers.immediate as usize + headers.invalidate as usize;
        let reserved = if matches!(self.bth.opcode, Opcode::Cnp) { CNP_RESERVED_BYTES } else { 0 };
        self.bth.length()
            + 4 * words
            + headers.datagram as usize * Deth::BYTES
            + headers.rdma as usize * Reth::BYTES
            + headers.atomic as usize * AtomicEth::BYTES
            + headers.ack as usize * Aeth::BYTES
            + headers.atomic_ack as usize * AtomicAckEth::BYTES
            + headers.selective_ack as usize * SelectiveAck::BYTES
            + reserved
    }

    /// Appends the headers to `octets`. The payload, the pad and the ICRC follow.
    ///
    /// # Panics
    /// Same as for [`Packet::write`].
    pub fn append_to(&self, octets: &mut Vec<u8>) {
        let start = octets.len();
        octets.resize(start + self.length(), 0);
        self.write(&mut octets[start..]);
    }

    /// Writes the headers. The payload, the pad and the ICRC follow.
    ///
    /// # Panics
    /// If an extended header that the opcode asks for is `None`, or `target` is shorter than the headers.
    pub fn write(&self, target: &mut [u8]) -> usize {
        const PRESENT: &str = "the opcode asks for this header";
        let headers = self.bth.opcode.headers();
        let mut at = self.bth.write(target);
        let put = |word: u32, at: &mut usize, target: &mut [u8]| {
            target[*at..*at + 4].copy_from_slice(&word.to_be_bytes());
            *at += 4;
        };
        if headers.xrc {
            put(self.xrc_srq.expect(PRESENT) & QPN_MASK, &mut at, target);
        }
        if headers.datagram {
            at += self.deth.expect(PRESENT).write(&mut target[at..]);
        }
        if headers.rdma {
            at += self.reth.expect(PRESENT).write(&mut target[at..]);
        }
        if headers.atomic {
            at += self.atomic.expect(PRESENT).write(&mut target[at..]);
        }
        if headers.ack {
            at += self.aeth.expect(PRESENT).write(&mut target[at..]);
        }
        if headers.atomic_ack {
            at += self.atomic_ack.expect(PRESENT).write(&mut target[at..]);
        }
        if headers.selective_ack {
            at += self.selective_ack.expect(PRESENT).write(&mut target[at..]);
        }
        if headers.immediate {
            put(self.immediate.expect(PRESENT), &mut at, target);
        }
        if headers.invalidate {
            put(self.invalidate.expect(PRESENT), &mut at, target);
        }
        if self.bth.opcode == Opcode::Cnp {
            target[at..at + CNP_RESERVED_BYTES].fill(0);
            at += CNP_RESERVED_BYTES;
        }
        at
    }
}

/// Decodes the header at offset `at`, and moves behind it.
fn next<T>(
    bytes: &[u8],
    at: &mut usize,
    read: impl FnOnce(&[u8]) -> Result<(T, usize), Malformed>,
) -> Result<T, Malformed> {
    let (header, length) = read(&bytes[*at..])?;
    *at += length;
    Ok(header)
}

fn next_word(bytes: &[u8], at: &mut usize) -> Result<u32, Malformed> {
    next(bytes, at, |bytes| {
        let word = bytes.first_chunk::<4>().ok_or(Malformed::Truncated)?;
        Ok((u32::from_be_bytes(*word), 4))
    })
}
