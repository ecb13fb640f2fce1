//! Arguments of `kiban net`.

use clap::Args;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// Connect a command or a container with other hosts, without privileges.
///
/// The program runs in a user and network namespace of its own. Its interface leads to a board in this
/// process, which connects it with other hosts through ordinary sockets of this host's user: TCP, UDP, and
/// ping where this host allows it. The program can reach whatever this user can reach, except this host's
/// loopback (see --host-loopback). Other hosts can reach it only at ports forwarded with -t.
///
/// Given a process number instead of a command, kiban creates the interface in that process's network
/// namespace.
#[derive(Args)]
#[command(
    override_usage = "kiban net [OPTIONS] -- COMMAND [ARGUMENT]...\n       kiban net [OPTIONS] PROCESS"
)]
#[command(after_help = "Examples:\
        \n  kiban net -- curl https://www.debian.org/\
        \n  kiban net -t 8080:80 -- sh -c 'cd site; python3 -m http.server 80'\
        \n  kiban net --mtu 1500 --pcap guest.pcap -- bash\
        \n  kiban net 4711                                  the network of process 4711\
        \n\nkiban status net-NUMBER shows connections and counters; NUMBER is that of the process kiban net.\
        \n\nVariables:\
        \n  KIBAN_LOG    log level of the board: error, warn (the default), info, debug\
        \n\nExit status: that of the command; 126 or 127 if it cannot be started, 1 if there is no network for it.")]
pub(crate) struct Net {
    /// The guest's IPv4 address, with the length of its prefix.
    #[arg(long, value_name = "ADDRESS/BITS", default_value = "10.0.2.15/24")]
    address: Ipv4Net,
    /// The guest's default gateway: an address of the board.
    #[arg(long, default_value = "10.0.2.2")]
    gateway: Ipv4Addr,
    /// The guest's IPv6 address, with the length of its prefix.
    #[arg(long, value_name = "ADDRESS/BITS", default_value = "fd6b:6962:616e::15/64")]
    address6: Ipv6Net,
    /// The guest's default gateway for IPv6.
    #[arg(long, default_value = "fd6b:6962:616e::2")]
    gateway6: Ipv6Addr,
    /// Give the guest no IPv6.
    #[arg(long, conflicts_with_all = ["address6", "gateway6"])]
    no_ipv6: bool,
    /// The longest IP packet, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 65_520, value_parser = clap::value_parser!(u32).range(1280..=65_520))]
    mtu: u32,
    /// The name of the guest's interface.
    #[arg(long, value_name = "NAME", default_value = "eth0")]
    interface: String,
    /// The name server for the guest's requests to the gateway [default: the first one in /etc/resolv.conf].
    #[arg(long, value_name = "ADDRESS")]
    dns: Option<IpAddr>,
    /// Let the guest reach this host's loopback at the gateway's addresses.
    #[arg(long)]
    host_loopback: bool,
    /// Forward a TCP port of this host to the guest; may be repeated.
    #[arg(short = 't', long = "tcp", value_name = "[ADDRESS:]PORT[:GUEST-PORT]")]
    tcp: Vec<String>,
    /// Record the guest's packets to a capture file.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// A command with its arguments after `--`, or the number of a process.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    target: Vec<OsString>,
}

/// What gets the network.
pub(super) enum Target<'a> {
    Command(&'a OsString, &'a [OsString]),
    Process(u32),
}

/// A port of this host that is forwarded to the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Forwarded {
    pub(super) from: SocketAddr,
    pub(super) to_port: u16,
}

/// The checked options.
pub(super) struct Options {
    pub(super) address: Ipv4Net,
    pub(super) gateway: Ipv4Addr,
    /// The guest's address and gateway.
    pub(super) ipv6: Option<(Ipv6Net, Ipv6Addr)>,
    pub(super) mtu_bytes: usize,
    pub(super) interface: String,
    pub(super) name_server: Option<SocketAddr>,
    pub(super) host_loopback: bool,
    pub(super) tcp: Vec<Forwarded>,
    pub(super) pcap: Option<PathBuf>,
}

impl Options {
    /// Returns the guest's addresses, each with its gateway.
    pub(super) fn addresses(&self) -> Vec<(IpNet, IpAddr)> {
        let four = (IpNet::V4(self.address), IpAddr::V4(self.gateway));
        let six = self.ipv6.map(|(address, gateway)| (IpNet::V6(address), IpAddr::V6(gateway)));
        std::iter::once(four).chain(six).collect()
    }
}

impl Net {
    /// Returns what gets the network. A single word that is a number is a process.
    pub(super) fn target(&self) -> Result<Target<'_>, String> {
        let (program, arguments) = self.target.split_first().ok_or("no command is given")?;
        match (program.to_str().and_then(|word| word.parse().ok()), arguments) {
            (Some(process), []) => Ok(Target::Process(process)),
            _ => Ok(Target::Command(program, arguments)),
        }
    }

    /// Checks the options.
    ///
    /// # Errors
    /// An option is invalid; the message says how to write it.
    pub(super) fn options(&self) -> Result<Options, String> {
        let ipv6 = (!self.no_ipv6).then_some((self.address6, self.gateway6));
        if !self.address.contains(&self.gateway) || self.address.addr() == self.gateway {
            let (gateway, address) = (self.gateway, self.address);
            return Err(format!(
                "--gateway {gateway} must be another address in the network of --address {address}"
            ));
        }
        if let Some((address, gateway)) = ipv6
            && (!address.contains(&gateway) || address.addr() == gateway)
        {
            return Err(format!(
                "--gateway6 {gateway} must be another address in the network of --address6 {address}"
            ));
        }
        Ok(Options {
            address: self.address,
            gateway: self.gateway,
            ipv6,
            mtu_bytes: self.mtu as usize,
            interface: self.interface.clone(),
            name_server: self.dns.or_else(host_name_server).map(|address| SocketAddr::new(address, 53)),
            host_loopback: self.host_loopback,
            tcp: self.tcp.iter().map(|text| forwarded(text)).collect::<Result<_, _>>()?,
            pcap: self.pcap.clone(),
        })
    }
}

/// Returns the first name server of this host.
fn host_name_server() -> Option<IpAddr> {
    name_server_in(&std::fs::read_to_string("/etc/resolv.conf").ok()?)
}

fn name_server_in(text: &str) -> Option<IpAddr> {
    text.lines().find_map(|line| line.strip_prefix("nameserver")?.split_whitespace().next()?.parse().ok())
}

/// Parses `[ADDRESS:]PORT[:GUEST-PORT]`.
fn forwarded(text: &str) -> Result<Forwarded, String> {
    let wrong =
        || format!("-t {text}: write [ADDRESS:]PORT[:GUEST-PORT], such as 8080:80 or 127.0.0.1:8080:80");
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
    // An IPv6 address is in brackets.
    let (address, ports) = match text.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        Some((address, ports)) => (address.parse().map_err(|_| wrong())?, ports),
        None => match text.split_once(':') {
            Some((address, ports)) if address.contains('.') => (address.parse().map_err(|_| wrong())?, ports),
            _ => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), text),
        },
    };
    let (from, to) = ports.split_once(':').unwrap_or((ports, ports));
    Ok(Forwarded { from: SocketAddr::new(address, port(from)?), to_port: port(to)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_forwarded_from_any_or_one_address() {
        let rows = [
            ("8080", Some(("0.0.0.0:8080", 8080))),
            ("8080:80", Some(("0.0.0.0:8080", 80))),
            ("127.0.0.1:8080:80", Some(("127.0.0.1:8080", 80))),
            ("[::1]:8080", Some(("[::1]:8080", 8080))),
            ("0", None),
            ("1.2.3:80", None),
            ("80:90:100", None),
            ("[::1]80", None),
            ("", None),
        ];
        for (text, expected) in rows {
            let expected = expected.map(|(from, to_port)| Forwarded { from: from.parse().unwrap(), to_port });
            assert_eq!(forwarded(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn the_first_name_server_counts() {
        let text = "# nameserver 1.1.1.1\nsearch x\nnameserver\t192.0.2.1 # router\nnameserver 192.0.2.2\n";
        assert_eq!(name_server_in(text), Some("192.0.2.1".parse().unwrap()));
        assert_eq!(name_server_in("search x\n"), None);
    }
}
