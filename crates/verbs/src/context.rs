//! Open devices (ibv_open_device(3)) and asynchronous events (ibv_get_async_event(3)).
//!
//! State     the function tables through which `verbs.h` makes calls, and a file descriptor that is readable
//!           while an event is pending.
//! Sharing   all identifiers of the connection manager that use a device share one context ([`shared`]),
//!           which is never closed.
//! Import    the command file of a context is a memory file that names its process and its device. With a
//!           copy of the descriptor, the same process opens another context ([`ibv_import_device`]); all
//!           contexts of a process share one NIC, so objects can be imported into it. Another process cannot.
//! Events    each object counts its delivered and acknowledged events; destroying it waits until all are
//!           acknowledged ([`crate::sync::acknowledged`]).

use crate::abi::*;
use crate::atomic::AtomicPtr;
use crate::device::Device;
use crate::engine::{Generation, engine, given};
use crate::ffi::{catch_panics, fail_with_errno, pointer, set_errno};
use crate::log::unsupported;
use crate::queue::cq::Cq;
use crate::queue::qp::Qp;
use crate::queue::srq::Srq;
use crate::sync::acknowledged::Acknowledged;
use crate::sync::published::Published;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};
use kiban_rdma_runtime::Config;
use kiban_rdma_runtime::verbs::{AsyncEvent, AsyncEventKind, Channel, Engine};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// An open device.
#[repr(C)]
pub(crate) struct Context {
    abi: UnsafeCell<verbs_context>,
    born: Generation,
    pub(crate) engine: &'static Engine,
    pub(crate) device: &'static Device,
    /// The NIC's limits. They can be read in a forked child, too.
    pub(crate) bounds: Config,
    /// Asynchronous events of the context's objects; [`tag`] makes their cookies.
    pub(crate) async_events: Arc<Channel<AsyncEvent>>,
    /// Number of live objects of the context.
    objects: AtomicUsize,
    /// Names the process and the device. Not used by the library itself.
    _command_file: OwnedFd,
}

// SAFETY: programs only read the C struct (ibv_open_device(3)); all other fields may be shared between
// threads.
unsafe impl Sync for Context {}

/// Kinds of objects, stored in the low bits of a cookie, which are zero in an aligned pointer.
pub(crate) const CQ: u64 = 0;
pub(crate) const QP: u64 = 1;
pub(crate) const SRQ: u64 = 2;

/// Returns the cookie of an object: its address and its kind.
pub(crate) fn tag(object: *mut c_void, kind: u64) -> u64 {
    object.addr() as u64 | kind
}

impl Context {
    /// Opens a device.
    fn open(device: &'static Device) -> Result<Context, c_int> {
        let engine = engine()?;
        let async_events = Channel::new().map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
        let mut abi = verbs_context::ZERO;
        abi.sz = size_of::<verbs_context>();
        abi.context.device = device.abi();
        abi.context.async_fd = async_events.number();
        let command_file =
            command_file(device).map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
        abi.context.cmd_fd = command_file.as_raw_fd();
        abi.context.num_comp_vectors = 1;
        abi.context.abi_compat = VERBS_ABI_IS_EXTENDED;
        crate::device::table::fill(&mut abi);
        Ok(Context {
            abi: UnsafeCell::new(abi),
            born: Generation::now(),
            engine,
            device,
            bounds: engine.bounds(),
            async_events: Arc::new(async_events),
            objects: AtomicUsize::new(0),
            _command_file: command_file,
        })
    }

    /// # Safety
    /// `pointer` is null or an open context created by this library.
    #[inline]
    pub(crate) unsafe fn given<'a>(pointer: *mut ibv_context) -> Result<&'a Context, c_int> {
        // SAFETY: the caller of `given` guarantees what this function requires.
        let context = unsafe { Context::of_any_process(pointer)? };
        if context.born.is_now() { Ok(context) } else { Err(libc::EIO) }
    }

    /// Like [`Context::given`], but also returns a context of the parent of this process, whose NIC must not
    /// be used.
    ///
    /// # Safety
    /// As for [`Context::given`].
    #[inline]
    pub(crate) unsafe fn of_any_process<'a>(pointer: *mut ibv_context) -> Result<&'a Context, c_int> {
        if pointer.is_null() {
            return Err(libc::EINVAL);
        }
        let whole = pointer.wrapping_byte_sub(offset_of!(verbs_context, context));
        // SAFETY: the pointer is to the last field of the `verbs_context` with which a `Context` begins; the
        // caller guarantees that it is open.
        Ok(unsafe { &*whole.cast::<Context>() })
    }

    /// Returns the C struct.
    pub(crate) fn abi(&self) -> *mut ibv_context {
        let whole = core::ptr::from_ref(self).cast_mut();
        whole.wrapping_byte_add(offset_of!(verbs_context, context)).cast()
    }

    /// Counts an object that is created from the context.
    pub(crate) fn retain(&self) {
        self.objects.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an object that is destroyed.
    pub(crate) fn release(&self) {
        self.objects.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the address of an open device.
///
/// # Safety
/// As for [`Context::given`].
pub(crate) unsafe fn address(context: *mut ibv_context) -> Result<IpAddr, c_int> {
    // SAFETY: the caller of `address` guarantees that `context` is null or an open context created by this
    // library.
    unsafe { Context::given(context) }.map(|context| context.device.address)
}

/// Returns the shared context of the device with this local address, for the connection manager's
/// identifiers.
pub(crate) fn shared(address: IpAddr) -> Result<*mut ibv_context, c_int> {
    shared_of(if address.is_loopback() { Device::for_loopback(address)? } else { Device::with(address)? })
}

/// Returns the shared context of a device.
pub(crate) fn shared_of(device: &'static Device) -> Result<*mut ibv_context, c_int> {
    loop {
        let newest = SHARED.get();
        if let Some(known) = shared_contexts(newest).find(|known| core::ptr::eq(known.device, device)) {
            return Ok(known.abi());
        }
        SHARED.publish(newest, Shared { context: Context::open(device)?, next: newest });
    }
}

/// A shared context, and the list of older ones.
struct Shared {
    context: Context,
    next: Option<&'static Shared>,
}

static SHARED: Published<Shared> = Published(AtomicPtr::new(null_mut()));

/// Returns the shared contexts of this process; a forked child must not use those of its parent.
fn shared_contexts(newest: Option<&'static Shared>) -> impl Iterator<Item = &'static Context> {
    core::iter::successors(newest, |shared| shared.next)
        .map(|shared| &shared.context)
        .filter(|context| context.born.is_now())
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.born.is_now() {
            self.engine.forget_channel(&self.async_events);
        }
    }
}

/// # Safety
/// `device` is null or a device returned by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    catch_panics(null_mut(), || {
        // SAFETY: the caller of `ibv_open_device` guarantees that `device` is null or a device returned by
        // this library.
        let opened = unsafe { Device::given(device) }.and_then(Context::open);
        opened.map_or_else(
            |error| {
                set_errno(error);
                null_mut()
            },
            |context| {
                let whole = Box::into_raw(Box::new(context));
                whole.wrapping_byte_add(offset_of!(verbs_context, context)).cast()
            },
        )
    })
}

/// Returns what the command files of this process begin with: a random number, and the generation.
fn command_key() -> io::Result<[u8; 12]> {
    static KEY: OnceLock<u64> = OnceLock::new();
    let key = match KEY.get() {
        Some(key) => *key,
        None => {
            let drawn = kiban_base::SecureRng::new(kiban_os::random::key()?).draw();
            *KEY.get_or_init(|| drawn)
        }
    };
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&key.to_ne_bytes());
    bytes[8..].copy_from_slice(&Generation::now().number().to_ne_bytes());
    Ok(bytes)
}

/// Creates the command file of a context.
fn command_file(device: &Device) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string.
    let file = unsafe { libc::memfd_create(c"kiban-verbs".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and nothing else owns it.
    let file = unsafe { File::from_raw_fd(file) };
    file.write_all_at(&[&command_key()?[..], &device.index.to_ne_bytes()].concat(), 0)?;
    Ok(file.into())
}

/// Opens the device of another context of this process, of which the program has duplicated the command file.
/// The new context owns the descriptor, as with rdma-core.
#[unsafe(no_mangle)]
extern "C" fn ibv_import_device(command_file: c_int) -> *mut ibv_context {
    pointer(|| {
        if command_file < 0 {
            return Err(libc::EBADF);
        }
        let mut found = [0; 16];
        // SAFETY: the descriptor is only borrowed for this call.
        let read = unsafe { BorrowedFd::borrow_raw(command_file) }.try_clone_to_owned();
        let read = read.map(File::from).and_then(|file| file.read_exact_at(&mut found, 0));
        let key = command_key().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        match read {
            Ok(()) if found[..12] == key => {}
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => return Err(libc::EBADF),
            // The context belongs to another process, or the file is not one of a context.
            _ => return Err(unsupported("ibv_import_device: a device of another process")),
        }
        let index = u32::from_ne_bytes([found[12], found[13], found[14], found[15]]);
        let device = Device::numbered(index).ok_or(libc::ENODEV)?;
        let context = Context::open(device)?;
        // SAFETY: the program gives the descriptor to this function (ibv_import_device(3)).
        drop(unsafe { OwnedFd::from_raw_fd(command_file) });
        let whole = Box::into_raw(Box::new(context));
        Ok(whole.wrapping_byte_add(offset_of!(verbs_context, context)).cast())
    })
}

/// # Safety
/// `context` is null or an open context created by this library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    catch_panics(libc::EIO, || {
        // SAFETY: the caller of `ibv_close_device` guarantees that `context` is null or an open context
        // created by this library.
        match unsafe { Context::given(context) } {
            // A shared context stays open for the next identifier.
            Ok(open) if shared_contexts(SHARED.get()).any(|shared| core::ptr::eq(shared, open)) => 0,
            // The program has not destroyed all objects. They point to the context, so it must not be freed.
            // (rdma-core frees all these objects here.)
            Ok(open) if open.objects.load(Ordering::Relaxed) > 0 => 0,
            Ok(_) => {
                let whole = context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast::<Context>();
                // SAFETY: `ibv_open_device` boxed it, it is open, and it has no objects left.
                drop(unsafe { Box::from_raw(whole) });
                0
            }
            // A forked child closes its parent's context, so there is nothing to do.
            Err(libc::EIO) => 0,
            Err(error) => error,
        }
    })
}

fn event_type(what: AsyncEventKind) -> ibv_event_type {
    match what {
        AsyncEventKind::QpFatal => IBV_EVENT_QP_FATAL,
        AsyncEventKind::QpRequestError => IBV_EVENT_QP_REQ_ERR,
        AsyncEventKind::QpAccessError => IBV_EVENT_QP_ACCESS_ERR,
        AsyncEventKind::QpLastReceive => IBV_EVENT_QP_LAST_WQE_REACHED,
        AsyncEventKind::QpEstablished => IBV_EVENT_COMM_EST,
        AsyncEventKind::CqError => IBV_EVENT_CQ_ERR,
        AsyncEventKind::SrqLimit => IBV_EVENT_SRQ_LIMIT_REACHED,
    }
}

/// Counts a delivered event at its object, which exists as long as one of its events is in the channel.
fn note(async_event: &AsyncEvent) {
    let object = core::ptr::with_exposed_provenance_mut::<c_void>((async_event.cookie & !7) as usize);
    // SAFETY: the cookie came from `tag`; an object is freed only after its events have been removed from the
    // channel.
    unsafe {
        match async_event.cookie & 7 {
            CQ => given::<Cq>(object.cast()).map(|cq| cq.events.deliver()),
            QP => given::<Qp>(object.cast()).map(|qp| qp.events.deliver()),
            _ => given::<Srq>(object.cast()).map(|srq| srq.events.deliver()),
        }
    }
    .unwrap_or(());
}

/// # Safety
/// `context` is null or an open context created by this library, and `event` is null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    catch_panics(-1, || {
        // SAFETY: the caller of `ibv_get_async_event` guarantees that `context` is null or an open context
        // created by this library and `event` is null or valid for reads and writes.
        let (context, event) = match unsafe { (Context::given(context), event.as_mut()) } {
            (Ok(context), Some(event)) => (context, event),
            (Err(error), _) => return fail_with_errno(error),
            (_, None) => return fail_with_errno(libc::EINVAL),
        };
        match context.engine.next_event_noting(&context.async_events, Duration::MAX, note) {
            Ok(reported) => {
                let object =
                    core::ptr::with_exposed_provenance_mut::<c_void>((reported.cookie & !7) as usize);
                event.event_type = event_type(reported.kind);
                event.element = match reported.cookie & 7 {
                    CQ => ibv_async_event_element { cq: object.cast() },
                    QP => ibv_async_event_element { qp: object.cast() },
                    _ => ibv_async_event_element { srq: object.cast() },
                };
                0
            }
            Err(error) => fail_with_errno(crate::queue::cq::errno_of_wait(&error)),
        }
    })
}

/// # Safety
/// `event` is null or came from [`ibv_get_async_event`].
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    catch_panics((), || {
        // SAFETY: the caller of `ibv_ack_async_event` guarantees that `event` is null or valid for reads.
        let Some(event) = (unsafe { event.as_ref() }) else { return };
        // SAFETY: the event's type determines which member is set; the object cannot be destroyed before
        // this event is acknowledged.
        let events: Result<&Acknowledged, c_int> = unsafe {
            match event.event_type {
                IBV_EVENT_CQ_ERR => given::<Cq>(event.element.cq.cast()).map(|cq| &cq.events),
                IBV_EVENT_QP_FATAL
                | IBV_EVENT_QP_REQ_ERR
                | IBV_EVENT_QP_ACCESS_ERR
                | IBV_EVENT_COMM_EST
                | IBV_EVENT_SQ_DRAINED
                | IBV_EVENT_QP_LAST_WQE_REACHED => given::<Qp>(event.element.qp.cast()).map(|qp| &qp.events),
                IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                    given::<Srq>(event.element.srq).map(|srq| &srq.events)
                }
                _ => Err(libc::EINVAL),
            }
        };
        if let Ok(events) = events {
            events.acknowledge(1);
        }
    });
}
