//! ATMARP and InATMARP packets (RFC 2225 §8).
//!
//! Purpose   find the IPv4 address at the other end of a circuit (InATMARP), and the ATM address of an IPv4
//!           host (ATMARP).
//!
//! ```text
//! | hardware 2 = 19 | protocol 2 = 0800 | shtl | sstl | operation 2 | spln | thtl | tstl | tpln |
//! | source number | source subaddress | source IPv4 | target number | target subaddress | target IPv4 |
//! ```
//!
//! Lengths   `shtl sstl thtl tstl` are type and length in one byte: bit 6 means E.164 (1) or NSAP (0), and
//!           the low six bits are the length, 0 to 20 (RFC 2225 §8.5). `spln` and `tpln` are 0 or 4. On a
//!           permanent circuit every ATM length is 0, and an InATMARP request also omits the target's IPv4
//!           address.
//! Carried   after an LLC/SNAP header with EtherType 0806.

use core::net::Ipv4Addr;

use kiban_base::{Malformed, numbers::ether_type};

/// Length of the part before the addresses, in bytes.
pub const FIXED_BYTES: usize = 12;
/// Maximum length of an ATM number or subaddress, in bytes (RFC 2225 §8.5).
pub const NUMBER_BYTES_MAX: usize = 20;
/// Maximum length of a packet, in bytes.
pub const PACKET_BYTES_MAX: usize = FIXED_BYTES + 4 * NUMBER_BYTES_MAX + 2 * 4;

const HARDWARE_ATM: u16 = 19;
const E164: u8 = 0x40;
const LENGTH: u8 = 0x3f;
const RESERVED: u8 = 0x80;

/// Operation code of a packet (RFC 2225 §8.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Operation {
    /// ATMARP_Request: asks for the ATM address of an IPv4 address.
    Request = 1,
    /// ATMARP_Reply.
    Reply = 2,
    /// InATMARP_Request: asks for the IPv4 address at the other end of this circuit.
    InverseRequest = 8,
    /// InATMARP_Reply.
    InverseReply = 9,
    /// ATMARP_NAK: the server does not know the address.
    Refusal = 10,
}

impl Operation {
    #[inline]
    const fn from_code(code: u16) -> Option<Operation> {
        match code {
            1 => Some(Operation::Request),
            2 => Some(Operation::Reply),
            8 => Some(Operation::InverseRequest),
            9 => Some(Operation::InverseReply),
            10 => Some(Operation::Refusal),
            _ => None,
        }
    }
}

/// An ATM number or subaddress; empty on permanent circuits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Number<'a> {
    /// `true` for E.164, `false` for an ATM Forum NSAP address. Meaningless if the number is empty.
    pub is_e164: bool,
    /// The number, at most [`NUMBER_BYTES_MAX`] bytes.
    pub bytes: &'a [u8],
}

/// The addresses of one side of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Party<'a> {
    /// The ATM number.
    pub number: Number<'a>,
    /// The ATM subaddress.
    pub subaddress: Number<'a>,
    /// The IPv4 address, if known.
    pub ip: Option<Ipv4Addr>,
}

impl Party<'_> {
    /// Creates a party on a permanent circuit, without ATM addresses.
    #[inline]
    pub const fn permanent(ip: Option<Ipv4Addr>) -> Self {
        const NONE: Number<'static> = Number { is_e164: false, bytes: &[] };
        Party { number: NONE, subaddress: NONE, ip }
    }
}

/// A packet. Its addresses borrow from the bytes from which it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Operation code.
    pub operation: Operation,
    /// Addresses of the sender.
    pub source: Party<'a>,
    /// Addresses of the target. In a request, this is the party asked for; in a reply, the party that asked.
    pub target: Party<'a>,
}

impl<'a> Packet<'a> {
    /// Reads a packet and returns it with its length. Bytes after the packet are ignored.
    ///
    /// # Errors
    /// `Truncated`; `HardwareType`; `ProtocolType`; `AddressLength`; `Operation`.
    pub fn read(bytes: &'a [u8]) -> Result<(Packet<'a>, usize), Malformed> {
        let Some((&[h0, h1, p0, p1, shtl, sstl, o0, o1, spln, thtl, tstl, tpln], addresses)) =
            bytes.split_first_chunk::<FIXED_BYTES>()
        else {
            return Err(Malformed::Truncated);
        };
        if u16::from_be_bytes([h0, h1]) != HARDWARE_ATM {
            return Err(Malformed::HardwareType);
        }
        if u16::from_be_bytes([p0, p1]) != ether_type::IPV4 {
            return Err(Malformed::ProtocolType);
        }
        let operation = Operation::from_code(u16::from_be_bytes([o0, o1])).ok_or(Malformed::Operation)?;
        let mut rest = addresses;
        let source = read_party(&mut rest, shtl, sstl, spln)?;
        let target = read_party(&mut rest, thtl, tstl, tpln)?;
        Ok((Packet { operation, source, target }, bytes.len() - rest.len()))
    }

    /// Returns the length of this packet in bytes.
    pub const fn length(&self) -> usize {
        FIXED_BYTES + party_bytes(&self.source) + party_bytes(&self.target)
    }

    /// Writes the packet at the front of `target` and returns its length.
    ///
    /// # Panics
    /// If `target` is shorter than [`Packet::length`], or a number is longer than [`NUMBER_BYTES_MAX`].
    pub fn write(&self, target: &mut [u8]) -> usize {
        let [h0, h1] = HARDWARE_ATM.to_be_bytes();
        let [p0, p1] = ether_type::IPV4.to_be_bytes();
        let [o0, o1] = (self.operation as u16).to_be_bytes();
        let [shtl, sstl, spln] = party_lengths(&self.source);
        let [thtl, tstl, tpln] = party_lengths(&self.target);
        let (fixed, mut rest) = target[..self.length()]
            .split_first_chunk_mut::<FIXED_BYTES>()
            .expect("length counts the fixed part");
        *fixed = [h0, h1, p0, p1, shtl, sstl, o0, o1, spln, thtl, tstl, tpln];
        for party in [&self.source, &self.target] {
            let ip = party.ip.map(|ip| ip.octets());
            let parts = [party.number.bytes, party.subaddress.bytes, ip.as_ref().map_or(&[][..], |ip| ip)];
            for part in parts {
                let (place, after) = rest.split_at_mut(part.len());
                place.copy_from_slice(part);
                rest = after;
            }
        }
        self.length()
    }
}

fn read_party<'a>(rest: &mut &'a [u8], number: u8, subaddress: u8, ip: u8) -> Result<Party<'a>, Malformed> {
    let number = read_number(rest, number)?;
    let subaddress = read_number(rest, subaddress)?;
    let ip = match ip {
        0 => None,
        4 => {
            let (octets, after) = rest.split_first_chunk::<4>().ok_or(Malformed::Truncated)?;
            *rest = after;
            Some(Ipv4Addr::from(*octets))
        }
        _ => return Err(Malformed::AddressLength),
    };
    Ok(Party { number, subaddress, ip })
}

fn read_number<'a>(rest: &mut &'a [u8], type_and_length: u8) -> Result<Number<'a>, Malformed> {
    let length = usize::from(type_and_length & LENGTH);
    if type_and_length & RESERVED != 0 || length > NUMBER_BYTES_MAX {
        return Err(Malformed::AddressLength);
    }
    let (bytes, after) = rest.split_at_checked(length).ok_or(Malformed::Truncated)?;
    *rest = after;
    Ok(Number { is_e164: type_and_length & E164 != 0, bytes })
}

const fn party_bytes(party: &Party<'_>) -> usize {
    party.number.bytes.len() + party.subaddress.bytes.len() + if party.ip.is_some() { 4 } else { 0 }
}

fn party_lengths(party: &Party<'_>) -> [u8; 3] {
    let type_and_length = |number: &Number<'_>| {
        assert!(number.bytes.len() <= NUMBER_BYTES_MAX, "an ATM number has at most 20 bytes");
        number.bytes.len() as u8 | if number.is_e164 { E164 } else { 0 }
    };
    [
        type_and_length(&party.number),
        type_and_length(&party.subaddress),
        if party.ip.is_some() { 4 } else { 0 },
    ]
}
