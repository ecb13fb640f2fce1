//! Writing elements: what stands behind is written first, so that lengths are known when headers are.

use alloc::vec::Vec;
use kiban_ground::Rope;

use super::{Header, Tag};

/// Elements being written, from the last to the first.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    /// What stands in front of `behind`, its last byte first.
    backwards: Vec<u8>,
    behind: Rope,
}

impl Builder {
    /// Nothing yet.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// How many bytes have been written.
    #[inline]
    pub fn len(&self) -> usize {
        self.backwards.len() + self.behind.len()
    }

    /// Whether none have.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts bytes in front of everything.
    pub fn put(&mut self, bytes: &[u8]) {
        self.backwards.extend(bytes.iter().rev());
    }

    /// Puts a rope in front of everything: its pieces are referred to.
    pub fn put_rope(&mut self, mut rope: Rope) {
        self.settle();
        rope.append(core::mem::take(&mut self.behind));
        self.behind = rope;
    }

    /// Puts the header of a primitive element in front of its contents, which are what has been written since there were
    /// `end` bytes.
    pub fn primitive(&mut self, tag: Tag, end: usize) {
        self.header(tag, false, end);
    }

    /// Puts the header of a constructed element in front of its contents, which are what has been written since there were
    /// `end` bytes.
    pub fn constructed(&mut self, tag: Tag, end: usize) {
        self.header(tag, true, end);
    }

    /// Puts a whole primitive element in front.
    pub fn element(&mut self, tag: Tag, contents: &[u8]) {
        let end = self.len();
        self.put(contents);
        self.primitive(tag, end);
    }

    /// Puts a constructed element in front whose contents `fill` writes, its last one first.
    pub fn within(&mut self, tag: Tag, fill: impl FnOnce(&mut Builder)) {
        let end = self.len();
        fill(self);
        self.constructed(tag, end);
    }

    /// Puts what these would put, so that the first comes to stand in front.
    pub fn in_order(&mut self, parts: &[&dyn Fn(&mut Builder)]) {
        parts.iter().rev().for_each(|part| part(self));
    }

    /// What has been written.
    pub fn into_vec(mut self) -> Vec<u8> {
        if self.behind.is_empty() {
            self.backwards.reverse();
            return self.backwards;
        }
        self.settle();
        self.behind.to_vec()
    }

    /// What has been written, as a rope: ropes that were put are referred to.
    pub fn into_rope(mut self) -> Rope {
        self.settle();
        self.behind
    }

    fn header(&mut self, tag: Tag, constructed: bool, end: usize) {
        let mut room = [0; Header::BYTES_MAX];
        let at = Header { tag, constructed, length: Some(self.len() - end) }.write_before(&mut room);
        self.put(&room[at..]);
    }

    fn settle(&mut self) {
        if !self.backwards.is_empty() {
            self.backwards.reverse();
            self.behind.prepend(&self.backwards);
            self.backwards.clear();
        }
    }
}
