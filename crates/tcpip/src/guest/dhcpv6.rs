//! Answers to DHCPv6 messages (RFC 8415 §16, §18.3).
//!
//! Addresses        the first set of addresses (IA_NA) in a message gets the guest's address. Other sets, and
//!                  sets of prefixes, get a status that says that there is none.
//! Old addresses    addresses in a set that are not the guest's come back with lifetimes of zero, so that the
//!                  client removes them (§18.3.4).
//! Limits           the first [`SETS_MAX`] sets, and the first [`OLD_MAX`] addresses of each, count.

use super::config::{GuestConfig, LEASE_SECONDS};
use crate::wire::dhcpv6::{
    Association, DUID_BYTES_MAX, HEADER_BYTES, Header, Kind, Options, Status, option, push_address,
    push_association, push_option, push_status,
};
use alloc::vec;
use alloc::vec::Vec;
use kiban_base::Malformed;
use kiban_base::ethernet::Mac;

/// Maximum number of sets of addresses or prefixes in a message that are answered.
const SETS_MAX: usize = 4;
/// Maximum number of addresses of a set that are answered.
const OLD_MAX: usize = 4;

/// Returns our DUID (§11.4: DUID-LL on Ethernet).
fn duid(server: Mac) -> [u8; 10] {
    let [a, b, c, d, e, f] = server.0;
    [0, 3, 0, 1, a, b, c, d, e, f]
}

/// Returns the reply to a message, if it needs one.
pub(super) fn answer(
    config: &GuestConfig,
    message: &[u8],
    server: Mac,
) -> Result<Option<Vec<u8>>, Malformed> {
    let (header, length) = Header::read(message)?;
    let options = Options::read(&message[length..])?;
    let server = duid(server);
    let Some((address, prefix)) = config.ipv6 else { return Ok(None) };
    let client = options.get(option::CLIENT);
    if client.is_some_and(|client| !(3..=DUID_BYTES_MAX).contains(&client.len())) {
        return Err(Malformed::OptionLength);
    }
    // §16: which messages have which identifiers.
    let named = options.get(option::SERVER);
    let is_named = named == Some(&server[..]);
    let (is_right, is_for_us) = match header.kind {
        Kind::Solicit | Kind::Confirm | Kind::Rebind => (client.is_some() && named.is_none(), true),
        Kind::Request | Kind::Renew | Kind::Release | Kind::Decline => {
            (client.is_some() && named.is_some(), is_named)
        }
        Kind::InformationRequest => {
            let sets = [option::ADDRESSES, option::PREFIXES];
            (sets.iter().all(|code| options.get(*code).is_none()), named.is_none() || is_named)
        }
        Kind::Advertise | Kind::Reply | Kind::Reconfigure => (false, false),
    };
    if !is_right {
        return Err(Malformed::Operation);
    }
    if !is_for_us {
        return Ok(None);
    }
    let sets = options.parts().filter(|(code, _)| [option::ADDRESSES, option::PREFIXES].contains(code));
    let sets: Vec<(u16, Association<'_>)> = sets
        .take(SETS_MAX)
        .map(|(code, data)| Association::read(data).map(|set| (code, set)))
        .collect::<Result<_, _>>()?;
    let is_rapid = header.kind == Kind::Solicit && options.get(option::RAPID_COMMIT).is_some();
    let kind = match header.kind {
        Kind::Solicit if !is_rapid => Kind::Advertise,
        _ => Kind::Reply,
    };
    let mut reply = vec![0; HEADER_BYTES];
    Header { kind, ..header }.write(&mut reply);
    client.into_iter().for_each(|client| push_option(&mut reply, option::CLIENT, client));
    push_option(&mut reply, option::SERVER, &server);
    match header.kind {
        Kind::Confirm => {
            let mut addresses = sets.iter().flat_map(|(_, set)| set.addresses()).peekable();
            // §18.3.3: without addresses, there is nothing to confirm.
            if addresses.peek().is_none() {
                return Ok(None);
            }
            let is_here = addresses.all(|address| prefix.contains(address.into()));
            push_status(&mut reply, if is_here { Status::Success } else { Status::NotOnLink });
            return Ok(Some(reply));
        }
        Kind::Release | Kind::Decline => {
            push_status(&mut reply, Status::Success);
            return Ok(Some(reply));
        }
        Kind::Solicit => {
            // A client need not wait for another server's offer (§18.2.1).
            push_option(&mut reply, option::PREFERENCE, &[255]);
            if is_rapid {
                push_option(&mut reply, option::RAPID_COMMIT, &[]);
            }
        }
        _ => {}
    }
    let mut is_given = false;
    for (code, set) in &sets {
        let mut inner = Vec::new();
        let mut times = [0, 0];
        if *code == option::PREFIXES {
            push_status(&mut inner, Status::NoPrefixes);
        } else {
            let old = set.addresses().filter(|old| *old != address);
            old.take(OLD_MAX).for_each(|old| push_address(&mut inner, old, 0, 0));
            if is_given {
                push_status(&mut inner, Status::NoAddresses);
            } else {
                push_address(&mut inner, address, LEASE_SECONDS, LEASE_SECONDS);
                // §21.4: 0.5 and 0.8 of the preferred lifetime.
                times = [LEASE_SECONDS / 2, LEASE_SECONDS / 10 * 8];
                is_given = true;
            }
        }
        push_association(&mut reply, *code, set.id, times, &inner);
    }
    let names = config.names6();
    if !names.is_empty() {
        push_option(&mut reply, option::NAME_SERVERS, &names);
    }
    Ok(Some(reply))
}

#[cfg(test)]
mod tests {
    use super::super::counters::GuestCounters;
    use super::*;
    use crate::ip::Prefix;
    use core::net::Ipv6Addr;

    const SERVER: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const CLIENT: &[u8] = &[0, 1, 0, 1, 9, 9, 9, 9];

    fn ip(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn config() -> GuestConfig {
        let guest = ip("fd00::15");
        let names = vec!["fd00::2".parse().unwrap(), "10.0.2.2".parse().unwrap()];
        GuestConfig { ipv4: None, ipv6: Some((guest, Prefix::new(guest.into(), 64))), names }
    }

    /// Returns a set of addresses.
    fn set(id: u8, addresses: &[&str]) -> (u16, Vec<u8>) {
        let (mut inner, mut option) = (Vec::new(), Vec::new());
        addresses.iter().for_each(|address| push_address(&mut inner, ip(address), 1, 2));
        push_association(&mut option, option::ADDRESSES, [0, 0, 0, id], [0, 0], &inner);
        (option::ADDRESSES, option[4..].to_vec())
    }

    fn message(kind: Kind, options: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        Header { kind, transaction: [7, 8, 9] }.write(&mut bytes);
        options.iter().for_each(|(code, data)| push_option(&mut bytes, *code, data));
        bytes
    }

    /// Returns the kind, the status of the reply and its sets: each with its id, status, and addresses with
    /// their preferred lifetime.
    #[allow(clippy::type_complexity)]
    fn shown(reply: &[u8]) -> (Kind, Option<u8>, Vec<(u8, Option<u8>, Vec<(Ipv6Addr, u32)>)>) {
        let (header, length) = Header::read(reply).unwrap();
        assert_eq!(header.transaction, [7, 8, 9]);
        let options = Options::read(&reply[length..]).unwrap();
        assert_eq!(options.get(option::SERVER), Some(&duid(SERVER)[..]));
        let status = |options: Options<'_>| options.get(option::STATUS).map(|status| status[1]);
        let sets = options.parts().filter(|part| [option::ADDRESSES, option::PREFIXES].contains(&part.0));
        let sets = sets.map(|(_, data)| {
            let set = Association::read(data).unwrap();
            let addresses = set.options.parts().filter(|part| part.0 == option::ADDRESS).map(|(_, data)| {
                let address: [u8; 16] = data[..16].try_into().unwrap();
                (Ipv6Addr::from(address), u32::from_be_bytes(data[16..20].try_into().unwrap()))
            });
            (set.id[3], status(set.options), addresses.collect())
        });
        (header.kind, status(options), sets.collect())
    }

    #[test]
    fn each_message_gets_the_answer_of_its_kind() {
        let client = (option::CLIENT, CLIENT.to_vec());
        let server = (option::SERVER, duid(SERVER).to_vec());
        let other = (option::SERVER, duid(Mac([2, 0, 0, 0, 0, 2])).to_vec());
        let rapid = (option::RAPID_COMMIT, Vec::new());
        let prefixes = (option::PREFIXES, vec![0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
        let guest = || (7, None, vec![(ip("fd00::15"), LEASE_SECONDS)]);
        let all = |list: &[&(u16, Vec<u8>)]| list.iter().map(|option| (*option).clone()).collect::<Vec<_>>();
        let plain = set(7, &[]);
        let rows = [
            (Kind::Solicit, all(&[&client, &plain]), (Kind::Advertise, None, vec![guest()])),
            (Kind::Solicit, all(&[&client, &plain, &rapid]), (Kind::Reply, None, vec![guest()])),
            (
                Kind::Solicit,
                all(&[&client, &prefixes, &plain, &set(8, &[])]),
                (Kind::Advertise, None, vec![(5, Some(6), vec![]), guest(), (8, Some(2), vec![])]),
            ),
            (Kind::Request, all(&[&client, &server, &plain]), (Kind::Reply, None, vec![guest()])),
            (
                Kind::Renew,
                all(&[&client, &server, &set(7, &["fd00::15"])]),
                (Kind::Reply, None, vec![guest()]),
            ),
            (
                Kind::Rebind,
                all(&[&client, &set(7, &["2001:db8::1"])]),
                (
                    Kind::Reply,
                    None,
                    vec![(7, None, vec![(ip("2001:db8::1"), 0), (ip("fd00::15"), LEASE_SECONDS)])],
                ),
            ),
            (Kind::Confirm, all(&[&client, &set(7, &["fd00::99"])]), (Kind::Reply, Some(0), vec![])),
            (
                Kind::Confirm,
                all(&[&client, &set(7, &["fd00::99", "2001:db8::1"])]),
                (Kind::Reply, Some(4), vec![]),
            ),
            (Kind::Release, all(&[&client, &server, &plain]), (Kind::Reply, Some(0), vec![])),
            (Kind::Decline, all(&[&client, &server, &plain]), (Kind::Reply, Some(0), vec![])),
            (Kind::InformationRequest, all(&[]), (Kind::Reply, None, vec![])),
            (Kind::InformationRequest, all(&[&client, &server]), (Kind::Reply, None, vec![])),
        ];
        for (kind, options, expected) in rows {
            let reply = answer(&config(), &message(kind, &options), SERVER).unwrap();
            let reply = reply.unwrap_or_else(|| panic!("{kind:?} {options:?}"));
            assert_eq!(shown(&reply), expected, "{kind:?} {options:?}");
            let read = Options::read(&reply[HEADER_BYTES..]).unwrap();
            let wanted = options.iter().find(|option| option.0 == option::CLIENT).map(|option| &option.1[..]);
            assert_eq!(read.get(option::CLIENT), wanted);
            let has_names = expected.1.is_none();
            assert_eq!(read.get(option::NAME_SERVERS), has_names.then_some(&ip("fd00::2").octets()[..]));
        }
        let ignored = [
            (Kind::Request, all(&[&client, &other, &plain])),
            (Kind::Renew, all(&[&client, &other, &plain])),
            (Kind::Confirm, all(&[&client, &plain])),
            (Kind::InformationRequest, all(&[&other])),
        ];
        for (kind, options) in ignored {
            assert_eq!(answer(&config(), &message(kind, &options), SERVER), Ok(None), "{kind:?} {options:?}");
        }
        let wrong = [
            (Kind::Solicit, all(&[&plain])),
            (Kind::Solicit, all(&[&client, &server, &plain])),
            (Kind::Request, all(&[&client, &plain])),
            (Kind::Request, all(&[&server, &plain])),
            (Kind::Rebind, all(&[&client, &server, &plain])),
            (Kind::InformationRequest, all(&[&client, &plain])),
            (Kind::Advertise, all(&[&client, &server, &plain])),
            (Kind::Reply, all(&[&client, &server, &plain])),
            (Kind::Reconfigure, all(&[&client, &server])),
        ];
        for (kind, options) in wrong {
            let reply = answer(&config(), &message(kind, &options), SERVER);
            assert_eq!(reply, Err(Malformed::Operation), "{kind:?} {options:?}");
        }
    }

    #[test]
    fn a_reply_is_bounded_and_malformed_messages_get_none() {
        let mut counters = GuestCounters::default();
        let long = (option::CLIENT, vec![9; DUID_BYTES_MAX + 1]);
        assert_eq!(config().answer6(&message(Kind::Solicit, &[long]), SERVER, &mut counters), None);
        let client = (option::CLIENT, vec![9; DUID_BYTES_MAX]);
        let many = vec!["2001:db8::1"; 40];
        let mut options = vec![client];
        options.extend((0..200).map(|id| set(id, &many)));
        let whole = message(Kind::Solicit, &options);
        let reply = config().answer6(&whole, SERVER, &mut counters).expect("an offer");
        // It fits into a packet of the smallest MTU.
        assert!(reply.len() <= 1280 - 48, "{}", reply.len());
        let short = message(Kind::Solicit, &options[..2]);
        for cut in 0..short.len() {
            // A message that ends after an option is whole, but has no set.
            let reply = config().answer6(&short[..cut], SERVER, &mut counters);
            assert!(reply.is_none_or(|reply| shown(&reply).2.is_empty()), "{cut}");
        }
        assert_eq!(counters.answered, 2);
    }
}
