//! The session table: a slab of sessions, and a hash from 4-tuple to slot.
//!
//! The hash key is drawn at random at start, so that a peer cannot choose ports that collide. A [`SessionId`]
//! carries a generation, so that looking up the id of an ended session finds nothing.

use super::session::Session;
use crate::steering::hash;
use crate::tcp::interface::indication::SessionId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;
use hashbrown::HashTable;
use kiban_base::SecureRng;

pub(super) struct Table {
    slots: Vec<(u32, Option<Box<Session>>)>,
    free: Vec<u32>,
    by_four_tuple: HashTable<u32>,
    /// The most recently found slot; it may be free by now.
    recent: u32,
    key: [u64; 2],
}

impl Table {
    pub(super) fn new(rng: &mut SecureRng) -> Table {
        let key = [rng.draw(), rng.draw() | 1];
        Table { slots: Vec::new(), free: Vec::new(), by_four_tuple: HashTable::new(), recent: 0, key }
    }

    /// Returns the keyed hash of a 4-tuple.
    #[inline]
    pub(super) fn hash(&self, local: SocketAddr, remote: SocketAddr) -> u64 {
        hash(self.key, local, remote)
    }

    pub(super) fn len(&self) -> usize {
        self.by_four_tuple.len()
    }

    /// Returns the slot of a 4-tuple. Segments arrive in bursts, so the slot found last is tried first.
    #[inline]
    pub(super) fn find(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let is_it = |index: &u32| {
            let session = self.slots.get(*index as usize).and_then(|slot| slot.1.as_ref());
            session.is_some_and(|session| session.remote == remote && session.local == local)
        };
        if !is_it(&self.recent) {
            self.recent = *self.by_four_tuple.find(self.hash(local, remote), is_it)?;
        }
        Some(self.recent)
    }

    /// Inserts the session that `make` creates for its id.
    pub(super) fn insert(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        make: impl FnOnce(SessionId) -> Session,
    ) -> SessionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let id = SessionId { index, generation: self.slots[index as usize].0 };
        self.slots[index as usize].1 = Some(Box::new(make(id)));
        let name = self.hash(local, remote);
        // Slots are rehashed when the table grows.
        let (slots, key) = (&self.slots, self.key);
        let rehash = |index: &u32| {
            let session = slots[*index as usize].1.as_ref().expect("the hash names live sessions");
            hash(key, session.local, session.remote)
        };
        self.by_four_tuple.insert_unique(name, index, rehash);
        id
    }

    pub(super) fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let Some(session) = slot.1.take() {
            slot.0 = slot.0.wrapping_add(1);
            self.free.push(index);
            let hash = self.hash(session.local, session.remote);
            if let Ok(entry) = self.by_four_tuple.find_entry(hash, |other| *other == index) {
                entry.remove();
            }
        }
    }

    /// Removes and returns a session, for tests.
    #[cfg(test)]
    pub(super) fn take(&mut self, id: SessionId) -> Option<Session> {
        self.slots[id.index as usize].1.take().map(|session| *session)
    }

    #[inline]
    pub(super) fn at(&mut self, index: u32) -> Option<&mut Session> {
        self.slots.get_mut(index as usize)?.1.as_deref_mut()
    }

    #[inline]
    pub(super) fn get(&self, id: SessionId) -> Option<&Session> {
        let slot = self.slots.get(id.index as usize)?;
        if slot.0 == id.generation { slot.1.as_deref() } else { None }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.0 == id.generation { slot.1.as_deref_mut() } else { None }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slots.iter().filter_map(|slot| slot.1.as_deref())
    }
}
