//! Device names for `VipOpenNic`, and the byte format of host addresses.
//!
//! ```text
//! device                                             host address
//! loopback                                           none: 0 bytes
//! shm | shm:NAME                                     the name, padded with zeros to 16 bytes
//! udp | udp:PORT | udp:ADDRESS | udp:ADDRESS:PORT    4 (or 16) bytes of IP address, 2 of port
//! board[:NAME]@ADDRESS[:PORT]                        the same, on the running board NAME, or the only one
//! ```
//!
//! A NAME is 1 to 16 letters, digits, `-`, `_` and `.`. Programs from the 1990s copy addresses using the
//! length of their own NIC's address, and many have room for only 40 bytes. Therefore, all addresses of a
//! device have the same, short length.
//!
//! Any other name is assumed to come from an old program ("nic0", "/dev/clanvi0"). It selects the device
//! named by `KIBAN_VI_DEVICE`, or `shm` if that is unset.

use kiban_vi_runtime::{BOARD_PORT, Device, HostAddress, UDP_PORT};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Length in bytes of a host address in shared memory.
const NAME_BYTES: usize = 16;

/// Returns the devices for a name, in the order in which to try them. `otherwise` is the value of
/// `KIBAN_VI_DEVICE`, and `number` identifies a NIC without a name. Returns `None` if the name cannot be
/// parsed.
pub(crate) fn named(name: &str, otherwise: Option<&str>, number: u64) -> Option<Vec<Device>> {
    if is_board(name) {
        return on_board(name);
    }
    let (kind, rest) = match name.split_once(':') {
        Some((kind, rest)) => (kind, Some(rest)),
        None => (name, None),
    };
    match (kind, rest) {
        ("loopback", None) => Some(vec![Device::Loopback]),
        ("loopback", Some(_)) => None,
        ("shm", None) => Some(vec![Device::Shm(Some(format!("{number:016x}")))]),
        ("shm", Some(name)) => is_name(name).then(|| vec![Device::Shm(Some(name.into()))]),
        // The first NIC on a host listens at the default port.
        ("udp", None) => {
            let any = |port| Device::Udp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
            Some(vec![any(UDP_PORT), any(0)])
        }
        ("udp", Some(place)) => socket(place).map(|place| vec![Device::Udp(place)]),
        _ => match otherwise {
            // `KIBAN_VI_DEVICE` must name a known device.
            Some(other)
                if is_board(other)
                    || ["loopback", "shm", "udp"].contains(&other.split(':').next().unwrap_or("")) =>
            {
                named(other, None, number)
            }
            None | Some("") => named("shm", None, number),
            Some(_) => None,
        },
    }
}

fn is_board(name: &str) -> bool {
    name == "board" || name.starts_with("board:") || name.starts_with("board@")
}

/// Returns the devices on a board's TCP. The first NIC at an address listens on the default port; the others
/// can only connect.
fn on_board(name: &str) -> Option<Vec<Device>> {
    let Ok(Device::Board { name: board, at }) = name.parse() else { return None };
    let has_port = name.split_once('@').is_some_and(|(_, place)| place.parse::<SocketAddr>().is_ok());
    let ports = if has_port { vec![at.port()] } else { vec![BOARD_PORT, 0] };
    let device = |port| Device::Board { name: board.clone(), at: SocketAddr::new(at.ip(), port) };
    Some(ports.into_iter().map(device).collect())
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Parses `PORT`, `ADDRESS` or `ADDRESS:PORT`. Without a port, any free port is used.
fn socket(place: &str) -> Option<SocketAddr> {
    let port = place.parse::<u16>().ok().map(|port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    let address = || place.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, 0));
    port.or_else(|| place.parse().ok()).or_else(address)
}

/// Returns a host address in the format that programs use.
pub(crate) fn to_bytes(host: &HostAddress, own: &HostAddress) -> Vec<u8> {
    let mut bytes = host.to_bytes();
    if matches!(own, HostAddress::Name(_)) {
        // The peer is a VI on the same NIC, so return the NIC's own address.
        if *host == HostAddress::Loopback {
            bytes = own.to_bytes();
        }
        bytes.resize(NAME_BYTES, 0);
    } else if *host == HostAddress::Loopback {
        bytes = own.to_bytes();
    }
    bytes
}

/// Parses a host address from a program, for the same kind of device as `own`.
pub(crate) fn from_bytes(bytes: &[u8], own: &HostAddress) -> Option<HostAddress> {
    if bytes.len() != to_bytes(own, own).len() {
        return None;
    }
    match own {
        HostAddress::Name(_) => {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            let (name, rest) = bytes.split_at(end);
            let is_good = str::from_utf8(name).is_ok_and(is_name) && rest.iter().all(|byte| *byte == 0);
            is_good.then(|| HostAddress::Name(name.to_vec()))
        }
        HostAddress::Loopback | HostAddress::Udp(_) | HostAddress::Board(_) => own.like(bytes),
    }
}

/// Parses a host given by a user, either in the form of a device name or as hexadecimal bytes separated by
/// colons.
pub(crate) fn host_named(word: &str, own: &HostAddress) -> Option<HostAddress> {
    let hexadecimal = || {
        let bytes: Option<Vec<u8>> = word
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16).ok().filter(|_| byte.len() == 2))
            .collect();
        from_bytes(&bytes?, own)
    };
    match own {
        HostAddress::Loopback => (word == "loopback").then_some(HostAddress::Loopback),
        HostAddress::Name(_) => {
            hexadecimal().or_else(|| is_name(word).then(|| HostAddress::Name(word.as_bytes().to_vec())))
        }
        HostAddress::Udp(local) => place(word, UDP_PORT, local).map(HostAddress::Udp).or_else(hexadecimal),
        HostAddress::Board(local) => {
            place(word, BOARD_PORT, local).map(HostAddress::Board).or_else(hexadecimal)
        }
    }
}

/// Parses `ADDRESS:PORT`, or `ADDRESS` with the default port. The address family must be the same as ours.
fn place(word: &str, usual: u16, local: &SocketAddr) -> Option<SocketAddr> {
    let with_port = || word.parse().ok();
    let usual_port = || word.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, usual));
    with_port().or_else(usual_port).filter(|place: &SocketAddr| place.is_ipv4() == local.is_ipv4())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_are_parsed() {
        let shm = |name: &str| Some(vec![Device::Shm(Some(name.into()))]);
        let udp = |places: &[&str]| {
            let device = |place: &&str| Device::Udp(place.parse().expect("an address"));
            Some(places.iter().map(device).collect::<Vec<_>>())
        };
        let board = |name: Option<&str>, places: &[&str]| {
            let at = |place: &&str| place.parse().expect("an address");
            let device = |place| Device::Board { name: name.map(String::from), at: at(place) };
            Some(places.iter().map(device).collect::<Vec<_>>())
        };
        let nobody = "00000000000000ab";
        for (name, otherwise, expected) in [
            ("loopback", None, Some(vec![Device::Loopback])),
            ("loopback:a", None, None),
            ("shm", Some("udp"), shm(nobody)),
            ("shm:a-b_c.d", None, shm("a-b_c.d")),
            ("shm:seventeen-bytes-x", None, None),
            ("shm:0123456789abcdef", None, shm("0123456789abcdef")),
            ("shm:", None, None),
            ("shm:../etc", None, None),
            ("shm:a b", None, None),
            ("udp", None, udp(&["0.0.0.0:4808", "0.0.0.0:0"])),
            ("udp:7400", None, udp(&["0.0.0.0:7400"])),
            ("udp:127.0.0.1", None, udp(&["127.0.0.1:0"])),
            ("udp:127.0.0.1:7400", None, udp(&["127.0.0.1:7400"])),
            ("udp:[::1]:7400", None, udp(&["[::1]:7400"])),
            ("udp:127.0.0.1:65536", None, None),
            ("udp:nowhere", None, None),
            ("board@10.9.0.2", None, board(None, &["10.9.0.2:4808", "10.9.0.2:0"])),
            ("board:lab@10.9.0.2:7400", None, board(Some("lab"), &["10.9.0.2:7400"])),
            ("board:lab@::1", None, board(Some("lab"), &["[::1]:4808", "[::1]:0"])),
            ("board:lab", None, None),
            ("board", None, None),
            ("nic0", Some("board:lab@10.9.0.2:1"), board(Some("lab"), &["10.9.0.2:1"])),
            ("", None, shm(nobody)),
            ("nic0", None, shm(nobody)),
            ("/dev/clanvi0", Some("loopback"), Some(vec![Device::Loopback])),
            ("nic0", Some("udp:127.0.0.1:1"), udp(&["127.0.0.1:1"])),
            ("nic0", Some(""), shm(nobody)),
            ("nic0", Some("nic1"), None),
        ] {
            assert_eq!(named(name, otherwise, 0xab), expected, "{name:?} {otherwise:?}");
        }
    }

    #[test]
    fn addresses_of_a_device_have_one_length_and_round_trip() {
        let name = |name: &str| HostAddress::Name(name.as_bytes().to_vec());
        let udp = |place: &str| HostAddress::Udp(place.parse().expect("an address"));
        let board = |place: &str| HostAddress::Board(place.parse().expect("an address"));
        for (own, other, length) in [
            (HostAddress::Loopback, HostAddress::Loopback, 0),
            (name("me"), name("somebody"), 16),
            (name("me"), name("0123456789abcdef"), 16),
            (udp("127.0.0.1:1"), udp("192.0.2.1:65535"), 6),
            (udp("[::1]:1"), udp("[2001:db8::1]:7"), 18),
            (board("10.9.0.2:0"), board("10.9.0.1:4808"), 6),
            (board("[::1]:1"), board("[2001:db8::1]:7"), 18),
        ] {
            for host in [&own, &other] {
                let bytes = to_bytes(host, &own);
                assert_eq!(bytes.len(), length);
                assert_eq!(from_bytes(&bytes, &own).as_ref(), Some(host));
                assert_eq!(from_bytes(&[&bytes[..], &[0]].concat(), &own), None);
            }
        }
        // Within one NIC, the peer's host is the NIC itself.
        assert_eq!(to_bytes(&HostAddress::Loopback, &name("me")), to_bytes(&name("me"), &name("me")));
        for bad in [
            *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            *b"a\0b\0\0\0\0\0\0\0\0\0\0\0\0\0",
            *b"a/b\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ] {
            assert_eq!(from_bytes(&bad, &name("me")), None);
        }
    }

    #[test]
    fn hosts_are_parsed_as_device_names_or_hexadecimal() {
        let name = |name: &str| HostAddress::Name(name.as_bytes().to_vec());
        let udp = |place: &str| HostAddress::Udp(place.parse().expect("an address"));
        let board = |place: &str| HostAddress::Board(place.parse().expect("an address"));
        for (word, own, expected) in [
            ("loopback", HostAddress::Loopback, Some(HostAddress::Loopback)),
            ("server", HostAddress::Loopback, None),
            ("server", name("me"), Some(name("server"))),
            ("61:62:00:00:00:00:00:00:00:00:00:00:00:00:00:00", name("me"), Some(name("ab"))),
            ("no name", name("me"), None),
            ("192.0.2.1", udp("127.0.0.1:1"), Some(udp("192.0.2.1:4808"))),
            ("192.0.2.1:9", udp("127.0.0.1:1"), Some(udp("192.0.2.1:9"))),
            ("7f:00:00:01:00:09", udp("127.0.0.1:1"), Some(udp("127.0.0.1:9"))),
            ("10.9.0.1", board("10.9.0.2:1"), Some(board("10.9.0.1:4808"))),
            ("10.9.0.1:9", board("10.9.0.2:1"), Some(board("10.9.0.1:9"))),
            ("0a:09:00:01:00:09", board("10.9.0.2:1"), Some(board("10.9.0.1:9"))),
            ("::1", board("10.9.0.2:1"), None),
            ("::1", udp("127.0.0.1:1"), None),
            ("server", udp("127.0.0.1:1"), None),
        ] {
            assert_eq!(host_named(word, &own), expected, "{word}");
        }
    }
}
