//! Ports of this host that are forwarded to a guest, or the other way.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// Ports on one side that are forwarded to the other side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Forwarded {
    /// A range of ports.
    Range {
        /// The address at which they are open; `None` for the usual ones of the side.
        address: Option<IpAddr>,
        /// The ports.
        ports: RangeInclusive<u16>,
        /// The port to which the first one is forwarded.
        to: u16,
    },
    /// All ports that are free, except those that the system gives to clients (ephemeral ports).
    All,
    /// The ports that programs on the other side have open, at any time.
    Auto,
}

impl Forwarded {
    /// Parses `auto`, `all`, or `[ADDRESS:]PORT[-PORT][:PORT[-PORT]]` with an IPv6 address in brackets.
    pub fn parse(text: &str) -> Option<Forwarded> {
        match text {
            "auto" => return Some(Forwarded::Auto),
            "all" => return Some(Forwarded::All),
            _ => {}
        }
        if let Some((address, ports)) = text.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
            return Forwarded::range(Some(address), ports);
        }
        match text.split_once(':') {
            Some((address, ports)) if address.contains('.') => Forwarded::range(Some(address), ports),
            _ => Forwarded::range(None, text),
        }
    }

    /// Parses an address and `PORT[-PORT][:PORT[-PORT]]`.
    pub fn range(address: Option<&str>, ports: &str) -> Option<Forwarded> {
        let address = address.map(str::parse).transpose().ok()?;
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            Some(port(first)?..=port(last)?).filter(|range| !range.is_empty())
        };
        let (from, to) = ports.split_once(':').unwrap_or((ports, ports));
        let (ports, to) = (range(from)?, range(to)?);
        (ports.len() == to.len()).then(|| Forwarded::Range { address, ports, to: *to.start() })
    }

    /// Returns the first port that both ranges open at the same address.
    pub fn common_port(&self, other: &Forwarded) -> Option<u16> {
        let Forwarded::Range { address, ports, .. } = self else { return None };
        let Forwarded::Range { address: to, ports: others, .. } = other else { return None };
        let first = *ports.start().max(others.start());
        let is_common = ports.contains(&first) && others.contains(&first);
        // A range without an address is open at other addresses as well, perhaps not at this one.
        (is_common && address == to).then_some(first)
    }

    /// Returns whether only callers of the same host can reach these ports, if those without an address are
    /// open at the loopback's.
    pub fn is_of_loopback(&self) -> bool {
        match self {
            Forwarded::Range { address: Some(address), .. } => address.to_canonical().is_loopback(),
            _ => true,
        }
    }
}

impl fmt::Display for Forwarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, ports, to) = match self {
            Forwarded::Range { address, ports, to } => (address, ports, *to),
            Forwarded::All => return f.write_str("all"),
            Forwarded::Auto => return f.write_str("auto"),
        };
        let (first, last) = (*ports.start(), *ports.end());
        match address {
            Some(address) => write!(f, "{}", SocketAddr::new(*address, first))?,
            None => write!(f, "{first}")?,
        }
        let is_range = first != last;
        if is_range {
            write!(f, "-{last}")?;
        }
        match to {
            _ if to == first => Ok(()),
            to if is_range => write!(f, ":{to}-{}", to + (last - first)),
            to => write!(f, ":{to}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_forwarded_from_any_or_one_address() {
        let rows = [
            ("8080", "8080"),
            ("8080:80", "8080:80"),
            ("8080-8080:80-80", "8080:80"),
            ("127.0.0.1:8080:80", "127.0.0.1:8080:80"),
            ("[::1]:8080", "[::1]:8080"),
            ("8000-8001", "8000-8001"),
            ("127.0.0.1:8000-8001:80-81", "127.0.0.1:8000-8001:80-81"),
            ("1-65535", "1-65535"),
            ("auto", "auto"),
            ("all", "all"),
            ("8000-8001:80", ""),
            ("8001-8000", ""),
            ("0", ""),
            ("65536", ""),
            ("1.2.3:80", ""),
            ("80:90:100", ""),
            ("[::1]80", ""),
            ("any", ""),
            ("", ""),
        ];
        for (text, expected) in rows {
            let parsed = Forwarded::parse(text);
            assert_eq!(parsed.as_ref().map(Forwarded::to_string).unwrap_or_default(), expected, "{text}");
            if parsed.is_some() {
                assert_eq!(Forwarded::parse(expected), parsed, "{text}");
            }
        }
    }

    #[test]
    fn two_ranges_have_the_ports_in_common_that_they_open_at_one_address() {
        for (one, other, port) in [
            ("8080", "8080:80", Some(8080)),
            ("8000-8010", "8005-8020:1005-1020", Some(8005)),
            ("1-65535", "22", Some(22)),
            ("8080", "8081", None),
            ("8000-8010", "8011-8020", None),
            ("127.0.0.1:8080", "[::1]:8080", None),
            ("127.0.0.1:8080", "127.0.0.1:8080:81", Some(8080)),
            ("8080", "auto", None),
            ("all", "all", None),
        ] {
            let [a, b] = [one, other].map(|text| Forwarded::parse(text).unwrap());
            assert_eq!((a.common_port(&b), b.common_port(&a)), (port, port), "{one} {other}");
        }
    }
}
