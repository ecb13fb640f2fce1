//! Interception between two stacks.

use crate::{address, bytes, config, pair, within};
use kiban_base::Sum;
use kiban_stack::{Flow, Interceptor, PacketDevice, Pipe, Stack, TcpRequest, UdpFlow, pipe};
use std::future::poll_fn;
use std::io::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn request(interceptor: &Interceptor) -> TcpRequest {
    match within(interceptor.accept()).await.expect("the device works") {
        Flow::Tcp(request) => request,
        other => panic!("{other:?}"),
    }
}

async fn flow(interceptor: &Interceptor) -> UdpFlow {
    match within(interceptor.accept()).await.expect("the device works") {
        Flow::Udp(flow) => flow,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_connection_to_any_address_waits_for_the_decision() {
    let (one, other) = pair();
    let interceptor = other.intercept().expect("the only one");
    assert_eq!(other.intercept().map(drop).expect_err("there is one").kind(), ErrorKind::AddrInUse);
    for target in ["203.0.113.7:443", "[2001:db8::7]:443", "10.0.0.2:443"].map(address) {
        let accept = async {
            let request = request(&interceptor).await;
            assert_eq!(request.local_addr(), target);
            request.accept().await
        };
        let (client, server) = within(async { tokio::join!(one.connect(target), accept) }).await;
        let (mut client, mut server) = (client.expect("a connection"), server.expect("a connection"));
        assert_eq!((server.local_addr(), server.peer_addr()), (target, client.local_addr()));
        client.write_all(b"hello").await.expect("written");
        server.read_exact(&mut [0; 5]).await.expect("read");
        let refuse = async { request(&interceptor).await.refuse() };
        let (client, ()) = within(async { tokio::join!(one.connect(target), refuse) }).await;
        assert_eq!(client.map(drop).expect_err("refused").kind(), ErrorKind::ConnectionRefused);
        let drop_it = async { drop(request(&interceptor).await) };
        let (client, ()) = within(async { tokio::join!(one.connect(target), drop_it) }).await;
        assert_eq!(client.map(drop).expect_err("refused").kind(), ErrorKind::ConnectionRefused);
    }
    // Listeners of the stack come first.
    let listener = other.listen(address("10.0.0.2:80")).expect("the port is free");
    let (client, server) = tokio::join!(one.connect(listener.local_addr()), listener.accept());
    client.expect("a connection");
    server.expect("a connection");
}

#[tokio::test]
async fn an_ignored_connection_times_out_at_the_peer() {
    let (one, other) = pipe(1500);
    let mut hasty = config(1);
    hasty.tcp.rto_initial = std::time::Duration::from_millis(10);
    hasty.tcp.rto_min = std::time::Duration::from_millis(10);
    hasty.tcp.syn_retries = 2;
    let one = Stack::with(one, hasty).expect("a stack");
    let other = Stack::with(other, config(2)).expect("a stack");
    let interceptor = other.intercept().expect("the only one");
    let target = address("203.0.113.7:443");
    let ignore = async {
        loop {
            request(&interceptor).await.ignore();
        }
    };
    let error = within(async {
        tokio::select! {
            connected = one.connect(target) => connected.map(drop).expect_err("no answer"),
            () = ignore => unreachable!("an endless loop"),
        }
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_peer_that_has_given_up_is_not_accepted() {
    let (one, other) = pipe(1500);
    let mut hasty = config(1);
    hasty.tcp.rto_initial = std::time::Duration::from_millis(10);
    hasty.tcp.rto_min = std::time::Duration::from_millis(10);
    hasty.tcp.syn_retries = 1;
    let one = Stack::with(one, hasty).expect("a stack");
    let other = Stack::with(other, config(2)).expect("a stack");
    let interceptor = other.intercept().expect("the only one");
    let mut requests = Vec::new();
    for _ in 0..3 {
        let (refused, asked) =
            within(async { tokio::join!(one.connect(address("203.0.113.7:443")), request(&interceptor)) })
                .await;
        refused.map(drop).expect_err("no answer in time");
        requests.push(asked);
    }
    // The peer answers the SYN-ACK with a RST.
    for asked in requests {
        let error = within(asked.accept()).await.map(drop).expect_err("the peer has given up");
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    }
}

#[tokio::test]
async fn a_cancelled_accept_resets_the_peer() {
    let (one, other) = pair();
    let interceptor = other.intercept().expect("the only one");
    let connecting = tokio::spawn(async move { one.connect(address("203.0.113.7:443")).await });
    let asked = request(&interceptor).await;
    {
        let mut accepting = std::pin::pin!(asked.accept());
        let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(accepting.as_mut().poll(cx).is_pending());
    }
    let mut client = within(connecting).await.expect("no panic").expect("the handshake was complete");
    let error = within(client.read(&mut [0; 1])).await.expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn datagrams_to_any_address_are_flows() {
    let (one, other) = pipe(1500);
    let one = Stack::with(one, config(1)).expect("a stack");
    let few = kiban_stack::Config { flows_max: 3, datagrams_max: 4, ..config(2) };
    let other = Stack::with(other, few).expect("a stack");
    let interceptor = other.intercept().expect("the only one");
    let targets = ["203.0.113.7:53", "[2001:db8::7]:53", "203.0.113.8:53", "203.0.113.9:53"].map(address);
    let mut buffer = vec![0; 1 << 16];
    for target in targets {
        let own = if target.is_ipv4() { "10.0.0.1:0" } else { "[fd00::1]:0" };
        let client = one.bind(address(own)).expect("a port is free");
        client.connect(target).expect("an address");
        let question = bytes(3000);
        client.send(&question).expect("sent");
        client.send(b"second").expect("sent");
        let flow = flow(&interceptor).await;
        assert_eq!((flow.local_addr(), flow.peer_addr()), (target, client.local_addr()));
        assert!(within(flow.recv()).await.expect("received") == question);
        assert_eq!(within(flow.recv()).await.expect("received"), b"second");
        flow.send(b"answer").expect("sent");
        let (count, from) = within(client.recv_from(&mut buffer)).await.expect("received");
        assert_eq!((&buffer[..count], from), (&b"answer"[..], target));
        flow.refuse();
        let refused = within(client.recv_from(&mut buffer)).await.expect_err("the port is closed");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
    // Flows beyond the limit, and datagrams beyond that of a flow, are dropped.
    let client = one.bind(address("10.0.0.1:0")).expect("a port is free");
    let mut flows = Vec::new();
    for host in 0..5 {
        for count in 0..6 {
            client.send_to(&[count], address(&format!("203.0.113.{host}:53"))).expect("sent");
        }
    }
    for _ in 0..3 {
        flows.push(flow(&interceptor).await);
    }
    for flow in flows {
        for count in 0..4 {
            assert_eq!(within(flow.recv()).await.expect("received"), [count]);
        }
        let mut next = std::pin::pin!(flow.recv());
        let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(next.as_mut().poll(cx).is_pending());
    }
}

#[tokio::test]
async fn a_dropped_interceptor_leaves_accepted_streams_open() {
    let (one, other) = pair();
    let interceptor = other.intercept().expect("the only one");
    let target = address("203.0.113.7:443");
    let accept = async { request(&interceptor).await.accept().await };
    let (client, server) = within(async { tokio::join!(one.connect(target), accept) }).await;
    let (mut client, mut server) = (client.expect("a connection"), server.expect("a connection"));
    let socket = one.bind(address("10.0.0.1:0")).expect("a port is free");
    socket.send_to(b"question", target).expect("sent");
    let flow = flow(&interceptor).await;
    flow.recv().await.expect("received");
    drop(interceptor);
    assert_eq!(flow.recv().await.expect_err("dropped").kind(), ErrorKind::NotConnected);
    let refused = within(one.connect(target)).await.map(drop).expect_err("nobody accepts");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    client.write_all(b"hello").await.expect("written");
    server.read_exact(&mut [0; 5]).await.expect("read");
    let interceptor = other.intercept().expect("the first one has been dropped");
    let accept = async { request(&interceptor).await.accept().await };
    let (client, server) = within(async { tokio::join!(one.connect(target), accept) }).await;
    client.expect("a connection");
    server.expect("a connection");
}

/// Returns an IPv4 packet from 10.0.0.1 to 203.0.113.7; the checksum of its payload is at an offset.
fn packet(protocol: u8, mut payload: Vec<u8>, checksum_at: usize) -> Vec<u8> {
    let total = (20 + payload.len()) as u8;
    let mut header = vec![0x45, 0, 0, total, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 203, 0, 113, 7];
    let pseudo = [&header[12..], &[0, protocol, 0, payload.len() as u8][..]].concat();
    let covered = if protocol == 6 { [&pseudo, &payload[..]].concat() } else { payload.clone() };
    payload[checksum_at..checksum_at + 2].copy_from_slice(&Sum::of(&covered).checksum().to_be_bytes());
    let own = Sum::of(&header).checksum().to_be_bytes();
    header[10..12].copy_from_slice(&own);
    [header, payload].concat()
}

const SYN: u8 = 2;
const RST: u8 = 4;

/// Returns a segment from a port to port 443, without data.
fn segment(port: u16, flags: u8) -> Vec<u8> {
    let sequence = u32::from(flags == RST);
    let ports = [port.to_be_bytes(), 443_u16.to_be_bytes()].concat();
    let rest = [&[0; 4][..], &[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]].concat();
    packet(6, [ports, sequence.to_be_bytes().to_vec(), rest].concat(), 16)
}

async fn send(device: &mut Pipe, packet: &[u8]) {
    within(poll_fn(|cx| device.poll_send(cx, packet))).await.expect("the pipe works");
}

#[tokio::test]
async fn requests_that_are_reset_still_count_until_they_are_decided() {
    let (mut peer, other) = pipe(1500);
    let mut few = config(2);
    few.tcp.backlog = 4;
    let other = Stack::with(other, few).expect("a stack");
    let interceptor = other.intercept().expect("the only one");
    for port in 1000..1100 {
        send(&mut peer, &segment(port, SYN)).await;
        send(&mut peer, &segment(port, RST)).await;
        tokio::task::yield_now().await;
    }
    // The answer to a ping shows that everything before it has arrived.
    send(&mut peer, &packet(1, vec![8, 0, 0, 0, 0, 7, 0, 1], 2)).await;
    let mut requests = Vec::new();
    loop {
        match within(interceptor.accept()).await.expect("the device works") {
            Flow::Tcp(request) => requests.push(request),
            Flow::Ping(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!((1..=4).contains(&requests.len()), "{} requests wait", requests.len());
}

#[tokio::test]
async fn a_repeated_request_leaves_no_handshake_behind() {
    let (mut peer, other) = pipe(1500);
    let other = Stack::with(other, config(2)).expect("a stack");
    let interceptor = other.intercept().expect("the only one");
    let mut accepting = tokio::task::JoinSet::new();
    for _ in 0..3 {
        send(&mut peer, &segment(1000, SYN)).await;
        // The SYN-ACK, if the request is admitted.
        let answer = async {
            accepting.spawn(request(&interceptor).await.accept());
            poll_fn(|cx| peer.poll_receive(cx, &mut [0; 2000])).await.expect("the pipe works")
        };
        // A request is not reported while an earlier handshake of its addresses is not collected.
        let _ = tokio::time::timeout(std::time::Duration::from_millis(300), answer).await;
        send(&mut peer, &segment(1000, RST)).await;
    }
    assert!(!accepting.is_empty());
    while let Some(accepted) = within(accepting.join_next()).await {
        let error = accepted.expect("no panic").map(drop).expect_err("the peer has reset it");
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    }
}
