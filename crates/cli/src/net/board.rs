//! The process that runs the board.

use super::arguments::{Forwarded, Options};
use kiban_service::control::{ControlServer, MetricsListener};
use kiban_service::requests::Request;
use kiban_service::{Plan, Running};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// Open files that are neither sessions nor flows of the guest.
const OTHER_FILES: u64 = 600;
/// The maximum number of connections of the guest.
const SESSIONS_MAX: u64 = 16_384;
/// The maximum number of connections that wait for an answer of their destination.
const REQUESTS_MAX: usize = 4096;

/// Runs the board on an open device until the other end of the socket is closed.
pub(super) fn run(options: &Options, device: OwnedFd, socket: OwnedFd) -> Result<ExitCode, String> {
    crate::log::begin_quietly();
    // The first process is the one that the user knows.
    let first = rustix::process::getppid().map_or(0, |first| first.as_raw_nonzero().get());
    let name = format!("net-{first}");
    let text = configuration(options, &device, sessions_max())?;
    let plan = Plan::read(&text, &name).map_err(|error| error.to_string())?;
    let mut running = Running::start(plan, None)?;
    let control = ControlServer::open(&name, MetricsListener::bind(None)?, running.requests())?;
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

/// Raises the limit of open files as far as possible. Returns how many connections fit.
fn sessions_max() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, the old limit stays.
    let _ = setrlimit(Resource::Nofile, limit);
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    files.saturating_sub(OTHER_FILES).clamp(64, SESSIONS_MAX)
}

/// Returns the board's configuration (docs/settings.md).
fn configuration(options: &Options, device: &OwnedFd, sessions: u64) -> Result<String, String> {
    let mut text = String::new();
    let quoted = |text: String| toml_string(&text);
    let mut link = format!("tap-fd:{},mtu={}", device.as_raw_fd(), options.mtu_bytes);
    if let Some(file) = &options.pcap {
        let file = std::path::absolute(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let file = file.to_str().ok_or("--pcap: the file name is not UTF-8")?;
        if file.contains([',', '?', '&', '%']) {
            return Err(format!("--pcap {file}: the name must not contain , ? & or %"));
        }
        write!(link, ",record={file}").expect("a string");
    }
    let own: Vec<String> = options
        .addresses()
        .iter()
        .map(|(guest, gateway)| quoted(format!("{gateway}/{}", guest.prefix_len())))
        .collect();
    let mut add = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    // What the guest has written before it ended is still delivered.
    add("drain = \"10s\"".into());
    add(format!("[tcp]\nbacklog = {REQUESTS_MAX}"));
    add("[memory]\ntransmit = \"32MiB\"\nreceive = \"32MiB\"".into());
    add(format!("[[port]]\nname = \"guest\"\nlink = {}", quoted(link)));
    add(format!("address = [{}]\nmtu = {}", own.join(", "), options.mtu_bytes));
    add(format!("[[service]]\nkind = \"net\"\nsessions = {sessions}"));
    add(format!("host_loopback = {}", options.host_loopback));
    if let Some(server) = options.name_server {
        add(format!("name_server = {}", quoted(server.to_string())));
    }
    for Forwarded { from, to_port } in &options.tcp {
        let to = options.address.addr();
        add(format!("[[service]]\nkind = \"forward\"\nlisten = \"kernel:{from}\"\nto = \"{to}:{to_port}\""));
    }
    Ok(text)
}

/// Returns a text as a TOML string.
fn toml_string(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}
