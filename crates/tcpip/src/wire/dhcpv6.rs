//! DHCPv6 messages between clients and servers (RFC 8415 §8, §21).
//!
//! ```text
//! | type 8 | transaction id 24 | options |        options: | code 16 | length 16 | data |
//! ```
//!
//! Receive path     [`Options::read`] checks the lengths of all options, so that later code need not. Options
//!                  within options have their own `read`.
//! Not implemented  the messages between relays and servers.

use alloc::vec::Vec;
use core::net::Ipv6Addr;
use kiban_base::Malformed;

/// UDP port of clients.
pub const CLIENT_PORT: u16 = 546;
/// UDP port of servers.
pub const SERVER_PORT: u16 = 547;
/// The group of servers and relays of a link (RFC 8415 §7.1).
pub const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// Length of the type and the transaction id, bytes.
pub const HEADER_BYTES: usize = 4;
/// Longest DUID, with its type, bytes (RFC 8415 §11.1).
pub const DUID_BYTES_MAX: usize = 130;

/// Codes of options (RFC 8415 §21, RFC 3646).
pub mod option {
    /// The client's DUID.
    pub const CLIENT: u16 = 1;
    /// The server's DUID.
    pub const SERVER: u16 = 2;
    /// A set of addresses, with options.
    pub const ADDRESSES: u16 = 3;
    /// One address of a set.
    pub const ADDRESS: u16 = 5;
    /// Preference of the server; a client need not wait for others if it is 255.
    pub const PREFERENCE: u16 = 7;
    /// Whether a request was granted.
    pub const STATUS: u16 = 13;
    /// The client accepts a Reply to its Solicit.
    pub const RAPID_COMMIT: u16 = 14;
    /// Name servers, in order of preference.
    pub const NAME_SERVERS: u16 = 23;
    /// A set of delegated prefixes, with options.
    pub const PREFIXES: u16 = 25;
}

/// Status codes (RFC 8415 §21.13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// The request was granted.
    Success = 0,
    /// There is no address for the set.
    NoAddresses = 2,
    /// The addresses do not belong to the client's link.
    NotOnLink = 4,
    /// There is no prefix for the set.
    NoPrefixes = 6,
}

/// Types of messages (RFC 8415 §7.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The client looks for servers.
    Solicit = 1,
    /// A server offers addresses.
    Advertise = 2,
    /// The client requests the offered addresses.
    Request = 3,
    /// The client asks whether its addresses still belong to the link.
    Confirm = 4,
    /// The client requests an extension from its server.
    Renew = 5,
    /// The client requests an extension from any server.
    Rebind = 6,
    /// A server answers.
    Reply = 7,
    /// The client gives its addresses back.
    Release = 8,
    /// Addresses are already in use.
    Decline = 9,
    /// The server asks the client to renew.
    Reconfigure = 10,
    /// The client asks for other configuration only.
    InformationRequest = 11,
}

impl Kind {
    /// Returns the type with this number.
    pub fn of(number: u8) -> Option<Kind> {
        use Kind::{
            Advertise, Confirm, Decline, InformationRequest, Rebind, Reconfigure, Release, Renew, Reply,
            Request, Solicit,
        };
        let all = [
            Solicit,
            Advertise,
            Request,
            Confirm,
            Renew,
            Rebind,
            Reply,
            Release,
            Decline,
            Reconfigure,
            InformationRequest,
        ];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// The type and the transaction id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The type.
    pub kind: Kind,
    /// Number that replies copy from requests.
    pub transaction: [u8; 3],
}

impl Header {
    /// Decodes the front of a message.
    ///
    /// # Errors
    /// `Truncated`; `Operation` if the type is unknown, or one of relays.
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let Some(&[kind, a, b, c]) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(Malformed::Truncated);
        };
        let kind = Kind::of(kind).ok_or(Malformed::Operation)?;
        Ok((Header { kind, transaction: [a, b, c] }, HEADER_BYTES))
    }

    /// Returns [`HEADER_BYTES`].
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Writes the front of a message. Returns the number of bytes written.
    ///
    /// # Panics
    /// If `target` is too short.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let [a, b, c] = self.transaction;
        target[..HEADER_BYTES].copy_from_slice(&[self.kind as u8, a, b, c]);
        HEADER_BYTES
    }
}

/// The options of a message, or of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options<'a> {
    bytes: &'a [u8],
}

impl<'a> Options<'a> {
    /// Checks the options that follow a [`Header`], or that an option holds.
    ///
    /// # Errors
    /// `OptionLength` if an option exceeds the bytes.
    pub fn read(bytes: &'a [u8]) -> Result<Options<'a>, Malformed> {
        let options = Options { bytes };
        let taken: usize = options.parts().map(|(_, data)| 4 + data.len()).sum();
        if taken == bytes.len() { Ok(options) } else { Err(Malformed::OptionLength) }
    }

    /// Returns the options one by one.
    pub fn parts(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let mut rest = self.bytes;
        core::iter::from_fn(move || {
            let (&[c0, c1, l0, l1], after) = rest.split_first_chunk::<4>()?;
            let (data, after) = after.split_at_checked(u16::from_be_bytes([l0, l1]).into())?;
            rest = after;
            Some((u16::from_be_bytes([c0, c1]), data))
        })
    }

    /// Returns the data of the first option with a code.
    pub fn get(&self, code: u16) -> Option<&'a [u8]> {
        self.parts().find(|part| part.0 == code).map(|part| part.1)
    }
}

/// A set of addresses or of delegated prefixes (RFC 8415 §21.4, §21.21).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Association<'a> {
    /// The client's number for the set.
    pub id: [u8; 4],
    /// T1: time until renewal, seconds.
    pub renewal_seconds: u32,
    /// T2: time until rebinding, seconds.
    pub rebinding_seconds: u32,
    /// The addresses or prefixes, and a status.
    pub options: Options<'a>,
}

impl<'a> Association<'a> {
    /// Decodes the data of the option.
    ///
    /// # Errors
    /// `Truncated`; `OptionLength`.
    pub fn read(data: &'a [u8]) -> Result<Association<'a>, Malformed> {
        let Some((&[a, b, c, d, r0, r1, r2, r3, t0, t1, t2, t3], rest)) = data.split_first_chunk::<12>()
        else {
            return Err(Malformed::Truncated);
        };
        Ok(Association {
            id: [a, b, c, d],
            renewal_seconds: u32::from_be_bytes([r0, r1, r2, r3]),
            rebinding_seconds: u32::from_be_bytes([t0, t1, t2, t3]),
            options: Options::read(rest)?,
        })
    }

    /// Returns the addresses of the set; those that are malformed are left out.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv6Addr> + use<'a> {
        let addresses = self.options.parts().filter(|part| part.0 == option::ADDRESS);
        addresses.filter_map(|(_, data)| Some(Ipv6Addr::from(*data.get(..24)?.first_chunk::<16>()?)))
    }
}

/// Appends an option to a message, or to another option's data.
///
/// # Panics
/// If the data is longer than 65,535 bytes.
pub fn push_option(message: &mut Vec<u8>, code: u16, data: &[u8]) {
    let length = u16::try_from(data.len()).expect("an option has at most 65,535 bytes");
    message.extend_from_slice(&code.to_be_bytes());
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(data);
}

/// Appends a set of addresses or prefixes, with the options in it.
pub fn push_association(message: &mut Vec<u8>, code: u16, id: [u8; 4], times: [u32; 2], options: &[u8]) {
    let mut data = id.to_vec();
    times.iter().for_each(|time| data.extend_from_slice(&time.to_be_bytes()));
    data.extend_from_slice(options);
    push_option(message, code, &data);
}

/// Appends an address, with its preferred and valid lifetimes in seconds.
pub fn push_address(message: &mut Vec<u8>, address: Ipv6Addr, preferred: u32, valid: u32) {
    let mut data = address.octets().to_vec();
    data.extend_from_slice(&preferred.to_be_bytes());
    data.extend_from_slice(&valid.to_be_bytes());
    push_option(message, option::ADDRESS, &data);
}

/// Appends a status without a message for users.
pub fn push_status(message: &mut Vec<u8>, status: Status) {
    push_option(message, option::STATUS, &(status as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_message_round_trips() {
        let header = Header { kind: Kind::Solicit, transaction: [1, 2, 3] };
        let mut bytes = vec![0; HEADER_BYTES];
        header.write(&mut bytes);
        push_option(&mut bytes, option::CLIENT, &[0, 3, 0, 1, 2, 0, 0, 0, 0, 1]);
        let (mut inner, address) = (Vec::new(), "2001:db8::15".parse().unwrap());
        push_address(&mut inner, address, 100, 200);
        push_status(&mut inner, Status::Success);
        push_association(&mut bytes, option::ADDRESSES, [0, 0, 0, 7], [50, 80], &inner);
        push_option(&mut bytes, option::RAPID_COMMIT, &[]);
        assert_eq!(Header::read(&bytes), Ok((header, HEADER_BYTES)));
        let options = Options::read(&bytes[HEADER_BYTES..]).unwrap();
        let codes: Vec<u16> = options.parts().map(|part| part.0).collect();
        assert_eq!(codes, [option::CLIENT, option::ADDRESSES, option::RAPID_COMMIT]);
        let set = Association::read(options.get(option::ADDRESSES).unwrap()).unwrap();
        assert_eq!((set.id, set.renewal_seconds, set.rebinding_seconds), ([0, 0, 0, 7], 50, 80));
        assert_eq!(set.addresses().collect::<Vec<_>>(), [address]);
        assert_eq!(set.options.get(option::STATUS), Some(&[0, 0][..]));
        assert_eq!(options.get(option::SERVER), None);
    }

    #[test]
    fn a_message_that_violates_a_rule_is_rejected() {
        assert_eq!(Header::read(&[1, 0, 0]), Err(Malformed::Truncated));
        // Type 12 is a relay's.
        for kind in [0, 12, 13, 255] {
            assert_eq!(Header::read(&[kind, 0, 0, 0]), Err(Malformed::Operation), "{kind}");
        }
        let mut bytes = Vec::new();
        push_option(&mut bytes, 1, &[7; 10]);
        for cut in 1..bytes.len() {
            assert_eq!(Options::read(&bytes[..cut]).err(), Some(Malformed::OptionLength), "{cut}");
        }
        assert_eq!(Association::read(&[0; 11]).err(), Some(Malformed::Truncated));
        assert_eq!(Association::read(&[0; 13]).err(), Some(Malformed::OptionLength));
        // An address of 15 bytes.
        let mut inner = Vec::new();
        push_option(&mut inner, option::ADDRESS, &[9; 15]);
        let data = [&[0; 12][..], &inner].concat();
        assert_eq!(Association::read(&data).unwrap().addresses().count(), 0);
    }
}
