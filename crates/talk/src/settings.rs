//! A script's settings by name, and the board configuration that results from them.

use crate::words::hint;
use kiban_base::{RngKey, SettingError};
use kiban_board::{BoardConfig, IpPortConfig, MemoryConfig, PortConfig};
use kiban_tcpip::ip::Prefix;
use kiban_tcpip::tcp;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A script's settings other than those that begin with `tcp.`.
const OTHERS: [&str; 9] = [
    "ip.mtu",
    "ip.family",
    "ip.packets_max",
    "memory.transmit_bytes",
    "memory.receive_bytes",
    "memory.page_bytes",
    "memory.pdus",
    "board.seed",
    "peer.initial",
];

/// The settings of a script.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    tcp: tcp::Config,
    /// The length of TCP's segments, if the script sets it.
    segment_bytes_max: Option<u32>,
    memory: MemoryConfig,
    mtu_bytes: usize,
    packets_max: usize,
    seed: u64,
    is_six: bool,
    pub(crate) peer_initial: u32,
}

impl Settings {
    pub(crate) fn new() -> Settings {
        Settings {
            tcp: tcp::Config::default(),
            segment_bytes_max: None,
            memory: MemoryConfig {
                page_bytes: 4096,
                transmit_bytes: 4 << 20,
                receive_bytes: 4 << 20,
                pdus: 2048,
            },
            mtu_bytes: 1500,
            packets_max: 256,
            seed: 1,
            is_six: false,
            peer_initial: crate::side::PEER_INITIAL,
        }
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// A message, if the setting is unknown or the value invalid.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number =
            || value.replace('_', "").parse::<u64>().map_err(|_| format!("`{value}` is not a number"));
        match name {
            "ip.mtu" => self.mtu_bytes = number()? as usize,
            "ip.family" => self.is_six = number()? == 6,
            "ip.packets_max" => self.packets_max = number()? as usize,
            "memory.transmit_bytes" => self.memory.transmit_bytes = number()? as usize,
            "memory.receive_bytes" => self.memory.receive_bytes = number()? as usize,
            "memory.page_bytes" => self.memory.page_bytes = number()? as usize,
            "memory.pdus" => self.memory.pdus = number()? as usize,
            "board.seed" => self.seed = number()?,
            "peer.initial" => self.peer_initial = number()? as u32,
            _ => match name.strip_prefix("tcp.") {
                Some(name) => {
                    self.tcp.set(name, value).map_err(|error| match error {
                        SettingError::Unknown { .. } => unknown(&format!("tcp.{name}")),
                        error => error.to_string(),
                    })?;
                    if name == "segment_bytes_max" {
                        self.segment_bytes_max = Some(self.tcp.segment_bytes_max);
                    }
                }
                None => return Err(unknown(name)),
            },
        }
        Ok(())
    }

    pub(crate) fn profile(&mut self, name: &str) -> Result<(), String> {
        self.tcp = tcp::Config::profile(name)
            .ok_or_else(|| format!("unknown profile `{name}`: known are {}", tcp::PROFILES.join(", ")))?;
        Ok(())
    }

    /// Returns the board's address.
    pub(crate) fn local(&self) -> IpAddr {
        self.host(1)
    }

    /// Returns the address of a host in the network, by its last byte.
    pub(crate) fn host(&self, last: u8) -> IpAddr {
        if self.is_six {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into()
        } else {
            Ipv4Addr::new(10, 0, 0, last).into()
        }
    }

    /// Returns the key for the board's random numbers; it is the same in each run.
    #[expect(clippy::disallowed_methods, reason = "a script runs in virtual time")]
    pub(crate) fn key(&self) -> RngKey {
        RngKey::for_simulation(self.seed)
    }

    pub(crate) fn board(&self) -> BoardConfig {
        let port = IpPortConfig {
            address: self.local(),
            prefix: Prefix::new(self.local(), 0),
            mtu_bytes: self.mtu_bytes,
            packets_max: self.packets_max,
            cuts: self.segment_bytes_max.is_some(),
            merges: false,
            believe_sums: false,
        };
        // Unless the script sets another length, TCP produces segments as they are on the wire. Longer ones
        // are cut by the port.
        let segment_bytes_max = self.segment_bytes_max.unwrap_or(self.tcp.mss.into());
        BoardConfig {
            memory: self.memory,
            tcp: tcp::Config { segment_bytes_max, ..self.tcp.clone() },
            ports: vec![PortConfig::Ip(port)],
            ..BoardConfig::default()
        }
    }
}

/// Returns the error for an unknown setting. It gives the nearest known name, or else the page that lists the
/// names.
fn unknown(name: &str) -> String {
    let mut known: Vec<String> = OTHERS.map(String::from).into();
    tcp::Config::default().each(&mut |name, _, _| known.push(format!("tcp.{name}")));
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let hint = hint(name, &known)
        .unwrap_or_else(|| format!("known settings are {}, and those in docs/tcp.md", OTHERS.join(", ")));
    format!("unknown setting `{name}`: {hint}")
}
