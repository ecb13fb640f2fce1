//! `kiban ping`: sends ICMP echo requests from a running board.

use crate::board::control::time_or_seconds;
use crate::output::{json_line, note, print};
use clap::Args;
use kiban_service::control::{ControlClient, Question, Reply};
use kiban_service::requests::{BYTES_MAX, EchoResult, WAIT_MAX};
use kiban_service::signals::{self, SignalRequest};
use kiban_service::status::rounded;
use serde_json::json;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Length of the ICMP header, which ping(8) includes in the length of a reply.
const HEADER_BYTES: u64 = 8;

/// Ping a host from a running board (ICMP and ICMPv6 echo), and measure round trips.
///
/// The requests use the board's addresses and routes. The next request is sent when the previous one has
/// been answered or has timed out, and the interval has passed. Ctrl-c stops and prints the summary.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban ping 10.0.0.2                             if only one board is running\
        \n  kiban ping -c 4 -i 0.2 -s 1400 10.0.0.2 --board lab\
        \n  kiban ping -c 1 -W 2 2001:db8::2 && echo reachable\
        \n  kiban ping -c 3 10.0.0.2 --json | jq .round_trip_us\
        \n\nExit status: 0 if a reply was received, 1 if none was, 2 for any other error.")]
pub(crate) struct Ping {
    /// Address of the host, IPv4 or IPv6.
    address: IpAddr,
    /// Number of requests [default: until ctrl-c].
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Interval between requests: 1 (seconds), 200ms.
    #[arg(long, short, value_name = "TIME", default_value = "1", value_parser = time_or_seconds)]
    interval: Duration,
    /// Payload of a request, in bytes.
    #[arg(long, short, value_name = "BYTES", default_value_t = 56,
        value_parser = clap::value_parser!(u16).range(..=i64::from(BYTES_MAX)))]
    size: u16,
    /// How long to wait for each reply.
    #[arg(long, short = 'W', value_name = "TIME", default_value = "5", value_parser = wait_time)]
    timeout: Duration,
    /// Name of the board; needed only if several are running.
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
    /// Print one JSON object per line: each result, then the summary.
    #[arg(long)]
    json: bool,
    /// Print only the summary.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

fn wait_time(text: &str) -> Result<Duration, String> {
    match time_or_seconds(text)? {
        time if time.is_zero() || time > WAIT_MAX => {
            Err(format!("must be more than 0 and at most {} s", WAIT_MAX.as_secs()))
        }
        time => Ok(time),
    }
}

enum Event {
    Stop,
    Answer(Result<Reply, String>),
}

/// The results so far.
#[derive(Default)]
struct Tally {
    sent: u64,
    errors: u64,
    /// Round-trip times, in microseconds.
    times: Vec<f64>,
}

impl Ping {
    pub(crate) fn run(self) -> ExitCode {
        match self.ping() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(message) => {
                note!("kiban: {message}");
                ExitCode::from(2)
            }
        }
    }

    /// Pings, and returns whether a reply was received.
    fn ping(&self) -> Result<bool, String> {
        let mut client = ControlClient::call(self.board.as_deref())?;
        let board = client.name().to_owned();
        let (events, inbox) = mpsc::channel();
        let stop = events.clone();
        let on_signal = move |wish| {
            if wish == SignalRequest::Stop {
                // The send fails if the command has already ended.
                let _ = stop.send(Event::Stop);
            }
        };
        signals::handle(on_signal).map_err(|error| error.to_string())?;
        // A thread asks, so that ctrl-c does not wait for the answer.
        let (ask, questions) = mpsc::channel::<Question>();
        std::thread::spawn(move || {
            for question in questions {
                if events.send(Event::Answer(client.ask(&question))).is_err() {
                    return;
                }
            }
        });
        self.tell(&format!("PING {} from board {board}: {} data bytes", self.address, self.size))?;
        let wait = self.timeout.as_secs_f64();
        let (mut tally, clock) = (Tally::default(), kiban_os::Clock::new());
        while self.count.is_none_or(|count| tally.sent < count) {
            let next = clock.now() + self.interval;
            let question = Question::Echo { target: self.address, bytes: self.size, wait };
            ask.send(question).map_err(|_| "unexpected end of the connection to the board")?;
            tally.sent += 1;
            match inbox.recv() {
                Ok(Event::Answer(answer)) => match answer? {
                    Reply::Echo(result) => self.report(result, &mut tally)?,
                    Reply::Refused(why) => return Err(why),
                    _ => return Err("unexpected answer from the board".into()),
                },
                Ok(Event::Stop) | Err(_) => break,
            }
            if self.count == Some(tally.sent) {
                break;
            }
            match inbox.recv_timeout(next.since(clock.now())) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => break,
            }
        }
        self.summary(&tally, &board)?;
        Ok(!tally.times.is_empty())
    }

    /// Prints a line of text, unless --json or --quiet is given.
    fn tell(&self, line: &str) -> Result<(), String> {
        if self.json || self.quiet { Ok(()) } else { print(&format!("{line}\n")) }
    }

    fn report(&self, result: EchoResult, tally: &mut Tally) -> Result<(), String> {
        let (sequence, target) = (tally.sent, self.address);
        let (line, object) = match result {
            EchoResult::Reply { bytes, round_trip_us } => {
                tally.times.push(round_trip_us);
                let (bytes, ms) = (bytes + HEADER_BYTES, round_trip_us / 1e3);
                (
                    format!("{bytes} bytes from {target}: icmp_seq={sequence} time={ms:.3} ms"),
                    json!({ "sequence": sequence, "from": target, "bytes": bytes, "round_trip_us": round_trip_us }),
                )
            }
            EchoResult::Error { from, error } => {
                tally.errors += 1;
                (
                    format!("From {from} icmp_seq={sequence} {error}"),
                    json!({ "sequence": sequence, "from": from, "error": error }),
                )
            }
            EchoResult::Timeout {} => (
                format!("no answer for icmp_seq={sequence}"),
                json!({ "sequence": sequence, "error": "timeout" }),
            ),
        };
        if self.json { print(&json_line(&object)?) } else { self.tell(&line) }
    }

    fn summary(&self, tally: &Tally, board: &str) -> Result<(), String> {
        let Tally { sent, errors, times } = tally;
        let received = times.len() as u64;
        let loss = rounded(100.0 * (sent - received) as f64 / (*sent).max(1) as f64);
        let least = times.iter().copied().reduce(f64::min);
        let most = times.iter().copied().reduce(f64::max);
        let mean = (received > 0).then(|| rounded(times.iter().sum::<f64>() / received as f64));
        if self.json {
            let times = json!({ "min": least, "avg": mean, "max": most });
            let summary = json!({
                "target": self.address, "board": board, "sent": sent, "received": received, "errors": errors,
                "loss_percent": loss, "round_trip_us": times,
            });
            return print(&json_line(&json!({ "summary": summary }))?);
        }
        let errors = if *errors > 0 { format!("+{errors} errors, ") } else { String::new() };
        let mut text = format!(
            "--- {} ping statistics ---\n{sent} packets transmitted, {received} received, {errors}{loss:.0}% packet loss\n",
            self.address
        );
        if let (Some(least), Some(mean), Some(most)) = (least, mean, most) {
            let ms = |us: f64| us / 1e3;
            text += &format!("rtt min/avg/max = {:.3}/{:.3}/{:.3} ms\n", ms(least), ms(mean), ms(most));
        }
        print(&text)
    }
}
