//! Validates the tables of a configuration and converts them to a plan.

use super::error::{ConfigError, hint};
use super::plan::{Carries, Kind, Plan, PortPlan, RoutePlan, SandboxPlan, ServicePlan};
use super::rates::{Rates, service};
use super::tables::{self, Tables};
use super::units::{Bytes, DurationValue, Rate, Word, Words};
use crate::link;
use kiban_atm::OC3C_BITS_PER_SECOND;
use kiban_atm::wire::atm::{VCI_USER_FIRST, Vc};
use kiban_base::ethernet::Mac;
use kiban_base::{SettingError, Wait};
use kiban_board::{BoardConfig, BridgedCircuit, CircuitConfig, MemoryConfig};
use kiban_link::Address;
use kiban_streams::{NAME_BYTES_MAX, is_name};
use kiban_tcpip::guest::GuestConfig;
use kiban_tcpip::ip::Prefix;
use kiban_tcpip::tcp;
use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Limits of a configuration.
pub(crate) const PORTS_MAX: usize = 64;
const CIRCUITS_MAX: usize = 4096;
/// Linux allows 256 queues per TUN device (`MAX_TAP_QUEUES`).
const SHARDS_MAX: usize = 64;
/// Least packet memory of a shard in each direction, bytes.
const SHARD_BYTES_MIN: usize = 1 << 20;
/// Least number of PDUs of a shard.
const SHARD_PDUS_MIN: usize = 256;
/// The sizes of pages among which `page` is chosen if it is not configured, largest first.
const PAGE_BYTES: [usize; 3] = [16 << 10, 8 << 10, 4 << 10];
/// Least number of pages of a shard in each direction with a page size that is chosen.
const PAGES_MIN: usize = 4096;
/// The value of `address` that means an address leased by DHCP.
const DHCP: &str = "dhcp";

/// Returns the page size for `bytes` of memory per shard and direction. The system moves a large segment into
/// or out of a few large pages faster than many small ones. But a session may occupy whole pages for a few
/// bytes, so there have to be enough.
fn page_bytes(bytes: usize) -> usize {
    PAGE_BYTES.into_iter().find(|page| bytes / page >= PAGES_MIN).unwrap_or(PAGE_BYTES[2])
}

pub(super) struct Validator<'a> {
    pub(super) text: &'a str,
    /// Base directory of relative paths.
    pub(super) folder: &'a Path,
}

impl Validator<'_> {
    pub(super) fn at<T>(
        &self,
        word: &super::units::Located<T>,
        wrong: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ConfigError {
        ConfigError::at(self.text, word.at, wrong, remedy)
    }

    /// Returns an error about a missing key, located on the line of `near`.
    pub(super) fn missing<T>(
        &self,
        near: &super::units::Located<T>,
        wrong: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ConfigError {
        ConfigError { key: String::new(), ..self.at(near, wrong, remedy) }
    }

    pub(super) fn read<T: std::str::FromStr<Err: Display>>(&self, word: &Word) -> Result<T, ConfigError> {
        word.read().map_err(|error: T::Err| {
            self.at(word, format!("invalid value `{}`", word.value), error.to_string())
        })
    }

    pub(super) fn time(&self, word: Option<&Word>, default: Duration) -> Result<Duration, ConfigError> {
        word.map_or(Ok(default), |word| Ok(self.read::<DurationValue>(word)?.0))
    }

    pub(super) fn plan(&self, tables: Tables, name: &str) -> Result<Plan, ConfigError> {
        let name = match &tables.name {
            Some(word) => self.name(word)?,
            None if is_name(name) => name.to_owned(),
            None => "board".to_owned(),
        };
        let mss_is_said = tables.tcp.contains_key("mss");
        let memory = self.memory(&tables.memory, tables.shards.as_ref().map_or(1, |word| word.value))?;
        let tcp = self.tcp(&tables, &memory)?;
        let board = BoardConfig { memory, tcp, ..BoardConfig::default() };
        let mut ports = self.ports(&tables, &name)?;
        // The links of bridges have no addresses. They come after the ports, so that they do not change the
        // port numbers.
        for bridge in &tables.bridges {
            let bridge = self.bridge(bridge, &ports, &name)?;
            ports.push(bridge);
        }
        let routes = tables.routes.iter().map(|route| self.route(route, &ports)).collect::<Result<_, _>>()?;
        let services = self.services(&tables.services, &ports, &name)?;
        let shards = self.shards(&tables, &board, &ports, &services)?;
        let metrics = match &tables.metrics {
            Some(metrics) => Some(self.socket(&metrics.listen)?),
            None => None,
        };
        let sandbox = SandboxPlan {
            enabled: tables.sandbox.enabled.unwrap_or(true),
            read: self.directories(&tables.sandbox.read)?,
            write: self.directories(&tables.sandbox.write)?,
            kill: tables.sandbox.kill,
        };
        Ok(Plan {
            name,
            board,
            sandbox,
            mss_is_configured: mss_is_said,
            ports,
            routes,
            services,
            metrics,
            log_json: tables.log.json,
            drain: self.time(tables.drain.as_ref(), Duration::from_secs(10))?,
            wait: tables.wait.as_ref().map_or(Ok(Wait::Interrupt), |word| self.read(word))?,
            shards,
            tables,
        })
    }

    /// Validates the number of shards, and that everything else works with several.
    fn shards(
        &self,
        tables: &Tables,
        board: &BoardConfig,
        ports: &[PortPlan],
        services: &[ServicePlan],
    ) -> Result<usize, ConfigError> {
        let Some(word) = &tables.shards else { return Ok(1) };
        let shards = word.value;
        if !(1..=SHARDS_MAX).contains(&shards) {
            let remedy = format!("use 1 to {SHARDS_MAX}; more than one per core does not help");
            return Err(self.at(word, format!("{shards} shards are out of range"), remedy));
        }
        if shards == 1 {
            return Ok(1);
        }
        let memory = board.memory.transmit_bytes.min(board.memory.receive_bytes);
        if memory / shards < SHARD_BYTES_MIN {
            let wrong = format!("{shards} shards would have less than 1 MiB of packet memory each");
            let remedy = format!("set transmit and receive in [memory] to {shards}MiB or more");
            return Err(self.at(word, wrong, remedy));
        }
        if board.memory.pdus / shards < SHARD_PDUS_MIN {
            let wrong = format!("{shards} shards would have less than {SHARD_PDUS_MIN} PDUs each");
            let remedy = format!("set pdus in [memory] to {} or more", shards * SHARD_PDUS_MIN);
            return Err(self.at(word, wrong, remedy));
        }
        if let Some(bridge) = tables.bridges.first() {
            let wrong = format!("bridge `{}` needs a board of one shard", bridge.name.value);
            return Err(self.at(&bridge.name, wrong, "remove `shards`, or put the bridge on another board"));
        }
        for (port, table) in ports.iter().zip(&tables.ports) {
            let name = &port.name;
            if let Some(host) = &table.host {
                let wrong = format!("`host` of port `{name}` needs a board of one shard");
                return Err(self.at(
                    host,
                    wrong,
                    "remove `shards`, or give the host an address with `host_address`",
                ));
            }
            match link::is_for_shards(&port.link) {
                Ok(true) => {}
                Ok(false) => {
                    let wrong = format!("the link of port `{name}` has one queue, not one for each shard");
                    let remedy = format!("use {}, or remove `shards`", Address::WITH_QUEUES);
                    return Err(self.at(&table.link, wrong, remedy));
                }
                Err(why) => {
                    let wrong = format!("the link of port `{name}` cannot have several queues: {why}");
                    return Err(self.at(&table.link, wrong, "remove these options, or remove `shards`"));
                }
            }
        }
        if let Some(service) = services.iter().find(|service| matches!(service.kind, Kind::Net(_))) {
            let wrong = format!("service `{}` needs a board of one shard", service.name);
            return Err(self.at(word, wrong, "remove `shards`"));
        }
        Ok(shards)
    }

    fn directories(&self, words: &Words) -> Result<Vec<PathBuf>, ConfigError> {
        words.0.iter().map(|word| self.directory(word, "create it, or remove it from the list")).collect()
    }

    /// Returns the path of an existing directory; relative paths are resolved against `folder`.
    pub(super) fn directory(&self, word: &Word, remedy: &str) -> Result<PathBuf, ConfigError> {
        let path = self.folder.join(&word.value);
        match path.is_dir() {
            true => Ok(path),
            false => Err(self.at(word, format!("{} is not a directory", path.display()), remedy)),
        }
    }

    pub(super) fn name(&self, word: &Word) -> Result<String, ConfigError> {
        if is_name(word) {
            return Ok(word.value.clone());
        }
        let remedy = format!("use 1 to {NAME_BYTES_MAX} letters, digits, - and _");
        Err(self.at(word, format!("invalid name `{}`", word.value), remedy))
    }

    fn memory(&self, table: &tables::Memory, shards: usize) -> Result<MemoryConfig, ConfigError> {
        let size = |word: &Option<Word>, default: usize, least: usize, most: usize| match word {
            None => Ok(default),
            Some(word) => {
                let bytes = self.read::<Bytes>(word)?.0 as usize;
                let remedy = format!("must be {least} to {most} bytes");
                if (least..=most).contains(&bytes) {
                    Ok(bytes)
                } else {
                    Err(self.at(word, format!("{} is out of range", word.value), remedy))
                }
            }
        };
        let transmit_bytes = size(&table.transmit, 64 << 20, 1 << 20, 64 << 30)?;
        let receive_bytes = size(&table.receive, 64 << 20, 1 << 20, 64 << 30)?;
        let page_bytes = page_bytes(transmit_bytes.min(receive_bytes) / shards.max(1));
        Ok(MemoryConfig {
            page_bytes: size(&table.page, page_bytes, 512, 65_536)?,
            transmit_bytes,
            receive_bytes,
            pdus: table.pdus.unwrap_or(16_384).clamp(256, 16 << 20),
        })
    }

    fn tcp(&self, tables: &Tables, memory: &MemoryConfig) -> Result<tcp::Config, ConfigError> {
        // The page that a session writes, and the one that is being acknowledged.
        let session_overhead_bytes = 2 * memory.page_bytes as u32;
        let mut config = tcp::Config { autotune: true, session_overhead_bytes, ..tcp::Config::default() };
        for (name, value) in &tables.tcp {
            let word = match value.get_ref() {
                toml::Value::String(word) => word.clone(),
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(is_on) => is_on.to_string(),
                // No setting accepts a value of this type; the setting's own error says what it expects.
                other => format!("a {}", other.type_str()),
            };
            let at = value.span().start;
            config.set(name, &word).map_err(|error| match error {
                SettingError::Unknown { .. } => {
                    let mut known = Vec::new();
                    config.each(&mut |name, _, _| known.push(name));
                    let near = known.iter().min_by_key(|other| strsim::damerau_levenshtein(name, other));
                    let remedy = near.map_or_else(String::new, |near| format!("did you mean `{near}`?"));
                    let error =
                        ConfigError::at(self.text, at, format!("TCP has no setting `{name}`"), remedy);
                    ConfigError { key: String::new(), ..error }
                }
                SettingError::Renamed { name, now } => {
                    let error = format!("the TCP setting `{name}` is now called `{now}`");
                    let error = ConfigError::at(self.text, at, error, format!("write `{now}`"));
                    ConfigError { key: String::new(), ..error }
                }
                SettingError::Unreadable { word, expects, .. } => ConfigError::at(
                    self.text,
                    at,
                    format!("invalid value `{word}`"),
                    format!("write {expects}"),
                ),
                error => ConfigError::at(self.text, at, error.to_string(), String::new()),
            })?;
        }
        Ok(config)
    }

    // ---- Ports

    fn ports(&self, tables: &Tables, board: &str) -> Result<Vec<PortPlan>, ConfigError> {
        let list = &tables.ports;
        let mut ports: Vec<PortPlan> = Vec::new();
        if list.is_empty() {
            return Err(ConfigError {
                line: 0,
                key: String::new(),
                wrong: "no port configured".into(),
                remedy: "add a [[port]] with name, link and address".into(),
            });
        }
        for table in list {
            let is_bridged = |circuit: &str| {
                let its = format!("{}:{circuit}", table.name.value);
                tables.bridges.iter().flat_map(|bridge| &bridge.circuits.0).any(|word| word.value == its)
            };
            let port = self.port(table, board, &is_bridged)?;
            if ports.iter().any(|other| other.name == port.name) {
                return Err(self.at(
                    &table.name,
                    format!("duplicate port name `{}`", port.name),
                    "names must be unique",
                ));
            }
            if ports.iter().any(|other| other.link == port.link) {
                return Err(self.at(
                    &table.link,
                    format!("two ports use the link `{}`", port.link),
                    "each needs a link of its own",
                ));
            }
            for (at, (address, _)) in port.addresses.iter().enumerate() {
                let word = table.address.0.iter().filter(|word| word.value != DHCP).nth(at);
                let word = word.expect("each address has a word");
                if port.addresses[..at].iter().any(|(its, _)| its == address) {
                    let wrong = format!("duplicate address {address}");
                    return Err(self.at(word, wrong, "list each address once"));
                }
                if ports.iter().any(|other| other.addresses.iter().any(|(its, _)| its == address)) {
                    let wrong = format!("address {address} is also assigned to another port");
                    return Err(self.at(word, wrong, "assign each address to one port"));
                }
            }
            ports.push(port);
        }
        if ports.len() > PORTS_MAX {
            return Err(self.at(
                &list[PORTS_MAX].name,
                format!("too many ports ({})", ports.len()),
                format!("at most {PORTS_MAX} are allowed"),
            ));
        }
        Ok(ports)
    }

    fn port(
        &self,
        table: &tables::Port,
        board: &str,
        is_bridged: &dyn Fn(&str) -> bool,
    ) -> Result<PortPlan, ConfigError> {
        let name = self.name(&table.name)?;
        let carries = link::carries(&table.link).map_err(|remedy| {
            self.at(&table.link, format!("invalid link address `{}`", table.link.value), remedy)
        })?;
        let (leased, fixed): (Vec<&Word>, Vec<&Word>) =
            table.address.0.iter().partition(|word| word.value == DHCP);
        let addresses: Vec<(IpAddr, Prefix)> =
            fixed.iter().map(|word| self.address(word)).collect::<Result<_, _>>()?;
        let dhcp = leased.first().copied();
        if let Some(word) = dhcp {
            self.dhcp(word, table, carries, &addresses)?;
        }
        let is_bridges = !table.pvcs.is_empty() && table.pvcs.iter().all(|pvc| is_bridged(&pvc.vc.value));
        let guest = self.guest(table, carries, &addresses)?;
        if addresses.is_empty() && carries != Carries::Frames && !is_bridges {
            let wrong = format!("port `{name}` has no address");
            return Err(self.missing(&table.name, wrong, "add address = \"10.0.0.1/24\""));
        }
        let only = |there: bool, word: &dyn Fn() -> ConfigError| if there { Err(word()) } else { Ok(()) };
        if carries == Carries::Cells {
            let mut pairs = addresses.iter().zip(fixed);
            if let Some((_, word)) = pairs.find(|((address, _), _)| address.is_ipv6()) {
                return Err(self.at(
                    word,
                    "Classical IP over ATM supports only IPv4 (RFC 2225)",
                    "use an address such as 10.0.0.1/24",
                ));
            }
        } else {
            only(!table.pvcs.is_empty(), &|| {
                self.at(
                    &table.pvcs[0].vc,
                    format!("the link of port `{name}` carries {carries}, not cells"),
                    "remove [[port.pvc]], or use a link that carries cells",
                )
            })?;
            if let Some(rate) = &table.rate {
                return Err(self.at(rate, "only links that carry cells have a rate", "remove it"));
            }
        }
        if let (Some(mac), true) = (&table.mac, carries != Carries::Frames) {
            return Err(self.at(
                mac,
                format!("the link of port `{name}` carries {carries}, so it has no MAC address"),
                "remove it",
            ));
        }
        if let (Some(host_address), false) = (&table.host_address, link::device(&table.link).is_some()) {
            let remedy = "configure the address on the interface itself";
            return Err(self.at(
                host_address,
                format!("`{}` is not a device that the board creates", table.link.value),
                remedy,
            ));
        }
        if let Some(host) = &table.host {
            let device = link::device(host).filter(|_| host.starts_with("tun:"));
            if device.is_none() {
                return Err(self.at(
                    host,
                    format!("`{}` is not a TUN device", host.value),
                    "write it as tun:kiban1",
                ));
            }
            if addresses.is_empty() {
                return Err(self.at(
                    host,
                    format!("port `{name}` has no address that this host could take over"),
                    "add address = \"10.0.0.1/24\"",
                ));
            }
            if table.host_address.is_some() {
                let wrong = "`host` and `host_address` both give this host an address";
                return Err(self.at(host, wrong, "remove one of them"));
            }
        }
        let least = if addresses.iter().any(|(address, _)| address.is_ipv6()) { 1280 } else { 576 };
        let mtu_bytes = table.mtu.unwrap_or(if carries == Carries::Cells { 9180 } else { 1500 });
        if !(least..=65_535).contains(&mtu_bytes) {
            return Err(self.missing(
                &table.name,
                format!("mtu {mtu_bytes} of port `{name}` is out of range"),
                format!("must be {least} to 65535"),
            ));
        }
        let packets_max = table.queue.unwrap_or(256);
        if !(16..=65_536).contains(&packets_max) {
            return Err(self.missing(
                &table.name,
                format!("queue {packets_max} of port `{name}` is out of range"),
                "must be 16 to 65536",
            ));
        }
        let bits_per_second = match &table.rate {
            None => OC3C_BITS_PER_SECOND,
            Some(word) => self.read::<Rate>(word)?.0,
        };
        if table.pvcs.len() > CIRCUITS_MAX {
            return Err(self.at(
                &table.pvcs[CIRCUITS_MAX].vc,
                "too many circuits",
                format!("at most {CIRCUITS_MAX} are allowed"),
            ));
        }
        let mut circuits: Vec<CircuitConfig> = Vec::new();
        for pvc in &table.pvcs {
            let circuit = self.pvc(pvc, bits_per_second, is_bridged(&pvc.vc.value))?;
            if circuits.iter().any(|other| other.vc == circuit.vc) {
                return Err(self.at(
                    &pvc.vc,
                    format!("duplicate circuit {}", circuit.vc),
                    "list each circuit once",
                ));
            }
            circuits.push(circuit);
        }
        if carries == Carries::Cells && circuits.is_empty() {
            return Err(self.missing(
                &table.name,
                format!("port `{name}` has no circuit"),
                "add a [[port.pvc]] with vc = \"0.100\"",
            ));
        }
        let mac = match &table.mac {
            Some(word) => self.mac(word)?,
            // Use the MAC address of the interface, if it has one. If the interface is missing, this is
            // reported when the link is opened.
            None => link::mac(&table.link).ok().flatten().unwrap_or_else(|| own_mac(board, &name)),
        };
        let host_address = table.host_address.as_ref().map(|word| self.address(word)).transpose()?;
        if let (Some((host, _)), Some(word)) = (&host_address, &table.host_address)
            && addresses.iter().any(|(own, _)| own == host)
        {
            return Err(self.at(
                word,
                format!("{host} is the board's own address"),
                "give the host another address in the same subnet",
            ));
        }
        if let (Some((host, _)), Some(word)) = (&host_address, &table.host_address) {
            // On Ethernet, IPv6 addresses may be autoconfigured. Unless an address of the family is
            // configured, the subnets are unknown when the configuration is read.
            let makes_itself = carries == Carries::Frames
                && addresses.iter().all(|(own, _)| own.is_ipv4() != host.is_ipv4());
            if !makes_itself && !addresses.iter().any(|(_, net)| net.contains(*host)) {
                let nets: Vec<String> = addresses.iter().map(|(_, net)| net_word(net)).collect();
                let nets = nets.join(" or ");
                let wrong = format!("{host} is not in any subnet of the port, so the board would not answer");
                return Err(self.at(word, wrong, format!("give the host an address in {nets}")));
            }
        }
        Ok(PortPlan {
            name,
            link: table.link.value.clone(),
            carries,
            addresses,
            dhcp: dhcp.is_some(),
            guest,
            host_address,
            mac,
            mtu_bytes,
            bits_per_second,
            packets_max,
            host: table.host.as_ref().map(|word| word.value.clone()),
            retry: table.retry,
            circuits,
            bridge: None,
        })
    }

    /// Checks that a port can lease its address.
    fn dhcp(
        &self,
        word: &Word,
        table: &tables::Port,
        carries: Carries,
        fixed: &[(IpAddr, Prefix)],
    ) -> Result<(), ConfigError> {
        let (wrong, remedy) = if carries == Carries::Cells {
            ("DHCP needs broadcast, which Classical IP over ATM does not have", "write an address")
        } else if carries == Carries::Packets {
            ("DHCP needs a link that carries Ethernet frames", "write an address, or use a link such as tap:")
        } else if table.address.0.iter().filter(|other| other.value == DHCP).count() > 1 {
            ("`dhcp` is listed twice", "list it once")
        } else if fixed.iter().any(|(address, _)| address.is_ipv4()) {
            ("a port with `dhcp` has no other IPv4 address", "remove one of them; IPv6 addresses may stay")
        } else if table.host.is_some() {
            let wrong = "`host` needs an address that is known when the board starts";
            (wrong, "write the address, or let this host's own DHCP client configure an interface")
        } else {
            return Ok(());
        };
        Err(self.at(word, wrong, remedy))
    }

    /// Validates what the guest of a port gets, and finds its gateway.
    fn guest(
        &self,
        table: &tables::Port,
        carries: Carries,
        own: &[(IpAddr, Prefix)],
    ) -> Result<Option<GuestConfig>, ConfigError> {
        let Some(first) = table.guest.0.first() else {
            return match table.guest_dns.0.first() {
                Some(word) => Err(self.at(word, "the port has no guest", "add guest = \"10.0.0.15/24\"")),
                None => Ok(None),
            };
        };
        if carries != Carries::Frames || table.host.is_some() {
            let wrong = "only a link that carries Ethernet frames to the board itself has a guest";
            return Err(self.at(
                first,
                wrong,
                "remove it, or use a link such as unix-frames: without `host`",
            ));
        }
        if !link::has_two_ends(&table.link) {
            let wrong = format!(
                "`{}` may lead to many stations, and the board would give all of them the guest's address",
                table.link.value
            );
            let remedy = "remove it, or use unix-frames:, unix-datagrams:, tap:, tap-fd: or tcp-frames:";
            return Err(self.at(first, wrong, remedy));
        }
        let mut guest = GuestConfig { ipv4: None, ipv6: None, names: Vec::new() };
        for word in &table.guest.0 {
            let (address, prefix) = self.address(word)?;
            let is_near =
                |(gateway, net): &&(IpAddr, Prefix)| prefix.contains(*gateway) && net.contains(address);
            let mut gateways = own.iter().filter(is_near);
            let gateway = gateways.find(|(gateway, _)| *gateway != address).map(|(gateway, _)| *gateway);
            let is_second = match (address, gateway) {
                (IpAddr::V4(address), Some(IpAddr::V4(gateway))) => {
                    guest.ipv4.replace((address, prefix, gateway)).is_some()
                }
                (IpAddr::V6(address), Some(IpAddr::V6(_))) => guest.ipv6.replace((address, prefix)).is_some(),
                _ => {
                    let wrong = format!("the port has no other address in {}", net_word(&prefix));
                    return Err(self.at(word, wrong, "give it one, which is the guest's gateway"));
                }
            };
            if is_second {
                let wrong = "the guest has two addresses of a family";
                return Err(self.at(word, wrong, "list at most one IPv4 and one IPv6 address"));
            }
        }
        for word in &table.guest_dns.0 {
            let name = word.read::<IpAddr>().map_err(|_| {
                self.at(word, format!("`{}` is not an IP address", word.value), "write it as 10.0.0.1")
            })?;
            guest.names.push(name);
        }
        Ok(Some(guest))
    }

    /// Validates a bridge and returns the plan of its link. `ports` are the ports that come before it.
    fn bridge(
        &self,
        table: &tables::Bridge,
        ports: &[PortPlan],
        board: &str,
    ) -> Result<PortPlan, ConfigError> {
        let name = self.name(&table.name)?;
        if ports.iter().any(|other| other.name == name) {
            let wrong = format!("a port or bridge `{name}` already exists");
            return Err(self.at(&table.name, wrong, "names must be unique"));
        }
        let carries = link::carries(&table.link).map_err(|remedy| {
            self.at(&table.link, format!("invalid link address `{}`", table.link.value), remedy)
        })?;
        if carries != Carries::Frames {
            let wrong = format!("`{}` carries {carries}", table.link.value);
            let remedy = "a bridge needs a link that carries Ethernet frames: tap:, packet:, xdp:, udp-frames:, tcp-frames:, unix-frames:";
            return Err(self.at(&table.link, wrong, remedy));
        }
        if ports.iter().any(|other| other.link == table.link.value) {
            let wrong = format!("the link `{}` is already used by a port", table.link.value);
            return Err(self.at(&table.link, wrong, "each needs a link of its own"));
        }
        let mut circuits: Vec<BridgedCircuit> = Vec::new();
        for word in &table.circuits.0 {
            let found = word.rsplit_once(':').and_then(|(port, vc)| {
                let vc: Vc = vc.parse().ok()?;
                let port = ports.iter().position(|its| its.name == port)?;
                let circuit = ports[port].circuits.iter().position(|circuit| circuit.vc == vc)?;
                Some(BridgedCircuit { port, circuit: circuit as u32, with_fcs: table.fcs })
            });
            let Some(circuit) = found else {
                let remedy = "write PORT:VPI.VCI of a [[port.pvc]], such as atm:0.100";
                return Err(self.at(word, format!("`{}` is not a known circuit", word.value), remedy));
            };
            let is_it = |its: &BridgedCircuit| (its.port, its.circuit) == (circuit.port, circuit.circuit);
            let others = ports.iter().filter_map(|port| port.bridge.as_ref()).flatten();
            if circuits.iter().chain(others).any(is_it) {
                let wrong = format!("circuit `{}` is already bridged", word.value);
                return Err(self.at(word, wrong, "list each circuit once"));
            }
            circuits.push(circuit);
        }
        if circuits.is_empty() {
            let wrong = format!("bridge `{name}` has no circuit");
            return Err(self.missing(&table.name, wrong, "add circuits = [\"atm:0.100\"]"));
        }
        if let (Some(word), None) = (&table.host_address, link::device(&table.link)) {
            let wrong = format!("`{}` is not a device that the board creates", table.link.value);
            return Err(self.at(word, wrong, "configure the address on the interface itself"));
        }
        let (mtu_bytes, packets_max) = (table.mtu.unwrap_or(1500), table.queue.unwrap_or(256));
        if !(576..=9180).contains(&mtu_bytes) || !(16..=65_536).contains(&packets_max) {
            let wrong = format!("mtu or queue of bridge `{name}` is out of range");
            return Err(self.missing(&table.name, wrong, "mtu must be 576 to 9180, and queue 16 to 65536"));
        }
        let host_address = table.host_address.as_ref().map(|word| self.address(word)).transpose()?;
        Ok(PortPlan {
            mac: own_mac(board, &name),
            name,
            link: table.link.value.clone(),
            carries,
            addresses: Vec::new(),
            dhcp: false,
            guest: None,
            host_address,
            mtu_bytes,
            bits_per_second: OC3C_BITS_PER_SECOND,
            packets_max,
            host: None,
            retry: table.retry,
            circuits: Vec::new(),
            bridge: Some(circuits),
        })
    }

    fn mac(&self, word: &Word) -> Result<Mac, ConfigError> {
        let parts: Option<Vec<u8>> = word.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
        let mac = parts.and_then(|parts| <[u8; 6]>::try_from(parts).ok()).map(Mac);
        mac.filter(|mac| !mac.is_group()).ok_or_else(|| {
            self.at(
                word,
                format!("`{}` is not a unicast MAC address", word.value),
                "write six bytes such as 02:00:5e:00:00:01",
            )
        })
    }

    pub(super) fn address(&self, word: &Word) -> Result<(IpAddr, Prefix), ConfigError> {
        let prefix: Prefix = word.read().map_err(|error| {
            self.at(
                word,
                format!("`{}` is not an address with a prefix length: {error}", word.value),
                "write it as 10.0.0.1/24",
            )
        })?;
        let address = prefix.address();
        if address.is_unspecified() || address.is_multicast() {
            return Err(self.at(word, format!("{address} is not a host address"), "write it as 10.0.0.1/24"));
        }
        Ok((address, prefix))
    }

    fn pvc(&self, table: &tables::Pvc, line: u64, is_bridged: bool) -> Result<CircuitConfig, ConfigError> {
        let vc: Vc = self.read(&table.vc)?;
        if vc.vci < VCI_USER_FIRST || vc.vpi > 255 {
            let remedy = format!("use a VPI up to 255 and a VCI of at least {VCI_USER_FIRST} (I.361)");
            return Err(self.at(&table.vc, format!("{vc} is not a user circuit"), remedy));
        }
        let peer = match &table.peer {
            None => None,
            Some(word) => match word.read::<IpAddr>() {
                Ok(peer @ IpAddr::V4(_)) => Some(peer),
                _ => {
                    return Err(self.at(
                        word,
                        format!("`{}` is not an IPv4 address", word.value),
                        "write one, or remove it: InATMARP then discovers the peer",
                    ));
                }
            },
        };
        let llc_snap = match table.encapsulation.as_ref().map(|word| word.value.as_str()) {
            None | Some("llc") => true,
            Some("vc-mux") => false,
            Some(other) => {
                let word = table.encapsulation.as_ref().expect("the key is present");
                return Err(self.at(
                    word,
                    format!("unknown value `{other}`"),
                    hint(other, &["llc", "vc-mux"]),
                ));
            }
        };
        if let (true, Some(peer)) = (is_bridged, &table.peer) {
            let wrong = format!("circuit {vc} belongs to a bridge, so it cannot have a peer");
            return Err(self.at(peer, wrong, "remove it"));
        }
        if !llc_snap && peer.is_none() && !is_bridged {
            let remedy = "set peer: InATMARP does not work with VC multiplexing (RFC 2684 §6)";
            return Err(self.at(&table.vc, format!("circuit {vc} uses vc-mux and has no peer"), remedy));
        }
        let rates = Rates { pcr: table.pcr, scr: table.scr, mbs: table.mbs };
        let tolerance = table.cdvt.as_ref().map(|cdvt| self.time(Some(cdvt), Duration::ZERO)).transpose()?;
        let contract = rates
            .contract(&format!("circuit {vc}"), line, tolerance, Duration::from_micros(100))
            .map_err(|(wrong, remedy)| self.missing(&table.vc, wrong, remedy))?;
        let frames_max = table.queue.unwrap_or(64).clamp(4, 65_536);
        let service =
            service(table.category.as_ref(), table.weight).map_err(|(word, wrong, remedy)| match word {
                Some(word) => self.at(word, wrong, remedy),
                None => self.missing(&table.vc, wrong, remedy),
            })?;
        Ok(CircuitConfig { vc, peer, llc_snap, contract, service, frames_max })
    }

    // ---- Routes

    fn route(&self, table: &tables::Route, ports: &[PortPlan]) -> Result<RoutePlan, ConfigError> {
        let prefix: Prefix = self.read(&table.to)?;
        let gateway: IpAddr = self.read(&table.via)?;
        if gateway.is_ipv4() != prefix.address().is_ipv4() {
            return Err(self.at(
                &table.via,
                format!("{gateway} and {} have different address families", table.to.value),
                "use a next hop of the same family",
            ));
        }
        let own = ports.iter().enumerate().find_map(|(port, plan)| {
            let (address, _) = plan.addresses.iter().find(|(_, net)| net.contains(gateway))?;
            Some((port, *address))
        });
        let Some((port, address)) = own else {
            let nets: Vec<String> =
                ports.iter().flat_map(|port| &port.addresses).map(|(_, net)| net_word(net)).collect();
            let remedy = match &nets[..] {
                [] => "give a port an address in its subnet".to_owned(),
                nets => format!("use a next hop in {}", nets.join(" or ")),
            };
            return Err(self.at(&table.via, format!("{gateway} is not in the subnet of any port"), remedy));
        };
        if address == gateway {
            return Err(self.at(
                &table.via,
                format!("{gateway} is the board's own address"),
                "use the address of a neighbour",
            ));
        }
        // For IPv6, each packet selects its own source address.
        let source = if gateway.is_ipv6() { std::net::Ipv6Addr::UNSPECIFIED.into() } else { address };
        Ok(RoutePlan { prefix, gateway, port, source })
    }
}

/// Formats a prefix as a subnet, with the host bits set to zero.
fn net_word(net: &Prefix) -> String {
    let bits = u32::from(net.bits());
    let address: IpAddr = match net.address() {
        IpAddr::V4(own) => {
            (own.to_bits() & u32::MAX.checked_shl(32 - bits).unwrap_or(0)).to_be_bytes().into()
        }
        IpAddr::V6(own) => {
            (own.to_bits() & u128::MAX.checked_shl(128 - bits).unwrap_or(0)).to_be_bytes().into()
        }
    };
    format!("{address}/{bits}")
}

/// Returns a locally administered MAC address (IEEE 802 §8.4) for a port. The address is the same at every
/// start, so that the port's entries in neighbour caches remain valid.
fn own_mac(board: &str, port: &str) -> Mac {
    // The hash is FNV-1a, which is simple and the same on all platforms.
    let hash =
        board.bytes().chain([b'/']).chain(port.bytes()).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    let [a, b, c, d, e, ..] = hash.to_be_bytes();
    Mac([2, a, b, c, d, e])
}
