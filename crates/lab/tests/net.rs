//! A measurement server and its clients on the loopback: admission, limits, results.

use kiban_lab::engine::{Failure, Question, questions};
use kiban_lab::net::admission::{Token, network};
use kiban_lab::net::cause::{Cause, explain};
use kiban_lab::net::evidence::{Evidence, Pattern, sum_mbps};
use kiban_lab::net::protocol::Work;
use kiban_lab::net::setup::Setup;
use kiban_lab::net::{Client, Limits, Network, Server, Session, TcpStack};
use kiban_measure::Settings;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

struct Running {
    at: SocketAddr,
    token: Token,
    stop: Box<dyn Fn()>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(limits: Limits, allowed: &str) -> Running {
        let token = Token::random().expect("a token");
        let allowed = vec![network(allowed).expect("a network")];
        let address = "127.0.0.1:0".parse().expect("an address");
        let server =
            Server::bind(TcpStack::Host, address, token.clone(), allowed, limits, |_| ()).expect("loopback");
        let at = server.address().expect("bound");
        let stop = Box::new(server.stopper());
        let thread = std::thread::spawn(move || server.run().expect("loopback"));
        Running { at, token, stop, thread: Some(thread) }
    }

    fn client(&self) -> Result<Client, Failure> {
        Client::connect(&TcpStack::Host, "127.0.0.1", self.at.port(), &self.token)
    }

    fn session(&self) -> Arc<Session> {
        Arc::new(Session::new(TcpStack::Host, "127.0.0.1", self.at.port(), self.token.clone()))
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

fn setup(pattern: Pattern, message_bytes: u32) -> Setup {
    Setup { buffer_bytes: Some(200_000), no_delay: true, seconds: 0.2, ..Setup::new(pattern, message_bytes) }
}

#[test]
fn a_wrong_token_is_refused_and_the_right_one_is_not() {
    let server = Running::start(Limits::default(), "127.0.0.0/8");
    let other = Token::random().expect("a token");
    match Client::connect(&TcpStack::Host, "127.0.0.1", server.at.port(), &other).err() {
        Some(Failure::Impossible(why)) => {
            assert!(why.contains("token") && !why.contains(other.reveal()), "{why}")
        }
        other => panic!("{other:?}"),
    }
    assert!(server.client().is_ok());
}

#[test]
fn an_address_that_is_not_allowed_gets_no_reply() {
    let server = Running::start(Limits::default(), "192.0.2.0/24");
    assert!(matches!(server.client().err(), Some(Failure::Lost(why)) if why.contains("--allow")));
    let mut stream = TcpStream::connect(server.at).expect("it listens");
    assert!(matches!(stream.read(&mut [0; 10]), Ok(0) | Err(_)));
}

#[test]
fn silent_or_invalid_connections_do_not_keep_clients_out() {
    let server = Running::start(Limits::default(), "127.0.0.0/8");
    let _silent: Vec<_> = (0..10).map(|_| TcpStream::connect(server.at).expect("it listens")).collect();
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 5000], b"{\"version\":1}\n", b"\n"] {
        let mut stream = TcpStream::connect(server.at).expect("it listens");
        // The connection may have been closed before everything was sent.
        let _ = stream.write_all(nonsense);
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said);
        assert!(said.is_empty() || said.contains("does not speak this protocol"), "{said}");
    }
    assert!(server.client().is_ok());
}

#[test]
fn the_number_of_sessions_is_limited() {
    let server = Running::start(Limits { sessions: 1, ..Limits::default() }, "127.0.0.0/8");
    let first = server.client().expect("the first");
    assert!(matches!(server.client().err(), Some(Failure::Impossible(why)) if why.contains("sessions")));
    drop(first);
    // The slot becomes free when the server notices that the client has closed the connection.
    let mut calls = 0;
    while server.client().is_err() {
        calls += 1;
        assert!(calls < 10_000, "a session that ended gives its place back");
    }
}

#[test]
fn a_trial_beyond_a_limit_is_refused_and_the_session_continues() {
    let limits = Limits { trial_seconds: 2, buffer_bytes: 10_000, message_bytes: 5_000, ..Limits::default() };
    let server = Running::start(limits, "127.0.0.0/8");
    let mut client = server.client().expect("allowed");
    let reply = |message_bytes| Work::Reply { message_bytes, reply_bytes: 1 };
    let buffer = |bytes| Settings { receive_bytes: Some(bytes), ..Settings::default() };
    let second = Duration::from_secs(1);
    for (settings, work, length, words) in [
        (
            buffer(10_001),
            reply(1),
            second,
            "too many bytes in a socket buffer: 10001, the server allows 10000",
        ),
        (buffer(10_000), reply(5_001), second, "too many bytes in a message: 5001, the server allows 5000"),
        (buffer(10_000), reply(1), 3 * second, "too many milliseconds in a trial"),
        (buffer(10_000), reply(0), second, "at least 1 byte"),
        (Settings { congestion: Some("tahiti".into()), ..buffer(1000) }, reply(1), second, "'tahiti'"),
    ] {
        match client.begin(&settings, work, length).err() {
            Some(Failure::Impossible(why)) => assert!(why.contains(words), "{why}"),
            other => panic!("{words}: {other:?}"),
        }
    }
    let data = client.begin(&buffer(10_000), reply(1), second).expect("within all limits");
    drop(data);
    assert_eq!(client.end().expect("an outcome").bytes, 0);
}

#[test]
fn data_connections_use_the_port_range_and_wait_for_a_free_port() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("loopback").port();
    let server = Running::start(Limits { data_ports: port..=port, ..Limits::default() }, "127.0.0.0/8");
    let (mut one, mut other) = (server.client().expect("allowed"), server.client().expect("allowed"));
    let begin = |client: &mut Client| {
        let work = Work::Reply { message_bytes: 1, reply_bytes: 1 };
        client.begin(&Settings::default(), work, Duration::from_secs(1))
    };
    // Several sessions can use the only data port, one after another.
    for _ in 0..3 {
        let data = begin(&mut one).expect("the port is free");
        assert_eq!(data.stream.peer_addr().expect("connected").port(), port);
        match begin(&mut other).err() {
            Some(Failure::Lost(why)) => assert!(why.contains("--data-ports"), "{why}"),
            other => panic!("{other:?}"),
        }
        drop(data);
        assert_eq!(one.end().expect("an outcome").bytes, 0);
        drop(begin(&mut other).expect("the port is free again"));
        assert_eq!(other.end().expect("an outcome").bytes, 0);
    }
}

#[test]
fn a_session_sends_no_more_than_the_rate() {
    let limits = Limits { bytes_per_second: 1_000_000, ..Limits::default() };
    let server = Running::start(limits, "127.0.0.0/8");
    let setup = Setup { seconds: 1.0, ..setup(Pattern::Stream, 10_000) };
    let metrics = Network::with(server.session()).trial(&setup.point("127.0.0.1"), 0).expect("measured");
    let evidence: Evidence = serde_json::from_value(metrics.evidence).expect("evidence");
    assert!(evidence.receiver.rate_limited);
    // The limit is 8 Mbit/s, plus a burst of a quarter of a second and one read.
    assert!(evidence.mbps() < 14.0, "{}", evidence.mbps());
    assert_eq!(explain(&evidence, 0.0).cause, Cause::ServerLimit);
}

#[test]
fn trials_return_results_and_evidence_of_both_ends() {
    let server = Running::start(Limits::default(), "127.0.0.0/8");
    let network = Network::with(server.session());
    let metrics =
        network.trial(&setup(Pattern::WriteWriteRead, 1000).point("127.0.0.1"), 0).expect("measured");
    let evidence: Evidence = serde_json::from_value(metrics.evidence).expect("evidence");
    let seen = evidence.exchanges.as_ref().expect("exchanges");
    assert_eq!(evidence.receiver.bytes, (seen.count + seen.warm_up) * 1000);
    assert!(metrics.figures["transactions_per_second"] > 10.0, "{:?}", metrics.figures);
    assert_eq!((evidence.given.send_bytes, evidence.receiver.given.receive_bytes), (400_000, 400_000));
    assert!(evidence.info.snd_mss > 500 && evidence.path.round_trip_us > 0.0);

    let metrics = network.trial(&setup(Pattern::Stream, 50_000).point("127.0.0.1"), 0).expect("measured");
    let evidence: Evidence = serde_json::from_value(metrics.evidence).expect("evidence");
    assert!(
        evidence.receiver.bytes > 100_000 && evidence.receiver.bytes.is_multiple_of(50_000),
        "{evidence:?}"
    );
    assert!(metrics.figures["mbps"] > 1.0);

    let names: Vec<_> = network.parameters().iter().map(|parameter| parameter.name).collect();
    let point = setup(Pattern::Stream, 1).point("h");
    assert!(point.0.keys().all(|name| names.contains(&name.as_str())) && names.len() == point.0.len());
    // The registry contains the question without a session, so it can be described, but not run.
    let described = questions::find("network").expect("it is in the registry");
    assert_eq!(described.metrics(), network.metrics());
    assert_eq!(described.validate(&point), Ok(()));
    let refused = described.trial(&point, 1).expect_err("there is no session");
    assert!(refused.to_string().contains("kiban lab sweep HOST"), "{refused}");
}

#[test]
fn several_connections_run_at_once_in_both_directions() {
    let server = Running::start(Limits { sessions: 5, ..Limits::default() }, "127.0.0.0/8");
    let network = Network::with(server.session());
    for pattern in [Pattern::Stream, Pattern::StreamBack, Pattern::WriteReadBack] {
        let together = Setup { connections: 3, opposite: 2, ..setup(pattern, 10_000) };
        let metrics = network.trial(&together.point("127.0.0.1"), 0).expect("measured");
        let evidence: Evidence = serde_json::from_value(metrics.evidence.clone()).expect("evidence");
        let beside = evidence.beside.as_ref().expect("four others");
        assert_eq!((beside.same.len(), beside.opposite.len(), evidence.connections()), (2, 2, 5));
        let all = evidence.same();
        assert!(
            all.iter().chain(&beside.opposite).all(|one| one.bytes > 0.0 && one.seconds > 0.0),
            "{all:?}"
        );
        let longest = all.iter().map(|one| one.seconds).fold(0.0, f64::max);
        let sum = all.iter().map(|one| one.bytes).sum::<f64>() * 8e-6 / longest;
        let figure = |name: &str| metrics.figures.get(name).copied();
        assert!((figure("mbps").expect("a rate") - sum).abs() < 1e-6 * sum);
        assert!(figure("slowest_mbps").is_some_and(|mbps| mbps > 0.0 && mbps < 0.34 * sum));
        assert_eq!(figure("opposite_mbps"), Some(sum_mbps(&beside.opposite)));
        let exchanges = figure("transactions_per_second");
        assert_eq!(exchanges.is_some(), !pattern.is_stream());
        assert!(exchanges.is_none_or(|rate| (rate * 0.08 - sum).abs() < 1e-6 * sum), "{exchanges:?}");
    }
    // Points with fewer connections follow, and a point with too many says how to have more.
    let alone = network.trial(&setup(Pattern::Stream, 10_000).point("127.0.0.1"), 0).expect("measured");
    assert!(!alone.figures.contains_key("slowest_mbps") && !alone.figures.contains_key("opposite_mbps"));
    let too_many = Setup { connections: 6, ..setup(Pattern::Stream, 10_000) };
    match network.trial(&too_many.point("127.0.0.1"), 0) {
        Err(Failure::Impossible(why)) => assert!(why.contains("--sessions"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reverse_stream_returns_the_evidence_of_its_sender() {
    let server = Running::start(Limits::default(), "127.0.0.0/8");
    let back = setup(Pattern::StreamBack, 50_000);
    let metrics = Network::with(server.session()).trial(&back.point("127.0.0.1"), 0).expect("measured");
    let evidence: Evidence = serde_json::from_value(metrics.evidence).expect("evidence");
    assert!(
        evidence.receiver.bytes > 100_000 && evidence.receiver.bytes.is_multiple_of(50_000),
        "{evidence:?}"
    );
    assert!(metrics.figures["mbps"] > 1.0 && metrics.figures["sent_again"] >= 0.0);
    // The server is the sender: it has sent as many segments as the data needs, and the client has sent none
    // with data.
    let most = u64::from(evidence.info.snd_mss).max(1) * 64;
    assert!(evidence.segments() >= Some(evidence.receiver.bytes / most), "{evidence:?}");
    assert!(evidence.receiver.info.data_segs_out <= Some(1), "the greeting alone: {evidence:?}");
    assert!((0.15..5.0).contains(&evidence.seconds), "{}", evidence.seconds);
    // The server's rate limit also applies in this direction.
    let limits = Limits { bytes_per_second: 1_000_000, ..Limits::default() };
    let server = Running::start(limits, "127.0.0.0/8");
    let back = Setup { seconds: 1.0, message_bytes: 10_000, ..back };
    let metrics = Network::with(server.session()).trial(&back.point("127.0.0.1"), 0).expect("measured");
    let evidence: Evidence = serde_json::from_value(metrics.evidence).expect("evidence");
    assert!(evidence.mbps() < 14.0, "{}", evidence.mbps());
    assert_eq!(explain(&evidence, 0.0).cause, Cause::ServerLimit);
}

#[test]
fn exchanges_that_the_server_starts_are_timed_there_and_stall_as_well() {
    let server = Running::start(Limits::default(), "127.0.0.0/8");
    let network = Network::with(server.session());
    let measured = |setup: &Setup| -> Evidence {
        let metrics = network.trial(&setup.point("127.0.0.1"), 0).expect("measured");
        serde_json::from_value(metrics.evidence).expect("evidence")
    };
    // The segment size on the loopback is 32 KiB or more, so Nagle's algorithm holds the body back.
    let slow = Setup { no_delay: false, buffer_bytes: None, ..setup(Pattern::WriteWriteReadBack, 1000) };
    let evidence = measured(&slow);
    let seen = evidence.exchanges.clone().expect("exchanges");
    assert_eq!(evidence.receiver.bytes, (seen.count + seen.warm_up) * 1000);
    assert!(seen.stalled_part > 0.5, "{seen:?}");
    let explanation = explain(&evidence, 0.0);
    assert_eq!(explanation.cause, Cause::NagleDelayedAck, "{explanation:?}");
    for fast in
        [Setup { no_delay: true, ..slow.clone() }, Setup { pattern: Pattern::WriteReadBack, ..slow.clone() }]
    {
        let seen = measured(&fast).exchanges.expect("exchanges");
        // On a busy machine, a few exchanges wait longer for a processor than others for a delayed ACK.
        assert!(seen.p50_us < 20_000.0 && seen.stalls < seen.count / 10, "{fast:?}: {seen:?}");
    }
    // The server's limits apply to what it sends.
    let limits = Limits { message_bytes: 5_000, ..Limits::default() };
    let server = Running::start(limits, "127.0.0.0/8");
    let mut client = server.client().expect("allowed");
    let ask = |first_bytes, rest_bytes| Work::Ask { first_bytes, rest_bytes, reply_bytes: 1, needed_us: 100 };
    for (work, words) in
        [(ask(40, 4_961), "too many bytes in a message: 5001"), (ask(0, 40), "at least 1 byte")]
    {
        match client.begin(&Settings::default(), work, Duration::from_secs(1)).err() {
            Some(Failure::Impossible(why)) => assert!(why.contains(words), "{why}"),
            other => panic!("{words}: {other:?}"),
        }
    }
}

#[test]
fn a_stopped_server_counts_as_lost_and_the_client_reconnects() {
    let server = Running::start(Limits::default(), "127.0.0.0/8");
    let session = server.session();
    assert!(session.path().is_ok());
    let (at, token) = (server.at, server.token.clone());
    drop(server);
    let question = Network::with(Arc::clone(&session));
    let point = setup(Pattern::WriteRead, 100).point("127.0.0.1");
    // The first attempt uses the broken connection, the second tries to connect to the closed port.
    for _ in 0..2 {
        assert!(matches!(question.trial(&point, 0), Err(Failure::Lost(_))));
    }
    let server = Server::bind(TcpStack::Host, at, token, Vec::new(), Limits::default(), |_| ())
        .expect("the port is free");
    let stop = server.stopper();
    let thread = std::thread::spawn(move || server.run());
    assert!(question.trial(&point, 0).is_ok());
    stop();
    thread.join().expect("it ends").expect("loopback");
}
