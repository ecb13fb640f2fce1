//! The process's RDMA NIC, and its behaviour across fork(2).
//!
//! Purpose   provides one [`Engine`] per process, which is created on first use and ends with the process.
//! Fork      a child has copies of its parent's objects but must not use them: locks that a thread of the
//!           parent held stay locked. Each object therefore stores the [`Generation`] in which it was
//!           created; in a child, calls on that object return EIO. The child's first other call creates an
//!           engine of its own. The parent is not affected.
//! Detection the generation number is in memory that the kernel fills with zeros in a child (MADV_WIPEONFORK,
//!           madvise(2)). Fork handlers and process IDs are not enough: `_Fork()` and clone(2) call no
//!           handlers, and processes in two PID namespaces may have the same ID.
//! Limits    a child that shares its parent's memory (vfork(2), clone(2) with CLONE_VM) is not detected. If
//!           the kernel cannot wipe memory (before Linux 4.14), only children of fork() are detected.

use crate::atomic::{AtomicPtr, Ordering};
use crate::device::{Transport, transport};
use crate::sync::published::Published;
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::AtomicU32;
use kiban_os::turn::with_signals_blocked;
use kiban_rdma_runtime::verbs::{BoardTransport, Engine, Features, RequestError, Wire};
use std::io::{Write, stderr};

static CURRENT: Published<(Generation, Engine)> = Published(AtomicPtr::new(null_mut()));
/// Points to the generation number of this process, which is 0 until its first call; the kernel sets it to 0
/// in a child. The pointer is null until the first call in the first process.
static NUMBER: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// The highest number that this process or an ancestor has used.
static LAST: AtomicU32 = AtomicU32::new(0);

/// Distinguishes a process from its ancestors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Generation(u32);

impl Generation {
    /// Returns the generation of this process.
    #[inline]
    pub(crate) fn now() -> Generation {
        // SAFETY: `NUMBER` is null or points to memory that stays mapped.
        match unsafe { NUMBER.load(Ordering::Acquire).as_ref() }.map(|number| number.load(Ordering::Relaxed))
        {
            None | Some(0) => Generation::begin(),
            Some(number) => Generation(number),
        }
    }

    /// Starts the generation of this process, unless another thread has done so.
    #[cold]
    fn begin() -> Generation {
        // `LAST` grows first, so that a child which another thread forks now gets a higher number.
        let next = LAST.fetch_add(1, Ordering::SeqCst) + 1;
        let started = number().compare_exchange(0, next, Ordering::SeqCst, Ordering::SeqCst);
        Generation(started.map_or_else(|number| number, |_| next))
    }

    /// Returns its number, which no ancestor of the process has.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Returns whether this is the generation of this process.
    #[inline]
    pub(crate) fn is_now(self) -> bool {
        self == Generation::now()
    }
}

/// Returns the generation number of this process. Maps its memory on first use.
fn number() -> &'static AtomicU32 {
    let mut number = NUMBER.load(Ordering::Acquire);
    if number.is_null() {
        // If another thread does the same now, the mapping of one of them is never used.
        let made = wiped_memory();
        let other = NUMBER.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        number = other.map_or_else(|other| other, |_| made);
    }
    // SAFETY: `NUMBER` points to memory that stays mapped.
    unsafe { &*number }
}

/// Maps a number that is 0 in every child. It stays mapped.
fn wiped_memory() -> *mut AtomicU32 {
    static WIPED_BY_HANDLER: AtomicU32 = AtomicU32::new(0);
    /// Runs in a child after fork(2): only stores are allowed here.
    extern "C" fn on_fork() {
        WIPED_BY_HANDLER.store(0, Ordering::Relaxed);
    }
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: this maps new memory, which nothing else uses.
    let mapped = unsafe { libc::mmap(null_mut(), size_of::<AtomicU32>(), rights, flags, -1, 0) };
    // SAFETY: `mapped` is the new mapping, or MAP_FAILED, for which madvise(2) fails.
    if unsafe { libc::madvise(mapped, size_of::<AtomicU32>(), libc::MADV_WIPEONFORK) } == 0 {
        return mapped.cast();
    }
    // SAFETY: `on_fork` makes only one store. The call fails if memory is short; in that case, forks go
    // unnoticed.
    unsafe { libc::pthread_atfork(None, None, Some(on_fork)) };
    (&raw const WIPED_BY_HANDLER).cast_mut()
}

/// Returns the process's engine, or an errno.
pub(crate) fn engine() -> Result<&'static Engine, c_int> {
    CURRENT.get_or_make(|(born, _)| born.is_now(), make).map(|(_, engine)| engine)
}

fn make() -> Result<(Generation, Engine), c_int> {
    let ways = Features {
        extensions: transport() != Transport::Iwarp,
        shared_memory: std::env::var_os("KIBAN_SHARED_MEMORY").is_none_or(|value| value != "0"),
        wire: match transport() {
            Transport::Ib | Transport::Iwarp => Wire::Tcp,
            Transport::Roce => Wire::Roce,
            Transport::Efe => Wire::Efe,
        },
    };
    crate::log::info(format_args!("transport {}", transport().name()));
    let made = with_signals_blocked(|| match crate::device::board() {
        Some(name) => {
            let made = Engine::open_on_board(Some(name), board_transport());
            made.inspect_err(|error| {
                // Programs only say that they found no device. If the line cannot be written, they still do.
                let _ = writeln!(stderr(), "kiban: cannot use the NIC of the board {name}: {error}");
            })
        }
        None => Engine::open(ways),
    });
    let made = made.map_err(|error| error.raw_os_error().unwrap_or(libc::ENOMEM))?;
    // SAFETY: `at_exit` may run at any time. If memory is short, peers find out by their own timeouts.
    unsafe { libc::atexit(at_exit) };
    Ok((Generation::now(), made))
}

/// Ends the connections that the program has left open, as the kernel does for a process that exits. A forked
/// child leaves its parent's alone.
extern "C" fn at_exit() {
    if let Some((born, engine)) = CURRENT.get()
        && born.is_now()
    {
        engine.end_connections();
    }
}

/// Returns what connections use on a board.
fn board_transport() -> BoardTransport {
    match transport() {
        Transport::Ib | Transport::Iwarp => BoardTransport::Tcp,
        Transport::Roce => BoardTransport::Roce,
        Transport::Efe => BoardTransport::Efe,
    }
}

/// An object that programs see as a C struct. The C struct is the object's first field.
///
/// # Safety
/// The type is `repr(C)`, and its first field is an `UnsafeCell` of `Abi`.
pub(crate) unsafe trait Object: Sized {
    /// The struct of C.
    type Abi;

    /// Returns the generation in which the object was created.
    fn born(&self) -> Generation;

    /// Returns the C struct.
    fn abi(&self) -> *mut Self::Abi {
        let cell = core::ptr::from_ref(self).cast::<UnsafeCell<Self::Abi>>();
        UnsafeCell::raw_get(cell)
    }

    /// Moves the object to the heap and returns the pointer for the program.
    fn give(self) -> *mut Self::Abi {
        Box::into_raw(Box::new(self)).cast()
    }
}

/// Returns the object behind a program's pointer, or an errno.
///
/// # Safety
/// `pointer` is null, or [`Object::give`] returned it for this type and [`take_back`] has not freed it.
#[inline]
pub(crate) unsafe fn given<'a, T: Object>(pointer: *mut T::Abi) -> Result<&'a T, c_int> {
    // SAFETY: the caller of `given` guarantees that `pointer` is null or an object of type `T` that `give`
    // returned and `take_back` has not freed.
    let object = unsafe { pointer.cast::<T>().as_ref() }.ok_or(libc::EINVAL)?;
    if object.born().is_now() { Ok(object) } else { Err(libc::EIO) }
}

/// Frees an object that [`Object::give`] returned.
///
/// # Safety
/// As for [`given`]; in addition the object is not used again.
pub(crate) unsafe fn take_back<T: Object>(pointer: *mut T::Abi) {
    // SAFETY: the caller guarantees that `give` boxed this object as a `T` and that it is not used again.
    drop(unsafe { Box::from_raw(pointer.cast::<T>()) });
}

/// Maps an error of the engine to an errno.
pub(crate) fn refused(refusal: RequestError) -> c_int {
    match refusal {
        RequestError::InUse => libc::EBUSY,
        RequestError::TooMany | RequestError::Full => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}
