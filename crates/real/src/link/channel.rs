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
//! Set-up    over a stream socket with an abstract name (`kiban-NAME`), or a path where namespaces of the network are to be crossed:
//!           the caller sends one message with its own name and the memfd; the callee answers: without a word, or with why it does not
//!           take the call. From then on a byte on the socket wakes whoever sleeps. Both ends must belong to one user (SO_PEERCRED),
//!           or the other to root.
//! Death     the socket stays open as long as both live: its hang-up is the end of the channel, by whatever cause.
//! Trust     the memfd must be sealed against shrinking before it is mapped, or reading it could kill the process.
//!           Descriptors of the peer's making are never written to or waited on but this socket, on which no call blocks,
//!           whatever the peer sets.
//! Left out  a peer that sends bytes without end wakes us without end.

use kiban_ground::{Bell, Region};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::IoSlice;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of the longest name, and of the longest reason.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes before what stands on the channel.
pub const FRONT_BYTES: usize = 128;

const HELLO: &[u8; 8] = b"kiban-s3";

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
    /// What goes with it.
    path: Option<PathBuf>,
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
        Ok(Door { listener, path: None })
    }

    /// Opens a door at a path, for the user of this process alone. One that a killed process has left behind makes way.
    ///
    /// # Errors
    /// Another process is there, or the file cannot be made.
    pub fn open_at(path: &Path) -> io::Result<Door> {
        if path.exists() && UnixStream::connect(path).is_err() {
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Door { listener, path: Some(path.to_owned()) })
    }

    /// The next caller that is here.
    pub fn caller(&self) -> Option<Half> {
        self.next_caller().ok().flatten()
    }

    /// The same; who minds that the system has no files left is told so.
    ///
    /// # Errors
    /// The system's, of accepting.
    pub fn next_caller(&self) -> io::Result<Option<Half>> {
        loop {
            let (socket, _) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => continue,
                    _ => return Err(error),
                },
            };
            if is_ours(&socket) && socket.set_nonblocking(true).is_ok() {
                return Ok(Some(Half { socket: Some(socket), calls: None }));
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // It may have been cleared away already.
            let _ = std::fs::remove_file(path);
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
    /// Until the channel has it.
    socket: Option<UnixStream>,
    /// The caller's memory.
    calls: Option<Region>,
}

impl Half {
    /// Calls a door, with memory of so many bytes; `own` is the caller's name, or nothing.
    ///
    /// # Errors
    /// Nobody has that name, or it belongs to another user.
    pub fn call(name: &[u8], own: &[u8], bytes: usize) -> io::Result<Half> {
        address(name)?;
        let name = SocketAddrUnix::new_abstract_name(&[b"kiban-", name].concat())?;
        Half::call_there(&name, own, bytes)
    }

    /// The same of a door at a path.
    ///
    /// # Errors
    /// As [`Half::call`].
    pub fn call_at(path: &Path, own: &[u8], bytes: usize) -> io::Result<Half> {
        Half::call_there(&SocketAddrUnix::new(path)?, own, bytes)
    }

    fn call_there(door: &SocketAddrUnix, own: &[u8], bytes: usize) -> io::Result<Half> {
        // Whoever has no place for callers hangs up on those who take their time.
        let memory = make(bytes)?;
        let region = map(memory.as_fd(), bytes..=bytes)?;
        let socket = connect(door)?;
        if !is_ours(&socket) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        send_with(&socket, own, &[memory.as_fd()])?;
        Ok(Half { socket: Some(socket), calls: Some(region) })
    }

    /// The whole channel, once the other side has spoken; nothing before that. A caller's memory has to have so many bytes.
    ///
    /// # Errors
    /// It hung up, said what is not understood, or why it does not take the call.
    pub fn complete(&mut self, bytes: RangeInclusive<usize>) -> io::Result<Option<Channel>> {
        self.complete_if(bytes, |_, _| Ok(()))
    }

    /// The same for a callee that judges its caller, by what it calls itself and its memory: a reason not to take the call is told to
    /// it, as far as it goes into [`NAME_BYTES_MAX`].
    ///
    /// # Errors
    /// As [`Half::complete`]; the call was not taken.
    pub fn complete_if(
        &mut self,
        bytes: RangeInclusive<usize>,
        judge: impl FnOnce(&[u8], &Region) -> Result<(), String>,
    ) -> io::Result<Option<Channel>> {
        let wanted = usize::from(self.calls.is_none());
        let Some(socket) = &self.socket else { return Ok(None) };
        let Some((caller, mut files)) = receive_with(socket, wanted)? else { return Ok(None) };
        let (region, calls) = match self.calls.take() {
            Some(_) if !caller.is_empty() => {
                return Err(io::Error::other(String::from_utf8_lossy(&caller).escape_debug().to_string()));
            }
            Some(region) => (region, true),
            None => {
                let memory = files.pop().ok_or(io::ErrorKind::InvalidData)?;
                let region = map(memory.as_fd(), bytes)?;
                if let Err(why) = judge(&caller, &region) {
                    self.refuse(&why);
                    return Err(io::Error::other(why));
                }
                send_with(socket, &[], &[])?;
                (region, false)
            }
        };
        let caller = if calls { Vec::new() } else { caller };
        let socket = self.socket.take().expect("it was just spoken on");
        Ok(Some(Channel { socket, region, calls, caller }))
    }
}

impl Half {
    /// Tells a caller why its call is not taken, now or before it has said anything.
    pub fn refuse(&self, why: &str) {
        let bytes = why.floor_char_boundary(NAME_BYTES_MAX);
        if let Some(socket) = &self.socket {
            // A caller that has gone need not know.
            let _ = send_with(socket, &why.as_bytes()[..bytes], &[]);
        }
    }
}

impl AsFd for Half {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("a half has its socket until it is whole").as_fd()
    }
}

/// Connects without ever waiting for the other side to take the call.
fn connect(door: &SocketAddrUnix) -> io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, door)?;
    Ok(UnixStream::from(socket))
}

fn send_with(socket: &UnixStream, name: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let parts = [IoSlice::new(HELLO), IoSlice::new(name)];
    let sent = rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
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
            // A socket that is full has bytes enough to wake the other side; one that is closed has nobody to be woken.
            let _ = rustix::net::send(&self.socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Takes the bytes that woke us, a bounded number of them. Whether the other side has hung up: it has closed the channel, or is
    /// no more.
    pub fn is_gone(&self) -> bool {
        let mut bytes = [0u8; 4096];
        // One that sends without end keeps nobody here.
        for _ in 0..4 {
            match rustix::net::recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return true,
                Ok((length, _)) if length < bytes.len() => return false,
                Ok(_) => {}
                Err(error) => return error != rustix::io::Errno::AGAIN && error != rustix::io::Errno::INTR,
            }
        }
        false
    }

    /// What becomes readable when the other side rings, and hangs up when it has gone.
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
        let woken =
            |side: &Channel| rustix::net::recv(side.socket(), &mut [0u8; 1], RecvFlags::DONTWAIT).is_ok();
        for (from, to) in [(0, 1), (1, 0)] {
            sides[from].ring(|| 7);
            assert!(!woken(&sides[to]), "nobody sleeps, nobody is woken");
            sides[to].own_bell().arm();
            sides[from].ring(|| 7);
            assert!(woken(&sides[to]));
            assert_eq!(sides[to].own_bell().disarm(), Some(7));
        }
    }

    #[test]
    fn nobody_waits_for_a_peer_that_takes_nothing() {
        let sides = pair("deaf");
        // More rings than its socket holds: none blocks, and what is there is taken at once.
        for _ in 0..100_000 {
            sides[1].own_bell().arm();
            sides[0].ring(|| 7);
        }
        assert!(!sides[1].is_gone());
        assert!(rustix::net::recv(sides[1].socket(), &mut [0u8; 1], RecvFlags::DONTWAIT).is_err());
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
    fn who_is_not_taken_hears_why() {
        let name = name("refused");
        let door = Door::open(&name).expect("the name is free");
        let call = || Half::call(&name, b"me", BYTES).expect("the door is open");
        let mut caller = call();
        let mut callee = door.caller().expect("somebody calls");
        let long = "it has its reasons: ".repeat(10);
        let judged = callee.complete_if(0..=BYTES, |caller, memory| {
            assert_eq!((caller, memory.len()), (&b"me"[..], BYTES));
            Err(long.clone())
        });
        assert_eq!(judged.expect_err("it is not taken").to_string(), long);
        drop(callee);
        let told = caller.complete(BYTES..=BYTES).expect_err("it is not taken").to_string();
        assert_eq!(told, long[..NAME_BYTES_MAX]);
        // Nobody has to hear a caller out; and letters stay whole.
        let mut caller = call();
        door.caller().expect("somebody calls").refuse(&"ü".repeat(NAME_BYTES_MAX));
        let told = caller.complete(BYTES..=BYTES).expect_err("it is not taken").to_string();
        assert_eq!(told, "ü".repeat(NAME_BYTES_MAX / 2));
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
