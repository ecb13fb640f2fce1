//! Fork (ibv_fork_init(3)).
//!
//! Purpose   reports that memory needs no protection from fork(2) (IBV_FORK_UNNEEDED).
//! Why       hardware writes to physical pages, so rdma-core must prevent copy-on-write from replacing the
//!           parent's pages. This NIC writes to the process's virtual addresses, as the program itself does.
//!           A kernel that copies pinned pages on fork reports the same result.

use crate::abi::{IBV_FORK_UNNEEDED, ibv_fork_status};
use core::ffi::{c_int, c_void};

#[unsafe(no_mangle)]
extern "C" fn ibv_fork_init() -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    IBV_FORK_UNNEEDED
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dontfork_range(_base: *mut c_void, _bytes: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dofork_range(_base: *mut c_void, _bytes: usize) -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference_library::{RealLibrary, VERBS};

    #[test]
    fn fork_support_is_reported_as_unneeded() {
        let real = RealLibrary::open(VERBS);
        // SAFETY: the type matches the declaration in verbs.h.
        let range =
            unsafe { real.function::<extern "C" fn(*mut c_void, usize) -> c_int>(c"ibv_dontfork_range") };
        let mut page = [0u8; 100];
        let base = page.as_mut_ptr().cast();
        assert_eq!(ibv_dontfork_range(base, 100), range(base, 100));
        assert_eq!((ibv_fork_init(), ibv_dofork_range(base, 100)), (0, 0));
        assert_eq!(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
    }
}
