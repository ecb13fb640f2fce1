//! Passes open files between processes of this program: over a socket, and at the start of a process.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Sends a file with one byte.
///
/// # Errors
/// The other process has ended.
pub fn send_file(socket: impl AsFd, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    control.push(SendAncillaryMessage::ScmRights(&files));
    rustix::net::sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a file. Returns `None` if the other process has ended.
///
/// # Errors
/// The socket cannot be read, or what arrived has no file.
pub fn receive_file(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    let file = control.drain().find_map(|one| match one {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    match (received.bytes, file) {
        (0, _) => Ok(None),
        (_, None) => Err(io::Error::new(io::ErrorKind::InvalidData, "no file arrived with the message")),
        (_, file) => Ok(file),
    }
}

/// Takes over a file that this process has inherited under a number. It is not inherited any further.
///
/// # Errors
/// No file has the number, or it is a standard stream.
pub fn inherited_file(number: i32) -> io::Result<OwnedFd> {
    if number <= libc::STDERR_FILENO {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the descriptor is borrowed only for the call, which fails if it is not open.
    let file = rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(number) }, 3)?;
    // SAFETY: nothing in this process knows the number of a file that it has inherited.
    unsafe { rustix::io::close(number) };
    Ok(file)
}

/// Closes all files that this process has inherited, except standard streams. Must be called before it opens
/// any.
pub fn close_inherited_files() {
    // SAFETY: nothing in this process has opened a file yet.
    // Before Linux 5.9 there is no such call; then the files stay open.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_file_is_passed_and_an_end_is_noticed() {
        let (one, two) = UnixStream::pair().unwrap();
        let (mut out, into) = UnixStream::pair().unwrap();
        send_file(&one, into.as_fd()).unwrap();
        drop(into);
        let file = receive_file(&two).unwrap().expect("a file");
        out.write_all(b"x").unwrap();
        let mut byte = [0; 2];
        assert_eq!(rustix::io::read(&file, &mut byte), Ok(1));
        (&one).write_all(b"x").unwrap();
        assert_eq!(receive_file(&two).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(one);
        assert!(receive_file(&two).unwrap().is_none());
    }
}
