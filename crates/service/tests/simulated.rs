//! Tests of the services in the simulator: the code of `kiban up` runs in virtual time over a cable that
//! loses packets.

#[path = "../../base/tests/common/refusal.rs"]
mod refusal;

use kiban_base::Instant;
use kiban_board::{BoardConfig, Completion, Host, IpPortConfig, PortAddress, PortConfig, Program, StreamId};
use kiban_link::FdProgram as _;
use kiban_service::config::{Endpoint, Kind, ServicePlan};
use kiban_service::services::{
    Content, Entry, Forward, Found, Http, HttpConfig, Plain, Role, Service, Services, SessionLimits, Store,
};
use kiban_sim::{Attachment, BoardNumber, CableConfig, ImpairmentConfig, World};
use kiban_tcpip::ip::Prefix;
use kiban_tcpip::tcp::{self, Fairness};
use std::any::Any;
use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::time::Duration;

const BOUNDS: SessionLimits = SessionLimits { sessions_max: 3, idle: Some(Duration::from_secs(30)) };

/// A client that sends data, optionally followed by a FIN, and stores what it receives.
struct Client {
    local: SocketAddr,
    remote: SocketAddr,
    sends: Vec<u8>,
    sent: usize,
    finishes: bool,
    /// Whether the client reads received data.
    reads: bool,
    stream: Option<StreamId>,
    heard: Vec<u8>,
    ended: Option<&'static str>,
}

impl Client {
    fn new(port: u16, sends: &[u8], finishes: bool) -> Client {
        let remote = SocketAddr::new(IpAddr::from([10, 0, 0, 2]), port);
        Client {
            local: SocketAddr::from(([0; 4], 0)),
            remote,
            sends: sends.to_vec(),
            sent: 0,
            finishes,
            reads: true,
            stream: None,
            heard: Vec::new(),
            ended: None,
        }
    }

    fn pump(&mut self, host: &mut Host<'_>) {
        let Some(stream) = self.stream else { return };
        if self.sent < self.sends.len() {
            self.sent += host.write(stream, &self.sends[self.sent..]).unwrap_or(0);
            if self.sent == self.sends.len() && self.finishes {
                let _ = host.finish(stream);
            }
        }
        let mut buffer = [0; 4096];
        while self.reads
            && let Ok(count @ 1..) = host.read(stream, &mut buffer)
        {
            self.heard.extend_from_slice(&buffer[..count]);
        }
    }
}

impl Program for Client {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        self.stream = host.open_from(self.local, self.remote).ok();
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        match completion {
            Completion::Opened { stream }
            | Completion::Readable { stream }
            | Completion::Writable { stream }
                if Some(stream) == self.stream =>
            {
                self.pump(host);
            }
            Completion::PeerFinished { stream } if Some(stream) == self.stream => {
                self.pump(host);
                self.ended = Some("finished");
                let _ = host.close(stream);
            }
            Completion::Ended { stream, .. } if Some(stream) == self.stream => {
                self.ended = self.ended.or(Some("cut"));
                let _ = host.close(stream);
            }
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.ended.is_some()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns two boards connected by a cable. The second board runs the service.
fn world(
    impairment: ImpairmentConfig,
    service: impl Service + 'static,
    kind: Kind,
) -> (World, [BoardNumber; 2]) {
    fair_world(impairment, service, kind, Fairness::Address)
}

fn fair_world(
    impairment: ImpairmentConfig,
    service: impl Service + 'static,
    kind: Kind,
    fairness: Fairness,
) -> (World, [BoardNumber; 2]) {
    let tcp = tcp::Config { fairness, ..tcp::Config::default() };
    world_with(impairment, service, kind, [tcp.clone(), tcp])
}

/// Like [`world`], but with these TCP settings.
fn world_with(
    impairment: ImpairmentConfig,
    service: impl Service + 'static,
    kind: Kind,
    tcp: [tcp::Config; 2],
) -> (World, [BoardNumber; 2]) {
    let (mut world, boards) = boards(impairment, tcp);
    let mut services = Services::new().expect("a file or two");
    let listen = Endpoint::Board(local());
    let plan = ServicePlan { name: "it".into(), listen, sessions_max: 3, idle: BOUNDS.idle, kind };
    services.put(plan, Box::new(service));
    world.run_program(boards[1], Box::new(services));
    (world, boards)
}

/// Returns two boards connected by a cable. The first board also has the addresses 10.0.0.3 to 10.0.0.9.
fn boards(impairment: ImpairmentConfig, tcp: [tcp::Config; 2]) -> (World, [BoardNumber; 2]) {
    let mut world = World::new(1);
    let boards = [1, 2].map(|side: u8| {
        let port = IpPortConfig {
            address: IpAddr::from([10, 0, 0, side]),
            prefix: "10.0.0.0/24".parse().expect("a prefix"),
            mtu_bytes: 1500,
            packets_max: 256,
            cuts: false,
            merges: false,
            believe_sums: false,
        };
        let ports = vec![PortConfig::Ip(port)];
        let own = |last: u8| {
            let address = IpAddr::from([10, 0, 0, last]);
            PortAddress { port: 0, address, prefix: Prefix::new(address, 32) }
        };
        let addresses = if side == 1 { (3..=9).map(own).collect() } else { Vec::new() };
        let tcp = tcp[usize::from(side) - 1].clone();
        world.add_board(&BoardConfig { ports, addresses, tcp, ..BoardConfig::default() })
    });
    let cable = CableConfig { impairment, ..CableConfig::ethernet(100_000_000, Duration::from_millis(5)) };
    world
        .connect_packets(Attachment::Board(boards[0], 0), Attachment::Board(boards[1], 0), &cable)
        .expect("both take packets");
    (world, boards)
}

fn run(world: &mut World, until: u64) {
    world.settle(Instant::ZERO + Duration::from_secs(until));
}

fn local() -> SocketAddr {
    "10.0.0.2:80".parse().expect("an address")
}

#[test]
fn an_echo_is_whole_over_a_cable_that_loses_packets() {
    let impairment = ImpairmentConfig { loss: 0.02, ..ImpairmentConfig::NONE };
    let (mut world, boards) = world(impairment, Plain::new(local(), Role::Echo, BOUNDS), Kind::Echo);
    let sends: Vec<u8> = (0..500_000_u32).map(|number| (number * 7) as u8).collect();
    world.run_program(boards[0], Box::new(Client::new(80, &sends, true)));
    run(&mut world, 600);
    let client = world.program::<Client>(boards[0]).expect("it was given");
    assert_eq!((client.ended, client.heard.len()), (Some("finished"), sends.len()));
    assert!(client.heard == sends);
    let view = world.program::<Services>(boards[1]).expect("it was given").views().next().expect("one");
    let counters = view.counters;
    assert_eq!((view.sessions, counters.accepted, counters.ended), (0, 1, 1));
    assert_eq!((counters.bytes_in, counters.bytes_out), (500_000, 500_000));
}

#[test]
fn sessions_beyond_the_limit_are_reset_and_silent_ones_disconnected() {
    let (mut world, boards) =
        world(ImpairmentConfig::NONE, Plain::new(local(), Role::Echo, BOUNDS), Kind::Echo);
    for _ in 0..5 {
        world.run_program(boards[0], Box::new(Client::new(80, b"hello", false)));
    }
    run(&mut world, 10);
    let services = world.program::<Services>(boards[1]).expect("it was given");
    let view = services.views().next().expect("one");
    assert_eq!((view.sessions, view.counters.accepted, view.counters.refused), (3, 3, 2));
    run(&mut world, 40);
    let services = world.program::<Services>(boards[1]).expect("it was given");
    let view = services.views().next().expect("one");
    assert_eq!((view.sessions, view.counters.idle_timeouts, view.counters.aborted), (0, 3, 3));
}

#[test]
fn a_full_service_takes_a_slot_from_the_address_with_the_most() {
    let echo = || Plain::new(local(), Role::Echo, BOUNDS);
    let head_time = Duration::from_secs(30);
    let http = HttpConfig { list: true, head_time, bounds: BOUNDS };
    let shelf = || Http::new(local(), Box::new(Shelf), http);
    let by = |fairness| {
        [
            fair_world(ImpairmentConfig::NONE, echo(), Kind::Echo, fairness),
            fair_world(ImpairmentConfig::NONE, shelf(), Kind::Echo, fairness),
        ]
    };
    for (fairness, accepted, displaced, refused) in [(Fairness::Address, 4, 1, 2), (Fairness::Flow, 3, 0, 3)]
    {
        for (mut world, boards) in by(fairness) {
            let mut call = |second: u64, last: u8| {
                run(&mut world, second);
                let client = Client {
                    local: SocketAddr::from(([10, 0, 0, last], 0)),
                    ..Client::new(80, b"GE", false)
                };
                world.run_program(boards[0], Box::new(client));
            };
            // One address occupies all slots. The first connection from another address gets one of them. The
            // second does not, because its address would then have more slots than the other.
            [(1, 1), (2, 1), (3, 1), (4, 1), (5, 3), (6, 3)]
                .into_iter()
                .for_each(|(second, last)| call(second, last));
            run(&mut world, 7);
            let services = world.program::<Services>(boards[1]).expect("it was given");
            let view = services.views().next().expect("one");
            let counters = view.counters;
            assert_eq!(
                (view.sessions, counters.accepted, counters.aborted),
                (3, accepted, displaced),
                "{fairness:?}"
            );
            assert_eq!((counters.displaced, counters.refused), (displaced, refused), "{fairness:?}");
        }
    }
}

/// One of a caller's connections: when it was opened, and when it ended.
type Visit = (Instant, Option<Instant>);

/// A client that reconnects whenever it is reset or refused.
#[derive(Clone)]
struct Caller {
    local: SocketAddr,
    /// The data sent at each interval. The caller also reads at most `reads` bytes per interval.
    sends: Vec<u8>,
    every: Duration,
    reads: usize,
    /// The data sent at each interval after the first.
    then: Vec<u8>,
    /// If set, the caller resets its connection after this time and immediately opens another.
    renews: Option<Duration>,
    stream: Option<StreamId>,
    is_open: bool,
    act_at: Instant,
    visits: Rc<RefCell<Vec<Visit>>>,
}

impl Caller {
    fn new(last: u8, starts: u64, sends: &[u8], every: Duration) -> Caller {
        Caller {
            local: SocketAddr::from(([10, 0, 0, last], 0)),
            sends: sends.to_vec(),
            every,
            reads: 1 << 20,
            then: sends.to_vec(),
            renews: None,
            stream: None,
            is_open: false,
            act_at: Instant::ZERO + Duration::from_secs(starts),
            visits: Rc::default(),
        }
    }

    /// Returns a caller that sends one byte at each interval.
    fn trickling(last: u8) -> Caller {
        Caller::new(last, 0, b"x", Duration::from_secs(5))
    }

    fn end_visit(&mut self, now: Instant) {
        if self.is_open
            && let Some(visit) = self.visits.borrow_mut().last_mut()
        {
            visit.1 = Some(now);
        }
        (self.stream, self.is_open) = (None, false);
    }
}

/// Returns the caller's connections up to `now` that lasted more than half a second, which means that they
/// were not refused.
fn visits(of: &Caller, now: Instant) -> Vec<Visit> {
    let lasted = |visit: &&Visit| visit.1.unwrap_or(now).since(visit.0) > Duration::from_millis(500);
    of.visits.borrow().iter().filter(lasted).copied().collect()
}

impl Program for Caller {
    fn start(&mut self, _: &mut Host<'_>, _: Instant) {}

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        match completion {
            Completion::Opened { stream } if Some(stream) == self.stream => {
                self.is_open = true;
                self.visits.borrow_mut().push((now, None));
                let _ = host.write(stream, &self.sends);
            }
            Completion::Ended { stream, .. } if Some(stream) == self.stream => {
                self.end_visit(now);
                let _ = host.close(stream);
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Instant {
        self.act_at
    }

    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        let since = self.visits.borrow().last().map_or(now, |visit| visit.0);
        if let (true, Some(stream), Some(renews)) = (self.is_open, self.stream, self.renews)
            && now.since(since) >= renews
        {
            let _ = host.abort(stream);
            self.end_visit(now);
        }
        match self.stream {
            None => self.stream = host.open_from(self.local, local()).ok(),
            Some(stream) if self.is_open => {
                let _ = host.write(stream, &self.then);
                let mut buffer = vec![0; self.reads];
                let _ = host.read(stream, &mut buffer);
            }
            Some(_) => {}
        }
        self.act_at = now + if self.is_open { self.every } else { Duration::from_secs(1) };
    }

    fn is_done(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Runs `callers` against an `echo` or `http` service that allows `sessions_max` sessions. Returns how many
/// sessions were displaced.
fn call(is_http: bool, sessions_max: usize, callers: &[&Caller], seconds: u64) -> u64 {
    let bounds = SessionLimits { sessions_max, idle: None };
    let head_time = Duration::from_secs(30);
    let (mut world, boards) = match is_http {
        true => world(
            ImpairmentConfig::NONE,
            Http::new(local(), Box::new(Shelf), HttpConfig { list: true, head_time, bounds }),
            Kind::Echo,
        ),
        false => world(ImpairmentConfig::NONE, Plain::new(local(), Role::Echo, bounds), Kind::Echo),
    };
    for caller in callers {
        world.run_program(boards[0], Box::new(Caller::clone(caller)));
    }
    run(&mut world, seconds);
    let services = world.program::<Services>(boards[1]).expect("it was given");
    services.views().next().expect("one").counters.displaced
}

const HEAD: &[u8] = b"HEAD /a.txt HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_newcomer_displaces_one_of_many_single_session_addresses_after_their_tenure() {
    for is_http in [false, true] {
        // The clients that occupy the slots either keep their connections or repeatedly open new ones.
        for renews in [None, Some(Duration::from_secs(4))] {
            for sessions in [1, 3] {
                let sends = if is_http { HEAD } else { b"x" };
                let holders: Vec<Caller> = (0..sessions)
                    .map(|at| Caller { renews, ..Caller::new(3 + at, 0, sends, Duration::from_secs(5)) })
                    .collect();
                // The newcomer connects when all slots are taken, and transfers 2 KiB/s in both directions
                // together.
                let request = [HEAD, b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
                let newcomer = match is_http {
                    true => Caller { reads: 2048, ..Caller::new(9, 2, &request, Duration::from_secs(1)) },
                    false => Caller::new(9, 2, &[7; 1024], Duration::from_secs(1)),
                };
                let callers: Vec<&Caller> = holders.iter().chain([&newcomer]).collect();
                call(is_http, sessions.into(), &callers, 120);
                let end = Instant::ZERO + Duration::from_secs(120);
                let its = visits(&newcomer, end);
                let name = format!("http: {is_http}, renews: {renews:?}, sessions: {sessions}");
                assert!(!its.is_empty(), "{name}: it never gets in");
                assert!(its[0].0 <= Instant::ZERO + Duration::from_secs(25), "{name}: {:?}", its[0]);
                // The newcomer transfers enough bytes to avoid being displaced in turn.
                assert_eq!((its.len(), its[0].1), (1, None), "{name}: {its:?}");
            }
        }
    }
}

#[test]
fn a_session_that_moves_data_is_not_displaced_by_newcomers() {
    for is_http in [false, true] {
        let request = b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n";
        // The client that occupies the slot transfers 1 KiB every second or, at the same average rate, 8 KiB
        // every eight seconds.
        for every in [1, 8] {
            let (time, count) = (Duration::from_secs(every), 1024 * every as usize);
            let holder = match is_http {
                true => Caller { reads: count, ..Caller::new(3, 0, request, time) },
                false => Caller::new(3, 0, &vec![7; count], time),
            };
            let newcomers: Vec<Caller> = (4..=9)
                .map(|last| Caller {
                    act_at: Instant::ZERO + Duration::from_secs(30),
                    ..Caller::trickling(last)
                })
                .collect();
            let callers: Vec<&Caller> = [&holder].into_iter().chain(&newcomers).collect();
            let displaced = call(is_http, 1, &callers, 300);
            let its = visits(&holder, Instant::ZERO + Duration::from_secs(300));
            assert_eq!((displaced, its.len(), its[0].1), (0, 1, None), "http: {is_http}, every {every} s");
        }
    }
}

#[test]
fn slow_clients_take_turns_without_constant_displacement() {
    for count in [2, 6] {
        let callers: Vec<Caller> = (0..count).map(|at| Caller::trickling(3 + at)).collect();
        let displaced = call(false, 1, &callers.iter().collect::<Vec<_>>(), 1200);
        // A tenure is 20 s. A displaced address waits until another address's account is 20 s older than its
        // own.
        assert!((10..=60).contains(&displaced), "{displaced} of {count} clients displaced");
        let end = Instant::ZERO + Duration::from_secs(1200);
        for caller in &callers {
            let its = visits(caller, end);
            let held: Duration = its.iter().map(|its| its.1.unwrap_or(end).since(its.0)).sum();
            assert!(
                held > Duration::from_secs(1200) / count.into() / 2,
                "{held:?} of 1200 s, {count} clients"
            );
            let shortest = its.iter().filter_map(|its| Some(its.1?.since(its.0))).min();
            assert!(shortest > Some(Duration::from_secs(19)), "{shortest:?}, {count} clients");
        }
    }
}

/// Files in memory.
struct Shelf;

struct Pattern(u64);

impl Content for Pattern {
    fn length(&self) -> u64 {
        self.0
    }
    fn read(&mut self, at: u64, into: &mut [u8]) -> usize {
        let count = into.len().min((self.0 - at.min(self.0)) as usize);
        into[..count].iter_mut().zip(at..).for_each(|(byte, at)| *byte = at as u8);
        count
    }
}

impl Store for Shelf {
    fn find(&mut self, parts: &[String]) -> Option<Found> {
        match parts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] | ["sub"] => Some(Found::Folder),
            ["big"] => Some(Found::File(Box::new(Pattern(3_000_000)))),
            ["small"] => Some(Found::File(Box::new(Pattern(200_000)))),
            ["a.txt"] => Some(Found::File(Box::new(Pattern(10)))),
            ["sub", "index.html"] => Some(Found::File(Box::new(Pattern(5)))),
            _ => None,
        }
    }
    fn list(&mut self, _: &[String]) -> Vec<Entry> {
        [("a<b", false), ("big", false), ("sub", true)]
            .map(|(name, is_folder)| Entry { name: name.into(), is_folder })
            .into()
    }
}

fn http() -> (Http, Kind) {
    let head_time = Duration::from_secs(10);
    let config = HttpConfig { list: true, head_time, bounds: BOUNDS };
    (
        Http::new(local(), Box::new(Shelf), config),
        Kind::Http { root: "/".into(), folder: (0, 0), list: true, head_time },
    )
}

/// Sends the text `sends` to a server and returns its response.
fn talk(sends: &str, finishes: bool) -> (Option<&'static str>, String) {
    let (service, kind) = http();
    let (mut world, boards) = world(ImpairmentConfig::NONE, service, kind);
    world.run_program(boards[0], Box::new(Client::new(80, sends.as_bytes(), finishes)));
    run(&mut world, 120);
    let client = world.program::<Client>(boards[0]).expect("it was given");
    (client.ended, String::from_utf8_lossy(&client.heard).into_owned())
}

#[test]
fn requests_on_one_connection_are_answered_in_order() {
    let get = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n");
    let sends = [
        get("/a.txt", ""),
        get("/a.txt", "Range: bytes=2-4\r\n"),
        get("/a.txt", "Range: bytes=20-\r\n"),
        get("/sub", ""),
        get("/nothing", ""),
        get("/../secret", "Connection: close\r\n"),
        get("/never", ""),
    ]
    .concat();
    let (ended, heard) = talk(&sends, false);
    assert_eq!(ended, Some("finished"));
    let answers: Vec<&str> = heard.split("HTTP/1.1 ").skip(1).collect();
    let status: Vec<&str> = answers.iter().map(|answer| &answer[..3]).collect();
    assert_eq!(status, ["200", "206", "416", "301", "404", "404"], "{heard}");
    assert!(answers[0].contains("Content-Length: 10\r\n") && answers[0].contains("text/plain"), "{heard}");
    assert!(answers[0].ends_with("\r\n\r\n\0\u{1}\u{2}\u{3}\u{4}\u{5}\u{6}\u{7}\u{8}\u{9}"), "{heard:?}");
    assert!(
        answers[1].contains("Content-Range: bytes 2-4/10\r\n") && answers[1].ends_with("\u{2}\u{3}\u{4}")
    );
    assert!(answers[2].contains("Content-Range: bytes */10\r\n"), "{heard}");
    assert!(answers[3].contains("Location: /sub/\r\n"), "{heard}");
}

#[test]
fn head_responses_have_no_body_and_listings_are_escaped() {
    let (_, heard) = talk("HEAD /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false);
    assert!(heard.contains("Content-Length: 3000000\r\n") && heard.ends_with("\r\n\r\n"), "{heard}");
    let (_, heard) = talk("GET / HTTP/1.0\r\n\r\n", false);
    assert!(heard.contains("<a href=\"./a%3Cb\">a&lt;b</a>") && heard.contains("href=\"./sub/\""), "{heard}");
}

#[test]
fn bad_requests_are_answered_and_disconnected() {
    for (sends, status) in [
        ("nonsense\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("DELETE /a.txt HTTP/1.1\r\nHost: a\r\n\r\n", "405"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "413"),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n", "505"),
    ] {
        let (ended, heard) = talk(sends, false);
        assert_eq!((ended, heard.get(9..12)), (Some("finished"), Some(status)), "{sends}");
    }
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(9000));
    let (_, heard) = talk(&long, false);
    assert_eq!(heard.get(9..12), Some("431"), "{heard}");
}

#[test]
fn an_unfinished_request_head_times_out() {
    // The head never ends.
    let (ended, heard) = talk("GET / HTTP/1.1\r\n", false);
    assert_eq!((ended, heard.as_str()), (Some("cut"), ""));
}

#[test]
fn a_client_that_does_not_read_holds_one_buffer_and_is_disconnected() {
    let (service, kind) = http();
    let (mut world, boards) = world(ImpairmentConfig::NONE, service, kind);
    let mut client = Client::new(80, b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n", false);
    client.reads = false;
    world.run_program(boards[0], Box::new(client));
    run(&mut world, 10);
    let view = world.program::<Services>(boards[1]).expect("given").views().next().expect("one");
    assert_eq!(view.sessions, 1);
    // The send buffer and the receive buffer hold 256 KiB each.
    assert!((1..=(512 << 10) + 1000).contains(&view.counters.bytes_out), "{}", view.counters.bytes_out);
    run(&mut world, 60);
    let view = world.program::<Services>(boards[1]).expect("given").views().next().expect("one");
    assert_eq!((view.sessions, view.counters.idle_timeouts), (0, 1));
}

/// Runs the caller `reader`, which has a small receive buffer, against an `http` service with the idle time
/// `idle`. Returns the caller's first connection.
fn slow_reader(idle: u64, reader: Caller, seconds: u64) -> Visit {
    let bounds = SessionLimits { sessions_max: 3, idle: Some(Duration::from_secs(idle)) };
    let config = HttpConfig { list: true, head_time: Duration::from_secs(10), bounds };
    let tcp = tcp::Config { receive_buffer_bytes: 8 << 10, ..tcp::Config::default() };
    let service = Http::new(local(), Box::new(Shelf), config);
    let (mut world, boards) =
        world_with(ImpairmentConfig::NONE, service, Kind::Echo, [tcp, tcp::Config::default()]);
    world.run_program(boards[0], Box::new(reader.clone()));
    run(&mut world, seconds);
    let visits = reader.visits.borrow();
    visits[0]
}

#[test]
fn a_response_must_be_read_at_a_minimum_rate() {
    // The small file fits completely into the send buffer.
    for path in ["big", "small"] {
        let request = format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n");
        for (idle, reads, is_cut) in [(30, 0, true), (30, 256, true), (30, 1100, false), (10, 1100, false)] {
            let reader = Caller {
                reads,
                then: Vec::new(),
                ..Caller::new(3, 0, request.as_bytes(), Duration::from_secs(1))
            };
            let (began, ended) = slow_reader(idle, reader, 100);
            let lasted = ended.map(|ended| ended.since(began).as_secs());
            let name = format!("{path}, idle {idle} s, {reads} bytes a second");
            assert_eq!(lasted.is_some(), is_cut, "{name}: {lasted:?} s");
            assert!(lasted.is_none_or(|seconds| (30..=62).contains(&seconds)), "{name}: {lasted:?} s");
        }
    }
}

#[test]
fn sending_requests_does_not_excuse_reading_no_response() {
    let request = b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n";
    let reader =
        Caller { reads: 1, then: HEAD.to_vec(), ..Caller::new(3, 0, request, Duration::from_secs(20)) };
    let (began, ended) = slow_reader(30, reader, 100);
    assert!(ended.is_some_and(|ended| ended.since(began) <= Duration::from_secs(62)), "{ended:?}");
}

// ---- allocation failures

/// Runs a client and makes one memory allocation fail. Returns what the client received, and whether the run
/// reached that allocation.
fn receive_with_refusal(
    (mut world, boards): (World, [BoardNumber; 2]),
    client: Client,
    refusal: refusal::Refusal,
) -> (Vec<u8>, bool) {
    refusal.arm(world.board_mut(boards[refusal.side]).memory_mut());
    world.run_program(boards[0], Box::new(client));
    run(&mut world, 600);
    let client = world.program::<Client>(boards[0]).expect("it was given");
    assert_eq!(client.ended, Some("finished"), "{refusal:?}: {} bytes", client.heard.len());
    let heard = client.heard.clone();
    for board in boards {
        assert_eq!(world.board(board).sessions(), 0, "{refusal:?}");
        assert!(world.board_mut(board).memory_mut().is_all_free(), "{refusal:?}");
    }
    (heard, refusal.has_happened(world.board_mut(boards[refusal.side]).memory_mut()))
}

#[test]
fn an_allocation_failure_delays_an_http_response_and_loses_nothing() {
    let body: Vec<u8> = (0..200_000_u32).map(|at| at as u8).collect();
    refusal::each(|refusal| {
        let (service, kind) = http();
        let request = b"GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let client = Client::new(80, request, false);
        let world = world(ImpairmentConfig::NONE, service, kind);
        let (heard, has_happened) = receive_with_refusal(world, client, refusal);
        assert!(heard.starts_with(b"HTTP/1.1 200"), "{refusal:?}");
        assert!(heard.ends_with(&body), "{refusal:?}: {} bytes", heard.len());
        has_happened
    });
}

/// A `forward` service that runs in virtual time but uses the kernel's sockets. While the service has
/// sessions, its files are polled every millisecond. The connections are forwarded to an echo server.
struct ForwardToEcho {
    services: Services,
    listener: TcpListener,
    callers: Vec<TcpStream>,
    look_at: Instant,
}

impl ForwardToEcho {
    fn new() -> ForwardToEcho {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        listener.set_nonblocking(true).expect("a socket");
        let (listen, to) =
            (Endpoint::Board(local()), Endpoint::Kernel(listener.local_addr().expect("bound")));
        let mut services = Services::new().expect("a file or two");
        let kind = Kind::Forward { to };
        let plan = ServicePlan { name: "it".into(), listen, sessions_max: 3, idle: BOUNDS.idle, kind };
        services.put(plan, Box::new(Forward::new(listen, to, BOUNDS).expect("a file or two")));
        ForwardToEcho { services, listener, callers: Vec::new(), look_at: Instant::NEVER }
    }

    fn echo(&mut self) {
        while let Ok((caller, _)) = self.listener.accept() {
            caller.set_nonblocking(true).expect("a socket");
            self.callers.push(caller);
        }
        self.callers.retain_mut(|caller| {
            let mut buffer = [0; 4096];
            loop {
                match caller.read(&mut buffer) {
                    // Closing the socket sends a FIN.
                    Ok(0) => return false,
                    Ok(count) => caller.write_all(&buffer[..count]).expect("the socket buffers have room"),
                    Err(error) => return error.kind() == ErrorKind::WouldBlock,
                }
            }
        });
    }
}

impl Program for ForwardToEcho {
    fn start(&mut self, host: &mut Host<'_>, now: Instant) {
        self.services.start(host, now);
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        self.services.on_completion(completion, host, now);
        if self.services.sessions() > 0 {
            self.look_at = self.look_at.min(now + Duration::from_millis(1));
        }
    }

    fn deadline(&self) -> Instant {
        self.services.deadline().min(self.look_at)
    }

    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        if self.services.deadline() <= now {
            self.services.on_timeout(host, now);
        }
        if self.look_at <= now {
            self.echo();
            if self.services.is_ready() {
                self.services.on_file(host, now);
            }
            let has_sessions = self.services.sessions() > 0;
            self.look_at = if has_sessions { now + Duration::from_millis(1) } else { Instant::NEVER };
        }
    }

    fn is_done(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[test]
fn an_allocation_failure_delays_a_forwarded_stream_and_loses_nothing() {
    let sends: Vec<u8> = (0..50_000_u32).map(|number| (number * 7) as u8).collect();
    refusal::each(|refusal| {
        let (mut world, boards) = boards(ImpairmentConfig::NONE, Default::default());
        world.run_program(boards[1], Box::new(ForwardToEcho::new()));
        let client = Client::new(80, &sends, true);
        let (heard, has_happened) = receive_with_refusal((world, boards), client, refusal);
        assert!(heard == sends, "{refusal:?}: {} bytes", heard.len());
        has_happened
    });
}
