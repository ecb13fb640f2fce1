//! Reads sysfs files for programs (ibv_read_sysfs_file).
//!
//! Purpose         returns the same results as rdma-core: the text without its last line feed, terminated by
//!                 NUL, and the length of the text.
//! Not implemented `ibv_read_ibdev_sysfs_file`, which only provider libraries call.

use crate::abi::IBV_SYSFS_PATH_MAX;
use crate::ffi::{catch_panics, fail_with_errno};
use core::ffi::{CStr, c_char, c_int};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// Returns the mount point of sysfs: `SYSFS_PATH` from the environment if it is set and the program does not
/// run with another user's privileges, and otherwise `/sys`.
#[unsafe(no_mangle)]
extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<CString> = OnceLock::new();
    catch_panics(c"/sys".as_ptr(), || {
        PATH.get_or_init(|| {
            // SAFETY: these calls take no arguments and only return numbers.
            let own_rights =
                unsafe { libc::getuid() == libc::geteuid() && libc::getgid() == libc::getegid() };
            let configured = std::env::var_os("SYSFS_PATH").filter(|_| own_rights);
            configured
                .and_then(|path| CString::new(trimmed(path.as_bytes())).ok())
                .unwrap_or_else(|| c"/sys".to_owned())
        })
        .as_ptr()
    })
}

fn trimmed(path: &[u8]) -> &[u8] {
    let path = &path[..path.len().min(IBV_SYSFS_PATH_MAX)];
    &path[..path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1)]
}

/// Returns the length of the text, or -1.
///
/// # Safety
/// `folder` and `file` are C strings, or null; `text` has room for `bytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_read_sysfs_file(
    folder: *const c_char,
    file: *const c_char,
    text: *mut c_char,
    bytes: usize,
) -> c_int {
    catch_panics(-1, || {
        if folder.is_null() || file.is_null() || (text.is_null() && bytes > 0) {
            return fail_with_errno(libc::EINVAL);
        }
        // SAFETY: the caller of `ibv_read_sysfs_file` guarantees that both pointers, which are not null here,
        // are C strings.
        let (folder, file) = unsafe { (CStr::from_ptr(folder), CStr::from_ptr(file)) };
        let path = [folder.to_bytes(), b"/", file.to_bytes()].concat();
        let room = if bytes == 0 {
            &mut []
        } else {
            // SAFETY: the caller guarantees room for `bytes` bytes. File::read only writes to them, and
            // `ended` reads only bytes that File::read has written.
            unsafe { core::slice::from_raw_parts_mut(text.cast::<u8>(), bytes) }
        };
        match File::open(OsStr::from_bytes(&path)).and_then(|mut file| file.read(room)) {
            Ok(length) => ended(room, length).and_then(|length| c_int::try_from(length).ok()).unwrap_or(-1),
            Err(error) => fail_with_errno(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    })
}

/// Replaces the last line feed with NUL, or appends NUL. Returns `None` if there is no room for it.
fn ended(room: &mut [u8], length: usize) -> Option<usize> {
    let Some(last) = length.checked_sub(1) else { return Some(0) };
    let end = if room[last] == b'\n' { last } else { length };
    *room.get_mut(end)? = 0;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference_library::{RealLibrary, VERBS};

    type ReadFile = unsafe extern "C" fn(*const c_char, *const c_char, *mut c_char, usize) -> c_int;

    #[test]
    fn sysfs_files_are_read_as_by_rdma_core() {
        let folder = std::env::temp_dir().join(format!("kiban-verbs-sysfs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("there is room");
        let real = RealLibrary::open(VERBS);
        // SAFETY: the type is the one in driver.h.
        let theirs = unsafe { real.function::<ReadFile>(c"ibv_read_sysfs_file") };
        let place = CString::new(folder.as_os_str().as_bytes()).expect("no zero in it");
        for text in ["", "\n", "1", "12345\n", "1234567", "12345678", "1234567\n", "123456789\n"] {
            std::fs::write(folder.join("file"), text).expect("the folder is ours");
            for name in [c"file", c"missing"] {
                let read = |by: ReadFile| {
                    let mut room = [0x55u8; 12];
                    // SAFETY: both arguments are C strings, and `room` has twelve bytes, of which eight are
                    // offered.
                    let length = unsafe { by(place.as_ptr(), name.as_ptr(), room.as_mut_ptr().cast(), 8) };
                    (length, room)
                };
                assert_eq!(read(ibv_read_sysfs_file), read(theirs), "{text:?} {name:?}");
            }
        }
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
        // SAFETY: the function rejects null pointers before it uses them.
        let refused =
            unsafe { ibv_read_sysfs_file(core::ptr::null(), c"x".as_ptr(), core::ptr::null_mut(), 0) };
        assert_eq!(refused, -1);
    }

    #[test]
    fn the_sysfs_path_has_no_trailing_slash() {
        assert_eq!(trimmed(b"/a/b//"), b"/a/b");
        assert_eq!(trimmed(b"/"), b"");
        assert_eq!(trimmed(&[b'a'; 400]).len(), IBV_SYSFS_PATH_MAX);
        let real = RealLibrary::open(VERBS);
        // SAFETY: the type is the one in driver.h, and both functions return strings.
        let (ours, theirs) = unsafe {
            let theirs = real.function::<extern "C" fn() -> *const c_char>(c"ibv_get_sysfs_path")();
            (CStr::from_ptr(ibv_get_sysfs_path()), CStr::from_ptr(theirs))
        };
        assert_eq!(ours, theirs);
    }
}
