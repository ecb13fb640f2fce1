//! Queries of a device, its port, its GID and its partition key.
//!
//! Purpose         gives tools plausible values: the engine's limits, the interface's MTU, and the IP
//!                 address as GID.
//! Transport       reports RoCE v2, or iWARP as the kernel's siw does, or no standard transport for EFE
//!                 ([`Transport`]).
//! Not implemented the actual link speed, which programs only print; port counters.

use crate::abi::*;
use crate::context::Context;
use crate::device::interfaces::{Interface, Interfaces};
use crate::device::{Device, Transport, board, transport};
use crate::device_memory;
use crate::ffi::{catch_panics, errno_or_zero, value_or_minus_one};
use core::ffi::{c_char, c_int, c_uint};
use kiban_rdma_runtime::verbs::{MULTICAST_GROUPS_MAX, MULTICAST_QPS_MAX, mtu_code};
use std::net::IpAddr;

/// The default partition, with full membership.
pub(crate) const PKEY: u16 = 0xffff;
/// Programs require a nonzero vendor ID. The IEEE assigns no number with this bit in the first octet,
/// because it means "locally administered".
pub(crate) const VENDOR: u32 = 0x02_6b_62;
/// The part ID of kiban's first software NIC.
pub(crate) const PART: u32 = 1;
/// The phases of a port's link (IBTA 14.2.5.6).
const DISABLED: u8 = 3;
const LINK_UP: u8 = 5;
/// Four lanes of 25 Gbit/s, as in 100 Gbit/s Ethernet.
const WIDTH_4X: u8 = 2;
const SPEED_EDR: u8 = 32;
/// The same, as the kernel writes it in sysfs.
pub(crate) const RATE: &str = "100 Gb/sec (4X EDR)";
pub(crate) const FIRMWARE: &str = env!("CARGO_PKG_VERSION");
/// The clock counts nanoseconds: 10^6 kHz.
const CLOCK_KHZ: u64 = 1_000_000;

/// All memory is pageable, whatever an operation does with it.
const ODP: ibv_odp_caps = {
    let receive = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    let read = IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
    let per_transport_caps = ibv_odp_caps_transports {
        rc_odp_caps: receive | IBV_ODP_SUPPORT_WRITE | read,
        uc_odp_caps: receive | IBV_ODP_SUPPORT_WRITE,
        ud_odp_caps: receive,
    };
    ibv_odp_caps { general_caps: (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT) as u64, per_transport_caps }
};

fn int(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

fn port_is(port: u8) -> Result<(), c_int> {
    if port == 1 { Ok(()) } else { Err(libc::EINVAL) }
}

fn attributes(context: &Context) -> ibv_device_attr {
    let bounds = &context.bounds;
    let is_ib = transport() != Transport::Iwarp;
    let mut attr = ibv_device_attr::ZERO;
    for (to, from) in attr.fw_ver.iter_mut().zip(FIRMWARE.bytes().take(63)) {
        *to = from as c_char;
    }
    attr.node_guid = u64::from_ne_bytes(context.device.guid);
    attr.sys_image_guid = attr.node_guid;
    attr.max_mr_size = u64::MAX;
    attr.page_size_cap = 0xffff_f000;
    (attr.vendor_id, attr.vendor_part_id, attr.hw_ver) = (VENDOR, PART, 0);
    attr.max_qp = int(bounds.qps_max);
    attr.max_qp_wr = int(bounds.work_max);
    attr.device_cap_flags = IBV_DEVICE_SYS_IMAGE_GUID
        | IBV_DEVICE_CURR_QP_STATE_MOD
        | IBV_DEVICE_MEM_WINDOW
        | IBV_DEVICE_MEM_WINDOW_TYPE_2B
        | IBV_DEVICE_MEM_MGT_EXTENSIONS
        | if is_ib { IBV_DEVICE_RC_RNR_NAK_GEN } else { 0 }
        | if transport() == Transport::Roce && board().is_none() { IBV_DEVICE_XRC } else { 0 };
    attr.max_sge = int(bounds.sges_max);
    attr.max_sge_rd = int(bounds.sges_max);
    attr.max_cq = int(bounds.cqs_max);
    attr.max_cqe = int(bounds.cq_entries_max);
    attr.max_mr = int(bounds.stags_max);
    attr.max_pd = int(bounds.pds_max);
    attr.max_qp_rd_atom = bounds.ird_max.into();
    attr.max_qp_init_rd_atom = bounds.ord_max.into();
    attr.max_res_rd_atom = attr.max_qp.saturating_mul(attr.max_qp_rd_atom);
    attr.atomic_cap = if is_ib { IBV_ATOMIC_HCA } else { IBV_ATOMIC_NONE };
    attr.max_mw = int(bounds.stags_max);
    attr.max_ah = if transport().has_datagrams() { int(bounds.qps_max) } else { 0 };
    if transport() == Transport::Roce && board().is_none() {
        attr.max_mcast_grp = int(MULTICAST_GROUPS_MAX);
        attr.max_mcast_qp_attach = int(MULTICAST_QPS_MAX);
        attr.max_total_mcast_qp_attach = int(MULTICAST_GROUPS_MAX * MULTICAST_QPS_MAX);
    }
    attr.max_srq = int(bounds.srqs_max);
    attr.max_srq_wr = int(bounds.work_max);
    attr.max_srq_sge = int(bounds.sges_max);
    attr.max_pkeys = u16::from(is_ib);
    attr.phys_port_cnt = 1;
    attr
}

/// Returns the active MTU of a device: the largest whose packets fit into the MTU of its interface.
fn active_mtu(interface: Option<&Interface>) -> ibv_mtu {
    /// Ethernet's.
    const LINK_MTU_BYTES: u32 = 1500;
    let bytes = interface.and_then(Interface::mtu_bytes).unwrap_or(LINK_MTU_BYTES);
    mtu_code(bytes as usize).into()
}

/// Returns the active MTU of the device with an address.
pub(crate) fn active_mtu_of(address: IpAddr) -> ibv_mtu {
    let interfaces = Interfaces::read().ok();
    active_mtu(interfaces.as_ref().and_then(|all| all.with(address)))
}

/// Returns the number of GID indices. Programs hard-code 1, or 3 (RoCE v2 with an IPv4 address on many
/// cards), so RoCE devices have their GID at four indices.
pub(crate) fn gid_indices() -> u32 {
    if transport() == Transport::Iwarp { 1 } else { 4 }
}

/// Returns the attributes of a device's port.
pub(crate) fn port(device: &Device) -> ibv_port_attr {
    let interfaces = Interfaces::read().ok();
    let interface = interfaces.as_ref().and_then(|all| all.with(device.address));
    let is_ib = transport() != Transport::Iwarp;
    let mut attr = ibv_port_attr::ZERO;
    (attr.state, attr.phys_state) = match interface {
        // A board's ports are not interfaces of this host.
        None if board().is_some() => (IBV_PORT_ACTIVE, LINK_UP),
        Some(_) => (IBV_PORT_ACTIVE, LINK_UP),
        None => (IBV_PORT_DOWN, DISABLED),
    };
    attr.max_mtu = IBV_MTU_4096;
    attr.active_mtu = active_mtu(interface);
    attr.gid_tbl_len = gid_indices().cast_signed();
    attr.lid = device.lid();
    attr.port_cap_flags = IBV_PORT_CM_SUP | if is_ib { IBV_PORT_IP_BASED_GIDS } else { 0 };
    attr.max_msg_sz = if is_ib { 1 << 31 } else { u32::MAX };
    attr.pkey_tbl_len = u16::from(is_ib);
    attr.max_vl_num = 1;
    (attr.active_width, attr.active_speed) = (WIDTH_4X, SPEED_EDR);
    attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    attr.flags = if is_ib { IBV_QPF_GRH_REQUIRED } else { 0 };
    attr
}

/// Writes as much of a struct as fits into the program's buffer, and fills the rest of the buffer with
/// zeros.
///
/// # Safety
/// `place` has room for `bytes` bytes; the answer consists of numbers.
unsafe fn write<T>(answer: &T, place: *mut T, bytes: usize) {
    let known = bytes.min(size_of::<T>());
    // SAFETY: the caller of `write` guarantees that `place` has room for `bytes` bytes.
    unsafe {
        core::ptr::copy_nonoverlapping(core::ptr::from_ref(answer).cast::<u8>(), place.cast(), known);
        core::ptr::write_bytes(place.cast::<u8>().add(known), 0, bytes - known);
    }
}

/// # Safety
/// `context` is null or an open context created by this library, and `answer` is null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(context: *mut ibv_context, answer: *mut ibv_device_attr) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_query_device` guarantees that `context` is null or an open context
        // created by this library and `answer` is null or valid for reads and writes.
        let (context, answer) = unsafe { (Context::given(context)?, answer.as_mut().ok_or(libc::EINVAL)?) };
        *answer = attributes(context);
        Ok(())
    })
}

/// # Safety
/// `context` is null or open; `answer` has room for `bytes` bytes.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    answer: *mut ibv_device_attr_ex,
    bytes: usize,
) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_query_device_ex` guarantees that `context` is null or an open context
        // created by this library and `input` is null or valid for reads.
        // A child asks for the limits of device memory, which it may allocate from its parent's context.
        let (context, input) = unsafe { (Context::of_any_process(context)?, input.as_ref()) };
        let is_known = input.is_none_or(|input| input.comp_mask == 0);
        if !is_known || answer.is_null() || bytes < size_of::<ibv_device_attr>() {
            return Err(libc::EINVAL);
        }
        let mut attr = ibv_device_attr_ex::ZERO;
        attr.orig_attr = attributes(context);
        attr.completion_timestamp_mask = u64::MAX;
        attr.hca_core_clock = CLOCK_KHZ;
        attr.device_cap_flags_ex = attr.orig_attr.device_cap_flags.into();
        if board().is_none() {
            attr.odp_caps = ODP;
            attr.max_dm_size = device_memory::BYTES_MAX as u64;
            if transport() == Transport::Roce {
                attr.xrc_odp_caps = ODP.per_transport_caps.rc_odp_caps;
            }
        }
        attr.phys_port_cnt_ex = 1;
        // SAFETY: the caller of `ibv_query_device_ex` guarantees that `answer` has room for `bytes` bytes.
        unsafe { write(&attr, answer, bytes) };
        Ok(())
    })
}

/// # Safety
/// `context` is null or open; `answer` has room for `bytes` bytes.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    number_of_port: u8,
    answer: *mut ibv_port_attr,
    bytes: usize,
) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_query_port` guarantees that `context` is null or an open context
        // created by this library.
        let context = unsafe { Context::given(context)? };
        port_is(number_of_port)?;
        if answer.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller of `query_port` guarantees that `answer` has room for `bytes` bytes.
        unsafe { write(&port(context.device), answer, bytes) };
        Ok(())
    })
}

/// # Safety
/// `context` is null or open; `answer` has room for 48 bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    answer: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller of `ibv_query_port` guarantees that `context` is null or open, and that `answer` has
    // room for the short struct.
    unsafe { query_port(context, port, answer, IBV_PORT_ATTR_SHORT_BYTES) }
}

/// # Safety
/// `context` is null or an open context created by this library, and `gid` is null or valid for a write.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    value_or_minus_one(|| {
        // SAFETY: the caller of `ibv_query_gid` guarantees that `context` is null or an open context created
        // by this library and `gid` is null or valid for reads and writes.
        let (context, gid) = unsafe { (Context::given(context)?, gid.as_mut().ok_or(libc::EINVAL)?) };
        port_is(port)?;
        if !u32::try_from(index).is_ok_and(|index| index < gid_indices()) {
            return Err(libc::EINVAL);
        }
        *gid = context.device.gid();
        Ok(0)
    })
}

/// Returns whether devices present themselves as those of RoCE v2.
fn speaks_roce() -> bool {
    matches!(transport(), Transport::Ib | Transport::Roce)
}

/// Returns an entry of a device's GID table.
pub(crate) fn gid_entry(device: &Device, index: u32) -> ibv_gid_entry {
    let interfaces = Interfaces::read().ok();
    let interface = interfaces.as_ref().and_then(|all| all.with(device.address));
    ibv_gid_entry {
        gid: device.gid(),
        gid_index: index,
        port_num: 1,
        gid_type: if speaks_roce() { IBV_GID_TYPE_ROCE_V2 } else { IBV_GID_TYPE_IB },
        ndev_ifindex: interface.map_or(0, |one| one.index()),
    }
}

/// # Safety
/// `context` is null or open, and `entry` has room for `bytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    bytes: usize,
) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `_ibv_query_gid_ex` guarantees that `context` is null or an open context
        // created by this library.
        let context = unsafe { Context::given(context)? };
        let is_known = port == 1 && index < gid_indices() && flags == 0;
        if !is_known || entry.is_null() || bytes < size_of::<ibv_gid_entry>() {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller of `_ibv_query_gid_ex` guarantees that `entry` has room for `bytes` bytes.
        unsafe { write(&gid_entry(context.device, index), entry, bytes) };
        Ok(())
    })
}

/// Returns the number of entries, or a negative errno.
///
/// # Safety
/// `context` is null or open, and `entries` has room for `most` entries of `bytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    most: usize,
    flags: u32,
    bytes: usize,
) -> isize {
    let broken = -(libc::EIO as isize);
    catch_panics(broken, || {
        // SAFETY: the caller of `_ibv_query_gid_table` guarantees that `context` is null or an open context
        // created by this library.
        let context = match unsafe { Context::given(context) } {
            Ok(context) => context,
            Err(error) => return -(error as isize),
        };
        if flags != 0 || bytes < size_of::<ibv_gid_entry>() || (entries.is_null() && most > 0) {
            return -(libc::EINVAL as isize);
        }
        // libibverbs also returns this error if there is too little room.
        if most < gid_indices() as usize {
            return -(libc::EINVAL as isize);
        }
        for index in 0..gid_indices() {
            // SAFETY: the caller of `_ibv_query_gid_table` guarantees that `entries` has room for `most`
            // entries of `bytes` bytes.
            unsafe {
                let entry = entries.wrapping_byte_add(index as usize * bytes);
                write(&gid_entry(context.device, index), entry, bytes);
            }
        }
        gid_indices() as isize
    })
}

/// Returns the type as in sysfs: 0 for InfiniBand and RoCE v1, 1 for RoCE v2.
///
/// # Safety
/// `context` is null or an open context created by this library, and `kind` is null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: c_uint,
    kind: *mut c_uint,
) -> c_int {
    value_or_minus_one(|| {
        // SAFETY: the caller of `ibv_query_gid_type` guarantees that `context` is null or an open context
        // created by this library and `kind` is null or valid for reads and writes.
        let (_, kind) = unsafe { (Context::given(context)?, kind.as_mut().ok_or(libc::EINVAL)?) };
        port_is(port)?;
        if index >= gid_indices() {
            return Err(libc::EINVAL);
        }
        *kind = c_uint::from(speaks_roce());
        Ok(0)
    })
}

/// # Safety
/// `context` is null or an open context created by this library, and `pkey` is null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    value_or_minus_one(|| {
        // SAFETY: the caller of `ibv_query_pkey` guarantees that `context` is null or an open context
        // created by this library and `pkey` is null or valid for reads and writes.
        let (_, pkey) = unsafe { (Context::given(context)?, pkey.as_mut().ok_or(libc::EINVAL)?) };
        port_is(port)?;
        if index != 0 || transport() == Transport::Iwarp {
            return Err(libc::EINVAL);
        }
        *pkey = PKEY.to_be();
        Ok(0)
    })
}

/// # Safety
/// `context` is null or an open context created by this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    value_or_minus_one(|| {
        // SAFETY: the caller of `ibv_get_pkey_index` guarantees that `context` is null or an open context
        // created by this library.
        unsafe { Context::given(context)? };
        port_is(port)?;
        if pkey != PKEY.to_be() || transport() == Transport::Iwarp {
            return Err(libc::EINVAL);
        }
        Ok(0)
    })
}

/// Returns the current time on the clock that completion timestamps use.
///
/// # Safety
/// `context` is null or an open context created by this library, and `values` is null or valid for a write.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    errno_or_zero(|| {
        // SAFETY: the caller of `ibv_query_rt_values` guarantees that `context` is null or an open context
        // created by this library and `values` is null or valid for reads and writes.
        let (_, values) = unsafe { (Context::given(context)?, values.as_mut().ok_or(libc::EINVAL)?) };
        if values.comp_mask & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(libc::EINVAL);
        }
        if values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK != 0 {
            let nanos = kiban_os::clock::machine_nanos();
            // A raw hardware clock value is a single number, which is stored in the nanoseconds field.
            values.raw_clock.tv_sec = 0;
            values.raw_clock.tv_nsec = nanos.cast_signed();
        }
        Ok(())
    })
}
