//! Arguments of `kiban net`.

use super::options::{Options, Target, check_gateway, host_name_server};
use clap::Args;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use kiban_service::config::Forwarded;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// Connect a command or a container with other hosts, without privileges.
///
/// The program runs in a user and network namespace of its own. Its interface leads to a board in this
/// process, which connects it with other hosts through ordinary sockets of this host's user: TCP, UDP, and
/// ping where this host allows it. The program can reach whatever this user can reach, except this host's
/// loopback (see --host-loopback, -T and -U). Other hosts can reach it only at ports forwarded with -t and
/// -u.
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
        \n  kiban net -t auto -T 5432 -- bash               also reaches this host's 127.0.0.1:5432, at 127.0.0.1\
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
    /// Forward a TCP port of this host to the guest, or a range of ports; may be repeated.
    ///
    /// Write `auto` for all ports at which the guest listens at any time, `all` for all free ports.
    #[arg(short = 't', long = "tcp", value_name = "[ADDRESS:]PORT[:GUEST-PORT]")]
    tcp: Vec<String>,
    /// Forward a UDP port of this host to the guest, likewise.
    #[arg(short = 'u', long = "udp", value_name = "[ADDRESS:]PORT[:GUEST-PORT]")]
    udp: Vec<String>,
    /// Forward a TCP port of the guest's loopback to this host's loopback, or a range; may be repeated.
    ///
    /// Write `auto` for all ports at which this host listens at any time, `all` for all free ports.
    #[arg(short = 'T', long, value_name = "PORT[:HOST-PORT]")]
    guest_tcp: Vec<String>,
    /// Forward a UDP port of the guest's loopback to this host's loopback, likewise.
    #[arg(short = 'U', long, value_name = "PORT[:HOST-PORT]")]
    guest_udp: Vec<String>,
    /// Record the guest's packets to a capture file.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// A command with its arguments after `--`, or the number of a process.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    target: Vec<OsString>,
}

impl Net {
    /// Checks the options.
    ///
    /// # Errors
    /// An option is invalid; the message says how to write it.
    pub(super) fn options(&self) -> Result<Options, String> {
        let (program, arguments) = self.target.split_first().ok_or("no command is given")?;
        // A single word that is a number is a process.
        let target = match (program.to_str().and_then(|word| word.parse().ok()), arguments) {
            (Some(process), []) => Target::Process(process),
            _ => Target::Command(program.clone(), arguments.to_vec()),
        };
        let mut addresses = vec![(IpNet::V4(self.address), IpAddr::V4(self.gateway))];
        check_gateway(addresses[0].0, addresses[0].1, ("--address", "--gateway"))?;
        if !self.no_ipv6 {
            addresses.push((IpNet::V6(self.address6), IpAddr::V6(self.gateway6)));
            check_gateway(addresses[1].0, addresses[1].1, ("--address6", "--gateway6"))?;
        }
        let gateways: Vec<IpAddr> = addresses.iter().map(|(_, gateway)| *gateway).collect();
        let mut options = Options::new(target, addresses);
        let name_server = self.dns.or_else(host_name_server);
        for gateway in gateways {
            if let Some(server) = name_server {
                options.map_names(gateway, server);
            }
            if self.host_loopback {
                options.map_loopback(gateway);
            }
        }
        (options.tcp, options.udp) = (ports("-t", &self.tcp)?, ports("-u", &self.udp)?);
        options.guest_tcp = ports("-T", &self.guest_tcp)?;
        options.guest_udp = ports("-U", &self.guest_udp)?;
        options.mtu_bytes = self.mtu as usize;
        options.interface.clone_from(&self.interface);
        options.pcap.clone_from(&self.pcap);
        Ok(options)
    }
}

/// Reads ports that are forwarded.
fn ports(name: &str, given: &[String]) -> Result<Vec<Forwarded>, String> {
    let read = |text: &String| {
        Forwarded::parse(text).ok_or_else(|| {
            format!(
                "{name} {text}: write [ADDRESS:]PORT[:PORT], such as 8080:80, 127.0.0.1:8080:80 or 8000-8009, or \
                 auto, or all"
            )
        })
    };
    given.iter().map(read).collect()
}
