//! Messages of InfiniBand's communication management (IBTA volume 1 §12.6 and §12.11), each in one MAD.
//!
//! ```text
//!  active side                     passive side       active side                 passive side
//!      | ---------- REQ ---------------> |                | ------ SIDR_REQ -------> |
//!      | <--------- MRA (wait longer) -- |                | <----- SIDR_REP -------- |
//!      | <--------- REP ---------------- |
//!      | ---------- RTU ---------------> |            either side ends a connection: DREQ, DREP
//!      |      either: REJ (refused)      |
//! ```
//!
//! Identifiers    each side chooses a communication id; all messages but REQ name both.
//! Private data   the rest of the MAD belongs to the consumer, zero-filled. RDMA-CM puts an [`IpCm`] in front
//!                of REQ's and SIDR_REQ's.
//! Timeouts       5-bit codes: 4.096 us times 2 to the power of the code ([`timeout`]).
//! XRC            a REQ names an initiator, a REP a target, in the field of its EE context (Annex A14).
//! Reserved       bits, the alternate path and the fields of reliable datagrams (EE contexts in REQ) are
//!                written as zero and ignored.
//! Not read       LAP and APR (path migration).

mod codes;
mod connect;
mod ip;
mod message;
mod service;

pub use codes::{gid, mtu_bytes, mtu_code, timeout};
pub use connect::{
    Drep, Dreq, Mra, PrimaryPath, Rej, RejectReason, RejectedMessage, Rep, Req, Rtu, ServiceType,
};
pub use ip::{IpCm, PortSpace};
pub use message::Message;
pub use service::{SidrRep, SidrReq, SidrStatus};
