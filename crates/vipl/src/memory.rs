//! Registered memory and protection tags.
//!
//! Purpose   ensure that descriptors are read and completed only in memory that is registered with the VI's
//!           tag.
//! State     the NIC has a table of regions for data transfer. A second table here, indexed by address, is
//!           used to check the arguments of calls and to keep memory registered while a descriptor in it is
//!           accessed.
//! NULL tag  means the NIC's first tag, as on cLAN. This supports programs that use no tags, and programs
//!           such as ARMCI that register memory with their only tag and create VIs without a tag.

use crate::abi::{VIP_BOOLEAN, VIP_MEM_ATTRIBUTES, VIP_PROTECTION_HANDLE, VIP_PVOID, VIP_RETURN, VIP_ULONG};
use crate::border::{Answer, reading, writing};
use crate::handles::{self, Object};
use crate::objects::members::Tag;
use crate::objects::memory::Memory;
use crate::objects::nic::{Kind, Nic};
use core::ptr::NonNull;
use kiban_base::Region;
use kiban_vi::MemoryAttributes;
use std::sync::Arc;

/// The maximum size of a region, and of all regions together: the size of the address space.
pub(crate) const BLOCK_BYTES_MAX: usize = isize::MAX as usize / 2;
pub(crate) const BYTES_MAX: usize = isize::MAX as usize;

pub(crate) fn create_tag(nic: &Arc<Nic>) -> Answer<VIP_PROTECTION_HANDLE> {
    let mut memories = writing(&nic.memories);
    let number = match &mut memories.first_tag {
        // The tag was created for a NULL tag, and the program has not yet received its handle.
        Some((number, given @ false)) => {
            *given = true;
            *number
        }
        first => {
            let number = nic.core.create_tag()?;
            first.get_or_insert((number, true));
            number
        }
    };
    let tag = Arc::new(Tag { nic: nic.clone(), number });
    Ok(handles::adopt(nic, Kind::Tag, number, Object::Tag(tag))?.as_pointer())
}

pub(crate) fn destroy_tag(nic: &Arc<Nic>, pointer: VIP_PROTECTION_HANDLE) -> Answer {
    let tag = handles::tag(pointer)?;
    if !Arc::ptr_eq(&tag.nic, nic) {
        return Err(VIP_RETURN::INVALID_PARAMETER);
    }
    let mut memories = writing(&nic.memories);
    nic.core.destroy_tag(tag.number)?;
    memories.first_tag.take_if(|(first, _)| *first == tag.number);
    handles::disown(nic, Kind::Tag, tag.number);
    Ok(())
}

/// Returns the NIC's number for the tag to which a program's handle refers.
pub(crate) fn tag_of(nic: &Arc<Nic>, pointer: VIP_PROTECTION_HANDLE) -> Answer<u32> {
    if !pointer.is_null() {
        let tag = handles::tag(pointer).map_err(|_| VIP_RETURN::INVALID_PTAG)?;
        return if Arc::ptr_eq(&tag.nic, nic) { Ok(tag.number) } else { Err(VIP_RETURN::INVALID_PTAG) };
    }
    let mut memories = writing(&nic.memories);
    match memories.first_tag {
        Some((number, _)) => Ok(number),
        None => {
            let number = nic.core.create_tag()?;
            memories.first_tag = Some((number, false));
            Ok(number)
        }
    }
}

fn attributes_of(nic: &Arc<Nic>, given: Option<VIP_MEM_ATTRIBUTES>) -> Answer<MemoryAttributes> {
    let (tag, write, read) = match given {
        Some(given) => (given.Ptag, given.EnableRdmaWrite, given.EnableRdmaRead),
        None => (core::ptr::null_mut(), 0, 0),
    };
    Ok(MemoryAttributes { tag: tag_of(nic, tag)?, rdma_write: write != 0, rdma_read: read != 0 })
}

pub(crate) fn register(
    nic: &Arc<Nic>,
    base: VIP_PVOID,
    length: VIP_ULONG,
    given: Option<VIP_MEM_ATTRIBUTES>,
) -> Answer<u32> {
    let length = usize::try_from(length).map_err(|_| VIP_RETURN::INVALID_PARAMETER)?;
    let base = NonNull::new(base.cast::<u8>()).ok_or(VIP_RETURN::INVALID_PARAMETER)?;
    let address = base.addr().get();
    if length == 0 || address.checked_add(length).is_none() {
        return Err(VIP_RETURN::INVALID_PARAMETER);
    }
    let attributes = attributes_of(nic, given)?;
    let mut memories = writing(&nic.memories);
    if length > BLOCK_BYTES_MAX || memories.bytes.checked_add(length).is_none_or(|bytes| bytes > BYTES_MAX) {
        return Err(VIP_RETURN::ERROR_RESOURCE);
    }
    // SAFETY: vipl.h requires that the memory stays valid until `VipDeregisterMem`, in which the NIC drops
    // the region. There is no Rust reference to the program's memory.
    let region = unsafe { Region::foreign(base, length, None) };
    let handle = nic.core.register(region, attributes)?;
    memories.by_handle.insert(handle, Memory { address, length, tag: attributes.tag });
    memories.bytes += length;
    Ok(handle)
}

pub(crate) fn deregister(nic: &Arc<Nic>, address: VIP_PVOID, handle: u32) -> Answer {
    let mut memories = writing(&nic.memories);
    let memory = *memories.get(handle)?;
    if memory.address != address.addr() {
        return Err(VIP_RETURN::INVALID_PARAMETER);
    }
    nic.core.deregister(handle)?;
    memories.by_handle.remove(&handle);
    memories.bytes -= memory.length;
    Ok(())
}

pub(crate) fn query(nic: &Arc<Nic>, address: VIP_PVOID, handle: u32) -> Answer<VIP_MEM_ATTRIBUTES> {
    if !reading(&nic.memories).get(handle)?.holds(address.addr(), 1) {
        return Err(VIP_RETURN::INVALID_PARAMETER);
    }
    let attributes = nic.core.memory_attributes(handle)?;
    Ok(VIP_MEM_ATTRIBUTES {
        Ptag: nic.handle_of(Kind::Tag, attributes.tag),
        EnableRdmaWrite: VIP_BOOLEAN::from(attributes.rdma_write),
        EnableRdmaRead: VIP_BOOLEAN::from(attributes.rdma_read),
    })
}

pub(crate) fn set(nic: &Arc<Nic>, address: VIP_PVOID, handle: u32, given: VIP_MEM_ATTRIBUTES) -> Answer {
    if !reading(&nic.memories).get(handle)?.holds(address.addr(), 1) {
        return Err(VIP_RETURN::INVALID_PARAMETER);
    }
    let attributes = attributes_of(nic, Some(given))?;
    let mut memories = writing(&nic.memories);
    nic.core.set_memory_attributes(handle, attributes)?;
    if let Some(memory) = memories.by_handle.get_mut(&handle) {
        memory.tag = attributes.tag;
    }
    Ok(())
}
