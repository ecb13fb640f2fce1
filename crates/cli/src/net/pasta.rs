//! The options of `pasta` (passt's man page, pasta(1)) that Podman, Buildah and RootlessKit give.

use super::options::{Mapped, Options, Target, check_gateway, host_address, numbered};
use clap::Parser;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use kiban_service::config::Forwarded;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// Connect a network namespace with other hosts: kiban under the name of pasta.
///
/// The options are those that Podman, Buildah and RootlessKit give. Other options of pasta are refused. Where
/// no address is given, the guest has those of `kiban net`, and not this host's.
#[derive(Parser)]
#[command(
    name = "pasta",
    version,
    override_usage = "pasta [OPTIONS] [COMMAND [ARGUMENT]...]\n       pasta [OPTIONS] PROCESS\n       pasta [OPTIONS] --netns PATH",
    after_help = "Examples:\
        \n  pasta --config-net -t 8080:80 -- sh\
        \n  pasta --config-net --netns /run/user/1000/netns/guest\
        \n\nIn the background, it ends when the process ends or the file of the namespace is removed."
)]
pub(super) struct Pasta {
    /// Configure the interface.
    #[arg(long)]
    config_net: bool,
    /// The file of the network namespace, or its name in /run/netns.
    #[arg(long, value_name = "PATH")]
    netns: Option<PathBuf>,
    /// The file of the user namespace to enter before.
    #[arg(long, value_name = "PATH")]
    userns: Option<PathBuf>,
    /// Enter no user namespace.
    #[arg(long)]
    netns_only: bool,
    /// Go on when the file of the network namespace is removed.
    #[arg(long)]
    no_netns_quit: bool,
    /// The name of the guest's interface.
    #[arg(short = 'I', long, value_name = "NAME", default_value = "eth0")]
    ns_ifname: String,
    /// The longest IP packet, in bytes; 0 for the default.
    #[arg(short, long, value_name = "BYTES", default_value_t = 0)]
    mtu: usize,
    /// The guest's IPv4 or IPv6 address; may be given once for each.
    #[arg(short, long, value_name = "ADDRESS")]
    address: Vec<IpAddr>,
    /// The length of the prefix of the IPv4 address, or its mask.
    #[arg(short, long, value_name = "BITS")]
    netmask: Option<String>,
    /// The guest's gateway; may be given once for IPv4 and for IPv6.
    #[arg(short, long, value_name = "ADDRESS")]
    gateway: Vec<IpAddr>,
    /// Give the guest no IPv6.
    #[arg(short = '4', long, conflicts_with = "ipv6_only")]
    ipv4_only: bool,
    /// Give the guest no IPv4.
    #[arg(short = '6', long)]
    ipv6_only: bool,
    /// Pass requests for names at this address on to this host's name servers; may be repeated.
    #[arg(long, value_name = "ADDRESS")]
    dns_forward: Vec<IpAddr>,
    /// Accepted: none. DHCP announces the address of --dns-forward, or the gateway's.
    #[arg(short = 'D', long, value_name = "ADDRESS", value_parser = ["none"])]
    dns: Option<String>,
    /// Do not let the gateway's address stand for this host's loopback.
    #[arg(long)]
    no_map_gw: bool,
    /// Let this address, and not the gateway's, stand for this host's loopback; or none.
    #[arg(long, value_name = "ADDRESS")]
    map_host_loopback: Vec<String>,
    /// Let this address stand for this host's address towards other hosts; or none.
    #[arg(long, value_name = "ADDRESS")]
    map_guest_addr: Vec<String>,
    /// Forward TCP ports of this host: none (the default), auto, all, or
    /// [ADDRESS/]PORT[-PORT][:PORT[-PORT]], with commas between ports.
    #[arg(short = 't', long, value_name = "PORTS")]
    tcp_ports: Vec<String>,
    /// Forward UDP ports of this host, likewise.
    #[arg(short = 'u', long, value_name = "PORTS")]
    udp_ports: Vec<String>,
    /// Forward TCP ports of the guest's loopback to this host's, likewise.
    #[arg(short = 'T', long, value_name = "PORTS")]
    tcp_ns: Vec<String>,
    /// Forward UDP ports of the guest's loopback to this host's, likewise.
    #[arg(short = 'U', long, value_name = "PORTS")]
    udp_ns: Vec<String>,
    /// Accepted: callers at this host's loopback reach the guest's loopback in any case.
    #[arg(long)]
    host_lo_to_ns_lo: bool,
    /// Record the guest's packets to a capture file.
    #[arg(short = 'p', long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write the number of the process in the background to a file.
    #[arg(short = 'P', long, value_name = "FILE")]
    pid: Option<PathBuf>,
    /// Stay in the foreground.
    #[arg(short, long)]
    foreground: bool,
    /// Accepted: only errors and warnings are printed in any case.
    #[arg(short, long)]
    quiet: bool,
    /// Accepted: KIBAN_LOG=debug prints more.
    #[arg(short, long)]
    debug: bool,
    /// Accepted: KIBAN_LOG=debug prints more.
    #[arg(long)]
    trace: bool,
    /// Accepted: errors are always printed to standard error.
    #[arg(short = 'e', long)]
    stderr: bool,
    /// A command with its arguments [default: $SHELL], or the number of a process.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Pasta {
    /// Checks the options.
    ///
    /// # Errors
    /// An option is invalid or not implemented; the message names it.
    pub(super) fn options(&self) -> Result<Options, String> {
        let mut options = Options::new(self.target()?, self.addresses()?);
        options.background = !self.foreground && !matches!(options.target, Target::Command(..));
        // Without addresses, a command would have an interface that it cannot use.
        options.configures = self.config_net || matches!(options.target, Target::Command(..));
        if self.mtu != 0 {
            options.set_mtu(self.mtu)?;
        }
        options.interface.clone_from(&self.ns_ifname);
        // A command's resolv.conf names the gateway.
        let first = options.addresses.first().filter(|_| self.dns_forward.is_empty());
        options.dns = self.dns_forward.iter().copied().chain(first.map(|(_, gateway)| *gateway)).collect();
        self.map_hosts(&mut options)?;
        (options.tcp, options.udp) = (ports("-t", &self.tcp_ports)?, ports("-u", &self.udp_ports)?);
        (options.guest_tcp, options.guest_udp) = (ports("-T", &self.tcp_ns)?, ports("-U", &self.udp_ns)?);
        options.pcap.clone_from(&self.pcap);
        options.pid_file.clone_from(&self.pid);
        Ok(options)
    }

    fn target(&self) -> Result<Target, String> {
        if let Some(netns) = &self.netns {
            if !self.command.is_empty() {
                return Err("--netns and a command exclude each other".into());
            }
            let is_name = netns.components().count() == 1;
            let net = if is_name { PathBuf::from("/run/netns").join(netns) } else { netns.clone() };
            let user = self.userns.clone().filter(|_| !self.netns_only);
            return Ok(Target::Namespace { user, net, ends: !self.no_netns_quit });
        }
        let shell = || vec![std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())];
        let command = if self.command.is_empty() { shell() } else { self.command.clone() };
        match (command[0].to_str().and_then(|word| word.parse().ok()), command.len()) {
            (Some(process), 1) => Ok(Target::Process(process)),
            _ => Ok(Target::Command(command[0].clone(), command[1..].to_vec())),
        }
    }

    fn addresses(&self) -> Result<Vec<(IpNet, IpAddr)>, String> {
        let bits = |text: &String| {
            let mask = text.parse().ok().and_then(|mask| ipnet::ip_mask_to_prefix(IpAddr::V4(mask)).ok());
            mask.or_else(|| text.parse().ok().filter(|bits| *bits <= 32)).ok_or_else(|| {
                format!("--netmask {text}: write a number of bits, or a mask such as 255.255.255.0")
            })
        };
        let bits = self.netmask.as_ref().map_or(Ok(24), bits)?;
        let mut four = Ipv4Addr::new(10, 0, 2, 15);
        let mut six: Ipv6Addr = "fd6b:6962:616e::15".parse().expect("an address");
        for address in &self.address {
            match address {
                IpAddr::V4(address) => four = *address,
                IpAddr::V6(address) => six = *address,
            }
        }
        let four = Ipv4Net::new(four, bits).map_err(|error| format!("--netmask {bits}: {error}"))?;
        let six = Ipv6Net::new(six, 64).expect("the length is less than 128");
        let given = |is_ipv4| self.gateway.iter().copied().find(|gateway| gateway.is_ipv4() == is_ipv4);
        let gateway4 = given(true).unwrap_or(IpAddr::V4(numbered(four, 2)));
        let gateway6 = given(false).unwrap_or(IpAddr::V6((six.network().to_bits() + 2).into()));
        let mut addresses = Vec::new();
        if !self.ipv6_only {
            addresses.push((IpNet::V4(four), gateway4));
        }
        if !self.ipv4_only {
            addresses.push((IpNet::V6(six), gateway6));
        }
        for (address, gateway) in &addresses {
            check_gateway(*address, *gateway, ("--address", "--gateway"))?;
        }
        Ok(addresses)
    }

    /// Adds the addresses that stand for this host.
    fn map_hosts(&self, options: &mut Options) -> Result<(), String> {
        let read = |name: &str, given: &[String]| -> Result<Vec<IpAddr>, String> {
            let given = given.iter().filter(|word| *word != "none");
            given
                .map(|word| word.parse().map_err(|_| format!("{name} {word}: write an address, or none")))
                .collect()
        };
        let gateways = options.addresses.iter().map(|(_, gateway)| *gateway);
        let loopback = match self.map_host_loopback.as_slice() {
            [] if self.no_map_gw => Vec::new(),
            [] => gateways.collect(),
            given => read("--map-host-loopback", given)?,
        };
        loopback.into_iter().for_each(|at| options.map_loopback(at));
        for at in read("--map-guest-addr", &self.map_guest_addr)? {
            // Without a route to other hosts there is no such address; the guest then reaches nothing here.
            if let Some(host) = host_address(at.is_ipv4()) {
                options.map.push(Mapped { from: at, to: host });
            }
        }
        Ok(())
    }
}

/// Reads ports that are forwarded.
fn ports(name: &str, given: &[String]) -> Result<Vec<Forwarded>, String> {
    let mut all = Vec::new();
    for text in given.iter().filter(|text| *text != "none") {
        if text == "auto" || text == "all" {
            all.extend(Forwarded::parse(text));
            continue;
        }
        let (address, ports) =
            text.split_once('/').map_or((None, text.as_str()), |(at, ports)| (Some(at), ports));
        let address = address.map(|address| address.trim_matches(['[', ']']));
        for part in ports.split(',') {
            all.push(Forwarded::range(address, part).ok_or_else(|| {
                format!(
                    "{name} {text}: write none, auto, all, or [ADDRESS/]PORT[-PORT][:PORT[-PORT]], with commas \
                     between ports"
                )
            })?);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &str) -> Result<Options, String> {
        let words = std::iter::once("pasta").chain(arguments.split_whitespace());
        Pasta::try_parse_from(words).map_err(|error| error.to_string()).and_then(|pasta| pasta.options())
    }

    #[test]
    fn the_options_of_podman_are_understood() {
        let text = "--config-net -t 127.0.0.1/8080-8080:80-80 -u 5353-5354:53-54 --dns-forward 169.254.1.1 -T none \
            -U none --no-map-gw --host-lo-to-ns-lo --quiet --netns /run/user/1/netns/x --map-guest-addr 169.254.1.2";
        let options = options(text).unwrap();
        assert!(options.background && options.configures);
        let net = "/run/user/1/netns/x".into();
        assert_eq!(options.target, Target::Namespace { user: None, net, ends: true });
        assert_eq!(options.tcp, [Forwarded::parse("127.0.0.1:8080:80").unwrap()]);
        assert_eq!(options.udp, [Forwarded::parse("5353-5354:53-54").unwrap()]);
        assert!(options.guest_tcp.is_empty() && options.guest_udp.is_empty());
        let loopback = |mapped: &Mapped| mapped.to.is_loopback();
        assert!(!options.map.iter().any(loopback), "{options:?}");
    }

    #[test]
    fn the_options_of_podman_5_0_are_understood() {
        let options = options(
            "--config-net -t none -u none -T none -U none --no-map-gw --dns none --quiet --netns /x/y",
        );
        assert_eq!(options.unwrap().dns, ["10.0.2.2".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn the_options_of_rootlesskit_are_understood() {
        let text = "--stderr --ns-ifname=tap0 --mtu=65520 --config-net --address=10.0.2.100 --netmask=24 \
            --gateway=10.0.2.2 --dns-forward=10.0.2.3 --ipv4-only --tcp-ports=auto --udp-ports=auto 4711";
        let options = options(text).unwrap();
        assert_eq!(options.target, Target::Process(4711));
        let address = ("10.0.2.100/24".parse().unwrap(), "10.0.2.2".parse().unwrap());
        assert_eq!(options.addresses, [address]);
        assert_eq!((options.interface.as_str(), options.mtu_bytes), ("tap0", 65_520));
        assert_eq!((&options.tcp[..], &options.udp[..]), (&[Forwarded::Auto][..], &[Forwarded::Auto][..]));
        // Without --no-map-gw, the gateway's address stands for this host's loopback.
        assert!(options.map.iter().any(|mapped| mapped.from == address.1), "{options:?}");
    }

    #[test]
    fn what_is_not_implemented_is_named() {
        for (arguments, named) in [
            ("-t ~22 1", "-t ~22: write"),
            ("--dhcp-dns 1", "--dhcp-dns"),
            ("--dns 192.0.2.1 1", "--dns"),
            ("--mtu 100 1", "--mtu 100"),
            ("--netmask 33 1", "--netmask 33"),
            ("--gateway 192.0.2.1 1", "--gateway 192.0.2.1"),
            ("--netns /x true", "--netns and a command"),
        ] {
            let said = options(arguments).unwrap_err();
            assert!(said.contains(named), "{arguments}: {said}");
        }
    }
}
