//! A link through shared memory: two rings between two processes on the same host.
//!
//! Purpose   carry packets between processes without system calls while both are awake.
//! Memory    a [`Channel`] with one ring per direction after its header: first the ring from the caller,
//!           then the ring from the callee.
//! Trust     the layout is fixed by the version and not read from memory. `kiban_base::ring` validates the
//!           contents of the rings.

use kiban_base::ring::{Consumer, Producer, Shape};
use kiban_os::channel::{Channel, FRONT_BYTES, PendingChannel};
use std::io;

/// Number of slots in a ring. This number and [`PACKET_BYTES`] are chosen so that a ring fits into a
/// second-level cache.
const SLOTS: usize = 32;
/// Maximum length of a packet in bytes.
pub const PACKET_BYTES: usize = 8248;

fn shape() -> Shape {
    Shape::new(SLOTS, PACKET_BYTES)
}

/// Returns the offsets of the two rings, and the total size in bytes.
fn layout() -> (usize, usize, usize) {
    let ring = shape().bytes().next_multiple_of(64);
    (FRONT_BYTES, FRONT_BYTES + ring, (FRONT_BYTES + 2 * ring).next_multiple_of(4096))
}

/// Calls another process by its name; `own` is the caller's name, or empty.
///
/// # Errors
/// No process has that name, or it belongs to another user.
pub fn call(name: &[u8], own: &[u8]) -> io::Result<PendingChannel> {
    PendingChannel::connect(name, own, layout().2)
}

/// A link to another process.
#[derive(Debug)]
pub struct ShmLink {
    /// The channel, with the bells and the state of the peer.
    pub channel: Channel,
    /// Packets to the other process.
    pub out: Producer,
    /// Packets from the other process.
    pub into: Consumer,
    /// Number of packets taken since the other side's bell was last rung to report free room.
    taken: usize,
}

impl ShmLink {
    /// Completes the link once the other side has answered; returns `None` before that.
    ///
    /// # Errors
    /// The other side hung up or sent invalid data.
    pub fn complete(half: &mut PendingChannel) -> io::Result<Option<ShmLink>> {
        let (there, back, bytes) = layout();
        let Some(channel) = half.complete(bytes..=bytes)? else { return Ok(None) };
        let (out, into) = if channel.is_caller() { (there, back) } else { (back, there) };
        let out = Producer::new(channel.region(), out, shape());
        let into = Consumer::new(channel.region(), into, shape());
        Ok(Some(ShmLink { channel, out, into, taken: 0 }))
    }

    /// Returns a slot of [`ShmLink::into`].
    #[inline]
    pub fn give_back(&mut self) {
        self.into.release();
        self.taken += 1;
    }

    /// Returns whether enough slots have been freed since the last ring of the peer's bell to ring it again.
    /// If so, resets the count.
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
    use kiban_os::channel::ChannelListener;

    #[test]
    fn packets_cross_both_ways() {
        let name = format!("test-{}-cross", std::process::id()).into_bytes();
        let listener = ChannelListener::open(&name).expect("the name is free");
        let mut caller = call(&name, b"").expect("the door is open");
        let mut callee = listener.try_accept().expect("a caller is waiting");
        let mut two = ShmLink::complete(&mut callee).expect("valid").expect("its hello has arrived");
        let mut one = ShmLink::complete(&mut caller).expect("valid").expect("its hello has arrived");
        for _ in 0..100 {
            for (from, to) in [(&mut one, &mut two)] {
                assert_eq!(from.out.push(b"there"), Ok(true));
                assert_eq!(to.out.push(b"back"), Ok(true));
                for (side, expected) in [(&mut *to, &b"there"[..]), (&mut *from, b"back")] {
                    let mut copy = [0; 8];
                    let length = side.into.peek().expect("valid").expect("there").copy_to(0, &mut copy);
                    assert_eq!(&copy[..length], expected);
                    side.give_back();
                }
            }
        }
    }
}
