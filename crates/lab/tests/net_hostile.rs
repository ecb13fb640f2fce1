//! `kiban lab serve` against hostile clients, which must not lock out other clients, fill the log, or direct
//! traffic at third parties.
//!
//! Addresses   all of 127.0.0.0/8 belongs to this host, so that attackers and victims can have different
//!             addresses.

use kiban_lab::engine::Failure;
use kiban_lab::mix::{Plan, run_over};
use kiban_lab::net::admission::Token;
use kiban_lab::net::protocol::{
    Greeting, Hello, LINE_BYTES_MAX, Nonce, Reply, Request, VERSION, Welcome, Work, read_message,
    write_message,
};
use kiban_lab::net::server::Event;
use kiban_lab::net::{Client, Limits, Server, TcpStack};
use kiban_measure::Settings;
use kiban_os::Clock;
use kiban_sim::predict::predicted;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A timeout that is longer than any step of these tests.
const LONG: Duration = Duration::from_secs(60);
/// The number of connections that an unauthenticated host opens.
const FLOOD: usize = 200;
/// The offset of the nonce in a greeting, after the name and the version of the protocol.
const NONCE_AT: usize = 13;

struct Running {
    at: SocketAddr,
    token: Token,
    told: Receiver<Event>,
    stop: Box<dyn Fn()>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(limits: Limits) -> Running {
        let token = Token::random().expect("random bytes");
        let (tell, told) = channel();
        let tell = move |event| drop(tell.send(event));
        let address = "127.0.0.1:0".parse().expect("an address");
        let server =
            Server::bind(TcpStack::Host, address, token.clone(), Vec::new(), limits, tell).expect("loopback");
        let at = server.address().expect("bound");
        let stop = Box::new(server.stopper());
        let thread = std::thread::spawn(move || server.run().expect("loopback"));
        Running { at, token, told, stop, thread: Some(thread) }
    }

    /// Waits until a session ends; returns the reason.
    fn end_of_session(&self) -> String {
        let reason = |event| if let Event::Ended(_, _, how) = event { Some(how) } else { None };
        std::iter::from_fn(|| self.told.recv_timeout(LONG).ok()).find_map(reason).expect("a session ends")
    }

    fn client(&self) -> Result<Client, Failure> {
        Client::connect(&TcpStack::Host, "127.0.0.1", self.at.port(), &self.token)
    }

    /// Returns a session with a client at 127.0.0.1.
    fn session(&self) -> Session {
        self.try_session().expect("a session is free")
    }

    /// Returns a session as soon as one is free.
    fn next_session(&self) -> Session {
        std::iter::repeat_with(|| self.try_session()).flatten().next().expect("it is repeated")
    }

    /// Returns a session, or `None` if the server is full.
    fn try_session(&self) -> Option<Session> {
        let writer = call(self.at, [127, 0, 0, 1]);
        writer.set_read_timeout(Some(LONG)).expect("a socket");
        let reader = BufReader::new(writer.try_clone().expect("a file"));
        let mut session = Session { reader, writer };
        session.say(&Hello { version: VERSION, token: self.token.reveal().to_owned() });
        matches!(session.hear(), Greeting::Welcome(_)).then_some(session)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        (self.stop)();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Session {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Session {
    fn say(&mut self, line: &impl serde::Serialize) {
        write_message(&mut self.writer, line).expect("the server is there");
    }

    /// Sends a message whose line is padded to `octets` with spaces.
    fn say_padded(&mut self, line: &Value, octets: usize) -> std::io::Result<()> {
        let text = format!("{line:<width$}\n", line = line.to_string(), width = octets - 1);
        self.writer.write_all(text.as_bytes())
    }

    fn hear<T: serde::de::DeserializeOwned>(&mut self) -> T {
        read_message(&mut self.reader, LINE_BYTES_MAX).expect("the server answers")
    }
}

impl Session {
    /// Starts a trial; returns its data connection.
    fn trial(&mut self, server: SocketAddr, work: Work, millis: u32) -> TcpStream {
        let (port, greeting) = self.port(server, work, millis);
        let mut data = call(port, [127, 0, 0, 1]);
        data.write_all(&greeting).expect("it listens");
        data
    }

    /// Requests a trial; returns the data port, and the greeting that the server expects there.
    fn port(&mut self, server: SocketAddr, work: Work, millis: u32) -> (SocketAddr, Vec<u8>) {
        let nonce = nonce();
        self.say(&Request::Trial { nonce, settings: Settings::default(), work, millis });
        let Reply::Ready { streams, .. } = self.hear() else { panic!("it is within all limits") };
        (SocketAddr::new(server.ip(), streams), nonce.greeting())
    }
}

fn nonce() -> Nonce {
    Nonce::random().expect("random bytes")
}

/// Connects from an address of this host.
fn call(to: SocketAddr, from: [u8; 4]) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a file");
    socket.bind(&SocketAddr::new(IpAddr::from(from), 0).into()).expect("loopback");
    socket.connect(&to.into()).expect("it listens");
    socket.into()
}

/// Reads everything until the connection is closed.
fn rest(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(LONG)).expect("a socket");
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it is closed"),
    }
    String::from_utf8_lossy(&said).into_owned()
}

fn octets(hex: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("digits");
    (0..hex.len()).step_by(2).map(pair).collect()
}

#[test]
fn silent_connections_take_no_session_slot_from_one_address_or_many() {
    let server = Running::start(Limits::default());
    let addresses: [fn(usize) -> [u8; 4]; 3] =
        [|_| [127, 0, 0, 1], |_| [127, 0, 0, 2], |number| [127, 0, 1, (number % 20) as u8 + 1]];
    let mut connections = Vec::new();
    for address in addresses {
        connections.extend((0..FLOOD).map(|number| call(server.at, address(number))));
        // All unauthenticated connections stay open while a client presents the token.
        let client = server.client().map(drop);
        assert!(client.is_ok(), "{:?}", client.err());
    }
}

#[test]
fn silent_connections_from_many_networks_displace_no_client() {
    let server = Running::start(Limits::default());
    // A distant client whose token is still on its way.
    let mut slow = call(server.at, [127, 0, 0, 9]);
    let _silent: Vec<_> = (1..=FLOOD).map(|network| call(server.at, [127, network as u8, 0, 1])).collect();
    // The server has seen the flood when it has served this client.
    assert!(server.client().is_ok());
    // If the server has closed the connection, what follows fails.
    let _ = write_message(&mut slow, &Hello { version: VERSION, token: server.token.reveal().to_owned() });
    let mut reader = BufReader::new(slow);
    let heard: Greeting = read_message(&mut reader, LINE_BYTES_MAX).expect("the server answers");
    assert!(matches!(heard, Greeting::Welcome(_)), "{heard:?}");
}

#[test]
fn a_refused_client_receives_the_reason() {
    let server = Running::start(Limits { sessions: 1, ..Limits::default() });
    let _session = server.session();
    // The server accepts a silent connection late, if at all, so each of these begins a line.
    let begun = |_| {
        let mut connection = call(server.at, [127, 0, 0, 3]);
        connection.write_all(b"{").expect("it listens");
        connection
    };
    let mut connections: Vec<_> = (0..9).map(begun).collect();
    let silent = connections.pop().expect("nine");
    let said = rest(connections.remove(0));
    assert!(said.contains("Refused") && said.contains("8 per address, 64 in all"), "{said}");
    let said = rest(silent);
    assert!(said.contains("no token was received within 5 s"), "{said}");
    // A client with the correct token is refused with the reason and the remedy.
    match server.client().err() {
        Some(Failure::Impossible(why)) => {
            assert!(why.contains("the server is full: 1 of 1 sessions are open; try again later"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_of_another_version_receives_both_versions() {
    let server = Running::start(Limits::default());
    for (version, token, expected) in [
        (
            VERSION - 1,
            server.token.reveal(),
            format!("version {} of the protocol, the server version {VERSION}", VERSION - 1),
        ),
        // Without the token, a client learns nothing about the server's version.
        (VERSION - 1, "0123456789abcdef", "wrong token".into()),
    ] {
        let mut connection = call(server.at, [127, 0, 0, 1]);
        write_message(&mut connection, &Hello { version, token: token.to_owned() }).expect("it listens");
        let said = rest(connection);
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn a_flood_of_refusals_gives_few_log_lines() {
    let server = Running::start(Limits::default());
    for number in 0..FLOOD {
        let mut connection = call(server.at, [127, 0, 2, (number % 40) as u8 + 1]);
        // The connection may have been closed before everything was sent.
        let _ = connection.write_all(b"GET / HTTP/1.1\r\n\r\n");
        assert!(rest(connection).contains("does not speak this protocol"));
    }
    let client = server.client().expect("the token is right");
    let is_session = |event: &Event| matches!(event, Event::Began(_));
    let lines = server.told.iter().take_while(|event| !is_session(event)).count();
    drop(client);
    // At most 33 lines are logged per window of ten seconds; on a slow machine the test may take several
    // windows.
    assert!((1..FLOOD).contains(&lines), "{lines}");
}

#[test]
fn payload_of_a_trial_goes_only_to_the_sessions_address() {
    let server = Running::start(Limits::default());
    let mut session = server.session();
    let work = Work::Write { message_bytes: 1000 };
    let (data, greeting) = session.port(server.at, work, 200);
    // A connection from another host is closed without payload, even if it presents the nonce.
    let mut elsewhere = call(data, [127, 0, 0, 2]);
    let _ = elsewhere.write_all(&greeting);
    assert_eq!(rest(elsewhere), "");
    // Connections from the client's address without the nonce delay the right connection at most until their
    // own timeout.
    let _silent: Vec<_> = (0..3).map(|_| call(data, [127, 0, 0, 1])).collect();
    for guess in [nonce().greeting(), vec![0; greeting.len()]] {
        let mut wrong = call(data, [127, 0, 0, 1]);
        wrong.write_all(&guess).expect("it listens");
        assert_eq!(rest(wrong), "");
    }
    let mut right = call(data, [127, 0, 0, 1]);
    right.write_all(&greeting).expect("it listens");
    let payload = rest(right);
    assert!(payload.len() >= 1000 && payload.bytes().all(|octet| octet == 0x5a), "{}", payload.len());
    session.say(&Request::Ended(Vec::new()));
    assert!(matches!(session.hear(), Reply::Outcome(outcome) if outcome.bytes >= 1000));
}

/// Returns a request for a mix with a flow of each kind.
fn mix(nonce: Nonce, kinds: &[&str]) -> Value {
    let flow = |kind: &&str| {
        let mbps = (*kind == "constant").then_some(1.0);
        json!({"kind": kind, "copies": 1, "path": null, "mbps": mbps, "fec": "none", "block_octets": null,
            "stamps": false, "clock_ppm": 0.0, "frame_octets": 1000, "window_kib": 64})
    };
    let flows: Vec<Value> = kinds.iter().map(flow).collect();
    let request = json!({"millis": 5000, "sample_ms": 1000, "flows": flows, "paths": []});
    json!({"Mix": {"nonce": nonce, "request": request}})
}

#[test]
fn a_mix_neither_accepts_from_nor_sends_to_other_addresses() {
    let server = Running::start(Limits::default());
    let mut session = server.session();
    let nonce = nonce();
    session.say(&mix(nonce, &["constant", "bulk"]));
    let ready: Value = session.hear();
    let ready = &ready["Ready"];
    let port = |name: &str| ready[name].as_u64().expect("a port") as u16;
    let greeting = nonce.greeting();
    let (datagrams, streams) = (port("datagrams"), SocketAddr::new(server.at.ip(), port("streams")));
    let spoof = UdpSocket::bind("127.0.0.2:0").expect("loopback");
    spoof.set_nonblocking(true).expect("a socket");
    for length in [24, 100, 1000] {
        let datagram: Vec<u8> =
            greeting[NONCE_AT..][..8].iter().copied().chain((8..length).map(|_| 7)).collect();
        spoof.send_to(&datagram, (server.at.ip(), datagrams)).expect("loopback");
    }
    // The server closes connections from other hosts and connections without the nonce; they do not take the
    // place of the client's connection.
    let hello = [&greeting[..], &[0, 1]].concat();
    let mut elsewhere = call(streams, [127, 0, 0, 2]);
    let _ = elsewhere.write_all(&hello);
    assert_eq!(rest(elsewhere), "");
    let mut wrong = call(streams, [127, 0, 0, 1]);
    wrong.write_all(&vec![0; hello.len()]).expect("it listens");
    assert_eq!(rest(wrong), "");
    // The server returns the cookie over the control connection, which only the genuine client has.
    let own = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    own.set_nonblocking(true).expect("a socket");
    own.send_to(&[&greeting[..], &[9; 16]].concat(), (server.at.ip(), datagrams)).expect("loopback");
    assert_eq!(session.hear::<Value>(), json!({"Heard": "09".repeat(16)}));
    let mut right = call(streams, [127, 0, 0, 1]);
    right.write_all(&hello).expect("it listens");
    right.write_all(&[0x5a; 5000]).expect("it listens");
    drop(right);
    session.say(&json!("Go"));
    session.say(&json!({"Ended": [0, 0]}));
    let total = loop {
        let told: Value = session.hear();
        if told["Total"].is_object() {
            break told["Total"].clone();
        }
    };
    assert_eq!(
        (&total["flows"][0]["datagrams"], &total["flows"][1]["octets"]),
        (&json!(0), &json!(5000)),
        "{total}"
    );
    for socket in [spoof, own] {
        let heard = socket.recv(&mut [0; 2000]).expect_err("nothing is sent over UDP");
        assert_eq!(heard.kind(), ErrorKind::WouldBlock);
    }
}

/// Returns a request for probes and connections of a load from the server.
fn probes(nonce: Nonce, down: u16) -> Value {
    json!({"Probe": {"nonce": nonce, "request": {"millis": 5000, "up": 0, "down": down, "tos": null}}})
}

#[test]
fn probes_and_load_go_only_to_the_session_s_address_and_replies_are_not_longer_than_probes() {
    let server = Running::start(Limits::default());
    let mut session = server.session();
    session.say(&probes(nonce(), 17));
    assert!(
        matches!(session.hear(), Reply::Impossible(why) if why.contains("connections in each direction"))
    );
    let nonce = nonce();
    session.say(&probes(nonce, 1));
    let Reply::Ready { streams, datagrams } = session.hear() else { panic!("it is within all limits") };
    let (streams, datagrams) = (SocketAddr::new(server.at.ip(), streams), (server.at.ip(), datagrams));
    let greeting = nonce.greeting();
    let probe = |prefix: &[u8], number: u8, kind: u8, length: usize| -> Vec<u8> {
        let head = [prefix, &[0, 0, 0, number, kind]].concat();
        head.into_iter().chain(std::iter::repeat(0)).take(length).collect()
    };
    let right = &greeting[NONCE_AT..][..8];
    let sockets = ["127.0.0.2:0", "127.0.0.1:0"].map(|at| UdpSocket::bind(at).expect("loopback"));
    let [spoof, own] = &sockets;
    spoof.send_to(&probe(right, 0, 0, 100), datagrams).expect("loopback");
    // Another nonce, a header that is not whole, and a reply instead of a probe.
    for datagram in [probe(&[7; 8], 1, 0, 100), probe(right, 2, 0, 39), probe(right, 3, 2, 100)] {
        own.send_to(&datagram, datagrams).expect("loopback");
    }
    own.set_read_timeout(Some(LONG)).expect("a socket");
    let mut room = [0; 2000];
    // A reply has the length of its probe, or that of the header if the probe asks for it.
    for (number, kind, length, expected) in [(4, 0, 100, 100), (5, 1, 100, 40)] {
        own.send_to(&probe(right, number, kind, length), datagrams).expect("loopback");
        let heard = own.recv(&mut room).expect("a reply");
        assert_eq!((heard, room[11], room[12]), (expected, number, 2));
    }
    let hello = [&greeting[..], &[0, 0]].concat();
    let mut elsewhere = call(streams, [127, 0, 0, 2]);
    let _ = elsewhere.write_all(&hello);
    assert_eq!(rest(elsewhere), "");
    let mut load = call(streams, [127, 0, 0, 1]);
    load.write_all(&hello).expect("it listens");
    load.set_read_timeout(Some(LONG)).expect("a socket");
    load.read_exact(&mut room).expect("the load");
    assert_eq!(room, [0x5a; 2000]);
    session.say(&Request::Ended(Vec::new()));
    let outcome = session.hear::<Value>()["Probed"].clone();
    assert_eq!((&outcome["distinct"], &outcome["refused"]), (&json!(2), &json!(0)), "{outcome}");
    for socket in &sockets {
        socket.set_nonblocking(true).expect("a socket");
        let heard = socket.recv(&mut room).expect_err("nothing else is sent over UDP");
        assert_eq!(heard.kind(), ErrorKind::WouldBlock);
    }
}

/// A plan with a single flow, which starts at the site `here`.
const PLAN: &str = "seconds = 2\n[[site]]\nname = \"here\"\n[[site]]\nname = \"there\"\n[[pvc]]\nfrom = \"here\"\nto = \"there\"\nmbps = 20\n\
    [[flow]]\nname = \"cbr\"\nkind = \"constant\"\nfrom = \"here\"\nto = \"there\"\nmbps = 10\n";

/// A plan with TCP connections from the site `here`.
const BULK_PLAN: &str = "seconds = 3\n[[site]]\nname = \"here\"\n[[site]]\nname = \"there\"\n\
    [[pvc]]\nfrom = \"here\"\nto = \"there\"\nmbps = 100\n[[pvc]]\nfrom = \"there\"\nto = \"here\"\nmbps = 100\n\
    [[flow]]\nname = \"bulk\"\nkind = \"bulk\"\ncopies = COPIES\nfrom = \"here\"\nto = \"there\"\n";

/// Starts a server that accepts one client and sends `replies` to its first request. Returns its address and
/// its thread, which ends when the client disconnects, and returns the request.
fn hostile_server(replies: Vec<Value>) -> (SocketAddr, JoinHandle<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let at = listener.local_addr().expect("bound");
    let serving = std::thread::spawn(move || {
        let (mut writer, _) = listener.accept().expect("it connects");
        let mut reader = BufReader::new(writer.try_clone().expect("a file"));
        let _: Hello = read_message(&mut reader, LINE_BYTES_MAX).expect("a hello");
        let welcome = Welcome {
            kiban: String::new(),
            kernel: String::new(),
            board: None,
            congestion: Vec::new(),
            trial_seconds_max: 60,
            buffer_bytes_max: 1 << 20,
            message_bytes_max: 1 << 20,
            bytes_per_second_max: 1 << 30,
        };
        write_message(&mut writer, &Greeting::Welcome(welcome)).expect("it listens");
        let request = read_message(&mut reader, LINE_BYTES_MAX).expect("a request");
        for reply in replies {
            write_message(&mut writer, &reply).expect("it listens");
        }
        // Keep the connection open until the client closes it.
        let _ = reader.read_to_end(&mut Vec::new());
        request
    });
    (at, serving)
}

/// Connects to a hostile server.
fn client_of(at: SocketAddr) -> Client {
    let token = Token::random().expect("random bytes");
    Client::connect(&TcpStack::Host, "127.0.0.1", at.port(), &token).expect("the server accepts the client")
}

/// Names ports, and octets that the client should send there; the protocol has no such field.
fn ready(streams: u16, datagrams: u16, octets: &[u8]) -> Value {
    let nonce: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    json!({"Ready": {"streams": streams, "datagrams": datagrams, "nonce": nonce}})
}

/// Sixteen octets that another service at the port would take for a request.
const CHOSEN: &[u8] = b"GET / HTTP/1.0\r\n";

#[test]
fn a_server_does_not_choose_what_a_client_sends_to_a_port() {
    let plan = Plan::read(&BULK_PLAN.replace("COPIES", "1")).expect("a plan");
    let work = Work::Reply { message_bytes: 1, reply_bytes: 1 };
    let trial = |client: &mut Client| drop(client.begin(&Settings::default(), work, Duration::from_secs(1)));
    let mix = |client: &mut Client| drop(run_over(&plan, "here", client, &mut |_| (), &|| true));
    let measurements: [&dyn Fn(&mut Client); 2] = [&trial, &mix];
    for measure in measurements {
        // The server names the TCP port of another service. A mix ends with the reply that it is lost.
        let victim = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = victim.local_addr().expect("bound").port();
        let (at, serving) = hostile_server(vec![ready(port, 0, CHOSEN), json!({"Lost": "ended"})]);
        let mut client = client_of(at);
        measure(&mut client);
        drop(client);
        serving.join().expect("the server thread succeeds");
        let said = rest(victim.accept().expect("the client connects").0);
        assert!(said.starts_with("kiban-lab\0") && !said.contains("GET"), "{said:?}");
    }
}

#[test]
fn a_server_does_not_choose_what_a_client_sends_in_a_datagram() {
    let plan = Plan::read(PLAN).expect("a plan");
    let victim = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    victim.set_read_timeout(Some(LONG)).expect("a socket");
    let port = victim.local_addr().expect("bound").port();
    let (at, serving) = hostile_server(vec![ready(0, port, CHOSEN), json!({"Heard": "00".repeat(16)})]);
    let mut client = client_of(at);
    assert!(run_over(&plan, "here", &mut client, &mut |_| (), &|| true).is_err(), "the cookie is wrong");
    drop(client);
    serving.join().expect("the server thread succeeds");
    let mut room = [0; 2000];
    let length = victim.recv(&mut room).expect("the cookie arrives");
    let said = String::from_utf8_lossy(&room[..length]);
    assert!(said.starts_with("kiban-lab\0") && !said.contains("GET"), "{said:?}");
}

#[test]
fn a_client_sends_no_payload_before_the_port_returned_its_cookie() {
    // This server gives the client the UDP port of another process, in order to direct traffic there.
    let victim = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    victim.set_nonblocking(true).expect("a socket");
    let port = victim.local_addr().expect("bound").port();
    for heard in [None, Some("00".repeat(16))] {
        let heard = heard.map(|heard| json!({"Heard": heard}));
        let (at, serving) = hostile_server([ready(0, port, CHOSEN)].into_iter().chain(heard).collect());
        let mut client = client_of(at);
        let plan = Plan::read(PLAN).expect("a plan");
        let done = run_over(&plan, "here", &mut client, &mut |_| (), &|| false).map(drop);
        drop(client);
        serving.join().expect("the server thread succeeds");
        let mut room = [0; 2000];
        let octets: Vec<usize> = std::iter::from_fn(|| victim.recv(&mut room).ok()).collect();
        assert!(octets.len() <= 25 && octets.iter().all(|octets| *octets <= 45), "{octets:?}");
        match done {
            Err(Failure::Lost(why)) => {
                assert!(
                    why.contains("is there a firewall in between") || why.contains("not its own"),
                    "{why}"
                )
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Reads until `length` has passed or the connection ends; returns the number of octets.
fn read_for(stream: &mut TcpStream, length: Duration) -> usize {
    stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    let clock = Clock::new();
    let (begin, mut octets, mut room) = (clock.now(), 0, vec![0; 1 << 20]);
    while clock.now().since(begin) < length {
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(count) => octets += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    octets
}

#[test]
fn the_rate_limits_replies_and_holds_across_trials_and_sessions() {
    const RATE: u64 = 200_000;
    let reply = Work::Reply { message_bytes: 1, reply_bytes: 1 << 20 };
    let write = Work::Write { message_bytes: 1 << 20 };
    // A session for all trials, or a new session for each of them.
    for (work, trials, reconnects) in [(reply, 2, false), (write, 8, false), (write, 8, true)] {
        let limits = Limits { sessions: 1, bytes_per_second: RATE, ..Limits::default() };
        let server = Running::start(limits);
        let clock = Clock::new();
        let begin = clock.now();
        let mut session = server.session();
        let mut octets = 0;
        for _ in 0..trials {
            let mut data = session.trial(server.at, work, 250);
            if work == reply {
                data.write_all(&[0x5a; 1]).expect("it listens");
            }
            octets += read_for(&mut data, Duration::from_secs(1));
            drop(data);
            session.say(&Request::Ended(Vec::new()));
            let _: Value = session.hear();
            if reconnects {
                drop(session);
                session = server.next_session();
            }
        }
        // A burst of a quarter of a second is permitted once.
        let most = RATE as f64 * (clock.now().since(begin).as_secs_f64() + 0.25);
        assert!(octets > 0 && octets as f64 <= most, "{work:?}: {octets} octets, {most} are permitted");
    }
}

#[test]
fn the_connections_of_a_mix_share_the_rate() {
    const CONNECTIONS: usize = 16;
    const RATE: u64 = 200_000;
    let server = Running::start(Limits { bytes_per_second: RATE, ..Limits::default() });
    let clock = Clock::new();
    let begin = clock.now();
    let plan = BULK_PLAN.replace("COPIES", &CONNECTIONS.to_string());
    let plan = Plan::read(&plan).expect("a plan");
    let mut client = server.client().expect("the token is right");
    let outcome = run_over(&plan, "here", &mut client, &mut |_| (), &|| false).expect("it starts");
    let octets: u64 = outcome.flows.iter().map(|flow| flow.octets).sum();
    // Each connection may be one slice ahead, which is 1/16 s at this rate, because it pays after it reads.
    let seconds = clock.now().since(begin).as_secs_f64() + 0.25 + CONNECTIONS as f64 / 16.0;
    let most = RATE as f64 * seconds;
    assert!(octets > 0 && octets as f64 <= most, "{octets} octets, {most} are permitted");
}

/// A rate at which a long control line takes seconds, octets per second.
const SLOW: u64 = 20_000;

#[test]
fn a_mix_starts_once_and_its_control_lines_leave_no_debt() {
    let server = Running::start(Limits { sessions: 1, bytes_per_second: SLOW, ..Limits::default() });
    let mut session = server.session();
    session.say(&mix(nonce(), &["constant"]));
    assert!(matches!(session.hear(), Reply::Ready { .. }));
    // At this rate, all of these take two minutes. The server closes the connection at the second one.
    let _ = (0..40).try_for_each(|_| session.say_padded(&json!("Go"), 60_000));
    assert_eq!(server.end_of_session(), "unexpected request during a measurement");
    drop(session);
    let mut session = server.next_session();
    session.say(&json!("Go"));
    assert!(matches!(session.hear(), Reply::Impossible(_)));
}

#[test]
fn the_rate_limits_the_control_lines_of_a_mix() {
    let server = Running::start(Limits { bytes_per_second: SLOW, ..Limits::default() });
    let mut session = server.session();
    let clock = Clock::new();
    let begin = clock.now();
    session.say_padded(&mix(nonce(), &["constant"]), SLOW as usize).expect("the server is there");
    assert!(matches!(session.hear(), Reply::Ready { .. }));
    session.say_padded(&json!("Go"), SLOW as usize).expect("the server is there");
    session.say(&json!({"Ended": [0]}));
    while !matches!(session.hear(), Reply::Total(_)) {}
    // Two lines of a second each were read before the end.
    let seconds = clock.now().since(begin).as_secs_f64();
    assert!(seconds >= 2.0 - 0.25, "{seconds} s");
}

#[test]
fn a_session_pays_for_its_last_line_before_its_slot_is_free() {
    let server = Running::start(Limits { sessions: 1, bytes_per_second: SLOW, ..Limits::default() });
    let clock = Clock::new();
    let begin = clock.now();
    let mut session = server.session();
    // The server ends the session when it has read an invalid line.
    session.say_padded(&json!("Nonsense"), 2 * SLOW as usize).expect("the server is there");
    assert_eq!(server.end_of_session(), "the line is not of this protocol");
    // Reconnecting neither refills the slot's bucket nor passes a debt on to the next client.
    drop(server.next_session());
    let seconds = clock.now().since(begin).as_secs_f64();
    assert!(seconds >= 2.0 - 0.25, "{seconds} s");
}

#[test]
fn a_measurement_ends_with_its_session() {
    for is_mix in [true, false] {
        let server = Running::start(Limits { session_seconds: 1, ..Limits::default() });
        let mut session = server.session();
        let _data = if is_mix {
            session.say(&mix(nonce(), &["constant"]));
            assert!(matches!(session.hear(), Reply::Ready { .. }));
            session.say(&json!("Go"));
            None
        } else {
            // By itself, this trial would take longer than the test waits.
            Some(session.trial(server.at, Work::Read, LONG.as_millis() as u32))
        };
        assert_eq!(server.end_of_session(), "the session reached its maximum duration", "mix: {is_mix}");
    }
}

#[test]
fn the_rate_limits_data_that_arrives_while_a_trial_closes() {
    // More than both sockets can buffer.
    const BUFFERED: usize = 400_000;
    let server = Running::start(Limits { bytes_per_second: SLOW, ..Limits::default() });
    let mut session = server.session();
    let mut data = session.trial(server.at, Work::Write { message_bytes: 1000 }, 1);
    socket2::SockRef::from(&data).set_send_buffer_size(10_000).expect("a socket");
    // The server has written everything, and waits for the end of the connection.
    data.set_read_timeout(Some(LONG)).expect("a socket");
    data.read_to_end(&mut Vec::new()).expect("the server closes its side");
    data.set_write_timeout(Some(Duration::from_millis(100))).expect("a socket");
    let clock = Clock::new();
    let (begin, mut octets) = (clock.now(), 0);
    while clock.now().since(begin) < Duration::from_secs(2) {
        octets += data.write(&[0x5a; 10_000]).unwrap_or(0);
    }
    let most = SLOW as f64 * (clock.now().since(begin).as_secs_f64() + 0.25) + BUFFERED as f64;
    assert!(octets as f64 <= most, "{octets} octets, {most} are permitted");
}

/// The number of tokens, of nonces and of cookies that are examined; each has 16 octets.
const COUNT: usize = 500;

/// Returns the nonces and the cookies of clients that run a mix, as the server receives them.
fn nonces_and_cookies() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let plan = Plan::read(PLAN).expect("a plan");
    let mut room = [0; 100];
    (0..COUNT)
        .map(|_| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
            socket.set_read_timeout(Some(LONG)).expect("a socket");
            let port = socket.local_addr().expect("bound").port();
            // The client disconnects when the server returns a wrong cookie.
            let (at, serving) =
                hostile_server(vec![ready(0, port, CHOSEN), json!({"Heard": "00".repeat(16)})]);
            let mut client = client_of(at);
            let done = run_over(&plan, "here", &mut client, &mut |_| (), &|| false);
            assert!(done.is_err(), "the cookie is wrong");
            drop(client);
            let request = serving.join().expect("the server thread succeeds");
            let nonce: Nonce = serde_json::from_value(request["Mix"]["nonce"].clone()).expect("a nonce");
            let greeting = nonce.greeting();
            // The cookie follows the greeting.
            let length = socket.recv(&mut room).expect("the cookie arrives");
            let cookie = room[..length].strip_prefix(&greeting[..]).expect("the greeting is first");
            (greeting[NONCE_AT..].to_vec(), cookie.to_vec())
        })
        .unzip()
}

#[test]
fn tokens_nonces_and_cookies_are_unpredictable() {
    let token = |_| octets(Token::random().expect("random bytes").reveal());
    let (nonces, cookies) = nonces_and_cookies();
    let rows: [(&str, Vec<Vec<u8>>); 3] = [
        ("tokens of servers", (0..COUNT).map(token).collect()),
        ("nonces of clients", nonces),
        ("cookies of clients", cookies),
    ];
    for (name, numbers) in rows {
        let halves: Vec<u64> = numbers
            .iter()
            .flat_map(|octets| octets.chunks_exact(8))
            .map(|half| u64::from_le_bytes(*half.first_chunk().expect("8 octets")))
            .collect();
        assert_eq!(halves.len(), 2 * COUNT, "{name}");
        assert_eq!(predicted(&halves, 64), None, "{name}");
    }
}
