//! RoCEv2: InfiniBand's transport packets in UDP datagrams (IBTA Annex A17).
//!
//! ```text
//! IP | UDP to port 4791 | BTH 12 | extended headers, as the opcode says | payload | pad 0..3 | ICRC 4
//! ```
//!
//! Opcodes    three bits of transport service, five of operation ([`Opcode`]); they decide which extended
//!            headers follow ([`Opcode::headers`]).
//! Headers    [`Packet`] reads and writes all headers of a packet; each header is a struct of its own.
//! ICRC       covers everything from the IP header on, except the fields that routers change ([`icrc`]).
//! Management a MAD ([`MadHeader`]) in a datagram to queue pair 1 sets up connections ([`cm`]).
//! Reserved   bits are written as zero and ignored, but for those by which kiban's ends recognize each other
//!            ([`Bth::selective`]).

mod bth;
pub mod cm;
mod extended;
pub mod icrc;
mod mad;
mod opcode;
mod packet;
mod selective;

pub use bth::{BTH_BYTES, Bth, MULTICAST_QPN, PSN_MASK, QPN_MASK, pad};
pub use extended::{Aeth, AtomicAckEth, AtomicEth, Deth, NakCode, Reth, Syndrome, credits, rnr_timer};
pub use mad::{GSI_QKEY, GSI_QPN, MAD_BYTES, MAD_DATA_BYTES, MadHeader};
pub use opcode::{Headers, Opcode, Operation, Service};
pub use packet::{CNP_RESERVED_BYTES, ICRC_BYTES, Packet};
pub use selective::{BLOCK_PACKETS, SelectiveAck};

/// The UDP destination port of RoCEv2.
pub const PORT: u16 = 4791;
