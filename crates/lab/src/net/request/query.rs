//! Queries of a stub resolver, and their replies (RFC 1035 §4).
//!
//! Limits    over UDP, without EDNS: a reply has at most 512 octets, which is enough for addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name, octets (RFC 1035 §3.1), and the longest label.
const NAME_MAX: usize = 255;
const LABEL_MAX: usize = 63;
/// The header of a message.
const HEADER: usize = 12;
/// IN.
const CLASS: u16 = 1;

/// The type of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
}

impl Kind {
    fn number(self) -> u16 {
        match self {
            Kind::A => 1,
            // RFC 3596 §2.1.
            Kind::Aaaa => 28,
        }
    }
}

/// Returns a query; `None` if the name is invalid.
pub(super) fn query(id: u16, name: &str, kind: Kind) -> Option<Vec<u8>> {
    let mut octets = Vec::with_capacity(HEADER + NAME_MAX);
    octets.extend(id.to_be_bytes());
    // A standard query that desires recursion, with one question.
    octets.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.trim_end_matches('.').split('.') {
        if label.is_empty() || label.len() > LABEL_MAX {
            return None;
        }
        octets.push(label.len() as u8);
        octets.extend(label.bytes());
    }
    octets.push(0);
    if octets.len() - HEADER > NAME_MAX {
        return None;
    }
    octets.extend(kind.number().to_be_bytes());
    octets.extend(CLASS.to_be_bytes());
    Some(octets)
}

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// Addresses; none if the name has none of this type.
    Addresses(Vec<IpAddr>),
    /// The name does not exist (NXDOMAIN).
    NoName,
    /// The server failed or refused, with this code.
    Failed(u8),
}

/// Reads the reply to a query; `None` if it is not one.
pub(super) fn reply(octets: &[u8], query: &[u8]) -> Option<Answer> {
    let question = &query[HEADER..];
    let word = |at: usize| octets.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    let same_question = octets.get(HEADER..HEADER + question.len())?.eq_ignore_ascii_case(question);
    let is_reply = octets[2] & 0x80 != 0;
    if octets[..2] != query[..2] || !is_reply || word(4)? != 1 || !same_question {
        return None;
    }
    match octets[3] & 0x0f {
        0 => {}
        3 => return Some(Answer::NoName),
        code => return Some(Answer::Failed(code)),
    }
    let wanted = u16::from_be_bytes([question[question.len() - 4], question[question.len() - 3]]);
    let mut addresses = Vec::new();
    let mut at = HEADER + question.len();
    for _ in 0..word(6)? {
        at = after_name(octets, at)?;
        let (kind, length) = (word(at)?, usize::from(word(at + 8)?));
        let data = octets.get(at + 10..at + 10 + length)?;
        if kind == wanted {
            if let Ok(four) = <[u8; 4]>::try_from(data) {
                addresses.push(Ipv4Addr::from(four).into());
            } else if let Ok(six) = <[u8; 16]>::try_from(data) {
                addresses.push(Ipv6Addr::from(six).into());
            }
        }
        at += 10 + length;
    }
    Some(Answer::Addresses(addresses))
}

/// Returns the place after a name, which may end with a pointer (RFC 1035 §4.1.4).
fn after_name(octets: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *octets.get(at)? {
            0 => return Some(at + 1),
            length if length & 0xc0 == 0xc0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply with a CNAME and two addresses, compressed as servers do it.
    fn answered(query: &[u8], code: u8) -> Vec<u8> {
        let mut octets = query.to_vec();
        octets[2] |= 0x80;
        octets[3] = 0x80 | code;
        octets[7] = 3;
        octets.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 4, 1, b'x', 0xc0, 12]);
        for last in [1, 2] {
            octets.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, last]);
        }
        octets
    }

    #[test]
    fn addresses_are_read_from_the_reply_to_the_query_only() {
        let asked = query(7, "www.example.org", Kind::A).expect("a valid name");
        assert_eq!(&asked[HEADER..HEADER + 5], b"\x03www\x07");
        let octets = answered(&asked, 0);
        let expected = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        assert_eq!(reply(&octets, &asked), Some(Answer::Addresses(expected.to_vec())));
        for (other, why) in [
            (query(8, "www.example.org", Kind::A), "the number"),
            (query(7, "www.example.net", Kind::A), "the name"),
            (query(7, "www.example.org", Kind::Aaaa), "the type"),
        ] {
            assert_eq!(reply(&octets, &other.expect("a valid name")), None, "{why}");
        }
        assert_eq!(reply(&asked, &asked), None, "a query is no reply");
        assert_eq!(reply(&answered(&asked, 3), &asked), Some(Answer::NoName));
        assert_eq!(reply(&answered(&asked, 2), &asked), Some(Answer::Failed(2)));
    }

    #[test]
    fn a_reply_cut_anywhere_or_with_any_octet_changed_is_harmless() {
        let asked = query(7, "a.example", Kind::A).expect("a valid name");
        let octets = answered(&asked, 0);
        for length in 0..octets.len() {
            let _ = reply(&octets[..length], &asked);
        }
        for at in 0..octets.len() {
            for value in [0, 1, 63, 64, 0xc0, 255] {
                let mut changed = octets.clone();
                changed[at] = value;
                let _ = reply(&changed, &asked);
            }
        }
    }

    #[test]
    fn invalid_names_are_rejected() {
        let long = "a".repeat(64);
        for name in ["", "a..b", long.as_str(), &"a.".repeat(130)] {
            assert_eq!(query(1, name, Kind::A), None, "{name}");
        }
        assert!(query(1, "a.b.", Kind::Aaaa).is_some());
    }
}
