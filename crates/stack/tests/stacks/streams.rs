//! Streams, listeners and datagram sockets between two stacks.

use crate::{ONE, OTHER, address, bytes, config, pair, within};
use kiban_stack::{Stack, TcpStream, pipe};
use std::io::ErrorKind;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Returns both ends of a new connection.
async fn connection(one: &Stack, other: &Stack) -> (TcpStream, TcpStream) {
    let listener = other.listen(address(&format!("{OTHER}:0"))).expect("the port is free");
    let (client, server) = tokio::join!(one.connect(listener.local_addr()), listener.accept());
    (client.expect("a connection"), server.expect("a connection").0)
}

#[tokio::test]
async fn bytes_arrive_unchanged_in_both_directions() {
    let (one, other) = pair();
    for target in ["10.0.0.2:80", "[fd00::2]:80"].map(address) {
        let listener = other.listen(target).expect("the port is free");
        let (client, server) = tokio::join!(one.connect(target), listener.accept());
        let (client, (server, from)) = (client.expect("a connection"), server.expect("a connection"));
        assert_eq!((client.peer_addr(), server.local_addr()), (target, target));
        assert_eq!((client.local_addr(), server.peer_addr()), (from, from));
        let sent = bytes(8 << 20);
        let exchange = async |stream: TcpStream| {
            let (mut reader, mut writer) = tokio::io::split(stream);
            let write = async {
                writer.write_all(&sent).await.expect("written");
                writer.shutdown().await.expect("finished");
            };
            let mut received = Vec::new();
            let (_, read) = tokio::join!(write, reader.read_to_end(&mut received));
            read.expect("read to the end");
            assert!(received == sent, "{} bytes", received.len());
        };
        within(async { tokio::join!(exchange(client), exchange(server)) }).await;
    }
}

#[tokio::test]
async fn a_finished_direction_leaves_the_other_open() {
    let (one, other) = pair();
    let (mut client, mut server) = connection(&one, &other).await;
    client.write_all(b"question").await.expect("written");
    client.shutdown().await.expect("finished");
    client.shutdown().await.expect("a second time changes nothing");
    assert_eq!(client.write(b"more").await.expect_err("finished").kind(), ErrorKind::BrokenPipe);
    let mut question = String::new();
    server.read_to_string(&mut question).await.expect("read to the end");
    server.write_all(b"answer").await.expect("written");
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("read to the end");
    assert_eq!((&question[..], &answer[..]), ("question", "answer"));
}

#[tokio::test]
async fn a_port_without_a_listener_refuses() {
    let (one, other) = pair();
    let refused = one.connect(address("10.0.0.2:81")).await.expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let listener = other.listen(address("0.0.0.0:81")).expect("the port is free");
    let again = other.listen(address("0.0.0.0:81")).map(drop).expect_err("it is in use");
    assert_eq!(again.kind(), ErrorKind::AddrInUse);
    let foreign = other.listen(address("10.0.0.3:81")).map(drop).expect_err("another host's address");
    assert_eq!(foreign.kind(), ErrorKind::AddrNotAvailable);
    one.connect(address("10.0.0.2:81")).await.expect("somebody listens now");
    drop(listener);
    let refused = one.connect(address("10.0.0.2:81")).await.expect_err("nobody listens any longer");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_reset_is_an_error_after_the_data() {
    let (one, other) = pair();
    let (client, mut server) = connection(&one, &other).await;
    client.reset();
    let error = within(server.read(&mut [0; 8])).await.expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.write(b"more").await.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    // A stream that is dropped with unread data resets its peer; otherwise it finishes.
    for (unread, expected) in [(&b""[..], None), (&b"unread"[..], Some(ErrorKind::ConnectionReset))] {
        let (mut client, mut server) = connection(&one, &other).await;
        server.write_all(unread).await.expect("written");
        // The client's data acknowledges the server's, which has then arrived.
        client.write_all(b"data").await.expect("written");
        server.read_exact(&mut [0; 4]).await.expect("read");
        drop(client);
        let read = within(server.read(&mut [0; 8])).await;
        assert_eq!(read.map_err(|error| error.kind()).err(), expected);
    }
}

/// Writes until the stream takes no more. Returns the number of bytes.
fn fill(stream: &mut TcpStream) -> usize {
    let piece = vec![1; 64 << 10];
    let cx = &mut Context::from_waker(Waker::noop());
    let mut total = 0;
    while let Poll::Ready(written) = pin!(&mut *stream).poll_write(cx, &piece) {
        total += written.expect("the stream is open");
    }
    total
}

#[tokio::test]
async fn a_writer_waits_for_a_peer_that_does_not_read() {
    let (one, other) = pair();
    let (mut client, mut server) = connection(&one, &other).await;
    let mut written = fill(&mut client);
    assert!((1..=256 << 10).contains(&written), "the send buffer took {written}");
    // The task moves data until the peer's window is closed.
    let piece = vec![1; 4096];
    let most = 2 * (256 << 10);
    while written < 2 * most {
        let waits = tokio::time::timeout(std::time::Duration::from_secs(1), client.write(&piece)).await;
        let Ok(count) = waits else { break };
        written += count.expect("written");
    }
    assert!(written <= most + piece.len(), "both buffers took {written}");
    let writer = tokio::spawn(async move {
        client.write_all(&[1; 1 << 20]).await.expect("written");
        client.shutdown().await.expect("finished");
    });
    let mut received = Vec::new();
    within(server.read_to_end(&mut received)).await.expect("read to the end");
    assert_eq!(received.len(), written + (1 << 20));
    writer.await.expect("the writer is content");
}

/// Peers that never read fill their buffers, not the memory of others.
#[tokio::test]
async fn peers_that_never_read_do_not_stop_others() {
    let (one, other) = pipe(1500);
    let small = |side| {
        let mut config = config(side);
        config.memory.transmit_bytes = 4 << 20;
        config.memory.receive_bytes = 4 << 20;
        config
    };
    let one = Stack::with(one, small(1)).expect("a stack");
    let other = Stack::with(other, small(2)).expect("a stack");
    let mut deaf = Vec::new();
    for _ in 0..64 {
        let (mut client, server) = connection(&one, &other).await;
        fill(&mut client);
        deaf.push((client, server));
    }
    let (mut client, mut server) = connection(&one, &other).await;
    let sent = bytes(2 << 20);
    let mut received = vec![0; sent.len()];
    let (written, read) =
        within(async { tokio::join!(client.write_all(&sent), server.read_exact(&mut received)) }).await;
    written.expect("written");
    read.expect("read");
    assert!(received == sent);
}

#[tokio::test]
async fn many_connections_can_be_dropped_at_once() {
    let (one, other) = pair();
    let listener = other.listen(address("10.0.0.2:80")).expect("the port is free");
    for round in 0..3 {
        let mut ends = Vec::new();
        for _ in 0..1000 {
            let (client, server) = tokio::join!(one.connect(listener.local_addr()), listener.accept());
            let (mut client, (mut server, _)) =
                (client.expect("a connection"), server.expect("a connection"));
            client.write_all(b"data").await.expect("written");
            // Some of the data is not read.
            if round > 0 {
                server.read_exact(&mut [0; 4]).await.expect("read");
            }
            ends.push((client, server));
        }
        let (clients, servers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        drop(clients);
        for mut server in servers {
            if round == 0 {
                server.read_exact(&mut [0; 4]).await.expect("the data arrives before the end");
            }
            assert_eq!(within(server.read(&mut [0; 4])).await.expect("the end"), 0);
        }
    }
    let (mut client, mut server) = connection(&one, &other).await;
    client.write_all(b"last").await.expect("written");
    server.read_exact(&mut [0; 4]).await.expect("read");
}

#[tokio::test]
async fn a_cancelled_connect_leaves_nothing_behind() {
    let (one, other) = pair();
    let listener = other.listen(address("10.0.0.2:80")).expect("the port is free");
    {
        let mut connecting = pin!(one.connect(listener.local_addr()));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(connecting.as_mut().poll(cx).is_pending());
    }
    let (client, server) = tokio::join!(one.connect(listener.local_addr()), listener.accept());
    let (client, (mut server, from)) = (client.expect("a connection"), server.expect("a connection"));
    if from != client.local_addr() {
        // The first handshake was faster than its reset.
        assert!(within(server.read(&mut [0; 1])).await.is_err());
    }
}

#[tokio::test]
async fn datagrams_arrive_whole() {
    let (one, other) = pair();
    let server = other.bind(address("[::]:53")).expect("the port is free");
    for (from, to) in [(ONE, OTHER), ("fd00::1", "fd00::2")] {
        let at = |host: &str, port: u16| std::net::SocketAddr::new(host.parse().expect("an address"), port);
        let client = one.bind(at(from, 0)).expect("a port is free");
        let mut buffer = vec![0; 1 << 16];
        // The longest one travels in fragments.
        for length in [0, 1, 1472, 60_000] {
            let sent = bytes(length);
            client.send_to(&sent, at(to, 53)).expect("sent");
            let (count, sender) = within(server.recv_from(&mut buffer)).await.expect("received");
            assert!(buffer[..count] == sent, "{count} of {length}");
            assert_eq!(sender, client.local_addr());
            server.send_to(b"answer", sender).expect("sent");
            let (count, sender) = within(client.recv_from(&mut buffer)).await.expect("received");
            assert_eq!((&buffer[..count], sender), (&b"answer"[..], at(to, 53)));
        }
        let too_long = client.send_to(&vec![0; 65_536], at(to, 53)).expect_err("too long");
        assert_eq!(too_long.kind(), ErrorKind::InvalidInput);
        let error = client.send(b"to nobody").expect_err("not connected");
        assert_eq!(error.kind(), ErrorKind::NotConnected);
        client.connect(at(to, 54)).expect("an address");
        client.send(b"to a closed port").expect("sent");
        let refused = within(client.recv_from(&mut buffer)).await.expect_err("nobody is there");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}
