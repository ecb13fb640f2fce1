//! Steering tag management table (SMT): the memory behind each tag, its owner, and its access rights.
//!
//! Purpose  no byte of the host's memory is accessed without a currently valid tag, address and right.
//! Tag      24 bits of a keyed hash, so that peers cannot guess one tag from others (RFC 5042 §7.3.1), and 8
//!          key bits, which a work request may change each time it registers or binds.
//! Kinds    a region has a buffer list, which is empty at first if a work request is to register it. A
//!          window exposes a part of a region, either to every queue pair in the domain (type 1) or to one
//!          queue pair (type 2).
//! Checks   tag, owner, rights and bounds are checked in this order. The Terminate reports the first check
//!          that fails, and reveals nothing else to the peer.

use super::super::error::RequestError;
use super::super::work::{Access, Binding};
use super::pblmt::BufferList;
use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hasher};
use hashbrown::HashMap;
use kiban_base::{Region, SecureRng, Slab};
use siphasher::sip::SipHasher24;

/// The reason why memory may not be accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Violation {
    /// The tag is unknown or not valid now.
    Stag,
    /// The memory belongs to another protection domain, or to another queue pair's window.
    Stream,
    /// The rights do not allow this use.
    Access,
    /// The range exceeds the bounds.
    Bounds,
    /// The address range wraps.
    Wrap,
    /// The program has unmapped a part of the range since it registered it.
    Unmapped,
}

/// The kind of memory access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum AccessKind {
    LocalRead,
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    RemoteAtomic,
}

impl Access {
    const fn allows(self, purpose: AccessKind) -> bool {
        match purpose {
            AccessKind::LocalRead => true,
            AccessKind::LocalWrite => self.local_write,
            AccessKind::RemoteRead => self.remote_read,
            AccessKind::RemoteWrite => self.remote_write,
            AccessKind::RemoteAtomic => self.remote_atomic,
        }
    }
}

#[derive(Debug)]
enum EntryKind {
    /// A memory region, to which `windows` windows are bound.
    Region { list: BufferList, windows: u32, blocks_max: usize },
    /// A part of a region. A type 2 window is bound to a queue pair.
    Window { region: Option<u32>, type_2: bool, qp: u32 },
}

#[derive(Debug)]
struct Entry {
    /// The full tag, including its key.
    stag: u32,
    pd: u32,
    valid: bool,
    address: u64,
    length: u64,
    access: Access,
    what: EntryKind,
}

/// Tags come from a keyed hash, so one multiplication mixes them enough.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }
    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.0 = u64::from(word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The steering tag management table, and the protection domains.
#[derive(Debug)]
pub(in super::super) struct StagTable {
    entries: HashMap<u32, Entry, BuildHasherDefault<Spread>>,
    most: usize,
    blocks_max: usize,
    key: (u64, u64),
    made: u64,
    /// Number of bound type 2 windows.
    windows_of_qps: usize,
    /// Memory whose tag was invalidated, but which lower layers may still reference.
    pub(in super::super) invalidated: Vec<Region>,
    /// The number of users of each protection domain.
    pds: Slab<u32>,
}

const KEY_BITS: u32 = 8;

impl StagTable {
    pub(in super::super) fn new(
        stags_max: usize,
        blocks_max: usize,
        pds_max: usize,
        rng: &mut SecureRng,
    ) -> Self {
        StagTable {
            entries: HashMap::default(),
            most: stags_max.min(1 << 20),
            blocks_max,
            key: (rng.draw(), rng.draw()),
            made: 0,
            windows_of_qps: 0,
            invalidated: Vec::new(),
            pds: Slab::new(pds_max, rng.draw_u32()),
        }
    }

    // ---- protection domains

    pub(in super::super) fn create_pd(&mut self) -> Result<u32, RequestError> {
        self.pds.insert(0).ok_or(RequestError::TooMany)
    }

    pub(in super::super) fn has_pd(&self, pd: u32) -> bool {
        self.pds.get(pd).is_some()
    }

    pub(in super::super) fn destroy_pd(&mut self, pd: u32) -> Result<(), RequestError> {
        match self.pds.get(pd) {
            None => Err(RequestError::UnknownPd),
            Some(1..) => Err(RequestError::InUse),
            Some(0) => self.pds.remove(pd).map(|_| ()).ok_or(RequestError::UnknownPd),
        }
    }

    pub(in super::super) fn hold_pd(&mut self, pd: u32) -> Result<(), RequestError> {
        self.pds.get_mut(pd).map(|users| *users += 1).ok_or(RequestError::UnknownPd)
    }

    pub(in super::super) fn release_pd(&mut self, pd: u32) {
        if let Some(users) = self.pds.get_mut(pd) {
            *users = users.saturating_sub(1);
        }
    }

    // ---- tags

    /// Returns the number of tags.
    pub(in super::super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn add(&mut self, pd: u32, mut entry: Entry) -> Result<u32, RequestError> {
        if self.entries.len() >= self.most {
            return Err(RequestError::TooMany);
        }
        self.hold_pd(pd)?;
        loop {
            let mut hash = SipHasher24::new_with_keys(self.key.0, self.key.1);
            hash.write_u64(self.made);
            self.made += 1;
            let stag = hash.finish() as u32;
            // Never use tag zero: peers send zero where a tag has no meaning.
            if stag >> KEY_BITS == 0 || self.entries.contains_key(&(stag >> KEY_BITS)) {
                continue;
            }
            entry.stag = stag;
            self.entries.insert(stag >> KEY_BITS, entry);
            return Ok(stag);
        }
    }

    fn blank(pd: u32, what: EntryKind) -> Entry {
        Entry { stag: 0, pd, valid: false, address: 0, length: 0, access: Access::NONE, what }
    }

    /// Registers memory and returns its tag.
    pub(in super::super) fn register(
        &mut self,
        pd: u32,
        address: u64,
        blocks: Vec<Region>,
        access: Access,
    ) -> Result<u32, RequestError> {
        if blocks.len() > self.blocks_max {
            return Err(RequestError::TooMany);
        }
        check_access(access)?;
        let blocks_max = blocks.len();
        let list = BufferList::new(blocks, address).ok_or(RequestError::BadAddress)?;
        let length = list.length();
        let what = EntryKind::Region { list, windows: 0, blocks_max };
        self.add(pd, Entry { valid: true, address, length, access, ..Self::blank(pd, what) })
    }

    /// Allocates a region without memory, which a work request registers later.
    pub(in super::super) fn allocate(&mut self, pd: u32, blocks_max: usize) -> Result<u32, RequestError> {
        if blocks_max > self.blocks_max {
            return Err(RequestError::TooMany);
        }
        self.add(
            pd,
            Self::blank(pd, EntryKind::Region { list: BufferList::default(), windows: 0, blocks_max }),
        )
    }

    /// Allocates an unbound window.
    pub(in super::super) fn allocate_window(&mut self, pd: u32, type_2: bool) -> Result<u32, RequestError> {
        self.add(pd, Self::blank(pd, EntryKind::Window { region: None, type_2, qp: 0 }))
    }

    #[inline]
    fn entry(&self, stag: u32) -> Option<&Entry> {
        self.entries.get(&(stag >> KEY_BITS)).filter(|entry| entry.stag == stag)
    }

    fn entry_mut(&mut self, stag: u32) -> Option<&mut Entry> {
        self.entries.get_mut(&(stag >> KEY_BITS)).filter(|entry| entry.stag == stag)
    }

    /// Returns the full tag of a region or window whose key a work request may have changed.
    pub(in super::super) fn current_stag(&self, stag: u32) -> Option<u32> {
        self.entries.get(&(stag >> KEY_BITS)).map(|entry| entry.stag)
    }

    /// Removes a tag and returns its memory to the owner.
    pub(in super::super) fn remove(&mut self, stag: u32) -> Result<Vec<Region>, RequestError> {
        let entry = self.entry(stag).ok_or(RequestError::UnknownStag)?;
        if let EntryKind::Region { windows: 1.., .. } = entry.what {
            return Err(RequestError::InUse);
        }
        let entry = self.entries.remove(&(stag >> KEY_BITS)).ok_or(RequestError::UnknownStag)?;
        self.release_pd(entry.pd);
        match entry.what {
            EntryKind::Region { list, .. } => Ok(list.into_blocks()),
            EntryKind::Window { region, type_2, .. } => {
                self.windows_of_qps -= usize::from(type_2 && entry.valid);
                self.withdraw_shown(region);
                self.unbound(region);
                Ok(Vec::new())
            }
        }
    }

    /// Exchanges the memory of two regions. No window may be bound to either.
    pub(in super::super) fn exchange(&mut self, one: u32, other: u32) -> Result<(), RequestError> {
        for stag in [one, other] {
            match self.entry(stag).ok_or(RequestError::UnknownStag)?.what {
                EntryKind::Region { windows: 0, .. } => {}
                _ => return Err(RequestError::InUse),
            }
        }
        if one == other {
            return Ok(());
        }
        let places = [&(one >> KEY_BITS), &(other >> KEY_BITS)];
        if let [Some(first), Some(second)] = self.entries.get_disjoint_mut(places) {
            core::mem::swap(first, second);
            (first.stag, second.stag) = (one, other);
        }
        Ok(())
    }

    /// Records the memory of a window's region as invalidated, because its bytes may still be queued for
    /// sending.
    fn withdraw_shown(&mut self, region: Option<u32>) {
        if let Some(Entry { what: EntryKind::Region { list, .. }, .. }) =
            region.and_then(|region| self.entries.get(&(region >> KEY_BITS)))
        {
            self.invalidated.extend(list.blocks().iter().cloned());
        }
    }

    /// Unbinds all windows of a region.
    pub(in super::super) fn unbind_windows(&mut self, stag: u32) {
        if !matches!(self.entry(stag), Some(Entry { what: EntryKind::Region { windows: 1.., .. }, .. })) {
            return;
        }
        for entry in self.entries.values_mut() {
            if let EntryKind::Window { region, type_2, .. } = &mut entry.what
                && *region == Some(stag)
            {
                *region = None;
                self.windows_of_qps -= usize::from(*type_2 && entry.valid);
                entry.valid = false;
            }
        }
        if let Some(Entry { what: EntryKind::Region { windows, .. }, .. }) = self.entry_mut(stag) {
            *windows = 0;
        }
    }

    /// Decrements the number of windows bound to a region.
    fn unbound(&mut self, region: Option<u32>) {
        if let Some(EntryKind::Region { windows, .. }) =
            region.and_then(|region| self.entries.get_mut(&(region >> KEY_BITS))).map(|entry| &mut entry.what)
        {
            *windows = windows.saturating_sub(1);
        }
    }

    /// Invalidates a tag on behalf of a peer. A peer may invalidate only memory that is exposed to peers. It
    /// also sees the tags of our own buffers, in our read requests, but must not invalidate those.
    pub(in super::super) fn invalidate_for_peer(
        &mut self,
        stag: u32,
        pd: u32,
        qp: u32,
    ) -> Result<(), Violation> {
        if let Some(Entry { access, what: EntryKind::Region { .. }, .. }) = self.entry(stag)
            && !(access.remote_read || access.remote_write || access.remote_atomic)
        {
            return Err(Violation::Access);
        }
        self.invalidate(stag, pd, qp)
    }

    /// Invalidates the type 2 windows bound through a queue pair that was destroyed or reset.
    pub(in super::super) fn release_windows(&mut self, gone: u32) {
        if self.windows_of_qps == 0 {
            return;
        }
        let bound = |entry: &Entry| {
            entry.valid && matches!(entry.what, EntryKind::Window { type_2: true, qp, .. } if qp == gone)
        };
        let stags: Vec<(u32, u32)> =
            self.entries.values().filter(|entry| bound(entry)).map(|entry| (entry.stag, entry.pd)).collect();
        for (stag, pd) in stags {
            // This cannot fail, because the window was bound by this queue pair.
            let _ = self.invalidate(stag, pd, gone);
        }
    }

    /// Invalidates a tag until it is registered or bound again. `qp` is the queue pair on which the request
    /// was posted.
    pub(in super::super) fn invalidate(&mut self, stag: u32, pd: u32, qp: u32) -> Result<(), Violation> {
        let entry =
            self.entries.get_mut(&(stag >> KEY_BITS)).filter(|entry| entry.stag == stag && entry.valid);
        let entry = entry.ok_or(Violation::Stag)?;
        if entry.pd != pd {
            return Err(Violation::Stream);
        }
        match &mut entry.what {
            // Windows bound to the region would expose memory that is no longer registered.
            EntryKind::Region { windows: 1.., .. } => return Err(Violation::Access),
            EntryKind::Region { list, .. } => {
                entry.valid = false;
                self.invalidated.extend(list.blocks().iter().cloned());
            }
            // Only its owner can unbind a type 1 window (in the RDMA verbs, its tag cannot be invalidated).
            EntryKind::Window { type_2: false, .. } => return Err(Violation::Access),
            EntryKind::Window { qp: owner, .. } if *owner != qp => return Err(Violation::Stream),
            EntryKind::Window { region, .. } => {
                let region = region.take();
                entry.valid = false;
                self.windows_of_qps -= 1;
                self.withdraw_shown(region);
                self.unbound(region);
            }
        }
        Ok(())
    }

    /// Attaches memory to a region that has none, or whose tag is invalid.
    pub(in super::super) fn fill(
        &mut self,
        stag: u32,
        pd: u32,
        address: u64,
        blocks: Vec<Region>,
        access: Access,
    ) -> Result<(), Violation> {
        let entry = self.entries.get_mut(&(stag >> KEY_BITS)).ok_or(Violation::Stag)?;
        if entry.pd != pd {
            return Err(Violation::Stream);
        }
        let EntryKind::Region { list, blocks_max, .. } = &mut entry.what else { return Err(Violation::Stag) };
        if entry.valid || check_access(access).is_err() {
            return Err(Violation::Access);
        }
        if blocks.len() > *blocks_max {
            return Err(Violation::Bounds);
        }
        *list = BufferList::new(blocks, address).ok_or(Violation::Wrap)?;
        (entry.address, entry.length, entry.access) = (address, list.length(), access);
        (entry.stag, entry.valid) = (stag, true);
        Ok(())
    }

    /// Binds a window to a part of a region, or unbinds it.
    pub(in super::super) fn bind(
        &mut self,
        window: u32,
        pd: u32,
        qp: u32,
        binding: Option<Binding>,
    ) -> Result<(), Violation> {
        let entry = self.entries.get(&(window >> KEY_BITS)).filter(|entry| entry.pd == pd);
        let entry = entry.ok_or(Violation::Stag)?;
        let EntryKind::Window { type_2, .. } = entry.what else { return Err(Violation::Stag) };
        // A type 2 window can be bound again only after it was invalidated.
        if type_2 && entry.valid {
            return Err(Violation::Access);
        }
        if let Some(binding) = &binding {
            let region = self.entry(binding.region).filter(|region| region.valid).ok_or(Violation::Stag)?;
            let whole = region.address..region.address.saturating_add(region.length);
            let end = binding.address.checked_add(binding.length).ok_or(Violation::Wrap)?;
            let wants_write = binding.access.remote_write || binding.access.remote_atomic;
            if region.pd != pd {
                return Err(Violation::Stream);
            }
            if !region.access.bind
                || !matches!(region.what, EntryKind::Region { .. })
                || wants_write && !region.access.local_write
            {
                return Err(Violation::Access);
            }
            if binding.address < whole.start || end > whole.end {
                return Err(Violation::Bounds);
            }
        }
        let entry = self.entries.get_mut(&(window >> KEY_BITS)).ok_or(Violation::Stag)?;
        let EntryKind::Window { region, qp: owner, .. } = &mut entry.what else {
            return Err(Violation::Stag);
        };
        let before = core::mem::replace(region, binding.map(|binding| binding.region));
        *owner = qp;
        entry.stag = window;
        entry.valid = binding.is_some();
        // A type 2 window to be bound here is not bound now.
        self.windows_of_qps += usize::from(type_2 && binding.is_some());
        if let Some(binding) = binding {
            (entry.address, entry.length, entry.access) = (binding.address, binding.length, binding.access);
            if let Some(EntryKind::Region { windows, .. }) =
                self.entries.get_mut(&(binding.region >> KEY_BITS)).map(|entry| &mut entry.what)
            {
                *windows += 1;
            }
        }
        self.withdraw_shown(before);
        self.unbound(before);
        Ok(())
    }

    /// Returns the buffer list of a tag, if this queue pair may access the whole range in this way.
    #[inline]
    pub(in super::super) fn check(
        &self,
        stag: u32,
        (pd, qp): (u32, u32),
        purpose: AccessKind,
        address: u64,
        length: u64,
    ) -> Result<&BufferList, Violation> {
        let entry = self.entry(stag).filter(|entry| entry.valid).ok_or(Violation::Stag)?;
        // Ownership comes first, so that a peer cannot learn the bounds or rights of another's window.
        let is_others =
            matches!(entry.what, EntryKind::Window { type_2: true, qp: owner, .. } if owner != qp);
        if entry.pd != pd || is_others {
            return Err(Violation::Stream);
        }
        if !entry.access.allows(purpose) {
            return Err(Violation::Access);
        }
        let end = address.checked_add(length).ok_or(Violation::Wrap)?;
        if address < entry.address || end - entry.address > entry.length {
            return Err(Violation::Bounds);
        }
        match &entry.what {
            EntryKind::Region { list, .. } => Ok(list),
            // Windows are for peers only: the owner uses the region's tag.
            EntryKind::Window { .. } if matches!(purpose, AccessKind::LocalRead | AccessKind::LocalWrite) => {
                Err(Violation::Access)
            }
            EntryKind::Window { region, .. } => {
                let region = region.and_then(|region| self.entry(region)).filter(|region| region.valid);
                match region.map(|region| &region.what) {
                    Some(EntryKind::Region { list, .. }) => Ok(list),
                    _ => Err(Violation::Stag),
                }
            }
        }
    }
}

/// Peers may write only where the owner may (RDMA verbs §7.3; InfiniBand C10-56).
fn check_access(access: Access) -> Result<(), RequestError> {
    if (access.remote_write || access.remote_atomic) && !access.local_write {
        return Err(RequestError::BadAccess);
    }
    Ok(())
}
