//! Services in the simulator: the same code in virtual time, over a cable that loses packets.

use kiban_board::{BoardConfig, Completion, Host, IpPortConfig, PortConfig, Program, StreamId};
use kiban_ground::Instant;
use kiban_service::config::{End, Kind, ServicePlan};
use kiban_service::services::{
    Bounds, Content, Entry, Found, Http, HttpConfig, Plain, Role, Service, Services, Store,
};
use kiban_sim::{BoardNumber, CableConfig, Harm, Plug, World};
use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const BOUNDS: Bounds = Bounds { sessions_max: 3, idle: Some(Duration::from_secs(30)) };

/// A client that sends, then finishes or not, and keeps what comes.
struct Client {
    remote: SocketAddr,
    sends: Vec<u8>,
    sent: usize,
    finishes: bool,
    /// Whether it takes what comes.
    reads: bool,
    stream: Option<StreamId>,
    heard: Vec<u8>,
    ended: Option<&'static str>,
}

impl Client {
    fn new(port: u16, sends: &[u8], finishes: bool) -> Client {
        let remote = SocketAddr::new(IpAddr::from([10, 0, 0, 2]), port);
        Client {
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
        self.stream = host.open(self.remote).ok();
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

/// Two boards with a cable; the second has the service.
fn world(harm: Harm, service: impl Service + 'static, kind: Kind) -> (World, [BoardNumber; 2]) {
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
        world.add_board(&BoardConfig { ports, ..BoardConfig::default() })
    });
    let cable = CableConfig { harm, ..CableConfig::ethernet(100_000_000, Duration::from_millis(5)) };
    world
        .join_packets(Plug::Board(boards[0], 0), Plug::Board(boards[1], 0), &cable)
        .expect("both take packets");
    let mut services = Services::new().expect("a file or two");
    let listen = End::Board("10.0.0.2:80".parse().expect("an address"));
    let plan = ServicePlan { name: "it".into(), listen, sessions_max: 3, idle: BOUNDS.idle, kind };
    services.put(plan, Box::new(service));
    world.run_program(boards[1], Box::new(services));
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
    let harm = Harm { loss: 0.02, ..Harm::NONE };
    let (mut world, boards) = world(harm, Plain::new(local(), Role::Echo, BOUNDS), Kind::Echo);
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
fn who_comes_beyond_the_bound_is_reset_and_who_says_nothing_is_cut() {
    let (mut world, boards) = world(Harm::NONE, Plain::new(local(), Role::Echo, BOUNDS), Kind::Echo);
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
    assert_eq!((view.sessions, view.counters.idle, view.counters.cut), (0, 3, 3));
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
    (Http::new(local(), Box::new(Shelf), config), Kind::Http { root: "/".into(), list: true, head_time })
}

/// What a server says to these bytes.
fn talk(sends: &str, finishes: bool) -> (Option<&'static str>, String) {
    let (service, kind) = http();
    let (mut world, boards) = world(Harm::NONE, service, kind);
    world.run_program(boards[0], Box::new(Client::new(80, sends.as_bytes(), finishes)));
    run(&mut world, 120);
    let client = world.program::<Client>(boards[0]).expect("it was given");
    (client.ended, String::from_utf8_lossy(&client.heard).into_owned())
}

#[test]
fn requests_are_answered_one_after_the_other_on_one_connection() {
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
fn a_head_has_no_body_and_a_folder_is_listed_without_harm() {
    let (_, heard) = talk("HEAD /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false);
    assert!(heard.contains("Content-Length: 3000000\r\n") && heard.ends_with("\r\n\r\n"), "{heard}");
    let (_, heard) = talk("GET / HTTP/1.0\r\n\r\n", false);
    assert!(heard.contains("<a href=\"./a%3Cb\">a&lt;b</a>") && heard.contains("href=\"./sub/\""), "{heard}");
}

#[test]
fn bad_requests_are_told_so_and_closed_upon() {
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
fn bytes_that_drip_keep_nobodys_place() {
    // No end of the head ever comes.
    let (ended, heard) = talk("GET / HTTP/1.1\r\n", false);
    assert_eq!((ended, heard.as_str()), (Some("cut"), ""));
}

#[test]
fn a_reader_who_does_not_read_is_cut_and_holds_no_more_than_a_buffer() {
    let (service, kind) = http();
    let (mut world, boards) = world(Harm::NONE, service, kind);
    let mut client = Client::new(80, b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n", false);
    client.reads = false;
    world.run_program(boards[0], Box::new(client));
    run(&mut world, 10);
    let view = world.program::<Services>(boards[1]).expect("given").views().next().expect("one");
    assert_eq!(view.sessions, 1);
    // Both ends' buffers: 256 KiB each.
    assert!((1..=(512 << 10) + 1000).contains(&view.counters.bytes_out), "{}", view.counters.bytes_out);
    run(&mut world, 60);
    let view = world.program::<Services>(boards[1]).expect("given").views().next().expect("one");
    assert_eq!((view.sessions, view.counters.idle), (0, 1));
}
