//! `kiban vi`: measures VI in real time, between two NICs on one host or on two hosts.

use super::tune::Tune;
use crate::nic::messages::{bar, ping_pong_table, stream_table};
use crate::output::note;
use clap::{Args, Subcommand, ValueEnum};
use kiban_base::Wait;
use kiban_lab::table::Table;
use kiban_lab::vi::{self, MESSAGE_BYTES_MAX, Plan};
use kiban_service::config::DurationValue;
use kiban_vi::{Config, Reliability};
use kiban_vi_runtime::{Device, HostAddress, Nic};
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The limits of `--silence`. The first probe is sent after 250 ms.
const SILENCE_MIN: Duration = Duration::from_millis(300);
const SILENCE_MAX: Duration = Duration::from_secs(3600);

/// Send messages through a VI NIC, and measure round trips and throughput.
///
/// The VI Architecture gives each program its own queues to a NIC. This NIC is software, and its link is
/// shared memory, UDP, or the TCP of a running board (`kiban up` with a service of kind "attach"). Without
/// a HOST both ends run in this process, with one NIC each, connected as two processes would be.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban vi pingpong                              round trips through shared memory\
        \n  kiban vi pingpong --wait poll                  both ends poll: shortest round trip, two busy cores\
        \n  kiban vi stream --bytes 65536 --json           throughput, for scripts\
        \n  kiban vi tune --quick                          loss and CPU use by wait policy and buffer\
        \n\nTwo processes of one host:\
        \n  kiban vi serve --device shm:lab &\
        \n  kiban vi pingpong shm:lab\
        \n\nTwo hosts:\
        \n  kiban vi serve --device udp:192.0.2.1          on one of them\
        \n  kiban vi stream udp:192.0.2.1 --level reception  on the other\
        \n\nTwo boards; the one on this host is called lab:\
        \n  kiban vi serve --device board:lab@10.9.0.2     beside one of them\
        \n  kiban vi pingpong board@10.9.0.2               beside the other\
        \n\nExit status: 0 on success, 1 if the measurement failed, 2 for invalid arguments.")]
pub(crate) struct Vi {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Measure round trips: each message is echoed.
    Pingpong(Measure),
    /// Measure throughput: messages in one direction.
    Stream(Measure),
    /// Choose the wait policy and the receive buffer on this machine by measuring.
    Tune(Tune),
    /// The receiving process of `tune`.
    #[command(hide = true)]
    TuneReceiver,
    /// Serve measurements from other processes or hosts until ctrl-c.
    Serve(Serve),
}

#[derive(Args)]
struct Serve {
    /// Device to serve on: shm:NAME, udp:ADDRESS, or board:NAME@ADDRESS with the name and an address of a
    /// running board (board@ADDRESS if only one is running); append :PORT if it is not 4808.
    #[arg(long, value_name = "DEVICE")]
    device: Device,
    /// Wait policy: poll, interrupt, hybrid:100us (any duration) or adaptive.
    #[arg(long, default_value = "adaptive", value_name = "POLICY")]
    wait: Wait,
    /// Close a UDP connection if the client sends nothing for this long, such as 30s [default: 875ms].
    #[arg(long, value_name = "TIME", value_parser = silence)]
    silence: Option<Duration>,
    /// Do not report clients.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Args)]
struct Measure {
    /// The server: shm:NAME, udp:ADDRESS or board@ADDRESS; append :PORT if it is not 4808 [default: a server
    /// in this process].
    host: Option<HostAddress>,
    /// The local device; by default one that reaches HOST (the only running board, if HOST is on a board), or
    /// shared memory.
    #[arg(long, value_name = "DEVICE")]
    device: Option<Device>,
    /// Message size in bytes [default: 8 for pingpong, 65536 for stream].
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=i64::from(MESSAGE_BYTES_MAX)))]
    bytes: Option<u32>,
    /// Number of messages.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    count: u64,
    /// Reliability level.
    #[arg(long, value_enum, default_value = "delivery")]
    level: Level,
    /// Wait policy of both ends (a remote server has its own): poll, interrupt, hybrid:100us (any duration)
    /// or adaptive.
    #[arg(long, default_value = "adaptive", value_name = "POLICY")]
    wait: Wait,
    /// Close a UDP connection if the server sends nothing for this long, such as 30s [default: 875ms].
    #[arg(long, value_name = "TIME", value_parser = silence)]
    silence: Option<Duration>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// Do not show a progress bar.
    #[arg(long, short)]
    quiet: bool,
}

/// The reliability levels of the VI Architecture.
#[derive(Clone, Copy, ValueEnum)]
enum Level {
    /// At most once; losses are not reported.
    Unreliable,
    /// Exactly once and in order, or the connection breaks.
    Delivery,
    /// The same; completion means that the data is in the peer's memory.
    Reception,
}

impl Level {
    fn reliability(self) -> Reliability {
        match self {
            Level::Unreliable => Reliability::Unreliable,
            Level::Delivery => Reliability::Delivery,
            Level::Reception => Reliability::Reception,
        }
    }
}

impl Vi {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        match self.what {
            What::Pingpong(measure) => measure.run(8, vi::ping_pong, |measure, result| {
                ping_pong_table(measure.title("Round trips", result.bytes), std::slice::from_ref(result))
            }),
            What::Stream(measure) => measure.run(65_536, vi::stream, |measure, result| {
                stream_table(measure.title("Messages", result.bytes), std::slice::from_ref(result))
            }),
            What::Tune(tune) => tune.run(),
            What::TuneReceiver => super::tune::receive(),
            What::Serve(serve) => serve.run(),
        }
    }
}

/// Parses the time after which the connection to a silent peer is dropped.
fn silence(text: &str) -> Result<Duration, String> {
    let DurationValue(time) = text.parse()?;
    match (SILENCE_MIN..=SILENCE_MAX).contains(&time) {
        true => Ok(time),
        false => Err("must be from 300ms to 1h".into()),
    }
}

/// Returns settings under which a connection is dropped when the peer has been silent for this long.
fn lost_after(silence: Duration) -> Config {
    let default = Config::default();
    let count = |time: Duration, every: Duration| time.as_nanos().div_ceil(every.as_nanos()) as u32;
    Config {
        probes_max: count(silence.saturating_sub(default.probe_after), default.probe_after / 4),
        // The first retransmissions come at shorter intervals than the later ones, whose interval is
        // `probe_after`.
        resends_max: default.resends_max + count(silence, default.probe_after),
        ..default
    }
}

fn open(device: &Device, wait: Wait, silence: Option<Duration>) -> Result<Nic, String> {
    let config = silence.map_or_else(Config::default, lost_after);
    let nic = Nic::open_with(device, config).map_err(|error| error.to_string())?;
    nic.set_wait(wait);
    Ok(nic)
}

/// Makes a NIC accept clients before [`vi::serve`] runs.
fn listen(nic: &Nic) -> Result<(), String> {
    [vi::ECHO, vi::SINK]
        .into_iter()
        .try_for_each(|endpoint| nic.listen(endpoint))
        .map_err(|refusal| refusal.to_string())
}

impl Serve {
    fn run(self) -> Result<ExitCode, String> {
        if matches!(self.device, Device::Loopback | Device::Shm(None)) {
            return Err(format!(
                "clients cannot reach {}: give shm:NAME, udp:ADDRESS or board:NAME@ADDRESS",
                self.device
            ));
        }
        if matches!(&self.device, Device::Board { at, .. } if at.port() == 0) {
            return Err(format!(
                "clients cannot connect to port 0 of {}: omit the port, or use another",
                self.device
            ));
        }
        let nic = open(&self.device, self.wait, self.silence)?;
        listen(&nic)?;
        let quiet = self.quiet;
        if !quiet {
            note!("serving at {}; press ctrl-c to stop", nic.address());
        }
        vi::serve(&nic, &|| false, &|what| {
            if !quiet {
                note!("{what}");
            }
        })
        .map_err(|failure| failure.to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A benchmark. Its arguments are the NIC, the server, the plan, and a progress callback.
type Measurement<T> =
    fn(&Nic, &HostAddress, &Plan, &mut dyn FnMut(u64)) -> Result<T, kiban_vi_runtime::Failure>;

impl Measure {
    fn run<T: Serialize>(
        self,
        bytes: u32,
        measure: Measurement<T>,
        table: fn(&Measure, &T) -> Table,
    ) -> Result<ExitCode, String> {
        let plan = Plan {
            reliability: self.level.reliability(),
            bytes: self.bytes.unwrap_or(bytes),
            count: self.count,
            warm_up: (self.count / 10).min(1000),
        };
        let result = match &self.host {
            Some(host) => self.with(host, &plan, measure)?,
            None => self.alone(&plan, measure)?,
        };
        let text = if self.json { crate::output::json(&result)? } else { table(&self, &result).to_string() };
        crate::output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Measures against a server in another process.
    fn with<T>(&self, host: &HostAddress, plan: &Plan, measure: Measurement<T>) -> Result<T, String> {
        let device = match (&self.device, host) {
            (Some(device), _) => device.clone(),
            (None, HostAddress::Loopback) => {
                return Err("the loopback device can only reach this process: omit HOST".into());
            }
            (None, HostAddress::Name(_)) => Device::Shm(None),
            (None, HostAddress::Udp(to)) if to.is_ipv4() => Device::Udp(([0, 0, 0, 0], 0).into()),
            (None, HostAddress::Udp(_)) => Device::Udp((Ipv6Addr::UNSPECIFIED, 0).into()),
            (None, HostAddress::Board(to)) => {
                let any = if to.is_ipv4() {
                    IpAddr::from(Ipv4Addr::UNSPECIFIED)
                } else {
                    Ipv6Addr::UNSPECIFIED.into()
                };
                Device::Board { name: None, at: (any, 0).into() }
            }
        };
        let nic = open(&device, self.wait, self.silence)?;
        let bar = bar(self.count, self.quiet);
        let result = measure(&nic, host, plan, &mut |done| bar.set_position(done));
        bar.finish_and_clear();
        result.map_err(|failure| format!("{host}: {failure}"))
    }

    /// Measures against a server in this process, which has its own NIC.
    fn alone<T>(&self, plan: &Plan, measure: Measurement<T>) -> Result<T, String> {
        let name = format!("vi-{}", std::process::id());
        let (own, others) = match &self.device {
            None | Some(Device::Shm(None)) => (Device::Shm(None), Device::Shm(Some(name))),
            Some(Device::Shm(Some(name))) => (Device::Shm(None), Device::Shm(Some(name.clone()))),
            Some(Device::Udp(local)) => {
                (Device::Udp((local.ip(), 0).into()), Device::Udp((local.ip(), 0).into()))
            }
            Some(Device::Board { at, .. }) if at.ip().is_unspecified() || at.port() == 0 => {
                return Err("both ends are on this board: give one of its addresses and a port".into());
            }
            Some(Device::Board { name, at }) => {
                let caller = Device::Board { name: name.clone(), at: (at.ip(), 0).into() };
                (caller, Device::Board { name: name.clone(), at: *at })
            }
            Some(Device::Loopback) => (Device::Loopback, Device::Loopback),
        };
        let server = open(&others, self.wait, self.silence)?;
        let client =
            if own == Device::Loopback { server.clone() } else { open(&own, self.wait, self.silence)? };
        // The server must listen before the client connects.
        listen(&server)?;
        let over = AtomicBool::new(false);
        let bar = bar(self.count, self.quiet);
        std::thread::scope(|threads| {
            threads.spawn(|| vi::serve(&server, &|| over.load(Ordering::Relaxed), &|_| {}));
            let result = measure(&client, &server.address(), plan, &mut |done| bar.set_position(done));
            over.store(true, Ordering::Relaxed);
            bar.finish_and_clear();
            result.map_err(|failure| failure.to_string())
        })
    }

    fn title(&self, what: &str, bytes: u32) -> String {
        let host = match (&self.host, &self.device) {
            (Some(host), _) => host.to_string(),
            (None, Some(device)) => format!("{device}, both ends here"),
            (None, None) => "shared memory, both ends here".into(),
        };
        let level = match self.level {
            Level::Unreliable => "unreliable delivery",
            Level::Delivery => "reliable delivery",
            Level::Reception => "reliable reception",
        };
        format!("{what} of {bytes} bytes, {host}, {level}, {} waiting", self.wait)
    }
}
