//! The rsockets of the process, indexed by descriptor number.
//!
//! Fork      a child starts with an empty registry; the copy of its parent's is leaked.

use super::repoll::Repoll;
use super::service::{self, Job};
use super::socket::Socket;
use crate::atomic::AtomicPtr;
use crate::engine::{Generation, engine};
use crate::log::unsupported;
use crate::sync::published::Published;
use core::ffi::c_int;
use core::ptr::null_mut;
use kiban_os::{ignore_poison, lock};
use kiban_rdma_runtime::verbs::{AsyncEvent, Channel, Engine};
use std::sync::{Arc, Mutex, RwLock};

/// The object of a descriptor number.
#[derive(Clone)]
pub(super) enum Descriptor {
    Socket(Arc<Socket>),
    Repoll(Arc<Repoll>),
}

/// The rsockets of a process.
pub(super) struct Registry {
    born: Generation,
    pub(super) engine: &'static Engine,
    pub(super) jobs: Arc<Channel<Job>>,
    /// Asynchronous events of queue pairs, which are not used.
    pub(super) async_events: Arc<Channel<AsyncEvent>>,
    descriptors: RwLock<Vec<Option<Descriptor>>>,
    pub(super) has_service: Mutex<bool>,
}

static CURRENT: Published<Registry> = Published(AtomicPtr::new(null_mut()));

/// Returns the registry of this process, if it exists.
fn current() -> Option<&'static Registry> {
    CURRENT.get().filter(|world| world.born.is_now())
}

/// Returns the registry of this process; creates it on first use.
pub(super) fn world() -> Result<&'static Registry, c_int> {
    // Start the engine first, because it installs the fork handler.
    let engine = engine()?;
    if engine.is_on_board() {
        return Err(unsupported("rsockets on the NIC of a board"));
    }
    let number = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EMFILE);
    let make = || {
        Ok(Registry {
            born: Generation::now(),
            engine,
            jobs: Arc::new(Channel::new().map_err(number)?),
            async_events: Arc::new(Channel::new().map_err(number)?),
            descriptors: RwLock::default(),
            has_service: Mutex::new(false),
        })
    };
    CURRENT.get_or_make(|world| world.born.is_now(), make)
}

/// Finds the object with this descriptor number.
pub(super) fn find(number: c_int) -> Result<Descriptor, c_int> {
    let world = current().ok_or(libc::EBADF)?;
    let descriptors = ignore_poison(world.descriptors.read());
    let index = usize::try_from(number).map_err(|_| libc::EBADF)?;
    descriptors.get(index).cloned().flatten().ok_or(libc::EBADF)
}

/// Finds the socket with this descriptor number.
pub(super) fn socket(number: c_int) -> Result<Arc<Socket>, c_int> {
    match find(number)? {
        Descriptor::Socket(socket) => Ok(socket),
        Descriptor::Repoll(_) => Err(libc::EBADF),
    }
}

impl Registry {
    /// Returns whether the registry belongs to this process, not to its parent.
    pub(super) fn is_ours(&self) -> bool {
        self.born.is_now()
    }

    /// Registers a descriptor number.
    pub(super) fn add(&self, number: c_int, thing: Descriptor) {
        let Ok(index) = usize::try_from(number) else { return };
        let mut descriptors = ignore_poison(self.descriptors.write());
        if descriptors.len() <= index {
            descriptors.resize(index + 1, None);
        }
        descriptors[index] = Some(thing);
    }

    /// Starts the service thread if it is not running.
    pub(super) fn serve(&'static self) -> Result<(), c_int> {
        let mut has_service = lock(&self.has_service);
        if !*has_service {
            service::start(self)?;
            *has_service = true;
        }
        Ok(())
    }
}

/// Removes a descriptor number.
pub(super) fn remove(number: c_int) -> Result<Descriptor, c_int> {
    let world = current().ok_or(libc::EBADF)?;
    let mut descriptors = ignore_poison(world.descriptors.write());
    let index = usize::try_from(number).map_err(|_| libc::EBADF)?;
    descriptors.get_mut(index).and_then(Option::take).ok_or(libc::EBADF)
}
