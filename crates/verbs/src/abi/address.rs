//! Addresses: GIDs, routes, address handles, and the subnet's path records (which only rdma_cm fills in).

use super::context::ibv_context;
use super::declare::{numbers, structs};
use super::memory::ibv_pd;
use core::ffi::{c_int, c_uint};

numbers! {
    ibv_rate: c_uint {
        IBV_RATE_MAX = 0,
        IBV_RATE_2_5_GBPS = 2,
        IBV_RATE_5_GBPS = 5,
        IBV_RATE_10_GBPS = 3,
        IBV_RATE_20_GBPS = 6,
        IBV_RATE_30_GBPS = 4,
        IBV_RATE_40_GBPS = 7,
        IBV_RATE_60_GBPS = 8,
        IBV_RATE_80_GBPS = 9,
        IBV_RATE_120_GBPS = 10,
        IBV_RATE_14_GBPS = 11,
        IBV_RATE_56_GBPS = 12,
        IBV_RATE_112_GBPS = 13,
        IBV_RATE_168_GBPS = 14,
        IBV_RATE_25_GBPS = 15,
        IBV_RATE_100_GBPS = 16,
        IBV_RATE_200_GBPS = 17,
        IBV_RATE_300_GBPS = 18,
        IBV_RATE_28_GBPS = 19,
        IBV_RATE_50_GBPS = 20,
        IBV_RATE_400_GBPS = 21,
        IBV_RATE_600_GBPS = 22,
        IBV_RATE_800_GBPS = 23,
        IBV_RATE_1200_GBPS = 24,
    }
    _: u8 {
        IBV_PATH_RECORD_REVERSIBLE = 1 << 7,
    }
    _: u32 {
        IBV_PATH_FLAG_GMP = 1,
        IBV_PATH_FLAG_PRIMARY = 2,
        IBV_PATH_FLAG_ALTERNATE = 4,
        IBV_PATH_FLAG_OUTBOUND = 8,
        IBV_PATH_FLAG_INBOUND = 1 << 4,
        IBV_PATH_FLAG_INBOUND_REVERSE = 1 << 5,
        IBV_PATH_FLAG_BIDIRECTIONAL = 40,
    }
    _: usize {
        ETHERNET_LL_SIZE = 6,
    }
}

structs! {
    struct ibv_gid_global = "__typeof__(((union ibv_gid *)0)->global)" {
        subnet_prefix: u64,
        interface_id: u64,
    }

    union ibv_gid {
        raw: [u8; 16],
        global: ibv_gid_global,
    }

    struct ibv_global_route {
        dgid: ibv_gid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }

    struct ibv_grh {
        version_tclass_flow: u32,
        paylen: u16,
        next_hdr: u8,
        hop_limit: u8,
        sgid: ibv_gid,
        dgid: ibv_gid,
    }

    struct ibv_ah_attr {
        grh: ibv_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    struct ibv_ah {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        handle: u32,
    }

    struct ibv_sa_path_rec {
        dgid: ibv_gid,
        sgid: ibv_gid,
        dlid: u16,
        slid: u16,
        raw_traffic: c_int,
        flow_label: u32,
        hop_limit: u8,
        traffic_class: u8,
        reversible: c_int,
        numb_path: u8,
        pkey: u16,
        sl: u8,
        mtu_selector: u8,
        mtu: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }

    struct ibv_path_record {
        service_id: u64,
        dgid: ibv_gid,
        sgid: ibv_gid,
        dlid: u16,
        slid: u16,
        flowlabel_hoplimit: u32,
        tclass: u8,
        reversible_numpath: u8,
        pkey: u16,
        qosclass_sl: u16,
        mtu: u8,
        rate: u8,
        packetlifetime: u8,
        preference: u8,
        reserved: [u8; 6],
    }

    struct ibv_path_data {
        flags: u32,
        reserved: u32,
        path: ibv_path_record,
    }
}

impl ibv_gid {
    /// Returns the bytes, in network byte order.
    pub fn bytes(&self) -> [u8; 16] {
        // SAFETY: both members are 16 bytes that may have any value.
        unsafe { self.raw }
    }
}
