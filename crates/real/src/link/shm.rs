//! Shared memory as a link: two rings between two processes of one host.
//!
//! Goal      packets between processes without a system call while both are awake.
//! Memory    a [`Channel`] with a ring for each direction behind its front: first the caller's, then the callee's.
//! Trust     the shape is fixed by the version, not read. What stands in the rings is judged by `kiban_ground::ring`.

use super::channel::{Channel, FRONT_BYTES, Half};
use kiban_ground::ring::{Consumer, Producer, Shape};
use std::io;

/// Slots of a ring, and the longest packet: together they stay within a second-level cache.
const SLOTS: usize = 32;
/// Bytes of the longest packet.
pub const PACKET_BYTES: usize = 8248;

fn shape() -> Shape {
    Shape::new(SLOTS, PACKET_BYTES)
}

/// Where the rings begin, and all bytes together.
fn layout() -> (usize, usize, usize) {
    let ring = shape().bytes().next_multiple_of(64);
    (FRONT_BYTES, FRONT_BYTES + ring, (FRONT_BYTES + 2 * ring).next_multiple_of(4096))
}

/// Calls another process by its name; `own` is the caller's, or nothing.
///
/// # Errors
/// Nobody has that name, or it belongs to another user.
pub fn call(name: &[u8], own: &[u8]) -> io::Result<Half> {
    Half::call(name, own, layout().2)
}

/// A link to another process.
#[derive(Debug)]
pub struct ShmLink {
    /// Bells, and the end.
    pub channel: Channel,
    /// Packets to the other process.
    pub out: Producer,
    /// Packets from it.
    pub into: Consumer,
    /// Packets taken since the other side was last rung for their room.
    taken: usize,
}

impl ShmLink {
    /// The link, once the other side has spoken; nothing before that.
    ///
    /// # Errors
    /// It hung up, or said what is not understood.
    pub fn complete(half: &mut Half) -> io::Result<Option<ShmLink>> {
        let (there, back, bytes) = layout();
        let Some(channel) = half.complete(bytes..=bytes)? else { return Ok(None) };
        let (out, into) = if channel.is_caller() { (there, back) } else { (back, there) };
        let out = Producer::new(channel.region(), out, shape());
        let into = Consumer::new(channel.region(), into, shape());
        Ok(Some(ShmLink { channel, out, into, taken: 0 }))
    }

    /// Gives a slot of [`ShmLink::into`] back.
    #[inline]
    pub fn give_back(&mut self) {
        self.into.give_back();
        self.taken += 1;
    }

    /// Whether so much has been taken that the other side should hear of its room.
    #[inline]
    pub fn taken_since_rung(&mut self) -> bool {
        let enough = self.taken >= SLOTS / 4;
        if enough {
            self.taken = 0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::channel::Door;

    #[test]
    fn packets_cross_both_ways() {
        let name = format!("test-{}-cross", std::process::id()).into_bytes();
        let door = Door::open(&name).expect("the name is free");
        let mut caller = call(&name, b"").expect("the door is open");
        let mut callee = door.caller().expect("somebody calls");
        let mut two = ShmLink::complete(&mut callee).expect("decent").expect("its hello is here");
        let mut one = ShmLink::complete(&mut caller).expect("decent").expect("its hello is here");
        for _ in 0..100 {
            for (from, to) in [(&mut one, &mut two)] {
                assert_eq!(from.out.push(b"there"), Ok(true));
                assert_eq!(to.out.push(b"back"), Ok(true));
                for (side, expected) in [(&mut *to, &b"there"[..]), (&mut *from, b"back")] {
                    let mut copy = [0; 8];
                    let length = side.into.peek().expect("decent").expect("there").copy_to(0, &mut copy);
                    assert_eq!(&copy[..length], expected);
                    side.give_back();
                }
            }
        }
    }
}
