//! Loads rdma-core's own libraries, so that tests can compare results.

use core::ffi::{CStr, c_void};

pub(crate) const VERBS: &CStr = c"libibverbs.so.1";
pub(crate) const CM: &CStr = c"librdmacm.so.1";

pub(crate) struct RealLibrary(*mut c_void);

impl RealLibrary {
    /// Loads a library through the dynamic linker's search path. It is never unloaded.
    pub(crate) fn open(name: &CStr) -> RealLibrary {
        // SAFETY: `name` is a C string; loading this library runs no code of ours.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "{name:?} is missing: install libibverbs1 and librdmacm1");
        RealLibrary(library)
    }

    /// # Safety
    /// `F` is the pointer type of that function.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &CStr) -> F {
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        // SAFETY: the handle stays valid, because the library is never closed, and `name` is a C string.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?} is not in the library");
        // SAFETY: the caller guarantees that `F` is the type of the function; the assertion checks that it
        // has the size of a pointer.
        unsafe { core::mem::transmute_copy(&found) }
    }
}
