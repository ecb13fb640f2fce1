//! Stream numbers and completions.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use kiban_tcpip::ip::IcmpErrorKind;
use kiban_tcpip::tcp::Reason;
use kiban_tcpip::udp::SocketId;

/// The number of a stream. It contains a generation, so the number of a closed stream is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct StreamId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl StreamId {
    /// Returns a small number, unique among open streams, for the caller's tables.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// The owner of a stream, listener, socket or ping, which gets its completions: a program, one of its
/// services, or one client of a service. The driver numbers the programs, a program numbers its services, and
/// a service numbers its clients ([`Host::for_service`](crate::Host::for_service),
/// [`Host::for_client`](crate::Host::for_client)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Consumer {
    /// The program's number.
    pub program: u32,
    /// The service's number within the program.
    pub service: u32,
    /// The client's number within the service.
    pub client: u32,
}

/// The layer above a stream or a listener, which gets its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Upper {
    /// The host.
    Host(Consumer),
    /// The board's RDMA NIC.
    Rdma,
}

/// An event for a consumer. Each completion is delivered once, to its [`Consumer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// An event in the VI NIC: completed descriptors, a connection request, or another event
    /// ([`Host::vi`](crate::Host::vi)).
    Vi,
    /// An event in the RDMA NIC: completed work requests, a change of a connection, or another event
    /// ([`Host::rdma`](crate::Host::rdma)).
    Rdma,
    /// A stream that the host opened is established.
    Opened {
        /// The stream.
        stream: StreamId,
    },
    /// A listener has a new stream.
    Accepted {
        /// The stream.
        stream: StreamId,
        /// The listener's number.
        listener: u32,
        /// The peer's address.
        remote: SocketAddr,
    },
    /// A peer asks for a connection that is intercepted ([`Host::intercept`](crate::Host::intercept)):
    /// [`Host::admit`](crate::Host::admit) or [`Host::refuse`](crate::Host::refuse) answers it.
    Requested {
        /// The number of the interception.
        listener: u32,
        /// The destination.
        local: SocketAddr,
        /// The peer's address.
        remote: SocketAddr,
    },
    /// Intercepted packets wait, where there were none ([`Host::intercepted`](crate::Host::intercepted)).
    Intercepted,
    /// Bytes arrived on a stream that had none.
    Readable {
        /// The stream.
        stream: StreamId,
    },
    /// There is room again after a partial `write`.
    Writable {
        /// The stream.
        stream: StreamId,
    },
    /// The peer has marked data as urgent. The last urgent byte is this far ahead of the data received so far
    /// (RFC 9293 §3.8.5).
    Urgent {
        /// The stream.
        stream: StreamId,
        /// Distance in bytes.
        bytes: u32,
    },
    /// The peer has sent a FIN; received data can still be read.
    PeerFinished {
        /// The stream.
        stream: StreamId,
    },
    /// The stream has ended. Received data can still be read; then the host must close the stream.
    Ended {
        /// The stream.
        stream: StreamId,
        /// The reason.
        reason: Reason,
    },
    /// A datagram arrived on a socket that had none.
    Datagram {
        /// The socket.
        socket: SocketId,
    },
    /// An ICMP error about a datagram (RFC 1122 §4.1.3.3). It can be forged, so it does not end anything.
    DatagramError {
        /// The socket that may have sent the datagram.
        socket: SocketId,
        /// The destination of the datagram.
        remote: SocketAddr,
        /// The host that sent the error.
        reporter: IpAddr,
        /// The kind of error.
        kind: IcmpErrorKind,
    },
    /// The reply to a ping.
    EchoReply {
        /// The sender of the reply.
        source: IpAddr,
        /// As in the ping.
        identifier: u16,
        /// As in the ping.
        sequence: u16,
        /// Payload bytes in the reply.
        bytes: usize,
    },
    /// An ICMP error about a ping. Like a reply, it can be forged.
    EchoError {
        /// The host that sent the error; the board's own address if the next hop did not answer.
        reporter: IpAddr,
        /// The target of the ping.
        target: IpAddr,
        /// As in the ping.
        identifier: u16,
        /// As in the ping.
        sequence: u16,
        /// The kind of error.
        kind: IcmpErrorKind,
    },
    /// The reply to an ATM ping (F5 OAM loopback, I.610).
    CellLoopback {
        /// The port number.
        port: usize,
        /// The circuit's number.
        circuit: u32,
        /// The tag of the request.
        tag: u32,
        /// The round-trip time.
        round_trip: Duration,
    },
}
