//! A line: the transport of an end and the state of that transport. Also the listeners that accept lines.

use super::carrier::Transport;
use crate::link::Address;
use crate::shared::SharedLink;
use crate::tcp::TcpListenSocket;
use kiban_base::Instant;
use kiban_os::channel::{ChannelListener, PendingChannel};
use kiban_rdma::iwarp::mpa;
use kiban_rdma::nic::ConnectError;
use kiban_streams::nonblocking::Listener;
use rustix::event::epoll::EventFlags;
use std::io;
use std::net::IpAddr;

/// Shared memory that may replace an end's socket after the start frames, if both ends have it by then.
pub(super) enum SharedMemoryOffer {
    None,
    /// We opened the TCP connection; the peer may connect to our rendezvous socket.
    Open(ChannelListener),
    /// The peer has connected to our rendezvous socket; the handshake is incomplete.
    Called(PendingChannel),
    /// We accepted the TCP connection and have received nothing yet. By the time the first data arrives, the
    /// peer has opened its rendezvous socket if it uses one.
    Awaited,
    /// We accepted the TCP connection and have connected to the peer's rendezvous socket. Nothing is read
    /// from the TCP socket until the peer answers.
    Calling(PendingChannel),
    Ready(SharedLink),
}

/// The stream of an end.
pub(super) struct Connection {
    pub(super) transport: Transport,
    pub(super) offer: SharedMemoryOffer,
    pub(super) connected: bool,
    /// The transport accepts no more bytes now. For a socket, an event reports when it can accept more.
    pub(super) blocked: bool,
    /// Our direction is closed.
    pub(super) finished: bool,
    /// The peer has closed its direction after a message that waits for a receive.
    pub(super) left: bool,
    /// The end has finished.
    pub(super) leaving: bool,
    /// Deadline for sending the Terminate and for the peer to close. It is stored here because a timer alone
    /// cannot identify its line: within five seconds, a program can connect so often that the number of a
    /// removed end is reused.
    pub(super) farewell: Option<Instant>,
    /// The current epoll interests.
    pub(super) interest: EventFlags,
    /// Number of consecutive direct reads that found nothing.
    pub(super) tries: u32,
    /// Whether reads wait for an epoll event, because too many direct reads found nothing.
    pub(super) quiet: bool,
}

impl Connection {
    pub(super) fn new(transport: Transport, connected: bool, offer: SharedMemoryOffer) -> Connection {
        Connection {
            transport,
            offer,
            connected,
            blocked: !connected,
            finished: false,
            left: false,
            leaving: false,
            farewell: None,
            interest: if connected { EventFlags::IN } else { EventFlags::OUT },
            tries: 0,
            quiet: false,
        }
    }
}

/// A source of incoming connections.
pub(super) enum ListenSocket {
    Socket(TcpListenSocket),
    /// A listener on a board.
    Board(Listener),
}

impl ListenSocket {
    /// Accepts the next connection, if there is one.
    pub(super) fn accept(&self) -> io::Result<Option<Transport>> {
        Ok(match self {
            ListenSocket::Socket(listener) => listener.accept()?.map(|(link, _)| Transport::from(link)),
            ListenSocket::Board(listener) => listener.accept()?.map(Transport::Board),
        })
    }
}

/// A listener, and the MPA settings of its connections.
pub(super) struct MpaListener {
    pub(super) entrance: ListenSocket,
    pub(super) config: mpa::Config,
}

/// The addresses of a connection to be opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) to: Address,
    /// The local address, if it differs from the lower layer's.
    pub(crate) from: Option<IpAddr>,
}

/// The state of an end, as reported to its owner.
#[derive(Default)]
pub(crate) struct EndState {
    pub(crate) connected: Option<Vec<u8>>,
    pub(crate) failed: Option<ConnectError>,
    /// The peer has closed its direction, and data received before that waits for receives.
    pub(crate) left: bool,
    pub(crate) gone: bool,
}
