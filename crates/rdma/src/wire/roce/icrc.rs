//! The invariant CRC (IBTA volume 1 §7.8.1, §A17.3.2).
//!
//! Covers    eight octets of ones in place of a local route header, the IP header, the UDP header, and
//!           everything from the BTH to the pad. Fields that routers may change count as ones: IPv4's type of
//!           service, TTL and checksum; IPv6's traffic class, flow label and hop limit; UDP's checksum; and
//!           the octet of the BTH that holds FECN and BECN. IPv4's identification and DF bit are covered.
//! Method    CRC-32 of Ethernet, lowest octet first on the wire ([`Icrc`]).
//! Sockets   a UDP socket does not show the identification of a received packet. The CRC is linear, so the
//!           difference between the received ICRC and the one computed for identification 0 determines the
//!           identification: of 2^32 differences, 2^16 are possible ([`Identifications::solve`]). A corrupted
//!           packet therefore passes with probability 2^-16, and has passed UDP's checksum before.

use super::bth::BTH_BYTES;
use core::net::{IpAddr, SocketAddr};
use kiban_base::crc::Crc32Ethernet;

/// A local route header, which RoCEv2 packets do not have.
const LRH_BYTES: usize = 8;
const UDP_HEADER_BYTES: usize = 8;
const IPV6_HEADER_BYTES: usize = 40;
const IPV4_HEADER_BYTES: usize = 20;
const UDP: u8 = 17;
/// Don't fragment, which senders of RoCEv2 set.
const DONT_FRAGMENT: u16 = 0x4000;
/// Covered octets behind the IPv4 identification, up to the BTH.
const AFTER_IDENTIFICATION: usize = IPV4_HEADER_BYTES - 6 + UDP_HEADER_BYTES;

/// A running ICRC.
#[derive(Clone, Copy, Debug)]
pub struct Icrc {
    crc: Crc32Ethernet,
}

impl Icrc {
    /// Starts the ICRC of a packet whose UDP payload, ICRC included, has `udp_payload_bytes`. An IPv4 packet
    /// has this identification and the DF bit.
    ///
    /// # Panics
    /// If the addresses are of different families.
    pub fn new(
        source: SocketAddr,
        target: SocketAddr,
        udp_payload_bytes: usize,
        identification: u16,
    ) -> Icrc {
        let udp_bytes = (UDP_HEADER_BYTES + udp_payload_bytes) as u16;
        // All covered octets before the BTH in one run: short runs cost more each.
        let mut octets = [0xff; LRH_BYTES + IPV6_HEADER_BYTES + UDP_HEADER_BYTES];
        let udp = match (source.ip(), target.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let header = &mut octets[LRH_BYTES..][..IPV4_HEADER_BYTES];
                header[0] = 0x45;
                header[2..4].copy_from_slice(&(udp_bytes + IPV4_HEADER_BYTES as u16).to_be_bytes());
                header[4..6].copy_from_slice(&identification.to_be_bytes());
                header[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
                header[9] = UDP;
                header[12..16].copy_from_slice(&from.octets());
                header[16..].copy_from_slice(&to.octets());
                LRH_BYTES + IPV4_HEADER_BYTES
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let header = &mut octets[LRH_BYTES..][..IPV6_HEADER_BYTES];
                header[0] = 0x6f;
                header[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
                header[6] = UDP;
                header[8..24].copy_from_slice(&from.octets());
                header[24..].copy_from_slice(&to.octets());
                LRH_BYTES + IPV6_HEADER_BYTES
            }
            _ => panic!("the addresses of a packet are of one family"),
        };
        let end = udp + UDP_HEADER_BYTES;
        for (field, at) in [source.port(), target.port(), udp_bytes].into_iter().zip((udp..end).step_by(2)) {
            octets[at..at + 2].copy_from_slice(&field.to_be_bytes());
        }
        let mut crc = Crc32Ethernet::new();
        crc.update(&octets[..end]);
        Icrc { crc }
    }

    /// Adds the headers, which begin with the BTH.
    ///
    /// # Panics
    /// If `headers` are shorter than a BTH.
    pub fn headers(&mut self, headers: &[u8]) {
        let (bth, extended) = headers.split_first_chunk::<BTH_BYTES>().expect("headers begin with a BTH");
        let mut bth = *bth;
        bth[4] = 0xff;
        self.crc.update(&bth);
        self.crc.update(extended);
    }

    /// Adds payload or pad; runs may be cut anywhere.
    pub fn payload(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
    }

    /// Returns the ICRC as it stands at the end of the packet.
    pub fn octets(&self) -> [u8; 4] {
        self.crc.value().to_le_bytes()
    }
}

/// Finds the IPv4 identifications of received packets from their ICRCs.
#[derive(Clone, Copy, Debug)]
pub struct Identifications {
    /// Number of covered octets behind the identification in the last packet. Packet lengths often repeat.
    after: usize,
    /// x^(-8 * after): takes a difference back to where the identification ends.
    back: u32,
}

impl Default for Identifications {
    fn default() -> Identifications {
        Identifications { after: 0, back: ONE }
    }
}

impl Identifications {
    /// Returns the identification for which `received` is the ICRC of a packet, if there is one. `computed`
    /// is its ICRC with identification 0, and `udp_payload_bytes` the length of its UDP payload, ICRC
    /// included.
    pub fn solve(&mut self, received: [u8; 4], computed: [u8; 4], udp_payload_bytes: usize) -> Option<u16> {
        let difference = u32::from_le_bytes(received) ^ u32::from_le_bytes(computed);
        if difference == 0 {
            return Some(0);
        }
        let after = AFTER_IDENTIFICATION + udp_payload_bytes.checked_sub(4)?;
        if after != self.after {
            *self = Identifications { after, back: back_by(after) };
        }
        // Undo the last of the two octets of the identification, then the first.
        let register = multiply(difference, self.back);
        let last = INDEX_OF_TOP[(register >> 24) as usize];
        let first_high = register ^ step(last);
        let first = INDEX_OF_TOP[(first_high >> 16) as usize & 0xff];
        let register = step(first);
        (first_high == register >> 8).then(|| u16::from_be_bytes([first, last ^ register as u8]))
    }
}

// Polynomials modulo the CRC's, with the lowest power in the highest bit, as the CRC's register has them.

/// The generator polynomial of CRC-32.
const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;

/// Returns the register after one octet, if it was 0 before.
const fn step(octet: u8) -> u32 {
    let mut register = octet as u32;
    let mut bit = 0;
    while bit < 8 {
        register = times_x(register);
        bit += 1;
    }
    register
}

/// The octet whose [`step`] has this highest octet; no two have the same.
const INDEX_OF_TOP: [u8; 256] = {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        table[(step(octet as u8) >> 24) as usize] = octet as u8;
        octet += 1;
    }
    table
};

const fn times_x(register: u32) -> u32 {
    register >> 1 ^ (if register & 1 != 0 { POLYNOMIAL } else { 0 })
}

/// Returns the register before it was multiplied by x.
const fn divided_by_x(register: u32) -> u32 {
    // The polynomial's constant term is 1, and only it reaches the highest bit.
    if register & ONE != 0 { (register ^ POLYNOMIAL) << 1 | 1 } else { register << 1 }
}

const fn multiply(mut one: u32, mut other: u32) -> u32 {
    let mut product = 0;
    while one != 0 {
        if one & ONE != 0 {
            product ^= other;
        }
        one <<= 1;
        other = times_x(other);
    }
    product
}

/// x^(-8 * 2^n): takes a difference back by 2^n octets.
const BACK: [u32; 17] = {
    let mut one_octet = ONE;
    let mut bit = 0;
    while bit < 8 {
        one_octet = divided_by_x(one_octet);
        bit += 1;
    }
    let mut powers = [one_octet; 17];
    let mut n = 1;
    while n < powers.len() {
        powers[n] = multiply(powers[n - 1], powers[n - 1]);
        n += 1;
    }
    powers
};

/// Returns x^(-8 * octets).
fn back_by(octets: usize) -> u32 {
    (0..BACK.len()).filter(|n| octets >> n & 1 == 1).fold(ONE, |power, n| multiply(power, BACK[n]))
}
