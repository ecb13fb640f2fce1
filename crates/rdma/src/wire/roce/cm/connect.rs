//! Messages about a connection (IBTA volume 1 §12.6).
//!
//! ```text
//! REQ    0 local id 32 | reserved 32 | 8 service id 64 | 16 local CA GUID 64 | 24 reserved 32
//!       28 local Q_Key 32 | 32 local queue pair 24 | responder resources 8
//!       36 local EE context 24 | initiator depth 8
//!       40 remote EE context 24 | remote response timeout 5 | service type 2 | flow control 1
//!       44 starting PSN 24 | local response timeout 5 | retry count 3
//!       48 P_Key 16 | MTU 4 | RDC exists 1 | RNR retry count 3 | max CM retries 4 | SRQ 1 | extended type 3
//!       52 primary path 352 | 96 alternate path 352 | 140 private data
//! path   0 local LID 16 | remote LID 16 | 4 local GID 128 | 20 remote GID 128
//!       36 flow label 20 | reserved 6 | packet rate 6
//!       40 traffic class 8 | hop limit 8 | SL 4 | subnet local 1 | reserved 3 | ACK timeout 5 | reserved 3
//! REP    0 local id 32 | 4 remote id 32 | 8 local Q_Key 32 | 12 local queue pair 24 | reserved 8
//!       16 local EE context 24 | reserved 8 | 20 starting PSN 24 | reserved 8
//!       24 responder resources 8 | initiator depth 8 | ACK delay 5 | failover 2 | flow control 1
//!       27 RNR retry count 3 | SRQ 1 | reserved 4 | 28 local CA GUID 64 | 36 private data
//! MRA    0 local id 32 | 4 remote id 32 | 8 message 2 | reserved 6 | service timeout 5 | reserved 3
//!       10 private data
//! REJ    0 local id 32 | 4 remote id 32 | 8 message 2 | reserved 6 | information length 7 | reserved 1
//!       10 reason 16 | 12 information 576 | 84 private data
//! RTU    0 local id 32 | 4 remote id 32 | 8 private data
//! DREQ   0 local id 32 | 4 remote id 32 | 8 remote queue pair 24 | reserved 8 | 12 private data
//! DREP   0 local id 32 | 4 remote id 32 | 8 private data
//! ```

use super::super::bth::{PSN_MASK, QPN_MASK};
use super::super::mad::{MAD_DATA_BYTES, long, octets, short, word};
use core::fmt;
use core::net::Ipv6Addr;
use kiban_base::Malformed;

/// Length of the additional information of REJ and SIDR_REP in bytes.
pub(super) const INFORMATION_BYTES: usize = 72;
/// The bits of a flow label.
const FLOW_LABEL_MASK: u32 = 0x000f_ffff;
/// Where REQ's primary path begins, and its length.
const PATH: usize = 52;
const PATH_BYTES: usize = 44;

type Data = [u8; MAD_DATA_BYTES];

/// The transport service of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum ServiceType {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Reliable datagram.
    Rd = 2,
    /// As the extended transport type says ([`Req::XRC`]).
    Extended = 3,
}

/// The path of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrimaryPath {
    /// Local identifiers do not exist in RoCE: Linux writes 0xffff.
    pub local_lid: u16,
    /// See `local_lid`.
    pub remote_lid: u16,
    /// The GID of the sender.
    pub local_gid: Ipv6Addr,
    /// The GID of the receiver.
    pub remote_gid: Ipv6Addr,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// The code of a packet rate, 6 bits; 0: that of the port.
    pub packet_rate: u8,
    /// The traffic class (IPv4's TOS).
    pub traffic_class: u8,
    /// The hop limit (IPv4's TTL).
    pub hop_limit: u8,
    /// The service level, 4 bits.
    pub sl: u8,
    /// Whether both ends are in one subnet.
    pub is_subnet_local: bool,
    /// The code of the time within which a packet is acknowledged, 5 bits.
    pub ack_timeout: u8,
}

/// Requests a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Req {
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The service.
    pub service_id: u64,
    /// The GUID of the sender's channel adapter.
    pub ca_guid: u64,
    /// The Q_Key of the sender's queue pair (reliable datagrams only).
    pub qkey: u32,
    /// The sender's queue pair, 24 bits.
    pub qpn: u32,
    /// Maximum number of reads and atomics that the sender can respond to at a time.
    pub responder_resources: u8,
    /// Maximum number of reads and atomics that the sender will have outstanding.
    pub initiator_depth: u8,
    /// The code of the time within which the receiver of REQ should answer, 5 bits.
    pub remote_response_timeout: u8,
    /// The transport service.
    pub service: ServiceType,
    /// Whether the sender counts credits.
    pub flow_control: bool,
    /// The PSN of the first packet that the receiver of this message sends, 24 bits (IBTA volume 1 §12.7).
    pub psn: u32,
    /// The code of the time within which the sender of REQ answers, 5 bits.
    pub local_response_timeout: u8,
    /// How often the receiver shall retransmit packets, 3 bits.
    pub retry_count: u8,
    /// The partition key.
    pub pkey: u16,
    /// The code of the path MTU, 4 bits ([`super::mtu_bytes`]).
    pub mtu: u8,
    /// Whether reliable datagrams have a channel (RDC).
    pub rdc_exists: bool,
    /// How often the receiver shall retransmit packets after an RNR NAK, 3 bits; 7: without limit.
    pub rnr_retry_count: u8,
    /// How often either side retransmits a message of communication management, 4 bits.
    pub max_cm_retries: u8,
    /// Whether the sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// The extended transport type, 3 bits.
    pub extended_type: u8,
    /// The path.
    pub path: PrimaryPath,
    /// The consumer's.
    pub private_data: [u8; Req::PRIVATE_BYTES],
}

/// Accepts a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rep {
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The communication id of the REQ.
    pub remote_comm_id: u32,
    /// The Q_Key of the sender's queue pair (reliable datagrams only).
    pub qkey: u32,
    /// The sender's queue pair, 24 bits; 0 for XRC.
    pub qpn: u32,
    /// For XRC, the sender's target queue pair, 24 bits; for reliable datagrams, its EE context.
    pub ee_context: u32,
    /// The PSN of the first packet that the receiver of this message sends, 24 bits (IBTA volume 1 §12.7).
    pub psn: u32,
    /// Maximum number of reads and atomics that the sender can respond to at a time.
    pub responder_resources: u8,
    /// Maximum number of reads and atomics that the sender will have outstanding.
    pub initiator_depth: u8,
    /// The code of the delay of the sender's acknowledgements, 5 bits.
    pub target_ack_delay: u8,
    /// Whether the alternate path is accepted: 0 yes, 1 not supported, 2 rejected.
    pub failover: u8,
    /// Whether the sender counts credits.
    pub flow_control: bool,
    /// How often the receiver shall retransmit packets after an RNR NAK, 3 bits; 7: without limit.
    pub rnr_retry_count: u8,
    /// Whether the sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// The GUID of the sender's channel adapter.
    pub ca_guid: u64,
    /// The consumer's.
    pub private_data: [u8; Rep::PRIVATE_BYTES],
}

/// The message that a REJ rejects or an MRA acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum RejectedMessage {
    /// A REQ.
    Req = 0,
    /// A REP.
    Rep = 1,
    /// In a REJ, no message; in an MRA, a LAP.
    Other = 2,
}

/// Asks the peer to wait longer for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mra {
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The receiver's communication id.
    pub remote_comm_id: u32,
    /// The message that was received.
    pub message: RejectedMessage,
    /// The code of the time that the sender needs, 5 bits.
    pub service_timeout: u8,
    /// The consumer's.
    pub private_data: [u8; Mra::PRIVATE_BYTES],
}

/// Refuses a request or a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rej {
    /// The sender's communication id; 0 if it has none.
    pub local_comm_id: u32,
    /// The receiver's communication id; 0 if it is unknown.
    pub remote_comm_id: u32,
    /// The message that is rejected.
    pub message: RejectedMessage,
    /// Number of valid bytes in `information`.
    pub information_bytes: u8,
    /// Why.
    pub reason: RejectReason,
    /// Additional information, as the reason says.
    pub information: [u8; INFORMATION_BYTES],
    /// The consumer's.
    pub private_data: [u8; Rej::PRIVATE_BYTES],
}

/// Confirms a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rtu {
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The receiver's communication id.
    pub remote_comm_id: u32,
    /// The consumer's.
    pub private_data: [u8; Rtu::PRIVATE_BYTES],
}

/// Ends a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dreq {
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The receiver's communication id.
    pub remote_comm_id: u32,
    /// The receiver's queue pair, 24 bits.
    pub remote_qpn: u32,
    /// The consumer's.
    pub private_data: [u8; Dreq::PRIVATE_BYTES],
}

/// Confirms the end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drep {
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The receiver's communication id.
    pub remote_comm_id: u32,
    /// The consumer's.
    pub private_data: [u8; Drep::PRIVATE_BYTES],
}

/// Why a request or a reply is rejected (IBTA volume 1 §12.6.7.2, table 109).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RejectReason(pub u16);

/// Declares each reason once: name, code, text.
macro_rules! reasons {
    ($($name:ident, $code:literal, $text:literal;)*) => {
        impl RejectReason {
            $(#[doc = concat!($text, ".")] pub const $name: RejectReason = RejectReason($code);)*
        }

        impl fmt::Display for RejectReason {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($code => f.write_str($text),)*
                    code => write!(f, "reject reason {code}"),
                }
            }
        }
    };
}

reasons! {
    NO_QP, 1, "no queue pair available";
    NO_EEC, 2, "no EE context available";
    NO_RESOURCES, 3, "no resources available";
    TIMEOUT, 4, "timeout";
    UNSUPPORTED, 5, "unsupported request";
    INVALID_COMM_ID, 6, "invalid communication id";
    INVALID_COMM_INSTANCE, 7, "invalid communication instance";
    INVALID_SERVICE_ID, 8, "invalid service id";
    INVALID_SERVICE_TYPE, 9, "invalid transport service type";
    STALE_CONNECTION, 10, "stale connection";
    NO_RDC, 11, "RDC does not exist";
    INVALID_GID, 12, "primary remote port GID rejected";
    INVALID_LID, 13, "primary remote port LID rejected";
    INVALID_SL, 14, "invalid primary service level";
    INVALID_TRAFFIC_CLASS, 15, "invalid primary traffic class";
    INVALID_HOP_LIMIT, 16, "invalid primary hop limit";
    INVALID_PACKET_RATE, 17, "invalid primary packet rate";
    INVALID_ALTERNATE_GID, 18, "alternate remote port GID rejected";
    INVALID_ALTERNATE_LID, 19, "alternate remote port LID rejected";
    INVALID_ALTERNATE_SL, 20, "invalid alternate service level";
    INVALID_ALTERNATE_TRAFFIC_CLASS, 21, "invalid alternate traffic class";
    INVALID_ALTERNATE_HOP_LIMIT, 22, "invalid alternate hop limit";
    INVALID_ALTERNATE_PACKET_RATE, 23, "invalid alternate packet rate";
    PORT_CM_REDIRECT, 24, "port and CM redirection";
    PORT_REDIRECT, 25, "port redirection";
    INVALID_MTU, 26, "invalid path MTU";
    INSUFFICIENT_RESPONDER_RESOURCES, 27, "insufficient responder resources";
    CONSUMER, 28, "rejected by the consumer";
    INVALID_RNR_RETRY, 29, "RNR retry count rejected";
    DUPLICATE_COMM_ID, 30, "duplicate local communication id";
    INVALID_CLASS_VERSION, 31, "invalid class version";
    INVALID_FLOW_LABEL, 32, "invalid primary flow label";
    INVALID_ALTERNATE_FLOW_LABEL, 33, "invalid alternate flow label";
}

fn number24(bytes: &Data, at: usize) -> u32 {
    u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
}

fn put(bytes: &mut Data, at: usize, octets: &[u8]) {
    bytes[at..at + octets.len()].copy_from_slice(octets);
}

/// Writes the low 24 bits of a number.
fn put24(bytes: &mut Data, at: usize, number: u32) {
    put(bytes, at, &number.to_be_bytes()[1..]);
}

impl RejectedMessage {
    fn read(bytes: &Data) -> Result<RejectedMessage, Malformed> {
        match bytes[8] >> 6 {
            0 => Ok(RejectedMessage::Req),
            1 => Ok(RejectedMessage::Rep),
            2 => Ok(RejectedMessage::Other),
            _ => Err(Malformed::ParameterValue),
        }
    }
}

impl PrimaryPath {
    fn read(bytes: &Data) -> PrimaryPath {
        let path: [u8; PATH_BYTES] = octets(bytes, PATH);
        PrimaryPath {
            local_lid: short(&path, 0),
            remote_lid: short(&path, 2),
            local_gid: octets::<16>(&path, 4).into(),
            remote_gid: octets::<16>(&path, 20).into(),
            flow_label: word(&path, 36) >> 12,
            packet_rate: path[39] & 0x3f,
            traffic_class: path[40],
            hop_limit: path[41],
            sl: path[42] >> 4,
            is_subnet_local: path[42] & 8 != 0,
            ack_timeout: path[43] >> 3,
        }
    }

    fn write(&self, bytes: &mut Data) {
        put(bytes, PATH, &self.local_lid.to_be_bytes());
        put(bytes, PATH + 2, &self.remote_lid.to_be_bytes());
        put(bytes, PATH + 4, &self.local_gid.octets());
        put(bytes, PATH + 20, &self.remote_gid.octets());
        let label_and_rate = (self.flow_label & FLOW_LABEL_MASK) << 12 | u32::from(self.packet_rate & 0x3f);
        put(bytes, PATH + 36, &label_and_rate.to_be_bytes());
        let sl = self.sl << 4 | u8::from(self.is_subnet_local) << 3;
        put(bytes, PATH + 40, &[self.traffic_class, self.hop_limit, sl, self.ack_timeout << 3]);
    }
}

impl Req {
    /// Length of the private data in bytes.
    pub const PRIVATE_BYTES: usize = 92;
    /// The extended transport type of XRC (IBTA volume 1, Annex A14).
    pub const XRC: u8 = 1;

    /// Returns whether an XRC initiator asks for a target.
    pub const fn is_xrc(&self) -> bool {
        matches!(self.service, ServiceType::Extended) && self.extended_type == Req::XRC
    }

    /// Decodes the data of a MAD.
    ///
    /// # Errors
    /// None: a receiver answers invalid values with a REJ.
    pub fn read(bytes: &Data) -> Result<Req, Malformed> {
        Ok(Req {
            local_comm_id: word(bytes, 0),
            service_id: long(bytes, 8),
            ca_guid: long(bytes, 16),
            qkey: word(bytes, 28),
            qpn: number24(bytes, 32),
            responder_resources: bytes[35],
            initiator_depth: bytes[39],
            remote_response_timeout: bytes[43] >> 3,
            service: match bytes[43] >> 1 & 3 {
                0 => ServiceType::Rc,
                1 => ServiceType::Uc,
                2 => ServiceType::Rd,
                _ => ServiceType::Extended,
            },
            flow_control: bytes[43] & 1 != 0,
            psn: number24(bytes, 44),
            local_response_timeout: bytes[47] >> 3,
            retry_count: bytes[47] & 7,
            pkey: short(bytes, 48),
            mtu: bytes[50] >> 4,
            rdc_exists: bytes[50] & 8 != 0,
            rnr_retry_count: bytes[50] & 7,
            max_cm_retries: bytes[51] >> 4,
            srq: bytes[51] & 8 != 0,
            extended_type: bytes[51] & 7,
            path: PrimaryPath::read(bytes),
            private_data: octets(bytes, 140),
        })
    }

    /// Writes the data of a MAD. Only the bits that a field has are written.
    pub fn write(&self, bytes: &mut Data) {
        bytes.fill(0);
        put(bytes, 0, &self.local_comm_id.to_be_bytes());
        put(bytes, 8, &self.service_id.to_be_bytes());
        put(bytes, 16, &self.ca_guid.to_be_bytes());
        put(bytes, 28, &self.qkey.to_be_bytes());
        put24(bytes, 32, self.qpn & QPN_MASK);
        bytes[35] = self.responder_resources;
        bytes[39] = self.initiator_depth;
        bytes[43] =
            self.remote_response_timeout << 3 | (self.service as u8) << 1 | u8::from(self.flow_control);
        put24(bytes, 44, self.psn & PSN_MASK);
        bytes[47] = self.local_response_timeout << 3 | self.retry_count & 7;
        put(bytes, 48, &self.pkey.to_be_bytes());
        bytes[50] = self.mtu << 4 | u8::from(self.rdc_exists) << 3 | self.rnr_retry_count & 7;
        bytes[51] = self.max_cm_retries << 4 | u8::from(self.srq) << 3 | self.extended_type & 7;
        self.path.write(bytes);
        put(bytes, 140, &self.private_data);
    }
}

impl Rep {
    /// Length of the private data in bytes.
    pub const PRIVATE_BYTES: usize = 196;

    /// Decodes the data of a MAD.
    ///
    /// # Errors
    /// None: every value is valid.
    pub fn read(bytes: &Data) -> Result<Rep, Malformed> {
        Ok(Rep {
            local_comm_id: word(bytes, 0),
            remote_comm_id: word(bytes, 4),
            qkey: word(bytes, 8),
            qpn: number24(bytes, 12),
            ee_context: number24(bytes, 16),
            psn: number24(bytes, 20),
            responder_resources: bytes[24],
            initiator_depth: bytes[25],
            target_ack_delay: bytes[26] >> 3,
            failover: bytes[26] >> 1 & 3,
            flow_control: bytes[26] & 1 != 0,
            rnr_retry_count: bytes[27] >> 5,
            srq: bytes[27] & 0x10 != 0,
            ca_guid: long(bytes, 28),
            private_data: octets(bytes, 36),
        })
    }

    /// Writes the data of a MAD. Only the bits that a field has are written.
    pub fn write(&self, bytes: &mut Data) {
        bytes.fill(0);
        put(bytes, 0, &self.local_comm_id.to_be_bytes());
        put(bytes, 4, &self.remote_comm_id.to_be_bytes());
        put(bytes, 8, &self.qkey.to_be_bytes());
        put24(bytes, 12, self.qpn & QPN_MASK);
        put24(bytes, 16, self.ee_context & QPN_MASK);
        put24(bytes, 20, self.psn & PSN_MASK);
        bytes[24] = self.responder_resources;
        bytes[25] = self.initiator_depth;
        bytes[26] = self.target_ack_delay << 3 | (self.failover & 3) << 1 | u8::from(self.flow_control);
        bytes[27] = self.rnr_retry_count << 5 | u8::from(self.srq) << 4;
        put(bytes, 28, &self.ca_guid.to_be_bytes());
        put(bytes, 36, &self.private_data);
    }
}

impl Mra {
    /// Length of the private data in bytes.
    pub const PRIVATE_BYTES: usize = 222;

    /// Decodes the data of a MAD.
    ///
    /// # Errors
    /// `ParameterValue` for a reserved message code.
    pub fn read(bytes: &Data) -> Result<Mra, Malformed> {
        Ok(Mra {
            local_comm_id: word(bytes, 0),
            remote_comm_id: word(bytes, 4),
            message: RejectedMessage::read(bytes)?,
            service_timeout: bytes[9] >> 3,
            private_data: octets(bytes, 10),
        })
    }

    /// Writes the data of a MAD.
    pub fn write(&self, bytes: &mut Data) {
        bytes.fill(0);
        put(bytes, 0, &self.local_comm_id.to_be_bytes());
        put(bytes, 4, &self.remote_comm_id.to_be_bytes());
        bytes[8] = (self.message as u8) << 6;
        bytes[9] = self.service_timeout << 3;
        put(bytes, 10, &self.private_data);
    }
}

impl Rej {
    /// Length of the private data in bytes.
    pub const PRIVATE_BYTES: usize = 148;

    /// Decodes the data of a MAD.
    ///
    /// # Errors
    /// `ParameterValue` for a reserved message code; `ParameterLength` if the information is longer than its
    /// field.
    pub fn read(bytes: &Data) -> Result<Rej, Malformed> {
        let information_bytes = bytes[9] >> 1;
        if usize::from(information_bytes) > INFORMATION_BYTES {
            return Err(Malformed::ParameterLength);
        }
        Ok(Rej {
            local_comm_id: word(bytes, 0),
            remote_comm_id: word(bytes, 4),
            message: RejectedMessage::read(bytes)?,
            information_bytes,
            reason: RejectReason(short(bytes, 10)),
            information: octets(bytes, 12),
            private_data: octets(bytes, 84),
        })
    }

    /// Writes the data of a MAD.
    pub fn write(&self, bytes: &mut Data) {
        bytes.fill(0);
        put(bytes, 0, &self.local_comm_id.to_be_bytes());
        put(bytes, 4, &self.remote_comm_id.to_be_bytes());
        bytes[8] = (self.message as u8) << 6;
        bytes[9] = self.information_bytes << 1;
        put(bytes, 10, &self.reason.0.to_be_bytes());
        put(bytes, 12, &self.information);
        put(bytes, 84, &self.private_data);
    }
}

impl Rtu {
    /// Length of the private data in bytes.
    pub const PRIVATE_BYTES: usize = 224;

    /// Decodes the data of a MAD.
    ///
    /// # Errors
    /// None: every value is valid.
    pub fn read(bytes: &Data) -> Result<Rtu, Malformed> {
        Ok(Rtu {
            local_comm_id: word(bytes, 0),
            remote_comm_id: word(bytes, 4),
            private_data: octets(bytes, 8),
        })
    }

    /// Writes the data of a MAD.
    pub fn write(&self, bytes: &mut Data) {
        put(bytes, 0, &self.local_comm_id.to_be_bytes());
        put(bytes, 4, &self.remote_comm_id.to_be_bytes());
        put(bytes, 8, &self.private_data);
    }
}

impl Dreq {
    /// Length of the private data in bytes.
    pub const PRIVATE_BYTES: usize = 220;

    /// Decodes the data of a MAD.
    ///
    /// # Errors
    /// None: every value is valid.
    pub fn read(bytes: &Data) -> Result<Dreq, Malformed> {
        Ok(Dreq {
            local_comm_id: word(bytes, 0),
            remote_comm_id: word(bytes, 4),
            remote_qpn: number24(bytes, 8),
            private_data: octets(bytes, 12),
        })
    }

    /// Writes the data of a MAD. Only the low 24 bits of the queue pair number are written.
    pub fn write(&self, bytes: &mut Data) {
        bytes.fill(0);
        put(bytes, 0, &self.local_comm_id.to_be_bytes());
        put(bytes, 4, &self.remote_comm_id.to_be_bytes());
        put24(bytes, 8, self.remote_qpn & QPN_MASK);
        put(bytes, 12, &self.private_data);
    }
}

impl Drep {
    /// Length of the private data in bytes.
    pub const PRIVATE_BYTES: usize = 224;

    /// Decodes the data of a MAD.
    ///
    /// # Errors
    /// None: every value is valid.
    pub fn read(bytes: &Data) -> Result<Drep, Malformed> {
        let Rtu { local_comm_id, remote_comm_id, private_data } = Rtu::read(bytes)?;
        Ok(Drep { local_comm_id, remote_comm_id, private_data })
    }

    /// Writes the data of a MAD.
    pub fn write(&self, bytes: &mut Data) {
        let Drep { local_comm_id, remote_comm_id, private_data } = *self;
        Rtu { local_comm_id, remote_comm_id, private_data }.write(bytes);
    }
}
