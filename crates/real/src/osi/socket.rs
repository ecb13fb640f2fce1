//! Sockets below OSI: how all that speak it here connect, listen and accept.
//!
//! Goal      protocols of question and answer: nothing waits for more to send. An association may be silent for long: a
//!           host that is gone is noticed all the same.
//! Names     of a host with several addresses all are tried, in the order in which the system has them.
//! Errors    of one connection are none of its listener. After one of the system's (no descriptors left) who accepts takes a
//!           breath.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;
/// After so long a silence a peer's host is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// After an error of the system's nobody is accepted for so long.
pub(crate) const BREATH: Duration = Duration::from_millis(20);

/// Connects to a peer.
///
/// # Errors
/// The system's; of several addresses, that of the last one.
pub(crate) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let socket = TcpStream::connect((host, port)).await?;
    prepare(&socket)?;
    Ok(socket)
}

/// A listener.
///
/// # Errors
/// The system's: the address is in use, or not this host's, or the port needs a right.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The next connection of a listener. Nothing is lost when the future is dropped.
///
/// # Errors
/// The system's; those of one connection alone are passed over.
pub(crate) async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                // One that is gone already says so when it is used.
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

/// The same, as long as it takes.
pub(super) async fn next(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match accept(listener).await {
            Ok(accepted) => return accepted,
            Err(_) => tokio::time::sleep(BREATH).await,
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
    fn both_ends_answer_at_once_and_notice_a_host_that_is_gone() {
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
