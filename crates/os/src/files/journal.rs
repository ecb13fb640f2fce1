//! Whether a file's contents and its name become durable with one commit of the file system's journal.
//!
//! Purpose  a file that must appear whole or not at all is written, synced and renamed, and then its
//!          directory is synced: two commits. One is enough if the file system's journal keeps the order.
//! Method   [`write_back`] writes the data to the device; the metadata that describes them is then in the
//!          journal's present transaction, or in an earlier one. The renaming is in the same transaction or a
//!          later one. A crash loses the end of the journal, never its beginning, so the name does not
//!          survive without the contents. A sync of the directory makes both durable.
//! Where    ext4 with a journal, and XFS, on one device. Their journal's commit flushes the device's cache
//!          first, which holds the data. Other file systems keep no such order, or none that they document.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;

/// Returns whether the file system of `file` has a journal that keeps the order of a write and a renaming.
pub fn keeps_order(file: impl AsFd) -> bool {
    let Ok(status) = rustix::fs::fstatfs(&file) else { return false };
    match status.f_type as u64 {
        XFS => true,
        EXT4 => has_journal_thread(file),
        _ => false,
    }
}

/// Returns whether an ext4 file system has a journal, which a thread writes. ext2, and ext4 without a
/// journal, have the same magic number.
fn has_journal_thread(file: impl AsFd) -> bool {
    let Ok(stat) = rustix::fs::fstat(file) else { return false };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let Ok(device) = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")) else { return false };
    let Some(name) = device.file_name() else { return false };
    let thread = std::fs::read_to_string(PathBuf::from("/sys/fs/ext4").join(name).join("journal_task"));
    // Without a journal: "<none>".
    thread.is_ok_and(|thread| thread.trim().parse::<u32>().is_ok())
}

/// Writes a file's data to the device and waits for them, but not for a commit of the journal.
///
/// # Errors
/// The data cannot be written, for example because the disk is full.
pub fn write_back(file: impl AsFd) -> io::Result<()> {
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the call has no pointers.
    match unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), 0, 0, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_keeps_no_order_and_data_are_written_back_or_refused() {
        let memory = rustix::fs::memfd_create("journal", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(!keeps_order(&memory));
        write_back(&memory).unwrap();
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert_eq!(write_back(&pipe).unwrap_err().raw_os_error(), Some(libc::ESPIPE));
    }
}
