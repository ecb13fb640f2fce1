//! The process's RDMA NIC, and its behaviour across fork(2).
//!
//! Purpose   provides one [`Engine`] per process, which is created on first use and ends with the process.
//! Fork      a child has copies of its parent's objects but must not use them: locks that a thread of the
//!           parent held stay locked. Each object therefore stores the [`Generation`] in which it was
//!           created; in a child, calls on that object return EIO. The child's first other call creates an
//!           engine of its own. The parent is not affected.
//! Limits    a child that shares its parent's memory (vfork(2), clone(2) with CLONE_VM) is not detected.

use crate::atomic::{AtomicBool, AtomicPtr, Ordering};
use crate::sync::published::Published;
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::AtomicU32;
use kiban_rdma_runtime::verbs::{Engine, Features, RequestError};

static CURRENT: Published<(Generation, Engine)> = Published(AtomicPtr::new(null_mut()));
static GENERATION: AtomicU32 = AtomicU32::new(0);
static WATCHED: AtomicBool = AtomicBool::new(false);

/// The number of forks between a process and the one that loaded the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Generation(u32);

impl Generation {
    /// Returns the generation of this process.
    #[inline]
    pub(crate) fn now() -> Generation {
        Generation(GENERATION.load(Ordering::Relaxed))
    }

    /// Returns whether this is the generation of this process.
    #[inline]
    pub(crate) fn is_now(self) -> bool {
        self == Generation::now()
    }
}

/// Runs in a child after fork(2): only stores are allowed here.
extern "C" fn on_fork() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Returns the process's engine, or an errno.
pub(crate) fn engine() -> Result<&'static Engine, c_int> {
    CURRENT.get_or_make(|(born, _)| born.is_now(), make).map(|(_, engine)| engine)
}

fn make() -> Result<(Generation, Engine), c_int> {
    if !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: `on_fork` only makes one store. The call fails if memory is short; in that case, forks go
        // unnoticed.
        unsafe { libc::pthread_atfork(None, None, Some(on_fork)) };
    }
    let ways = Features {
        extensions: crate::device::transport() != crate::device::Transport::Iwarp,
        shared_memory: std::env::var_os("KIBAN_SHARED_MEMORY").is_none_or(|value| value != "0"),
        roce: crate::device::transport() == crate::device::Transport::Roce,
    };
    let made =
        quietly(|| Engine::open(ways)).map_err(|error| error.raw_os_error().unwrap_or(libc::ENOMEM))?;
    Ok((Generation::now(), made))
}

/// Runs `work` with all signals blocked, so that threads created by `work` do not get the program's signals.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: signal sets are plain numbers, and the calls write only to these two local variables.
    let before = unsafe {
        let (mut all, mut before) = core::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    let done = work();
    // SAFETY: `before` is the mask that pthread_sigmask(3) returned above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut()) };
    done
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
