//! Link addresses, as operators write them: `KIND:TARGET`, then options.
//!
//! ```text
//! tun:kiban0    tap:kiban0    packet:eth1    xdp:eth1
//! udp-packets:LOCAL-PEER      udp-frames:LOCAL-PEER      udp-cells:LOCAL-PEER       pseudowire:LOCAL-PEER,label=1000
//! tcp-packets:HOST:PORT       tcp-frames:HOST:PORT       tcp-cells:HOST:PORT        atmtcp:HOST:PORT
//! tcp-frames:listen:HOST:PORT                                                       atmtcp:listen:HOST:PORT
//! pcap:FILE
//! ```
//!
//! Ends             LOCAL is an IP address of this host and a port, and PEER is a host and a port:
//!                  `0.0.0.0:7000-192.0.2.1:7000`, `[::]:7000-[2001:db8::1]:7000`. A numeric address contains
//!                  no '-', so the first '-' separates the two.
//! Options          each option is written `,key=value`; `?key=value&key=value` means the same.
//!                  `tun:kiban0,loss=1%,delay=5ms` needs no shell quoting. In a file name `%2C` is a comma,
//!                  `%3F` a question mark, `%25` a percent sign.
//! Errors           messages say what is wrong and how to correct it.
//! Display          an address is displayed as it would be typed, with only the options that differ from the
//!                  default.

use super::cells::atmtcp;
use super::cells::atmtcp::AtmTcp;
use super::cells::connection::Role;
use super::cells::pseudowire;
use super::cells::pseudowire::{Pseudowire, PseudowireConfig};
use super::cells::stream::{TcpUnits, UdpUnits};
use super::cells::udp_cells::{PACKED_CELLS, PACKED_CELLS_MAX, UdpCells};
use super::frames::ethernet::EthernetLink;
use super::frames::tun::{TunLink, TunMode};
use super::frames::xdp::XdpLink;
use super::impair::{ImpairConfig, Impaired};
use super::pcap::{Capture, RecordFilter, Replay, Speed, UnitKind};
use super::record::Recorded;
use super::unit::Unit;
use super::{Link, LinkTraits};
use kiban_atm::TimedCell;
use kiban_atm::wire::atm::Vc;
use kiban_base::Pdu;
use kiban_base::ethernet::{HEADER_BYTES, Mac};
use kiban_board::impairment::ImpairmentConfig;
use kiban_os::interface;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The default MTU of a link over TCP, and of a capture.
const MTU_BYTES: usize = 1500;
/// The default MTU over UDP. A packet of this length, in a datagram over IPv6, fits into 1500 bytes.
const UDP_MTU_BYTES: usize = 1452;

/// The address of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Address {
    /// The transport that carries the units, and its address.
    pub transport: Transport,
    /// The options.
    pub options: Options,
}

/// The transport of a link's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A TUN device: IP packets to and from this host's kernel.
    Tun(String),
    /// A TAP device: Ethernet frames to and from this host's kernel.
    Tap(String),
    /// Ethernet frames on an interface of this host.
    Packet(String),
    /// Ethernet frames on one queue of an interface, bypassing the kernel's stack.
    Xdp(String),
    /// Packets, frames or 53-byte cells in UDP datagrams.
    Udp(UnitKind, Ends),
    /// Packets, frames or cells on a TCP connection.
    Tcp(UnitKind, Role, Host),
    /// Linux's atmtcp protocol.
    AtmTcp(Role, Host),
    /// Cells in an RFC 4717 pseudowire.
    Pseudowire(Ends),
    /// A capture file.
    Pcap(PathBuf),
}

/// The local address and the peer of a UDP link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// An address of this host.
    pub local: SocketAddr,
    /// The peer.
    pub peer: Host,
}

/// A host, by name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name or address.
    pub name: String,
    /// The port.
    pub port: u16,
}

/// Options of a link; `None` or zero means the link's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Whether large segments pass through uncut, if the link can carry them. By default they do, unless the
    /// link is impaired.
    pub offload: Option<bool>,
    /// Whether frames for all MAC addresses are received (promiscuous mode).
    pub promiscuous: bool,
    /// The queue number of an interface.
    pub device_queue: Option<u32>,
    /// Maximum length of an IP packet, for links that cannot determine the length themselves.
    pub mtu: Option<usize>,
    /// Cells per datagram.
    pub packed: Option<usize>,
    /// The label of sent packets, and also of received packets unless another is given.
    pub label: Option<u32>,
    /// The label of received packets, if it differs from the label of sent packets.
    pub label_in: Option<u32>,
    /// Whether a pseudowire's packets have a control word.
    pub control_word: bool,
    /// Whether a pseudowire's packets have sequence numbers.
    pub sequence: Option<bool>,
    /// Cells per pseudowire packet.
    pub cells: Option<usize>,
    /// Circuits that use AAL0.
    pub aal0: Vec<Vc>,
    /// Which records of a capture are replayed.
    pub take: RecordFilter,
    /// The speed of a replay.
    pub speed: Speed,
    /// The file to record to.
    pub record: Option<PathBuf>,
    /// The fraction of units that are lost.
    pub loss: f64,
    /// The fraction of units in which a bit is flipped.
    pub corrupt: f64,
    /// The fraction of units that are duplicated.
    pub duplicate: f64,
    /// The fraction of units that are held back, each for up to `hold`.
    pub reorder: f64,
    /// The longest time that units are held back; the default is a millisecond.
    pub hold: Option<Duration>,
    /// The one-way delay of a unit.
    pub delay: Duration,
    /// The maximum additional delay.
    pub jitter: Duration,
    /// The rate, bit/s.
    pub rate: Option<u64>,
    /// Maximum number of units that wait for the line.
    pub queue: Option<usize>,
    /// The seed of the impairments.
    pub seed: Option<u64>,
}

/// An invalid address, with the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressError(String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AddressError {}

/// An open link.
pub enum AnyLink {
    /// A link of IP packets, for an IP port.
    Packets(Box<dyn Link<Pdu>>),
    /// A link of Ethernet frames, for an Ethernet port.
    Frames(Box<dyn Link<Pdu>>),
    /// A link of cells, for an ATM port.
    Cells(Box<dyn Link<TimedCell>>),
}

impl AnyLink {
    /// Returns the link's properties.
    pub fn traits(&self) -> LinkTraits {
        match self {
            AnyLink::Packets(link) | AnyLink::Frames(link) => link.traits(),
            AnyLink::Cells(link) => link.traits(),
        }
    }

    /// Returns the kind of the link's units.
    pub fn unit_kind(&self) -> UnitKind {
        match self {
            AnyLink::Packets(_) => UnitKind::Packets,
            AnyLink::Frames(_) => UnitKind::Frames,
            AnyLink::Cells(_) => UnitKind::Cells,
        }
    }
}

impl fmt::Debug for AnyLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyLink({:?}, {:?})", self.unit_kind(), self.traits())
    }
}

/// Every kind of link: its name, the form of its address, and its options beyond the common ones.
const KINDS: [(&str, &str, &[&str]); 12] = [
    ("tun", "tun:NAME", &["offload"]),
    ("tap", "tap:NAME", &["offload"]),
    ("packet", "packet:INTERFACE", &["offload", "promiscuous"]),
    ("xdp", "xdp:INTERFACE", &["queue", "promiscuous"]),
    ("udp-packets", "udp-packets:LOCAL-PEER", &["mtu"]),
    ("udp-frames", "udp-frames:LOCAL-PEER", &["mtu"]),
    ("udp-cells", "udp-cells:LOCAL-PEER", &["packed"]),
    ("tcp-packets", "tcp-packets:[listen:]HOST:PORT", &["mtu"]),
    ("tcp-frames", "tcp-frames:[listen:]HOST:PORT", &["mtu"]),
    ("tcp-cells", "tcp-cells:[listen:]HOST:PORT", &[]),
    ("atmtcp", "atmtcp:[listen:]HOST:PORT", &["aal0"]),
    (
        "pseudowire",
        "pseudowire:LOCAL-PEER,label=LABEL",
        &["label", "label-in", "control-word", "sequence", "cells"],
    ),
];
const PCAP: (&str, &str, &[&str]) = ("pcap", "pcap:FILE", &["take", "speed", "mtu"]);
/// Options of every kind.
const COMMON: [&str; 11] =
    ["record", "loss", "corrupt", "duplicate", "reorder", "hold", "delay", "jitter", "rate", "queue", "seed"];

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        parse(text).map_err(|what| AddressError(format!("link address '{text}': {what}")))
    }
}

fn parse(text: &str) -> Result<Address, String> {
    let kinds = || KINDS.iter().chain([&PCAP]);
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    let Some((kind, form, own)) = kinds().find(|its| its.0 == kind) else {
        let forms: Vec<&str> = kinds().map(|its| its.1).collect();
        let hint = match kind {
            "tcp" | "udp" => " (add what it carries: -packets, -frames or -cells)",
            _ => "",
        };
        return Err(format!("unknown kind '{kind}'{hint}; write one of {}", forms.join(", ")));
    };
    let (target, list) = match rest.find([',', '?']) {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, ""),
    };
    if target.is_empty() {
        return Err(format!("missing target; write {form}"));
    }
    let carrier = match *kind {
        "tun" => Transport::Tun(interface_name(target)?),
        "tap" => Transport::Tap(interface_name(target)?),
        "packet" => Transport::Packet(interface_name(target)?),
        "xdp" => Transport::Xdp(interface_name(target)?),
        "udp-packets" => Transport::Udp(UnitKind::Packets, ends(target, None)?),
        "udp-frames" => Transport::Udp(UnitKind::Frames, ends(target, None)?),
        "udp-cells" => Transport::Udp(UnitKind::Cells, ends(target, None)?),
        "pseudowire" => Transport::Pseudowire(ends(target, Some(pseudowire::PORT))?),
        "pcap" => Transport::Pcap(file_name(target)?),
        _ => {
            let (role, target) = match target.strip_prefix("listen:") {
                Some(target) => (Role::Listen, target),
                None => (Role::Call, target),
            };
            match *kind {
                "atmtcp" => Transport::AtmTcp(role, host(target, Some(atmtcp::PORT))?),
                "tcp-packets" => Transport::Tcp(UnitKind::Packets, role, host(target, None)?),
                "tcp-frames" => Transport::Tcp(UnitKind::Frames, role, host(target, None)?),
                _ => Transport::Tcp(UnitKind::Cells, role, host(target, None)?),
            }
        }
    };
    let mut options = Options::default();
    let mut seen = Vec::new();
    for pair in list.split([',', '&']).filter(|pair| !pair.is_empty()) {
        let (key, value) = match pair.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (pair, None),
        };
        if !own.contains(&key) && !COMMON.contains(&key) {
            let known: Vec<&str> = own.iter().chain(&COMMON).copied().collect();
            return Err(format!("{kind} has no option '{key}'; it has {}", known.join(", ")));
        }
        if seen.contains(&key) {
            return Err(format!("duplicate option '{key}'"));
        }
        seen.push(key);
        // For `xdp`, the option `queue` is a queue of the interface. For all other links, it is the queue of
        // the impairment.
        let key = if (*kind, key) == ("xdp", "queue") { "device-queue" } else { key };
        set(&mut options, key, value)?;
    }
    if matches!(carrier, Transport::Pseudowire(_)) && options.label.is_none() {
        return Err("missing label; use the same one at both ends, such as label=1000".to_owned());
    }
    let address = Address { transport: carrier, options };
    if address.is_impaired() && address.options.offload == Some(true) {
        return Err("offload=on cannot be combined with impairments, which apply to single packets, not to \
                    segments of 64 KB; remove offload=on"
            .to_owned());
    }
    Ok(address)
}

/// Sets an option.
fn set(options: &mut Options, key: &str, value: Option<&str>) -> Result<(), String> {
    // These options may be given without a value.
    match (key, value) {
        ("packed", None) => {
            options.packed = Some(PACKED_CELLS);
            return Ok(());
        }
        ("promiscuous", _) => return switch(key, value).map(|on| options.promiscuous = on),
        ("control-word", _) => return switch(key, value).map(|on| options.control_word = on),
        _ => {}
    }
    // Keep the option's name as the operator typed it.
    let name = key.strip_prefix("device-").unwrap_or(key);
    let value = value.filter(|value| !value.is_empty());
    let value =
        value.ok_or_else(|| format!("option '{name}' has no value; write {name}={}", example(key)))?;
    let wrong = || format!("{key}={value}: write {key}={}", example(key));
    let number = |least: u64, most: u64| {
        let number = value.parse::<u64>().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("{name}={value}: write a number from {least} to {most}"))
    };
    match key {
        "offload" => options.offload = Some(switch(key, Some(value))?),
        "sequence" => options.sequence = Some(switch(key, Some(value))?),
        "mtu" => options.mtu = Some(number(68, 65_535)? as usize),
        "packed" => options.packed = Some(number(1, PACKED_CELLS_MAX as u64)? as usize),
        "label" | "label-in" => {
            let label = number(pseudowire::LABEL_FIRST.into(), pseudowire::LABEL_MAX.into())? as u32;
            *(if key == "label" { &mut options.label } else { &mut options.label_in }) = Some(label);
        }
        "device-queue" => options.device_queue = Some(number(0, 4095)? as u32),
        "cells" => options.cells = Some(number(1, pseudowire::CELLS_MAX as u64)? as usize),
        "aal0" => {
            let circuits: Result<Vec<Vc>, _> = value.split('+').map(str::parse).collect();
            options.aal0 = circuits.map_err(|_| wrong())?;
        }
        "take" => {
            options.take = match value {
                "received" => RecordFilter::Received,
                "sent" => RecordFilter::Sent,
                "all" => RecordFilter::All,
                _ => return Err(wrong()),
            }
        }
        "speed" => {
            options.speed = match value {
                "times" => Speed::Times,
                "fast" => Speed::Fast,
                _ => return Err(wrong()),
            }
        }
        "record" => options.record = Some(file_name(value)?),
        "loss" => options.loss = share(value).ok_or_else(wrong)?,
        "corrupt" => options.corrupt = share(value).ok_or_else(wrong)?,
        "duplicate" => options.duplicate = share(value).ok_or_else(wrong)?,
        "reorder" => options.reorder = share(value).ok_or_else(wrong)?,
        "hold" => options.hold = Some(time(value).ok_or_else(wrong)?),
        "delay" => options.delay = time(value).ok_or_else(wrong)?,
        "jitter" => options.jitter = time(value).ok_or_else(wrong)?,
        "rate" => options.rate = Some(scaled(value, &RATES).filter(|rate| *rate > 0).ok_or_else(wrong)?),
        "queue" => options.queue = Some(number(1, 1_000_000)? as usize),
        "seed" => options.seed = Some(number(0, u64::MAX)?),
        _ => unreachable!("every option of the tables is handled"),
    }
    Ok(())
}

/// Returns an example of an option's value.
fn example(key: &str) -> &'static str {
    match key {
        "offload" | "sequence" => "off (or on)",
        "mtu" => "9180",
        "packed" => "27",
        "label" | "label-in" => "1000",
        "cells" => "27",
        "aal0" => "0.42+0.43",
        "take" => "received (or sent, all)",
        "speed" => "fast (or times)",
        "record" => "FILE",
        "loss" | "corrupt" | "duplicate" | "reorder" => "0.5%",
        "hold" | "delay" | "jitter" => "5ms (or s, us, ns)",
        "rate" => "10Mbit (or bit, kbit, Gbit)",
        "queue" => "1000",
        _ => "7",
    }
}

fn switch(key: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("on") => Ok(true),
        Some("off") => Ok(false),
        Some(value) => Err(format!("{key}={value}: write {key}=on or {key}=off")),
    }
}

fn interface_name(text: &str) -> Result<String, String> {
    interface::request(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// Decodes the percent escapes of a file name.
fn file_name(text: &str) -> Result<PathBuf, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(
            code.ok_or_else(|| format!("file '{text}': write %25 for a percent sign, %2C for a comma"))?,
        );
        rest = &after[2..];
    }
    String::from_utf8(bytes).map(PathBuf::from).map_err(|_| format!("file '{text}' is not UTF-8"))
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("'{text}' is not a port; write 0 to 65535"))
}

fn host(text: &str, default: Option<u16>) -> Result<Host, String> {
    let form =
        || format!("'{text}' is not a host and port; write 192.0.2.1:7000, [2001:db8::1]:7000 or name:7000");
    let (name, its_port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, behind) = rest.split_once(']').ok_or_else(form)?;
            name.parse::<std::net::Ipv6Addr>().map_err(|_| form())?;
            (name, behind.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((name, its_port)) => (name, Some(its_port)),
            None => (text, None),
        },
    };
    let its_port = match (its_port, default) {
        (Some(its_port), _) => port(its_port)?,
        (None, Some(port)) => port,
        (None, None) => return Err(form()),
    };
    if name.is_empty() {
        return Err(form());
    }
    Ok(Host { name: name.to_owned(), port: its_port })
}

fn ends(text: &str, default: Option<u16>) -> Result<Ends, String> {
    let form =
        "write both ends, this host's first: 0.0.0.0:7000-192.0.2.1:7000, or [::]:7000-[2001:db8::1]:7000";
    let (local, peer) = text.split_once('-').ok_or_else(|| format!("'{text}' has only one end; {form}"))?;
    let local = host(local, default).map_err(|error| format!("{error}; {form}"))?;
    let address: IpAddr = local
        .name
        .parse()
        .map_err(|_| format!("this host's end '{}' is a name, not an address; {form}", local.name))?;
    let peer = host(peer, default).map_err(|error| format!("{error}; {form}"))?;
    Ok(Ends { local: SocketAddr::new(address, local.port), peer })
}

fn share(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok()? / 100.0,
        // A value without a percent sign is a fraction. A value of 1 or more was probably meant as a
        // percentage, so it is rejected.
        None => text.parse().ok().filter(|share| *share < 1.0)?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

const TIMES: [(&str, u64); 4] = [("ms", 1_000_000), ("us", 1000), ("ns", 1), ("s", 1_000_000_000)];
const RATES: [(&str, u64); 4] = [("kbit", 1000), ("Mbit", 1_000_000), ("Gbit", 1_000_000_000), ("bit", 1)];

fn time(text: &str) -> Option<Duration> {
    scaled(text, &TIMES).map(Duration::from_nanos)
}

/// Parses a number with a unit, with or without a fraction, and returns it in the smallest unit.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, scale) = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let parts = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? };
    let part = u128::from(parts) * u128::from(scale) / 10u128.pow(fraction.len() as u32);
    whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(part as u64)
}

/// Formats a number in the largest unit in which it is an integer.
fn whole(number: u64, units: &[(&str, u64)]) -> String {
    let unit = units.iter().filter(|unit| number.is_multiple_of(unit.1)).max_by_key(|unit| unit.1);
    let (unit, scale) = unit.expect("every number is whole in the least unit");
    format!("{}{unit}", number / scale)
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { name, port } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

impl Host {
    /// Resolves the host to its addresses.
    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let say = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot find host {}: {error}", self.name))
        };
        let addresses: Vec<SocketAddr> =
            (self.name.as_str(), self.port).to_socket_addrs().map_err(say)?.collect();
        if addresses.is_empty() {
            return Err(say(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
        }
        Ok(addresses)
    }
}

impl Ends {
    /// Resolves the peer to an address of the same family as the local address.
    fn peer(&self) -> io::Result<SocketAddr> {
        let addresses = self.peer.resolve()?;
        let same = addresses.iter().find(|address| address.is_ipv4() == self.local.is_ipv4());
        same.or(addresses.first()).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = |holds: &UnitKind| match holds {
            UnitKind::Packets => "packets",
            UnitKind::Frames => "frames",
            UnitKind::Cells => "cells",
        };
        let listen = |role: &Role| if *role == Role::Listen { "listen:" } else { "" };
        match self {
            Transport::Tun(name) => write!(f, "tun:{name}"),
            Transport::Tap(name) => write!(f, "tap:{name}"),
            Transport::Packet(name) => write!(f, "packet:{name}"),
            Transport::Xdp(name) => write!(f, "xdp:{name}"),
            Transport::Udp(holds, Ends { local, peer }) => write!(f, "udp-{}:{local}-{peer}", unit(holds)),
            Transport::Tcp(holds, role, host) => write!(f, "tcp-{}:{}{host}", unit(holds), listen(role)),
            Transport::AtmTcp(role, host) => write!(f, "atmtcp:{}{host}", listen(role)),
            Transport::Pseudowire(Ends { local, peer }) => write!(f, "pseudowire:{local}-{peer}"),
            Transport::Pcap(file) => write!(f, "pcap:{}", Escaped(file)),
        }
    }
}

/// A file name, escaped as in an address.
struct Escaped<'a>(&'a PathBuf);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.to_string_lossy().chars() {
            match letter {
                '%' | ',' | '?' | '&' => write!(f, "%{:02X}", letter as u32)?,
                _ => write!(f, "{letter}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options {
            offload, promiscuous, mtu, packed, label, label_in, control_word, sequence, cells, ..
        } = &self.options;
        let Options { aal0, take, speed, record, hold, delay, jitter, rate, queue, seed, .. } = &self.options;
        write!(f, "{}", self.transport)?;
        let mut say = |key: &str, value: Option<String>| match value {
            Some(value) => write!(f, ",{key}={value}"),
            None => Ok(()),
        };
        let switch = |on: &bool| if *on { "on" } else { "off" }.to_owned();
        let text = |number: &usize| number.to_string();
        let share = |share: f64| (share > 0.0).then(|| format!("{}%", (share * 1e14).round() / 1e12));
        let length = |length: &Duration| whole(length.as_nanos() as u64, &TIMES);
        say("offload", offload.as_ref().map(switch))?;
        say("promiscuous", promiscuous.then(|| "on".to_owned()))?;
        say("queue", self.options.device_queue.map(|queue| queue.to_string()))?;
        say("mtu", mtu.as_ref().map(text))?;
        say("packed", packed.as_ref().map(text))?;
        say("label", label.map(|label| label.to_string()))?;
        say("label-in", label_in.map(|label| label.to_string()))?;
        say("control-word", control_word.then(|| "on".to_owned()))?;
        say("sequence", sequence.as_ref().map(switch))?;
        say("cells", cells.as_ref().map(text))?;
        let circuits: Vec<String> = aal0.iter().map(Vc::to_string).collect();
        say("aal0", (!circuits.is_empty()).then(|| circuits.join("+")))?;
        say(
            "take",
            match take {
                RecordFilter::Received => None,
                RecordFilter::Sent => Some("sent".to_owned()),
                RecordFilter::All => Some("all".to_owned()),
            },
        )?;
        say("speed", (*speed == Speed::Fast).then(|| "fast".to_owned()))?;
        say("record", record.as_ref().map(|file| Escaped(file).to_string()))?;
        say("loss", share(self.options.loss))?;
        say("corrupt", share(self.options.corrupt))?;
        say("duplicate", share(self.options.duplicate))?;
        say("reorder", share(self.options.reorder))?;
        say("hold", hold.as_ref().map(length))?;
        say("delay", (!delay.is_zero()).then(|| length(delay)))?;
        say("jitter", (!jitter.is_zero()).then(|| length(jitter)))?;
        say("rate", rate.map(|rate| whole(rate, &RATES)))?;
        say("queue", queue.as_ref().map(text))?;
        say("seed", seed.map(|seed| seed.to_string()))
    }
}

impl Address {
    /// Returns the MAC address that a board on this link must use; `None` if the board chooses one.
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn mac(&self) -> io::Result<Option<Mac>> {
        match &self.transport {
            Transport::Packet(name) | Transport::Xdp(name) => interface::mac(name).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns whether units are impaired deliberately.
    pub fn is_impaired(&self) -> bool {
        let Options { loss, corrupt, duplicate, reorder, delay, jitter, rate, .. } = &self.options;
        [loss, corrupt, duplicate, reorder].iter().any(|share| **share > 0.0)
            || !delay.is_zero()
            || !jitter.is_zero()
            || rate.is_some()
    }

    /// Opens the link.
    ///
    /// # Errors
    /// The link cannot be opened; the message says why and how to fix it.
    pub fn open(&self) -> io::Result<AnyLink> {
        let options = &self.options;
        let offload = options.offload.unwrap_or(!self.is_impaired());
        let name = self.transport.to_string();
        let mtu = options.mtu.unwrap_or(MTU_BYTES);
        let udp_mtu = |holds: UnitKind| {
            let taken = if holds == UnitKind::Frames { HEADER_BYTES } else { 0 };
            options.mtu.unwrap_or(UDP_MTU_BYTES - taken)
        };
        Ok(match &self.transport {
            Transport::Tun(name) => self.packets(TunLink::open(name, TunMode::Packets, offload)?)?,
            Transport::Tap(name) => self.frames(TunLink::open(name, TunMode::Frames, offload)?)?,
            Transport::Packet(name) => {
                self.frames(EthernetLink::open(name, offload, options.promiscuous)?)?
            }
            Transport::Xdp(name) => {
                let queue = options.device_queue.unwrap_or(0);
                self.frames(XdpLink::open(name, queue, options.promiscuous)?)?
            }
            Transport::Udp(UnitKind::Cells, ends) => {
                self.cells(UdpCells::open(ends.local, ends.peer()?, options.packed.unwrap_or(1))?)?
            }
            Transport::Udp(holds, ends) => {
                let link = UdpUnits::open(ends.local, ends.peer()?, &name, udp_mtu(*holds))?;
                if *holds == UnitKind::Frames { self.frames(link)? } else { self.packets(link)? }
            }
            Transport::Tcp(holds, role, host) => {
                let addresses = &host.resolve()?;
                match holds {
                    UnitKind::Packets => self.packets(TcpUnits::open(*role, addresses, &name, mtu)?)?,
                    UnitKind::Frames => self.frames(TcpUnits::open(*role, addresses, &name, mtu)?)?,
                    UnitKind::Cells => self.cells(TcpUnits::open(*role, addresses, &name, 0)?)?,
                }
            }
            Transport::AtmTcp(role, host) => {
                self.cells(AtmTcp::open(*role, &host.resolve()?, &name, &options.aal0)?)?
            }
            Transport::Pseudowire(ends) => {
                let label = options.label.unwrap_or(pseudowire::LABEL_FIRST);
                let config = PseudowireConfig {
                    label,
                    label_in: options.label_in.unwrap_or(label),
                    control_word: options.control_word,
                    sequence: options.sequence.unwrap_or(true),
                    cells_max: options.cells.unwrap_or(pseudowire::CELLS),
                };
                self.cells(Pseudowire::open(ends.local, ends.peer()?, config)?)?
            }
            Transport::Pcap(file) => {
                let capture = Capture::open(file)?;
                let holds = capture.unit_kind();
                let replay = Replay::new(capture, options.take, options.speed, mtu);
                match holds {
                    Some(UnitKind::Cells) => self.cells(replay)?,
                    Some(UnitKind::Frames) => self.frames(replay)?,
                    _ => self.packets(replay)?,
                }
            }
        })
    }

    fn packets(&self, link: impl Link<Pdu> + 'static) -> io::Result<AnyLink> {
        Ok(AnyLink::Packets(self.around(Box::new(link), false)?))
    }

    fn frames(&self, link: impl Link<Pdu> + 'static) -> io::Result<AnyLink> {
        Ok(AnyLink::Frames(self.around(Box::new(link), true)?))
    }

    fn cells(&self, link: impl Link<TimedCell> + 'static) -> io::Result<AnyLink> {
        Ok(AnyLink::Cells(self.around(Box::new(link), false)?))
    }

    /// Wraps a link in its impairments, and then in a recorder, which records the traffic as the board sees
    /// it.
    fn around<U: Unit>(&self, link: Box<dyn Link<U>>, frames: bool) -> io::Result<Box<dyn Link<U>>> {
        let link: Box<dyn Link<U>> = match self.impairment() {
            Some(config) => Box::new(Impaired::new(link, config)),
            None => link,
        };
        Ok(match &self.options.record {
            Some(file) => Box::new(Recorded::new(link, file, frames)?),
            None => link,
        })
    }

    /// Returns the impairments, if there are any.
    fn impairment(&self) -> Option<ImpairConfig> {
        let Options { loss, corrupt, duplicate, reorder, hold, delay, jitter, rate, queue, seed, .. } =
            self.options;
        let usual = ImpairConfig::default();
        let impairment = ImpairmentConfig {
            loss,
            bit_error: corrupt,
            duplicate,
            reorder,
            hold_back: hold.unwrap_or(usual.impairment.hold_back),
            ..ImpairmentConfig::NONE
        };
        let units_max = queue.unwrap_or(usual.units_max);
        let seed = seed.unwrap_or(usual.seed);
        self.is_impaired().then_some(ImpairConfig { rate, delay, jitter, impairment, units_max, seed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_formatted_as_they_are_parsed() {
        for (text, back) in [
            ("tun:kiban0", None),
            ("tap:kiban0,offload=off", None),
            ("xdp:eth1,queue=2,loss=1%", None),
            ("packet:eth1,promiscuous", Some("packet:eth1,promiscuous=on")),
            ("udp-cells:0.0.0.0:7000-192.0.2.1:7000", None),
            (
                "udp-cells:0.0.0.0:7000-192.0.2.1:7000,packed",
                Some("udp-cells:0.0.0.0:7000-192.0.2.1:7000,packed=27"),
            ),
            ("udp-frames:[::]:7000-[2001:db8::1]:7001,mtu=1400", None),
            ("udp-packets:127.0.0.1:0-some-host.example:7000", None),
            ("tcp-frames:listen:0.0.0.0:7000", None),
            ("tcp-packets:some-host:7000", None),
            ("tcp-cells:[::1]:7000", None),
            ("atmtcp:listen:0.0.0.0", Some("atmtcp:listen:0.0.0.0:2812")),
            ("atmtcp:192.0.2.1:8401,aal0=0.42+0.43", None),
            (
                "pseudowire:0.0.0.0-192.0.2.1,label=1000",
                Some("pseudowire:0.0.0.0:6635-192.0.2.1:6635,label=1000"),
            ),
            (
                "pseudowire:[::]-[2001:db8::1]:6636?label=16&label-in=17&control-word&sequence=off&cells=5",
                Some(
                    "pseudowire:[::]:6635-[2001:db8::1]:6636,label=16,label-in=17,control-word=on,sequence=off,cells=5",
                ),
            ),
            ("pcap:captures/a%2Cb.pcap,take=all,speed=fast", None),
            (
                "tun:kiban0?loss=1%&delay=5ms&jitter=0.5ms&rate=10Mbit",
                Some("tun:kiban0,loss=1%,delay=5ms,jitter=500us,rate=10Mbit"),
            ),
            (
                "tun:k,record=/tmp/100%25.pcap,loss=0.03%,corrupt=0.00001%,duplicate=100%,reorder=7%,hold=2s,queue=5,seed=9",
                None,
            ),
            ("tun:k,loss=0.25,rate=149.76Mbit", Some("tun:k,loss=25%,rate=149760kbit")),
        ] {
            let address: Address = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(address.to_string(), back.unwrap_or(text));
            assert_eq!(address.to_string().parse(), Ok(address));
        }
    }

    #[test]
    fn errors_show_a_correct_address() {
        for (text, says) in [
            ("", "unknown kind ''"),
            ("kiban0", "write one of tun:NAME, tap:NAME"),
            ("xdp:eth0,queue=-1", "write a number from 0 to 4095"),
            ("xdp:eth0,offload=off", "xdp has no option 'offload'; it has queue, promiscuous, record"),
            ("udp:0.0.0.0:1-192.0.2.1:2", "add what it carries: -packets, -frames or -cells"),
            ("tun:", "write tun:NAME"),
            ("tun:a-name-that-is-too-long", "1 to 15 bytes"),
            (
                "udp-cells:192.0.2.1:7000",
                "has only one end; write both ends, this host's first: 0.0.0.0:7000-192.0.2.1:7000",
            ),
            ("udp-cells:my-host:7000-192.0.2.1:7000", "write both ends"),
            ("udp-cells:0.0.0.0:7000-192.0.2.1", "write 192.0.2.1:7000"),
            ("udp-cells:0.0.0.0:70000-192.0.2.1:7000", "'70000' is not a port; write 0 to 65535"),
            ("udp-cells:::1:7000-::2:7000", "[2001:db8::1]:7000"),
            ("pseudowire:0.0.0.0-192.0.2.1", "label=1000"),
            ("pseudowire:0.0.0.0-192.0.2.1,label=3", "16 to 1048575"),
            ("tun:k,los=1%", "tun has no option 'los'; it has offload, record, loss"),
            ("tun:k,packed", "tun has no option 'packed'"),
            ("tun:k,loss=1%,loss=2%", "duplicate option 'loss'"),
            ("tun:k,loss=101%", "write loss=0.5%"),
            ("tun:k,loss", "option 'loss' has no value; write loss=0.5%"),
            ("tun:k,delay=5", "write delay=5ms (or s, us, ns)"),
            ("tun:k,delay=-5ms", "write delay=5ms"),
            ("tun:k,rate=0Mbit", "write rate=10Mbit"),
            ("tun:k,rate=10Mbps", "write rate=10Mbit (or bit, kbit, Gbit)"),
            ("tun:k,offload=yes", "write offload=on or offload=off"),
            ("tun:k,offload=on,loss=1%", "remove offload=on"),
            ("pcap:a%b.pcap", "write %25 for a percent sign"),
            ("pcap:a.pcap,speed=slow", "write speed=fast (or times)"),
            ("tcp-cells:listen:7000", "write 192.0.2.1:7000"),
        ] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains(says), "{error}");
            assert!(error.starts_with(&format!("link address '{text}': ")), "{error}");
        }
    }
}
