//! Ports of this host that are forwarded to the guest.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A port of this host that is forwarded to the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Forwarded {
    pub(super) from: SocketAddr,
    pub(super) to_port: u16,
}

/// Parses `[ADDRESS:]PORT[-PORT][:GUEST-PORT[-GUEST-PORT]]`, with an IPv6 address in brackets.
pub(super) fn forwarded(text: &str) -> Result<Vec<Forwarded>, String> {
    let (address, ports) = match text.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        Some((address, ports)) => (Some(address), ports),
        None => match text.split_once(':') {
            Some((address, ports)) if address.contains('.') => (Some(address), ports),
            _ => (None, text),
        },
    };
    between(address, ports).ok_or_else(|| {
        format!("{text}: write [ADDRESS:]PORT[:GUEST-PORT], such as 8080:80, 127.0.0.1:8080:80 or 8000-8009")
    })
}

/// Returns the ports `PORT[-PORT][:GUEST-PORT[-GUEST-PORT]]` of an address; of all IPv4 addresses if none is
/// given. Returns `None` if they are written wrongly.
pub(super) fn between(address: Option<&str>, ports: &str) -> Option<Vec<Forwarded>> {
    let address = address.map_or(Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), |address| address.parse().ok())?;
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(port(first)?..=port(last)?).filter(|range| !range.is_empty())
    };
    let (from, to) = ports.split_once(':').unwrap_or((ports, ports));
    let (from, to) = (range(from)?, range(to)?);
    let pairs = from.clone().zip(to.clone());
    (from.len() == to.len()).then(|| {
        pairs.map(|(port, to_port)| Forwarded { from: SocketAddr::new(address, port), to_port }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_forwarded_from_any_or_one_address() {
        let rows: [(&str, &[(&str, u16)]); 14] = [
            ("8080", &[("0.0.0.0:8080", 8080)]),
            ("8080:80", &[("0.0.0.0:8080", 80)]),
            ("127.0.0.1:8080:80", &[("127.0.0.1:8080", 80)]),
            ("[::1]:8080", &[("[::1]:8080", 8080)]),
            ("8000-8001", &[("0.0.0.0:8000", 8000), ("0.0.0.0:8001", 8001)]),
            ("127.0.0.1:8000-8001:80-81", &[("127.0.0.1:8000", 80), ("127.0.0.1:8001", 81)]),
            ("8000-8001:80", &[]),
            ("8001-8000", &[]),
            ("0", &[]),
            ("65536", &[]),
            ("1.2.3:80", &[]),
            ("80:90:100", &[]),
            ("[::1]80", &[]),
            ("", &[]),
        ];
        for (text, expected) in rows {
            let expected = expected
                .iter()
                .map(|(from, to_port)| Forwarded { from: from.parse().unwrap(), to_port: *to_port })
                .collect::<Vec<_>>();
            assert_eq!(forwarded(text).unwrap_or_default(), expected, "{text}");
        }
    }
}
