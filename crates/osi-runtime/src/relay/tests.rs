//! Tests with two relays, back to back, that carry an association, and with misbehaving peers on either side.

use super::event::{CircuitEvent, Event};
use super::listener::Relay;
use super::route::{Called, Route, Via};
use super::settings::Settings;
use crate::association::{Association, Event as Heard, Listener, Parameters};
use crate::{echo, socket};
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::wire::ber::{Asn1, OctetString};
use kiban_osi::wire::presentation::Pdv;
use kiban_osi::x25::{AddressBlock, Call, Modulo};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Returns a relay that sends its events to a channel.
fn relay(settings: Settings) -> (Arc<Relay>, mpsc::UnboundedReceiver<Event>) {
    let (tell, told) = mpsc::unbounded_channel();
    let tell = Mutex::new(tell);
    let say =
        move |said: CircuitEvent| drop(tell.lock().expect("no holder of the lock panics").send(said.event));
    (Relay::new(settings, say), told)
}

fn bound() -> (TcpListener, u16) {
    let listener = socket::listen(([127, 0, 0, 1], 0).into()).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    (listener, port)
}

fn route(called: &str, port: u16) -> Route {
    Route { called: called.parse().expect("a pattern"), via: Via::Tpkt, host: "127.0.0.1".into(), port }
}

fn call(called: &str) -> Call {
    let addresses = AddressBlock { called: called.parse().expect("digits"), ..AddressBlock::default() };
    Call { addresses, ..Call::default() }
}

fn echo() -> u16 {
    let address = ([127, 0, 0, 1], 0).into();
    let listener = Listener::bind(address, StackConfig::default(), None, Duration::from_secs(10));
    let listener = listener.expect("a port is free");
    let port = listener.address().expect("it is bound").port();
    tokio::spawn(echo::serve(listener, 10, |_| {}));
    port
}

/// Starts two relays, which lead from TPKT over X.25 back to TPKT. Returns the port to connect to, and the
/// events from both relays.
fn back_to_back(settings: Settings, to: u16) -> (u16, [mpsc::UnboundedReceiver<Event>; 2]) {
    let ((first, told_first), (second, told_second)) = (relay(settings.clone()), relay(settings));
    let ((xot, xot_port), (tpkt, port)) = (bound(), bound());
    tokio::spawn(second.from_xot(xot, vec![route("9*", 1), route("4567*", to)]));
    tokio::spawn(first.to_xot(tpkt, "127.0.0.1".into(), xot_port, call("456789")));
    (port, [told_first, told_second])
}

#[tokio::test]
async fn an_association_crosses_two_relays_byte_for_byte() {
    for (packet_bytes, window, modulo) in
        [(1024, 7, Modulo::Eight), (128, 2, Modulo::Eight), (4096, 127, Modulo::OneTwentyEight)]
    {
        let settings = Settings { packet_bytes, window, modulo, ..Settings::default() };
        let (port, [mut first, mut second]) = back_to_back(settings, echo());
        let parameters = Parameters::new(echo::APPLICATION, &[echo::OCTET_STRINGS]);
        let association = Association::connect("127.0.0.1", port, parameters).await.expect("granted");
        let context = association.context(echo::OCTET_STRINGS).expect("it is taken");
        for bytes in [0, 1, 5000, 1 << 20] {
            let octets: Vec<u8> = (0..bytes).map(|at: usize| (at * 7 + at / 251) as u8).collect();
            let values = vec![Pdv::single(context, OctetString::from(octets).to_rope())];
            association.send(values.clone()).await.expect("sent");
            assert_eq!(association.receive().await.expect("it comes back"), Heard::Data(values));
        }
        association.release(Vec::new()).await.expect("granted");
        association.closed().await;
        for told in [&mut first, &mut second] {
            assert!(matches!(told.recv().await, Some(Event::Open { called, .. }) if called == "456789"));
            let Some(Event::Closed { bytes_to_tcp, bytes_to_x25, why }) = told.recv().await else {
                panic!("it has not ended")
            };
            assert!(bytes_to_tcp > 1 << 20 && bytes_to_x25 > 1 << 20, "{bytes_to_tcp} {bytes_to_x25}");
            assert!(why.contains("closed") || why.contains("diagnostic 241"), "{why}");
        }
    }
}

#[tokio::test]
async fn a_slow_receiver_stops_the_sender() {
    let (sink, to) = bound();
    let (port, _told) = back_to_back(Settings::default(), to);
    let mut here = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    let (mut there, _) = sink.accept().await.expect("it comes");
    let unit: Vec<u8> = [&[3, 0, 0xff, 0xff][..], &[0xf0; 65531]].concat();
    let count = 400;
    let sends = async {
        for _ in 0..count {
            here.write_all(&unit).await.expect("sent");
        }
        here.shutdown().await.expect("closed");
    };
    let mut sends = std::pin::pin!(sends);
    // 26 MB is more than all buffers on the path can hold.
    assert!(timeout(&mut sends).await, "data was accepted without a reader");
    let takes = async {
        let mut got = vec![0; unit.len()];
        for _ in 0..count {
            there.read_exact(&mut got).await.expect("it comes");
            assert!(got == unit);
        }
        assert_eq!(there.read(&mut got).await.expect("the end"), 0);
    };
    tokio::join!(sends, takes);
}

/// Returns whether the future is still pending after a while.
async fn timeout(what: impl Future<Output = ()>) -> bool {
    tokio::time::timeout(Duration::from_millis(300), what).await.is_err()
}

/// Returns a packet with its XOT header.
fn packet(bytes: &[u8]) -> Vec<u8> {
    [&[0, 0, 0, bytes.len() as u8], bytes].concat()
}

/// Returns a call to address 45 with packets of 128 octets, windows of 2, and the given user data.
fn call_packet(user_data: &[u8]) -> Vec<u8> {
    let facilities = [6, 0x42, 7, 7, 0x43, 2, 2];
    packet(&[&[0x10, 1, 0x0b, 0x02, 0x45], &facilities[..], user_data].concat())
}

const FOR_TRANSPORT: [u8; 4] = [3, 1, 1, 0];

#[tokio::test]
async fn hostile_callers_are_refused_and_the_next_is_served() {
    let (sink, to) = bound();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((socket, _)) = sink.accept().await {
            kept.push(socket);
        }
    });
    let settings = Settings { state_timeout: Duration::from_millis(300), ..Settings::default() };
    let (relay, mut told) = relay(settings);
    let (listener, port) = bound();
    tokio::spawn(relay.from_xot(listener, vec![route("45", to)]));
    let good = call_packet(&FOR_TRANSPORT);
    let early = [&good[..], &packet(&[0x10, 1, 0x13, 0, 241])].concat();
    for (says, words) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "does not speak XOT"),
        (Vec::new(), "timed out"),
        (packet(&[0x10, 1, 0x01]), "timed out"),
        (call_packet(b"\x01\0\0\0"), "no route"),
        (packet(&[0x10, 1, 0x0b, 0x02, 0x46, 0, 3, 1, 1, 0]), "no route"),
        (early, "before it was accepted"),
    ] {
        let socket = says_to(port, &says).await;
        let Some(Event::Refused { why, .. }) = told.recv().await else { panic!("{words}: it was taken") };
        assert!(why.contains(words), "{words}: {why}");
        ends(socket).await;
    }
    for (says, words) in [
        (packet(&[0x10, 1, 0x13, 0, 241]), "cause 0x00, diagnostic 241"),
        (packet(&[0x10, 1, 0x1b, 0, 0]), "reset"),
        (packet(&[0x10, 1, 0x00, 1]), "too short"),
        // A packet is out of sequence, so this end resets the circuit.
        (packet(&[0x10, 1, 0x0e, 1, 2, 3]), "reset"),
        (b"\x01\x01\x01\x01".to_vec(), "not XOT"),
        (Vec::new(), "XOT connection was closed"),
    ] {
        let mut socket = says_to(port, &good).await;
        assert!(matches!(told.recv().await, Some(Event::Open { .. })));
        let mut accepted = [0; 7];
        socket.read_exact(&mut accepted).await.expect("an answer");
        assert_eq!(accepted[6], 0x0f, "accepted");
        socket.write_all(&says).await.expect("said");
        if says.is_empty() {
            socket.shutdown().await.expect("closed");
        }
        let Some(Event::Closed { why, .. }) = told.recv().await else { panic!("{words}: it has not ended") };
        assert!(why.contains(words), "{words}: {why}");
        ends(socket).await;
    }
}

async fn says_to(port: u16, says: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    socket.write_all(says).await.expect("said");
    socket
}

/// Waits until a connection is closed or fails.
async fn ends(mut socket: TcpStream) {
    let _ = socket.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn hostile_tcp_peers_are_disconnected_and_a_non_xot_router_is_reported() {
    let settings = Settings { state_timeout: Duration::from_millis(300), ..Settings::default() };
    let (sink, to) = bound();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((socket, _)) = sink.accept().await {
            kept.push(socket);
        }
    });
    let (port, [mut told, _second]) = back_to_back(settings.clone(), to);
    for (says, words) in [
        (&b"SSH-2.0-nonsense\r\n"[..], "not a TPKT"),
        (b"", "TCP was closed"),
        (b"\x03\0\0\x09\x01\x02", "TCP was closed"),
    ] {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
        socket.write_all(says).await.expect("said");
        if words == "TCP was closed" {
            socket.shutdown().await.expect("closed");
        }
        assert!(matches!(told.recv().await, Some(Event::Open { .. })));
        let Some(Event::Closed { why, .. }) = told.recv().await else { panic!("it has not ended") };
        assert!(why.contains(words), "{words}: {why}");
    }

    // These peers play the role of the router: first a closed port, then routers that clear the call, close
    // the connection, send nonsense, or stay silent.
    let (router, router_port) = bound();
    let (relay, mut told) = relay(settings);
    let ((one, dead), (two, alive)) = (bound(), bound());
    tokio::spawn(relay.clone().to_xot(one, "127.0.0.1".into(), 1, call("45")));
    tokio::spawn(relay.to_xot(two, "127.0.0.1".into(), router_port, call("45")));
    let _socket = TcpStream::connect(("127.0.0.1", dead)).await.expect("it listens");
    let Some(Event::Refused { why, .. }) = told.recv().await else { panic!("it was taken") };
    assert!(why.contains("refused"), "{why}");
    for (says, words) in [
        (packet(&[0x10, 1, 0x13, 0x0d, 67]), "cause 0x0d, diagnostic 67"),
        (b"nonsense".to_vec(), "does not speak XOT"),
        (Vec::new(), "timed out"),
    ] {
        let mut socket = TcpStream::connect(("127.0.0.1", alive)).await.expect("it listens");
        let (mut answers, _) = router.accept().await.expect("it comes");
        answers.write_all(&says).await.expect("said");
        let Some(Event::Refused { why, .. }) = told.recv().await else { panic!("it was taken") };
        assert!(why.contains(words), "{words}: {why}");
        assert_eq!(socket.read(&mut [0; 8]).await.unwrap_or(0), 0, "closed");
    }
}

#[tokio::test]
async fn a_call_without_sizes_has_the_defaults_of_x25() {
    let (sink, to) = bound();
    let (relay, mut told) = relay(Settings::default());
    let (listener, port) = bound();
    tokio::spawn(relay.from_xot(listener, vec![route("45", to)]));
    let call = [&[0x10, 1, 0x0b, 0x02, 0x45, 0][..], &FOR_TRANSPORT].concat();
    let mut socket = says_to(port, &packet(&call)).await;
    let (_target, _) = sink.accept().await.expect("it comes");
    assert!(matches!(told.recv().await, Some(Event::Open { .. })));
    let mut accepted = [0; 4 + 5 + 6];
    socket.read_exact(&mut accepted).await.expect("an answer");
    assert_eq!((accepted[6], &accepted[9..]), (0x0f, &[0x42, 7, 7, 0x43, 2, 2][..]));
}

#[tokio::test]
async fn a_set_up_of_a_permanent_circuit_is_refused() {
    let (relay, mut told) = relay(Settings::default());
    let (listener, port) = bound();
    tokio::spawn(relay.from_xot(listener, vec![route("*", 1)]));
    let fixed = [0x10, 1, 0xf5, 0x81, 0, 7, 0, 1, 7, 0, 1, 2, 2, 7, 7];
    let asks = packet(&[&fixed[..], b"Serial1Serial0"].concat());
    let mut socket = says_to(port, &asks).await;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.expect("an answer, and the end");
    let mut refuses = asks.clone();
    refuses[8] = 0x13;
    assert_eq!(answer, refuses);
    let Some(Event::Refused { why, .. }) = told.recv().await else { panic!("it was taken") };
    assert!(why.contains("permanent circuit"), "{why}");
}

/// A PAD's call (X.29), and its data with the Q bit and of one octet.
#[tokio::test]
async fn a_route_to_xot_passes_on_packets_of_any_protocol() {
    let (router, to) = bound();
    let (relay, mut told) = relay(Settings::default());
    let (listener, port) = bound();
    tokio::spawn(relay.from_xot(listener, vec![Route { via: Via::Xot, ..route("45", to) }]));
    let says = [call_packet(&[1, 0, 0, 0]), packet(&[0x90, 1, 0, 2]), packet(&[0x10, 1, 2, b'x'])].concat();
    let mut socket = says_to(port, &says).await;
    let (mut target, _) = router.accept().await.expect("it comes");
    let mut heard = vec![0; says.len()];
    target.read_exact(&mut heard).await.expect("the packets");
    assert_eq!(heard, says);
    let answer = packet(&[0x10, 1, 0x0f]);
    target.write_all(&answer).await.expect("sent");
    let mut heard = vec![0; answer.len()];
    socket.read_exact(&mut heard).await.expect("the answer");
    assert_eq!(heard, answer);
    drop((socket, target));
    assert!(matches!(told.recv().await, Some(Event::Open { .. })));
    assert!(matches!(told.recv().await, Some(Event::Closed { .. })));
}

#[tokio::test]
async fn circuits_beyond_the_limit_are_closed_at_once() {
    let (relay, mut told) = relay(Settings { circuits_max: 1, ..Settings::default() });
    let (listener, port) = bound();
    tokio::spawn(relay.from_xot(listener, Vec::new()));
    let first = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    let mut second = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    assert_eq!(second.read(&mut [0; 8]).await.unwrap_or(0), 0);
    drop(first);
    assert!(matches!(told.recv().await, Some(Event::Refused { .. })));
}

#[test]
fn routes_match_their_patterns() {
    let mut nsap = call("");
    nsap.facilities.called_extension = Some(vec![0x47, 0, 5]);
    let pad = Call { user_data: vec![1, 0, 0, 0], ..call("4567") };
    for (pattern, call, fits) in [
        ("*", &call("4567"), true),
        ("*", &pad, false),
        ("user-data:01", &pad, true),
        ("4567", &call("4567"), true),
        ("4567", &call("45678"), false),
        ("45*", &call("45678"), true),
        ("nsap:470005", &nsap, true),
        ("nsap:47*", &nsap, true),
        ("nsap:4800*", &nsap, false),
    ] {
        assert_eq!(pattern.parse::<Called>().expect("a pattern").has(call, Via::Tpkt), fits, "{pattern}");
    }
    for pattern in ["*", "4567", "user-data:01"] {
        assert!(pattern.parse::<Called>().expect("a pattern").has(&pad, Via::Xot), "{pattern}");
    }
    for pattern in ["", "45x", "nsap:4", "user-data:", "1234567890123456"] {
        assert!(pattern.parse::<Called>().is_err(), "{pattern}");
    }
}
