//! `kiban status`, `reload`, `down` and `capture`: requests to a running board.

use crate::output::note;
use clap::Args;
use kiban_lab::table::Table;
use kiban_service::config::DurationValue;
use kiban_service::control::{CAPTURE_MAX, CaptureEnd, ControlClient, Question, Reply};
use kiban_service::requests::Captured;
use kiban_service::signals::{self, SignalRequest};
use kiban_service::status::{Circuit, Dhcp, Guest, Sandbox, Status, Use};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Selects the board.
#[derive(Args)]
pub(crate) struct BoardName {
    /// Name of the board; needed only if several are running.
    name: Option<String>,
    /// Same as NAME.
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    board: Option<String>,
}

impl BoardName {
    pub(crate) fn call(&self) -> Result<ControlClient, String> {
        ControlClient::call(self.name.as_deref().or(self.board.as_deref()))
    }
}

/// Show the status of a running board: ports, circuits, services, sessions, memory.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban status                                    if only one board is running\
        \n  kiban status lab --json | jq .ports[0].rates\
        \n  watch -n1 kiban status                          or: kiban top\
        \n\nExit status: 0 if all links are up, 1 if no such board is running or a link is down.")]
pub(crate) struct Show {
    #[command(flatten)]
    which: BoardName,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let status = query_status(&mut self.which.call()?)?;
        crate::output::print(&if self.json { crate::output::json(&status)? } else { status_text(&status) })?;
        let is_well = status.ports.iter().all(|port| port.state == "up");
        Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Make a running board reload its configuration.
///
/// Changed services, routes and links are replaced; everything else, including sessions, is unaffected.
/// Changes that need a restart (ports, addresses, memory, TCP settings) are refused with an error that names
/// the key, and then nothing is changed.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban up --check board.toml && kiban reload\n  systemctl reload kiban@lab"
)]
pub(crate) struct Reload {
    #[command(flatten)]
    which: BoardName,
}

impl Reload {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        carry_out(&mut self.which.call()?, &Question::Reload {}).map(|()| ExitCode::SUCCESS)
    }
}

/// Stop a running board.
///
/// Services stop listening, and sessions have `drain` (10 s) to finish; a second `kiban down` stops the
/// board at once. The command waits until the board has stopped.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban down && kiban up board.toml\
        \n  kiban down lab --no-wait      sessions may still be open")]
pub(crate) struct Down {
    #[command(flatten)]
    which: BoardName,
    /// Do not wait until the board has stopped.
    #[arg(long)]
    no_wait: bool,
}

impl Down {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let mut caller = self.which.call()?;
        carry_out(&mut caller, &Question::Down {})?;
        if !self.no_wait {
            caller.wait();
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Capture the traffic of a port of a running board, as a file for Wireshark.
///
/// The recording ends after `--seconds`, after `--packets`, on ctrl-c, or after a day. The command then
/// prints the file's name and the number of packets in it. The board's process writes the file without
/// interrupting traffic, and the file is complete however this command ends. The board may write in
/// directories for temporary files ($TMPDIR or /tmp, /var/tmp), in that of its control socket, in those of
/// `record=`, and in those listed under `write` in `[sandbox]` (docs/operations.md).
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban capture lan /tmp/lan.pcap                 until ctrl-c\
        \n  kiban capture lan /tmp/lan.pcap --seconds 5m --board lab\
        \n  kiban capture lan /tmp/lan.pcap --packets 100 && wireshark /tmp/lan.pcap\
        \n\nExit status: 0 if the file is complete, 1 otherwise.")]
pub(crate) struct Capture {
    /// Name of the port.
    port: String,
    /// The capture file (pcap); must not exist.
    file: PathBuf,
    /// Stop after this time: 10 (seconds), 500ms, 2s, 5m.
    #[arg(long, value_name = "TIME", value_parser = capture_time)]
    seconds: Option<Duration>,
    /// Stop after this many packets.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    packets: Option<u64>,
    /// Name of the board; needed only if several are running.
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
}

/// Parses a duration with a unit, or in seconds without one.
pub(crate) fn time_or_seconds(text: &str) -> Result<Duration, String> {
    let is_number = text.ends_with(|last: char| last.is_ascii_digit());
    let word = if is_number { format!("{text}s") } else { text.to_owned() };
    let DurationValue(time) =
        word.parse().map_err(|_| "write a time such as 10 (seconds), 500ms, 2s or 5m")?;
    Ok(time)
}

/// Parses the duration of a capture.
fn capture_time(text: &str) -> Result<Duration, String> {
    let time = time_or_seconds(text)?;
    if time.is_zero() || time > CAPTURE_MAX {
        return Err(format!("must be more than 0 and at most {} h", CAPTURE_MAX.as_secs() / 3600));
    }
    Ok(time)
}

impl Capture {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        if self.file.as_os_str() == "-" {
            return Err(
                "the board's process writes the capture and cannot write to standard output: name a file"
                    .into(),
            );
        }
        // The board's working directory may differ from this process's.
        let file =
            std::path::absolute(&self.file).map_err(|error| format!("{}: {error}", self.file.display()))?;
        let seconds = self.seconds.map(|time| time.as_secs_f64());
        let question = Question::Capture { port: self.port.clone(), file, seconds, packets: self.packets };
        let begun = |end: CaptureEnd| {
            let has_ended = AtomicBool::new(false);
            let on_signal = move |wish| {
                if wish == SignalRequest::Stop {
                    end.end();
                    // A second ctrl-c exits at once, because the board may not answer.
                    if has_ended.swap(true, Ordering::AcqRel) {
                        std::process::exit(1);
                    }
                }
            };
            signals::handle(on_signal).map_err(|error| error.to_string())?;
            note!("capturing port {} into {}; press ctrl-c to stop", self.port, self.file.display());
            Ok(())
        };
        match ControlClient::call(self.board.as_deref())?.capture(&question, begun)? {
            Reply::Captured(Captured { port, packets, bytes, .. }) => {
                let file = self.file.display();
                crate::output::print(&format!(
                    "{packets} packets on port {port} captured into {file}, {bytes} bytes\n"
                ))?;
                Ok(ExitCode::SUCCESS)
            }
            Reply::Refused(why) => Err(why),
            Reply::Status(_) | Reply::Loopback(_) | Reply::Echo(_) | Reply::Done(_) => {
                Err("unexpected answer from the board".into())
            }
        }
    }
}

/// Sends a request to a board and prints the answer.
fn carry_out(caller: &mut ControlClient, question: &Question) -> Result<(), String> {
    match caller.ask(question)? {
        Reply::Done(what) => crate::output::print(&(what + "\n")),
        Reply::Refused(why) => Err(why),
        Reply::Status(_) | Reply::Loopback(_) | Reply::Echo(_) | Reply::Captured(_) => {
            Err("unexpected answer from the board".into())
        }
    }
}

/// Returns the reason why programs cannot use a board: it is not running, it belongs to another user, or it
/// has no service of this `kind`. If none of these applies, returns `otherwise`.
pub(crate) fn unavailable_reason(board: Option<&str>, kind: &str, otherwise: &str) -> String {
    let lacks = |status: &Status| !status.services.iter().any(|service| service.kind == kind);
    match ControlClient::call(board).and_then(|mut caller| query_status(&mut caller)) {
        Ok(status) if lacks(&status) => {
            let name = status.name;
            format!(
                "board {name} does not accept programs: add a service of kind \"{kind}\" to its configuration"
            )
        }
        Ok(_) => otherwise.to_owned(),
        Err(why) => why,
    }
}

/// Requests the status of a board.
pub(crate) fn query_status(caller: &mut ControlClient) -> Result<Status, String> {
    match caller.ask(&Question::Status {})? {
        Reply::Status(status) => Ok(*status),
        Reply::Refused(why) => Err(why),
        Reply::Done(what) => Err(format!("unexpected answer from the board: {what}")),
        Reply::Loopback(_) | Reply::Echo(_) | Reply::Captured(_) => {
            Err("unexpected answer from the board".into())
        }
    }
}

/// Formats a board's status as text.
pub(crate) fn status_text(status: &Status) -> String {
    let mut text = format!(
        "board {} {}, up {}, process {}, {}\n",
        status.name,
        status.state,
        indicatif::HumanDuration(Duration::from_secs_f64(status.uptime_seconds)),
        status.pid,
        status.config
    );
    let part = |name: &str, Use { capacity, used }: Use| {
        let percent = 100.0 * used as f64 / capacity.max(1) as f64;
        format!("{name} {percent:.1} % of {}", indicatif::BinaryBytes(capacity))
    };
    let memory = &status.memory;
    text += &format!(
        "memory: {}, {}",
        part("transmit", memory.transmit_bytes),
        part("receive", memory.receive_bytes)
    );
    text += &format!(", PDUs {} of {}\n", memory.pdus.used, memory.pdus.capacity);
    text += &match &status.sandbox {
        None => "sandbox: off\n".to_owned(),
        Some(Sandbox { capabilities, landlock, seccomp }) => {
            let kept = if capabilities.is_empty() { "none".to_owned() } else { capabilities.join(" ") };
            format!("sandbox: capabilities {kept}, Landlock {landlock}, seccomp {seccomp}\n")
        }
    };
    let sessions: Vec<String> =
        status.sessions.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let all: u64 = status.sessions.values().sum();
    text += &match &sessions[..] {
        [] => "sessions: none\n\n".to_owned(),
        by_state => format!("sessions: {all} ({})\n\n", by_state.join(", ")),
    };
    text += &ports(status).to_string();
    if !status.circuits.is_empty() {
        let mut table = circuits_table();
        status.circuits.iter().for_each(|circuit| table.row(circuit_cells(circuit)));
        text += &format!("\n{table}");
    }
    if !status.services.is_empty() {
        text += &format!("\n{}", services(status));
    }
    if status.services.iter().any(|service| !service.programs.is_empty()) {
        text += &format!("\n{}", programs(status));
    }
    text
}

/// Maximum width of a link address in a table, in characters.
const LINK_WIDTH_MAX: usize = 33;

/// Returns an empty table of circuits.
pub(crate) fn circuits_table() -> Table {
    Table::new("circuits").text_column("port").text_column("vc").text_column("peer").text_column("InATMARP")
}

/// Returns a circuit's row of that table.
pub(crate) fn circuit_cells(circuit: &Circuit) -> [String; 4] {
    let peer = circuit.peer.clone().unwrap_or_else(|| "?".into());
    [circuit.port.clone(), circuit.vc.clone(), peer, circuit.state.clone()]
}

/// Returns a link's address as a table cell. If the address is too long, the cell holds an abbreviation, and
/// the full address is listed below the table, after the name of its port.
pub(crate) fn link_cell(table: &mut Table, name: &str, link: &str) -> String {
    if link.chars().count() <= LINK_WIDTH_MAX {
        return link.to_owned();
    }
    table.remark(format!("{name}  {link}"));
    format!("{}:…", link.split(':').next().unwrap_or_default())
}

pub(crate) fn ports(status: &Status) -> Table {
    let mut table = Table::new("ports")
        .text_column("port")
        .text_column("link")
        .text_column("state")
        .text_column("addresses")
        .number_column("Mbit/s in")
        .number_column("out")
        .number_column("units in")
        .number_column("out")
        .number_column("queued")
        .number_column("lost")
        .number_column("link losses");
    for port in &status.ports {
        let counter = |name: &str| port.link_counters.get(name).copied().unwrap_or(0);
        let lost: u64 = port.lost.values().sum();
        let link = link_cell(&mut table, &port.name, &port.link);
        table.row([
            port.name.clone(),
            link,
            port.state.clone(),
            port.addresses.join(" "),
            format!("{:.2}", port.rates.bits_in / 1e6),
            format!("{:.2}", port.rates.bits_out / 1e6),
            counter("units_in").to_string(),
            counter("units_out").to_string(),
            port.waiting.to_string(),
            lost.to_string(),
            port.losses.to_string(),
        ]);
        if let Some(error) = &port.error {
            table.remark(format!("{}  {error}", port.name));
        }
        if let Some(dhcp) = &port.dhcp {
            table.remark(format!("{}  DHCP {}", port.name, dhcp_line(dhcp)));
        }
    }
    table
}

/// Describes the state of a DHCP client in one line.
fn dhcp_line(dhcp: &Dhcp) -> String {
    let mut text = dhcp.state.clone();
    if let Some(lease) = &dhcp.lease {
        text += &format!(": {} from server {}", lease.address, lease.server);
        text += &match lease.seconds_left {
            Some(seconds) => format!(", {seconds} s left"),
            None => ", for ever".to_owned(),
        };
    }
    text
}

pub(crate) fn services(status: &Status) -> Table {
    let mut table = Table::new("services")
        .text_column("service")
        .text_column("kind")
        .text_column("listens on")
        .text_column("state")
        .number_column("sessions")
        .number_column("limit")
        .number_column("accepted")
        .number_column("refused")
        .number_column("aborted")
        .number_column("bytes in")
        .number_column("bytes out");
    for service in &status.services {
        let counter = |name: &str| service.counters.get(name).copied().unwrap_or(0).to_string();
        table.row([
            service.name.clone(),
            service.kind.clone(),
            service.listen.clone(),
            service.state.clone(),
            service.sessions.to_string(),
            service.sessions_max.to_string(),
            counter("accepted"),
            counter("refused"),
            counter("aborted"),
            counter("bytes_in"),
            counter("bytes_out"),
        ]);
        for line in service.guest.iter().flat_map(guest_lines) {
            table.remark(format!("{}  {line}", service.name));
        }
    }
    table
}

/// The maximum number of ranges of ports in a line.
const RANGES_MAX: usize = 12;

/// Describes a guest: its addresses, what does not work, and the ports that are forwarded.
pub(crate) fn guest_lines(guest: &Guest) -> Vec<String> {
    let mut lines = vec![format!("guest {}", guest.addresses.join(" "))];
    lines.extend(guest.warning.clone());
    for (what, ports) in [
        ("TCP ports of this host to the guest", &guest.tcp),
        ("UDP ports of this host to the guest", &guest.udp),
        ("TCP ports of the guest to this host", &guest.guest_tcp),
        ("UDP ports of the guest to this host", &guest.guest_udp),
    ] {
        let listed = ports[..ports.len().min(RANGES_MAX)].join(" ");
        match ports.len().saturating_sub(RANGES_MAX) {
            _ if ports.is_empty() => {}
            0 => lines.push(format!("{what}: {listed}")),
            more => lines.push(format!("{what}: {listed} and {more} more (--json lists them)")),
        }
    }
    lines
}

/// Returns the table of programs that use the board's RDMA NIC.
fn programs(status: &Status) -> Table {
    let mut table = Table::new("programs on the RDMA NIC")
        .text_column("process")
        .number_column("queue pairs")
        .number_column("keys")
        .number_column("shared bytes")
        .number_column("notices")
        .number_column("sends")
        .number_column("receives")
        .number_column("completions")
        .number_column("refused");
    for program in status.services.iter().flat_map(|service| &service.programs) {
        let counter = |name: &str| program.counters.get(name).copied().unwrap_or(0).to_string();
        table.row([
            program.pid.to_string(),
            program.queue_pairs.to_string(),
            program.keys.to_string(),
            program.shared_bytes.to_string(),
            program.notices.to_string(),
            counter("sends"),
            counter("receives"),
            counter("completions"),
            counter("refused"),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_service::status::{Port, Service};

    #[test]
    fn a_long_address_is_printed_below_the_table_and_rows_stay_rows() {
        let long = "udp-cells:[2001:db8:1234:5678:9abc:def0:1234:5678]:7000-[2001:db8:1234:5678:9abc:def0:1234:1]:7000";
        let port = |name: &str, link: &str| Port {
            name: name.into(),
            link: link.into(),
            state: "up".into(),
            addresses: vec!["10.0.0.1/24".into()],
            ..Port::default()
        };
        let ports = vec![port("atm", long), port("lan", "tap:kiban0")];
        let table = super::ports(&Status { ports, ..Status::default() }).to_string();
        let lines: Vec<&str> = table.lines().collect();
        let [_, head, rule, atm, lan, note] = lines[..] else { panic!("two rows and a note:\n{table}") };
        assert!(head.len() <= 100 && rule.len() <= 100, "{table}");
        let width = |row: &str| row.chars().count();
        assert!(head.find("state").is_some_and(|at| lan[at..].starts_with("up")), "{table}");
        assert!(atm.contains("udp-cells:…") && width(atm) == width(lan), "{table}");
        assert_eq!(note, format!("atm  {long}"));
    }

    #[test]
    fn a_guest_and_its_ports_are_printed_below_the_table() {
        let ports = |count: u16| (0..count).map(|number| format!("{}:80", 8000 + 2 * number)).collect();
        let guest = Guest {
            addresses: vec!["10.0.2.15/24".into(), "fd00::15/64".into()],
            tcp: ports(1),
            guest_udp: ports(14),
            ..Guest::default()
        };
        let services = vec![Service { name: "net".into(), guest: Some(guest), ..Service::default() }];
        let table = super::services(&Status { services, ..Status::default() }).to_string();
        let remarks: Vec<&str> = table.lines().skip(4).collect();
        assert_eq!(
            remarks[..2],
            ["net  guest 10.0.2.15/24 fd00::15/64", "net  TCP ports of this host to the guest: 8000:80"]
        );
        let [_, _, long] = remarks[..] else { panic!("three lines:\n{table}") };
        assert!(long.starts_with("net  UDP ports of the guest to this host: 8000:80 8002:80 "), "{long}");
        assert!(long.ends_with(" 8022:80 and 2 more (--json lists them)"), "{long}");
    }

    #[test]
    fn capture_durations_have_units_or_are_seconds() {
        for (word, milliseconds) in
            [("10", 10_000), ("0.5", 500), ("2s", 2000), ("5m", 300_000), ("500ms", 500)]
        {
            assert_eq!(capture_time(word), Ok(Duration::from_millis(milliseconds)), "{word}");
        }
        for word in ["", "0", "-1", "25h", "soon", "1e400"] {
            assert!(capture_time(word).is_err(), "{word}");
        }
    }
}
