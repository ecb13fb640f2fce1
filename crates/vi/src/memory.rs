//! Registered memory and protection tags.
//!
//! Each VI and each registered memory region has one tag. A VI's descriptors may refer to memory that has
//! the VI's own tag. A peer's RDMA operation may access memory that has the target VI's tag, if both the
//! memory and the VI allow the operation (VI Architecture 1.0).

use crate::error::RequestError;
use kiban_base::{Region, Slab};

/// Attributes of a registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryAttributes {
    /// The protection tag.
    pub tag: u32,
    /// Whether peers may write to the memory.
    pub rdma_write: bool,
    /// Whether peers may read it.
    pub rdma_read: bool,
}

#[derive(Debug)]
struct Registered {
    region: Region,
    attributes: MemoryAttributes,
}

/// All registered memory regions and tags of a NIC.
#[derive(Debug)]
pub(super) struct Registry {
    memories: Slab<Registered>,
    /// The number of VIs and memory regions that use each tag.
    tags: Slab<u32>,
}

impl Registry {
    pub(super) fn new(memories_max: usize, tags_max: usize, salt: u32) -> Registry {
        Registry { memories: Slab::new(memories_max, salt), tags: Slab::new(tags_max, salt ^ 0x5a5) }
    }

    /// Returns the number of registered memory regions.
    pub(super) fn len(&self) -> usize {
        self.memories.len()
    }

    pub(super) fn create_tag(&mut self) -> Result<u32, RequestError> {
        self.tags.insert(0).ok_or(RequestError::TooMany)
    }

    pub(super) fn destroy_tag(&mut self, tag: u32) -> Result<(), RequestError> {
        match self.tags.get(tag) {
            None => Err(RequestError::UnknownTag),
            Some(1..) => Err(RequestError::InUse),
            Some(0) => self.tags.remove(tag).map(|_| ()).ok_or(RequestError::UnknownTag),
        }
    }

    /// Adds a user to a tag.
    pub(super) fn hold_tag(&mut self, tag: u32) -> Result<(), RequestError> {
        self.tags.get_mut(tag).map(|users| *users += 1).ok_or(RequestError::UnknownTag)
    }

    pub(super) fn release_tag(&mut self, tag: u32) {
        if let Some(users) = self.tags.get_mut(tag) {
            *users = users.saturating_sub(1);
        }
    }

    pub(super) fn register(
        &mut self,
        region: Region,
        attributes: MemoryAttributes,
    ) -> Result<u32, RequestError> {
        self.hold_tag(attributes.tag)?;
        self.memories.insert(Registered { region, attributes }).ok_or_else(|| {
            self.release_tag(attributes.tag);
            RequestError::TooMany
        })
    }

    pub(super) fn deregister(&mut self, handle: u32) -> Result<Region, RequestError> {
        let registered = self.memories.remove(handle).ok_or(RequestError::UnknownMemory)?;
        self.release_tag(registered.attributes.tag);
        Ok(registered.region)
    }

    pub(super) fn attributes(&self, handle: u32) -> Result<MemoryAttributes, RequestError> {
        Ok(self.memories.get(handle).ok_or(RequestError::UnknownMemory)?.attributes)
    }

    pub(super) fn set_attributes(
        &mut self,
        handle: u32,
        attributes: MemoryAttributes,
    ) -> Result<(), RequestError> {
        let before = self.attributes(handle)?;
        self.hold_tag(attributes.tag)?;
        self.release_tag(before.tag);
        self.memories.get_mut(handle).ok_or(RequestError::UnknownMemory)?.attributes = attributes;
        Ok(())
    }

    /// Returns memory that descriptors of a VI with `tag` may refer to.
    #[inline]
    pub(super) fn local(&self, handle: u32, tag: u32) -> Option<&Region> {
        let registered = self.memories.get(handle)?;
        (registered.attributes.tag == tag).then_some(&registered.region)
    }

    /// Returns memory to which a peer of a VI with `tag` may write.
    #[inline]
    pub(super) fn writable(&self, handle: u32, tag: u32) -> Option<&Region> {
        let registered = self.memories.get(handle)?;
        (registered.attributes.tag == tag && registered.attributes.rdma_write).then_some(&registered.region)
    }

    /// Returns memory that a peer of a VI with `tag` may read.
    #[inline]
    pub(super) fn readable(&self, handle: u32, tag: u32) -> Option<&Region> {
        let registered = self.memories.get(handle)?;
        (registered.attributes.tag == tag && registered.attributes.rdma_read).then_some(&registered.region)
    }
}
