//! `kiban rdma`: measures RDMA in real time, between two NICs on one host or on two hosts.

use crate::board::control::{query_status, unavailable_reason};
use crate::nic::messages::{bar, ping_pong_table, stream_table};
use crate::output::note;
use clap::{Args, Subcommand};
use kiban_base::Wait;
use kiban_lab::rdma::{self, Failure, MESSAGE_BYTES_MAX, Operation, Plan};
use kiban_lab::table::Table;
use kiban_rdma_runtime::{Address, Context, Lower};
use kiban_service::control::ControlClient;
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Send messages and access memory through an RDMA NIC, and measure round trips and throughput.
///
/// RDMA lets a program write to another program's memory and read from it. This NIC is software (iWARP:
/// RDMAP, DDP, MPA) on the operating system's TCP or on the TCP of a running board, RoCEv2 on UDP, or EFE
/// over UDP or Ethernet. It runs in this process, or is the NIC of a running board (`--over nic:NAME`).
/// Without a SERVER both ends run in this process, with one NIC each.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban rdma pingpong                            round trips of messages, over this host's TCP\
        \n  kiban rdma pingpong --read --wait poll         one-sided reads; both ends poll\
        \n  kiban rdma stream --write --bytes 4096,65536 --json\
        \n                                                 throughput, for scripts\
        \n  kiban rdma stream --write --over efe:127.0.0.1\
        \n                                                 the same without TCP\
        \n\nTwo hosts, over TCP:\
        \n  kiban rdma serve 192.0.2.1:7471                on one of them\
        \n  kiban rdma stream 192.0.2.1:7471 --read        on the other\
        \n\nOver the TCP of a running board, which has a service of kind \"attach\":\
        \n  kiban rdma pingpong --over board:lab           both ends here, on one board\
        \n  kiban rdma serve 10.9.0.2:7471 --over board:lab\
        \n  kiban rdma pingpong 10.9.0.1:7471 --over board:lab\
        \n                                                 a server elsewhere, over any TCP\
        \n\nThrough the NIC of a running board, which has a service of kind \"rdma\":\
        \n  kiban rdma serve 10.9.0.2:7471 --over nic:lab\
        \n  kiban rdma pingpong 10.9.0.2:7471 --over nic:lab\
        \n  kiban rdma stream --write --over nic-roce:lab  the same over RoCEv2\
        \n  kiban rdma stream --write --over nic-efe:lab   the same over EFE\
        \n\nTwo hosts, over RoCEv2, which uses UDP port 4791 of one address of each host:\
        \n  kiban rdma serve 192.0.2.1:7471 --over roce\
        \n  kiban rdma pingpong 192.0.2.1:7471 --over roce\
        \n\nTwo hosts, over EFE in UDP; each end names its own address:\
        \n  kiban rdma serve 192.0.2.1:7471 --over efe:192.0.2.1\
        \n  kiban rdma pingpong 192.0.2.1:7471 --over efe:192.0.2.2\
        \n\nOver EFE in Ethernet frames (as root, or with CAP_NET_RAW):\
        \n  kiban rdma serve 0.0.0.0:7471 --over efe-raw:eth0\
        \n  kiban rdma pingpong 02:00:00:00:00:01/7471 --over efe-raw:eth0\
        \n\nExit status: 0 on success, 1 if the measurement failed, 2 for invalid arguments.")]
pub(crate) struct Rdma {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Measure round trips: one operation at a time.
    Pingpong(Measure),
    /// Measure throughput: many operations in flight.
    Stream(Measure),
    /// Serve measurements from other processes or hosts until ctrl-c.
    Serve(Serve),
}

#[derive(Args)]
struct Serve {
    /// Where to listen: IP:PORT, or MAC/SERVICE on Ethernet; port 0 chooses one and prints it.
    address: Address,
    /// Lower layer: tcp, board, board:NAME, nic, nic:NAME, nic-roce:NAME, nic-efe:NAME, roce, efe:ADDRESS or
    /// efe-raw:INTERFACE; ADDRESS is one of this host's.
    #[arg(long, default_value = "tcp", value_name = "LOWER")]
    over: Lower,
    /// Wait policy: poll, interrupt, hybrid:100us (any duration) or adaptive.
    #[arg(long, default_value = "adaptive", value_name = "POLICY")]
    wait: Wait,
    /// Do not report clients.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Args)]
struct Measure {
    /// The server: IP:PORT, or MAC/SERVICE on Ethernet [default: a server in this process].
    server: Option<Address>,
    /// Lower layer: tcp, tcp:ADDRESS, board, board:NAME, nic, nic:NAME, nic-roce:NAME, nic-efe:NAME, roce,
    /// roce:ADDRESS, efe:ADDRESS or efe-raw:INTERFACE; ADDRESS is one of this host's.
    #[arg(long, default_value = "tcp", value_name = "LOWER")]
    over: Lower,
    #[command(flatten)]
    operation: OperationArgs,
    /// Message size in bytes, or several, measured in turn: 8,4096,65536 [default: 8 for pingpong, 65536 for
    /// stream].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=i64::from(MESSAGE_BYTES_MAX)))]
    bytes: Vec<u32>,
    /// Number of messages of each size.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    count: u64,
    /// Protect every frame with a CRC-32C (over TCP; RoCEv2 and EFE over UDP have their own).
    #[arg(long)]
    crc: bool,
    /// Wait policy of both ends (a remote server has its own): poll, interrupt, hybrid:100us (any duration)
    /// or adaptive.
    #[arg(long, default_value = "adaptive", value_name = "POLICY")]
    wait: Wait,
    /// Print JSON instead of the table: one object for each size.
    #[arg(long)]
    json: bool,
    /// Do not show a progress bar.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Args)]
#[group(multiple = false)]
struct OperationArgs {
    /// Send and receive (the default).
    #[arg(long)]
    send: bool,
    /// RDMA Write; for round trips, with immediate data.
    #[arg(long)]
    write: bool,
    /// RDMA Read.
    #[arg(long)]
    read: bool,
}

impl OperationArgs {
    fn operation(&self) -> Operation {
        match self {
            OperationArgs { write: true, .. } => Operation::Write,
            OperationArgs { read: true, .. } => Operation::Read,
            OperationArgs { .. } => Operation::Send,
        }
    }
}

impl Rdma {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        match self.what {
            What::Pingpong(measure) => measure.run("Round trips", 8, rdma::ping_pong, ping_pong_table),
            What::Stream(measure) => measure.run("Stream", 65_536, rdma::stream, stream_table),
            What::Serve(serve) => serve.run(),
        }
    }
}

fn open(lower: &Lower, wait: Wait) -> Result<Context, String> {
    let context = Context::open(lower).map_err(|error| match lower {
        Lower::Board { name } if !is_path(name.as_deref()) => {
            unavailable_reason(name.as_deref(), "attach", &error.to_string())
        }
        Lower::Nic { name, .. } if !is_path(name.as_deref()) => {
            unavailable_reason(name.as_deref(), "rdma", &error.to_string())
        }
        _ => format!("{lower}: {error}"),
    })?;
    context.set_wait(wait);
    Ok(context)
}

/// Returns whether a board is specified by the path of its socket.
fn is_path(board: Option<&str>) -> bool {
    board.is_some_and(|name| name.contains('/'))
}

/// Returns one of a board's addresses.
fn address_of(board: Option<&str>) -> Result<IpAddr, String> {
    let status = query_status(&mut ControlClient::call(board)?)?;
    let addresses = status.ports.iter().flat_map(|port| &port.addresses);
    let found = addresses.filter_map(|address| address.split('/').next()?.parse().ok()).next();
    found.ok_or_else(|| format!("board {} has no address: specify SERVER", status.name))
}

impl Serve {
    fn run(self) -> Result<ExitCode, String> {
        let context = open(&self.over.clone().serving(self.address), self.wait)?;
        let listener =
            rdma::listen(&context, self.address).map_err(|error| format!("{}: {error}", self.address))?;
        let quiet = self.quiet;
        if !quiet {
            note!("serving at {} over {}; press ctrl-c to stop", listener.address(), self.over);
        }
        rdma::serve(&context, &listener, &|| false, &|what| {
            if !quiet {
                note!("{what}");
            }
        })
        .map_err(|error| error.to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A benchmark. Its arguments are the NIC, the server, the plan, and a progress callback.
type Measurement<T> = fn(&Context, Address, &Plan, &mut dyn FnMut(u64)) -> Result<T, Failure>;

impl Measure {
    fn run<T: Serialize>(
        mut self,
        what: &str,
        bytes: u32,
        measure: Measurement<T>,
        table: fn(String, &[T]) -> Table,
    ) -> Result<ExitCode, String> {
        if self.bytes.is_empty() {
            self.bytes.push(bytes);
        }
        let results = match self.server {
            Some(server) => {
                let over = self.over.clone().towards(server);
                let context = open(&over.map_err(|error| format!("{server}: {error}"))?, self.wait)?;
                self.measure(&context, server, measure).map_err(|failure| format!("{server}: {failure}"))?
            }
            None => self.alone(measure)?,
        };
        let text = if self.json {
            let each = results.iter().map(serde_json::to_string_pretty);
            each.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?.join("\n") + "\n"
        } else {
            table(self.title(what), &results).to_string()
        };
        crate::output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn measure<T>(
        &self,
        context: &Context,
        server: Address,
        measure: Measurement<T>,
    ) -> Result<Vec<T>, Failure> {
        let each = self.bytes.iter().map(|&bytes| {
            let plan = Plan {
                operation: self.operation.operation(),
                bytes,
                count: self.count,
                warm_up: (self.count / 10).min(1000),
                crc: self.crc,
            };
            let bar = bar(self.count, self.quiet);
            let result = measure(context, server, &plan, &mut |done| bar.set_position(done));
            bar.finish_and_clear();
            result
        });
        each.collect()
    }

    /// Measures against a server in this process, which has its own NIC.
    fn alone<T>(&self, measure: Measurement<T>) -> Result<Vec<T>, String> {
        let mut theirs = self.over.clone();
        let (own, at) = match &self.over {
            Lower::Tcp { from } => (self.over.clone(), from.unwrap_or(Ipv4Addr::LOCALHOST.into())),
            Lower::Roce { at } => {
                let at = at.unwrap_or(Ipv4Addr::LOCALHOST.into());
                theirs = Lower::Roce { at: Some(at) };
                let own = Lower::Roce { at: None }.towards(SocketAddr::new(at, 0).into());
                (own.map_err(|error| format!("{at}: {error}"))?, at)
            }
            Lower::Board { name } | Lower::Nic { name, .. } if is_path(name.as_deref()) => {
                return Err(format!("the addresses of {} are unknown: specify SERVER", self.over));
            }
            // The client and the server use the same board, which delivers packets to its own address
            // internally.
            Lower::Board { name } | Lower::Nic { name, .. } => {
                (self.over.clone(), address_of(name.as_deref())?)
            }
            // An EFE endpoint is identified by its address, so the client needs a different address from the
            // server. It uses the next one (127.0.0.0/8 has many).
            Lower::EfeUdp { at } => match at.ip() {
                IpAddr::V4(ip) => {
                    let next = Ipv4Addr::from_bits(ip.to_bits().wrapping_add(1));
                    (Lower::EfeUdp { at: SocketAddr::new(next.into(), at.port()) }, at.ip())
                }
                IpAddr::V6(_) => {
                    return Err(format!("{} can only reach other processes: specify SERVER", self.over));
                }
            },
            Lower::EfeRaw { .. } => {
                return Err(format!("{} can only reach other hosts: specify SERVER", self.over));
            }
        };
        let (server, client) = (open(&theirs, self.wait)?, open(&own, self.wait)?);
        let listener =
            rdma::listen(&server, SocketAddr::new(at, 0).into()).map_err(|error| error.to_string())?;
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| rdma::serve(&server, &listener, &|| over.load(Ordering::Relaxed), &|_| {}));
            let results = self.measure(&client, listener.address(), measure);
            over.store(true, Ordering::Relaxed);
            results.map_err(|failure| failure.to_string())
        })
    }

    fn title(&self, what: &str) -> String {
        let size = match self.bytes[..] {
            [bytes] => format!(" of {bytes} bytes"),
            _ => String::new(),
        };
        let server = match self.server {
            Some(server) => format!("{server} over {}", self.over),
            None => format!("both ends here over {}", self.over),
        };
        let crc = if self.crc { ", CRC" } else { "" };
        format!("{what}{size}, {}, {server}{crc}, {} waiting", self.operation.operation(), self.wait)
    }
}
