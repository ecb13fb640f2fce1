//! Encodes BER elements from back to front, so that lengths are known when headers are written.

use alloc::vec::Vec;
use kiban_base::Rope;

use super::{Header, Tag};

/// The elements encoded so far, from the last to the first.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    /// The bytes in front of `behind`, in reverse order.
    backwards: Vec<u8>,
    behind: Rope,
}

impl Builder {
    /// Creates an empty builder.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Returns the number of bytes encoded so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.backwards.len() + self.behind.len()
    }

    /// Returns whether no bytes have been encoded yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Prepends bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.backwards.extend(bytes.iter().rev());
    }

    /// Prepends a rope; its pieces are shared.
    pub fn put_rope(&mut self, mut rope: Rope) {
        self.settle();
        rope.append(core::mem::take(&mut self.behind));
        self.behind = rope;
    }

    /// Prepends the header of a primitive element, whose contents are all bytes prepended since the builder's
    /// length was `end`.
    pub fn primitive(&mut self, tag: Tag, end: usize) {
        self.header(tag, false, end);
    }

    /// Prepends the header of a constructed element, whose contents are all bytes prepended since the
    /// builder's length was `end`.
    pub fn constructed(&mut self, tag: Tag, end: usize) {
        self.header(tag, true, end);
    }

    /// Prepends a complete primitive element.
    pub fn element(&mut self, tag: Tag, contents: &[u8]) {
        let end = self.len();
        self.put(contents);
        self.primitive(tag, end);
    }

    /// Prepends a constructed element. `fill` prepends its contents, beginning with the last one.
    pub fn within(&mut self, tag: Tag, fill: impl FnOnce(&mut Builder)) {
        let end = self.len();
        fill(self);
        self.constructed(tag, end);
    }

    /// Prepends the parts so that the first ends up in front.
    pub fn in_order(&mut self, parts: &[&dyn Fn(&mut Builder)]) {
        parts.iter().rev().for_each(|part| part(self));
    }

    /// Returns the encoded bytes.
    pub fn into_vec(mut self) -> Vec<u8> {
        if self.behind.is_empty() {
            self.backwards.reverse();
            return self.backwards;
        }
        self.settle();
        self.behind.to_vec()
    }

    /// Returns the encoded bytes as a rope that shares the memory of the ropes put into it.
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
