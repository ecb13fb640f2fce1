//! The proxy on ipstack. Its listener answers a SYN before the program sees the connection, so a refused
//! connection is first established.

#[path = "../../../crates/stack/examples/socks5/client.rs"]
mod client;

use ipstack::{IpStack, IpStackConfig, IpStackStream, TcpConfig, TcpOptions};
use std::io;
use std::net::SocketAddr;

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, server] = &arguments[..] else { return Err(io::Error::other("usage: DEVICE SERVER")) };
    let server: SocketAddr = server.parse().map_err(io::Error::other)?;
    let mut configuration = tun::Configuration::default();
    configuration.tun_name(device).mtu(1500).up();
    let device = tun::create_as_async(&configuration).map_err(io::Error::other)?;
    // As in ipstack's example, with kiban's send buffer.
    let mut tcp = TcpConfig::default();
    tcp.options = Some(vec![TcpOptions::MaximumSegmentSize(1460)]);
    tcp.max_unacked_bytes = 1 << 20;
    let mut config = IpStackConfig::default();
    config.mtu(1500).map_err(io::Error::other)?;
    config.with_tcp_config(tcp);
    let mut stack = IpStack::new(config, device);
    while let Ok(stream) = stack.accept().await {
        let IpStackStream::Tcp(stream) = stream else { continue };
        tokio::spawn(async move {
            if let Ok(remote) = client::connect(server, stream.peer_addr()).await {
                client::relay(stream, remote).await;
            }
        });
    }
    Ok(())
}
