//! The memory that a program has registered with a NIC.

use super::handle::QuickMap;
use crate::abi::VIP_RETURN;
use crate::border::Answer;

/// Memory that a program has registered.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) address: usize,
    pub(crate) length: usize,
    pub(crate) tag: u32,
}

impl Memory {
    /// Returns whether the `length` bytes that start at `address` are within the region.
    pub(crate) fn holds(&self, address: usize, length: usize) -> bool {
        address
            .checked_sub(self.address)
            .and_then(|at| at.checked_add(length))
            .is_some_and(|end| end <= self.length)
    }
}

/// The regions of a NIC, indexed by handle.
#[derive(Default)]
pub(crate) struct Memories {
    pub(crate) by_handle: QuickMap<u32, Memory>,
    pub(crate) bytes: usize,
    /// The tag for which NULL stands, and whether the program has its handle.
    pub(crate) first_tag: Option<(u32, bool)>,
}

impl Memories {
    pub(crate) fn get(&self, handle: u32) -> Answer<&Memory> {
        self.by_handle.get(&handle).ok_or(VIP_RETURN::INVALID_PARAMETER)
    }

    /// Removes all regions. Returns their handles, for deregistration.
    pub(crate) fn take_all(&mut self) -> Vec<u32> {
        self.bytes = 0;
        self.by_handle.drain().map(|(handle, _)| handle).collect()
    }
}
