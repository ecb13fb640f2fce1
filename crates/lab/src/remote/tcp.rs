//! The TCP that measurements use: the host's, or that of a running board.
//!
//! Board     programs reach a board's TCP through shared memory ([`kiban_streams::blocking`]). Its streams
//!           have the same calls as sockets, so measurements are the same on both.
//! Settings  of a connection on a board, only TCP_NODELAY can be chosen. Buffers, MSS and congestion control
//!           come from the board's configuration.
//! Evidence  a board reports a connection's statistics in the layout of TCP_INFO, and counters of its own TCP
//!           instead of the host's. Connections on a board cannot be captured here, because their packets do
//!           not pass through the host's network.

use kiban_measure::pause;
use kiban_measure::socket::{self, Given};
use kiban_measure::{Capture, Counters, Settings, TcpInfo};
use kiban_streams::blocking;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// Streams of an attachment to a board: for a server's sessions, and connections that wait to be accepted.
const STREAMS: usize = 128;
/// Bytes of the buffer between this program and the board, in each direction of a stream.
const ROOM_BYTES: usize = 256 << 10;

/// The TCP that measurements use.
#[derive(Clone, Debug, Default)]
pub enum TcpStack {
    /// The host's.
    #[default]
    Host,
    /// A board's.
    Board(BoardTcp),
}

/// A function that reads the counters of a board's TCP, with the names that the host's counters have.
pub type ReadCounters = Arc<dyn Fn() -> Counters + Send + Sync>;

/// The TCP of a running board.
#[derive(Clone)]
pub struct BoardTcp {
    name: String,
    board: blocking::Board,
    counters: ReadCounters,
}

impl fmt::Debug for BoardTcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoardTcp({})", self.name)
    }
}

impl BoardTcp {
    /// Attaches to the board with this name.
    ///
    /// # Errors
    /// No board with that name accepts clients.
    pub fn attach(name: &str, counters: ReadCounters) -> io::Result<BoardTcp> {
        let settings = kiban_streams::Settings {
            streams: STREAMS,
            room_bytes: ROOM_BYTES,
            ..kiban_streams::Settings::default()
        };
        let board = blocking::Board::attach(Some(name), settings)?;
        Ok(BoardTcp { name: name.to_owned(), board, counters })
    }
}

/// Returns an error if the settings contain one that a board does not offer.
fn check_for_board(settings: &Settings) -> io::Result<()> {
    let is_default = *settings == Settings { no_delay: settings.no_delay, ..Settings::default() };
    let why = "on a board, buffers, MSS and congestion control come from its configuration ([tcp]): use 0, 0 \
               and system";
    if is_default { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, why)) }
}

impl TcpStack {
    /// Returns the name of the board; `None` for the host's TCP.
    pub fn board(&self) -> Option<&str> {
        match self {
            TcpStack::Host => None,
            TcpStack::Board(board) => Some(&board.name),
        }
    }

    /// Connects with these settings.
    ///
    /// # Errors
    /// The peer does not accept the connection, or a setting is not available.
    pub fn connect(&self, settings: &Settings, to: SocketAddr, timeout: Duration) -> io::Result<Stream> {
        match self {
            TcpStack::Host => settings.connect(to, timeout).map(Stream::Host),
            TcpStack::Board(tcp) => {
                check_for_board(settings)?;
                let stream = tcp.board.connect(to, timeout)?;
                stream.set_nodelay(settings.no_delay);
                Ok(Stream::Board(stream))
            }
        }
    }

    /// Connects with these settings, and captures the connection from its first packet on, if this program is
    /// permitted to capture packets.
    ///
    /// # Errors
    /// See [`TcpStack::connect`].
    pub(crate) fn connect_captured(
        &self,
        settings: &Settings,
        to: SocketAddr,
        timeout: Duration,
    ) -> io::Result<(Stream, Option<Capture>)> {
        match self {
            TcpStack::Host => {
                let capture = |local| Capture::open(local, to).ok();
                let (stream, capture) = settings.connect_after(to, timeout, capture)?;
                Ok((Stream::Host(stream), capture))
            }
            TcpStack::Board(_) => Ok((self.connect(settings, to, timeout)?, None)),
        }
    }

    /// Listens with these settings; port 0 means any free port. `accept` does not block.
    ///
    /// # Errors
    /// The address is not available, or a setting is not.
    pub fn listen(&self, settings: &Settings, at: SocketAddr) -> io::Result<Listener> {
        match self {
            TcpStack::Host => settings.listen(at).map(Listener::Host),
            TcpStack::Board(tcp) => {
                check_for_board(settings)?;
                tcp.board.listen(at).map(Listener::Board)
            }
        }
    }

    /// Reads the counters of this TCP.
    pub fn counters(&self) -> Counters {
        match self {
            TcpStack::Host => Counters::read().unwrap_or_default(),
            TcpStack::Board(tcp) => (tcp.counters)(),
        }
    }
}

/// A TCP connection.
#[derive(Debug)]
pub enum Stream {
    /// A socket of the host.
    Host(TcpStream),
    /// A stream of a board.
    Board(blocking::Stream),
}

/// The methods are those of [`TcpStream`].
impl Stream {
    /// Returns a second handle to the same connection.
    ///
    /// # Errors
    /// A system call failed.
    pub fn try_clone(&self) -> io::Result<Stream> {
        match self {
            Stream::Host(stream) => stream.try_clone().map(Stream::Host),
            Stream::Board(stream) => Ok(Stream::Board(stream.clone())),
        }
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// A system call failed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Stream::Host(stream) => stream.local_addr(),
            Stream::Board(stream) => Ok(stream.local_addr()),
        }
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// A system call failed.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Stream::Host(stream) => stream.peer_addr(),
            Stream::Board(stream) => Ok(stream.peer_addr()),
        }
    }

    pub(crate) fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match self {
            Stream::Host(stream) => stream.set_nodelay(nodelay),
            Stream::Board(stream) => {
                stream.set_nodelay(nodelay);
                Ok(())
            }
        }
    }

    pub(crate) fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        match self {
            Stream::Host(stream) => stream.set_nonblocking(is_nonblocking),
            Stream::Board(stream) => {
                stream.set_nonblocking(is_nonblocking);
                Ok(())
            }
        }
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Host(stream) => stream.set_read_timeout(timeout),
            Stream::Board(stream) => {
                stream.set_read_timeout(timeout);
                Ok(())
            }
        }
    }

    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Host(stream) => stream.set_write_timeout(timeout),
            Stream::Board(stream) => {
                stream.set_write_timeout(timeout);
                Ok(())
            }
        }
    }

    /// Makes closing the connection discard what has not been sent.
    pub(crate) fn reset_on_close(&self) -> io::Result<()> {
        match self {
            Stream::Host(stream) => socket::reset_on_close(stream),
            Stream::Board(_) => Ok(()),
        }
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Stream::Host(stream) => stream.shutdown(how),
            Stream::Board(stream) => {
                stream.shutdown(how);
                Ok(())
            }
        }
    }

    pub(crate) fn peek(&self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Host(stream) => stream.peek(room),
            Stream::Board(stream) => stream.peek(room),
        }
    }

    /// Waits for at most `timeout` until a read would not block.
    pub(crate) fn readable(&self, timeout: Duration) -> io::Result<bool> {
        match self {
            Stream::Host(stream) => pause::readable(stream, timeout),
            Stream::Board(stream) => stream.readable(timeout),
        }
    }

    /// Returns the state of the connection.
    ///
    /// # Errors
    /// The connection has ended, or a system call failed.
    pub fn info(&self) -> io::Result<TcpInfo> {
        match self {
            Stream::Host(stream) => TcpInfo::of(stream),
            Stream::Board(stream) => stream.tcp_info().map(|bytes| TcpInfo::read(&bytes)),
        }
    }

    /// Returns the peer's window, bytes; `None` on a board, which would have to be asked for it, and on old
    /// kernels.
    pub(crate) fn peer_window(&self) -> Option<u32> {
        match self {
            Stream::Host(stream) => TcpInfo::of(stream).ok()?.snd_wnd,
            Stream::Board(_) => None,
        }
    }

    /// Returns the options that apply to the connection.
    ///
    /// # Errors
    /// The connection has ended, or a system call failed.
    pub fn given(&self) -> io::Result<Given> {
        match self {
            Stream::Host(stream) => socket::given(stream),
            Stream::Board(stream) => {
                let info = stream.tcp_info()?;
                // `tcpi_rcv_space`: the board's receive buffer. Linux reports twice the requested size.
                let receive = info.get(96..100).and_then(|word| word.first_chunk()).copied();
                Ok(Given {
                    send_bytes: 2 * ROOM_BYTES as u32,
                    receive_bytes: receive.map_or(0, u32::from_ne_bytes).saturating_mul(2),
                    congestion: "the board's".to_owned(),
                })
            }
        }
    }

    /// Starts a capture of the connection, if this program is permitted to capture packets.
    pub fn capture(&self) -> Option<Capture> {
        match self {
            Stream::Host(stream) => Capture::open(stream.local_addr().ok()?, stream.peer_addr().ok()?).ok(),
            Stream::Board(_) => None,
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Host(stream) => { stream }.read(room),
            Stream::Board(stream) => { stream }.read(room),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Host(stream) => { stream }.write(bytes),
            Stream::Board(stream) => { stream }.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Host(stream) => { stream }.flush(),
            Stream::Board(stream) => { stream }.flush(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        (&*self).read(room)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

/// A listener.
#[derive(Debug)]
pub enum Listener {
    /// A socket of the host, which does not block.
    Host(TcpListener),
    /// A listener of a board.
    Board(blocking::Listener),
}

impl Listener {
    /// Returns the local address.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Listener::Host(listener) => listener.local_addr(),
            Listener::Board(listener) => Ok(listener.local_addr()),
        }
    }

    /// Accepts a connection; `WouldBlock` if there is none.
    pub(crate) fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Listener::Host(listener) => listener.accept().map(|(stream, from)| (Stream::Host(stream), from)),
            Listener::Board(listener) => {
                let stream = listener.accept()?.ok_or(io::ErrorKind::WouldBlock)?;
                let from = stream.peer_addr();
                Ok((Stream::Board(stream), from))
            }
        }
    }

    /// Waits for at most `timeout` until one of these connections, or the listener, is readable. Returns for
    /// each of the connections, and at the end for the listener, whether it is. Connections of another TCP
    /// than the listener's are not waited for.
    pub(crate) fn ready<'a>(
        &self,
        streams: impl Iterator<Item = &'a Stream>,
        timeout: Duration,
    ) -> io::Result<Vec<bool>> {
        match self {
            Listener::Host(listener) => {
                let files = streams.filter_map(|stream| match stream {
                    Stream::Host(stream) => Some(stream.as_fd()),
                    Stream::Board(_) => None,
                });
                pause::readable_among(&files.chain([listener.as_fd()]).collect::<Vec<_>>(), timeout)
            }
            Listener::Board(listener) => {
                let streams = streams.filter_map(|stream| match stream {
                    Stream::Board(stream) => Some(stream),
                    Stream::Host(_) => None,
                });
                listener.ready(&streams.collect::<Vec<_>>(), timeout)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_offers_no_setting_but_no_delay() {
        let plain = Settings { no_delay: true, ..Settings::default() };
        assert!(check_for_board(&plain).is_ok());
        for settings in [
            Settings { send_bytes: Some(8000), ..plain.clone() },
            Settings { mss_bytes: Some(500), ..plain.clone() },
            Settings { congestion: Some("bbr".into()), ..plain.clone() },
        ] {
            let error = check_for_board(&settings).expect_err("a board does not offer it");
            assert!(error.to_string().contains("configuration"), "{error}");
        }
    }
}
