//! The proxy on smoltcp (netstack-smoltcp). Its listener answers a SYN before the program sees the
//! connection, so a refused connection is first established.

#[path = "../../../crates/stack/examples/socks5/client.rs"]
mod client;

use futures::{SinkExt, StreamExt};
use netstack_smoltcp::StackBuilder;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tun_rs::{DeviceBuilder, IDEAL_BATCH_SIZE, VIRTIO_NET_HDR_LEN};

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, server] = &arguments[..] else { return Err(io::Error::other("usage: DEVICE SERVER")) };
    let server: SocketAddr = server.parse().map_err(io::Error::other)?;
    let device = DeviceBuilder::new().name(device).offload(true).inherit_enable_state();
    let device = Arc::new(device.build_async()?);
    // The same buffers as kiban's.
    let (stack, runner, _, listener) = StackBuilder::default()
        .enable_tcp(true)
        .mtu(1500)
        .tcp_recv_buffer_size(1 << 20)
        .tcp_send_buffer_size(1 << 20)
        .build()?;
    tokio::spawn(runner.expect("TCP is enabled"));
    let mut listener = listener.expect("TCP is enabled");
    let (mut to_stack, mut from_stack) = stack.split();
    let writer = device.clone();
    tokio::spawn(async move {
        while let Some(Ok(packet)) = from_stack.next().await {
            let mut framed = vec![0; VIRTIO_NET_HDR_LEN + packet.len()];
            framed[VIRTIO_NET_HDR_LEN..].copy_from_slice(&packet);
            let _ = writer.send(&framed).await;
        }
    });
    tokio::spawn(async move {
        let mut whole = vec![0; VIRTIO_NET_HDR_LEN + 65_535];
        let mut packets = vec![vec![0; 1600]; IDEAL_BATCH_SIZE];
        let mut lengths = vec![0; IDEAL_BATCH_SIZE];
        while let Ok(count) = device.recv_multiple(&mut whole, &mut packets, &mut lengths, 0).await {
            for (packet, length) in packets.iter().zip(&lengths).take(count) {
                let _ = to_stack.send(packet[..*length].to_vec()).await;
            }
        }
    });
    while let Some((stream, _, to)) = listener.next().await {
        tokio::spawn(async move {
            if let Ok(remote) = client::connect(server, to).await {
                client::relay(stream, remote).await;
            }
        });
    }
    Ok(())
}
