//! Answers to DHCP messages (RFC 2131 §4.3).

use super::config::{GuestConfig, LEASE_SECONDS};
use crate::wire::dhcp::{HEADER_BYTES, Header, Kind, Options, end, option, push_option};
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use kiban_base::Malformed;
use kiban_base::ethernet::Mac;

/// The destination of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// All stations of the link.
    Broadcast,
    /// One station, which may not answer ARP yet.
    Unicast(Ipv4Addr, Mac),
}

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Our address.
    pub source: Ipv4Addr,
    /// The destination.
    pub target: Target,
    /// The message.
    pub message: Vec<u8>,
}

/// Returns the reply to a message, if it needs one.
pub(super) fn answer(
    config: &GuestConfig,
    message: &[u8],
    mtu_bytes: usize,
) -> Result<Option<Reply>, Malformed> {
    let (header, _) = Header::read(message)?;
    let options = Options::read(message)?;
    let Some((address, prefix, server)) = config.ipv4 else { return Ok(None) };
    if header.is_reply || header.mac.is_group() {
        return Err(Malformed::Operation);
    }
    if !header.relay.is_unspecified() {
        return Ok(None);
    }
    let requested = options.address(option::REQUESTED_ADDRESS);
    let kind = match options.kind().ok_or(Malformed::Operation)? {
        Kind::Discover => Kind::Offer,
        Kind::Request => {
            // RFC 2131 §4.3.2: a client that selects names the server. One that renews or rebinds has
            // its address in ciaddr, and one that reboots in the option.
            if options.address(option::SERVER).is_some_and(|chosen| chosen != server) {
                return Ok(None);
            }
            let has_address = !header.client.is_unspecified();
            let wanted = if has_address { header.client } else { requested.ok_or(Malformed::Operation)? };
            if wanted == address { Kind::Ack } else { Kind::Nak }
        }
        // The client has an address already, perhaps another one of the net.
        Kind::Inform if prefix.contains(header.client.into()) && !prefix.is_last(header.client) => Kind::Ack,
        Kind::Inform | Kind::Decline | Kind::Release => return Ok(None),
        Kind::Offer | Kind::Ack | Kind::Nak => return Err(Malformed::Operation),
    };
    let is_inform = options.kind() == Some(Kind::Inform);
    let has_lease = kind != Kind::Nak && !is_inform;
    let reply = Header {
        is_reply: true,
        seconds: 0,
        // RFC 2131 §4.3.1, table 3.
        client: if kind == Kind::Ack { header.client } else { Ipv4Addr::UNSPECIFIED },
        yours: if has_lease { address } else { Ipv4Addr::UNSPECIFIED },
        next_server: Ipv4Addr::UNSPECIFIED,
        ..header
    };
    let mut message = vec![0; HEADER_BYTES];
    reply.write(&mut message);
    let mut push = |code: u8, data: &[u8]| push_option(&mut message, code, data);
    push(option::KIND, &[kind as u8]);
    push(option::SERVER, &server.octets());
    if has_lease {
        push(option::LEASE, &LEASE_SECONDS.to_be_bytes());
        push(option::RENEWAL, &(LEASE_SECONDS / 2).to_be_bytes());
        push(option::REBINDING, &(LEASE_SECONDS / 8 * 7).to_be_bytes());
    }
    if kind != Kind::Nak {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix.bits())).unwrap_or(0);
        push(option::MASK, &mask.to_be_bytes());
        push(option::ROUTERS, &server.octets());
        push(option::NAME_SERVERS, &config.names4());
        push(option::MTU, &u16::try_from(mtu_bytes).unwrap_or(u16::MAX).to_be_bytes());
    }
    // RFC 6842: the reply repeats the client's identifier.
    if let Some(client) = options.get(option::CLIENT).filter(|client| client.len() < 256) {
        push(option::CLIENT, &client);
    }
    end(&mut message);
    // RFC 2131 §4.1: a NAK is always broadcast.
    let target = match kind {
        Kind::Nak => Target::Broadcast,
        Kind::Ack if !header.client.is_unspecified() => Target::Unicast(header.client, header.mac),
        _ if header.broadcast => Target::Broadcast,
        _ => Target::Unicast(address, header.mac),
    };
    Ok(Some(Reply { source: server, target, message }))
}

#[cfg(test)]
mod tests {
    use super::super::counters::GuestCounters;
    use super::*;
    use crate::ip::Prefix;
    use kiban_base::ethernet;

    const MAC: Mac = ethernet::Mac([2, 0, 0, 0, 0, 9]);
    const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

    fn config() -> GuestConfig {
        let names = ["10.0.2.2", "fd00::2", "10.0.2.3"].map(|name| name.parse().unwrap()).to_vec();
        GuestConfig { ipv4: Some((GUEST, Prefix::new(GUEST.into(), 24), SERVER)), ipv6: None, names }
    }

    fn header() -> Header {
        let none = Ipv4Addr::UNSPECIFIED;
        Header {
            is_reply: false,
            xid: 77,
            seconds: 3,
            broadcast: false,
            client: none,
            yours: none,
            next_server: none,
            relay: none,
            mac: MAC,
        }
    }

    fn message(header: Header, options: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        header.write(&mut bytes);
        options.iter().for_each(|(code, data)| push_option(&mut bytes, *code, data));
        end(&mut bytes);
        bytes
    }

    #[test]
    fn a_guest_gets_its_address_gateway_mtu_and_name_servers() {
        let discover = message(header(), &[(option::KIND, &[1]), (option::CLIENT, &[1, 2, 3])]);
        let reply = config().answer(&discover, 1500, &mut GuestCounters::default()).expect("an offer");
        assert_eq!((reply.source, reply.target), (SERVER, Target::Unicast(GUEST, MAC)));
        let (fixed, _) = Header::read(&reply.message).unwrap();
        assert_eq!(fixed, Header { is_reply: true, seconds: 0, yours: GUEST, ..header() });
        let options = Options::read(&reply.message).unwrap();
        assert_eq!(options.kind(), Some(Kind::Offer));
        assert_eq!(options.address(option::MASK), Some([255, 255, 255, 0].into()));
        assert_eq!(options.address(option::SERVER), Some(SERVER));
        assert_eq!(options.addresses(option::ROUTERS), [SERVER]);
        assert_eq!(options.addresses(option::NAME_SERVERS), [SERVER, [10, 0, 2, 3].into()]);
        assert_eq!(options.get(option::MTU).as_deref(), Some(&[5, 220][..]));
        assert_eq!(options.seconds(option::LEASE), Some(LEASE_SECONDS));
        assert_eq!(options.get(option::CLIENT).as_deref(), Some(&[1, 2, 3][..]));
    }

    #[test]
    fn each_request_gets_the_answer_of_its_state() {
        let with = |client: Ipv4Addr| Header { client, ..header() };
        let none = Ipv4Addr::UNSPECIFIED;
        let (other, server) = ([10, 0, 2, 99], SERVER.octets());
        let (kind, wanted, chosen) = (option::KIND, option::REQUESTED_ADDRESS, option::SERVER);
        let (guest, here, all) = (GUEST.octets(), Target::Unicast(GUEST, MAC), Target::Broadcast);
        let broadcast = Header { broadcast: true, ..header() };
        let relayed = Header { relay: SERVER, ..header() };
        let from_server = Header { is_reply: true, ..header() };
        type Row<'a> = (&'a str, Header, &'a [(u8, &'a [u8])], Result<Option<(Kind, Target)>, Malformed>);
        let rows: &[Row<'_>] = &[
            (
                "selecting",
                with(none),
                &[(kind, &[3]), (wanted, &guest), (chosen, &server)],
                Ok(Some((Kind::Ack, here))),
            ),
            ("another server", with(none), &[(kind, &[3]), (wanted, &guest), (chosen, &other)], Ok(None)),
            ("rebooting", with(none), &[(kind, &[3]), (wanted, &guest)], Ok(Some((Kind::Ack, here)))),
            (
                "rebooting elsewhere",
                with(none),
                &[(kind, &[3]), (wanted, &other)],
                Ok(Some((Kind::Nak, all))),
            ),
            ("renewing", with(GUEST), &[(kind, &[3])], Ok(Some((Kind::Ack, here)))),
            ("renewing another", with(other.into()), &[(kind, &[3])], Ok(Some((Kind::Nak, all)))),
            ("nothing requested", with(none), &[(kind, &[3])], Err(Malformed::Operation)),
            ("broadcast", broadcast, &[(kind, &[1])], Ok(Some((Kind::Offer, all)))),
            (
                "inform",
                with(other.into()),
                &[(kind, &[8])],
                Ok(Some((Kind::Ack, Target::Unicast(other.into(), MAC)))),
            ),
            ("inform to all", with([10, 0, 2, 255].into()), &[(kind, &[8])], Ok(None)),
            (
                "discovering with an address",
                with(other.into()),
                &[(kind, &[1])],
                Ok(Some((Kind::Offer, here))),
            ),
            ("inform elsewhere", with([8, 8, 8, 8].into()), &[(kind, &[8])], Ok(None)),
            ("decline", with(none), &[(kind, &[4]), (wanted, &guest)], Ok(None)),
            ("release", with(GUEST), &[(kind, &[7])], Ok(None)),
            ("a relay", relayed, &[(kind, &[1])], Ok(None)),
            ("a server's", with(none), &[(kind, &[2])], Err(Malformed::Operation)),
            ("a reply", from_server, &[(kind, &[1])], Err(Malformed::Operation)),
            (
                "a group",
                Header { mac: Mac::BROADCAST, ..header() },
                &[(kind, &[1])],
                Err(Malformed::Operation),
            ),
            ("no type", with(none), &[], Err(Malformed::Operation)),
        ];
        for (what, header, options, expected) in rows {
            let reply = answer(&config(), &message(*header, options), 1500);
            let short = reply.map(|reply| {
                reply.map(|reply| (Options::read(&reply.message).unwrap().kind().unwrap(), reply.target))
            });
            assert_eq!(short, *expected, "{what}");
        }
        // A reply to INFORM leases no address, and a NAK has no other options.
        let inform = answer(&config(), &message(with(other.into()), &[(kind, &[8])]), 1500).unwrap().unwrap();
        assert_eq!(Options::read(&inform.message).unwrap().get(option::LEASE), None);
        assert_eq!(Header::read(&inform.message).unwrap().0.yours, none);
        let nak = answer(&config(), &message(with(other.into()), &[(kind, &[3])]), 1500).unwrap().unwrap();
        let codes: Vec<u8> = Options::read(&nak.message).unwrap().parts().map(|part| part.0).collect();
        assert_eq!(codes, [option::KIND, option::SERVER]);
    }

    #[test]
    fn malformed_messages_are_counted_and_not_answered() {
        let mut counters = GuestCounters::default();
        let good = message(header(), &[(option::KIND, &[1])]);
        assert!(config().answer(&good, 1500, &mut counters).is_some());
        for cut in 0..HEADER_BYTES + 3 {
            assert_eq!(config().answer(&good[..cut], 1500, &mut counters), None, "{cut}");
        }
        assert_eq!((counters.answered, counters.malformed), (1, HEADER_BYTES as u64 + 3));
    }
}
