//! The binary interface: the types and constants in `include/vipl.h`, as C lays them out.
//!
//! Purpose   define the same layout as C does; `tests/programs.rs` compiles the header's own checks.
//! Names     the same as in the header, which documents them.

#![expect(missing_docs, reason = "include/vipl.h documents these names")]
#![expect(non_camel_case_types, reason = "C knows them by these names")]

use core::ffi::{c_char, c_int, c_ulong, c_void};

pub type VIP_PVOID = *mut c_void;
pub type VIP_BOOLEAN = c_int;
pub type VIP_CHAR = c_char;
pub type VIP_ULONG = c_ulong;
pub type VIP_NIC_HANDLE = VIP_PVOID;
pub type VIP_VI_HANDLE = VIP_PVOID;
pub type VIP_CQ_HANDLE = VIP_PVOID;
pub type VIP_PROTECTION_HANDLE = VIP_PVOID;
pub type VIP_CONN_HANDLE = VIP_PVOID;
pub type VIP_EVENT_HANDLE = VIP_PVOID;
pub type VIP_MEM_HANDLE = u32;
pub type VIP_RELIABILITY_LEVEL = u16;

/// Extends a `VIP_ULONG` to 64 bits.
#[allow(clippy::unnecessary_cast, reason = "it has 32 bits elsewhere")]
pub(crate) const fn wide(number: VIP_ULONG) -> u64 {
    number as u64
}

pub const VIP_INFINITE: VIP_ULONG = 0xffff_ffff;
pub const VIP_DESCRIPTOR_ALIGNMENT: usize = 64;
pub const VIP_SMI_AUTODISCOVERY: VIP_ULONG = 1;

/// The result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum VIP_RETURN {
    SUCCESS = 0,
    NOT_DONE = 1,
    INVALID_PARAMETER = 2,
    ERROR_RESOURCE = 3,
    TIMEOUT = 4,
    REJECT = 5,
    INVALID_RELIABILITY_LEVEL = 6,
    INVALID_MTU = 7,
    INVALID_QOS = 8,
    INVALID_PTAG = 9,
    INVALID_RDMAREAD = 10,
    DESCRIPTOR_ERROR = 11,
    INVALID_STATE = 12,
    ERROR_NAMESERVICE = 13,
    NO_MATCH = 14,
    NOT_REACHABLE = 15,
    ERROR_NOT_SUPPORTED = 16,
}

/// Reliability levels.
pub mod service {
    pub const UNRELIABLE: u16 = 1;
    pub const RELIABLE_DELIVERY: u16 = 2;
    pub const RELIABLE_RECEPTION: u16 = 4;
}

/// The control word of a descriptor.
pub mod control {
    pub const OP_SENDRECV: u16 = 0;
    pub const OP_RDMAWRITE: u16 = 1;
    pub const OP_RDMAREAD: u16 = 2;
    pub const OP_MASK: u16 = 3;
    pub const IMMEDIATE: u16 = 4;
    pub const QFENCE: u16 = 8;
    pub const RESERVED: u16 = 0xfff0;
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VIP_CONTROL_SEGMENT {
    pub Next: u64,
    pub NextHandle: VIP_MEM_HANDLE,
    pub SegCount: u16,
    pub Control: u16,
    pub Reserved: u32,
    pub ImmediateData: u32,
    pub Length: u32,
    pub Status: u32,
}

/// A data segment; in an address segment the last word is reserved.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VIP_SEGMENT {
    pub Data: u64,
    pub Handle: VIP_MEM_HANDLE,
    pub Length: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VIP_DESCRIPTOR {
    pub CS: VIP_CONTROL_SEGMENT,
    pub DS: [VIP_SEGMENT; 2],
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VIP_NET_ADDRESS {
    pub HostAddressLen: u16,
    pub DiscriminatorLen: u16,
    pub HostAddress: [u8; 1],
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VIP_NIC_ATTRIBUTES {
    pub Name: [VIP_CHAR; 64],
    pub HardwareVersion: VIP_ULONG,
    pub ProviderVersion: VIP_ULONG,
    pub NicAddressLen: u16,
    pub LocalNicAddress: *const u8,
    pub ThreadSafe: VIP_BOOLEAN,
    pub MaxDiscriminatorLen: u16,
    pub MaxRegisterBytes: VIP_ULONG,
    pub MaxRegisterRegions: VIP_ULONG,
    pub MaxRegisterBlockBytes: VIP_ULONG,
    pub MaxVI: VIP_ULONG,
    pub MaxDescriptorsPerQueue: VIP_ULONG,
    pub MaxSegmentsPerDesc: VIP_ULONG,
    pub MaxCQ: VIP_ULONG,
    pub MaxCQEntries: VIP_ULONG,
    pub MaxTransferSize: VIP_ULONG,
    pub NativeMTU: VIP_ULONG,
    pub MaxPtags: VIP_ULONG,
    pub ReliabilityLevelSupport: VIP_RELIABILITY_LEVEL,
    pub RDMAReadSupport: VIP_RELIABILITY_LEVEL,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VIP_VI_ATTRIBUTES {
    pub ReliabilityLevel: VIP_RELIABILITY_LEVEL,
    pub MaxTransferSize: VIP_ULONG,
    pub QoS: VIP_PVOID,
    pub Ptag: VIP_PROTECTION_HANDLE,
    pub EnableRdmaWrite: VIP_BOOLEAN,
    pub EnableRdmaRead: VIP_BOOLEAN,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VIP_MEM_ATTRIBUTES {
    pub Ptag: VIP_PROTECTION_HANDLE,
    pub EnableRdmaWrite: VIP_BOOLEAN,
    pub EnableRdmaRead: VIP_BOOLEAN,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum VIP_VI_STATE {
    IDLE = 0,
    CONNECTED = 1,
    CONNECT_PENDING = 2,
    ERROR = 3,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum VIP_RESOURCE_CODE {
    NIC = 0,
    VI = 1,
    CQ = 2,
    DESCRIPTOR = 3,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum VIP_ERROR_CODE {
    POST_DESC = 0,
    CONN_LOST = 1,
    RECVQ_EMPTY = 2,
    VI_OVERRUN = 3,
    RDMAW_PROT = 4,
    RDMAW_DATA = 5,
    RDMAW_ABORT = 6,
    RDMAR_PROT = 7,
    COMP_PROT = 8,
    RDMA_TRANSPORT = 9,
    CATASTROPHIC = 10,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VIP_ERROR_DESCRIPTOR {
    pub NicHandle: VIP_NIC_HANDLE,
    pub ViHandle: VIP_VI_HANDLE,
    pub CQHandle: VIP_CQ_HANDLE,
    pub DescriptorPtr: *mut VIP_DESCRIPTOR,
    pub OpCode: VIP_ULONG,
    pub ResourceCode: VIP_RESOURCE_CODE,
    pub ErrorCode: VIP_ERROR_CODE,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VIP_AUTODISCOVERY_LIST {
    pub NumberOfHops: VIP_ULONG,
    pub ADAddrArray: *mut *mut VIP_NET_ADDRESS,
    pub NumAdAddrs: VIP_ULONG,
}

/// Values of `VIP_WAIT_POLICY`; a program may pass any number.
pub mod policy {
    pub const ADAPTIVE: u32 = 0;
    pub const POLL: u32 = 1;
    pub const INTERRUPT: u32 = 2;
    pub const HYBRID: u32 = 3;
}

#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct VIP_WAIT_REPORT {
    pub Waits: u64,
    pub SpinHits: u64,
    pub Blocks: u64,
    pub TimedSleeps: u64,
    pub Disturbances: u64,
    pub SpunNs: u64,
    pub CostNs: u64,
    pub OptimumNs: u64,
    pub BlockCostNs: u64,
    pub SpinNs: u64,
    pub Policy: u32,
    pub Reserved: u32,
}

pub type VIP_VI_CALLBACK =
    unsafe extern "C" fn(VIP_PVOID, VIP_NIC_HANDLE, VIP_VI_HANDLE, *mut VIP_DESCRIPTOR);
pub type VIP_CQ_CALLBACK = unsafe extern "C" fn(VIP_PVOID, VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_BOOLEAN);
pub type VIP_ERROR_HANDLER = unsafe extern "C" fn(VIP_PVOID, *mut VIP_ERROR_DESCRIPTOR);

// These are the same sizes and offsets as in the checks at the end of vipl.h and in vipl_kiban.h.
const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<VIP_RETURN>() == 4 && size_of::<VIP_VI_STATE>() == 4);
    assert!(size_of::<VIP_CONTROL_SEGMENT>() == 32 && size_of::<VIP_SEGMENT>() == 16);
    assert!(size_of::<VIP_DESCRIPTOR>() == 64 && offset_of!(VIP_DESCRIPTOR, DS) == 32);
    assert!(offset_of!(VIP_CONTROL_SEGMENT, Control) == 14 && offset_of!(VIP_CONTROL_SEGMENT, Status) == 28);
    assert!(
        offset_of!(VIP_CONTROL_SEGMENT, ImmediateData) == 20 && offset_of!(VIP_CONTROL_SEGMENT, Length) == 24
    );
    assert!(offset_of!(VIP_NET_ADDRESS, HostAddress) == 4);
    assert!(size_of::<VIP_WAIT_REPORT>() == 88);
};
#[cfg(target_pointer_width = "64")]
const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<VIP_NET_ADDRESS>() == 6);
    assert!(size_of::<VIP_NIC_ATTRIBUTES>() == 200 && offset_of!(VIP_NIC_ATTRIBUTES, MaxTransferSize) == 168);
    assert!(offset_of!(VIP_NIC_ATTRIBUTES, LocalNicAddress) == 88);
    assert!(size_of::<VIP_VI_ATTRIBUTES>() == 40 && offset_of!(VIP_VI_ATTRIBUTES, Ptag) == 24);
    assert!(size_of::<VIP_MEM_ATTRIBUTES>() == 16 && size_of::<VIP_AUTODISCOVERY_LIST>() == 24);
    assert!(size_of::<VIP_ERROR_DESCRIPTOR>() == 48 && offset_of!(VIP_ERROR_DESCRIPTOR, ErrorCode) == 44);
};

/// The status word of a descriptor. (The error bits are those in `kiban_vi::Status`.)
pub mod status {
    pub const DONE: u32 = 1;
    pub const OP_SEND: u32 = 0;
    pub const OP_RECEIVE: u32 = 0x1_0000;
    pub const OP_RDMA_WRITE: u32 = 0x2_0000;
    pub const OP_REMOTE_RDMA_WRITE: u32 = 0x3_0000;
    pub const OP_RDMA_READ: u32 = 0x4_0000;
    pub const OP_MASK: u32 = 0x7_0000;
    pub const IMMEDIATE: u32 = 0x8_0000;
}
