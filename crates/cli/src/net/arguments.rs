//! Arguments of `kiban net`.

use super::options::{Options, Target, check_gateway};
use clap::{Args, ValueHint};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use kiban_link::Role;
use kiban_link::address::Transport;
use kiban_service::config::Forwarded;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

/// Give a command or a container its own network, without privileges.
///
/// The program runs in a user and network namespace of its own. Its interface leads to a board in this
/// process, which connects it with other hosts through ordinary sockets of this host's user: TCP, UDP, and
/// ping where this host allows it. The program can reach whatever this user can reach, except this host's
/// loopback (see --host-loopback, -T and -U). Other hosts can reach it only at ports forwarded with -t and
/// -u.
///
/// Given a process number instead of a command, kiban creates the interface in that process's network
/// namespace.
///
/// With --qemu-stream or --qemu-dgram, the guest is a virtual machine, and a command is a program that starts
/// it, in this host's namespaces.
#[derive(Args)]
#[command(
    override_usage = "kiban net [OPTIONS] -- COMMAND [ARGUMENT]...\n       kiban net [OPTIONS] PROCESS\n       \
    kiban net [OPTIONS] --qemu-stream PATH [-- COMMAND [ARGUMENT]...]"
)]
#[command(after_help = "Examples:\
        \n  kiban net -- curl https://www.debian.org/\
        \n  kiban net -t 8080:80 -- sh -c 'cd site; python3 -m http.server 80'\
        \n  kiban net -t auto -T 5432 -- bash               also reaches this host's 127.0.0.1:5432, at 127.0.0.1\
        \n  kiban net --mtu 1500 --pcap guest.pcap -- bash\
        \n  kiban net 4711                                  the network of process 4711\
        \n  kiban net -t 2222:22 --qemu-stream vm.sock      and then, with the machine's other options:\
        \n  qemu-system-x86_64 -netdev stream,id=net,server=off,addr.type=unix,addr.path=vm.sock \\\
        \n      -device virtio-net-pci,netdev=net ...\
        \n\nkiban status net-NUMBER shows connections and counters; NUMBER is that of the process kiban net.\
        \n\nVariables:\
        \n  KIBAN_LOG    log level of the board: error, warn (the default), info, debug\
        \n\nExit status: that of the command; 126 or 127 if it cannot be started, 1 if there is no network for it.")]
pub(crate) struct Net {
    /// The guest's IPv4 address, with the length of its prefix.
    #[arg(long, value_name = "ADDRESS/BITS", value_parser = network::<Ipv4Net>, default_value = "10.0.2.15/24")]
    address: Ipv4Net,
    /// The guest's default gateway: an address of the board.
    #[arg(long, default_value = "10.0.2.2")]
    gateway: Ipv4Addr,
    /// The guest's IPv6 address, with the length of its prefix.
    #[arg(long, value_name = "ADDRESS/BITS", value_parser = network::<Ipv6Net>, default_value = "fd6b:6962:616e::15/64")]
    address6: Ipv6Net,
    /// The guest's default gateway for IPv6.
    #[arg(long, default_value = "fd6b:6962:616e::2")]
    gateway6: Ipv6Addr,
    /// Give the guest no IPv6.
    #[arg(long, conflicts_with_all = ["address6", "gateway6"])]
    no_ipv6: bool,
    /// The longest IP packet, in bytes, up to 65520 [default: 65520, or 1500 with a virtual machine].
    #[arg(long, value_name = "BYTES")]
    mtu: Option<usize>,
    /// The name of the guest's interface.
    #[arg(long, value_name = "NAME", default_value = "eth0")]
    interface: String,
    /// A name server for the guest's requests to the gateway; may be repeated [default: those in
    /// /etc/resolv.conf].
    ///
    /// If one does not answer for a second, requests go to the next one, too. Changes of /etc/resolv.conf
    /// take effect within a second.
    #[arg(long, value_name = "ADDRESS")]
    dns: Vec<IpAddr>,
    /// Let the guest reach this host's loopback at the gateway's addresses.
    #[arg(long)]
    host_loopback: bool,
    /// Forward a TCP port of this host to the guest, or a range of ports; may be repeated.
    ///
    /// Write `auto` for all ports at which the guest listens at any time, `all` for all free ports.
    #[arg(short = 't', long = "tcp", value_name = "[ADDRESS:]PORT[:GUEST-PORT]", value_hint = ValueHint::Other)]
    tcp: Vec<String>,
    /// Forward a UDP port of this host to the guest, likewise.
    #[arg(short = 'u', long = "udp", value_name = "[ADDRESS:]PORT[:GUEST-PORT]", value_hint = ValueHint::Other)]
    udp: Vec<String>,
    /// Forward a TCP port of the guest's loopback to this host's loopback, or a range; may be repeated.
    ///
    /// Write `auto` for all ports at which this host listens at any time, `all` for all free ports.
    #[arg(short = 'T', long, value_name = "PORT[:HOST-PORT]", value_hint = ValueHint::Other)]
    guest_tcp: Vec<String>,
    /// Forward a UDP port of the guest's loopback to this host's loopback, likewise.
    #[arg(short = 'U', long, value_name = "PORT[:HOST-PORT]", value_hint = ValueHint::Other)]
    guest_udp: Vec<String>,
    /// Record the guest's packets to a capture file.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Listen at a path for QEMU's `-netdev stream`: the guest is a virtual machine, which may restart.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["interface", "qemu_dgram"])]
    qemu_stream: Option<PathBuf>,
    /// Exchange datagrams with QEMU's `-netdev dgram`; the first path is kiban's own.
    #[arg(long, value_name = "PATH:QEMU-PATH", conflicts_with = "interface")]
    qemu_dgram: Option<String>,
    /// A command with its arguments after `--`, or the number of a process.
    #[arg(required_unless_present_any = ["qemu_stream", "qemu_dgram"], trailing_var_arg = true, value_name = "COMMAND")]
    target: Vec<OsString>,
}

impl Net {
    /// Checks the options.
    ///
    /// # Errors
    /// An option is invalid; the message says how to write it.
    pub(super) fn options(&self) -> Result<Options, String> {
        let command =
            self.target.split_first().map(|(program, arguments)| (program.clone(), arguments.to_vec()));
        let target = match (self.machine()?, command) {
            (Some(_), Some((program, _))) if number(&program).is_some() => {
                return Err(
                    "give the command that starts the virtual machine, or nothing; not a process".into()
                );
            }
            (Some(link), command) => Target::Machine { link, command },
            (None, None) => return Err("no command is given".into()),
            (None, Some((program, arguments))) => match number(&program) {
                Some(process) if arguments.is_empty() => Target::Process(process),
                Some(process) => {
                    return Err(format!(
                        "nothing may follow the process number {process}; put options before it"
                    ));
                }
                None => Target::Command(program, arguments),
            },
        };
        let mut addresses = vec![(IpNet::V4(self.address), IpAddr::V4(self.gateway))];
        check_gateway(addresses[0].0, addresses[0].1, ("--address", "--gateway"))?;
        if !self.no_ipv6 {
            addresses.push((IpNet::V6(self.address6), IpAddr::V6(self.gateway6)));
            check_gateway(addresses[1].0, addresses[1].1, ("--address6", "--gateway6"))?;
        }
        let gateways: Vec<IpAddr> = addresses.iter().map(|(_, gateway)| *gateway).collect();
        let mut options = Options::new(target, addresses);
        if self.host_loopback {
            gateways.iter().for_each(|gateway| options.map_loopback(*gateway));
        }
        (options.dns, options.dns_servers) = (gateways, self.dns.clone());
        (options.tcp, options.udp) = (ports("-t", &self.tcp)?, ports("-u", &self.udp)?);
        options.guest_tcp = ports("-T", &self.guest_tcp)?;
        options.guest_udp = ports("-U", &self.guest_udp)?;
        let is_machine = matches!(options.target, Target::Machine { .. });
        let needs_sockets = |ports: &Forwarded| matches!(ports, Forwarded::Auto);
        if is_machine && (self.uses_loopback_of_guest() || options.forwarded().any(needs_sockets)) {
            return Err("-T, -U and auto do not work with a virtual machine: its sockets are its own".into());
        }
        options.configures = !is_machine;
        options.set_mtu(self.mtu.unwrap_or(if is_machine { 1500 } else { options.mtu_bytes }))?;
        options.interface.clone_from(&self.interface);
        options.pcap.clone_from(&self.pcap);
        Ok(options)
    }

    fn uses_loopback_of_guest(&self) -> bool {
        !self.guest_tcp.is_empty() || !self.guest_udp.is_empty()
    }

    /// Returns the link to a virtual machine, if the guest is one.
    fn machine(&self) -> Result<Option<Transport>, String> {
        if let Some(path) = &self.qemu_stream {
            return Ok(Some(Transport::Unix(Role::Listen, path.clone())));
        }
        let Some(text) = &self.qemu_dgram else { return Ok(None) };
        match text.split_once(':').filter(|(own, peer)| !own.is_empty() && !peer.is_empty()) {
            Some((own, peer)) => Ok(Some(Transport::UnixDatagrams(own.into(), peer.into()))),
            None => {
                Err(format!("--qemu-dgram {text}: write kiban's path and QEMU's, as in net.sock:vm.sock"))
            }
        }
    }
}

/// Returns the number of a process, if a word is one.
fn number(word: &OsStr) -> Option<u32> {
    word.to_str()?.parse().ok()
}

/// Reads an address with the length of its prefix.
fn network<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "write ADDRESS/BITS, such as 10.0.2.15/24 or fd00::15/64".into())
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
