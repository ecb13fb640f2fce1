//! DHCP messages (RFC 2131 §2, RFC 2132).
//!
//! ```text
//! | op 8 | htype 8 = 1 | hlen 8 = 6 | hops 8 | xid 32 | secs 16 | B 1, 0 15 |
//! | ciaddr 32 | yiaddr 32 | siaddr 32 | giaddr 32 | chaddr 128 | sname 512 | file 1024 | cookie 32 | options |
//!
//!   options: | code 8 | length 8 | data |    0 is padding, 255 ends the options
//! ```
//!
//! Long options     an option that occurs several times is one long option, and options may continue in the
//!                  fields `file` and `sname` (RFC 3396, RFC 2132 §9.3): see [`Options::get`].
//! Receive path     [`Options::read`] checks the lengths of all options, so that later code need not.

use alloc::vec::Vec;
use core::net::Ipv4Addr;
use kiban_base::Malformed;
use kiban_base::ethernet::Mac;

/// UDP port of servers.
pub const SERVER_PORT: u16 = 67;
/// UDP port of clients.
pub const CLIENT_PORT: u16 = 68;
/// Length of the fixed fields with the cookie, bytes.
pub const HEADER_BYTES: usize = 240;
/// Minimum length of a message, bytes: some relays drop shorter ones (RFC 1542 §2.1).
pub const MESSAGE_BYTES_MIN: usize = 300;

const COOKIE: [u8; 4] = [99, 130, 83, 99];
const SNAME_AT: usize = 44;
const FILE_AT: usize = 108;
const FILE_END: usize = 236;
const BROADCAST: u16 = 0x8000;
const PAD: u8 = 0;
const END: u8 = 255;

/// Codes of options (RFC 2132).
pub mod option {
    /// Subnet mask.
    pub const MASK: u8 = 1;
    /// Routers, in order of preference.
    pub const ROUTERS: u8 = 3;
    /// Name servers, in order of preference.
    pub const NAME_SERVERS: u8 = 6;
    /// MTU of the interface.
    pub const MTU: u8 = 26;
    /// The address that the client requests.
    pub const REQUESTED_ADDRESS: u8 = 50;
    /// Lease time, seconds.
    pub const LEASE: u8 = 51;
    /// Whether `file` (1), `sname` (2), or both (3) hold options.
    pub const OVERLOAD: u8 = 52;
    /// Type of the message.
    pub const KIND: u8 = 53;
    /// The server's address.
    pub const SERVER: u8 = 54;
    /// The options that the client wants.
    pub const PARAMETERS: u8 = 55;
    /// Maximum length of a message that the client accepts, bytes.
    pub const MESSAGE_BYTES_MAX: u8 = 57;
    /// T1: time until renewal, seconds.
    pub const RENEWAL: u8 = 58;
    /// T2: time until rebinding, seconds.
    pub const REBINDING: u8 = 59;
    /// The client's identifier.
    pub const CLIENT: u8 = 61;
}

/// Types of messages (RFC 2132 §9.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The client looks for servers.
    Discover = 1,
    /// A server offers an address.
    Offer = 2,
    /// The client requests the offered address, or an extension of its lease.
    Request = 3,
    /// The address is already in use.
    Decline = 4,
    /// The server grants the request.
    Ack = 5,
    /// The server rejects the request.
    Nak = 6,
    /// The client gives its address back.
    Release = 7,
    /// The client has an address and asks for other configuration only.
    Inform = 8,
}

impl Kind {
    /// Returns the type with this number.
    pub fn of(number: u8) -> Option<Kind> {
        use Kind::{Ack, Decline, Discover, Inform, Nak, Offer, Release, Request};
        [Discover, Offer, Request, Decline, Ack, Nak, Release, Inform]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// The fixed fields of a message, except `hops`, `sname` and `file`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Whether the message is from a server (op 2).
    pub is_reply: bool,
    /// Number that replies copy from requests.
    pub xid: u32,
    /// Time since the client began, seconds.
    pub seconds: u16,
    /// Whether the server is to reply by broadcast, because the client cannot receive unicast yet.
    pub broadcast: bool,
    /// ciaddr: the client's address, if it has one.
    pub client: Ipv4Addr,
    /// yiaddr: the address for the client.
    pub yours: Ipv4Addr,
    /// siaddr: the next server of a boot.
    pub next_server: Ipv4Addr,
    /// giaddr: the relay.
    pub relay: Ipv4Addr,
    /// chaddr: the client's hardware address.
    pub mac: Mac,
}

impl Header {
    /// Decodes the fixed fields at the front of a message.
    ///
    /// # Errors
    /// `Truncated`; `Operation` if `op`, the hardware type, the length of its addresses or the cookie are
    /// not those of DHCP on Ethernet.
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let Some(fixed) = bytes.first_chunk::<HEADER_BYTES>() else { return Err(Malformed::Truncated) };
        if !matches!(fixed[0], 1 | 2) || fixed[1..3] != [1, 6] || fixed[FILE_END..] != COOKIE {
            return Err(Malformed::Operation);
        }
        let four = |at: usize| [fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]];
        let two = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let header = Header {
            is_reply: fixed[0] == 2,
            xid: u32::from_be_bytes(four(4)),
            seconds: two(8),
            broadcast: two(10) & BROADCAST != 0,
            client: four(12).into(),
            yours: four(16).into(),
            next_server: four(20).into(),
            relay: four(24).into(),
            mac: Mac([fixed[28], fixed[29], fixed[30], fixed[31], fixed[32], fixed[33]]),
        };
        Ok((header, HEADER_BYTES))
    }

    /// Returns [`HEADER_BYTES`].
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Writes the fixed fields and the cookie at the front of `target`. Returns the number of bytes written.
    ///
    /// # Panics
    /// If `target` is too short.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<HEADER_BYTES>().expect("room for a DHCP header of 240 bytes");
        bytes.fill(0);
        bytes[..3].copy_from_slice(&[1 + u8::from(self.is_reply), 1, 6]);
        bytes[4..8].copy_from_slice(&self.xid.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.seconds.to_be_bytes());
        bytes[10..12].copy_from_slice(&if self.broadcast { BROADCAST } else { 0 }.to_be_bytes());
        let addresses = [self.client, self.yours, self.next_server, self.relay];
        for (at, address) in (12..).step_by(4).zip(addresses) {
            bytes[at..at + 4].copy_from_slice(&address.octets());
        }
        bytes[28..34].copy_from_slice(&self.mac.0);
        bytes[FILE_END..].copy_from_slice(&COOKIE);
        HEADER_BYTES
    }
}

/// The code of an option, its data, and what follows it in its field.
type Split<'a> = (u8, &'a [u8], &'a [u8]);

/// Returns the next option of a field, or `None` at the end.
fn next(mut field: &[u8]) -> Result<Option<Split<'_>>, Malformed> {
    loop {
        match *field {
            [] | [END, ..] => return Ok(None),
            [PAD, ref rest @ ..] => field = rest,
            [code, length, ref rest @ ..] if usize::from(length) <= rest.len() => {
                let (data, rest) = rest.split_at(length.into());
                return Ok(Some((code, data, rest)));
            }
            _ => return Err(Malformed::OptionLength),
        }
    }
}

/// The options of a message.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The fields that hold options, in the order of RFC 3396 §5.
    fields: [&'a [u8]; 3],
}

impl<'a> Options<'a> {
    /// Checks the options of a whole message.
    ///
    /// # Errors
    /// `Truncated`; `OptionLength` if an option exceeds its field.
    pub fn read(message: &'a [u8]) -> Result<Options<'a>, Malformed> {
        let Some((fixed, options)) = message.split_first_chunk::<HEADER_BYTES>() else {
            return Err(Malformed::Truncated);
        };
        let mut all = Options { fields: [options, &[], &[]] };
        let overload = all.check(0)?;
        if overload & 1 != 0 {
            all.fields[1] = &fixed[FILE_AT..FILE_END];
        }
        if overload & 2 != 0 {
            all.fields[2] = &fixed[SNAME_AT..FILE_AT];
        }
        all.check(1)?;
        all.check(2)?;
        Ok(all)
    }

    /// Checks a field, and returns the value of the overload option in it.
    fn check(&self, field: usize) -> Result<u8, Malformed> {
        let (mut rest, mut overload) = (self.fields[field], 0);
        while let Some((code, data, after)) = next(rest)? {
            rest = after;
            if let (option::OVERLOAD, [value]) = (code, data) {
                overload = *value;
            }
        }
        Ok(overload)
    }

    /// Returns the options one by one; parts of a long option are separate.
    pub fn parts(&self) -> impl Iterator<Item = (u8, &'a [u8])> {
        self.fields.into_iter().flat_map(|field| {
            let mut rest = field;
            core::iter::from_fn(move || {
                let (code, data, after) = next(rest).ok()??;
                rest = after;
                Some((code, data))
            })
        })
    }

    /// Returns the data of an option, with all its parts (RFC 3396 §7), or `None` if it is absent.
    pub fn get(&self, code: u8) -> Option<Vec<u8>> {
        let mut parts = self.parts().filter(|part| part.0 == code).map(|part| part.1).peekable();
        parts.peek()?;
        Some(parts.flatten().copied().collect())
    }

    /// Returns an option that is an address, if it has the length of one.
    pub fn address(&self, code: u8) -> Option<Ipv4Addr> {
        Some(<[u8; 4]>::try_from(self.get(code)?).ok()?.into())
    }

    /// Returns an option that is a list of addresses; a remainder is ignored.
    pub fn addresses(&self, code: u8) -> Vec<Ipv4Addr> {
        let bytes = self.get(code).unwrap_or_default();
        bytes.as_chunks::<4>().0.iter().map(|address| Ipv4Addr::from(*address)).collect()
    }

    /// Returns an option that is a number of seconds, if it has the length of one.
    pub fn seconds(&self, code: u8) -> Option<u32> {
        Some(u32::from_be_bytes(self.get(code)?.try_into().ok()?))
    }

    /// Returns the type of the message, if it is known.
    pub fn kind(&self) -> Option<Kind> {
        match self.get(option::KIND)?[..] {
            [number] => Kind::of(number),
            _ => None,
        }
    }
}

/// Appends an option to a message, in parts if it is long.
pub fn push_option(message: &mut Vec<u8>, code: u8, data: &[u8]) {
    for part in data.chunks(255) {
        message.extend_from_slice(&[code, part.len() as u8]);
        message.extend_from_slice(part);
    }
}

/// Ends the options of a message, and pads it to the minimum length.
pub fn end(message: &mut Vec<u8>) {
    message.push(END);
    message.resize(message.len().max(MESSAGE_BYTES_MIN), PAD);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn header() -> Header {
        Header {
            is_reply: true,
            xid: 0x1234_5678,
            seconds: 9,
            broadcast: true,
            client: [10, 0, 0, 1].into(),
            yours: [10, 0, 0, 2].into(),
            next_server: [10, 0, 0, 3].into(),
            relay: [10, 0, 0, 4].into(),
            mac: Mac([2, 0, 0, 0, 0, 1]),
        }
    }

    fn message(fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        header().write(&mut bytes);
        fill(&mut bytes);
        end(&mut bytes);
        bytes
    }

    #[test]
    fn a_message_round_trips() {
        let bytes = message(|bytes| {
            push_option(bytes, option::KIND, &[5]);
            push_option(bytes, option::MASK, &[255, 255, 255, 0]);
            push_option(bytes, option::LEASE, &[0, 0, 14, 16]);
            push_option(bytes, option::ROUTERS, &[10, 0, 0, 9, 10, 0, 0, 8]);
        });
        assert_eq!(bytes.len(), MESSAGE_BYTES_MIN);
        assert_eq!(Header::read(&bytes), Ok((header(), HEADER_BYTES)));
        let options = Options::read(&bytes).unwrap();
        assert_eq!(options.kind(), Some(Kind::Ack));
        assert_eq!(options.address(option::MASK), Some([255, 255, 255, 0].into()));
        assert_eq!(options.seconds(option::LEASE), Some(3600));
        let routers: [Ipv4Addr; 2] = [[10, 0, 0, 9].into(), [10, 0, 0, 8].into()];
        assert_eq!(options.addresses(option::ROUTERS), routers);
        assert_eq!(options.get(option::MTU), None);
        assert_eq!(options.address(option::ROUTERS), None, "two addresses are not one");
    }

    #[test]
    fn a_long_option_is_joined_from_its_parts_in_all_fields() {
        let long: Vec<u8> = (0..=255).cycle().take(300).collect();
        let mut bytes = message(|bytes| {
            push_option(bytes, option::OVERLOAD, &[3]);
            push_option(bytes, 119, &long);
        });
        // RFC 3396 §5: the options field, then `file`, then `sname`.
        bytes[FILE_AT..FILE_AT + 4].copy_from_slice(&[119, 1, 0xaa, END]);
        bytes[SNAME_AT..SNAME_AT + 5].copy_from_slice(&[PAD, 119, 1, 0xbb, END]);
        let wanted = [&long[..], &[0xaa, 0xbb]].concat();
        assert_eq!(Options::read(&bytes).unwrap().get(119), Some(wanted));
        // Without the overload option, both fields hold names.
        bytes[HEADER_BYTES + 2] = 0;
        assert_eq!(Options::read(&bytes).unwrap().get(119), Some(long));
    }

    #[test]
    fn a_message_that_violates_a_rule_is_rejected() {
        let good = message(|bytes| push_option(bytes, option::KIND, &[5]));
        for (at, value) in [(0, 3), (1, 6), (2, 16), (FILE_END, 0)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert_eq!(Header::read(&bytes), Err(Malformed::Operation), "byte {at}");
        }
        assert_eq!(Header::read(&good[..HEADER_BYTES - 1]), Err(Malformed::Truncated));
        let mut bytes = good.clone();
        bytes[HEADER_BYTES + 1] = 255;
        assert_eq!(Options::read(&bytes).err(), Some(Malformed::OptionLength));
        // An option in `file` that exceeds the field.
        let mut bytes = message(|bytes| push_option(bytes, option::OVERLOAD, &[1]));
        bytes[FILE_END - 2..FILE_END].copy_from_slice(&[12, 9]);
        bytes[FILE_AT..FILE_END - 2].fill(PAD);
        assert_eq!(Options::read(&bytes).err(), Some(Malformed::OptionLength));
    }
}
