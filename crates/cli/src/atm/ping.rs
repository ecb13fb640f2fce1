//! `kiban atm ping`: sends OAM loopback cells (I.610) over its own link or from a running board.

use crate::output::json_line;
use clap::Args;
use kiban_atm::wire::atm::{Interface, Vc};
use kiban_base::Instant;
use kiban_link::atm::ping::{Event, Flow, Pinger};
use kiban_link::{Address, AnyLink};
use kiban_service::config::DurationValue;
use kiban_service::control::{ControlClient, Question, Reply};
use kiban_service::signals::{self, SignalRequest};
use kiban_service::status::rounded;
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Ping a circuit or path with OAM loopback cells (I.610), and measure round trips.
///
/// Cells are sent over a link that no other program uses, or from a running board (--board). A circuit is
/// given as VPI.VCI and pinged with F5 cells, a path as its VPI and pinged with F4 cells. The endpoint of the
/// circuit answers: a board of `kiban up`, or another `kiban atm ping` on the same circuit. With --segment
/// the next segment endpoint answers. Ctrl-c stops and prints the summary.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban atm ping udp-cells:0.0.0.0:7000-192.0.2.1:7000 0.100 --count 4\
        \n  kiban atm ping udp-cells:0.0.0.0:7000-192.0.2.1:7000 0 --segment       path 0, first segment\
        \n  kiban atm ping 0.100 --board lab --port atm                           from a running board\
        \n  kiban atm ping pseudowire:0.0.0.0-192.0.2.1,label=1000 0.100 --json | jq .round_trip_us\
        \n\nExit status: 0 if a reply was received, 1 otherwise, 2 for invalid arguments.")]
pub(crate) struct Ping {
    /// Address of the link (docs/links.md; omitted with --board), then the circuit as VPI.VCI or the path as
    /// its VPI.
    #[arg(required = true, num_args = 1..=2, value_name = "LINK CIRCUIT")]
    words: Vec<String>,
    /// Number of pings [default: until ctrl-c].
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Interval between pings.
    #[arg(long, short, value_name = "TIME", default_value = "1s")]
    interval: DurationValue,
    /// Timeout for the last reply.
    #[arg(long, short, value_name = "TIME", default_value = "5s")]
    timeout: DurationValue,
    /// Ping the segment instead of end to end.
    #[arg(long)]
    segment: bool,
    /// Use NNI cell headers, which have 12-bit VPIs.
    #[arg(long, conflicts_with = "board")]
    nni: bool,
    /// Ping from a running board; its name is needed only if several are running.
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", requires = "port")]
    board: Option<String>,
    /// Port of the board.
    #[arg(long, value_name = "NAME", requires = "board")]
    port: Option<String>,
    /// Print one JSON object per line: each reply, then the summary.
    #[arg(long)]
    json: bool,
    /// Print only the summary.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

/// Prints replies and the summary.
struct Reporter {
    circuit: String,
    json: bool,
    quiet: bool,
    /// Round-trip times, in microseconds.
    times: Vec<f64>,
}

impl Ping {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let (link, circuit) = match (&self.words[..], &self.board) {
            ([link, circuit], None) => (Some(link.as_str()), circuit.as_str()),
            ([circuit], Some(_)) => (None, circuit.as_str()),
            ([_], None) => {
                return Err(
                    "give both the link and the circuit, or --board and --port to ping from a board".into()
                );
            }
            _ => return Err("a board uses its own links: give either a link or --board".into()),
        };
        let flow = flow(circuit)?;
        let teller =
            Reporter { circuit: circuit.to_owned(), json: self.json, quiet: self.quiet, times: Vec::new() };
        match link {
            Some(link) => self.over(link, flow, teller),
            None => self.by_board(flow, teller),
        }
    }

    fn over(&self, link: &str, flow: Flow, mut teller: Reporter) -> Result<ExitCode, String> {
        let address: Address = link.parse().map_err(|error| format!("{error}"))?;
        let AnyLink::Cells(opened) = address.open().map_err(|error| format!("{link}: {error}"))? else {
            return Err(format!("{link} does not carry cells: use udp-cells:, tcp-cells: or pseudowire:"));
        };
        let interface = if self.nni { Interface::Nni } else { Interface::Uni };
        let vpi = match flow {
            Flow::Circuit(vc) => vc.vpi,
            Flow::Path(vpi) => vpi,
        };
        if vpi > 255 && !self.nni {
            return Err(format!("VPI {vpi} does not fit in a UNI header: use at most 255, or --nni"));
        }
        let say = |error: std::io::Error| format!("{link}: {error}");
        let mut pinger = Pinger::new(opened, flow, self.segment, interface).map_err(say)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stops, waker) = (stop.clone(), pinger.waker());
        let on_signal = move |wish| {
            if wish == SignalRequest::Stop {
                stops.store(true, Ordering::Release);
                waker.wake();
            }
        };
        signals::handle(on_signal).map_err(say)?;
        teller.begin(&format!("over {link}"), flow, self.segment)?;
        let (clock, mut waiting) = (pinger.clock(), pinger.waiting());
        let mut next = clock.now();
        let (mut came, mut refused) = (0, 0);
        let most = self.count.unwrap_or(u64::MAX);
        while !stop.load(Ordering::Acquire) {
            let now = clock.now();
            if pinger.sent() < most && now >= next {
                pinger.send().map_err(say)?;
                next = now + if pinger.sent() < most { self.interval.0 } else { self.timeout.0 };
                let so_far = pinger.link_counters().send_errors;
                if so_far > refused {
                    refused = so_far;
                    teller.tell(&format!("cell {}: not accepted by the link", pinger.sent() - 1))?;
                }
            }
            let end: Instant = next;
            if came == most || pinger.sent() == most && clock.now() >= end {
                break;
            }
            if let Event::Answer(answer) = pinger.wait(&mut waiting, end).map_err(say)? {
                came += 1;
                teller.answer(answer.sequence, rounded(answer.round_trip.as_secs_f64() * 1e6))?;
            }
        }
        teller.end(pinger.sent(), pinger.answered())
    }

    /// Pings from a board. A board allows one outstanding ping per circuit and gives up after five seconds.
    fn by_board(&self, flow: Flow, mut teller: Reporter) -> Result<ExitCode, String> {
        let Flow::Circuit(vc) = flow else {
            return Err("a board can ping only circuits: write VPI.VCI".into());
        };
        let name = self.board.as_deref().filter(|name| !name.is_empty());
        let mut caller = ControlClient::call(name)?;
        let (stop, bell) = std::sync::mpsc::channel();
        let on_signal = move |wish| {
            if wish == SignalRequest::Stop {
                // The send fails if the loop has already ended.
                let _ = stop.send(());
            }
        };
        signals::handle(on_signal).map_err(|error| error.to_string())?;
        let port = self.port.clone().unwrap_or_default();
        teller.begin(&format!("from board {}, port {port}", caller.name()), flow, self.segment)?;
        let clock = kiban_os::Clock::new();
        let mut sent = 0;
        while self.count.is_none_or(|count| sent < count) {
            let at = clock.now();
            let question =
                Question::Loopback { port: port.clone(), vc: vc.to_string(), segment: self.segment };
            match caller.ask(&question)? {
                Reply::Loopback(time) => {
                    if let Some(time) = time {
                        teller.answer(sent, time)?;
                    }
                }
                Reply::Refused(why) => return Err(why),
                _ => return Err("unexpected answer from the board".into()),
            }
            sent += 1;
            let is_last = self.count == Some(sent);
            let left = (at + self.interval.0).since(clock.now());
            let pause = if is_last { Duration::ZERO } else { left };
            if bell.recv_timeout(pause).is_ok() {
                break;
            }
        }
        teller.end(sent, 0)
    }
}

/// Parses a circuit, such as `0.100`, or a path, such as `5`.
fn flow(text: &str) -> Result<Flow, String> {
    match text.parse::<Vc>() {
        Ok(vc) => Ok(Flow::Circuit(vc)),
        Err(error) => match text.parse() {
            Ok(vpi) if vpi <= Vc::VPI_MAX => Ok(Flow::Path(vpi)),
            _ => Err(format!("'{text}' is neither a circuit nor a path: {error}; write a path as its VPI")),
        },
    }
}

impl Reporter {
    fn begin(&self, origin: &str, flow: Flow, segment: bool) -> Result<(), String> {
        let level = if matches!(flow, Flow::Path(_)) { "F4" } else { "F5" };
        let reach = if segment { "its segment" } else { "end to end" };
        self.tell(&format!("pinging {} {origin} ({level}, {reach})", self.circuit))
    }

    /// Prints a line of text, unless --json or --quiet is given.
    fn tell(&self, line: &str) -> Result<(), String> {
        if self.json || self.quiet { Ok(()) } else { crate::output::print(&format!("{line}\n")) }
    }

    fn answer(&mut self, sequence: u64, time_us: f64) -> Result<(), String> {
        self.times.push(time_us);
        if self.json {
            return crate::output::print(&json_line(
                &json!({ "sequence": sequence, "round_trip_us": time_us }),
            )?);
        }
        self.tell(&format!("{}: sequence {sequence}, {:.3} ms", self.circuit, time_us / 1e3))
    }

    fn end(&self, sent: u64, answered: u64) -> Result<ExitCode, String> {
        let came = self.times.len() as u64;
        let loss = rounded(100.0 * sent.saturating_sub(came) as f64 / sent.max(1) as f64);
        let least = self.times.iter().copied().reduce(f64::min);
        let most = self.times.iter().copied().reduce(f64::max);
        let mean = (came > 0).then(|| rounded(self.times.iter().sum::<f64>() / came as f64));
        if self.json {
            let times = json!({ "min": least, "avg": mean, "max": most });
            let summary = json!({
                "circuit": self.circuit, "sent": sent, "received": came, "loss_percent": loss, "answered": answered,
                "round_trip_us": times,
            });
            crate::output::print(&json_line(&json!({ "summary": summary }))?)?;
        } else {
            let mut text = format!("{}: {sent} sent, {came} received, {loss:.0} % lost\n", self.circuit);
            if let (Some(least), Some(mean), Some(most)) = (least, mean, most) {
                let ms = |us: f64| us / 1e3;
                text +=
                    &format!("round trip min/avg/max {:.3}/{:.3}/{:.3} ms\n", ms(least), ms(mean), ms(most));
            }
            crate::output::print(&text)?;
        }
        Ok(if came > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
