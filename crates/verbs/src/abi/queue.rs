//! Queue pairs: creating, modifying and querying.

use super::address::{ibv_ah, ibv_ah_attr};
use super::completion::ibv_cq;
use super::context::ibv_context;
use super::declare::{numbers, structs};
use super::device::ibv_mtu;
use super::extra::{ibv_rwq_ind_table, ibv_rx_hash_conf, ibv_xrcd};
use super::memory::{ibv_mw, ibv_mw_bind_info, ibv_pd};
use super::shared::ibv_srq;
use super::work::{ibv_data_buf, ibv_sge};
use core::ffi::{c_int, c_uint, c_void};

numbers! {
    ibv_qp_type: c_uint {
        IBV_QPT_RC = 2,
        IBV_QPT_UC = 3,
        IBV_QPT_UD = 4,
        IBV_QPT_RAW_PACKET = 8,
        IBV_QPT_XRC_SEND = 9,
        IBV_QPT_XRC_RECV = 10,
        IBV_QPT_DRIVER = 255,
    }
    ibv_qp_state: c_uint {
        IBV_QPS_RESET = 0,
        IBV_QPS_INIT = 1,
        IBV_QPS_RTR = 2,
        IBV_QPS_RTS = 3,
        IBV_QPS_SQD = 4,
        IBV_QPS_SQE = 5,
        IBV_QPS_ERR = 6,
        IBV_QPS_UNKNOWN = 7,
    }
    ibv_mig_state: c_uint {
        IBV_MIG_MIGRATED = 0,
        IBV_MIG_REARM = 1,
        IBV_MIG_ARMED = 2,
    }
    ibv_qp_attr_mask: c_uint {
        IBV_QP_STATE = 1 << 0,
        IBV_QP_CUR_STATE = 1 << 1,
        IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
        IBV_QP_ACCESS_FLAGS = 1 << 3,
        IBV_QP_PKEY_INDEX = 1 << 4,
        IBV_QP_PORT = 1 << 5,
        IBV_QP_QKEY = 1 << 6,
        IBV_QP_AV = 1 << 7,
        IBV_QP_PATH_MTU = 1 << 8,
        IBV_QP_TIMEOUT = 1 << 9,
        IBV_QP_RETRY_CNT = 1 << 10,
        IBV_QP_RNR_RETRY = 1 << 11,
        IBV_QP_RQ_PSN = 1 << 12,
        IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
        IBV_QP_ALT_PATH = 1 << 14,
        IBV_QP_MIN_RNR_TIMER = 1 << 15,
        IBV_QP_SQ_PSN = 1 << 16,
        IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
        IBV_QP_PATH_MIG_STATE = 1 << 18,
        IBV_QP_CAP = 1 << 19,
        IBV_QP_DEST_QPN = 1 << 20,
        IBV_QP_RATE_LIMIT = 1 << 25,
    }
    ibv_qp_init_attr_mask: c_uint {
        IBV_QP_INIT_ATTR_PD = 1 << 0,
        IBV_QP_INIT_ATTR_XRCD = 1 << 1,
        IBV_QP_INIT_ATTR_CREATE_FLAGS = 1 << 2,
        IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 1 << 3,
        IBV_QP_INIT_ATTR_IND_TABLE = 1 << 4,
        IBV_QP_INIT_ATTR_RX_HASH = 1 << 5,
        IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 1 << 6,
    }
    ibv_qp_create_flags: c_uint {
        IBV_QP_CREATE_BLOCK_SELF_MCAST_LB = 1 << 1,
        IBV_QP_CREATE_SCATTER_FCS = 1 << 8,
        IBV_QP_CREATE_CVLAN_STRIPPING = 1 << 9,
        IBV_QP_CREATE_SOURCE_QPN = 1 << 10,
        IBV_QP_CREATE_PCI_WRITE_END_PADDING = 1 << 11,
    }
    ibv_qp_create_send_ops_flags: u64 {
        IBV_QP_EX_WITH_RDMA_WRITE = 1 << 0,
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 1 << 1,
        IBV_QP_EX_WITH_SEND = 1 << 2,
        IBV_QP_EX_WITH_SEND_WITH_IMM = 1 << 3,
        IBV_QP_EX_WITH_RDMA_READ = 1 << 4,
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 1 << 5,
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 1 << 6,
        IBV_QP_EX_WITH_LOCAL_INV = 1 << 7,
        IBV_QP_EX_WITH_BIND_MW = 1 << 8,
        IBV_QP_EX_WITH_SEND_WITH_INV = 1 << 9,
        IBV_QP_EX_WITH_TSO = 1 << 10,
        IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12,
    }
    ibv_qp_open_attr_mask: c_uint {
        IBV_QP_OPEN_ATTR_NUM = 1 << 0,
        IBV_QP_OPEN_ATTR_XRCD = 1 << 1,
        IBV_QP_OPEN_ATTR_CONTEXT = 1 << 2,
        IBV_QP_OPEN_ATTR_TYPE = 1 << 3,
        IBV_QP_OPEN_ATTR_RESERVED = 1 << 4,
    }
}

structs! {
    struct ibv_qp_cap {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    struct ibv_qp_init_attr {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: ibv_qp_type,
        sq_sig_all: c_int,
    }

    /// Starts with the fields of [`ibv_qp_init_attr`].
    struct ibv_qp_init_attr_ex {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: ibv_qp_type,
        sq_sig_all: c_int,
        comp_mask: u32,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        create_flags: u32,
        max_tso_header: u16,
        rwq_ind_tbl: *mut ibv_rwq_ind_table,
        rx_hash_conf: ibv_rx_hash_conf,
        source_qpn: u32,
        send_ops_flags: u64,
    }

    struct ibv_qp_open_attr {
        comp_mask: u32,
        qp_num: u32,
        xrcd: *mut ibv_xrcd,
        qp_context: *mut c_void,
        qp_type: ibv_qp_type,
    }

    struct ibv_qp_attr {
        qp_state: ibv_qp_state,
        cur_qp_state: ibv_qp_state,
        path_mtu: ibv_mtu,
        path_mig_state: ibv_mig_state,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: c_uint,
        cap: ibv_qp_cap,
        ah_attr: ibv_ah_attr,
        alt_ah_attr: ibv_ah_attr,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        rate_limit: u32,
    }

    struct ibv_qp_rate_limit_attr {
        rate_limit: u32,
        max_burst_sz: u32,
        typical_pkt_sz: u16,
        comp_mask: u32,
    }

    struct ibv_ece {
        vendor_id: u32,
        options: u32,
        comp_mask: u32,
    }

    struct ibv_qp {
        context: *mut ibv_context,
        qp_context: *mut c_void,
        pd: *mut ibv_pd,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        handle: u32,
        qp_num: u32,
        state: ibv_qp_state,
        qp_type: ibv_qp_type,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        events_completed: u32,
    }

    struct ibv_qp_ex {
        qp_base: ibv_qp,
        comp_mask: u64,
        wr_id: u64,
        wr_flags: c_uint,
        wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64, u64)>,
        wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64)>,
        wr_bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_mw, u32, *const ibv_mw_bind_info)>,
        wr_local_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        wr_rdma_read: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
        wr_rdma_write: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
        wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
        wr_send: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
        wr_send_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        wr_send_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        wr_send_tso: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, u16, u16)>,
        wr_set_ud_addr: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)>,
        wr_set_xrc_srqn: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        wr_set_inline_data: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize)>,
        wr_set_inline_data_list: Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_data_buf)>,
        wr_set_sge: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
        wr_set_sge_list: Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge)>,
        wr_start: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
        wr_complete: Option<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int>,
        wr_abort: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
        wr_atomic_write: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, *const c_void)>,
    }
}
