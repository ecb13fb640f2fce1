//! TCP sockets for measurements: buffers, Nagle, MSS and congestion control are set before the handshake.
//!
//! Order     buffers determine the window scale, and the SYN carries the MSS, so both are set before
//!           `connect` and `listen`; accepted connections inherit the options of the listener.
//! Buffers   Linux doubles a requested size for its own overhead (socket(7)) and limits it
//!           (`net.core.wmem_max`). [`Given`] contains the resulting sizes.

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// The listen backlog. It is more than one, so that a stray connection does not delay the expected one.
const BACKLOG: i32 = 16;

/// The requested options of a connection. `None` leaves the system's default.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    /// SO_SNDBUF, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_bytes: Option<u32>,
    /// SO_RCVBUF, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_bytes: Option<u32>,
    /// TCP_NODELAY: whether Nagle's algorithm is off.
    #[serde(default)]
    pub no_delay: bool,
    /// TCP_MAXSEG: maximum payload of a segment, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss_bytes: Option<u32>,
    /// TCP_CONGESTION, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
}

/// The options that the system set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Given {
    /// SO_SNDBUF as the system reports it: twice the requested size.
    pub send_bytes: u32,
    /// SO_RCVBUF as the system reports it: twice the requested size.
    pub receive_bytes: u32,
    /// The congestion control in use.
    pub congestion: String,
}

/// Acknowledges what has arrived at once instead of after a delay (TCP_QUICKACK), until the program next
/// sends.
///
/// # Errors
/// A system call failed; for example, the socket is not a TCP socket.
pub fn acknowledge_at_once(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_tcp_quickack(true)
}

impl Settings {
    fn apply(&self, socket: &Socket) -> io::Result<()> {
        let error_of =
            |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
        if let Some(bytes) = self.send_bytes {
            socket.set_send_buffer_size(bytes as usize).map_err(|error| error_of("SO_SNDBUF", error))?;
        }
        if let Some(bytes) = self.receive_bytes {
            socket.set_recv_buffer_size(bytes as usize).map_err(|error| error_of("SO_RCVBUF", error))?;
        }
        if let Some(bytes) = self.mss_bytes {
            let what = format!("an MSS of {bytes} bytes (TCP_MAXSEG)");
            socket.set_tcp_mss(bytes).map_err(|error| error_of(&what, error))?;
        }
        if let Some(name) = &self.congestion {
            let what = format!("congestion control '{name}' (TCP_CONGESTION)");
            socket.set_tcp_congestion(name.as_bytes()).map_err(|error| error_of(&what, error))?;
        }
        socket.set_tcp_nodelay(self.no_delay).map_err(|error| error_of("TCP_NODELAY", error))
    }

    /// Returns a new socket of the family of an address, with these settings.
    fn socket(&self, address: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        self.apply(&socket)?;
        Ok(socket)
    }

    /// Connects with these settings.
    ///
    /// # Errors
    /// A system call failed; `TimedOut` after `timeout`.
    pub fn connect(&self, address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        let socket = self.socket(address)?;
        socket.connect_timeout(&address.into(), timeout)?;
        Ok(socket.into())
    }

    /// Connects with these settings, and calls `before` with the local address before the handshake, for
    /// example to start a capture. Only the port of that address is meaningful.
    ///
    /// # Errors
    /// A system call failed; `TimedOut` after `timeout`.
    pub fn connect_after<T>(
        &self,
        address: SocketAddr,
        timeout: Duration,
        before: impl FnOnce(SocketAddr) -> T,
    ) -> io::Result<(TcpStream, T)> {
        let socket = self.socket(address)?;
        let any: IpAddr =
            if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        socket.bind(&SocketAddr::new(any, 0).into())?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let done = before(local);
        socket.connect_timeout(&address.into(), timeout)?;
        Ok((socket.into(), done))
    }

    /// Listens with these settings; port 0 means any free port. Calls of `accept` do not block.
    ///
    /// # Errors
    /// A system call failed.
    pub fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let socket = self.socket(address)?;
        // A fixed port may have connections in TIME-WAIT (RFC 9293 §3.6.1).
        socket.set_reuse_address(address.port() > 0)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    }
}

/// Returns whether this program may use a congestion control on new connections: without CAP_NET_ADMIN, only
/// those in `net.ipv4.tcp_allowed_congestion_control`.
pub fn is_congestion_allowed(name: &str) -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
    socket.is_ok_and(|socket| socket.set_tcp_congestion(name.as_bytes()).is_ok())
}

/// Sets the size of a socket's send buffer, up to the system's limit.
///
/// # Errors
/// A system call failed.
pub fn send_buffer(socket: &impl AsRawFd, bytes: u32) -> io::Result<()> {
    // A size above the system's limit needs CAP_NET_ADMIN. Without it, a smaller buffer will do.
    super::capture::set(socket, libc::SO_SNDBUFFORCE, &bytes)
        .or_else(|_| super::capture::set(socket, libc::SO_SNDBUF, &bytes))
}

/// Makes closing a connection discard what has not been sent, and reset it (SO_LINGER with zero).
///
/// # Errors
/// A system call failed.
pub fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_linger(Some(Duration::ZERO))
}

/// Makes a listener accept only connections on which data have arrived, and silent ones after about `seconds`
/// (TCP_DEFER_ACCEPT).
///
/// # Errors
/// A system call failed.
pub fn defer_accept(listener: &TcpListener, seconds: u32) -> io::Result<()> {
    super::capture::set_at(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &seconds)
}

/// Returns the options that the system set on a connection.
///
/// # Errors
/// A system call failed.
pub fn given(stream: &TcpStream) -> io::Result<Given> {
    let socket = SockRef::from(stream);
    let name = socket.tcp_congestion()?;
    let name: Vec<u8> = name.into_iter().take_while(|byte| *byte != 0).collect();
    Ok(Given {
        send_bytes: socket.send_buffer_size()? as u32,
        receive_bytes: socket.recv_buffer_size()? as u32,
        congestion: String::from_utf8_lossy(&name).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_connection_have_the_requested_options() {
        let settings = Settings {
            send_bytes: Some(9000),
            receive_bytes: Some(7000),
            no_delay: true,
            mss_bytes: Some(700),
            congestion: Some("reno".into()),
        };
        let listener = settings.listen(([127, 0, 0, 1], 0).into()).expect("loopback");
        let address = listener.local_addr().expect("bound");
        let caller = settings.connect(address, Duration::from_secs(5)).expect("it listens");
        assert!(super::super::pause::readable(&listener, Duration::from_secs(5)).expect("a socket"));
        let (called, _) = listener.accept().expect("a peer has connected");
        for stream in [&caller, &called] {
            let given = given(stream).expect("a connection");
            assert_eq!((given.send_bytes, given.receive_bytes), (18_000, 14_000));
            assert_eq!(given.congestion, "reno");
            assert!(stream.nodelay().expect("a connection"));
            let info = super::super::TcpInfo::of(stream).expect("a connection");
            assert!(info.snd_mss <= 700, "{info:?}");
        }
    }

    #[test]
    fn the_error_names_an_unknown_congestion_control() {
        let settings = Settings { congestion: Some("tahiti".into()), ..Settings::default() };
        let error = settings.listen(([127, 0, 0, 1], 0).into()).expect_err("no such control");
        assert!(error.to_string().contains("'tahiti'"), "{error}");
        assert!(is_congestion_allowed("reno") && !is_congestion_allowed("tahiti"));
    }
}
