//! Opens regular files only, on threads that must not block.
//!
//! Purpose          opening a FIFO waits for a writer, and reading from a FIFO, a terminal or a device may
//!                  block forever. Threads that serve peers must not block in this way.
//! Not implemented  file systems that do not answer, such as a network mount, still block.

use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Opens a file for reading.
///
/// # Errors
/// It cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // O_NONBLOCK: do not wait for the writer of a FIFO, or for another process's lease (fcntl(2)).
    open_with(path, OFlags::RDONLY)
}

/// Opens a file for writing and truncates it; creates it if it does not exist.
///
/// # Errors
/// It cannot be opened, or is not a regular file.
pub fn create(path: &Path) -> io::Result<File> {
    let file = open_with(path, OFlags::WRONLY | OFlags::CREATE)?;
    file.set_len(0)?;
    Ok(file)
}

fn open_with(path: &Path, flags: OFlags) -> io::Result<File> {
    let not_regular = |kind: &str| {
        let message = format!("is {kind}: name a regular file");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    };
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::from_raw_mode(0o666)) {
        // open(2) returns ENXIO for any socket, and also for a FIFO that is opened for writing without a
        // reader.
        Err(rustix::io::Errno::NXIO) => return Err(not_regular("a pipe or a socket")),
        opened => opened?,
    };
    let kind = match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => return Ok(file.into()),
        FileType::Fifo => "a pipe",
        FileType::Directory => "a directory",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "not a file",
    };
    Err(not_regular(kind))
}

/// Reads a whole regular file.
///
/// # Errors
/// Same as for [`open`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a text file to its end.
///
/// # Errors
/// It is longer than `bytes_max`, or not UTF-8.
pub fn text(file: File, bytes_max: usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        let message = format!("the file is longer than {bytes_max} bytes: shorten it");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_would_block_are_rejected_at_once() {
        let folder = std::env::temp_dir().join(format!("kiban-regular-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("temporary files can be created");
        let path = |name: &str| folder.join(name);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), FileType::Fifo, mode, 0).expect("a FIFO");
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("a socket");
        for place in [path("fifo"), path("socket"), folder.clone(), "/dev/zero".into()] {
            let error = read(&place).expect_err("it is not regular").to_string();
            assert!(error.contains("name a regular file"), "{}: {error}", place.display());
            assert!(create(&place).is_err(), "{}", place.display());
        }
        std::fs::write(path("words"), "longer words").expect("temporary files can be created");
        let words = |bytes_max| open(&path("words")).and_then(|file| text(file, bytes_max));
        assert_eq!(words(12).expect("a file"), "longer words");
        let error = words(11).expect_err("too long").to_string();
        assert_eq!(error, "the file is longer than 11 bytes: shorten it");
        // The error is the same if the length limit falls in the middle of a character.
        std::fs::write(path("words"), "longer wordé").expect("temporary files can be created");
        assert_eq!(words(11).expect_err("too long").kind(), io::ErrorKind::FileTooLarge);
        create(&path("words")).expect("a file");
        assert_eq!(read(&path("words")).expect("a file"), b"");
        let _ = std::fs::remove_dir_all(&folder);
    }
}
