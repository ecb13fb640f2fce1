//! Circuit look-up: a small hash table from header bits to numbers.
//!
//! Purpose   look up a circuit in a nanosecond or two, without std, reproducibly in every run.
//! Keys      the bits of a header word that identify a circuit. Only locally opened circuits become keys, so
//!           a peer cannot provoke collisions.

use crate::wire::atm::{Header, Interface, Vc};
use core::hash::{BuildHasherDefault, Hasher};
use hashbrown::HashMap;

/// Size of the cache for recent look-ups, indexed by the low bits of VCI and VPI.
const RECENT: usize = 64;
/// A value that identifies no cell: the low four bits of real names are zero.
const NO_NAME: u32 = 1;

/// Numbers by the name bits of a header word.
pub(crate) struct HeaderTable {
    all: HashMap<u32, u32, BuildHasherDefault<Multiply>>,
    /// Cache of recent look-ups, because interleaved circuits recur.
    recent: [(u32, u32); RECENT],
}

impl HeaderTable {
    pub(crate) fn new() -> HeaderTable {
        HeaderTable { all: HashMap::default(), recent: [(NO_NAME, 0); RECENT] }
    }

    /// Returns the number for a name, through the cache.
    #[inline]
    pub(crate) fn look_up(&mut self, name: u32) -> Option<u32> {
        let recent = &mut self.recent[(name >> 4 ^ name >> 20) as usize % RECENT];
        if recent.0 != name {
            *recent = (name, *self.all.get(&name)?);
        }
        Some(recent.1)
    }

    pub(crate) fn contains(&self, name: u32) -> bool {
        self.all.contains_key(&name)
    }

    /// Returns the number for a name without using the cache.
    pub(crate) fn get(&self, name: u32) -> Option<u32> {
        self.all.get(&name).copied()
    }

    /// Stores a number for a name and returns the previous one.
    pub(crate) fn insert(&mut self, name: u32, number: u32) -> Option<u32> {
        self.recent = [(NO_NAME, 0); RECENT];
        self.all.insert(name, number)
    }

    /// Removes a name and returns the number stored for it.
    pub(crate) fn remove(&mut self, name: u32) -> Option<u32> {
        self.recent = [(NO_NAME, 0); RECENT];
        self.all.remove(&name)
    }
}

/// Fibonacci hashing of one `u32`.
#[derive(Default)]
pub(crate) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    #[inline]
    fn write_u32(&mut self, key: u32) {
        // The table derives its index from the low bits and its tags from the high bits.
        self.0 = (self.0 ^ u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

/// Returns the bits of a header word that identify the circuit: VPI and VCI, without the GFC bits that a UNI
/// uses.
#[inline]
pub(crate) const fn name_mask(interface: Interface) -> u32 {
    match interface {
        Interface::Uni => 0x0fff_fff0,
        Interface::Nni => 0xffff_fff0,
    }
}

/// Returns the name bits of a circuit.
pub(crate) const fn name_of(interface: Interface, vc: Vc) -> u32 {
    Header::user(vc, false).to_word(interface)
}
