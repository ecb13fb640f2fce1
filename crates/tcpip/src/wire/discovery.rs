//! Neighbour discovery messages of ICMPv6 (RFC 4861 §4).
//!
//! ```text
//! | type 8 | code 8 = 0 | checksum 16 | by type, 4 bytes                          | by type      | options |
//!   133 router solicitation            | 0                                          |
//!   134 router advertisement           | hop limit, M O, router lifetime 16         | reachable 32, retransmit 32
//!   135 neighbour solicitation         | 0                                          | target 128
//!   136 neighbour advertisement        | R S O, 0                                   | target 128
//!   137 redirect                       | 0                                          | target 128, destination 128
//!
//!   options: | type 8 | length/8 8 | data |
//! ```
//!
//! Receive path     a message is valid only with hop limit 255, code 0, a correct checksum and no option of
//!                  length zero (§6.1, §7.1, §8.1). The caller checks the hop limit and the checksum;
//!                  [`Message::read`] checks the code and the lengths of all options.

use core::net::Ipv6Addr;

use kiban_base::{Malformed, ethernet::Mac};

/// Hop limit that every message must have when sent and received (RFC 4861 §11.2).
pub const HOP_LIMIT: u8 = 255;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;
const PREFIX: u8 = 3;
const REDIRECTED: u8 = 4;
const MTU: u8 = 5;

/// Returns whether an ICMPv6 type is a neighbour discovery message.
pub const fn is_discovery(kind: u8) -> bool {
    kind >= ROUTER_SOLICITATION && kind <= REDIRECT
}

/// A message without its options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// Asks the routers of the link to advertise themselves.
    RouterSolicitation,
    /// Advertises a router, and link parameters.
    RouterAdvertisement {
        /// Hop limit that hosts should use in their packets; 0 if unspecified.
        hop_limit: u8,
        /// M: addresses are available by DHCPv6.
        managed: bool,
        /// O: other configuration is available by DHCPv6.
        other: bool,
        /// Lifetime as a default router, seconds; 0 if it is not a default router.
        lifetime_seconds: u16,
        /// How long a neighbour counts as reachable after a confirmation, ms; 0 if unspecified.
        reachable_ms: u32,
        /// Interval between retransmitted solicitations, ms; 0 if unspecified.
        retransmit_ms: u32,
    },
    /// Asks for the link-layer address of `target`.
    NeighbourSolicitation {
        /// The address in question.
        target: Ipv6Addr,
    },
    /// Reports the link-layer address of `target`.
    NeighbourAdvertisement {
        /// R: the sender is a router.
        router: bool,
        /// S: the message answers a solicitation.
        solicited: bool,
        /// O: the message overrides the cached link-layer address.
        overrides: bool,
        /// The address in question.
        target: Ipv6Addr,
    },
    /// Reports a better first hop for a destination.
    Redirect {
        /// The better first hop.
        target: Ipv6Addr,
        /// The destination to which the redirect applies.
        destination: Ipv6Addr,
    },
}

/// An option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// MAC address of the sender.
    SourceLink(Mac),
    /// MAC address of the target.
    TargetLink(Mac),
    /// Prefix information (RFC 4861 §4.6.2).
    Prefix {
        /// Length of the prefix, bits.
        bits: u8,
        /// L: addresses with this prefix are on the link.
        on_link: bool,
        /// A: hosts may autoconfigure addresses from it (RFC 4862).
        autonomous: bool,
        /// Valid lifetime, seconds; all ones if infinite.
        valid_seconds: u32,
        /// Preferred lifetime of addresses made from the prefix, seconds; all ones if infinite.
        preferred_seconds: u32,
        /// The prefix.
        prefix: Ipv6Addr,
    },
    /// The beginning of the packet that caused the redirect.
    Redirected(&'a [u8]),
    /// The MTU of the link, bytes.
    Mtu(u32),
    /// Any other kind.
    Other {
        /// The type.
        kind: u8,
        /// The data after type and length.
        data: &'a [u8],
    },
}

impl Message {
    /// Decodes a complete ICMPv6 message. Returns the message and its options.
    ///
    /// # Errors
    /// `Truncated`; `Operation` if the type is not one of neighbour discovery or the code is not 0;
    /// `OptionLength`.
    pub fn read(bytes: &[u8]) -> Result<(Message, Options<'_>), Malformed> {
        let Some((&[kind, code, _, _, a, b, c, d], rest)) = bytes.split_first_chunk::<8>() else {
            return Err(Malformed::Truncated);
        };
        if code != 0 || !is_discovery(kind) {
            return Err(Malformed::Operation);
        }
        let address = |at: usize| match rest.get(at..).and_then(|rest| rest.first_chunk::<16>()) {
            Some(octets) => Ok(Ipv6Addr::from(*octets)),
            None => Err(Malformed::Truncated),
        };
        let (message, fixed) = match kind {
            ROUTER_SOLICITATION => (Message::RouterSolicitation, 0),
            ROUTER_ADVERTISEMENT => {
                let Some(&[r0, r1, r2, r3, t0, t1, t2, t3]) = rest.first_chunk::<8>() else {
                    return Err(Malformed::Truncated);
                };
                let message = Message::RouterAdvertisement {
                    hop_limit: a,
                    managed: b & 0x80 != 0,
                    other: b & 0x40 != 0,
                    lifetime_seconds: u16::from_be_bytes([c, d]),
                    reachable_ms: u32::from_be_bytes([r0, r1, r2, r3]),
                    retransmit_ms: u32::from_be_bytes([t0, t1, t2, t3]),
                };
                (message, 8)
            }
            NEIGHBOUR_SOLICITATION => (Message::NeighbourSolicitation { target: address(0)? }, 16),
            NEIGHBOUR_ADVERTISEMENT => {
                let message = Message::NeighbourAdvertisement {
                    router: a & 0x80 != 0,
                    solicited: a & 0x40 != 0,
                    overrides: a & 0x20 != 0,
                    target: address(0)?,
                };
                (message, 16)
            }
            _ => (Message::Redirect { target: address(0)?, destination: address(16)? }, 32),
        };
        let options = Options { rest: &rest[fixed..] };
        let mut check = options.rest;
        while !check.is_empty() {
            // RFC 4861 §4.6: a message with an option of length zero is discarded.
            let length = check.get(1).map_or(0, |units| usize::from(*units) * 8);
            if length == 0 || length > check.len() {
                return Err(Malformed::OptionLength);
            }
            check = &check[length..];
        }
        Ok((message, options))
    }

    /// Returns the length of the message without options, bytes.
    pub const fn length(&self) -> usize {
        match self {
            Message::RouterSolicitation => 8,
            Message::RouterAdvertisement { .. } => 16,
            Message::NeighbourSolicitation { .. } | Message::NeighbourAdvertisement { .. } => 24,
            Message::Redirect { .. } => 40,
        }
    }

    /// Writes the message at the front of `target` with a zero checksum, to be completed by
    /// [`crate::wire::icmpv6::fill`]. Returns the number of bytes written.
    ///
    /// # Panics
    /// If `target` is shorter than [`Message::length`].
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = &mut target[..self.length()];
        bytes.fill(0);
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        match *self {
            Message::RouterSolicitation => bytes[0] = ROUTER_SOLICITATION,
            Message::RouterAdvertisement {
                hop_limit,
                managed,
                other,
                lifetime_seconds,
                reachable_ms,
                retransmit_ms,
            } => {
                bytes[0] = ROUTER_ADVERTISEMENT;
                bytes[4] = hop_limit;
                bytes[5] = flag(managed, 0x80) | flag(other, 0x40);
                bytes[6..8].copy_from_slice(&lifetime_seconds.to_be_bytes());
                bytes[8..12].copy_from_slice(&reachable_ms.to_be_bytes());
                bytes[12..16].copy_from_slice(&retransmit_ms.to_be_bytes());
            }
            Message::NeighbourSolicitation { target } => {
                bytes[0] = NEIGHBOUR_SOLICITATION;
                bytes[8..24].copy_from_slice(&target.octets());
            }
            Message::NeighbourAdvertisement { router, solicited, overrides, target } => {
                bytes[0] = NEIGHBOUR_ADVERTISEMENT;
                bytes[4] = flag(router, 0x80) | flag(solicited, 0x40) | flag(overrides, 0x20);
                bytes[8..24].copy_from_slice(&target.octets());
            }
            Message::Redirect { target, destination } => {
                bytes[0] = REDIRECT;
                bytes[8..24].copy_from_slice(&target.octets());
                bytes[24..40].copy_from_slice(&destination.octets());
            }
        }
        self.length()
    }
}

/// An iterator over the options of a decoded message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Options<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let length = usize::from(*self.rest.get(1)?) * 8;
        let (option, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        let data = option.get(2..)?;
        let word = |at: usize| match data.get(at..at + 4) {
            Some(&[a, b, c, d]) => u32::from_be_bytes([a, b, c, d]),
            _ => 0,
        };
        Some(match (option[0], data.len()) {
            (SOURCE_LINK, 6) => Item::SourceLink(mac(data)),
            (TARGET_LINK, 6) => Item::TargetLink(mac(data)),
            (PREFIX, 30) => Item::Prefix {
                bits: data[0],
                on_link: data[1] & 0x80 != 0,
                autonomous: data[1] & 0x40 != 0,
                valid_seconds: word(2),
                preferred_seconds: word(6),
                prefix: Ipv6Addr::from(*data[14..].first_chunk::<16>().expect("30 bytes of data")),
            },
            (REDIRECTED, 6..) => Item::Redirected(&data[6..]),
            (MTU, 6) => Item::Mtu(word(2)),
            (kind, _) => Item::Other { kind, data },
        })
    }
}

impl Item<'_> {
    /// Returns the length of the option, bytes, including padding.
    pub const fn length(&self) -> usize {
        match self {
            Item::SourceLink(_) | Item::TargetLink(_) | Item::Mtu(_) => 8,
            Item::Prefix { .. } => 32,
            Item::Redirected(data) => (8 + data.len()).next_multiple_of(8),
            Item::Other { data, .. } => (2 + data.len()).next_multiple_of(8),
        }
    }

    /// Writes the option at the front of `target`. Returns the number of bytes written.
    ///
    /// # Panics
    /// If `target` is shorter than [`Item::length`], or the option is longer than 2040 bytes.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let length = self.length();
        let bytes = &mut target[..length];
        bytes.fill(0);
        bytes[1] = u8::try_from(length / 8).expect("an option has at most 255 units of 8 bytes");
        match *self {
            Item::SourceLink(mac) => {
                bytes[0] = SOURCE_LINK;
                bytes[2..].copy_from_slice(&mac.0);
            }
            Item::TargetLink(mac) => {
                bytes[0] = TARGET_LINK;
                bytes[2..].copy_from_slice(&mac.0);
            }
            Item::Prefix { bits, on_link, autonomous, valid_seconds, preferred_seconds, prefix } => {
                bytes[0] = PREFIX;
                bytes[2] = bits;
                bytes[3] = if on_link { 0x80 } else { 0 } | if autonomous { 0x40 } else { 0 };
                bytes[4..8].copy_from_slice(&valid_seconds.to_be_bytes());
                bytes[8..12].copy_from_slice(&preferred_seconds.to_be_bytes());
                bytes[16..32].copy_from_slice(&prefix.octets());
            }
            Item::Redirected(data) => {
                bytes[0] = REDIRECTED;
                bytes[8..8 + data.len()].copy_from_slice(data);
            }
            Item::Mtu(mtu) => {
                bytes[0] = MTU;
                bytes[4..].copy_from_slice(&mtu.to_be_bytes());
            }
            Item::Other { kind, data } => {
                bytes[0] = kind;
                bytes[2..2 + data.len()].copy_from_slice(data);
            }
        }
        length
    }
}

fn mac(data: &[u8]) -> Mac {
    Mac(*data.first_chunk().expect("six bytes of data"))
}

/// Returns the solicited-node multicast address of `address` (RFC 4291 §2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | address.to_bits() & 0xff_ffff)
}

/// The all-nodes multicast address of a link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The all-routers multicast address of a link.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn ip(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    #[test]
    fn every_message_with_every_option_round_trips() {
        let mac = Mac([2, 0, 0, 0, 0, 9]);
        let messages = [
            Message::RouterSolicitation,
            Message::RouterAdvertisement {
                hop_limit: 64,
                managed: false,
                other: true,
                lifetime_seconds: 1800,
                reachable_ms: 30_000,
                retransmit_ms: 1000,
            },
            Message::NeighbourSolicitation { target: ip("fe80::1") },
            Message::NeighbourAdvertisement {
                router: true,
                solicited: false,
                overrides: true,
                target: ip("fe80::2"),
            },
            Message::Redirect { target: ip("fe80::3"), destination: ip("2001:db8::1") },
        ];
        let options = [
            Item::SourceLink(mac),
            Item::TargetLink(mac),
            Item::Prefix {
                bits: 64,
                on_link: true,
                autonomous: true,
                valid_seconds: 7200,
                preferred_seconds: u32::MAX,
                prefix: ip("2001:db8::"),
            },
            Item::Redirected(&[1; 40]),
            Item::Mtu(1400),
            Item::Other { kind: 25, data: &[7; 22] },
        ];
        for message in messages {
            let mut bytes = alloc::vec![0xee; 512];
            let mut length = message.write(&mut bytes);
            for option in &options {
                length += option.write(&mut bytes[length..]);
            }
            let (read, walk) = Message::read(&bytes[..length]).expect("a good message");
            assert_eq!(read, message);
            assert_eq!(walk.collect::<Vec<_>>(), options);
            for cut in 0..length {
                // A message truncated at any byte is rejected, or decoded with fewer options.
                if let Ok((read, walk)) = Message::read(&bytes[..cut]) {
                    assert_eq!(read, message);
                    assert!(walk.count() < options.len());
                }
            }
        }
    }

    #[test]
    fn a_message_that_violates_a_rule_is_rejected() {
        let mut bytes = [0; 32];
        Message::NeighbourSolicitation { target: ip("fe80::1") }.write(&mut bytes);
        assert_eq!(Message::read(&bytes), Err(Malformed::OptionLength), "an option of length zero");
        bytes[24..26].copy_from_slice(&[1, 2]);
        assert_eq!(Message::read(&bytes), Err(Malformed::OptionLength), "an option beyond the end");
        bytes[1] = 1;
        assert_eq!(Message::read(&bytes[..24]), Err(Malformed::Operation));
        assert_eq!(solicited_node(ip("2001:db8::12:3456:789a")), ip("ff02::1:ff56:789a"));
    }
}
