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
//! Set-up    over a stream socket with a name in a directory of this user's ([`names`]), or at a path, where namespaces of the network
//!           are to be crossed: the caller sends one message with its own name and the memfd; the callee answers: without a word, or
//!           with why it does not take the call. From then on a byte on the socket wakes whoever sleeps. Both ends must belong to one
//!           user (SO_PEERCRED), or the other to root.
//! Death     the socket stays open as long as both live: its hang-up is the end of the channel, by whatever cause.
//! Trust     the memfd must be sealed against shrinking before it is mapped, and not be of huge pages, or reading it could kill
//!           the process ([`is_plain_memory`]). Descriptors of the peer's making are never written to or waited on but this socket,
//!           on which no call blocks, whatever the peer sets or sends ([`crate::unix`]).
//! Left out  a peer that sends bytes without end wakes us without end.

use crate::unix::{Listener, Peer, closing, is_plain_memory, names};
use kiban_ground::{Bell, Region};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::IoSlice;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType};
use std::io;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of the longest name, and of the longest reason.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes before what stands on the channel.
pub const FRONT_BYTES: usize = 128;

/// How often a wake-up is tried for which the system has no memory.
const WAKES_MAX: usize = 16;
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
/// It is shorter or longer, it may shrink, it has huge pages, or the system refuses.
pub fn map(memory: BorrowedFd<'_>, bytes: RangeInclusive<usize>) -> io::Result<Region> {
    if !is_plain_memory(memory) {
        let message = "shared memory that is no memfd, or one of huge pages, which may lose them: make it without MFD_HUGETLB";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
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

fn judge_name(name: &[u8]) -> io::Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let message = format!("a name in shared memory has 1 to {NAME_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// Where others call.
#[derive(Debug)]
pub struct Door {
    listener: Listener,
}

impl Door {
    /// Opens a door with a name.
    ///
    /// # Errors
    /// Another process has that name, or there is no directory for it.
    pub fn open(name: &[u8]) -> io::Result<Door> {
        judge_name(name)?;
        let say = |error: io::Error| {
            let name = String::from_utf8_lossy(name);
            io::Error::new(error.kind(), format!("cannot be called {name:?} in shared memory: {error}"))
        };
        let open = || Door::open_at(&names::own_folder()?.join(names::file(name)?));
        open().map_err(say)
    }

    /// Opens a door at a path, for the user of this process alone. One that a killed process has left behind makes way.
    ///
    /// # Errors
    /// Another process is there, or the file cannot be made.
    pub fn open_at(path: &Path) -> io::Result<Door> {
        Ok(Door { listener: Listener::open(path, SocketType::STREAM, true)? })
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
        Ok(self.listener.accept()?.map(|peer| Half { socket: Some(peer), calls: None }))
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
    socket: Option<Peer>,
    /// The caller's memory.
    calls: Option<Region>,
}

impl Half {
    /// Calls a door, with memory of so many bytes; `own` is the caller's name, or nothing.
    ///
    /// # Errors
    /// Nobody has that name, or it belongs to another user.
    pub fn call(name: &[u8], own: &[u8], bytes: usize) -> io::Result<Half> {
        judge_name(name)?;
        let file = names::file(name)?;
        let mut why = io::Error::from(io::ErrorKind::ConnectionRefused);
        for folder in names::folders() {
            match Half::call_at(&folder.join(&file), own, bytes) {
                // Nobody, or somebody who has gone.
                Err(error) if is_nobody(&error) => why = error,
                called => return called,
            }
        }
        Err(why)
    }

    /// The same of a door at a path.
    ///
    /// # Errors
    /// As [`Half::call`].
    pub fn call_at(path: &Path, own: &[u8], bytes: usize) -> io::Result<Half> {
        // Whoever has no place for callers hangs up on those who take their time.
        let memory = make(bytes)?;
        let region = map(memory.as_fd(), bytes..=bytes)?;
        let socket = Peer::connect(path, SocketType::STREAM)?;
        if !socket.is_ours() {
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
        let Some(socket) = &self.socket else { return Ok(None) };
        let Some((caller, memory)) = receive_hello(socket, self.calls.is_none())? else { return Ok(None) };
        let (region, calls) = match self.calls.take() {
            Some(_) if !caller.is_empty() => {
                return Err(io::Error::other(String::from_utf8_lossy(&caller).escape_debug().to_string()));
            }
            Some(region) => (region, true),
            None => {
                let memory = memory.ok_or(io::ErrorKind::InvalidData)?;
                let region = match map(memory.as_fd(), bytes) {
                    Ok(region) => region,
                    Err(error) => {
                        // To free what is in it may take a while.
                        closing::close(memory);
                        return Err(error);
                    }
                };
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

/// Whether nobody is where somebody was called.
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn send_with(socket: &Peer, name: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let parts = [IoSlice::new(HELLO), IoSlice::new(name)];
    let sent = rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    if sent == HELLO.len() + name.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// The name in a hello, and the memory that came with it.
type Hello = (Vec<u8>, Option<OwnedFd>);

/// A hello, with memory or without. Nothing while it is not there.
fn receive_hello(socket: &Peer, with_memory: bool) -> io::Result<Option<Hello>> {
    let mut hello = [0; HELLO.len() + NAME_BYTES_MAX];
    let received = match with_memory {
        true => socket.receive_memory(&mut hello).map(|(length, memory)| (length, Some(memory))),
        false => socket.receive(&mut hello).map(|length| (length, None)),
    };
    let (length, memory) = match received {
        Ok((0, _)) => return Err(io::ErrorKind::ConnectionReset.into()),
        Ok(received) => received,
        Err(error) if is_later(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    match hello[..length].strip_prefix(HELLO) {
        Some(name) => Ok(Some((name.to_vec(), memory))),
        None => {
            memory.into_iter().for_each(closing::close);
            Err(io::Error::new(io::ErrorKind::InvalidData, "not a kiban process of this version"))
        }
    }
}

/// Whether a call is to be made again, when there is something.
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Whether the system has no memory for a call now, which says nothing about the other side.
fn is_short_of_memory(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::NOMEM | Errno::NOBUFS))
}

/// A channel to another process.
#[derive(Debug)]
pub struct Channel {
    socket: Peer,
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
            self.wake_peer();
        }
    }

    /// Wakes the other side through the socket. A wake-up that is lost would let it sleep for ever: where the system has no
    /// memory for a byte, the channel ends, of which both sides hear.
    fn wake_peer(&self) {
        use rustix::io::Errno;
        for _ in 0..WAKES_MAX {
            match rustix::net::send(&self.socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Err(Errno::NOMEM | Errno::NOBUFS | Errno::INTR) => std::thread::yield_now(),
                // A socket that is full has bytes enough to wake the other side; one that is closed has nobody to be woken.
                _ => return,
            }
        }
        // It needs no memory, and fails only where nobody is there any more.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Takes the bytes that woke us, a bounded number of them. Whether the other side has hung up: it has closed the channel, is no
    /// more, or sends descriptors, of which none is wanted.
    pub fn is_gone(&self) -> bool {
        let mut bytes = [0u8; 4096];
        // One that sends without end keeps nobody here.
        for _ in 0..4 {
            match self.socket.receive(&mut bytes) {
                Ok(0) => return true,
                Ok(length) if length < bytes.len() => return false,
                Ok(_) => {}
                Err(error) => return !is_later(&error) && !is_short_of_memory(&error),
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
    use rustix::net::RecvFlags;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

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
        let file = names::own_folder().expect("a directory").join(names::file(&name).expect("a good name"));
        let mut stranger = UnixStream::connect(file).expect("the door is open");
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

    #[test]
    fn memory_of_huge_pages_is_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let memory = match rustix::fs::memfd_create("huge", flags) {
            Ok(memory) => memory,
            Err(error) => return println!("skipped: the system makes no memfd of huge pages: {error}"),
        };
        // Two of the largest that there are.
        rustix::fs::ftruncate(&memory, 2 << 30).expect("pages that are not there yet");
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).expect("seals");
        let error = map(memory.as_fd(), 0..=usize::MAX).expect_err("holes may be punched into it");
        assert!(error.to_string().contains("huge pages"), "{error}");
        let file = std::fs::File::open("/proc/self/exe").expect("a file");
        assert!(map(file.as_fd(), 0..=usize::MAX).is_err());
    }
}
