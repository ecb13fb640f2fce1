//! Handles: what a program holds of the library's objects.
//!
//! Goal      a handle that was invented, or whose object has gone, is told apart from one that lives.
//! How       a handle is a number: 32 bits name a place in a table and its generation (`kiban_ground::Slab`), on 64-bit
//!           machines 32 more are a serial number that no other handle of this process bears. It is looked up, never
//!           followed.
//! Limits    a million objects; the serial begins anew after four thousand million.

use crate::abi::{VIP_PVOID, VIP_RETURN};
use crate::border::{Answer, reading, writing};
use crate::connect::Request;
use crate::memory::Tag;
use crate::nic::Nic;
use crate::queue::Queue;
use crate::vi::Vi;
use kiban_ground::Slab;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, RwLock};

/// A handle as the library holds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Handle(u64);

impl Handle {
    /// As the program gets it.
    pub(crate) fn as_pointer(self) -> VIP_PVOID {
        core::ptr::without_provenance_mut(self.0 as usize)
    }

    /// As the program hands it over.
    pub(crate) fn of(pointer: VIP_PVOID) -> Handle {
        Handle(pointer.addr() as u64)
    }

    fn number(self) -> u32 {
        self.0 as u32
    }
}

/// Hashes addresses and handles, which nobody chooses to do harm: a program has only itself to slow down.
#[derive(Clone, Copy, Default)]
pub(crate) struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        // Both halves of the product: the low bits of an address are alike, the high bits of a handle.
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

#[derive(Clone)]
pub(crate) enum Object {
    Nic(Arc<Nic>),
    Tag(Arc<Tag>),
    Vi(Arc<Vi>),
    Queue(Arc<Queue>),
    Request(Arc<Request>),
}

struct Entry {
    serial: u32,
    object: Object,
}

struct Table {
    entries: RwLock<Slab<Entry>>,
    next_serial: AtomicU32,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let random = RandomState::new().hash_one("the handles of this process");
    Table {
        entries: RwLock::new(Slab::new(usize::MAX, random as u32)),
        next_serial: AtomicU32::new((random >> 32) as u32),
    }
});

/// Gives an object a handle; `VIP_ERROR_RESOURCE` when a million have one.
pub(crate) fn insert(object: Object) -> Answer<Handle> {
    // Never zero: such handles would be as good as 32-bit ones.
    let serial = TABLE.next_serial.fetch_add(1, Relaxed) | 1 << 31;
    let number =
        writing(&TABLE.entries).insert(Entry { serial, object }).ok_or(VIP_RETURN::ERROR_RESOURCE)?;
    let serial = if usize::BITS >= 64 { u64::from(serial) } else { 0 };
    Ok(Handle(serial << 32 | u64::from(number)))
}

fn is(entry: &Entry, handle: Handle) -> bool {
    usize::BITS < 64 || handle.0 >> 32 == u64::from(entry.serial)
}

/// Takes the name from an object.
pub(crate) fn remove(handle: Handle) -> Option<Object> {
    let mut entries = writing(&TABLE.entries);
    entries.get(handle.number()).filter(|entry| is(entry, handle))?;
    entries.remove(handle.number()).map(|entry| entry.object)
}

macro_rules! finders {
    ($($find:ident: $kind:ident),* $(,)?) => {$(
        /// The object of this kind that a handle names, or `VIP_INVALID_PARAMETER`.
        #[inline]
        pub(crate) fn $find(pointer: VIP_PVOID) -> Answer<Arc<$kind>> {
            let handle = Handle::of(pointer);
            match reading(&TABLE.entries).get(handle.number()) {
                Some(entry @ Entry { object: Object::$kind(object), .. }) if is(entry, handle) => Ok(object.clone()),
                _ => Err(VIP_RETURN::INVALID_PARAMETER),
            }
        }
    )*};
}
finders!(nic: Nic, tag: Tag, vi: Vi, queue: Queue, request: Request);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_a_row_and_handles_in_a_row_are_spread() {
        let quick = BuildHasherDefault::<Quick>::default();
        for step in [1u64, 64, 256, 4096, 1 << 20] {
            // Tables use the low bits for the place and the top seven to compare.
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
