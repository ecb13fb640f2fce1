//! The process that runs the board.

use super::options::{Mapped, Options, Target};
use crate::output::note;
use kiban_link::address::Transport;
use kiban_service::config::Forwarded;
use kiban_service::control::{ControlServer, MetricsListener};
use kiban_service::requests::Request;
use kiban_service::{Plan, Running};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// Open files that are neither sessions nor flows of the guest.
const OTHER_FILES: u64 = 600;
/// Files for the flows of callers at forwarded UDP ports.
const CALLER_FILES: u64 = 512;
/// Files for the forwarded ports that `auto` finds.
const AUTO_FILES: usize = 256;
/// The maximum number of connections of the guest; and the minimum, however few files the process may open.
const SESSIONS_MAX: u64 = 16_384;
const SESSIONS_MIN: u64 = 64;
/// The maximum number of handshakes with the guest. The service lets 4096 of them wait for their destination;
/// others have been answered, and wait for the guest.
const REQUESTS_MAX: usize = 2 * 4096;

/// How often a SYN or its answer to the guest is repeated: for half a minute. The guest is near; and the
/// handshakes of a flood of SYNs would otherwise take the places of new connections for four minutes.
const SYN_RETRIES: usize = 4;

/// The largest send buffer of a connection towards the guest. The guest is near, so this is enough for the
/// speed of the link; the data of many connections then still fits into the processor's cache.
const SEND_BUFFER_BYTES: usize = 512 << 10;

/// Runs the board until the other end of the socket is closed: on an open device, or at the link to a virtual
/// machine. `namespace` leads to a process in the guest's network namespace; on `names`, lists of this host's
/// name servers arrive.
pub(super) fn run(
    options: &Options,
    device: Option<OwnedFd>,
    (namespace, names): (Option<OwnedFd>, Option<OwnedFd>),
    socket: OwnedFd,
) -> Result<ExitCode, String> {
    crate::log::begin_quietly();
    // The first process is the one that the user knows.
    let first = rustix::process::getppid().map_or(0, |first| first.as_raw_nonzero().get());
    let name = format!("net-{first}");
    // The service takes it over.
    let (namespace, names) = (namespace.map(IntoRawFd::into_raw_fd), names.map(IntoRawFd::into_raw_fd));
    let link = match (&options.target, &device) {
        (Target::Machine { link, .. }, _) => link.clone(),
        (_, Some(device)) => Transport::TapFile(device.as_raw_fd()),
        (_, None) => return Ok(ExitCode::FAILURE),
    };
    let text = configuration(options, &link, (namespace, names), sessions_max(options)?)?;
    let plan = Plan::read(&text, &name).map_err(|error| error.to_string())?;
    let mut running = Running::start(plan, None)?;
    // The guest has its network even where the board cannot be observed.
    let control = MetricsListener::bind(None)
        .and_then(|metrics| ControlServer::open(&name, metrics, running.requests()))
        .inspect_err(|error| note!("kiban: `kiban status` does not show this network: {error}"));
    running.confine()?;
    let requests = running.requests();
    let mut socket = UnixStream::from(socket);
    let say = |error: io::Error| error.to_string();
    socket.write_all(&[1]).map_err(say)?;
    let watch = move || {
        // Nothing more arrives: this returns at the end, or with an error if the other process was killed.
        let _ = socket.read(&mut [0]);
        // The board may have stopped already.
        drop(requests.ask(Request::Down));
    };
    std::thread::Builder::new().name("guest".into()).spawn(watch).map_err(say)?;
    running.run();
    drop(control);
    Ok(ExitCode::SUCCESS)
}

/// Raises the limit of open files as far as possible. Returns how many connections fit beside the forwarded
/// ports.
///
/// # Errors
/// The ports are too many.
fn sessions_max(options: &Options) -> Result<u64, String> {
    let count = |ports: &[Forwarded]| -> usize {
        let counts = ports.iter().map(|ports| match ports {
            Forwarded::Range { ports, .. } => ports.len(),
            Forwarded::All => usize::from(u16::MAX),
            Forwarded::Auto => AUTO_FILES,
        });
        counts.sum()
    };
    // A port of the guest is open on two addresses.
    let of_guest = 2 * (count(&options.guest_tcp) + count(&options.guest_udp));
    let ports = (count(&options.tcp) + count(&options.udp) + of_guest) as u64;
    let has_callers = options.uses_namespace() && !(options.udp.is_empty() && options.guest_udp.is_empty());
    let others = OTHER_FILES + if has_callers { CALLER_FILES } else { 0 };
    let files = kiban_os::limit::raise();
    let is_auto = |ports: &Forwarded| matches!(ports, Forwarded::Auto);
    if ports + SESSIONS_MIN > files && !options.forwarded().all(is_auto) {
        return Err(format!(
            "too many ports are forwarded: {ports} files are needed, and the process may open {files} (ulimit -Hn)"
        ));
    }
    // A connection between loopback addresses has two sockets.
    let each = if options.uses_namespace() { 2 } else { 1 };
    Ok((files.saturating_sub(others + ports) / each).clamp(SESSIONS_MIN, SESSIONS_MAX))
}

/// Returns the board's configuration (docs/settings.md).
fn configuration(
    options: &Options,
    link: &Transport,
    (namespace, names): (Option<i32>, Option<i32>),
    sessions: u64,
) -> Result<String, String> {
    let mut text = String::new();
    let quoted = |text: String| toml_string(&text);
    let mut link = format!("{link},mtu={}", options.mtu_bytes);
    if let Some(file) = &options.pcap {
        let file = std::path::absolute(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let file = file.to_str().ok_or("--pcap: the file name is not UTF-8")?;
        if file.contains([',', '?', '&', '%']) {
            return Err(format!("--pcap {file}: the name must not contain , ? & or %"));
        }
        write!(link, ",record={file}").expect("a string");
    }
    // The board's addresses, each with the length of its prefix: the gateways, and others.
    let mapped = options.map.iter().map(|mapped| mapped.from).chain(options.dns.iter().copied());
    let mapped = mapped.map(|address| (address, if address.is_ipv4() { 32 } else { 128 }));
    let gateways = options.addresses.iter().map(|(guest, gateway)| (*gateway, guest.prefix_len()));
    let own: BTreeMap<IpAddr, u8> = mapped.chain(gateways).collect();
    let own = list(own.iter().map(|(address, bits)| format!("{address}/{bits}")));
    let mut add = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    // What the guest has written before it ended is still delivered.
    add("drain = \"10s\"".into());
    add(format!(
        "[tcp]\nbacklog = {REQUESTS_MAX}\nsyn_retries = {SYN_RETRIES}\nsend_buffer_max_bytes = {SEND_BUFFER_BYTES}"
    ));
    add("[memory]\ntransmit = \"32MiB\"\nreceive = \"32MiB\"".into());
    add(format!("[[port]]\nname = \"guest\"\nlink = {}", quoted(link)));
    add(format!("address = {own}\nmtu = {}", options.mtu_bytes));
    // An interface that kiban has configured needs no IPv6 configuration from the link, which would add other
    // addresses.
    let guests = options.addresses.iter().map(|(guest, _)| guest);
    let mut guests = guests.filter(|guest| guest.addr().is_ipv4() || !options.configures).peekable();
    let has_guests = guests.peek().is_some();
    add(format!("guest = {}", list(guests.map(ToString::to_string))));
    if has_guests {
        add(format!("guest_dns = {}", list(options.dns.iter().map(ToString::to_string))));
    }
    add(format!("[[service]]\nkind = \"net\"\nsessions = {sessions}"));
    add(format!("map = {}", list(options.map.iter().map(|Mapped { from, to }| format!("{from}={to}")))));
    add(format!("dns = {}", list(options.dns.iter().map(ToString::to_string))));
    add(format!("dns_servers = {}", list(options.dns_servers.iter().map(ToString::to_string))));
    if let Some(number) = names {
        add(format!("dns_changes = {number}"));
    }
    add(format!("guest = {}", list(options.addresses.iter().map(|(guest, _)| guest.to_string()))));
    let ports = [
        ("tcp", &options.tcp),
        ("udp", &options.udp),
        ("guest_tcp", &options.guest_tcp),
        ("guest_udp", &options.guest_udp),
    ];
    for (key, ports) in ports {
        add(format!("{key} = {}", list(ports.iter().map(Forwarded::to_string))));
    }
    if let Some(number) = namespace {
        add(format!("namespace = {number}"));
    }
    Ok(text)
}

/// Returns a list of texts in TOML.
fn list(texts: impl Iterator<Item = String>) -> String {
    format!("[{}]", texts.map(|text| toml_string(&text)).collect::<Vec<_>>().join(", "))
}

/// Returns a text as a TOML string.
fn toml_string(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}
