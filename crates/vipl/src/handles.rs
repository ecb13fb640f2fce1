//! Handles, by which programs refer to the library's objects.
//!
//! Purpose   detect invalid handles and handles of destroyed objects.
//! How       a handle is a number that is looked up, never dereferenced. 32 bits contain an index and a
//!           generation (`kiban_base::Slab`); on 64-bit machines, 32 more bits contain a serial number that
//!           is unique in the process.
//! Limits    a million objects; the serial number wraps after 2^31 handles.

use crate::abi::{VIP_PVOID, VIP_RETURN};
use crate::border::{Answer, reading, writing};
use crate::objects::handle::Handle;
use crate::objects::members::{Queue, Request, Tag, Vi};
use crate::objects::nic::{Kind, Nic};
use kiban_base::Slab;
use kiban_os::lock;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, RwLock};

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

/// Adds an object to the table. Returns its handle, or `VIP_ERROR_RESOURCE` if the table is full.
pub(crate) fn insert(object: Object) -> Answer<Handle> {
    // Set the top bit, so that the serial number is never zero.
    let serial = TABLE.next_serial.fetch_add(1, Relaxed) | 1 << 31;
    let number =
        writing(&TABLE.entries).insert(Entry { serial, object }).ok_or(VIP_RETURN::ERROR_RESOURCE)?;
    Ok(Handle::new(number, serial))
}

/// Removes a handle and returns its object.
pub(crate) fn remove(handle: Handle) -> Option<Object> {
    let mut entries = writing(&TABLE.entries);
    entries.get(handle.number()).filter(|entry| handle.bears(entry.serial))?;
    entries.remove(handle.number()).map(|entry| entry.object)
}

macro_rules! finders {
    ($($find:ident: $kind:ident),* $(,)?) => {$(
        /// Returns the object to which a handle refers, or `VIP_INVALID_PARAMETER` if it is not an object of
        /// this kind.
        #[inline]
        pub(crate) fn $find(pointer: VIP_PVOID) -> Answer<Arc<$kind>> {
            let handle = Handle::of(pointer);
            match reading(&TABLE.entries).get(handle.number()) {
                Some(Entry { serial, object: Object::$kind(object) }) if handle.bears(*serial) => {
                    Ok(object.clone())
                }
                _ => Err(VIP_RETURN::INVALID_PARAMETER),
            }
        }
    )*};
}
finders!(nic: Nic, tag: Tag, vi: Vi, queue: Queue, request: Request);

/// Adds one of a NIC's objects to the table. Returns its handle.
pub(crate) fn adopt(nic: &Nic, kind: Kind, number: u32, object: Object) -> Answer<Handle> {
    let handle = insert(object)?;
    lock(&nic.numbers).of(kind).insert(number, handle);
    Ok(handle)
}

/// Removes one of a NIC's objects from the table.
pub(crate) fn disown(nic: &Nic, kind: Kind, number: u32) {
    if let Some(handle) = lock(&nic.numbers).of(kind).remove(&number) {
        remove(handle);
    }
}

/// Adds a connect request at a NIC to the table. Returns its handle.
pub(crate) fn adopt_request(nic: &Nic, object: Object) -> Answer<Handle> {
    let handle = insert(object)?;
    lock(&nic.numbers).requests.push(handle);
    Ok(handle)
}

/// Removes a connect request that has been answered.
pub(crate) fn disown_request(nic: &Nic, handle: Handle) -> Option<Object> {
    lock(&nic.numbers).requests.retain(|known| *known != handle);
    remove(handle)
}
