//! The services section of a configuration.

use super::error::{ConfigError, hint};
use super::forwarded::Forwarded;
use super::plan::{Carries, Endpoint, Kind, Mapped, NetConfig, PortPlan, ServicePlan};
use super::tables;
use super::units::{Bytes, DurationValue, Word, Words};
use super::validator::Validator;
use kiban_os::unix::names;
use kiban_streams::{ClientService, run_socket_path};
use kiban_tcpip::ip::Prefix;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

const KINDS: [&str; 10] =
    ["echo", "discard", "source", "http", "forward", "net", "attach", "osi", "rdma", "sockets"];

const SERVICES_MAX: usize = 256;

/// Reads `ADDRESS[:PORT]=ADDRESS[:PORT]`.
fn mapped(text: &str) -> Option<Mapped> {
    let end = |text: &str| match text.parse::<SocketAddr>() {
        Ok(socket) => Some((socket.ip(), Some(socket.port()))),
        Err(_) => text.parse::<IpAddr>().ok().map(|address| (address, None)),
    };
    let (from, to) = text.split_once('=')?;
    let ((address, port), (to, to_port)) = (end(from)?, end(to)?);
    Some(Mapped { address, port, to, to_port })
}

/// Reads the address of a name server, whose port is 53 unless another is given.
fn name_server(text: &str) -> Option<SocketAddr> {
    let with_port = || text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 53));
    text.parse().or_else(|_| with_port()).ok()
}

impl Validator<'_> {
    pub(super) fn socket(&self, word: &Word) -> Result<SocketAddr, ConfigError> {
        word.read().map_err(|_| {
            self.at(
                word,
                format!("`{}` is not an address with a port", word.value),
                "write it as 10.0.0.1:80 or [fd00::1]:80",
            )
        })
    }

    fn end(&self, word: &Word) -> Result<Endpoint, ConfigError> {
        match word.strip_prefix("kernel:") {
            None => Ok(Endpoint::Board(self.socket(word)?)),
            Some(rest) => rest.parse().map(Endpoint::Kernel).map_err(|_| {
                self.at(
                    word,
                    format!("`{rest}` is not an address with a port"),
                    "write it as kernel:127.0.0.1:80",
                )
            }),
        }
    }

    /// Checks the address on which a service listens: it must be one of the board's, or unspecified.
    fn ours(&self, word: &Word, address: IpAddr, ports: &[PortPlan]) -> Result<(), ConfigError> {
        let mut all = ports.iter().flat_map(PortPlan::own_addresses);
        // IPv6 addresses may be autoconfigured.
        let has_own = |port: &PortPlan| port.carries == Carries::Frames && port.bridge.is_none();
        let may_come = address.is_ipv6() && ports.iter().any(has_own);
        if address.is_unspecified() || may_come || all.clone().any(|(own, _)| *own == address) {
            return Ok(());
        }
        let has_it = |port: &&PortPlan| port.addresses.iter().any(|(its, _)| *its == address);
        if let Some(port) = ports.iter().find(has_it) {
            let name = &port.name;
            let what =
                if port.carries == Carries::Frames { "all its addresses" } else { "its first address" };
            let wrong =
                format!("{address} belongs to this host: `host` of port `{name}` gives the host {what}");
            let remedy = match (port.carries, all.next()) {
                (_, Some((own, _))) => format!("listen on {own}, or use a program on this host"),
                (Carries::Frames, None) => "remove host, or use a program on this host".to_owned(),
                (Carries::Cells, None) => format!(
                    "remove host, or give port `{name}` a second address, in a subnet of its own with a pvc that has `peer`"
                ),
                (_, None) => format!("give port `{name}` a second address for the board, or remove host"),
            };
            return Err(self.at(word, wrong, remedy));
        }
        let is_leased = address.is_ipv4() && ports.iter().any(|port| port.dhcp);
        let remedy = match all.next() {
            _ if is_leased => "the leased address is not known yet: listen on 0.0.0.0".to_owned(),
            Some((own, _)) => {
                format!("listen on {own}, or on {} for all", if own.is_ipv4() { "0.0.0.0" } else { "[::]" })
            }
            None => "assign the address to a port".into(),
        };
        Err(self.at(word, format!("{address} is not an address of this board"), remedy))
    }

    /// Reads what a `net` service maps and forwards.
    fn net(&self, table: &tables::Service) -> Result<NetConfig, ConfigError> {
        fn words(words: &Option<Words>) -> impl Iterator<Item = &Word> {
            words.iter().flat_map(|words| &words.0)
        }
        let mapped = |word: &Word| {
            mapped(word).ok_or_else(|| {
                self.at(
                    word,
                    format!("`{}` maps no address to another", word.value),
                    "write ADDRESS=ADDRESS, or with ports: 10.0.2.2:53=192.0.2.1:53",
                )
            })
        };
        let forwarded = |list: &Option<Words>| -> Result<Vec<Forwarded>, ConfigError> {
            let read = |word: &Word| {
                Forwarded::parse(word).ok_or_else(|| {
                    self.at(
                        word,
                        format!("`{}` forwards no port to another", word.value),
                        "write ports such as 8080:80, 127.0.0.1:8000-8009 or [::1]:8080:80, or auto, or all",
                    )
                })
            };
            words(list).map(read).collect()
        };
        let guest = words(&table.guest).map(|word| self.address(word));
        let guest: Vec<(IpAddr, Prefix)> = guest.collect::<Result<_, _>>()?;
        let (tcp, udp) = (forwarded(&table.tcp)?, forwarded(&table.udp)?);
        if guest.is_empty() && !(tcp.is_empty() && udp.is_empty()) {
            let remedy = "add guest = [\"10.0.2.15/24\"]";
            return Err(self.missing(&table.kind, "ports are forwarded to no address", remedy));
        }
        let (guest_tcp, guest_udp) = (forwarded(&table.guest_tcp)?, forwarded(&table.guest_udp)?);
        let lists = [(&table.guest_tcp, &guest_tcp), (&table.guest_udp, &guest_udp)];
        for (list, read) in lists {
            if let Some((word, _)) = words(list).zip(read).find(|(_, ports)| !ports.is_of_loopback()) {
                let what = format!(
                    "`{}` is open to callers of other hosts, and leads to this one's loopback",
                    word.value
                );
                return Err(self.at(word, what, "write no address, or one of the loopback"));
            }
        }
        let needs = !(guest_tcp.is_empty() && guest_udp.is_empty());
        if needs && table.namespace.is_none() {
            let what = "ports of the guest are forwarded, but its namespace is not open";
            return Err(self.missing(&table.kind, what, "`kiban net` opens it"));
        }
        let map = words(&table.map).map(mapped).collect::<Result<_, _>>()?;
        let address = |word: &Word| {
            let what = || format!("`{}` is not an address", word.value);
            word.read().map_err(|_| self.at(word, what(), "write an address of the board, such as 10.0.2.2"))
        };
        let server = |word: &Word| {
            name_server(word).ok_or_else(|| {
                let what = format!("`{}` is not the address of a name server", word.value);
                self.at(word, what, "write 192.0.2.1, fd00::1, or with a port [fd00::1]:53")
            })
        };
        let dns = words(&table.dns).map(address).collect::<Result<_, _>>()?;
        let dns_servers = words(&table.dns_servers).map(server).collect::<Result<_, _>>()?;
        let (dns_changes, namespace) = (table.dns_changes, table.namespace);
        Ok(NetConfig { map, guest, tcp, udp, guest_tcp, guest_udp, dns, dns_servers, dns_changes, namespace })
    }

    pub(super) fn services(
        &self,
        list: &[tables::Service],
        ports: &[PortPlan],
        board: &str,
    ) -> Result<Vec<ServicePlan>, ConfigError> {
        let mut services: Vec<ServicePlan> = Vec::new();
        for table in list {
            let mut service = self.service(table, ports, board)?;
            if table.name.is_none() {
                let others = services.iter().filter(|other| other.kind.word() == service.kind.word()).count();
                if others > 0 {
                    service.name = format!("{}-{}", service.name, others + 1);
                }
            }
            if services.iter().any(|other| other.name == service.name) {
                let key = table.name.as_ref().unwrap_or(&table.kind);
                return Err(self.at(
                    key,
                    format!("duplicate service name `{}`", service.name),
                    "names must be unique",
                ));
            }
            if let Some(other) = services.iter().find(|other| other.listen == service.listen) {
                return Err(self.at(
                    table.listen.as_ref().unwrap_or(&table.kind),
                    format!("`{}` already listens on {}", other.name, other.listen),
                    "use another port",
                ));
            }
            services.push(service);
        }
        if services.len() > SERVICES_MAX {
            return Err(self.at(
                &list[SERVICES_MAX].kind,
                format!("too many services ({})", services.len()),
                format!("at most {SERVICES_MAX} are allowed"),
            ));
        }
        Ok(services)
    }

    fn service(
        &self,
        table: &tables::Service,
        ports: &[PortPlan],
        board: &str,
    ) -> Result<ServicePlan, ConfigError> {
        let word = table.kind.value.as_str();
        let name = table.name.as_ref().map_or(Ok(word.to_owned()), |name| self.name(name))?;
        // A key that belongs to another kind of service is an error and is not ignored.
        let others: [(&str, bool, &[&str]); 17] = [
            ("listen", table.listen.is_some(), &["echo", "discard", "source", "http", "forward"]),
            (
                "idle",
                table.idle.is_some(),
                &["echo", "discard", "source", "http", "forward", "net", "sockets"],
            ),
            ("root", table.root.is_some(), &["http"]),
            ("list", table.list.is_some(), &["http"]),
            ("head_time", table.head_time.is_some(), &["http"]),
            ("bytes", table.bytes.is_some(), &["source"]),
            ("to", table.to.is_some(), &["forward"]),
            ("map", table.map.is_some(), &["net"]),
            ("guest", table.guest.is_some(), &["net"]),
            ("tcp", table.tcp.is_some(), &["net"]),
            ("udp", table.udp.is_some(), &["net"]),
            ("guest_tcp", table.guest_tcp.is_some(), &["net"]),
            ("guest_udp", table.guest_udp.is_some(), &["net"]),
            ("dns", table.dns.is_some(), &["net"]),
            ("dns_servers", table.dns_servers.is_some(), &["net"]),
            ("dns_changes", table.dns_changes.is_some(), &["net"]),
            ("namespace", table.namespace.is_some(), &["net"]),
        ];
        if !KINDS.contains(&word) {
            return Err(self.at(&table.kind, format!("unknown value `{word}`"), hint(word, &KINDS)));
        }
        if let Some((key, ..)) = others.iter().find(|(_, there, kinds)| *there && !kinds.contains(&word)) {
            return Err(self.missing(
                &table.kind,
                format!("service `{name}` (kind {word}) has no key `{key}`"),
                "remove it",
            ));
        }
        let needs = |key: &str, example: &str| {
            self.missing(&table.kind, format!("`{name}` has no {key}"), format!("add {key} = \"{example}\""))
        };
        let listen = match &table.listen {
            Some(listen) => self.end(listen)?,
            None if word == "attach" => Endpoint::UnixSocket("attach"),
            None if word == "osi" => Endpoint::UnixSocket("osi"),
            None if word == "rdma" => Endpoint::UnixSocket("rdma"),
            None if word == "sockets" => Endpoint::UnixSocket("sockets"),
            None if word == "net" => Endpoint::Everywhere,
            None => return Err(needs("listen", "10.9.0.2:80")),
        };
        let kind = match word {
            "attach" => Kind::Attach { path: ClientService::Streams.path(&names::own_path(), board) },
            "osi" => Kind::Osi { path: ClientService::Osi.path(&names::own_path(), board) },
            "rdma" => Kind::Rdma { path: ClientService::Rdma.path(&names::own_path(), board) },
            "sockets" => Kind::Sockets { path: run_socket_path(&names::own_path(), board) },
            "net" => Kind::Net(self.net(table)?),
            "echo" => Kind::Echo,
            "discard" => Kind::Discard,
            "source" => Kind::Source {
                bytes: table
                    .bytes
                    .as_ref()
                    .map(|word| self.read::<Bytes>(word))
                    .transpose()?
                    .map(|bytes| bytes.0),
            },
            "http" => {
                let root = table.root.as_ref().ok_or_else(|| needs("root", "/srv/www"))?;
                let path = self.directory(root, "create it, or use another")?;
                let about = std::fs::metadata(&path)
                    .map_err(|error| self.at(root, error.to_string(), "use another directory"))?;
                Kind::Http {
                    root: path,
                    folder: (about.dev(), about.ino()),
                    list: table.list.unwrap_or(false),
                    head_time: self.time(table.head_time.as_ref(), Duration::from_secs(10))?,
                }
            }
            _ => {
                let to = table.to.as_ref().ok_or_else(|| needs("to", "kernel:127.0.0.1:8080"))?;
                let end = self.end(to)?;
                if matches!(
                    (listen, end),
                    (Endpoint::Board(_), Endpoint::Board(_)) | (Endpoint::Kernel(_), Endpoint::Kernel(_))
                ) {
                    let remedy = "prefix either listen or to with kernel:";
                    return Err(self.at(to, format!("`{name}` has both ends on the same side"), remedy));
                }
                Kind::Forward { to: end }
            }
        };
        match (listen, &table.listen, &kind) {
            (Endpoint::Board(address), Some(written), _) => self.ours(written, address.ip(), ports)?,
            (Endpoint::Kernel(_), Some(written), kind) if !matches!(kind, Kind::Forward { .. }) => {
                return Err(self.at(
                    written,
                    "only a `forward` service can listen on `kernel:` addresses",
                    "listen on an address of the board",
                ));
            }
            _ => {}
        }
        let idle = match &table.idle {
            Some(word) if word.value == "none" => None,
            Some(word) => Some(self.read::<DurationValue>(word)?.0),
            None if word == "http" => Some(Duration::from_secs(60)),
            None => None,
        };
        let sessions_max = table.sessions.unwrap_or(1024).clamp(1, 65_536);
        Ok(ServicePlan { name, listen, sessions_max, idle, kind })
    }
}
