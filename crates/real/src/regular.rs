//! Regular files, read on threads that must not wait.
//!
//! Why       to open a FIFO waits for a writer, and to read from one, from a terminal or a device may wait for ever: a thread that
//!           serves peers would serve nobody meanwhile.
//! Left out  file systems that do not answer, as of a network.

use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Opens a file to be read.
///
/// # Errors
/// It cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // NONBLOCK: neither the open of a FIFO nor a lease of somebody else's (fcntl(2)) is waited for.
    open_with(path, OFlags::RDONLY)
}

/// Opens a file to be written, from its beginning; it is made where it is not there.
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
        let message =
            format!("it is {kind}, for which a reader or writer may have to wait: name a regular file");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    };
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::from_raw_mode(0o666)) {
        // What a FIFO without a reader says to a writer, and a socket to anybody.
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

/// Reads a whole file.
///
/// # Errors
/// As [`open`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a whole file of text.
///
/// # Errors
/// As [`open`]; it is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_waited_for_is_refused_at_once() {
        let folder = std::env::temp_dir().join(format!("kiban-regular-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("there is room for files of a while");
        let path = |name: &str| folder.join(name);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), FileType::Fifo, mode, 0).expect("a FIFO");
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("a socket");
        for place in [path("fifo"), path("socket"), folder.clone(), "/dev/zero".into()] {
            let error = read(&place).expect_err("it is not regular").to_string();
            assert!(error.contains("name a regular file"), "{}: {error}", place.display());
            assert!(create(&place).is_err(), "{}", place.display());
        }
        std::fs::write(path("words"), "longer words").expect("there is room for files of a while");
        assert_eq!(read_to_string(&path("words")).expect("a file"), "longer words");
        create(&path("words")).expect("a file");
        assert_eq!(read(&path("words")).expect("a file"), b"");
        let _ = std::fs::remove_dir_all(&folder);
    }
}
