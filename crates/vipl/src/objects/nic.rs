//! An open NIC, with the state that belongs to it.

use super::callbacks::Callbacks;
use super::handle::{Handle, QuickMap};
use super::hosts::Hosts;
use super::memory::Memories;
use crate::abi::{VIP_CHAR, VIP_NIC_HANDLE};
use kiban_os::lock;
use kiban_vi::Config;
use kiban_vi_runtime::HostAddress;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, OnceLock, RwLock};

/// The number of threads that wait at each of a NIC's discriminators.
pub(crate) type Waiters = HashMap<Vec<u8>, usize>;

/// A NIC that a program has opened.
pub(crate) struct Nic {
    /// The NIC itself, driven in real time.
    pub(crate) core: kiban_vi_runtime::Nic,
    pub(crate) config: Config,
    pub(crate) host: HostAddress,
    pub(crate) handle: OnceLock<Handle>,
    pub(crate) name: [VIP_CHAR; 64],
    /// The host address, to which `VipQueryNic` returns a pointer.
    pub(crate) address: Box<[u8]>,
    pub(crate) memories: RwLock<Memories>,
    /// Posted descriptors, indexed by address, each with the handle of its memory.
    pub(crate) posted: Mutex<QuickMap<usize, u32>>,
    /// Handles of the NIC's objects, indexed by the numbers that the NIC uses for the objects.
    pub(crate) numbers: Mutex<Numbers>,
    /// Threads that wait for connect requests.
    pub(crate) waiters: Mutex<Waiters>,
    pub(crate) hosts: Mutex<Option<Hosts>>,
    pub(crate) callbacks: Callbacks,
}

/// The handles of a NIC's objects.
#[derive(Default)]
pub(crate) struct Numbers {
    pub(crate) tags: QuickMap<u32, Handle>,
    pub(crate) vis: QuickMap<u32, Handle>,
    pub(crate) queues: QuickMap<u32, Handle>,
    /// Requests have no number.
    pub(crate) requests: Vec<Handle>,
}

/// The kind of object to which a NIC's number refers.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Tag,
    Vi,
    Queue,
}

impl Numbers {
    /// Returns the handles of one kind of object, indexed by number.
    pub(crate) fn of(&mut self, kind: Kind) -> &mut QuickMap<u32, Handle> {
        match kind {
            Kind::Tag => &mut self.tags,
            Kind::Vi => &mut self.vis,
            Kind::Queue => &mut self.queues,
        }
    }
}

impl Nic {
    pub(crate) fn handle(&self) -> VIP_NIC_HANDLE {
        self.handle.get().map_or(core::ptr::null_mut(), |handle| handle.as_pointer())
    }

    /// Returns the handle for a number in a result, or null if there is none.
    pub(crate) fn handle_of(&self, kind: Kind, number: u32) -> *mut c_void {
        let mut numbers = lock(&self.numbers);
        numbers.of(kind).get(&number).map_or(core::ptr::null_mut(), |handle| handle.as_pointer())
    }
}
