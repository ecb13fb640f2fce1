//! Physical buffer list management table (PBLMT): lists that map a region's addresses to blocks of memory.
//!
//! A block is a contiguous range of the host's memory, identified by the address that the region's owner
//! uses for its first byte. Ordinary regions have one block; a region registered by a work request may have
//! many blocks of any size.

use alloc::vec::Vec;
use kiban_base::{Region, SharedBytes};

/// A physical buffer list.
#[derive(Debug, Default)]
pub(in super::super) struct BufferList {
    /// In address order, without gaps.
    blocks: Vec<Region>,
}

impl BufferList {
    /// Builds a list of blocks, the first of which begins at `address`. Returns `None` if the addresses
    /// would wrap around.
    pub(in super::super) fn new(blocks: Vec<Region>, address: u64) -> Option<BufferList> {
        let mut at = address;
        let mut list = Vec::with_capacity(blocks.len());
        for block in blocks.into_iter().filter(|block| !block.is_empty()) {
            let next = at.checked_add(block.len() as u64)?;
            list.push(block.with_address(at));
            at = next;
        }
        Some(BufferList { blocks: list })
    }

    /// Returns the total length in bytes.
    pub(in super::super) fn length(&self) -> u64 {
        self.blocks.iter().map(|block| block.len() as u64).sum()
    }

    /// Returns the blocks.
    pub(in super::super) fn blocks(&self) -> &[Region] {
        &self.blocks
    }

    /// Returns the blocks to their owner.
    pub(in super::super) fn into_blocks(self) -> Vec<Region> {
        self.blocks
    }

    /// Returns the block that contains `address`, and how many bytes it holds from there, at most `length`.
    #[inline]
    pub(in super::super) fn find(&self, address: u64, length: usize) -> Option<(&Region, usize)> {
        let block = match &self.blocks[..] {
            [one] => one,
            many => {
                let after = many.partition_point(|block| block.address() <= address);
                many.get(after.checked_sub(1)?)?
            }
        };
        let range = block.range(address, 1)?;
        Some((block, length.min(block.len() - range.start)))
    }

    /// Copies bytes in, starting at `address`. The caller has checked the bounds. Returns `None` if a part of
    /// the memory is no longer mapped.
    #[inline]
    pub(in super::super) fn write(&self, mut address: u64, mut bytes: SharedBytes<'_>) -> Option<()> {
        while !bytes.is_empty() {
            let (block, count) = self.find(address, bytes.len())?;
            block.write(address, bytes.part(0, count))?;
            bytes = bytes.after(count);
            address += count as u64;
        }
        Some(())
    }

    /// Copies bytes out, starting at `address`. The caller has checked the bounds. Returns `None` if a part
    /// of the memory is no longer mapped.
    pub(in super::super) fn read(&self, mut address: u64, mut target: &mut [u8]) -> Option<()> {
        while !target.is_empty() {
            let (block, count) = self.find(address, target.len())?;
            let (front, rest) = target.split_at_mut(count);
            if block.bytes(address, count)?.copy_to(0, front) < count {
                return None;
            }
            target = rest;
            address += count as u64;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_size_form_one_address_range() {
        let sizes = [10usize, 1, 0, 300, 64];
        let blocks: Vec<Region> = sizes.iter().map(|&size| Region::new(7, size)).collect();
        let list = BufferList::new(blocks, 0x1000).expect("no wrap");
        assert_eq!(list.length(), 375);
        let bytes: Vec<u8> = (0..375u32).map(|at| at as u8).collect();
        assert_eq!(list.write(0x1000, SharedBytes::from(&bytes[..])), Some(()));
        for (at, length) in [(0usize, 375usize), (9, 3), (10, 1), (11, 300), (374, 1)] {
            let mut copy = alloc::vec![0; length];
            assert_eq!(list.read(0x1000 + at as u64, &mut copy), Some(()));
            assert_eq!(copy, bytes[at..at + length]);
        }
        assert!(list.find(0xfff, 1).is_none() && list.find(0x1000 + 375, 1).is_none());
        assert!(BufferList::new(alloc::vec![Region::new(0, 2)], u64::MAX).is_none());
    }
}
