//! File contents being written: a locked file, and a buffer of bytes to be appended to it.
//!
//! Purpose    data elements arrive in pieces the size of a TPDU, and are written to the file in large
//!            gathering writes.
//! Operation  the code that pumps an association writes buffered data ([`Contents::write_out`]) before it
//!            waits for more. So the buffer never holds more data than one read from the socket, and its
//!            memory is free again after the write.
//! Errors     a deferred write error is returned by the next call, and by [`Contents::whole`] at the latest.

use super::paths::disk_error;
use kiban_base::Rope;
use kiban_osi::ftam::filestore::DiskError;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::OwnedFd;

/// Buffered data is written when it reaches this many bytes, or this many pieces.
const WAITING_BYTES_MAX: usize = 256 << 10;
const PIECES_MAX: usize = 512;

#[derive(Debug)]
pub(super) struct Contents {
    file: OwnedFd,
    /// Bytes written to the file so far.
    written: u64,
    waiting: Rope,
    pieces: usize,
    error: Option<DiskError>,
}

impl Contents {
    /// Wraps a file that already holds this many bytes.
    pub(super) fn new(file: OwnedFd, bytes: u64) -> Contents {
        Contents { file, written: bytes, waiting: Rope::new(), pieces: 0, error: None }
    }

    /// Returns the length in bytes, including buffered bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.written + self.waiting.len() as u64
    }

    /// Writes at offset `at`, which must not be beyond the end.
    pub(super) fn write(&mut self, at: u64, bytes: Rope) -> Result<(), DiskError> {
        self.check_deferred()?;
        if at > self.bytes() {
            return Err(DiskError::Unable);
        }
        if at < self.bytes() {
            self.write_out();
            self.check_deferred()?;
            // Overwriting does not shorten the file.
            return self.write_at(at, &bytes).map(|end| self.written = self.written.max(end));
        }
        self.pieces += bytes.runs().count();
        self.waiting.append(bytes);
        if self.waiting.len() >= WAITING_BYTES_MAX || self.pieces >= PIECES_MAX {
            self.write_out();
        }
        self.check_deferred()
    }

    /// Writes the buffered bytes out.
    pub(super) fn write_out(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.pieces = 0;
        match self.write_at(self.written, &waiting) {
            Ok(end) => self.written = end,
            Err(error) => self.error = Some(error),
        }
    }

    /// Writes out the buffered bytes and returns the file, which is then complete.
    pub(super) fn whole(&mut self) -> Result<&OwnedFd, DiskError> {
        self.write_out();
        self.check_deferred()?;
        Ok(&self.file)
    }

    fn check_deferred(&self) -> Result<(), DiskError> {
        self.error.map_or(Ok(()), Err)
    }

    /// Writes at an offset and returns the offset after the last byte.
    fn write_at(&self, mut at: u64, bytes: &Rope) -> Result<u64, DiskError> {
        let mut slices: Vec<IoSlice<'_>> = bytes.runs().map(IoSlice::new).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let most = rest.len().min(PIECES_MAX);
            match rustix::io::pwritev(&self.file, &rest[..most], at) {
                Ok(0) => return Err(DiskError::Full),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut rest, written);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(disk_error(errno)),
            }
        }
        Ok(at)
    }
}

/// Keeps the data written to abandoned contents, and unlocks the contents so that they can be resumed.
impl Drop for Contents {
    fn drop(&mut self) {
        self.write_out();
        // If another thread has just forked a process, that process shares the lock until it calls exec
        // (flock(2)).
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_write_error_is_reported_until_the_end() {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut contents = Contents::new(full.into(), 0);
        contents.write(0, Rope::copied(b"waits")).unwrap();
        contents.write_out();
        for _ in 0..2 {
            assert_eq!(contents.write(5, Rope::copied(b"more")), Err(DiskError::Full));
        }
        assert_eq!(contents.whole().map(drop), Err(DiskError::Full));
    }
}
