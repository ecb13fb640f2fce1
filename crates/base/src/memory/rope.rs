//! Ropes: service data units of any length, made of shared pieces (paper \[5\], point 1).
//!
//! Purpose   layers add and remove headers, cut, join and retransmit without touching payload.
//! Head      bytes owned by this rope, in front of the body; headers grow downwards into reserved room.
//! Body      read-only shared pieces ([`Bytes`]), each a run of a file, of data from a socket, or of a
//!           content page. Cloning a rope increments reference counts; only its head is copied. The first
//!           piece is stored in the rope itself, so a rope of one piece (the usual case) needs no allocation.
//! Limits    the head holds [`ROOM_BYTES`]; a header that does not fit becomes a piece. The creator of a rope
//!           bounds its length and number of pieces.
//! See also  [`crate::Pdu`], which is for packets: it is pooled and bounded, and has Internet checksums. A
//!           rope is for the layers above, and may be megabytes long.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;

/// Room for headers in front of a rope, in bytes.
pub const ROOM_BYTES: usize = 39;
/// Short pieces are joined until a piece reaches this length in bytes.
const GATHER_BYTES: usize = 4096;

/// A byte string made of shared pieces.
#[derive(Clone, Default)]
pub struct Rope {
    head: Head,
    /// The first piece; empty when there is none.
    first: Bytes,
    /// The remaining pieces.
    rest: VecDeque<Bytes>,
    body_bytes: usize,
}

/// The headers, which end at the end of `room`.
#[derive(Clone)]
struct Head {
    room: [u8; ROOM_BYTES],
    start: u8,
}

impl Default for Head {
    fn default() -> Head {
        Head { room: [0; ROOM_BYTES], start: ROOM_BYTES as u8 }
    }
}

impl Head {
    fn bytes(&self) -> &[u8] {
        &self.room[usize::from(self.start)..]
    }

    fn put_in_front(&mut self, bytes: &[u8]) -> bool {
        let Some(start) = usize::from(self.start).checked_sub(bytes.len()) else { return false };
        self.room[start..start + bytes.len()].copy_from_slice(bytes);
        self.start = start as u8;
        true
    }

    fn skip(&mut self, count: usize) {
        self.start += count as u8;
    }

    fn take(&mut self) -> Head {
        core::mem::take(self)
    }
}

impl Rope {
    /// Creates an empty rope.
    pub fn new() -> Rope {
        Rope::default()
    }

    /// Creates a rope with a copy of `bytes`.
    pub fn copied(bytes: &[u8]) -> Rope {
        let mut rope = Rope::new();
        rope.prepend(bytes);
        rope
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.head.bytes().len() + self.body_bytes
    }

    /// Returns whether the rope is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Prepends a header by copying it.
    pub fn prepend(&mut self, header: &[u8]) {
        if self.head.put_in_front(header) {
            return;
        }
        self.settle_head();
        if !self.head.put_in_front(header) {
            self.push_front(Bytes::copy_from_slice(header));
        }
    }

    /// Appends a piece by reference.
    pub fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        self.body_bytes += piece.len();
        if self.first.is_empty() {
            self.first = piece;
        } else {
            self.rest.push_back(piece);
        }
    }

    /// Appends a copy of a short piece. If the last piece is short too, the two are merged, so that not every
    /// short piece needs an allocation.
    pub fn push_short(&mut self, piece: &[u8]) {
        let last = self.rest.pop_back().unwrap_or_else(|| core::mem::take(&mut self.first));
        self.body_bytes -= last.len();
        let last = if last.len() < GATHER_BYTES { last.try_into_mut() } else { Err(last) };
        match last {
            Ok(mut last) => {
                last.extend_from_slice(piece);
                self.push(last.freeze());
            }
            // The last piece is shared, long enough, or absent.
            Err(last) => {
                self.push(last);
                self.push(Bytes::copy_from_slice(piece));
            }
        }
    }

    /// Appends another rope. Its head is copied into a piece unless `self` is empty.
    pub fn append(&mut self, mut other: Rope) {
        if self.is_empty() {
            *self = other;
            return;
        }
        other.settle_head();
        let rest_bytes = other.body_bytes - other.first.len();
        self.push(other.first);
        self.rest.append(&mut other.rest);
        self.body_bytes += rest_bytes;
    }

    /// Splits off and returns the first `count` bytes.
    ///
    /// # Panics
    /// If there are fewer than `count` bytes.
    pub fn split_to(&mut self, mut count: usize) -> Rope {
        assert!(count <= self.len(), "the first {count} of {} bytes", self.len());
        let mut front = Rope::new();
        let head = self.head.bytes().len();
        if count < head {
            front.prepend(&self.head.bytes()[..count]);
            self.head.skip(count);
            return front;
        }
        front.head = self.head.take();
        count -= head;
        while count > 0 {
            let piece = if self.first.len() <= count { self.pop() } else { self.first.split_to(count) };
            count -= piece.len();
            self.body_bytes -= piece.len();
            front.push(piece);
        }
        front
    }

    /// Drops the first `count` bytes.
    ///
    /// # Panics
    /// If there are fewer than `count` bytes.
    pub fn skip(&mut self, mut count: usize) {
        assert!(count <= self.len(), "{count} of {} bytes", self.len());
        let of_head = count.min(self.head.bytes().len());
        self.head.skip(of_head);
        count -= of_head;
        self.body_bytes -= count;
        while count > 0 {
            let of_piece = count.min(self.first.len());
            if of_piece == self.first.len() {
                self.pop();
            } else {
                bytes::Buf::advance(&mut self.first, of_piece);
            }
            count -= of_piece;
        }
    }

    /// Copies bytes from offset `at` into `target` and returns how many were copied.
    pub fn copy_to(&self, mut at: usize, target: &mut [u8]) -> usize {
        let mut copied = 0;
        for run in self.runs() {
            if at >= run.len() {
                at -= run.len();
                continue;
            }
            let count = (run.len() - at).min(target.len() - copied);
            target[copied..copied + count].copy_from_slice(&run[at..at + count]);
            copied += count;
            at = 0;
            if copied == target.len() {
                break;
            }
        }
        copied
    }

    /// Returns the first contiguous run; a header nearly always lies within it.
    pub fn first_run(&self) -> &[u8] {
        match self.head.bytes() {
            [] => &self.first,
            head => head,
        }
    }

    /// Iterates over the contiguous runs, for one gathering write.
    pub fn runs(&self) -> impl Iterator<Item = &[u8]> {
        let head = self.head.bytes();
        let one = [head, &self.first].into_iter().filter(|run| !run.is_empty());
        one.chain(self.rest.iter().map(|piece| &piece[..]))
    }

    /// Converts the rope into its pieces; a non-empty head is copied into the first.
    pub fn into_pieces(mut self) -> impl Iterator<Item = Bytes> {
        self.settle_head();
        (!self.first.is_empty()).then_some(self.first).into_iter().chain(self.rest)
    }

    /// Returns all bytes as one piece, by reference if they are contiguous, otherwise by copying.
    pub fn into_bytes(self) -> Bytes {
        if self.head.bytes().is_empty() && self.rest.is_empty() {
            return self.first;
        }
        self.to_vec().into()
    }

    /// Copies all bytes into a vector.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        self.runs().for_each(|run| all.extend_from_slice(run));
        all
    }

    /// Turns the head into the first piece.
    fn settle_head(&mut self) {
        let head = self.head.take();
        if !head.bytes().is_empty() {
            self.push_front(Bytes::copy_from_slice(head.bytes()));
        }
    }

    fn push_front(&mut self, piece: Bytes) {
        self.body_bytes += piece.len();
        let second = core::mem::replace(&mut self.first, piece);
        if !second.is_empty() {
            self.rest.push_front(second);
        }
    }

    /// Removes the first piece; `body_bytes` still counts it.
    fn pop(&mut self) -> Bytes {
        core::mem::replace(&mut self.first, self.rest.pop_front().unwrap_or_default())
    }
}

impl From<Bytes> for Rope {
    fn from(piece: Bytes) -> Rope {
        let mut rope = Rope::new();
        rope.push(piece);
        rope
    }
}

impl From<Vec<u8>> for Rope {
    fn from(bytes: Vec<u8>) -> Rope {
        Bytes::from(bytes).into()
    }
}

impl PartialEq for Rope {
    fn eq(&self, other: &Rope) -> bool {
        self.len() == other.len() && self.runs().flatten().eq(other.runs().flatten())
    }
}

impl Eq for Rope {}

impl fmt::Debug for Rope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rope({} bytes in {} runs)", self.len(), self.runs().count())
    }
}

/// A FIFO of ropes; any number of bytes can be removed from its front.
#[derive(Clone, Default, Debug)]
pub struct RopeQueue {
    ropes: VecDeque<Rope>,
    bytes: usize,
}

impl RopeQueue {
    /// Creates an empty queue.
    pub fn new() -> RopeQueue {
        RopeQueue::default()
    }

    /// Returns the number of queued bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether the queue is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends a rope; an empty one is dropped.
    pub fn push(&mut self, rope: Rope) {
        if !rope.is_empty() {
            self.bytes += rope.len();
            self.ropes.push_back(rope);
        }
    }

    /// Removes and returns the first rope, or its remainder.
    pub fn pop(&mut self) -> Option<Rope> {
        let rope = self.ropes.pop_front()?;
        self.bytes -= rope.len();
        Some(rope)
    }

    /// Iterates over the contiguous runs, for one gathering write.
    pub fn runs(&self) -> impl Iterator<Item = &[u8]> {
        self.ropes.iter().flat_map(Rope::runs)
    }

    /// Drops the first `count` bytes, which have been sent.
    ///
    /// # Panics
    /// If there are fewer than `count` bytes.
    pub fn skip(&mut self, mut count: usize) {
        assert!(count <= self.bytes, "{count} of {} bytes", self.bytes);
        self.bytes -= count;
        while count > 0 {
            let first = self.ropes.front_mut().expect("the length counts the ropes");
            let of_first = count.min(first.len());
            if of_first == first.len() {
                self.ropes.pop_front();
            } else {
                first.skip(of_first);
            }
            count -= of_first;
        }
    }

    /// Removes all ropes.
    pub fn clear(&mut self) {
        self.ropes.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Act {
        Prepend(Vec<u8>),
        Push(Vec<u8>),
        PushShort(Vec<u8>),
        Append(Vec<u8>, Vec<u8>),
        SplitTo(usize),
        Skip(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        let some = || proptest::collection::vec(any::<u8>(), 0..100);
        prop_oneof![
            some().prop_map(Act::Prepend),
            some().prop_map(Act::Push),
            some().prop_map(Act::PushShort),
            (some(), some()).prop_map(|(head, body)| Act::Append(head, body)),
            (0..200usize).prop_map(Act::SplitTo),
            (0..200usize).prop_map(Act::Skip),
        ]
    }

    proptest! {
        #[test]
        fn a_rope_behaves_like_a_vector(acts in proptest::collection::vec(act(), 0..40), at in 0..300usize) {
            let (mut rope, mut plain) = (Rope::new(), Vec::new());
            for act in acts {
                match act {
                    Act::Prepend(bytes) => {
                        rope.prepend(&bytes);
                        plain.splice(..0, bytes);
                    }
                    Act::Push(bytes) => {
                        plain.extend_from_slice(&bytes);
                        rope.push(bytes.into());
                    }
                    Act::PushShort(bytes) => {
                        plain.extend_from_slice(&bytes);
                        rope.push_short(&bytes);
                    }
                    Act::Append(head, body) => {
                        let mut other = Rope::from(body.clone());
                        other.prepend(&head);
                        rope.append(other);
                        plain.extend_from_slice(&head);
                        plain.extend_from_slice(&body);
                    }
                    Act::SplitTo(count) => {
                        let count = count.min(plain.len());
                        let front: Vec<u8> = plain.drain(..count).collect();
                        prop_assert_eq!(rope.split_to(count).to_vec(), front);
                    }
                    Act::Skip(count) => {
                        let count = count.min(plain.len());
                        rope.skip(count);
                        plain.drain(..count);
                    }
                }
                prop_assert_eq!(rope.len(), plain.len());
                prop_assert_eq!(&rope.to_vec(), &plain);
                prop_assert_eq!(rope.runs().all(|run| !run.is_empty()), true);
            }
            let mut part = [0; 60];
            let count = rope.copy_to(at, &mut part);
            let from = at.min(plain.len());
            prop_assert_eq!(&part[..count], &plain[from..(from + 60).min(plain.len())]);
            prop_assert_eq!(rope.clone().into_pieces().flatten().collect::<Vec<u8>>(), plain.clone());
            prop_assert_eq!(&rope.into_bytes()[..], &plain[..]);
        }
    }

    #[test]
    fn short_pieces_are_merged_and_shared_pieces_are_not_modified() {
        let held = Bytes::from(alloc::vec![7; 10]);
        let mut rope = Rope::from(held.clone());
        (0..65_535u32).for_each(|byte| rope.push_short(&[byte as u8]));
        assert_eq!((rope.len(), &held[..]), (65_545, &[7; 10][..]));
        assert!(rope.runs().count() <= 2 + 65_535 / GATHER_BYTES, "{rope:?}");
    }

    #[test]
    fn payload_is_shared_not_copied() {
        let page = Bytes::from(alloc::vec![7; 4096]);
        let mut rope = Rope::from(page.clone());
        rope.prepend(b"session");
        rope.prepend(b"transport");
        let mut first = rope.split_to(1000);
        first.skip(16);
        assert_eq!(first.into_bytes().as_ptr(), page.as_ptr());
        assert_eq!(rope.into_bytes().as_ptr(), page[984..].as_ptr());
    }

    #[test]
    fn a_queue_is_drained_from_its_front_in_any_portions() {
        let mut queue = RopeQueue::new();
        for bytes in [b"one".as_slice(), b"", b"three", b"five"] {
            queue.push(Rope::from(bytes.to_vec()));
        }
        let mut sent = Vec::new();
        for portion in [2, 1, 3, 4] {
            sent.extend(queue.runs().flatten().take(portion).copied().collect::<Vec<u8>>());
            queue.skip(portion);
        }
        assert_eq!(sent, b"onethreefi");
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.pop().map(|rope| rope.to_vec()).as_deref(), Some(&b"ve"[..]));
        assert!(queue.is_empty() && queue.pop().is_none());
    }
}
