//! A channel between two processes of one host: shared memory, and a way to wake each other.
//!
//! Memory    a sealed memfd that the caller makes; its first two lines are bells, the rest is whatever stands on the channel.
//!
//! ```text
//! 0     bell of the caller: the callee rings it
//! 64    bell of the callee
//! 128   …
//! ```
//!
//! Set-up    over a stream socket with an abstract name (`kiban-NAME`): the caller sends one message with its own name,
//!           the memfd and the eventfd that wakes it; the callee answers with its eventfd. Both ends must belong to one user (SO_PEERCRED),
//!           or the other to root.
//! Death     the socket stays open as long as both live: its hang-up is the end of the channel, by whatever cause.
//! Trust     the memfd must be sealed against shrinking before it is mapped, or reading it could kill the process.
//! Left out  the eventfds are the peer's to write: one that writes without end wakes us without end.

use kiban_ground::{Bell, Region};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::IoSlice;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of the longest name.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes before what stands on the channel.
pub const FRONT_BYTES: usize = 128;

const HELLO: &[u8; 8] = b"kiban-s2";

/// Memory that this process has mapped.
struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value; its bytes are reached by copies and atomics alone.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; whoever reads it holds a clone of the region, which holds this.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// Maps a memfd that cannot shrink, if it has so many bytes.
///
/// # Errors
/// It is shorter or longer, it may shrink, or the system refuses.
pub fn map(memory: BorrowedFd<'_>, bytes: RangeInclusive<usize>) -> io::Result<Region> {
    let seals = rustix::fs::fcntl_get_seals(memory)?;
    let length = usize::try_from(rustix::fs::fstat(memory)?.st_size).unwrap_or(0);
    if !seals.contains(SealFlags::SHRINK) || !bytes.contains(&length) || length == 0 {
        let message = "shared memory that may shrink, or has not the length it should have";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    // SAFETY: a new mapping, at a place the system chooses; the file cannot shrink under it.
    let base = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            length,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            memory,
            0,
        )?
    };
    let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
    let keep = Arc::new(Mapping { base, length });
    // SAFETY: the mapping is `length` bytes long and lives as long as `keep`; nobody has references into it but to atomics.
    Ok(unsafe { Region::foreign(base, length, Some(keep)) })
}

/// Makes a memfd of so many bytes, all zero, that neither shrinks nor grows.
///
/// # Errors
/// The system refuses.
pub fn make(length: usize) -> io::Result<OwnedFd> {
    let memory = rustix::fs::memfd_create("kiban", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&memory, length as u64)?;
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}

fn address(name: &[u8]) -> io::Result<SocketAddr> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let message = format!("a name in shared memory has 1 to {NAME_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    SocketAddr::from_abstract_name([b"kiban-", name].concat())
}

/// Whether the other end of a socket is a process of this user's, or of root's.
fn is_ours(socket: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

/// Where others call.
#[derive(Debug)]
pub struct Door {
    listener: UnixListener,
}

impl Door {
    /// Opens a door with a name.
    ///
    /// # Errors
    /// Another process has that name.
    pub fn open(name: &[u8]) -> io::Result<Door> {
        let listener = UnixListener::bind_addr(&address(name)?).map_err(|error| {
            let name = String::from_utf8_lossy(name);
            io::Error::new(error.kind(), format!("cannot be called {name:?} in shared memory: {error}"))
        })?;
        listener.set_nonblocking(true)?;
        Ok(Door { listener })
    }

    /// The next caller that is here.
    pub fn caller(&self) -> Option<Half> {
        loop {
            let (socket, _) = self.listener.accept().ok()?;
            if is_ours(&socket) && socket.set_nonblocking(true).is_ok() {
                return Some(Half { socket, calls: None });
            }
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// A channel that waits for the other side's word.
#[derive(Debug)]
pub struct Half {
    socket: UnixStream,
    /// The caller's memory and eventfd.
    calls: Option<(Region, OwnedFd)>,
}

impl Half {
    /// Calls a door, with memory of so many bytes; `own` is the caller's name, or nothing.
    ///
    /// # Errors
    /// Nobody has that name, or it belongs to another user.
    pub fn call(name: &[u8], own: &[u8], bytes: usize) -> io::Result<Half> {
        let socket = UnixStream::connect_addr(&address(name)?)?;
        if !is_ours(&socket) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let memory = make(bytes)?;
        let region = map(memory.as_fd(), bytes..=bytes)?;
        let event = new_event()?;
        send_with(&socket, own, &[memory.as_fd(), event.as_fd()])?;
        socket.set_nonblocking(true)?;
        Ok(Half { socket, calls: Some((region, event)) })
    }

    /// The whole channel, once the other side has spoken; nothing before that. A caller's memory has to have so many bytes.
    ///
    /// # Errors
    /// It hung up, or said what is not understood.
    pub fn complete(&mut self, bytes: RangeInclusive<usize>) -> io::Result<Option<Channel>> {
        let wanted = if self.calls.is_some() { 1 } else { 2 };
        let Some((caller, mut files)) = receive_with(&self.socket, wanted)? else { return Ok(None) };
        let peer_event = files.pop().ok_or(io::ErrorKind::InvalidData)?;
        let (region, own_event, calls) = match self.calls.take() {
            Some((region, event)) => (region, event, true),
            None => {
                let memory = files.pop().ok_or(io::ErrorKind::InvalidData)?;
                let region = map(memory.as_fd(), bytes)?;
                let event = new_event()?;
                send_with(&self.socket, &[], &[event.as_fd()])?;
                (region, event, false)
            }
        };
        Ok(Some(Channel { socket: self.socket.try_clone()?, region, calls, caller, own_event, peer_event }))
    }
}

impl AsFd for Half {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn new_event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn send_with(socket: &UnixStream, name: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(files));
    let parts = [IoSlice::new(HELLO), IoSlice::new(name)];
    let sent = rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
    if sent == HELLO.len() + name.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// The name in a hello, and the files that came with it.
type Hello = (Vec<u8>, Vec<OwnedFd>);

/// A hello with exactly as many files as wanted. Nothing while it is not there.
fn receive_with(socket: &UnixStream, wanted: usize) -> io::Result<Option<Hello>> {
    let mut hello = [0; HELLO.len() + NAME_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut hello)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
        Ok(message) => message,
        Err(error) if error == rustix::io::Errno::AGAIN || error == rustix::io::Errno::INTR => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let mut files = Vec::new();
    for one in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = one {
            files.extend(rights);
        }
    }
    if message.bytes == 0 {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    match hello[..message.bytes].strip_prefix(HELLO) {
        Some(name) if files.len() == wanted => Ok(Some((name.to_vec(), files))),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "not a kiban process of this version")),
    }
}

/// A channel to another process.
#[derive(Debug)]
pub struct Channel {
    socket: UnixStream,
    region: Region,
    calls: bool,
    caller: Vec<u8>,
    own_event: OwnedFd,
    peer_event: OwnedFd,
}

impl Channel {
    /// The shared memory.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Whether this side has called.
    pub fn is_caller(&self) -> bool {
        self.calls
    }

    /// The name of whoever called, as it says; nothing on the caller's own side.
    pub fn caller(&self) -> &[u8] {
        &self.caller
    }

    /// The bell that the other side rings for us.
    #[inline]
    pub fn own_bell(&self) -> &Bell {
        self.region.bell(if self.calls { 0 } else { 64 }).expect("the front has room for it")
    }

    #[inline]
    fn peer_bell(&self) -> &Bell {
        self.region.bell(if self.calls { 64 } else { 0 }).expect("the front has room for it")
    }

    /// Tells the other side that there is something to see, if it sleeps.
    #[inline]
    pub fn ring(&self, now: impl FnOnce() -> u64) {
        if self.peer_bell().ring(now) {
            // Fails only when the counter is full, and then the other side has not read for 2^64 rings.
            let _ = rustix::io::write(&self.peer_event, &1u64.to_ne_bytes());
        }
    }

    /// What becomes readable when the other side rings.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.own_event.as_fd()
    }

    /// Whether the other side has hung up: it has closed the channel, or is no more.
    pub fn is_gone(&self) -> bool {
        !matches!(rustix::net::recv(&self.socket, &mut [0u8; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK),
            Err(error) if error == rustix::io::Errno::AGAIN || error == rustix::io::Errno::INTR)
    }

    /// What hangs up when the other side has gone.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const BYTES: usize = 8192;

    fn name(story: &str) -> Vec<u8> {
        format!("test-{}-{story}", std::process::id()).into_bytes()
    }

    fn pair(story: &str) -> [Channel; 2] {
        let door = Door::open(&name(story)).expect("the name is free");
        let mut caller = Half::call(&name(story), b"me", BYTES).expect("the door is open");
        assert!(caller.complete(BYTES..=BYTES).expect("nobody hung up").is_none());
        let mut callee = door.caller().expect("somebody calls");
        let callee = callee.complete(BYTES..=BYTES).expect("a decent caller").expect("its hello is here");
        let caller = caller.complete(BYTES..=BYTES).expect("a decent callee").expect("its hello is here");
        assert_eq!((caller.caller(), callee.caller()), (&b""[..], &b"me"[..]));
        [caller, callee]
    }

    #[test]
    fn a_sleeper_is_rung_and_nobody_else() {
        let sides = pair("rung");
        for (from, to) in [(0, 1), (1, 0)] {
            sides[from].ring(|| 7);
            assert!(
                rustix::io::read(sides[to].event(), &mut [0; 8]).is_err(),
                "nobody sleeps, nobody is woken"
            );
            sides[to].own_bell().arm();
            sides[from].ring(|| 7);
            assert_eq!(rustix::io::read(sides[to].event(), &mut [0; 8]), Ok(8));
            assert_eq!(sides[to].own_bell().disarm(), Some(7));
        }
    }

    #[test]
    fn the_end_of_one_side_is_seen_by_the_other() {
        let [one, two] = pair("end");
        assert!(!one.is_gone() && !two.is_gone());
        drop(one);
        assert!(two.is_gone());
    }

    #[test]
    fn a_caller_that_does_not_speak_the_language_is_no_channel() {
        let name = name("language");
        let door = Door::open(&name).expect("the name is free");
        let mut stranger =
            UnixStream::connect_addr(&address(&name).expect("a good name")).expect("the door is open");
        stranger.write_all(b"GET / HT").expect("the door is open");
        let mut half = door.caller().expect("somebody calls");
        assert_eq!(half.complete(0..=BYTES).expect_err("no hello").kind(), io::ErrorKind::InvalidData);
        assert!(Door::open(&name).expect_err("taken").to_string().contains("cannot be called"));
        assert!(Half::call(b"nobody-at-all", b"", BYTES).is_err());
        assert!(Half::call(&[b'x'; 65], b"", BYTES).is_err());
        let mut small = Half::call(&name, b"", 4096).expect("the door is open");
        let mut half = door.caller().expect("somebody calls");
        assert_eq!(half.complete(BYTES..=BYTES).expect_err("too small").kind(), io::ErrorKind::InvalidData);
        drop(half);
        assert!(small.complete(4096..=4096).is_err(), "it is hung up on");
    }

    #[test]
    fn memory_that_may_shrink_is_not_mapped() {
        let loose = rustix::fs::memfd_create("loose", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .expect("memory");
        rustix::fs::ftruncate(&loose, 4096).expect("memory");
        assert!(map(loose.as_fd(), 4096..=4096).is_err());
        let short = make(4096).expect("memory");
        assert!(map(short.as_fd(), 8192..=8192).is_err());
        assert!(map(short.as_fd(), 0..=4096).is_ok());
    }
}
