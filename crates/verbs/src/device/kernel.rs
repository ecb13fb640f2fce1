//! Conversion of structs from and to the kernel's ABI (`ibv_copy_*_kern`, which rdma-core's librdmacm calls).

use crate::abi::*;
use core::ffi::c_int;

fn route(from: &ib_uverbs_ah_attr, to: &mut ibv_ah_attr) {
    to.grh.dgid = ibv_gid { raw: from.grh.dgid };
    to.grh.flow_label = from.grh.flow_label;
    to.grh.sgid_index = from.grh.sgid_index;
    to.grh.hop_limit = from.grh.hop_limit;
    to.grh.traffic_class = from.grh.traffic_class;
    to.dlid = from.dlid;
    to.sl = from.sl;
    to.src_path_bits = from.src_path_bits;
    to.static_rate = from.static_rate;
    to.is_global = from.is_global;
    to.port_num = from.port_num;
}

/// Copies the named fields unchanged.
macro_rules! fields {
    ($from:ident => $to:ident: $($field:ident)*) => { $($to.$field = $from.$field;)* };
}

/// # Safety
/// Each pointer is null or points to its struct.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_copy_ah_attr_from_kern(to: *mut ibv_ah_attr, from: *const ib_uverbs_ah_attr) {
    // SAFETY: the caller of `ibv_copy_ah_attr_from_kern` guarantees that each pointer is null or points to
    // its struct.
    if let (Some(to), Some(from)) = unsafe { (to.as_mut(), from.as_ref()) } {
        route(from, to);
    }
}

/// Converts queue pair attributes. Does not set `qp_state`, as in rdma-core: rdma_cm has set it.
///
/// # Safety
/// Each pointer is null or points to its struct.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_copy_qp_attr_from_kern(to: *mut ibv_qp_attr, from: *const ib_uverbs_qp_attr) {
    // SAFETY: the caller of `ibv_copy_qp_attr_from_kern` guarantees that each pointer is null or points to
    // its struct.
    let (Some(to), Some(from)) = (unsafe { (to.as_mut(), from.as_ref()) }) else { return };
    fields!(from => to: cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags pkey_index
        alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout
        retry_cnt rnr_retry alt_port_num alt_timeout);
    let cap = &mut to.cap;
    fields!(from => cap: max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data);
    route(&from.ah_attr, &mut to.ah_attr);
    route(&from.alt_ah_attr, &mut to.alt_ah_attr);
}

/// # Safety
/// Each pointer is null or points to its struct.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_copy_path_rec_from_kern(to: *mut ibv_sa_path_rec, from: *const ib_user_path_rec) {
    // SAFETY: the caller of `ibv_copy_path_rec_from_kern` guarantees that each pointer is null or points to
    // its struct.
    let (Some(to), Some(from)) = (unsafe { (to.as_mut(), from.as_ref()) }) else { return };
    to.dgid = ibv_gid { raw: from.dgid };
    to.sgid = ibv_gid { raw: from.sgid };
    to.raw_traffic = from.raw_traffic as c_int;
    to.reversible = from.reversible as c_int;
    // An enum with values from 1 to 5, which the kernel's struct holds in 32 bits.
    to.mtu = from.mtu as u8;
    fields!(from => to: dlid slid flow_label hop_limit traffic_class numb_path pkey sl mtu_selector rate_selector rate
        packet_life_time_selector packet_life_time preference);
}

/// # Safety
/// Each pointer is null or points to its struct.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_copy_path_rec_to_kern(to: *mut ib_user_path_rec, from: *const ibv_sa_path_rec) {
    // SAFETY: the caller of `ibv_copy_path_rec_to_kern` guarantees that each pointer is null or points to its
    // struct.
    let (Some(to), Some(from)) = (unsafe { (to.as_mut(), from.as_ref()) }) else { return };
    to.dgid = from.dgid.bytes();
    to.sgid = from.sgid.bytes();
    to.raw_traffic = from.raw_traffic as u32;
    to.reversible = from.reversible as u32;
    to.mtu = from.mtu.into();
    fields!(from => to: dlid slid flow_label hop_limit traffic_class numb_path pkey sl mtu_selector rate_selector rate
        packet_life_time_selector packet_life_time preference);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference_library::{RealLibrary, VERBS};
    use core::ffi::CStr;

    fn bytes<T>(value: &T) -> &[u8] {
        // SAFETY: `check` fills all bytes of its structs, padding included, before it calls this.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) }
    }

    /// Runs both libraries' functions on the same input and compares the output bytes.
    fn check<T, F>(name: &CStr, ours: unsafe extern "C" fn(*mut T, *const F)) {
        let real = RealLibrary::open(VERBS);
        // SAFETY: the types are those of marshall.h.
        let theirs = unsafe { real.function::<unsafe extern "C" fn(*mut T, *const F)>(name) };
        // The odd multiplier makes every byte of a field differ from its neighbours.
        let given: Vec<u64> = (1..100u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        assert!(size_of::<F>() <= size_of_val(&given[..]));
        let from = given.as_ptr().cast::<F>();
        let copy = |by: unsafe extern "C" fn(*mut T, *const F)| {
            let mut to = core::mem::MaybeUninit::<T>::uninit();
            // SAFETY: `to` and `from` are as large as their structs, which consist of numbers, so that any
            // bytes are valid.
            unsafe {
                core::ptr::write_bytes(to.as_mut_ptr().cast::<u8>(), 0xa5, size_of::<T>());
                by(to.as_mut_ptr(), from);
                bytes(to.assume_init_ref()).to_vec()
            }
        };
        assert_eq!(copy(ours), copy(theirs), "{name:?}");
        // SAFETY: these functions ignore null pointers.
        unsafe { ours(core::ptr::null_mut(), from) };
    }

    #[test]
    fn copies_equal_those_of_rdma_core_byte_for_byte() {
        check(c"ibv_copy_ah_attr_from_kern", ibv_copy_ah_attr_from_kern);
        check(c"ibv_copy_qp_attr_from_kern", ibv_copy_qp_attr_from_kern);
        check(c"ibv_copy_path_rec_from_kern", ibv_copy_path_rec_from_kern);
        check(c"ibv_copy_path_rec_to_kern", ibv_copy_path_rec_to_kern);
    }
}
