//! Shared receive queues.

use super::completion::ibv_cq;
use super::context::ibv_context;
use super::declare::{numbers, structs};
use super::extra::ibv_xrcd;
use super::memory::ibv_pd;
use core::ffi::{c_uint, c_void};

numbers! {
    ibv_srq_attr_mask: c_uint {
        IBV_SRQ_MAX_WR = 1 << 0,
        IBV_SRQ_LIMIT = 1 << 1,
    }
    ibv_srq_type: c_uint {
        IBV_SRQT_BASIC = 0,
        IBV_SRQT_XRC = 1,
        IBV_SRQT_TM = 2,
    }
    ibv_srq_init_attr_mask: c_uint {
        IBV_SRQ_INIT_ATTR_TYPE = 1 << 0,
        IBV_SRQ_INIT_ATTR_PD = 1 << 1,
        IBV_SRQ_INIT_ATTR_XRCD = 1 << 2,
        IBV_SRQ_INIT_ATTR_CQ = 1 << 3,
        IBV_SRQ_INIT_ATTR_TM = 1 << 4,
        IBV_SRQ_INIT_ATTR_RESERVED = 1 << 5,
    }
}

structs! {
    struct ibv_srq_attr {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }

    struct ibv_srq_init_attr {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
    }

    struct ibv_tm_cap {
        max_num_tags: u32,
        max_ops: u32,
    }

    /// Starts with the fields of [`ibv_srq_init_attr`].
    struct ibv_srq_init_attr_ex {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
        comp_mask: u32,
        srq_type: ibv_srq_type,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        cq: *mut ibv_cq,
        tm_cap: ibv_tm_cap,
    }

    struct ibv_srq {
        context: *mut ibv_context,
        srq_context: *mut c_void,
        pd: *mut ibv_pd,
        handle: u32,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        events_completed: u32,
    }
}
