//! Two nodes connected by a line on TCP, with programs, XOT routers and TPKT at their other ends.

use super::{Circuit, LineAddress, LineSettings, Node, NodeEvent, NodeSettings, Origin, SwitchRoute, Target};
use crate::association::{Association, Event as Heard, Listener, Parameters};
use crate::{echo, socket};
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::wire::ber::{Asn1, OctetString};
use kiban_osi::wire::presentation::Pdv;
use kiban_osi::x25::xot::CHANNEL;
use kiban_osi::x25::{AddressBlock, Call, Cause, Config, Indication, Request, Role};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

fn bound() -> (TcpListener, SocketAddr) {
    let listener = socket::listen(([127, 0, 0, 1], 0).into()).expect("a port is free");
    let at = listener.local_addr().expect("it is bound");
    (listener, at)
}

/// Returns an address at which nothing listens. The host is one of this process alone (127.64.0.0/10), so
/// that no connection and no other test takes the port.
fn free() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    ([127, 64 | high & 63, middle, low], NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

fn route(called: &str, from: Option<Origin>, to: Target) -> SwitchRoute {
    SwitchRoute { called: called.parse().expect("a pattern"), from, to, called_as: None }
}

fn line() -> Target {
    Target::Line("line".into())
}

struct Running {
    handle: super::Handle,
    events: mpsc::UnboundedReceiver<NodeEvent>,
    calls: mpsc::Receiver<super::BoxedStream>,
}

impl Running {
    /// Starts a node with one line, and waits for nothing.
    fn start(
        address: LineAddress,
        role: Role,
        routes: Vec<SwitchRoute>,
        xot: Option<TcpListener>,
    ) -> Running {
        let line = LineSettings { packet_bytes: 256, ..LineSettings::new(address, role) };
        let settings = NodeSettings { lines: vec![("line".into(), line)], routes, ..NodeSettings::default() };
        let (tell, events) = mpsc::unbounded_channel();
        let (local, calls) = mpsc::channel(4);
        // The test may have ended.
        let say = move |event| drop(tell.send(event));
        let node = Node::new(settings, Some(local), say).expect("the settings are valid");
        if let Some(listener) = xot {
            node.listen(listener);
        }
        let handle = node.handle();
        tokio::spawn(node.run());
        Running { handle, events, calls }
    }

    async fn event(&mut self) -> NodeEvent {
        self.events.recv().await.expect("the node runs")
    }

    async fn up(&mut self) {
        while !matches!(self.event().await, NodeEvent::Up { .. }) {}
    }
}

/// Returns two nodes with a line between them, which is up.
async fn pair(routes: [Vec<SwitchRoute>; 2], xot: Option<TcpListener>) -> [Running; 2] {
    let at = free();
    let [near, far] = routes;
    let mut far = Running::start(LineAddress::Listen(at), Role::Dce, far, None);
    let mut near = Running::start(LineAddress::Connect(at.ip().to_string(), at.port()), Role::Dte, near, xot);
    near.up().await;
    far.up().await;
    [near, far]
}

fn call(called: &str) -> Call {
    let addresses = AddressBlock { called: called.parse().expect("digits"), ..AddressBlock::default() };
    Call { addresses, ..Call::default() }
}

fn clear() -> Request {
    let cause = Cause { cause: 0, diagnostic: Some(241) };
    Request::Clear { channel: CHANNEL, cause, user_data: Vec::new() }
}

async fn until(circuit: &mut Circuit, wanted: impl Fn(&Indication) -> bool) -> Indication {
    loop {
        let indication = circuit.next().await;
        if wanted(&indication) {
            return indication;
        }
        assert!(!matches!(indication, Indication::Down), "the stream has ended");
    }
}

#[tokio::test]
async fn programs_call_each_other_over_a_line() {
    let near = vec![route("*", Some(Origin::Local), line())];
    let far = vec![route("4567*", Some(Origin::Line("line".into())), Target::Local)];
    let [mut near, mut far] = pair([near, far], None).await;
    let config = Config::new(Role::Dte);
    let mut caller = Circuit::calling(near.handle.open().await.expect("it runs"), config.clone());
    caller.request(Request::Call { channel: CHANNEL, call: call("45678901") }).expect("a call");

    let answers = async {
        let mut called = Circuit::called(far.calls.recv().await.expect("it runs"), config);
        let incoming = until(&mut called, |up| matches!(up, Indication::Incoming { .. })).await;
        called.request(Request::Accept { channel: CHANNEL, call: Call::default() }).expect("a call");
        // Everything received is sent back.
        let mut bytes = 0;
        loop {
            match called.next().await {
                Indication::Data { data, qualifier, .. } => {
                    bytes += data.len();
                    let request = Request::Data { channel: CHANNEL, data, qualifier, delivery: false };
                    called.request(request).expect("there is room");
                }
                Indication::Cleared { cause, .. } => {
                    called.finish().await;
                    return (incoming, bytes, cause);
                }
                _ => {}
            }
        }
    };
    let calls = async {
        until(&mut caller, |up| matches!(up, Indication::Accepted { .. })).await;
        for bytes in [1, 300, 5000] {
            let sent: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            let request = Request::Data {
                channel: CHANNEL,
                data: sent.clone().into(),
                qualifier: bytes == 300,
                delivery: false,
            };
            caller.request(request).expect("there is room");
            let back = until(&mut caller, |up| matches!(up, Indication::Data { .. })).await;
            let Indication::Data { data, qualifier, .. } = back else { unreachable!() };
            assert_eq!((data.to_vec(), qualifier), (sent, bytes == 300));
        }
        caller.request(clear()).expect("the call is open");
        until(&mut caller, |up| matches!(up, Indication::ClearConfirmed { .. })).await;
    };
    let ((incoming, bytes, cause), ()) = tokio::join!(answers, calls);
    let Indication::Incoming { call, .. } = incoming else { unreachable!() };
    assert_eq!((call.addresses.called.to_string().as_str(), bytes), ("45678901", 5301));
    assert_eq!(cause.diagnostic, Some(241));
    let NodeEvent::Open { called, to, .. } = near.event().await else { panic!("no call") };
    assert_eq!((called.as_str(), to.as_str()), ("45678901", "line"));
    let NodeEvent::Closed { bytes_to_called, bytes_to_calling, .. } = near.event().await else {
        panic!("it has not ended")
    };
    assert_eq!((bytes_to_called, bytes_to_calling), (5301, 5301));
}

#[tokio::test]
async fn an_association_crosses_tpkt_a_line_and_xot() {
    let listener =
        Listener::bind(([127, 0, 0, 1], 0).into(), StackConfig::default(), None, Duration::from_secs(60))
            .expect("a port is free");
    let to = listener.address().expect("it is bound").port();
    tokio::spawn(echo::serve(listener, 10, |_| {}));
    // XOT router -> near node -> line -> far node -> TPKT.
    let (xot, xot_at) = bound();
    let near = vec![route("*", Some(Origin::Xot), line())];
    let far = vec![route("4567*", None, Target::Tpkt { host: "127.0.0.1".into(), port: to })];
    let [_near, mut far] = pair([near, far], Some(xot)).await;
    let relay = crate::relay::Relay::new(crate::relay::Settings::default(), |_| {});
    let (tpkt, tpkt_at) = bound();
    tokio::spawn(relay.to_xot(tpkt, "127.0.0.1".into(), xot_at.port(), call("456789")));

    let parameters = Parameters::new(echo::APPLICATION, &[echo::OCTET_STRINGS]);
    let association = Association::connect("127.0.0.1", tpkt_at.port(), parameters).await.expect("granted");
    let context = association.context(echo::OCTET_STRINGS).expect("it is taken");
    for bytes in [0, 1, 5000, 200_000] {
        let octets: Vec<u8> = (0..bytes).map(|at: usize| (at * 7 + at / 251) as u8).collect();
        let values = vec![Pdv::single(context, OctetString::from(octets).to_rope())];
        association.send(values.clone()).await.expect("sent");
        assert_eq!(association.receive().await.expect("it comes back"), Heard::Data(values));
    }
    association.release(Vec::new()).await.expect("granted");
    association.closed().await;
    assert!(matches!(far.event().await, NodeEvent::Open { called, .. } if called == "456789"));
    let NodeEvent::Closed { bytes_to_called, .. } = far.event().await else { panic!("it has not ended") };
    assert!(bytes_to_called > 200_000, "{bytes_to_called}");
}

#[tokio::test]
async fn calls_without_a_route_or_target_are_refused_with_a_reason() {
    let closed = free();
    let near = vec![
        route("1", None, Target::Xot { host: closed.ip().to_string(), port: closed.port() }),
        route("2", None, Target::Line("line".into())),
    ];
    // The far node's route leads back to the line.
    let far = vec![route("2", None, line())];
    let [mut near, mut far] = pair([near, far], None).await;
    for (called, cause, words) in
        [("1", 0x09, "127."), ("2", 0x0d, "line cleared it: cause 0x0d"), ("3", 0x0d, "no route")]
    {
        let stream = near.handle.open().await.expect("it runs");
        let mut caller = Circuit::calling(stream, Config::new(Role::Dte));
        caller.request(Request::Call { channel: CHANNEL, call: call(called) }).expect("a call");
        let cleared = until(&mut caller, |up| matches!(up, Indication::Cleared { .. })).await;
        let Indication::Cleared { cause: got, .. } = cleared else { unreachable!() };
        assert_eq!(got.cause, cause, "{called}");
        let NodeEvent::Refused { why, .. } = near.event().await else { panic!("it was not refused") };
        assert!(why.contains(words), "{called}: {why}");
    }
    let NodeEvent::Refused { why, .. } = far.event().await else { panic!("it was not refused") };
    assert!(why.contains("leads back"), "{why}");
}

#[tokio::test]
async fn a_call_that_comes_back_over_xot_takes_a_quarter_of_the_circuits() {
    let (xot, xot_at) = bound();
    let routes = vec![route("*", None, Target::Xot { host: "127.0.0.1".into(), port: xot_at.port() })];
    let mut node = Running::start(LineAddress::Listen(free()), Role::Dce, routes, Some(xot));
    let mut caller = Circuit::calling(node.handle.open().await.expect("it runs"), Config::new(Role::Dte));
    caller.request(Request::Call { channel: CHANNEL, call: call("1") }).expect("a call");
    let cleared = until(&mut caller, |up| matches!(up, Indication::Cleared { .. })).await;
    let Indication::Cleared { cause, .. } = cleared else { unreachable!() };
    assert_eq!(cause.cause, 0x05);
    let mut refused = 0;
    loop {
        let NodeEvent::Refused { circuit, why, .. } = node.event().await else {
            panic!("it was not refused")
        };
        refused += 1;
        assert_eq!(why.contains("lead to each other"), refused == 1, "{why}");
        if circuit == 1 {
            break;
        }
    }
    assert_eq!(refused, NodeSettings::default().circuits_max / 4 + 1);
}

#[tokio::test]
async fn connections_without_a_call_keep_out_no_program() {
    let (xot, xot_at) = bound();
    let settings = NodeSettings {
        routes: vec![route("*", None, Target::Local)],
        circuits_max: 4,
        ..NodeSettings::default()
    };
    let (local, mut calls) = mpsc::channel(1);
    let node = Node::new(settings, Some(local), |_| {}).expect("the settings are valid");
    node.listen(xot);
    let handle = node.handle();
    tokio::spawn(node.run());
    let mut idle = Vec::new();
    for _ in 0..3 {
        idle.push(TcpStream::connect(xot_at).await.expect("it listens"));
    }
    // The address has its half; the third connection is closed.
    let mut octets = [0; 1];
    let third = idle.pop().expect("three").read(&mut octets).await;
    assert!(matches!(third, Ok(0) | Err(_)), "{third:?}");
    let mut caller = Circuit::calling(handle.open().await.expect("it runs"), Config::new(Role::Dte));
    caller.request(Request::Call { channel: CHANNEL, call: call("1") }).expect("a call");
    tokio::select! {
        stream = calls.recv() => assert!(stream.is_some()),
        indication = caller.next() => panic!("{indication:?}"),
    }
}

#[tokio::test]
async fn garbage_on_a_line_and_on_xot_ends_no_other_call() {
    let (xot, xot_at) = bound();
    let at = free();
    let routes = vec![route("*", None, Target::Local)];
    let mut node = Running::start(LineAddress::Listen(at), Role::Dce, routes, Some(xot));
    let stream = TcpStream::connect(xot_at).await.expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    let mut good = Circuit::calling(Box::new(stream), Config::new(Role::Dte));
    good.request(Request::Call { channel: CHANNEL, call: call("1") }).expect("a call");
    let calls = node.calls.recv();
    let stream = tokio::select! {
        stream = calls => stream.expect("it runs"),
        () = async { loop { good.advance().await; } } => unreachable!(),
    };
    let mut called = Circuit::called(stream, Config::new(Role::Dte));
    tokio::spawn(async move {
        loop {
            match called.next().await {
                Indication::Incoming { .. } => {
                    called
                        .request(Request::Accept { channel: CHANNEL, call: Call::default() })
                        .expect("a call");
                }
                Indication::Data { data, qualifier, .. } => {
                    let request = Request::Data { channel: CHANNEL, data, qualifier, delivery: false };
                    called.request(request).expect("there is room");
                }
                Indication::Down => return,
                _ => {}
            }
        }
    });
    until(&mut good, |up| matches!(up, Indication::Accepted { .. })).await;

    let mut seed = 1u32;
    let mut garbage = vec![0; 100_000];
    for octet in &mut garbage {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *octet = (seed >> 24) as u8;
    }
    for target in [at, xot_at] {
        let mut hostile = TcpStream::connect(target).await.expect("it listens");
        // The node may close the connection before it has taken everything.
        let _ = hostile.write_all(&garbage).await;
    }
    let request =
        Request::Data { channel: CHANNEL, data: vec![7; 100].into(), qualifier: false, delivery: false };
    good.request(request).expect("there is room");
    until(&mut good, |up| matches!(up, Indication::Data { .. })).await;
}

#[tokio::test]
async fn settings_are_checked() {
    let line = LineSettings::new(LineAddress::Connect("127.0.0.1".into(), 1), Role::Dte);
    let twice = NodeSettings {
        lines: vec![("a".into(), line.clone()), ("a".into(), line)],
        ..NodeSettings::default()
    };
    let error = Node::new(twice, None, |_| {}).map(drop).expect_err("two lines have one name");
    assert!(error.contains("two lines"), "{error}");
    for route in [
        route("*", None, Target::Line("b".into())),
        route("*", Some(Origin::Line("b".into())), Target::Local),
    ] {
        let settings = NodeSettings { routes: vec![route], ..NodeSettings::default() };
        let error = Node::new(settings, None, |_| {}).map(drop).expect_err("there is no line");
        assert!(error.contains("'b'"), "{error}");
    }
}
