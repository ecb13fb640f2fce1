//! Devices and host addresses.

use kiban_os::channel::NAME_BYTES_MAX;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// The default UDP port of a VI NIC.
pub const UDP_PORT: u16 = 4808;
/// The default TCP port of a VI NIC on a running board.
pub const BOARD_PORT: u16 = 4808;

/// The device on which a NIC is opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Device {
    /// VIs on this NIC connect only with each other.
    #[default]
    Loopback,
    /// Shared memory with other processes of this user. Contains the name that they can call, or `None` for a
    /// random name.
    Shm(Option<String>),
    /// UDP on an address of this host.
    Udp(SocketAddr),
    /// The TCP of a running board (`kiban up` with a service of kind "attach").
    Board {
        /// The board's name; `None` for the only board that runs.
        name: Option<String>,
        /// The listening address on the board. An unspecified address means all of the board's addresses;
        /// port 0 means that the NIC does not listen.
        at: SocketAddr,
    },
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Loopback => f.write_str("loopback"),
            Device::Shm(None) => f.write_str("shm"),
            Device::Shm(Some(name)) => write!(f, "shm:{name}"),
            Device::Udp(address) => write!(f, "udp:{address}"),
            Device::Board { name: None, at } => write!(f, "board@{at}"),
            Device::Board { name: Some(name), at } => write!(f, "board:{name}@{at}"),
        }
    }
}

/// The reason why a NIC could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// No such device.
    Unknown(String),
    /// The word is the name of a device on which a NIC can be opened, not of a host that can be called.
    NoHost(String),
    /// A system call failed.
    System(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Unknown(word) => write!(
                f,
                "unknown VI device {word:?}: use loopback, shm, shm:NAME, udp:ADDRESS, udp:ADDRESS:PORT, \
                 board:NAME@ADDRESS, board:NAME@ADDRESS:PORT, or board@ADDRESS for the only running board"
            ),
            OpenError::NoHost(word) => write!(
                f,
                "{word:?} is not a valid host: use loopback, shm:NAME, udp:ADDRESS or board@ADDRESS, and append \
                 :PORT to the last two if it is not the default port"
            ),
            OpenError::System(error) => write!(f, "the device cannot be opened: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        OpenError::System(error)
    }
}

impl FromStr for Device {
    type Err = OpenError;

    fn from_str(word: &str) -> Result<Device, OpenError> {
        let unknown = || OpenError::Unknown(word.into());
        if let Some((name, address)) = word.strip_prefix("board").and_then(|rest| rest.split_once('@')) {
            let name = if name.is_empty() { None } else { Some(name.strip_prefix(':').ok_or_else(unknown)?) };
            if name.is_some_and(|name| name.is_empty() || name.contains('/')) {
                return Err(unknown());
            }
            let at = address_and_port(address, BOARD_PORT).ok_or_else(unknown)?;
            return Ok(Device::Board { name: name.map(String::from), at });
        }
        match word.split_once(':') {
            None if word == "loopback" => Ok(Device::Loopback),
            None if word == "shm" => Ok(Device::Shm(None)),
            None if word == "udp" => Ok(Device::Udp((Ipv4Addr::UNSPECIFIED, UDP_PORT).into())),
            Some(("shm", name)) if (1..=NAME_BYTES_MAX).contains(&name.len()) => {
                Ok(Device::Shm(Some(name.into())))
            }
            Some(("udp", address)) => {
                address_and_port(address, UDP_PORT).map(Device::Udp).ok_or_else(unknown)
            }
            _ => Err(unknown()),
        }
    }
}

/// Parses `ADDRESS`, with the default port, or `ADDRESS:PORT`.
fn address_and_port(word: &str, usual: u16) -> Option<SocketAddr> {
    word.parse().ok().or_else(|| word.parse::<IpAddr>().ok().map(|address| (address, usual).into()))
}

/// The host part of an address. Its form depends on the kind of device.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum HostAddress {
    /// This NIC itself.
    Loopback,
    /// A name in shared memory.
    Name(Vec<u8>),
    /// A UDP address and port.
    Udp(SocketAddr),
    /// A TCP address and port, reached through a board.
    Board(SocketAddr),
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostAddress::Loopback => f.write_str("loopback"),
            HostAddress::Name(name) => write!(f, "shm:{}", String::from_utf8_lossy(name)),
            HostAddress::Udp(address) => write!(f, "udp:{address}"),
            HostAddress::Board(address) => write!(f, "board@{address}"),
        }
    }
}

impl FromStr for HostAddress {
    type Err = OpenError;

    /// Parses the same notation as [`Device`]. A shared-memory host needs a name. A board's name is given
    /// only when a NIC is opened, not in an address to call.
    fn from_str(word: &str) -> Result<HostAddress, OpenError> {
        match word.parse::<Device>()? {
            Device::Loopback => Ok(HostAddress::Loopback),
            Device::Shm(Some(name)) => Ok(HostAddress::Name(name.into_bytes())),
            Device::Udp(address) => Ok(HostAddress::Udp(address)),
            Device::Board { name: None, at } => Ok(HostAddress::Board(at)),
            Device::Shm(None) | Device::Board { name: Some(_), .. } => Err(OpenError::NoHost(word.into())),
        }
    }
}

impl HostAddress {
    /// Encodes the address: empty, a name, or an IP address and a port.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            HostAddress::Loopback => Vec::new(),
            HostAddress::Name(name) => name.clone(),
            HostAddress::Udp(address) | HostAddress::Board(address) => {
                let mut bytes = match address.ip() {
                    IpAddr::V4(ip) => ip.octets().to_vec(),
                    IpAddr::V6(ip) => ip.octets().to_vec(),
                };
                bytes.extend_from_slice(&address.port().to_be_bytes());
                bytes
            }
        }
    }

    /// Decodes an address of the same kind as this one.
    pub fn like(&self, bytes: &[u8]) -> Option<HostAddress> {
        match self {
            HostAddress::Loopback => bytes.is_empty().then_some(HostAddress::Loopback),
            HostAddress::Name(_) => {
                (1..=NAME_BYTES_MAX).contains(&bytes.len()).then(|| HostAddress::Name(bytes.to_vec()))
            }
            HostAddress::Udp(_) => socket_of(bytes).map(HostAddress::Udp),
            HostAddress::Board(_) => socket_of(bytes).map(HostAddress::Board),
        }
    }
}

/// Decodes an IP address and a port.
fn socket_of(bytes: &[u8]) -> Option<SocketAddr> {
    let (ip, port) = bytes.split_last_chunk::<2>()?;
    let ip = match ip.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(ip).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(ip).ok()?),
        _ => return None,
    };
    Some((ip, u16::from_be_bytes(*port)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_addresses_round_trip_as_text() {
        for word in [
            "loopback",
            "shm",
            "shm:server",
            "udp:192.0.2.1:99",
            "udp:[2001:db8::1]:7",
            "board:lab@192.0.2.1:99",
            "board:lab-2_b@[2001:db8::1]:7",
            "board@192.0.2.1:0",
            "board@[2001:db8::1]:7",
        ] {
            assert_eq!(word.parse::<Device>().expect("a device").to_string(), word);
        }
        for (short, word) in [
            ("udp:192.0.2.1", "udp:192.0.2.1:4808"),
            ("board:lab@192.0.2.1", "board:lab@192.0.2.1:4808"),
            ("board@192.0.2.1", "board@192.0.2.1:4808"),
            ("board:lab@2001:db8::1", "board:lab@[2001:db8::1]:4808"),
        ] {
            assert_eq!(short.parse::<Device>().expect("a device").to_string(), word);
        }
        for word in [
            "",
            "shm:",
            "udp:",
            "udp:name",
            "nic0",
            "loopback:1",
            "board",
            "board:lab",
            "board:@192.0.2.1",
            "board:../lab@192.0.2.1",
            "boardlab@192.0.2.1",
            "board@",
            "board@name",
            "board:192.0.2.1:99",
            "board@192.0.2.1:65536",
        ] {
            let error = word.parse::<Device>().expect_err(word).to_string();
            assert!(error.contains("use loopback, shm") && error.contains("board:NAME@ADDRESS"), "{error}");
        }
        for word in [
            "loopback",
            "shm:server",
            "udp:192.0.2.1:99",
            "udp:[2001:db8::1]:7",
            "board@192.0.2.1:99",
            "board@[2001:db8::1]:7",
        ] {
            let address: HostAddress = word.parse().expect("an address");
            assert_eq!(address.to_string(), word);
            assert_eq!(address.like(&address.to_bytes()), Some(address));
        }
        for word in ["shm", "board:lab@192.0.2.1"] {
            let error = word.parse::<HostAddress>().expect_err(word).to_string();
            assert!(error.contains("is not a valid host") && error.contains("board@ADDRESS"), "{error}");
        }
        assert_eq!(HostAddress::Loopback.like(b"x"), None);
        assert_eq!(HostAddress::Udp(([0; 4], 0).into()).like(b"x"), None);
        assert_eq!(HostAddress::Board(([0; 4], 0).into()).like(b"x"), None);
    }
}
