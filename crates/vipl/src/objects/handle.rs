//! Handles as numbers, and maps with handles as keys.

use crate::abi::VIP_PVOID;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Handle(u64);

impl Handle {
    /// Creates a handle from an index with its generation, and a serial number.
    pub(crate) fn new(number: u32, serial: u32) -> Handle {
        let serial = if usize::BITS >= 64 { u64::from(serial) } else { 0 };
        Handle(serial << 32 | u64::from(number))
    }

    /// Returns whether the handle has this serial number. Always true on machines where handles have no
    /// serial number.
    pub(crate) fn bears(self, serial: u32) -> bool {
        usize::BITS < 64 || self.0 >> 32 == u64::from(serial)
    }

    /// Returns the handle as the program sees it.
    pub(crate) fn as_pointer(self) -> VIP_PVOID {
        core::ptr::without_provenance_mut(self.0 as usize)
    }

    /// Converts a handle from the program.
    pub(crate) fn of(pointer: VIP_PVOID) -> Handle {
        Handle(pointer.addr() as u64)
    }

    pub(crate) fn number(self) -> u32 {
        self.0 as u32
    }
}

/// Hashes addresses and handles. No attacker chooses them, so at worst a program could slow itself down.
#[derive(Clone, Copy, Default)]
pub(crate) struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        // Use both halves of the product, because addresses share low bits and handles share high bits.
        let product = u128::from(self.0) * 0x9e37_79b9_7f4a_7c15;
        product as u64 ^ (product >> 64) as u64
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(29) ^ number;
    }
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

/// A map by address or handle.
pub(crate) type QuickMap<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    #[test]
    fn consecutive_addresses_and_handles_hash_evenly() {
        let quick = BuildHasherDefault::<Quick>::default();
        for step in [1u64, 64, 256, 4096, 1 << 20] {
            // Hash tables use the low bits as the index and compare the top seven bits.
            let hashes = (0..256u64).map(|n| quick.hash_one(0x7f12_3456_0000 + n * step));
            let (mut low, mut top) = ([0u32; 256], [0u32; 128]);
            hashes.for_each(|hash| {
                low[(hash & 255) as usize] += 1;
                top[(hash >> 57) as usize] += 1;
            });
            assert!(low.iter().all(|count| *count <= 8) && top.iter().all(|count| *count <= 16), "{step}");
        }
    }
}
