//! Circuits by name: a small hash table from header bits to numbers.
//!
//! Goal      a look-up in a nanosecond or two, without std and the same in every run.
//! Keys      the bits of a header word that name a circuit; only what is opened here becomes a key, so a peer cannot
//!           make the table collide.

use core::hash::{BuildHasherDefault, Hasher};
use hashbrown::HashMap;
use kiban_wire::atm::{Header, Interface, Vc};

/// Names that are remembered beside the table, by the low bits of VCI and VPI.
const RECENT: usize = 64;
/// No cell can have this name: name bits leave the low four zero.
const NO_NAME: u32 = 1;

/// Numbers by the name bits of a header word.
pub(crate) struct Names {
    all: HashMap<u32, u32, BuildHasherDefault<Multiply>>,
    /// The answers given last: interleaved circuits come again and again.
    recent: [(u32, u32); RECENT],
}

impl Names {
    pub(crate) fn new() -> Names {
        Names { all: HashMap::default(), recent: [(NO_NAME, 0); RECENT] }
    }

    /// The number under a name.
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

    /// The number under a name, for those who ask seldom.
    pub(crate) fn get(&self, name: u32) -> Option<u32> {
        self.all.get(&name).copied()
    }

    /// Puts a number under a name; the number that was there before.
    pub(crate) fn insert(&mut self, name: u32, number: u32) -> Option<u32> {
        self.recent = [(NO_NAME, 0); RECENT];
        self.all.insert(name, number)
    }

    /// Takes a name out; the number that was there.
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
        // The table takes its index from the low bits and its tags from the high ones.
        self.0 = (self.0 ^ u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

/// The bits of a header word that name the circuit: VPI and VCI, without the flow control bits of a UNI.
#[inline]
pub(crate) const fn name_mask(interface: Interface) -> u32 {
    match interface {
        Interface::Uni => 0x0fff_fff0,
        Interface::Nni => 0xffff_fff0,
    }
}

/// The name bits of a circuit.
pub(crate) const fn name_of(interface: Interface, vc: Vc) -> u32 {
    Header::user(vc, false).to_word(interface)
}
