//! The options of `slirp4netns` (slirp4netns(1)) that Podman, Buildah and RootlessKit give.

use super::options::{MTU_BYTES_MAX, Options, Target, numbered};
use clap::Parser;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

/// Connect a network namespace with other hosts: kiban under the name of slirp4netns.
///
/// The options are those that Podman, Buildah and RootlessKit give. Other options of slirp4netns are refused.
#[derive(Parser)]
#[command(
    name = "slirp4netns",
    version,
    override_usage = "slirp4netns [OPTIONS] PROCESS|PATH [INTERFACE]",
    after_help = "Examples:\
        \n  slirp4netns --configure --mtu=65520 --disable-host-loopback 4711 tap0\
        \n  slirp4netns --configure --netns-type=path /run/user/1000/netns/guest tap0"
)]
pub(super) struct Slirp4netns {
    /// Configure the interface.
    #[arg(short, long)]
    configure: bool,
    /// End when the other end of this inherited file is closed.
    #[arg(short, long, value_name = "NUMBER")]
    exit_fd: Option<i32>,
    /// Write a byte to this inherited file when the network works.
    #[arg(short, long, value_name = "NUMBER")]
    ready_fd: Option<i32>,
    /// The longest IP packet, in bytes.
    #[arg(short, long, value_name = "BYTES", default_value_t = 1500)]
    mtu: usize,
    /// Give the guest IPv6.
    #[arg(short = '6', long)]
    enable_ipv6: bool,
    /// The guest's network: the gateway is its second address, names are served at the third one, and the
    /// guest has the hundredth.
    #[arg(long, value_name = "ADDRESS/BITS", default_value = "10.0.2.0/24")]
    cidr: Ipv4Net,
    /// Do not let the gateway's address stand for this host's loopback.
    #[arg(long)]
    disable_host_loopback: bool,
    /// Serve no names.
    #[arg(long)]
    disable_dns: bool,
    /// What identifies the namespace.
    #[arg(long, value_name = "TYPE", value_parser = ["pid", "path"], default_value = "pid")]
    netns_type: String,
    /// The file of the user namespace to enter before.
    #[arg(long, value_name = "PATH")]
    userns_path: Option<PathBuf>,
    /// Accepted: the board drops its capabilities, and sees no other files, in any case.
    #[arg(long)]
    enable_sandbox: bool,
    /// Accepted: system calls that the board does not need are forbidden in any case.
    #[arg(long)]
    enable_seccomp: bool,
    /// Refused: `options` says why.
    #[arg(short, long, value_name = "PATH", hide = true)]
    api_socket: Option<PathBuf>,
    /// The number of a process, or the file of a network namespace.
    #[arg(value_name = "PROCESS|PATH")]
    target: PathBuf,
    /// The name of the guest's interface.
    #[arg(default_value = "tap0")]
    interface: String,
}

/// The guest's IPv6 network: its gateway and its name server.
const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const NAMES6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 3);
const GUEST6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x100);

impl Slirp4netns {
    /// Checks the options.
    ///
    /// # Errors
    /// An option is invalid or not implemented; the message names it.
    pub(super) fn options(&self) -> Result<Options, String> {
        if self.api_socket.is_some() {
            return Err(
                "--api-socket is not implemented: let Podman forward ports with RootlessKit, its default \
                 (port_handler=rootlesskit)"
                    .into(),
            );
        }
        let target = if self.netns_type == "path" {
            Target::Namespace { user: self.userns_path.clone(), net: self.target.clone(), ends: false }
        } else {
            let process = self.target.to_str().and_then(|word| word.parse().ok());
            Target::Process(process.ok_or_else(|| {
                format!(
                    "{} is not the number of a process; --netns-type=path takes a file",
                    self.target.display()
                )
            })?)
        };
        if self.cidr.prefix_len() > 25 {
            return Err(format!("--cidr {}: the network is too small: at most 25 bits", self.cidr));
        }
        let own = |number| numbered(self.cidr, number);
        let guest = Ipv4Net::new(own(100), self.cidr.prefix_len()).expect("it is the length of another");
        let mut addresses = vec![(IpNet::V4(guest), IpAddr::V4(own(2)))];
        let mut names = vec![IpAddr::V4(own(3))];
        if self.enable_ipv6 {
            let guest = Ipv6Net::new(GUEST6, 64).expect("the length is less than 128");
            addresses.push((IpNet::V6(guest), IpAddr::V6(GATEWAY6)));
            names.push(IpAddr::V6(NAMES6));
        }
        let gateways: Vec<IpAddr> = addresses.iter().map(|(_, gateway)| *gateway).collect();
        let mut options = Options::new(target, addresses);
        options.configures = self.configure;
        // The largest one of slirp4netns is one byte longer.
        options.set_mtu(if self.mtu == MTU_BYTES_MAX + 1 { MTU_BYTES_MAX } else { self.mtu })?;
        options.interface.clone_from(&self.interface);
        if !self.disable_dns {
            options.dns = names;
        }
        if !self.disable_host_loopback {
            gateways.into_iter().for_each(|at| options.map_loopback(at));
        }
        (options.ready_fd, options.exit_fd) = (self.ready_fd, self.exit_fd);
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &str) -> Result<Options, String> {
        let words = std::iter::once("slirp4netns").chain(arguments.split_whitespace());
        let parsed = Slirp4netns::try_parse_from(words).map_err(|error| error.to_string());
        parsed.and_then(|slirp4netns| slirp4netns.options())
    }

    #[test]
    fn a_refused_option_names_the_remedy() {
        let said = options("--api-socket /run/x 4711 tap0").unwrap_err();
        assert!(said.contains("--api-socket") && said.contains("port_handler=rootlesskit"), "{said}");
    }

    #[test]
    fn the_options_of_podman_are_understood() {
        let text = "--disable-host-loopback --mtu=65520 --enable-sandbox --enable-seccomp --enable-ipv6 -c -r 3 -e 4 \
            --netns-type=path /run/user/1/netns/x tap0";
        let options = options(text).unwrap();
        let net = "/run/user/1/netns/x".into();
        assert_eq!(options.target, Target::Namespace { user: None, net, ends: false });
        assert!(options.configures && !options.background);
        assert_eq!((options.ready_fd, options.exit_fd), (Some(3), Some(4)));
        let addresses: Vec<String> =
            options.addresses.iter().map(|(guest, gateway)| format!("{guest} {gateway}")).collect();
        assert_eq!(addresses, ["10.0.2.100/24 10.0.2.2", "fd00::100/64 fd00::2"]);
        assert_eq!(options.map, []);
    }

    #[test]
    fn the_options_of_rootlesskit_are_understood() {
        let text =
            "--mtu 65520 -r 3 --cidr 10.1.0.0/16 --userns-path=/proc/9/ns/user --netns-type=path /x tap0";
        let options = options(text).unwrap();
        assert!(!options.configures, "RootlessKit configures the interface");
        let user = Some("/proc/9/ns/user".into());
        assert_eq!(options.target, Target::Namespace { user, net: "/x".into(), ends: false });
        assert_eq!(options.addresses[0].0.to_string(), "10.1.0.100/16");
        // Without --disable-host-loopback, the gateway's address stands for this host's loopback.
        assert!(options.map.iter().any(|mapped| mapped.from == "10.1.0.2".parse::<IpAddr>().unwrap()));
    }

    #[test]
    fn what_is_not_implemented_is_named() {
        for (arguments, named) in [
            ("--api-socket /x 1 tap0", "--api-socket"),
            ("--cidr 10.0.0.0/26 1 tap0", "--cidr 10.0.0.0/26"),
            ("/run/netns/x tap0", "--netns-type=path"),
            ("--mtu 100 1 tap0", "--mtu 100"),
        ] {
            let said = options(arguments).unwrap_err();
            assert!(said.contains(named), "{arguments}: {said}");
        }
    }
}
