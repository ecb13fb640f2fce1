//! Addresses of lines, in the notation of the command line and of configuration files.

use kiban_base::ethernet::Mac;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a line is, and which framing it has ([`kiban_osi::wire::lapb_framing`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LineAddress {
    /// `serial:DEVICE[,SPEED]`: octet-stuffed frames on an asynchronous serial line.
    Serial(PathBuf, Option<u32>),
    /// `tcp:HOST:PORT`: octet-stuffed frames on a TCP connection that this end makes.
    Connect(String, u16),
    /// `tcp-listen:ADDRESS:PORT`: octet-stuffed frames on a TCP connection that the peer makes.
    Listen(SocketAddr),
    /// `ether:INTERFACE[,MAC]`: frames on an Ethernet, in the format of Linux's lapbether. Without the peer's
    /// MAC address, frames are sent to all stations and accepted from all.
    Ethernet(String, Option<Mac>),
    /// `hdlc:INTERFACE`: frames on a synchronous device of type ARPHRD_RAWHDLC, unchanged.
    Hdlc(String),
    /// `x25:INTERFACE`: packets on a device of type ARPHRD_X25, whose driver contains LAPB.
    Device(String),
}

/// The text is not the address of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressError;

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "write serial:/dev/ttyS0,9600, tcp:HOST:PORT, tcp-listen:ADDRESS:PORT, ether:eth0, hdlc:hdlc0 or \
             x25:x25dev0",
        )
    }
}

impl std::error::Error for AddressError {}

impl FromStr for LineAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<LineAddress, AddressError> {
        let (kind, rest) = text.split_once(':').filter(|(_, rest)| !rest.is_empty()).ok_or(AddressError)?;
        let (name, option) = match rest.split_once(',') {
            Some((name, option)) => (name, Some(option)),
            None => (rest, None),
        };
        match (kind, option) {
            ("serial", None) => Ok(LineAddress::Serial(name.into(), None)),
            ("serial", Some(speed)) => {
                let speed = speed.parse().ok().filter(|speed| *speed > 0).ok_or(AddressError)?;
                Ok(LineAddress::Serial(name.into(), Some(speed)))
            }
            ("tcp", None) => {
                let (host, port) = rest.rsplit_once(':').ok_or(AddressError)?;
                let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
                let port = port.parse().map_err(|_| AddressError)?;
                if host.is_empty() { Err(AddressError) } else { Ok(LineAddress::Connect(host.into(), port)) }
            }
            ("tcp-listen", None) => rest.parse().map(LineAddress::Listen).map_err(|_| AddressError),
            ("ether", None) => Ok(LineAddress::Ethernet(name.into(), None)),
            ("ether", Some(peer)) => {
                let peer = peer.parse().map_err(|_| AddressError)?;
                Ok(LineAddress::Ethernet(name.into(), Some(peer)))
            }
            ("hdlc", None) => Ok(LineAddress::Hdlc(name.into())),
            ("x25", None) => Ok(LineAddress::Device(name.into())),
            _ => Err(AddressError),
        }
    }
}

impl fmt::Display for LineAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineAddress::Serial(path, None) => write!(f, "serial:{}", path.display()),
            LineAddress::Serial(path, Some(speed)) => write!(f, "serial:{},{speed}", path.display()),
            LineAddress::Connect(host, port) if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            LineAddress::Connect(host, port) => write!(f, "tcp:{host}:{port}"),
            LineAddress::Listen(at) => write!(f, "tcp-listen:{at}"),
            LineAddress::Ethernet(name, None) => write!(f, "ether:{name}"),
            LineAddress::Ethernet(name, Some(peer)) => write!(f, "ether:{name},{peer}"),
            LineAddress::Hdlc(name) => write!(f, "hdlc:{name}"),
            LineAddress::Device(name) => write!(f, "x25:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_printed_alike() {
        for text in [
            "serial:/dev/ttyS0",
            "serial:/dev/ttyS0,9600",
            "tcp:exchange.example:7000",
            "tcp:[2001:db8::7]:7000",
            "tcp-listen:127.0.0.1:7000",
            "ether:eth0",
            "ether:eth0,02:00:00:00:00:01",
            "hdlc:hdlc0",
            "x25:x250",
        ] {
            let address: LineAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        for text in [
            "",
            "serial:",
            "serial:/dev/ttyS0,fast",
            "serial:/dev/ttyS0,0",
            "tcp:7000",
            "tcp::7000",
            "tcp-listen:7000",
            "ether:eth0,02:00",
            "hdlc:h,1",
            "modem:1",
        ] {
            assert_eq!(text.parse::<LineAddress>(), Err(AddressError), "{text}");
        }
    }
}
