//! Devices that lose packets, refuse packets, or fail.

use crate::{address, bytes, config, within};
use kiban_stack::{Config, PacketDevice, Pipe, Stack, pipe};
use std::io::{self, ErrorKind};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Loses one of fifty packets, and takes only every third one at once.
struct Bad(Pipe, u64);

impl PacketDevice for Bad {
    fn mtu_bytes(&self) -> usize {
        self.0.mtu_bytes()
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, packet: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_receive(cx, packet)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        self.1 += 1;
        if self.1.is_multiple_of(50) {
            return Poll::Ready(Ok(()));
        }
        if !self.1.is_multiple_of(3) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.0.poll_send(cx, packet)
    }
}

#[tokio::test]
async fn lost_and_refused_packets_do_not_change_the_data() {
    let (one, other) = pipe(1500);
    let one = Stack::with(Bad(one, 0), config(1)).expect("a stack");
    let other = Stack::with(Bad(other, 0), config(2)).expect("a stack");
    let listener = other.listen(address("10.0.0.2:80")).expect("the port is free");
    let sent = bytes(1 << 20);
    let mut client = within(one.connect(listener.local_addr())).await.expect("a connection");
    let (mut server, _) = within(listener.accept()).await.expect("a connection");
    let mut received = Vec::new();
    let write = async {
        client.write_all(&sent).await.expect("written");
        client.shutdown().await.expect("finished");
    };
    let (_, read) = within(async { tokio::join!(write, server.read_to_end(&mut received)) }).await;
    read.expect("read to the end");
    assert!(received == sent);
}

/// A device whose packets are not IP, which then fails.
struct Broken(u32);

impl PacketDevice for Broken {
    fn mtu_bytes(&self) -> usize {
        1500
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, packet: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0 += 1;
        packet.fill(self.0 as u8);
        match self.0 {
            1000.. => Poll::Ready(Err(io::Error::other("the cable is cut"))),
            // A length beyond the buffer's is invalid, too.
            500 => Poll::Ready(Ok(1 << 20)),
            count if count % 7 == 0 => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            count => Poll::Ready(Ok(count as usize)),
        }
    }

    fn poll_send(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn calls_fail_when_the_device_has_failed() {
    let stack = Stack::with(Broken(0), config(1)).expect("a stack");
    let listener = stack.listen(address("10.0.0.1:80")).expect("the port is free");
    let socket = stack.bind(address("10.0.0.1:80")).expect("the port is free");
    let interceptor = stack.intercept().expect("the only one");
    let mut buffer = [0; 8];
    let errors = within(async {
        tokio::join!(
            async { listener.accept().await.map(drop) },
            async { stack.connect(address("10.0.0.2:80")).await.map(drop) },
            async { socket.recv_from(&mut buffer).await.map(drop) },
            async { interceptor.accept().await.map(drop) },
        )
    })
    .await;
    for error in [errors.0, errors.1, errors.2, errors.3] {
        let error = error.expect_err("the device has failed");
        assert_eq!(error.kind(), ErrorKind::NetworkDown);
        assert_eq!(error.to_string(), "the cable is cut");
    }
    assert_eq!(
        stack.listen(address("10.0.0.1:81")).map(drop).expect_err("failed").kind(),
        ErrorKind::NetworkDown
    );
}

#[tokio::test]
async fn an_mtu_out_of_range_is_refused() {
    for mtu_bytes in [0, 575, 65_536] {
        let error = Stack::new(pipe(mtu_bytes).0).map(drop).expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

/// What was written is delivered although the writer, and its stack, have been dropped. Then the device is
/// dropped, which the peer's stack reports.
#[tokio::test]
async fn a_dropped_stack_delivers_what_was_written() {
    let (one, other) = pipe(1500);
    // What ends the task is the end of its connections, not this time.
    let patient = Config { linger: Duration::from_secs(3600), ..config(1) };
    let one = Stack::with(one, patient).expect("a stack");
    let other = Stack::with(other, config(2)).expect("a stack");
    let listener = other.listen(address("10.0.0.2:80")).expect("the port is free");
    let (client, server) = tokio::join!(one.connect(listener.local_addr()), listener.accept());
    let (mut client, (mut server, _)) = (client.expect("a connection"), server.expect("a connection"));
    let sent = bytes(200 << 10);
    client.write_all(&sent).await.expect("written");
    drop((client, one));
    let mut received = Vec::new();
    within(server.read_to_end(&mut received)).await.expect("read to the end");
    assert!(received == sent);
    drop(server);
    let error = within(listener.accept()).await.map(drop).expect_err("the device is gone");
    assert_eq!(error.kind(), ErrorKind::NetworkDown);
}
