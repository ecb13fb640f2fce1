//! RoCEv2's part of the work executor: the transport layer of InfiniBand (IBTA volume 1 §9.7 and §9.8).
//!
//! ```text
//! requester   sends the messages of the send queue packet by packet, goes back when packets are lost
//! responder   executes requests in the order of their PSNs, acknowledges them, answers reads and atomics
//! xrc         which shared receive queue a request of an extended reliable connection uses
//! ```

pub(in super::super) mod requester;
pub(in super::super) mod responder;
mod xrc;

use crate::wire::roce::Packet;
use alloc::vec::Vec;

/// Maximum length of a message in bytes (IBTA volume 1 §9.7.6).
const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// Appends the pad, which fills the payload up to a multiple of four.
fn finish(packet: &Packet, room: &mut Vec<u8>) {
    room.resize(room.len() + usize::from(packet.bth.pad), 0);
}
