//! The connection manager: `rdma/rdma_cma.h` and the numbers of `rdma/rsocket.h`.

use super::address::{ibv_ah_attr, ibv_gid, ibv_sa_path_rec};
use super::completion::{ibv_comp_channel, ibv_cq};
use super::context::ibv_context;
use super::declare::{numbers, structs};
use super::memory::ibv_pd;
use super::queue::{ibv_qp, ibv_qp_type};
use super::shared::ibv_srq;
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

numbers! {
    rdma_cm_event_type: c_uint {
        RDMA_CM_EVENT_ADDR_RESOLVED = 0,
        RDMA_CM_EVENT_ADDR_ERROR = 1,
        RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
        RDMA_CM_EVENT_ROUTE_ERROR = 3,
        RDMA_CM_EVENT_CONNECT_REQUEST = 4,
        RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
        RDMA_CM_EVENT_CONNECT_ERROR = 6,
        RDMA_CM_EVENT_UNREACHABLE = 7,
        RDMA_CM_EVENT_REJECTED = 8,
        RDMA_CM_EVENT_ESTABLISHED = 9,
        RDMA_CM_EVENT_DISCONNECTED = 10,
        RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
        RDMA_CM_EVENT_MULTICAST_JOIN = 12,
        RDMA_CM_EVENT_MULTICAST_ERROR = 13,
        RDMA_CM_EVENT_ADDR_CHANGE = 14,
        RDMA_CM_EVENT_TIMEWAIT_EXIT = 15,
    }
    rdma_port_space: c_uint {
        RDMA_PS_IPOIB = 0x0002,
        RDMA_PS_TCP = 0x0106,
        RDMA_PS_UDP = 0x0111,
        RDMA_PS_IB = 0x013f,
    }
    rdma_cm_join_mc_attr_mask: c_uint {
        RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1 << 0,
        RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 1 << 1,
        RDMA_CM_JOIN_MC_ATTR_RESERVED = 1 << 2,
    }
    rdma_cm_mc_join_flags: c_uint {
        RDMA_MC_JOIN_FLAG_FULLMEMBER = 0,
        RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1 << 0,
        RDMA_MC_JOIN_FLAG_RESERVED = 1 << 1,
    }
    _: u64 {
        RDMA_IB_IP_PS_MASK = !0xffff,
        RDMA_IB_IP_PORT_MASK = 0xffff,
        RDMA_IB_IP_PS_TCP = 0x106_0000,
        RDMA_IB_IP_PS_UDP = 0x111_0000,
        RDMA_IB_PS_IB = 0x13f_0000,
    }
    _: u32 {
        RDMA_UDP_QKEY = 0x123_4567,
    }
    _: u8 {
        RDMA_MAX_RESP_RES = 255,
        RDMA_MAX_INIT_DEPTH = 255,
    }
    _: c_int {
        RAI_PASSIVE = 1,
        RAI_NUMERICHOST = 2,
        RAI_NOROUTE = 4,
        RAI_FAMILY = 8,
        RDMA_OPTION_ID = 0,
        RDMA_OPTION_IB = 1,
        RDMA_OPTION_ID_TOS = 0,
        RDMA_OPTION_ID_REUSEADDR = 1,
        RDMA_OPTION_ID_AFONLY = 2,
        RDMA_OPTION_ID_ACK_TIMEOUT = 3,
        RDMA_OPTION_IB_PATH = 1,
        SOL_RDMA = 1 << 16,
        RDMA_SQSIZE = 0,
        RDMA_RQSIZE = 1,
        RDMA_INLINE = 2,
        RDMA_IOMAPSIZE = 3,
        RDMA_ROUTE = 4,
    }
}

structs! {
    struct rdma_ib_addr {
        sgid: ibv_gid,
        dgid: ibv_gid,
        pkey: u16,
    }

    /// Anonymous in C.
    union rdma_addr_socket = "struct sockaddr_storage" {
        addr = "ss_family": sockaddr,
        sin = "ss_family": sockaddr_in,
        sin6 = "ss_family": sockaddr_in6,
        storage = "ss_family": sockaddr_storage,
    }

    union rdma_addr_more = "__typeof__(((struct rdma_addr *)0)->addr)" {
        ibaddr: rdma_ib_addr,
    }

    struct rdma_addr {
        src = "src_addr": rdma_addr_socket,
        dst = "dst_addr": rdma_addr_socket,
        addr: rdma_addr_more,
    }

    struct rdma_route {
        addr: rdma_addr,
        path_rec: *mut ibv_sa_path_rec,
        num_paths: c_int,
    }

    struct rdma_event_channel {
        fd: c_int,
    }

    struct rdma_cm_id {
        verbs: *mut ibv_context,
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        qp: *mut ibv_qp,
        route: rdma_route,
        ps: rdma_port_space,
        port_num: u8,
        event: *mut rdma_cm_event,
        send_cq_channel: *mut ibv_comp_channel,
        send_cq: *mut ibv_cq,
        recv_cq_channel: *mut ibv_comp_channel,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        pd: *mut ibv_pd,
        qp_type: ibv_qp_type,
    }

    struct rdma_conn_param {
        private_data: *const c_void,
        private_data_len: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: u8,
        qp_num: u32,
    }

    struct rdma_ud_param {
        private_data: *const c_void,
        private_data_len: u8,
        ah_attr: ibv_ah_attr,
        qp_num: u32,
        qkey: u32,
    }

    union rdma_cm_event_param = "__typeof__(((struct rdma_cm_event *)0)->param)" {
        conn: rdma_conn_param,
        ud: rdma_ud_param,
    }

    struct rdma_cm_event {
        id: *mut rdma_cm_id,
        listen_id: *mut rdma_cm_id,
        event: rdma_cm_event_type,
        status: c_int,
        param: rdma_cm_event_param,
    }

    struct rdma_addrinfo {
        ai_flags: c_int,
        ai_family: c_int,
        ai_qp_type: c_int,
        ai_port_space: c_int,
        ai_src_len: socklen_t,
        ai_dst_len: socklen_t,
        ai_src_addr: *mut sockaddr,
        ai_dst_addr: *mut sockaddr,
        ai_src_canonname: *mut c_char,
        ai_dst_canonname: *mut c_char,
        ai_route_len: usize,
        ai_route: *mut c_void,
        ai_connect_len: usize,
        ai_connect: *mut c_void,
        ai_next: *mut rdma_addrinfo,
    }

    struct rdma_cm_join_mc_attr_ex {
        comp_mask: u32,
        join_flags: u32,
        addr: *mut sockaddr,
    }
}
