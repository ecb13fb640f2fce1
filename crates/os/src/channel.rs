//! Channels between two processes of one host: shared memory, and doorbells to wake each other.
//!
//! Memory           a sealed memfd that the callee creates. Its first two cache lines are the doorbells; the
//!                  rest belongs to the user of the channel.
//!
//! ```text
//! 0    bell of the caller: the callee rings it
//! 64   bell of the callee
//! 128  …
//! ```
//!
//! Set-up           a channel is set up over a stream socket, which has a name in one of this user's
//!                  directories ([`names`]), or a path if the channel must cross network namespaces. The
//!                  caller sends one message: the number of bytes of memory that it wants (64 bits, little
//!                  endian), and its name. The callee answers with the memfd and an optional message, or with
//!                  the reason for refusing the call. From then on, a byte on the socket wakes a sleeping
//!                  side. Both ends must belong to one user (SO_PEERCRED), or the other end must belong to
//!                  root.
//! Callee           the callee takes no descriptor from a caller: closing one could block forever, even when
//!                  the process ends ([`crate::unix::closing`]).
//! End              the socket stays open as long as both sides exist. A hang-up ends the channel, whatever
//!                  the cause.
//! Trust            the memfd must be sealed against shrinking before it is mapped, and must not use huge
//!                  pages, or reading it could kill the process ([`is_plain_memory`]). This socket is the
//!                  only descriptor created by the peer that is written to or waited on, and no call on it
//!                  blocks, whatever the peer sets or sends ([`crate::unix`]).
//! Limits           a peer that keeps sending bytes keeps waking this side.

use crate::text::printable;
use crate::unix::{Listener, Peer, is_plain_memory, names, remove_stale};
use kiban_base::{Bell, Region};
use rustix::event::{PollFd, PollFlags};
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
use std::sync::{Arc, Once};

/// Maximum length of a name, of the callee's message and of a refusal reason, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes before the memory that belongs to the user of the channel.
pub const FRONT_BYTES: usize = 128;

/// Maximum number of attempts to send a wake-up while the system is out of memory.
const WAKES_MAX: usize = 16;
const HELLO: &[u8; 8] = b"kiban-s5";
/// Number of bytes before the name in a caller's message.
const CALL_BYTES: usize = HELLO.len() + 8;

/// A mapping of shared memory into this process.
struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: this value owns the mapping, whose bytes are accessed only by copies and atomics.
unsafe impl Send for Mapping {}
// SAFETY: this value owns the mapping, whose bytes are accessed only by copies and atomics.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping with this length. Every user of the memory holds a clone of the
        // region, which keeps this value alive.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// Maps a memfd that cannot shrink, if its length is within `bytes`.
///
/// # Errors
/// The memfd's length is not within `bytes`, the memfd may shrink or uses huge pages, or the system call
/// fails.
pub fn map(memory: BorrowedFd<'_>, bytes: RangeInclusive<usize>) -> io::Result<Region> {
    if !is_plain_memory(memory) {
        let message = "shared memory must be a memfd without huge pages, because huge pages can be lost: create it \
                       without MFD_HUGETLB";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let seals = rustix::fs::fcntl_get_seals(memory)?;
    let length = usize::try_from(rustix::fs::fstat(memory)?.st_size).unwrap_or(0);
    if !seals.contains(SealFlags::SHRINK) || !bytes.contains(&length) || length == 0 {
        let message = "shared memory can shrink (F_SEAL_SHRINK is missing) or has the wrong length";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    // SAFETY: this creates a new mapping at an address that the system chooses; the seal keeps the file from
    // shrinking under it.
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
    // SAFETY: the mapping is `length` bytes long and lives as long as `keep`; the only references into it are
    // to atomics.
    Ok(unsafe { Region::foreign(base, length, Some(keep)) })
}

/// Creates a zeroed memfd of `length` bytes that can neither shrink nor grow.
///
/// # Errors
/// The system call fails.
pub fn make(length: usize) -> io::Result<OwnedFd> {
    let memory = rustix::fs::memfd_create("kiban", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&memory, length as u64)?;
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}

fn validate_name(name: &[u8]) -> io::Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let message = format!("a shared-memory name must be 1 to {NAME_BYTES_MAX} bytes long");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// A listener for callers of a channel.
#[derive(Debug)]
pub struct ChannelListener {
    pub(crate) listener: Listener,
}

impl ChannelListener {
    /// Listens under a name in the directory of this user. The first call in a process also removes what
    /// ended processes have left in that directory.
    ///
    /// # Errors
    /// Another process uses that name, or there is no directory for it.
    pub fn open(name: &[u8]) -> io::Result<ChannelListener> {
        validate_name(name)?;
        let say = |error: io::Error| {
            let name = String::from_utf8_lossy(name);
            io::Error::new(error.kind(), format!("cannot use the shared-memory name {name:?}: {error}"))
        };
        let open = || {
            let folder = names::own_folder()?;
            let listener = ChannelListener::open_at(&folder.join(names::file(name)?))?;
            static CLEANED: Once = Once::new();
            CLEANED.call_once(|| remove_stale(&folder));
            Ok(listener)
        };
        open().map_err(say)
    }

    /// Listens at a path, for this process's user only. Replaces a socket that a killed process has left
    /// behind.
    ///
    /// # Errors
    /// Another process listens there, or the file cannot be created.
    pub fn open_at(path: &Path) -> io::Result<ChannelListener> {
        Ok(ChannelListener { listener: Listener::open(path, SocketType::STREAM)? })
    }

    /// Accepts the next waiting caller, if there is one. An error is treated as if there were no caller.
    pub fn try_accept(&self) -> Option<PendingChannel> {
        self.accept().ok().flatten()
    }

    /// Accepts the next waiting caller, if there is one, and reports errors, for example that no descriptors
    /// are left.
    ///
    /// # Errors
    /// Same as for [`Listener::accept`].
    pub fn accept(&self) -> io::Result<Option<PendingChannel>> {
        Ok(self.listener.accept()?.map(|peer| PendingChannel {
            socket: Some(peer),
            wanted: None,
            call: None,
        }))
    }
}

impl AsFd for ChannelListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// One side of a channel that is still being set up. It waits for the other side's message.
#[derive(Debug)]
pub struct PendingChannel {
    /// The socket. It is present until the channel takes it over.
    socket: Option<Peer>,
    /// Bytes of memory that the caller wants. `None` on the callee's side.
    wanted: Option<usize>,
    /// On the callee's side, the caller's message once it has arrived.
    call: Option<Call>,
}

/// A caller's message.
#[derive(Debug)]
struct Call {
    name: Vec<u8>,
    /// Bytes of memory that it wants.
    bytes: usize,
}

impl PendingChannel {
    /// Calls a listener by its name and requests `bytes` of memory; `own` is the caller's name, or empty.
    ///
    /// # Errors
    /// There is no listener with that name, or it belongs to another user.
    pub fn connect(name: &[u8], own: &[u8], bytes: usize) -> io::Result<PendingChannel> {
        validate_name(name)?;
        let file = names::file(name)?;
        let mut why = io::Error::from(io::ErrorKind::ConnectionRefused);
        for folder in names::folders() {
            match PendingChannel::connect_at(&folder.join(&file), own, bytes) {
                // There is no listener, or it is gone.
                Err(error) if is_nobody(&error) => why = error,
                called => return called,
            }
        }
        Err(why)
    }

    /// Calls a listener at a path, like [`PendingChannel::connect`].
    ///
    /// # Errors
    /// Same as for [`PendingChannel::connect`].
    pub fn connect_at(path: &Path, own: &[u8], bytes: usize) -> io::Result<PendingChannel> {
        PendingChannel::call_over(Peer::connect(path, SocketType::STREAM, true)?, own, bytes)
    }

    /// Calls a board's listener, with the checks of [`names::call`].
    ///
    /// # Errors
    /// Same as for [`PendingChannel::connect`]; also if the listener cannot be trusted.
    pub fn connect_to_board(path: &Path, own: &[u8], bytes: usize) -> io::Result<PendingChannel> {
        PendingChannel::call_over(names::call(path, SocketType::STREAM, true)?, own, bytes)
    }

    fn call_over(socket: Peer, own: &[u8], bytes: usize) -> io::Result<PendingChannel> {
        if !socket.is_own_user_or_root() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        match send(&socket, &[&(bytes as u64).to_le_bytes(), own], None) {
            // The callee has already refused the call and hung up. `complete` receives the reason.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {}
            sent => sent?,
        }
        Ok(PendingChannel { socket: Some(socket), wanted: Some(bytes), call: None })
    }

    /// Returns the channel once the other side's message has arrived, and `None` before that. On the callee's
    /// side, a caller may request a number of bytes within the range `bytes`.
    ///
    /// # Errors
    /// The other side hung up, sent a malformed message, or refused the call (with its reason).
    pub fn complete(&mut self, bytes: RangeInclusive<usize>) -> io::Result<Option<Channel>> {
        self.complete_if(bytes, |_, _| Ok(Vec::new()))
    }

    /// Like [`PendingChannel::complete`], for a callee that decides according to the caller's name and the
    /// number of bytes that it wants. `validate` returns the message for the caller, or a reason to refuse
    /// the call, which is sent to the caller, cut to [`NAME_BYTES_MAX`].
    ///
    /// # Errors
    /// Same as for [`PendingChannel::complete`]; also if the call was refused.
    pub fn complete_if(
        &mut self,
        bytes: RangeInclusive<usize>,
        validate: impl FnOnce(&[u8], usize) -> Result<Vec<u8>, String>,
    ) -> io::Result<Option<Channel>> {
        let (region, message) = match self.wanted {
            Some(wanted) => match self.receive(Peer::receive_memory)? {
                None => return Ok(None),
                Some((answer, Some(memory))) => (map(memory.as_fd(), wanted..=wanted)?, answer),
                Some((reason, None)) => {
                    return Err(io::Error::other(printable(&String::from_utf8_lossy(&reason)).into_owned()));
                }
            },
            None => {
                if self.caller()?.is_none() {
                    return Ok(None);
                }
                let Call { name, bytes: wanted } = self.call.take().expect("it has just arrived");
                let validated = match bytes.contains(&wanted) && wanted > 0 {
                    true => validate(&name, wanted),
                    false => Err(format!("cannot share {wanted} bytes of memory: the size is out of range")),
                };
                (self.lend(validated, wanted)?, name)
            }
        };
        let socket = self.socket.take().expect("it was just spoken on");
        Ok(Some(Channel { socket, region, calls: self.wanted.is_some(), message }))
    }

    /// On the callee's side, returns the caller's name once its message has arrived, and `None` before that.
    ///
    /// # Errors
    /// The caller hung up, or sent a malformed message.
    pub fn caller(&mut self) -> io::Result<Option<&[u8]>> {
        if self.call.is_none() {
            let received = self.receive(|socket, room| Ok((socket.receive(room)?, None)))?;
            let Some((message, _)) = received else { return Ok(None) };
            let (wanted, name) = message.split_first_chunk().ok_or_else(not_understood)?;
            let bytes = usize::try_from(u64::from_le_bytes(*wanted)).unwrap_or(usize::MAX);
            self.call = Some(Call { name: name.to_vec(), bytes });
        }
        Ok(self.call.as_ref().map(|call| &call.name[..]))
    }

    /// Receives the other side's message, without the part that is the same in all, and its memory.
    fn receive(
        &self,
        receive: impl FnOnce(&Peer, &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)>,
    ) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let mut hello = [0; CALL_BYTES + NAME_BYTES_MAX];
        match receive(socket, &mut hello) {
            Ok((0, _)) => Err(io::ErrorKind::ConnectionReset.into()),
            Ok((length, memory)) => {
                let message = hello[..length].strip_prefix(HELLO).ok_or_else(not_understood)?;
                Ok(Some((message.to_vec(), memory)))
            }
            Err(error) if is_later(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Answers a caller with memory, or with the reason for the refusal.
    fn lend(&self, validated: Result<Vec<u8>, String>, bytes: usize) -> io::Result<Region> {
        let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        let made = validated.map_err(invalid).and_then(|message| {
            let memory = make(bytes)?;
            Ok((map(memory.as_fd(), bytes..=bytes)?, memory, message))
        });
        match (made, &self.socket) {
            (Ok((region, memory, message)), Some(socket)) => {
                send(socket, &[&message], Some(memory.as_fd()))?;
                Ok(region)
            }
            (made, _) => {
                let error = made.err().unwrap_or_else(|| io::ErrorKind::NotConnected.into());
                self.refuse(&error.to_string());
                Err(error)
            }
        }
    }
}

impl PendingChannel {
    /// Refuses a call and sends the reason, whether or not the caller has sent its message.
    pub fn refuse(&self, why: &str) {
        let bytes = why.floor_char_boundary(NAME_BYTES_MAX);
        if let Some(socket) = &self.socket {
            // If the caller is gone, the reason is lost.
            let _ = send(socket, &[&why.as_bytes()[..bytes]], None);
        }
    }
}

impl AsFd for PendingChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("a half has its socket until it is whole").as_fd()
    }
}

/// Returns whether the error means that there is no listener at the address.
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn not_understood() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other side is not a kiban process of the same version")
}

fn send(socket: &Peer, words: &[&[u8]], memory: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if memory.is_some() {
        control.push(SendAncillaryMessage::ScmRights(memory.as_slice()));
    }
    let hello = [HELLO, &words.concat()[..]].concat();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&hello)], &mut control, flags)?;
    if sent == hello.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Returns whether the call may be retried later.
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Returns whether the system has no memory for a call at present, which is not a fault of the other side.
fn is_short_of_memory(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::NOMEM | Errno::NOBUFS))
}

/// An established channel to another process.
#[derive(Debug)]
pub struct Channel {
    socket: Peer,
    region: Region,
    calls: bool,
    /// What the other side has said: the caller's name, or the callee's message.
    message: Vec<u8>,
}

impl Channel {
    /// Returns the shared memory.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns whether this side is the caller.
    pub fn is_caller(&self) -> bool {
        self.calls
    }

    /// Returns the name that the caller gave itself. On the caller's own side, the name is empty.
    pub fn caller(&self) -> &[u8] {
        if self.calls { &[] } else { &self.message }
    }

    /// Returns the message with which the callee has answered. On the callee's own side, it is empty.
    pub fn answer(&self) -> &[u8] {
        if self.calls { &self.message } else { &[] }
    }

    /// Returns the bell that the other side rings to wake this side.
    #[inline]
    pub fn own_bell(&self) -> &Bell {
        self.region.bell(if self.calls { 0 } else { 64 }).expect("the front has room for it")
    }

    #[inline]
    fn peer_bell(&self) -> &Bell {
        self.region.bell(if self.calls { 64 } else { 0 }).expect("the front has room for it")
    }

    /// Rings the other side's bell, and wakes it if it sleeps.
    #[inline]
    pub fn ring(&self, now: impl FnOnce() -> u64) {
        if self.peer_bell().ring(now) {
            self.wake_peer();
        }
    }

    /// Wakes the other side through the socket. A lost wake-up would leave the other side asleep forever. So
    /// if the system keeps refusing a byte although there is room, this shuts the socket down, which both
    /// sides notice.
    fn wake_peer(&self) {
        use rustix::io::Errno;
        for _ in 0..WAKES_MAX {
            match rustix::net::send(&self.socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Err(Errno::NOMEM | Errno::NOBUFS | Errno::INTR) => std::thread::yield_now(),
                Err(Errno::AGAIN) if self.has_room() => std::thread::yield_now(),
                // If the socket is full, its unread bytes already wake the other side. If it is closed, the
                // other side is not asleep.
                _ => return,
            }
        }
        // This needs no memory, and fails only if the socket is no longer connected.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Returns whether the socket has room for a byte (or poll(2) fails). If it has room and a send fails,
    /// the reason is not a full socket.
    fn has_room(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::OUT)];
        rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default())) != Ok(0)
    }

    /// Reads the wake-up bytes, up to a bounded number. Returns whether the other side is gone: it closed the
    /// channel, its process ended, or it sent descriptors, which are not accepted.
    pub fn is_gone(&self) -> bool {
        let mut bytes = [0u8; 4096];
        // Read until the socket is empty: the peer's hang-up may follow a wake-up byte, and an edge-triggered
        // epoll reports both as one event. The count is bounded, so that a peer that keeps sending does not
        // keep this thread in the loop.
        for _ in 0..4 {
            match self.socket.receive(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return !is_later(&error) && !is_short_of_memory(&error),
            }
        }
        false
    }

    /// Returns the socket. It is readable when the other side rings, and hung up when the other side is gone.
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
        let listener = ChannelListener::open(&name(story)).expect("the name is free");
        let mut caller = PendingChannel::connect(&name(story), b"me", BYTES).expect("the door is open");
        assert!(caller.complete(BYTES..=BYTES).expect("nobody hung up").is_none());
        let mut callee = listener.try_accept().expect("a caller is waiting");
        let callee =
            callee.complete(BYTES..=BYTES).expect("a correct caller").expect("its hello has arrived");
        let caller =
            caller.complete(BYTES..=BYTES).expect("a correct callee").expect("its hello has arrived");
        assert_eq!((caller.caller(), callee.caller()), (&b""[..], &b"me"[..]));
        [caller, callee]
    }

    #[test]
    fn only_a_sleeper_is_woken() {
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
    fn sending_never_blocks_on_a_peer_that_does_not_read() {
        let sides = pair("deaf");
        // Ring more often than the socket can hold bytes. No call may block, and one call of `is_gone` must
        // read everything.
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
    fn an_end_that_follows_a_wake_up_is_seen_with_it() {
        let [one, two] = pair("rung-and-gone");
        two.own_bell().arm();
        one.ring(|| 7);
        drop(one);
        // An edge-triggered epoll reports the byte and the hang-up in a single event.
        assert!(two.is_gone());
    }

    #[test]
    fn a_call_refused_before_its_hello_returns_the_reason() {
        let path = std::env::temp_dir().join(String::from_utf8(name("refused")).expect("text"));
        let listener = ChannelListener::open_at(&path).expect("the path is free");
        let socket = Peer::connect(&path, SocketType::STREAM, true).expect("the listener accepts");
        listener.try_accept().expect("a caller is waiting").refuse("no room");
        let mut half =
            PendingChannel::call_over(socket, b"me", BYTES).expect("the reason is still to be received");
        let error = half.complete(BYTES..=BYTES).expect_err("it was refused");
        assert_eq!(error.to_string(), "no room");
    }

    #[test]
    fn a_caller_with_another_protocol_is_rejected() {
        let name = name("language");
        let listener = ChannelListener::open(&name).expect("the name is free");
        let file = names::own_folder().expect("a directory").join(names::file(&name).expect("a good name"));
        let mut caller = UnixStream::connect(file).expect("the listener accepts");
        caller.write_all(b"GET / HT").expect("the listener accepts");
        let mut half = listener.try_accept().expect("a caller is waiting");
        assert_eq!(half.complete(0..=BYTES).expect_err("no hello").kind(), io::ErrorKind::InvalidData);
        assert!(
            ChannelListener::open(&name)
                .expect_err("taken")
                .to_string()
                .contains("cannot use the shared-memory name")
        );
        assert!(PendingChannel::connect(b"nobody-at-all", b"", BYTES).is_err());
        assert!(PendingChannel::connect(&[b'x'; 65], b"", BYTES).is_err());
        let mut small = PendingChannel::connect(&name, b"", 4096).expect("the door is open");
        let mut half = listener.try_accept().expect("a caller is waiting");
        assert_eq!(half.complete(BYTES..=BYTES).expect_err("too small").kind(), io::ErrorKind::InvalidData);
        drop(half);
        assert!(small.complete(4096..=4096).is_err(), "it is hung up on");
    }

    #[test]
    fn a_callee_reads_the_call_before_it_answers_with_a_message() {
        let name = name("answered");
        let listener = ChannelListener::open(&name).expect("the name is free");
        let mut caller = PendingChannel::connect(&name, b"me", BYTES).expect("the door is open");
        let mut callee = listener.try_accept().expect("a caller is waiting");
        for _ in 0..2 {
            assert_eq!(callee.caller().expect("a correct caller"), Some(&b"me"[..]));
        }
        let callee = callee.complete_if(0..=BYTES, |caller, _| Ok([caller, b"!"].concat()));
        let callee = callee.expect("a correct caller").expect("its message has arrived");
        let caller = caller.complete(BYTES..=BYTES).expect("a correct callee").expect("it has answered");
        assert_eq!((caller.answer(), caller.caller()), (&b"me!"[..], &b""[..]));
        assert_eq!((callee.answer(), callee.caller()), (&b""[..], &b"me"[..]));
    }

    #[test]
    fn a_rejected_caller_receives_the_reason() {
        let name = name("refused");
        let listener = ChannelListener::open(&name).expect("the name is free");
        let call = || PendingChannel::connect(&name, b"me", BYTES).expect("the door is open");
        let mut caller = call();
        let mut callee = listener.try_accept().expect("a caller is waiting");
        let long = "it has its reasons: ".repeat(10);
        let validated = callee.complete_if(0..=BYTES, |caller, bytes| {
            assert_eq!((caller, bytes), (&b"me"[..], BYTES));
            Err(long.clone())
        });
        assert_eq!(validated.expect_err("it is rejected").to_string(), long);
        drop(callee);
        let reason = caller.complete(BYTES..=BYTES).expect_err("it is rejected").to_string();
        assert_eq!(reason, long[..NAME_BYTES_MAX]);
        // A listener may refuse without reading the caller's message. A long reason is truncated at a
        // character boundary.
        let mut caller = call();
        listener.try_accept().expect("a caller is waiting").refuse(&"ü".repeat(NAME_BYTES_MAX));
        let reason = caller.complete(BYTES..=BYTES).expect_err("it is rejected").to_string();
        assert_eq!(reason, "ü".repeat(NAME_BYTES_MAX / 2));
    }

    #[test]
    fn memory_that_can_shrink_is_not_mapped() {
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
            Err(error) => {
                return println!("skipped: the system cannot create a memfd with huge pages: {error}");
            }
        };
        // The size of two huge pages of 1 GiB, the largest size.
        rustix::fs::ftruncate(&memory, 2 << 30).expect("pages that are not there yet");
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).expect("seals");
        let error = map(memory.as_fd(), 0..=usize::MAX).expect_err("holes may be punched into it");
        assert!(error.to_string().contains("huge pages"), "{error}");
        let file = std::fs::File::open("/proc/self/exe").expect("a file");
        assert!(map(file.as_fd(), 0..=usize::MAX).is_err());
    }
}
