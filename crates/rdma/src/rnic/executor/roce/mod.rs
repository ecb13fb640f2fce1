//! RoCEv2's part of the work executor: the transport layer of InfiniBand (IBTA volume 1 §9.7 and §9.8).
//!
//! ```text
//! requester   sends the messages of the send queue packet by packet, goes back when packets are lost
//! responder   executes requests in the order of their PSNs, acknowledges them, answers reads and atomics
//! ```

pub(in super::super) mod requester;
pub(in super::super) mod responder;

use crate::wire::roce::Packet;
use alloc::vec::Vec;

/// Maximum length of a message in bytes (IBTA volume 1 §9.7.6).
const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// Writes the headers of a packet and makes room for its payload of `payload_bytes`.
fn begin(packet: &Packet, room: &mut Vec<u8>) {
    room.clear();
    room.resize(packet.length(), 0);
    packet.write(room);
}

/// Returns the number of bytes that fill a payload up to a multiple of four.
const fn pad(payload_bytes: usize) -> u8 {
    (payload_bytes.wrapping_neg() % 4) as u8
}

/// Fills the payload up to a multiple of four.
fn finish(packet: &Packet, room: &mut Vec<u8>) {
    room.resize(room.len() + usize::from(packet.bth.pad), 0);
}
