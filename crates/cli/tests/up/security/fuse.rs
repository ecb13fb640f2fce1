//! A FUSE mount whose daemon stops answering, so that closing a file on it blocks and cannot be interrupted
//! by a signal.
//!
//! Limits    implements only the necessary part of the protocol (linux/fuse.h): a root directory in which
//!           every name is an empty file.

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const HEADER_BYTES: usize = 40;
/// The size of the request buffer; the kernel requires it to have room for the longest request.
const ROOM_BYTES: usize = 256 << 10;

/// A file in such a mount.
pub(crate) struct Unanswered {
    pub(crate) file: OwnedFd,
    at: PathBuf,
}

impl Unanswered {
    /// Mounts a FUSE file system on a directory in this mount namespace. Until the returned value is dropped,
    /// every close of a file descriptor on it blocks.
    ///
    /// # Errors
    /// If the system has no FUSE, or does not permit this process to mount.
    pub(crate) fn mount(at: PathBuf) -> io::Result<Unanswered> {
        let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let number = device.as_raw_fd();
        let options = format!("fd={number},rootmode=40000,user_id={user},group_id={group}");
        let options = CString::new(options).expect("no zero");
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("kiban-test", &at, "fuse", flags, options.as_c_str())?;
        std::thread::spawn(move || serve(&device));
        let file = rustix::fs::open(at.join("file"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Unanswered { file, at })
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        // A forced unmount makes the blocked calls return, including those of this process. The unmount
        // reports EBUSY even so.
        let _ = rustix::mount::unmount(&self.at, UnmountFlags::FORCE);
    }
}

fn serve(device: &OwnedFd) {
    let mut room = vec![0; ROOM_BYTES];
    while let Ok(length) = rustix::io::read(device, &mut room) {
        let word = |at: usize| u32::from_ne_bytes(room[at..at + 4].try_into().expect("four bytes"));
        let double = |at: usize| u64::from_ne_bytes(room[at..at + 8].try_into().expect("eight bytes"));
        assert!(length >= HEADER_BYTES, "a whole request");
        let (opcode, unique, node) = (word(4), double(8), double(16));
        let answer = match opcode {
            // Version 7.31 with as few features as possible.
            INIT => Ok(words(&[7, 31, word(HEADER_BYTES + 8), 0, 0, 1 << 16, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
            LOOKUP => Ok([words(&[2, 0, 0, 0, 60, 0, 60, 0, 0, 0]), attributes(2)].concat()),
            GETATTR => Ok([words(&[60, 0, 0, 0]), attributes(node)].concat()),
            OPEN => Ok(words(&[1, 0, 0, 0])),
            FLUSH | RELEASE | INTERRUPT => continue,
            _ => Err(rustix::io::Errno::NOSYS),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (-errno.raw_os_error(), Vec::new()),
        };
        let mut reply = words(&[16 + body.len() as u32, error as u32]);
        reply.extend(unique.to_ne_bytes());
        reply.extend(body);
        // Sending the reply fails if the request was cancelled and its caller is gone.
        let _ = rustix::io::write(device, &reply);
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Returns the attributes of the root directory (node 1) or of a file (node 2).
fn attributes(node: u64) -> Vec<u8> {
    let mode = if node == 1 { 0o040_755 } else { 0o100_644 };
    let mut all = [0; 22];
    (all[0], all[15], all[16]) = (node as u32, mode, 1);
    (all[17], all[18]) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    words(&all)
}
