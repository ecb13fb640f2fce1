//! `kiban xot`: relays OSI between X.25 over TCP (XOT, RFC 1613) and TPKT (RFC 1006).

use crate::osi::peer::{Host, cannot_listen, octets, runtime};
use crate::output::note;
use clap::{Args, ValueEnum};
use kiban_osi::wire::{tpkt, xot};
use kiban_osi::x25::{Address, AddressBlock, Call, Facilities, Modulo};
use kiban_osi_runtime::relay::{Called, CircuitEvent, Event, Relay, Route, Settings, Via};
use kiban_osi_runtime::socket;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

/// Relay OSI between X.25 in XOT and TCP.
///
/// Lets systems that have only X.25 and systems that have only TCP open transport connections (class 0) to
/// each other: calls on the X.25 side use XOT (RFC 1613), which routers and X.25 cards with TCP speak, and
/// connections on the TCP side use TPKTs (RFC 1006).
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban xot --route '45678901=192.0.2.7'        forward calls to 45678901 to a system on TCP\
        \n  kiban xot --route '4567*=192.0.2.7:1102' --route '*=192.0.2.8'\
        \n  kiban xot --route 'user-data:01=xot:192.0.2.9' --route '*=192.0.2.7'\
        \n                                                forward the calls of PADs to another router\
        \n  kiban xot --route 'nsap:4700*=[2001:db8::7]:102' --json\
        \n  kiban xot --place 0.0.0.0:1102=router.example.net/45678901\
        \n                                                call 45678901 through a router for each TCP connection\
        \n  kiban xot --route '*=192.0.2.7' --place 127.0.0.1:1102=192.0.2.1/4567 --packet-bytes 256 --window 2\
        \n                                                both directions\
        \n\nExit status: 1 if it cannot listen, 2 for invalid arguments.")]
pub(crate) struct Xot {
    /// Accept calls whose called address matches PATTERN, and forward them to HOST. PATTERN is *, an X.121
    /// address, nsap:HEX (either may end with *), or user-data:HEX, a prefix of the call user data. The first
    /// match is used. With xot: before HOST, calls of any protocol, such as X.29, go to another XOT router.
    #[arg(long, value_name = "PATTERN=[xot:]HOST[:PORT]", value_parser = route, required_unless_present = "place")]
    route: Vec<Route>,
    /// Address at which to accept calls [default: 0.0.0.0:1998].
    #[arg(long, value_name = "ADDRESS:PORT", requires = "route")]
    listen: Option<SocketAddr>,
    /// Accept TCP connections at ADDRESS, and place a call for each of them through an XOT router.
    #[arg(long, value_name = "ADDRESS:PORT=ROUTER[:PORT]/CALLED")]
    place: Vec<CallRule>,
    /// Calling address of these calls.
    #[arg(long, value_name = "DIGITS", requires = "place")]
    calling: Option<Address>,
    /// Called NSAP address of these calls, in hexadecimal.
    #[arg(long, value_name = "HEX", requires = "place", value_parser = nsap)]
    called_nsap: Option<Nsap>,
    /// Calling NSAP address of these calls, in hexadecimal.
    #[arg(long, value_name = "HEX", requires = "place", value_parser = nsap)]
    calling_nsap: Option<Nsap>,
    /// Packet size of these calls in octets: a power of two from 16 to 4096.
    #[arg(long, default_value_t = 1024, value_parser = packet_bytes)]
    packet_bytes: u16,
    /// Window size of these calls in packets: up to 7, or 127 with modulo 128.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(1..=127))]
    window: u8,
    /// Sequence numbering of these calls: modulo 8 or 128.
    #[arg(long, value_enum, default_value = "8")]
    modulo: Count,
    /// Maximum number of concurrent circuits; further calls are cleared.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    circuits: u32,
    /// Timeout in seconds for setting up or closing a call or a TCP connection.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    patience: u64,
    /// Print events on standard output, as one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Do not report circuits.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

/// Sequence numbering of packets.
#[derive(Clone, Copy, ValueEnum)]
enum Count {
    /// Basic.
    #[value(name = "8")]
    Eight,
    /// Extended.
    #[value(name = "128")]
    OneTwentyEight,
}

/// An NSAP address, as octets.
type Nsap = std::sync::Arc<[u8]>;

/// An address at which TCP connections are accepted, and the X.25 call to place for each.
#[derive(Clone, PartialEq, Eq, Debug)]
struct CallRule {
    listen: SocketAddr,
    router: Host,
    called: Address,
}

impl FromStr for CallRule {
    type Err = String;

    fn from_str(text: &str) -> Result<CallRule, String> {
        let parts = text.split_once('=').and_then(|(listen, rest)| Some((listen, rest.rsplit_once('/')?)));
        let (listen, (router, called)) = parts.ok_or("write ADDRESS:PORT=ROUTER/CALLED")?;
        Ok(CallRule {
            listen: listen.parse().map_err(|_| format!("'{listen}' is not ADDRESS:PORT"))?,
            router: router.parse()?,
            called: called.parse().map_err(|error| format!("'{called}': {error}"))?,
        })
    }
}

fn route(text: &str) -> Result<Route, String> {
    let (called, host) = text.split_once('=').ok_or("write PATTERN=HOST or PATTERN=HOST:PORT")?;
    let called: Called = called.parse().map_err(|error| format!("'{called}': {error}"))?;
    let (via, usual, host) = match host.strip_prefix("xot:") {
        Some(host) => (Via::Xot, xot::PORT, host),
        None => (Via::Tpkt, tpkt::PORT, host),
    };
    let Host { name, port } = host.parse()?;
    Ok(Route { called, via, host: name, port: port.unwrap_or(usual) })
}

fn nsap(text: &str) -> Result<Nsap, String> {
    match octets(text) {
        Some(octets) if (1..=20).contains(&octets.len()) => Ok(octets.into()),
        _ => Err("an NSAP address is 1 to 20 octets, in pairs of hexadecimal digits".into()),
    }
}

fn packet_bytes(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(bytes @ 16..=4096) if u16::is_power_of_two(bytes) => Ok(bytes),
        _ => Err("must be 16, 32, 64, 128, 256, 512, 1024, 2048 or 4096".into()),
    }
}

impl Xot {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let modulo = match self.modulo {
            Count::Eight => Modulo::Eight,
            Count::OneTwentyEight => Modulo::OneTwentyEight,
        };
        if self.window > modulo.mask() {
            return Err(format!("a window of {} needs --modulo 128", self.window));
        }
        let settings = Settings {
            packet_bytes: self.packet_bytes,
            window: self.window,
            modulo,
            state_timeout: Duration::from_secs(self.patience),
            circuits_max: self.circuits as usize,
        };
        let (json, quiet) = (self.json, self.quiet);
        let relay = Relay::new(settings, move |said| {
            if json {
                // The relay continues even if the reader has closed standard output.
                let _ = crate::output::print(&format!("{}\n", json!(said)));
            } else if !quiet {
                note!("{}", line(&said));
            }
        });
        runtime(true)?.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            if !self.route.is_empty() {
                let all = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), xot::PORT);
                let listener = open("accepting calls", self.listen.unwrap_or(all), quiet)?;
                tasks.spawn(relay.clone().from_xot(listener, self.route.clone()));
            }
            for place in &self.place {
                let listener = open("accepting TCP connections", place.listen, quiet)?;
                let port = place.router.port.unwrap_or(xot::PORT);
                let call = self.call(place.called);
                tasks.spawn(relay.clone().to_xot(listener, place.router.name.clone(), port, call));
            }
            while tasks.join_next().await.is_some() {}
            Ok(ExitCode::SUCCESS)
        })
    }

    fn call(&self, called: Address) -> Call {
        let addresses = AddressBlock { called, calling: self.calling.unwrap_or(Address::NONE) };
        let facilities = Facilities {
            called_extension: self.called_nsap.as_deref().map(<[u8]>::to_vec),
            calling_extension: self.calling_nsap.as_deref().map(<[u8]>::to_vec),
            ..Facilities::default()
        };
        Call { addresses, facilities, ..Call::default() }
    }
}

fn open(what: &str, address: SocketAddr, quiet: bool) -> Result<tokio::net::TcpListener, String> {
    let failed = |error| cannot_listen(address, &error);
    let listener = socket::listen(address).map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?;
    if !quiet {
        note!("{what} on {at}; press ctrl-c to stop");
    }
    Ok(listener)
}

/// Formats an event as one line.
fn line(said: &CircuitEvent) -> String {
    let called = |called: &str| if called.is_empty() { String::new() } else { format!(" calls {called}") };
    match &said.event {
        Event::Open { from, called: whom, to } => {
            format!("circuit {}: {from}{}, connected to {to}", said.circuit, called(whom))
        }
        Event::Refused { from, called: whom, why } => {
            format!("circuit {}: {from}{}, refused: {why}", said.circuit, called(whom))
        }
        Event::Closed { bytes_to_tcp, bytes_to_x25, why } => format!(
            "circuit {}: ended, {bytes_to_tcp} bytes to TCP, {bytes_to_x25} bytes to X.25: {why}",
            said.circuit
        ),
    }
}
