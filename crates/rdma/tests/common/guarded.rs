//! Memory of every kind inside one guarded area. Shared by the tests of several crates.

use kiban_base::{Region, SharedBytes};
use kiban_rdma::rnic::{Access, Rnic};

/// The address of the guarded area, and the length of each kind of memory in it. Gaps of the same length,
/// which have no tag, separate the kinds.
pub(crate) const BASE: u64 = 0x40_0000;
pub(crate) const SLOT: u64 = 0x100;
/// The byte that fills every payload.
pub(crate) const PAYLOAD: u8 = 0xee;

/// The kinds of memory, in the order in which they appear in the guarded area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    Open,
    ReadOnly,
    WriteOnly,
    Local,
    Foreign,
    Windowed,
    Deregistered,
    Invalidated,
    Receive,
    Constant,
}

const SLOTS: u64 = 10;

/// Returns the address of a byte in this kind of memory.
pub(crate) fn at(slot: Slot, offset: u64) -> u64 {
    BASE + (2 * slot as u64 + 1) * SLOT + offset
}

/// The guarded area, and the steering tags of the memory in it.
pub(crate) struct Guarded {
    region: Region,
    stags: Vec<u32>,
}

impl Guarded {
    /// Registers each kind of memory in a protection domain; foreign memory is in another one.
    pub(crate) fn new(nic: &mut Rnic, pd: u32) -> Guarded {
        let region = Region::new(BASE, ((2 * SLOTS + 1) * SLOT) as usize);
        let pattern: Vec<u8> = (0..region.len()).map(guarded).collect();
        region.write(BASE, SharedBytes::from(&pattern[..])).expect("within");
        let other_pd = nic.create_pd().expect("room");
        let read_only = Access { local_write: true, remote_read: true, ..Access::NONE };
        let write_only = Access { local_write: true, remote_write: true, ..Access::NONE };
        let kinds = [
            (Slot::Open, Access::ALL),
            (Slot::ReadOnly, read_only),
            (Slot::WriteOnly, write_only),
            (Slot::Local, Access::LOCAL),
            (Slot::Foreign, Access::ALL),
            (Slot::Windowed, Access { bind: true, ..Access::LOCAL }),
            (Slot::Deregistered, Access::ALL),
            (Slot::Invalidated, Access::ALL),
            (Slot::Receive, Access::LOCAL),
            (Slot::Constant, Access::NONE),
        ];
        let mut stags = Vec::new();
        for (slot, access) in kinds {
            let pd = if slot == Slot::Foreign { other_pd } else { pd };
            let part = region.part(at(slot, 0), SLOT as usize).expect("within");
            stags.push(nic.register(pd, part, access).expect("room"));
        }
        nic.deregister(stags[Slot::Deregistered as usize]).expect("registered");
        Guarded { region, stags }
    }

    pub(crate) fn stag(&self, slot: Slot) -> u32 {
        self.stags[slot as usize]
    }

    /// Checks that nothing in the guarded area has changed except these ranges (address and length), which
    /// must hold payload.
    pub(crate) fn assert_unchanged(&self, placed: &[(u64, usize)], name: &str) {
        let now = self.region.read(BASE, self.region.len()).expect("within");
        for (n, &byte) in now.iter().enumerate() {
            let address = BASE + n as u64;
            let is_placed =
                placed.iter().any(|&(from, count)| (from..from + count as u64).contains(&address));
            let expected = if is_placed { PAYLOAD } else { guarded(n) };
            assert_eq!(byte, expected, "{name}: the byte at {address:#x}");
        }
    }
}

/// Returns the initial contents of a byte of the guarded area.
fn guarded(n: usize) -> u8 {
    // The modulus ensures that the result differs from the byte that fills payloads.
    (n % 211) as u8
}
