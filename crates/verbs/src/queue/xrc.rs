//! XRC domains (ibv_open_xrcd(3)), and further handles of XRC targets (ibv_open_qp(3)).
//!
//! Only RoCE devices have them. A domain that is opened with a file is shared by the contexts of this
//! process, but not with other processes.

use crate::abi::*;
use crate::context::Context;
use crate::device::{Transport, board, transport};
use crate::engine::{Generation, Object, given, refused, take_back};
use crate::ffi::{errno_of, errno_or_zero, pointer};
use crate::log::unsupported;
use crate::queue::qp;
use core::cell::UnsafeCell;
use core::ffi::c_int;
use kiban_rdma_runtime::verbs::{Creation, FileId, RequestError, Service};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::MetadataExt;

/// An XRC domain.
#[repr(C)]
pub(crate) struct Xrcd {
    abi: UnsafeCell<ibv_xrcd>,
    born: Generation,
    context: &'static Context,
    /// The engine's number for the domain.
    pub(crate) number: u32,
}

// SAFETY: the type is `repr(C)`, and its first field is an `UnsafeCell` of the C struct.
unsafe impl Object for Xrcd {
    type Abi = ibv_xrcd;

    fn born(&self) -> Generation {
        self.born
    }
}

/// Returns the identity of a file, or `None` for the descriptor -1.
fn file(fd: c_int) -> Result<Option<FileId>, c_int> {
    if fd == -1 {
        return Ok(None);
    }
    if fd < 0 {
        return Err(libc::EBADF);
    }
    // SAFETY: the descriptor stays the program's: it is not closed here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let found = file.metadata().map_err(|error| errno_of(&error))?;
    Ok(Some((found.dev(), found.ino())))
}

/// # Safety
/// The arguments must satisfy ibv_open_xrcd(3).
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    pointer(|| {
        // SAFETY: the caller of `ibv_open_xrcd` guarantees that `context` is null or an open context created
        // by this library and `attr` is null or valid for reads.
        let (context, attr) = unsafe { (Context::given(context)?, attr.as_ref().ok_or(libc::EINVAL)?) };
        if transport() != Transport::Roce || board().is_some() {
            return Err(unsupported("ibv_open_xrcd: extended reliable connections with this transport"));
        }
        if attr.comp_mask != IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS {
            return Err(libc::EINVAL);
        }
        let creation = match (attr.oflags & libc::O_CREAT != 0, attr.oflags & libc::O_EXCL != 0) {
            (false, _) => Creation::Never,
            (true, false) => Creation::IfMissing,
            (true, true) => Creation::Always,
        };
        let opened = context.engine.open_xrc_domain(file(attr.fd)?, creation);
        let number = opened.map_err(|refusal| match refusal {
            RequestError::UnknownXrcDomain => libc::EAGAIN,
            RequestError::InUse => libc::EINVAL,
            other => refused(other),
        })?;
        let mut abi = ibv_xrcd::ZERO;
        abi.context = context.abi();
        context.retain();
        Ok(Xrcd { abi: UnsafeCell::new(abi), born: Generation::now(), context, number }.give())
    })
}

/// # Safety
/// The arguments must satisfy ibv_close_xrcd(3).
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_close_xrcd` guarantees that `xrcd` is null or a live XRC domain created
        // by this library.
        let domain = unsafe { given::<Xrcd>(xrcd)? };
        domain.context.engine.close_xrc_domain(domain.number).map_err(refused)?;
        domain.context.release();
        // SAFETY: the pointer came from the call that created the object, and the engine has closed it.
        unsafe { take_back::<Xrcd>(xrcd) };
        Ok(())
    })
}

/// # Safety
/// The arguments must satisfy ibv_open_qp(3).
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    pointer(|| {
        // SAFETY: the caller of `ibv_open_qp` guarantees that `context` is null or an open context created by
        // this library and `attr` is null or valid for reads.
        let (context, attr) = unsafe { (Context::given(context)?, attr.as_ref().ok_or(libc::EINVAL)?) };
        let has = |mask| attr.comp_mask & mask != 0;
        let needs = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        if attr.comp_mask & needs != needs || attr.qp_type != IBV_QPT_XRC_RECV {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller of `ibv_open_qp` guarantees that `attr.xrcd` is null or a live XRC domain
        // created by this library.
        let domain = unsafe { given::<Xrcd>(attr.xrcd)? }.number;
        let opened = context.engine.open_target(context.device.address, attr.qp_num, domain);
        let number = opened.map_err(refused)?;
        let mut init_attr = ibv_qp_init_attr::ZERO;
        init_attr.qp_type = attr.qp_type;
        if has(IBV_QP_OPEN_ATTR_CONTEXT) {
            init_attr.qp_context = attr.qp_context;
        }
        Ok(qp::adopt(context, Service::XrcTarget(domain), &init_attr, (number, attr.qp_num)))
    })
}
