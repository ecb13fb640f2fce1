//! This host's kernel as the peer, over TUN in a namespace.

use crate::{address, bytes, within};
use kiban_os::interface;
use kiban_stack::{Config, Flow, Stack, Tun};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DEVICE: &str = "kiban0";

/// Runs `work` in a namespace with a stack at 10.9.0.2 on a TUN device, whose kernel's side is 10.9.0.1.
/// Everything beyond is routed to the device.
fn with_stack<F: Future<Output = ()>>(mtu_bytes: usize, work: impl FnOnce(Stack) -> F) {
    if let Err(error) = interface::enter_new_namespace() {
        println!("skipped: {error}");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(within(async {
        let mut tun = Tun::open(DEVICE).expect("a device");
        interface::set_mtu(DEVICE, mtu_bytes).expect("an MTU");
        interface::set_address(DEVICE, [10, 9, 0, 1].into(), 24).expect("an address");
        interface::set_up(DEVICE).expect("up");
        tun.refresh_mtu().expect("the device exists");
        let route = ["route", "add", "203.0.113.0/24", "dev", DEVICE];
        assert!(Command::new("ip").args(route).status().expect("iproute2 is there").success());
        work(Stack::with(tun, Config::at([[10, 9, 0, 2].into()])).expect("a stack")).await;
    }));
}

/// Runs blocking calls on a thread of the same namespace.
async fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || drop(sender.send(work())));
    receiver.await.expect("no panic")
}

#[test]
fn the_kernel_exchanges_bulk_data_with_a_stack() {
    for mtu_bytes in [1500, 9000] {
        with_stack(mtu_bytes, async |stack| {
            let sent = bytes(32 << 20);
            let listener = stack.listen(address("10.9.0.2:7")).expect("the port is free");
            let expected = sent.clone();
            let kernel = in_thread(move || {
                let mut stream = TcpStream::connect("10.9.0.2:7").expect("a connection");
                let mut writer = stream.try_clone().expect("a duplicate");
                let writes = std::thread::spawn(move || {
                    writer.write_all(&sent).expect("written");
                    writer.shutdown(Shutdown::Write).expect("finished");
                });
                let mut received = Vec::new();
                stream.read_to_end(&mut received).expect("read to the end");
                writes.join().expect("written");
                received
            });
            let echo = async {
                let (stream, _) = listener.accept().await.expect("a connection");
                let (mut reader, mut writer) = tokio::io::split(stream);
                let count = tokio::io::copy(&mut reader, &mut writer).await.expect("copied");
                writer.shutdown().await.expect("finished");
                count
            };
            let (received, count) = tokio::join!(kernel, echo);
            assert_eq!(count, expected.len() as u64);
            assert!(received == expected, "{} bytes", received.len());
        });
    }
}

#[test]
fn the_kernel_sees_the_decisions_of_an_interceptor() {
    with_stack(1500, async |stack| {
        let interceptor = stack.intercept().expect("the only one");
        let decide = async {
            let mut pings = 0;
            loop {
                match interceptor.accept().await.expect("the device works") {
                    Flow::Tcp(request) if request.local_addr().port() == 1 => request.refuse(),
                    Flow::Tcp(request) => {
                        let mut stream = request.accept().await.expect("a connection");
                        stream.write_all(stream.local_addr().to_string().as_bytes()).await.expect("written");
                    }
                    Flow::Udp(flow) if flow.local_addr().port() == 1 => flow.refuse(),
                    Flow::Udp(flow) => {
                        let datagram = flow.recv().await.expect("received");
                        flow.send(&datagram).expect("sent");
                    }
                    Flow::Ping(ping) => {
                        ping.reply();
                        pings += 1;
                    }
                }
                if pings == 2 {
                    return;
                }
            }
        };
        let kernel = in_thread(|| {
            let refused = TcpStream::connect("203.0.113.7:1").expect_err("refused");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            let mut text = String::new();
            let mut stream = TcpStream::connect("203.0.113.7:80").expect("a connection");
            stream.read_to_string(&mut text).expect("read to the end");
            assert_eq!(text, "203.0.113.7:80");
            let socket = UdpSocket::bind("10.9.0.1:0").expect("a port is free");
            socket.connect("203.0.113.8:53").expect("a route");
            socket.send(b"question").expect("sent");
            let mut buffer = [0; 16];
            let count = socket.recv(&mut buffer).expect("received");
            assert_eq!(&buffer[..count], b"question");
            socket.connect("203.0.113.8:1").expect("a route");
            socket.send(b"question").expect("sent");
            assert_eq!(socket.recv(&mut buffer).expect_err("refused").kind(), ErrorKind::ConnectionRefused);
            let ping = ["-c", "2", "-i", "0.2", "-s", "1000", "203.0.113.9"];
            Command::new("ping").args(ping).output().expect("iputils-ping is there").status.success()
        });
        let (is_answered, ()) = tokio::join!(kernel, decide);
        assert!(is_answered, "ping");
    });
}

/// A peer that never reads, and one that drops hundreds of connections at once, leave the stack working.
#[test]
fn a_hostile_kernel_peer_does_not_stop_others() {
    with_stack(1500, async |stack| {
        let listener = stack.listen(address("10.9.0.2:7")).expect("the port is free");
        let deaf = in_thread(|| {
            let open = || TcpStream::connect("10.9.0.2:7").expect("a connection");
            (0..32).map(|_| open()).collect::<Vec<_>>()
        });
        let fill = async {
            let mut writers = Vec::new();
            for _ in 0..32 {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                // The write ends only with its stream.
                let write =
                    async move { stream.write_all(&vec![1; 64 << 20]).await.map_err(|error| error.kind()) };
                writers.push(tokio::spawn(write));
            }
            writers
        };
        let (deaf, writers) = tokio::join!(deaf, fill);
        let crowd = in_thread(|| {
            let crowd: Vec<_> =
                (0..300).map(|_| TcpStream::connect("10.9.0.2:7").expect("a connection")).collect();
            crowd.iter().for_each(|mut stream| stream.write_all(b"unread").expect("written"));
            drop(crowd);
            let mut stream = TcpStream::connect("10.9.0.2:7").expect("a connection");
            stream.write_all(b"last").expect("written");
            stream.shutdown(Shutdown::Write).expect("finished");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).expect("read to the end");
            answer
        });
        let serve = async {
            for _ in 0..301 {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                tokio::spawn(async move {
                    let mut received = Vec::new();
                    let _ = stream.read_to_end(&mut received).await;
                    if received == b"last" {
                        stream.write_all(&bytes(1 << 20)).await.expect("written");
                    }
                });
            }
        };
        let (answer, ()) = tokio::join!(crowd, serve);
        assert!(answer == bytes(1 << 20), "{} bytes", answer.len());
        // The kernel resets connections with unread data, unless the stack has ended them before because
        // their data took up most of its memory.
        drop(deaf);
        for writer in writers {
            let error = writer.await.expect("no panic").expect_err("the peer never reads");
            assert!(matches!(error, ErrorKind::ConnectionReset | ErrorKind::TimedOut), "{error:?}");
        }
    });
}
