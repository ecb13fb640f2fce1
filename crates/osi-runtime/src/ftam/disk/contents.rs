//! File contents being written: a locked file, and a buffer of bytes to be appended to it.
//!
//! Purpose    data elements arrive in pieces the size of a TPDU, and are written to the file in large
//!            gathering writes.
//! Operation  the code that pumps an association writes buffered data ([`Contents::write_out`]) before it
//!            waits for more. So the buffer never holds more data than one read from the socket, and its
//!            memory is free again after the write. In long files, a second thread does part of the writing
//!            ([`Behind`]).
//! Errors     a deferred write error is returned by the next call, and by [`Contents::whole`] at the latest.

use super::behind::Behind;
use super::files::{PIECES_MAX, write_at};
use kiban_base::Rope;
use kiban_osi::ftam::filestore::DiskError;
use rustix::fs::FlockOperation;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Buffered data is written when it reaches this many bytes, or this many pieces.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// A second thread writes after this many bytes of a file.
const BEHIND_BYTES_MIN: u64 = 16 << 20;
/// Less data than this costs less to write than to hand over.
const HANDED_BYTES_MIN: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Contents {
    file: Arc<OwnedFd>,
    /// Bytes written to the file so far, or handed to the second thread.
    written: u64,
    waiting: Rope,
    pieces: usize,
    /// How many bytes this object has written; `None` once it has tried to start a second thread.
    until_behind: Option<u64>,
    behind: Option<Behind>,
    error: Option<DiskError>,
}

impl Contents {
    /// Wraps a file that already holds this many bytes.
    pub(super) fn new(file: OwnedFd, bytes: u64) -> Contents {
        let (file, waiting) = (Arc::new(file), Rope::new());
        let until_behind = Some(0);
        Contents { file, written: bytes, waiting, pieces: 0, until_behind, behind: None, error: None }
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
            self.whole()?;
            // Overwriting does not shorten the file.
            return write_at(&self.file, at, &bytes).map(|end| self.written = self.written.max(end));
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
        let bytes = waiting.len() as u64;
        self.pieces = 0;
        let written = match self.hand_over(waiting) {
            Ok(None) => Ok(self.written + bytes),
            Ok(Some(waiting)) => write_at(&self.file, self.written, &waiting),
            Err(error) => Err(error),
        };
        match written {
            Ok(end) => self.written = end,
            Err(error) => self.error = Some(error),
        }
    }

    /// Hands data to the second thread, if there is one and it is free; otherwise returns the data.
    fn hand_over(&mut self, waiting: Rope) -> Result<Option<Rope>, DiskError> {
        match &mut self.until_behind {
            Some(bytes) if *bytes < BEHIND_BYTES_MIN => *bytes += waiting.len() as u64,
            Some(_) => {
                self.until_behind = None;
                self.behind = Behind::start(&self.file);
            }
            None => {}
        }
        match &self.behind {
            Some(behind) if waiting.len() >= HANDED_BYTES_MIN => behind.hand(self.written, waiting),
            _ => Ok(Some(waiting)),
        }
    }

    /// Writes out the buffered bytes and returns the file, which is then complete.
    pub(super) fn whole(&mut self) -> Result<&OwnedFd, DiskError> {
        self.write_out();
        if let Some(behind) = &self.behind
            && let Err(error) = behind.settle()
        {
            self.error = Some(error);
        }
        self.check_deferred()?;
        Ok(&self.file)
    }

    fn check_deferred(&self) -> Result<(), DiskError> {
        self.error.map_or(Ok(()), Err)
    }
}

/// Keeps the data written to abandoned contents, and unlocks the contents so that they can be resumed.
impl Drop for Contents {
    fn drop(&mut self) {
        // A deferred error has no consequence: the data may be resumed only up to a checkpoint.
        let _ = self.whole();
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

    /// Returns data that differ from those of the next number.
    fn piece(number: usize) -> Rope {
        Rope::copied(&vec![number as u8; HANDED_BYTES_MIN + number % 3 * 1000])
    }

    #[test]
    fn a_long_file_is_written_by_two_threads_without_gaps() {
        let path = std::env::temp_dir().join(format!("kiban-contents-{}", std::process::id()));
        let mut options = std::fs::File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let mut contents = Contents::new(file.into(), 0);
        let mut expected = Vec::new();
        for number in 0..600 {
            contents.write(expected.len() as u64, piece(number)).unwrap();
            contents.write_out();
            expected.extend(piece(number).to_vec());
            // A checkpoint finds everything written so far in the file.
            if number % 100 == 0 {
                contents.whole().unwrap();
                assert!(std::fs::read(&path).unwrap() == expected, "after {number}");
            }
        }
        assert!(contents.behind.is_some(), "no second thread was started");
        // A restart goes back.
        contents.write(5, Rope::copied(b"again")).unwrap();
        expected[5..10].copy_from_slice(b"again");
        drop(contents);
        let written = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(written == expected);
    }

    #[test]
    fn an_error_of_the_second_thread_is_reported_until_the_end() {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let behind = Behind::start(&Arc::new(full.into())).unwrap();
        behind.hand(0, piece(1)).unwrap();
        assert_eq!(behind.settle(), Err(DiskError::Full));
        assert_eq!(behind.hand(0, piece(1)).map(drop), Err(DiskError::Full));
    }
}
