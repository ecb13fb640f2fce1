//! The types that callers of communication management pass in and get back.

use crate::wire::roce::MAD_BYTES;
use crate::wire::roce::cm::{RejectReason, Rep, Req, ServiceType, SidrRep, SidrReq};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

/// Identifies a connection or a service id resolution: its local communication id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u32);

/// A MAD to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The peer's address, with the port of RoCEv2.
    pub to: SocketAddr,
    /// The local address to send from.
    pub from: IpAddr,
    /// The octets.
    pub mad: [u8; MAD_BYTES],
}

/// The parameters of a connection that the active side requests. See [`Req`] for the fields.
#[derive(Clone, Debug)]
pub struct Connect {
    /// The service.
    pub service_id: u64,
    /// The local queue pair, 24 bits.
    pub qpn: u32,
    /// The PSN of the first packet that it expects: the peer begins with it. 24 bits.
    pub psn: u32,
    /// The transport service: [`ServiceType::Rc`], [`ServiceType::Uc`], or [`ServiceType::Extended`] if the
    /// queue pair is an XRC initiator.
    pub service: ServiceType,
    /// Maximum number of the peer's reads and atomics at a time.
    pub responder_resources: u8,
    /// Maximum number of own reads and atomics at a time.
    pub initiator_depth: u8,
    /// Whether the local side counts credits.
    pub flow_control: bool,
    /// Whether the queue pair has a shared receive queue.
    pub srq: bool,
    /// How often packets are retransmitted, 3 bits.
    pub retry_count: u8,
    /// How often packets are retransmitted after an RNR NAK, 3 bits.
    pub rnr_retry_count: u8,
    /// The partition key.
    pub pkey: u16,
    /// The code of the path MTU, 1 to 5 ([`mtu_bytes`](crate::wire::roce::cm::mtu_bytes)).
    pub mtu: u8,
    /// The code of the ACK timeout, 5 bits.
    pub ack_timeout: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// The traffic class.
    pub traffic_class: u8,
    /// The hop limit.
    pub hop_limit: u8,
    /// At most [`Req::PRIVATE_BYTES`] bytes, which begin with RDMA-CM's addresses
    /// ([`IpCm`](crate::wire::roce::cm::IpCm)) if the service is one of its ports.
    pub private_data: Vec<u8>,
}

impl Default for Connect {
    fn default() -> Connect {
        Connect {
            service_id: 0,
            qpn: 0,
            psn: 0,
            service: ServiceType::Rc,
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            srq: false,
            retry_count: 7,
            rnr_retry_count: 7,
            pkey: 0xffff,
            mtu: 3,
            ack_timeout: 18,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 64,
            private_data: Vec::new(),
        }
    }
}

/// The parameters of a connection that the passive side accepts. See [`Rep`] for the fields.
#[derive(Clone, Debug, Default)]
pub struct Accept {
    /// The local queue pair, 24 bits.
    pub qpn: u32,
    /// The PSN of the first packet that it expects: the peer begins with it. 24 bits.
    pub psn: u32,
    /// Maximum number of the peer's reads and atomics at a time.
    pub responder_resources: u8,
    /// Maximum number of own reads and atomics at a time.
    pub initiator_depth: u8,
    /// The code of the delay of acknowledgements, 5 bits.
    pub target_ack_delay: u8,
    /// Whether the local side counts credits.
    pub flow_control: bool,
    /// How often packets are retransmitted after an RNR NAK, 3 bits.
    pub rnr_retry_count: u8,
    /// Whether the queue pair has a shared receive queue.
    pub srq: bool,
    /// At most [`Rep::PRIVATE_BYTES`] bytes.
    pub private_data: Vec<u8>,
}

/// Something that has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// A peer requests a connection: accept or reject it.
    ConnectRequest {
        /// The new connection.
        connection: ConnectionId,
        /// The peer's address.
        peer: SocketAddr,
        /// The address to which the request was sent.
        local: IpAddr,
        /// The request. Its GIDs are the peer's claim.
        request: Box<Req>,
    },
    /// The peer accepts: prepare the queue pair and confirm, or reject.
    Connected {
        /// The connection.
        connection: ConnectionId,
        /// The reply. Its `qpn` is the peer's queue pair also if that is an XRC target.
        reply: Box<Rep>,
    },
    /// The peer is ready to use an accepted connection.
    Established {
        /// The connection.
        connection: ConnectionId,
        /// The private data of RTU; empty if data came first.
        private_data: Vec<u8>,
    },
    /// The peer rejects the request or the reply, or has given up (`RejectReason::TIMEOUT`).
    Rejected {
        /// The connection, which is over.
        connection: ConnectionId,
        /// Why.
        reason: RejectReason,
        /// The private data of REJ.
        private_data: Vec<u8>,
    },
    /// A connection that was established, or nearly so, is over. The queue pair may be reused after
    /// `TimeWaitExit`.
    Disconnected {
        /// The connection.
        connection: ConnectionId,
        /// The private data of DREQ, DREP or REJ; empty if the peer did not answer.
        private_data: Vec<u8>,
    },
    /// The peer did not answer; the connection or resolution is over.
    TimedOut {
        /// The connection.
        connection: ConnectionId,
    },
    /// No program receives at RoCEv2's port of the peer's address; the connection or resolution is over.
    Unreachable {
        /// The connection.
        connection: ConnectionId,
    },
    /// The last packets of a disconnected connection have left the network.
    TimeWaitExit {
        /// The connection, which is forgotten.
        connection: ConnectionId,
    },
    /// A peer asks for the queue pair of a service: answer or refuse.
    ServiceRequest {
        /// The resolution.
        connection: ConnectionId,
        /// The peer's address.
        peer: SocketAddr,
        /// The address to which the request was sent.
        local: IpAddr,
        /// The request.
        request: Box<SidrReq>,
    },
    /// A peer has answered; the resolution is over.
    ServiceReply {
        /// The resolution.
        connection: ConnectionId,
        /// The reply.
        reply: Box<SidrRep>,
    },
}

/// Why a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CmError {
    /// There is no such connection.
    UnknownConnection,
    /// The state of the connection does not allow the call.
    WrongState,
    /// The private data is too long for the message.
    PrivateData,
    /// A parameter has no valid value, or too many bits.
    Parameter,
    /// A limit of the configuration is reached.
    TooMany,
    /// The service is listened for already.
    InUse,
}

impl fmt::Display for CmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CmError::UnknownConnection => "no such connection: it is over",
            CmError::WrongState => "the state of the connection does not allow this call",
            CmError::PrivateData => "the private data is too long for the message",
            CmError::Parameter => "the service must be RC or UC, and the path MTU's code 1 to 5",
            CmError::TooMany => "too many connections or services: end some, or raise the limit",
            CmError::InUse => "the service id is in use by another listener",
        })
    }
}

impl core::error::Error for CmError {}
