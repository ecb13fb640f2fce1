//! Reads bytes as decisions; zeros follow after the last byte.

/// An input and the current position in it.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    pub(crate) fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    pub(crate) fn long(&mut self) -> u32 {
        u32::from(self.short()) << 16 | u32::from(self.short())
    }

    /// Takes up to `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (front, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        front
    }

    /// Returns a distance to add to a sequence number: usually small, of either sign.
    pub(crate) fn distance(&mut self) -> u32 {
        let kind = self.byte();
        let small = u32::from(self.byte());
        match kind % 8 {
            0 | 1 => 0,
            2 => small,
            3 => small.wrapping_neg(),
            4 => small << 8,
            5 => (small << 8).wrapping_neg(),
            6 => small << 24,
            _ => 0x8000_0000_u32.wrapping_add(small).wrapping_sub(128),
        }
    }
}
