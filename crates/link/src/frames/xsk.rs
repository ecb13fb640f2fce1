//! An AF_XDP socket: the memory that it shares with the kernel, four rings, and the XDP program that
//! redirects frames to the socket.
//!
//! ```text
//!   kernel ── received ──► us        us ── to be sent ──► kernel        descriptors: where in the memory, how long
//!   us ────── free ──────► kernel    kernel ── sent ────► us            addresses of frames of the memory
//! ```
//!
//! Source           Linux's Documentation/networking/af_xdp.rst, `linux/if_xdp.h`, `linux/bpf.h`.
//! Memory           one mapping holds frames of one size, half of them for receiving and half for sending.
//!                  Each frame belongs to one side at a time: the side that has taken it from a ring, or has
//!                  not yet put it into one.
//! Program          five instructions, which pass frames of a socket's queue to the socket and other frames
//!                  to the kernel. The program is attached through a descriptor, so that it is removed when
//!                  the process ends. Sockets of several queues of an interface share it.
//! Wake             a ring's flags say when the kernel needs a system call; otherwise none is made.
//! Modes            the driver's native mode if it has one, otherwise the generic mode. If the driver cannot
//!                  share memory, frames are copied; the kernel chooses.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of entries in each ring, and of frames in each direction.
pub(super) const RING: u32 = 1024;
/// Bytes that the kernel reserves in front of a received frame (`XDP_PACKET_HEADROOM`).
pub(super) const HEADROOM: usize = 256;

// `linux/bpf.h`.
const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_FUNC_REDIRECT_MAP: u32 = 51;
const XDP_PASS: u32 = 2;
/// `linux/if_link.h`: attach in the driver, or in front of the stack.
const MODES: [u32; 2] = [1 << 2, 1 << 1];
/// The offset of the queue in `struct xdp_md`.
const RX_QUEUE_INDEX: u64 = 16;

/// The step that failed, and the system's error.
type StepError = (&'static str, io::Error);

/// A mapping, unmapped when this value is dropped.
struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}
// SAFETY: a mapping is memory of the process, and this value is its only owner.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(bytes: usize, file: Option<(BorrowedFd<'_>, u64)>) -> io::Result<Mapping> {
        let (flags, fd, offset) = match file {
            Some((file, offset)) => (libc::MAP_SHARED | libc::MAP_POPULATE, file.as_raw_fd(), offset),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
        };
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the system's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, fd, offset as libc::off_t) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { at: NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?, bytes })
    }

    /// Returns the counter at an offset.
    fn word(&self, offset: u64) -> &AtomicU32 {
        assert!(
            offset.is_multiple_of(4) && offset as usize + 4 <= self.bytes,
            "the kernel's offsets lie within the mapping"
        );
        // SAFETY: the counter lies in the mapping and is aligned, both checked above; both sides access it
        // atomically.
        unsafe { &*self.at.as_ptr().add(offset as usize).cast::<AtomicU32>() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more, because references to it do not outlive this value.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// One ring, with entries of one type, towards the kernel or from it.
struct Ring<E> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    /// Our own counter of the entries put into the ring or taken from it.
    own: u32,
    entry: std::marker::PhantomData<E>,
}

impl<E: Copy> Ring<E> {
    fn map(socket: BorrowedFd<'_>, offsets: libc::xdp_ring_offset, page: u64) -> io::Result<Ring<E>> {
        let bytes = offsets.desc as usize + RING as usize * size_of::<E>();
        let mapping = Mapping::new(bytes, Some((socket, page)))?;
        Ok(Ring { mapping, offsets, own: 0, entry: std::marker::PhantomData })
    }

    fn entry(&self, number: u32) -> *mut E {
        let offset = self.offsets.desc as usize + (number % RING) as usize * size_of::<E>();
        debug_assert!(offset + size_of::<E>() <= self.mapping.bytes);
        // SAFETY: the mapping was made long enough for all entries.
        unsafe { self.mapping.at.as_ptr().add(offset).cast() }
    }

    /// Puts an entry into the ring, if there is room. The kernel sees it after [`Ring::publish`].
    fn put(&mut self, entry: E) -> bool {
        let consumed = self.mapping.word(self.offsets.consumer).load(Ordering::Acquire);
        if self.own.wrapping_sub(consumed) >= RING {
            return false;
        }
        // SAFETY: the entry lies in the mapping, and the kernel does not read it before it is published.
        unsafe { self.entry(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
        true
    }

    fn publish(&self) {
        self.mapping.word(self.offsets.producer).store(self.own, Ordering::Release);
    }

    /// Returns the number of entries that the kernel has not taken yet.
    fn left(&self) -> u32 {
        self.own.wrapping_sub(self.mapping.word(self.offsets.consumer).load(Ordering::Acquire))
    }

    /// Returns the next entry from the kernel, which stays until [`Ring::take`].
    fn peek(&self) -> Option<E> {
        let produced = self.mapping.word(self.offsets.producer).load(Ordering::Acquire);
        // SAFETY: the entry lies in the mapping, and the kernel wrote it before it advanced the producer
        // counter.
        (produced != self.own).then(|| unsafe { self.entry(self.own).read() })
    }

    fn take(&mut self) {
        self.own = self.own.wrapping_add(1);
        self.mapping.word(self.offsets.consumer).store(self.own, Ordering::Release);
    }

    fn wants_wake(&self) -> bool {
        self.mapping.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A received frame, owned by the caller until [`Xsk::done`].
#[derive(Clone, Copy)]
pub(super) struct Received(libc::xdp_desc);

/// An XDP program on an interface, and the map of the sockets to which it passes frames.
struct Attachment {
    _link: OwnedFd,
    _map: OwnedFd,
}

/// The socket, and everything that belongs to it.
pub(super) struct Xsk {
    // Fields are dropped in this order, so the XDP program that redirects frames to the last socket is
    // removed first. Closing a socket removes it from the map.
    _attachment: Option<Arc<Attachment>>,
    received: Ring<libc::xdp_desc>,
    free: Ring<u64>,
    to_send: Ring<libc::xdp_desc>,
    sent: Ring<u64>,
    socket: OwnedFd,
    memory: Mapping,
    frame_bytes: usize,
    /// Frames that are not being sent.
    idle: Vec<u64>,
}

impl Xsk {
    /// Opens a socket on each of these queues of an interface, with frames of `frame_bytes`: 2048 or 4096.
    ///
    /// # Errors
    /// The step that failed, and the system's error.
    pub(super) fn open(index: u32, queues: Range<u32>, frame_bytes: usize) -> Result<Vec<Xsk>, StepError> {
        let bind = |queue| Xsk::bind(index, queue, frame_bytes);
        let mut sockets: Vec<Xsk> = queues.clone().map(bind).collect::<Result<_, _>>()?;
        let attachment = Arc::new(lead(&sockets, index, queues)?);
        sockets.iter_mut().for_each(|its| its._attachment = Some(attachment.clone()));
        Ok(sockets)
    }

    /// Opens a socket on a queue, which receives nothing yet.
    fn bind(index: u32, queue: u32, frame_bytes: usize) -> Result<Xsk, StepError> {
        let say = |what| move |error| (what, error);
        // SAFETY: socket(2) takes no pointers.
        let file = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if file < 0 {
            return Err(("open an AF_XDP socket for", io::Error::last_os_error()));
        }
        // SAFETY: the descriptor was just created, and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(file) };
        let memory =
            Mapping::new(2 * RING as usize * frame_bytes, None).map_err(say("allocate memory for"))?;
        let wanted = libc::xdp_umem_reg {
            addr: memory.at.as_ptr() as u64,
            len: memory.bytes as u64,
            chunk_size: frame_bytes as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&socket, libc::XDP_UMEM_REG, &wanted)
            .map_err(say("register memory (limited by RLIMIT_MEMLOCK) for"))?;
        for ring in
            [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING]
        {
            set(&socket, ring, &RING).map_err(say("create the rings of"))?;
        }
        let offsets = offsets(&socket).map_err(say("read the ring offsets of"))?;
        let map = say("map the rings of");
        let file = socket.as_fd();
        let received = Ring::map(file, offsets.rx, libc::XDP_PGOFF_RX_RING as u64).map_err(map)?;
        let to_send = Ring::map(file, offsets.tx, libc::XDP_PGOFF_TX_RING as u64).map_err(map)?;
        let mut free: Ring<u64> = Ring::map(file, offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING).map_err(map)?;
        let sent = Ring::map(file, offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING).map_err(map)?;
        let frame = |number: u32| u64::from(number) * frame_bytes as u64;
        (0..RING).for_each(|number| {
            free.put(frame(number));
        });
        free.publish();
        // SAFETY: all-zero bytes are a valid `sockaddr_xdp`.
        let mut address: libc::sockaddr_xdp = unsafe { std::mem::zeroed() };
        address.sxdp_family = libc::AF_XDP as u16;
        address.sxdp_flags = libc::XDP_USE_NEED_WAKEUP;
        address.sxdp_ifindex = index;
        address.sxdp_queue_id = queue;
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: the address is a complete `sockaddr_xdp` and outlives the call.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 {
            return Err(("bind a socket to the queue of", io::Error::last_os_error()));
        }
        let idle = (RING..2 * RING).map(frame).collect();
        Ok(Xsk { _attachment: None, received, free, to_send, sent, socket, memory, frame_bytes, idle })
    }

    /// Returns the length of the longest frame that can be sent, in bytes.
    pub(super) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Returns the next received frame.
    pub(super) fn peek(&self) -> Option<Received> {
        self.received.peek().map(Received)
    }

    /// Returns the bytes of a received frame.
    pub(super) fn bytes(&self, received: &Received) -> &[u8] {
        let (from, length) = (received.0.addr as usize, received.0.len as usize);
        assert!(
            from.checked_add(length).is_some_and(|end| end <= self.memory.bytes),
            "the kernel's descriptors refer to frames in the memory"
        );
        // SAFETY: the range lies in the memory, and the kernel does not write there before the frame is free
        // again.
        unsafe { std::slice::from_raw_parts(self.memory.at.as_ptr().add(from), length) }
    }

    /// Releases a received frame.
    pub(super) fn done(&mut self, received: Received) {
        self.received.take();
        let frame = received.0.addr - received.0.addr % self.frame_bytes as u64;
        // There is room, because the frame came from that ring.
        self.free.put(frame);
    }

    /// Gives released frames back to the kernel.
    pub(super) fn give_back(&mut self) {
        self.free.publish();
        if self.free.wants_wake() {
            // SAFETY: no buffer is passed, because the call only wakes the kernel.
            unsafe {
                libc::recv(self.socket.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT);
            }
        }
    }

    /// Takes back frames that have been sent.
    pub(super) fn reclaim(&mut self) {
        while let Some(frame) = self.sent.peek() {
            self.sent.take();
            self.idle.push(frame - frame % self.frame_bytes as u64);
        }
    }

    /// Queues a frame that consists of these runs of bytes, which together must fit into a frame of the
    /// shared memory. Returns false if there is no room.
    pub(super) fn put<'a>(&mut self, runs: impl Iterator<Item = &'a [u8]>) -> bool {
        let Some(frame) = self.idle.pop() else { return false };
        let mut length = 0;
        for run in runs {
            assert!(length + run.len() <= self.frame_bytes, "the caller has looked at its length");
            let at = frame as usize + length;
            // SAFETY: the frame lies in the memory and belongs to this side until it is put into the ring.
            unsafe {
                std::ptr::copy_nonoverlapping(run.as_ptr(), self.memory.at.as_ptr().add(at), run.len());
            }
            length += run.len();
        }
        let descriptor = libc::xdp_desc { addr: frame, len: length as u32, options: 0 };
        if !self.to_send.put(descriptor) {
            self.idle.push(frame);
            return false;
        }
        true
    }

    /// Makes the kernel send the queued frames. Those that it does not take now are sent on a later call.
    ///
    /// # Errors
    /// The interface is down, or gone.
    pub(super) fn kick(&mut self) -> io::Result<()> {
        self.to_send.publish();
        // In copy mode, the kernel takes a few dozen frames per call.
        let mut before = u32::MAX;
        while self.to_send.left() > 0 && self.to_send.left() < before && self.to_send.wants_wake() {
            before = self.to_send.left();
            // SAFETY: no buffer is passed, because the call only wakes the kernel.
            let result =
                unsafe { libc::send(self.socket.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
            if result < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => {}
                    _ => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Returns whether queued frames are waiting that the kernel has not taken.
    pub(super) fn waits(&self) -> bool {
        self.to_send.left() > 0
    }

    /// Returns the socket's pending error, if any.
    pub(super) fn error(&self) -> Option<io::Error> {
        let (mut error, mut length): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the option is an int, and `error` has room for it.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut error).cast(),
                &raw mut length,
            )
        };
        (result == 0 && error != 0).then(|| io::Error::from_raw_os_error(error))
    }
}

impl AsFd for Xsk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the option reads a value of this type, which outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, std::ptr::from_ref(value).cast(), length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: all-zero bytes are a valid `xdp_mmap_offsets`.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
    // SAFETY: the option writes at most one value of this type.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(offsets) }
}

/// Redirects the frames of each queue to its socket.
fn lead(sockets: &[Xsk], index: u32, queues: Range<u32>) -> Result<Attachment, StepError> {
    let say = |what| move |error| (what, error);
    // Fields: the map's type, key size, value size and number of entries.
    let map = [BPF_MAP_TYPE_XSKMAP, 4, 4, queues.end];
    let map = file_of(BPF_MAP_CREATE, &map).map_err(say("create an XDP map for"))?;
    for (key, xsk) in queues.zip(sockets) {
        let value = xsk.socket.as_raw_fd();
        // Fields: the map, padding, the key's address, the value's address, and flags (any).
        let update = [map.as_raw_fd() as u64, &raw const key as u64, &raw const value as u64, 0];
        bpf(BPF_MAP_UPDATE_ELEM, &update).map_err(say("add the socket to the XDP map of"))?;
    }
    let file = u64::from(map.as_raw_fd() as u32);
    let program = [
        // r2 = the frame's queue
        instruction(0x61, 2, 1, RX_QUEUE_INDEX, 0),
        // r1 = the map, in two halves
        instruction(0x18, 1, 1, 0, file),
        0,
        // r3 = the action for frames of queues that are not in the map
        instruction(0xb7, 3, 0, 0, XDP_PASS.into()),
        instruction(0x85, 0, 0, 0, BPF_FUNC_REDIRECT_MAP.into()),
        // return r0
        instruction(0x95, 0, 0, 0, 0),
    ];
    let license = c"MIT";
    // Fields: type and number of instructions, the instructions, the license. The remaining fields are zero.
    let load = [
        u64::from(BPF_PROG_TYPE_XDP) | (program.len() as u64) << 32,
        program.as_ptr() as u64,
        license.as_ptr() as u64,
    ];
    let program = file_of(BPF_PROG_LOAD, &load).map_err(say("load an XDP program for"))?;
    let attach = |mode: u32| file_of(BPF_LINK_CREATE, &[program.as_raw_fd() as u32, index, BPF_XDP, mode]);
    let link = attach(MODES[0]).or_else(|error| match error.raw_os_error() {
        // The driver has no native mode, or has none for this MTU.
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE) => attach(MODES[1]),
        _ => Err(error),
    });
    Ok(Attachment { _link: link.map_err(say("attach an XDP program to"))?, _map: map })
}

/// Encodes an instruction as eight bytes in the machine's order: code, registers, offset, immediate (`struct
/// bpf_insn`).
fn instruction(code: u8, target: u8, source: u8, offset: u64, immediate: u64) -> u64 {
    let registers = if cfg!(target_endian = "big") { target << 4 | source } else { source << 4 | target };
    let [a, b] = (offset as u16).to_ne_bytes();
    let [c, d, e, f] = (immediate as u32).to_ne_bytes();
    u64::from_ne_bytes([code, registers, a, b, c, d, e, f])
}

/// Calls bpf(2). Fields of its argument that are not given are zero.
fn bpf<T>(command: libc::c_long, argument: &[T]) -> io::Result<libc::c_long> {
    // SAFETY: the argument is plain integers of this size; the memory that it points to outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, argument.as_ptr(), size_of_val(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes a bpf(2) call that returns a descriptor.
fn file_of<T>(command: libc::c_long, argument: &[T]) -> io::Result<OwnedFd> {
    let file = bpf(command, argument)?;
    // SAFETY: the descriptor was just created, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(file as libc::c_int) })
}
