//! Formats addresses as they are typed.

use super::parse::{RATES, TIMES, whole};
use super::types::{Address, Ends, Host, Options, Transport};
use crate::cells::connection::Role;
use crate::pcap::{RecordFilter, Speed, UnitKind};
use kiban_atm::wire::atm::Vc;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { name, port } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
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
            Transport::TapFile(number) => write!(f, "tap-fd:{number}"),
            Transport::Packet(name) => write!(f, "packet:{name}"),
            Transport::Xdp(name) => write!(f, "xdp:{name}"),
            Transport::Udp(holds, Ends { local, peer }) => write!(f, "udp-{}:{local}-{peer}", unit(holds)),
            Transport::Tcp(holds, role, host) => write!(f, "tcp-{}:{}{host}", unit(holds), listen(role)),
            Transport::AtmTcp(role, host) => write!(f, "atmtcp:{}{host}", listen(role)),
            Transport::Pseudowire(Ends { local, peer }) => write!(f, "pseudowire:{local}-{peer}"),
            Transport::Unix(role, path) => write!(f, "unix-frames:{}{}", listen(role), EscapedPath(path)),
            Transport::UnixDatagrams(own, peer) => {
                write!(f, "unix-datagrams:{}:{}", EscapedPath(own), EscapedPath(peer))
            }
            Transport::Pcap(file) => write!(f, "pcap:{}", Escaped(file)),
        }
    }
}

/// A file name, escaped as in an address.
pub(super) struct Escaped<'a>(&'a PathBuf);

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

/// The path of a Unix socket, escaped as in an address.
struct EscapedPath<'a>(&'a PathBuf);

impl fmt::Display for EscapedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Escaped(self.0).to_string().replace(':', "%3A"))
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
