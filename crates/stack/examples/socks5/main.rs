//! TUN to SOCKS5: programs that know nothing of SOCKS reach the network through a SOCKS5 server.
//!
//! ```console
//! $ cargo build --release -p kiban-stack --example socks5
//! # ip tuntap add dev tun0 mode tun; ip address add 10.9.0.1/24 dev tun0; ip link set tun0 up
//! # ip route add 203.0.113.0/24 dev tun0
//! # target/release/examples/socks5 tun0 127.0.0.1:1080
//! ```
//!
//! A SYN is answered once the server has connected, with a RST if it refuses. Pings are answered here.

mod client;

use kiban_stack::{Flow, Stack, TcpRequest, Tun, UdpFlow};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// How long a UDP flow may be idle (RFC 4787 REQ-5).
const UDP_IDLE: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, server] = &arguments[..] else {
        return Err(io::Error::other("usage: socks5 DEVICE SERVER"));
    };
    let server: SocketAddr = server.parse().map_err(io::Error::other)?;
    let interceptor = Stack::new(Tun::open(device)?)?.intercept()?;
    loop {
        match interceptor.accept().await? {
            Flow::Tcp(request) => drop(tokio::spawn(connect(request, server))),
            Flow::Udp(flow) => drop(tokio::spawn(associate(flow, server))),
            Flow::Ping(ping) => ping.reply(),
        }
    }
}

async fn connect(request: TcpRequest, server: SocketAddr) {
    match client::connect(server, request.local_addr()).await {
        Ok(remote) => {
            if let Ok(stream) = request.accept().await {
                client::relay(stream, remote).await;
            }
        }
        // The peer's own timer decides.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => request.ignore(),
        Err(_) => request.refuse(),
    }
}

async fn associate(flow: UdpFlow, server: SocketAddr) {
    let Ok((socket, _control)) = client::associate(server).await else { return flow.refuse() };
    let header = client::datagram_header(flow.local_addr());
    let mut buffer = vec![0; 1 << 16];
    loop {
        let relayed = tokio::select! {
            datagram = flow.recv() => match datagram {
                Ok(datagram) => socket.send(&[&header, &datagram[..]].concat()).await.map(drop),
                Err(error) => Err(error),
            },
            length = socket.recv(&mut buffer) => match length {
                // The server names the sender in a header of the same length.
                Ok(length) => flow.send(buffer[..length].get(header.len()..).unwrap_or_default()),
                Err(error) => Err(error),
            },
            () = tokio::time::sleep(UDP_IDLE) => return,
        };
        if relayed.is_err() {
            return;
        }
    }
}
