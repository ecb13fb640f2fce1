//! TCP sockets below the OSI stack: connecting, listening and accepting.
//!
//! Options    Nagle's algorithm is off, because the protocols send requests and wait for responses. Keepalive
//!            detects a host that has disappeared, which is needed because an association may be silent for a
//!            long time.
//! Names      all addresses of a host are tried, in the order in which the system returns them.
//! Errors     errors on one connection do not affect its listener. After an error that concerns the system
//!            (such as running out of descriptors), accepting pauses for a moment.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Maximum number of connections that are waiting to be accepted.
const BACKLOG: u32 = 1024;
/// Idle time after which keepalive probes are sent.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// How long accepting pauses after an error that concerns the system.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Connects to a peer.
///
/// # Errors
/// The system's error. If the host has several addresses, it is the error at the last one.
pub(crate) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let socket = TcpStream::connect((host, port)).await?;
    prepare(&socket)?;
    Ok(socket)
}

/// Listens at an address.
///
/// # Errors
/// The system's error, for example if the address is in use or not local, or the port requires a privilege.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts a listener's next connection. Cancel-safe: nothing is lost when the future is dropped.
///
/// # Errors
/// The system's error; errors that concern only a single connection are skipped.
pub(crate) async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                // If the connection is already closed, the first operation on it returns the error.
                let _ = prepare(&socket);
                return Ok((socket, peer));
            }
            Err(error) => match error.kind() {
                io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            },
        }
    }
}

/// Accepts a listener's next connection; retries after errors.
pub(super) async fn next(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match accept(listener).await {
            Ok(accepted) => return accepted,
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(socket, true)?;
    Ok(rustix::net::sockopt::set_tcp_keepidle(socket, KEEPALIVE)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt;

    #[test]
    fn sockets_have_nodelay_and_keepalive() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = listen("127.0.0.1:0".parse().expect("an address")).expect("a port is free");
            let port = listener.local_addr().expect("it is bound").port();
            let (one, other) = tokio::join!(connect("localhost", port), next(&listener));
            for socket in [one.expect("it listens"), other.0] {
                assert!(socket.nodelay().expect("a socket"));
                assert!(sockopt::socket_keepalive(&socket).expect("a socket"));
                assert_eq!(sockopt::tcp_keepidle(&socket).expect("a socket"), KEEPALIVE);
            }
        });
    }
}
