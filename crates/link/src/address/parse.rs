//! Parses addresses.

use super::types::{Address, AddressError, Ends, Host, Options, Transport};
use crate::cells::atmtcp;
use crate::cells::connection::Role;
use crate::cells::pseudowire;
use crate::cells::udp_cells::{PACKED_CELLS, PACKED_CELLS_MAX};
use crate::pcap::{RecordFilter, Speed, UnitKind};
use kiban_atm::wire::atm::Vc;
use kiban_os::interface;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Every kind of link: its name, the form of its address, and its options beyond the common ones.
pub(super) const KINDS: [(&str, &str, &[&str]); 15] = [
    ("tun", "tun:NAME", &["offload"]),
    ("tap", "tap:NAME", &["offload"]),
    ("tap-fd", "tap-fd:NUMBER", &["mtu"]),
    ("packet", "packet:INTERFACE", &["offload", "promiscuous"]),
    ("xdp", "xdp:INTERFACE", &["queue", "promiscuous"]),
    ("udp-packets", "udp-packets:LOCAL-PEER", &["mtu"]),
    ("udp-frames", "udp-frames:LOCAL-PEER", &["mtu"]),
    ("udp-cells", "udp-cells:LOCAL-PEER", &["packed"]),
    ("tcp-packets", "tcp-packets:[listen:]HOST:PORT", &["mtu"]),
    ("tcp-frames", "tcp-frames:[listen:]HOST:PORT", &["mtu"]),
    ("tcp-cells", "tcp-cells:[listen:]HOST:PORT", &[]),
    ("unix-frames", "unix-frames:[listen:]PATH", &["mtu"]),
    ("unix-datagrams", "unix-datagrams:PATH:PEER-PATH", &["mtu"]),
    ("atmtcp", "atmtcp:[listen:]HOST:PORT", &["aal0"]),
    (
        "pseudowire",
        "pseudowire:LOCAL-PEER,label=LABEL",
        &["label", "label-in", "control-word", "sequence", "cells"],
    ),
];
pub(super) const PCAP: (&str, &str, &[&str]) = ("pcap", "pcap:FILE", &["take", "speed", "mtu"]);
/// Options of every kind.
pub(super) const COMMON: [&str; 11] =
    ["record", "loss", "corrupt", "duplicate", "reorder", "hold", "delay", "jitter", "rate", "queue", "seed"];

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        parse(text).map_err(|what| AddressError(format!("link address '{text}': {what}")))
    }
}

pub(super) fn parse(text: &str) -> Result<Address, String> {
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
        "tap-fd" => Transport::TapFile(descriptor(target)?),
        "packet" => Transport::Packet(interface_name(target)?),
        "xdp" => Transport::Xdp(interface_name(target)?),
        "udp-packets" => Transport::Udp(UnitKind::Packets, ends(target, None)?),
        "udp-frames" => Transport::Udp(UnitKind::Frames, ends(target, None)?),
        "udp-cells" => Transport::Udp(UnitKind::Cells, ends(target, None)?),
        "pseudowire" => Transport::Pseudowire(ends(target, Some(pseudowire::PORT))?),
        "unix-datagrams" => {
            let (own, peer) = target
                .split_once(':')
                .filter(|(own, peer)| !own.is_empty() && !peer.is_empty())
                .ok_or_else(|| format!("'{target}' names only one path; write {form}"))?;
            Transport::UnixDatagrams(file_name(own)?, file_name(peer)?)
        }
        "pcap" => Transport::Pcap(file_name(target)?),
        _ => {
            let (role, target) = match target.strip_prefix("listen:") {
                Some(target) => (Role::Listen, target),
                None => (Role::Call, target),
            };
            match *kind {
                "atmtcp" => Transport::AtmTcp(role, host(target, Some(atmtcp::PORT))?),
                "unix-frames" => Transport::Unix(role, file_name(target)?),
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

/// Parses the number of a descriptor; the first three are standard streams.
fn descriptor(text: &str) -> Result<i32, String> {
    let number = text.parse().ok().filter(|number| *number > 2);
    number.ok_or_else(|| format!("'{text}' is not the number of a descriptor above 2"))
}

/// Sets an option.
pub(super) fn set(options: &mut Options, key: &str, value: Option<&str>) -> Result<(), String> {
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
pub(super) fn example(key: &str) -> &'static str {
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

pub(super) fn switch(key: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("on") => Ok(true),
        Some("off") => Ok(false),
        Some(value) => Err(format!("{key}={value}: write {key}=on or {key}=off")),
    }
}

pub(super) fn interface_name(text: &str) -> Result<String, String> {
    interface::request(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// Decodes the percent escapes of a file name.
pub(super) fn file_name(text: &str) -> Result<PathBuf, String> {
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

pub(super) fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("'{text}' is not a port; write 0 to 65535"))
}

pub(super) fn host(text: &str, default: Option<u16>) -> Result<Host, String> {
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

pub(super) fn ends(text: &str, default: Option<u16>) -> Result<Ends, String> {
    let form =
        "write both ends, this host's first: 0.0.0.0:7000-192.0.2.1:7000, or [::]:7000-[2001:db8::1]:7000";
    let (local, peer) =
        text.split_once('-').ok_or_else(|| format!("'{text}' names only one endpoint; {form}"))?;
    let local = host(local, default).map_err(|error| format!("{error}; {form}"))?;
    let address: IpAddr = local
        .name
        .parse()
        .map_err(|_| format!("this host's end '{}' is a name, not an address; {form}", local.name))?;
    let peer = host(peer, default).map_err(|error| format!("{error}; {form}"))?;
    Ok(Ends { local: SocketAddr::new(address, local.port), peer })
}

pub(super) fn share(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok()? / 100.0,
        // A value without a percent sign is a fraction. A value of 1 or more was probably meant as a
        // percentage, so it is rejected.
        None => text.parse().ok().filter(|share| *share < 1.0)?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

pub(super) const TIMES: [(&str, u64); 4] = [("ms", 1_000_000), ("us", 1000), ("ns", 1), ("s", 1_000_000_000)];
pub(super) const RATES: [(&str, u64); 4] =
    [("kbit", 1000), ("Mbit", 1_000_000), ("Gbit", 1_000_000_000), ("bit", 1)];

pub(super) fn time(text: &str) -> Option<Duration> {
    scaled(text, &TIMES).map(Duration::from_nanos)
}

/// Parses a number with a unit, with or without a fraction, and returns it in the smallest unit.
pub(super) fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
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
pub(super) fn whole(number: u64, units: &[(&str, u64)]) -> String {
    let unit = units.iter().filter(|unit| number.is_multiple_of(unit.1)).max_by_key(|unit| unit.1);
    let (unit, scale) = unit.expect("every number is whole in the least unit");
    format!("{}{unit}", number / scale)
}
