//! A client of SOCKS5 (RFC 1928) without authentication.

use std::io;
use std::net::{IpAddr, SocketAddr};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// Bytes that a relay holds in each direction.
const BUFFER_BYTES: usize = 64 << 10;
const CONNECT: u8 = 1;
const UDP_ASSOCIATE: u8 = 3;

/// Connects to a destination through the server.
pub(crate) async fn connect(server: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    Ok(request(server, CONNECT, to).await?.0)
}

/// Returns a socket connected to the server's UDP relay, which works until the stream is dropped.
#[allow(dead_code, reason = "the comparison relays only TCP")]
pub(crate) async fn associate(server: SocketAddr) -> io::Result<(UdpSocket, TcpStream)> {
    let any = SocketAddr::new(if server.is_ipv4() { [0; 4].into() } else { [0; 16].into() }, 0);
    let (stream, relay) = request(server, UDP_ASSOCIATE, any).await?;
    let socket = UdpSocket::bind(any).await?;
    socket.connect(relay).await?;
    Ok((socket, stream))
}

/// Returns the header of datagrams to a destination (§7).
#[allow(dead_code, reason = "the comparison relays only TCP")]
pub(crate) fn datagram_header(to: SocketAddr) -> Vec<u8> {
    let mut header = vec![0; 3];
    append_address(&mut header, to);
    header
}

/// Sends a request, and returns the stream and the address in the server's reply (§4, §6).
async fn request(server: SocketAddr, command: u8, to: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    let mut stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    // Version 5, one method, no authentication; the request follows without waiting for the choice.
    let mut message = vec![5, 1, 0, 5, command, 0];
    append_address(&mut message, to);
    stream.write_all(&message).await?;
    let mut reply = [0; 6];
    stream.read_exact(&mut reply).await?;
    let address: IpAddr = match reply {
        [5, 0, 5, 0, 0, 1] => stream.read_u32().await?.to_be_bytes().into(),
        [5, 0, 5, 0, 0, 4] => stream.read_u128().await?.to_be_bytes().into(),
        [5, 0, 5, 6, ..] => return Err(io::ErrorKind::TimedOut.into()),
        _ => return Err(io::ErrorKind::ConnectionRefused.into()),
    };
    let port = stream.read_u16().await?;
    Ok((stream, SocketAddr::new(address, port)))
}

fn append_address(message: &mut Vec<u8>, to: SocketAddr) {
    match to.ip() {
        IpAddr::V4(address) => message.extend([&[1][..], &address.octets()].concat()),
        IpAddr::V6(address) => message.extend([&[4][..], &address.octets()].concat()),
    }
    message.extend(to.port().to_be_bytes());
}

/// Copies in both directions until both have ended.
pub(crate) async fn relay(mut one: impl AsyncRead + AsyncWrite + Unpin, mut other: TcpStream) {
    // An error ends both streams; their peers see a reset if data was lost.
    let _ = tokio::io::copy_bidirectional_with_sizes(&mut one, &mut other, BUFFER_BYTES, BUFFER_BYTES).await;
}
