//! NICs: opening, closing and querying.

use crate::abi::{VIP_CHAR, VIP_NIC_ATTRIBUTES, VIP_NIC_HANDLE, VIP_RETURN, VIP_ULONG, service};
use crate::border::{Answer, Out, writing};
use crate::handles::{self, Object};
use crate::naming::device;
use crate::objects::callbacks::Callbacks;
use crate::objects::handle::{Handle, QuickMap};
use crate::objects::nic::{Nic, Numbers};
use kiban_os::lock;
use kiban_os::random;
use kiban_vi::{Config, ConnectError, RequestError};
use kiban_vi_runtime::{Device, Failure, OpenError};
use std::ffi::CStr;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

/// Returns the configuration of a NIC. Many requests may be queued, because servers in the 1990s accepted
/// all clients at one discriminator.
fn config() -> Config {
    Config { requests_max: 4096, ..Config::default() }
}

/// Converts a program's timeout, which is either a number of milliseconds or means no limit.
pub(crate) fn timeout(milliseconds: VIP_ULONG) -> Duration {
    match milliseconds {
        crate::abi::VIP_INFINITE | VIP_ULONG::MAX => Duration::MAX,
        milliseconds => Duration::from_millis(crate::abi::wide(milliseconds)),
    }
}

impl From<RequestError> for VIP_RETURN {
    fn from(refusal: RequestError) -> VIP_RETURN {
        match refusal {
            RequestError::UnknownTag => VIP_RETURN::INVALID_PTAG,
            RequestError::UnknownMemory
            | RequestError::UnknownVi
            | RequestError::UnknownQueue
            | RequestError::UnknownPath
            | RequestError::BadAddress => VIP_RETURN::INVALID_PARAMETER,
            // The client has given up or timed out.
            RequestError::UnknownRequest => VIP_RETURN::TIMEOUT,
            RequestError::InUse | RequestError::TooMany => VIP_RETURN::ERROR_RESOURCE,
            RequestError::BadState(_) => VIP_RETURN::INVALID_STATE,
            RequestError::Reliability => VIP_RETURN::INVALID_RELIABILITY_LEVEL,
            RequestError::TransferBytes => VIP_RETURN::INVALID_MTU,
            RequestError::Qos => VIP_RETURN::INVALID_QOS,
            RequestError::RdmaRead => VIP_RETURN::INVALID_RDMAREAD,
            // Errors that have no code of their own in this VIPL.
            _ => VIP_RETURN::ERROR_RESOURCE,
        }
    }
}

impl From<ConnectError> for VIP_RETURN {
    fn from(error: ConnectError) -> VIP_RETURN {
        match error {
            ConnectError::NoMatch => VIP_RETURN::NO_MATCH,
            ConnectError::Rejected => VIP_RETURN::REJECT,
            ConnectError::Reliability => VIP_RETURN::INVALID_RELIABILITY_LEVEL,
            ConnectError::TransferBytes => VIP_RETURN::INVALID_MTU,
            ConnectError::Qos => VIP_RETURN::INVALID_QOS,
            ConnectError::Timeout => VIP_RETURN::TIMEOUT,
            ConnectError::Unreachable => VIP_RETURN::NOT_REACHABLE,
            // Errors that have no code of their own in this VIPL.
            _ => VIP_RETURN::ERROR_RESOURCE,
        }
    }
}

impl From<Failure> for VIP_RETURN {
    fn from(failure: Failure) -> VIP_RETURN {
        match failure {
            Failure::Refused(refusal) => refusal.into(),
            Failure::Timeout => VIP_RETURN::TIMEOUT,
            Failure::Connect(error) => error.into(),
            // A queue that has a completion queue cannot be waited for; the handle of a closed NIC is
            // invalid.
            Failure::OnCompletionQueue | Failure::Closed => VIP_RETURN::INVALID_PARAMETER,
            // `Gone`, because the device has disappeared; and errors that have no code of their own in VIPL.
            _ => VIP_RETURN::ERROR_RESOURCE,
        }
    }
}

fn open_first(devices: &[Device]) -> Result<kiban_vi_runtime::Nic, OpenError> {
    let (last, first) = devices.split_last().expect("a name means a device at least");
    first
        .iter()
        .find_map(|device| kiban_vi_runtime::Nic::open_with(device, config()).ok())
        .map_or_else(|| kiban_vi_runtime::Nic::open_with(last, config()), Ok)
}

/// # Safety
/// `name` is null or ends with a NUL.
pub(crate) unsafe fn open(name: *const VIP_CHAR, out: Out<VIP_NIC_HANDLE>) -> Answer {
    out.put(core::ptr::null_mut());
    if name.is_null() {
        return Err(VIP_RETURN::INVALID_PARAMETER);
    }
    // SAFETY: the caller guarantees that `name`, which is not null here, ends with NUL.
    let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| VIP_RETURN::INVALID_PARAMETER)?;
    let otherwise = std::env::var("KIBAN_VI_DEVICE").ok();
    // The name is random. Opening fails if another NIC already has this name.
    let number = random::bytes().map(u64::from_ne_bytes).map_err(|_| VIP_RETURN::ERROR_RESOURCE)?;
    let devices = device::named(name, otherwise.as_deref(), number).ok_or(VIP_RETURN::INVALID_PARAMETER)?;
    let core = open_first(&devices).map_err(|_| VIP_RETURN::ERROR_RESOURCE)?;
    let host = core.address();
    let mut shown = [0; 64];
    for (place, byte) in shown[..63].iter_mut().zip(host.to_string().bytes()) {
        *place = byte as VIP_CHAR;
    }
    let nic = Arc::new(Nic {
        config: core.config(),
        address: device::to_bytes(&host, &host).into(),
        host,
        core,
        handle: OnceLock::new(),
        name: shown,
        memories: RwLock::default(),
        posted: Mutex::default(),
        numbers: Mutex::default(),
        waiters: Mutex::default(),
        hosts: Mutex::default(),
        callbacks: Callbacks::default(),
    });
    let handle = handles::insert(Object::Nic(nic.clone()))?;
    nic.handle.get_or_init(|| handle);
    out.put(handle.as_pointer());
    Ok(())
}

pub(crate) fn close(pointer: VIP_NIC_HANDLE) -> Answer {
    handles::nic(pointer)?;
    // If two threads close the NIC, only one of them finds it here.
    let Some(Object::Nic(nic)) = handles::remove(Handle::of(pointer)) else {
        return Err(VIP_RETURN::INVALID_PARAMETER);
    };
    let Numbers { tags, vis, queues, requests } = core::mem::take(&mut *lock(&nic.numbers));
    let numbered = [tags, vis, queues];
    for handle in numbered.iter().flat_map(QuickMap::values).chain(&requests) {
        handles::remove(*handle);
    }
    nic.core.close();
    // Deregister all memory: after this call the program may free it, even if another thread is still in a
    // call to the NIC.
    for handle in writing(&nic.memories).take_all() {
        nic.core.deregister(handle).expect("it was registered, and only this thread deregisters it");
    }
    nic.callbacks.end();
    Ok(())
}

pub(crate) fn attributes(nic: &Nic) -> VIP_NIC_ATTRIBUTES {
    let config = &nic.config;
    let number = |number: usize| number as VIP_ULONG;
    let version = |part: &str| part.parse::<VIP_ULONG>().unwrap_or(0);
    VIP_NIC_ATTRIBUTES {
        Name: nic.name,
        HardwareVersion: 0,
        ProviderVersion: version(env!("CARGO_PKG_VERSION_MAJOR")) << 16
            | version(env!("CARGO_PKG_VERSION_MINOR")),
        NicAddressLen: nic.address.len() as u16,
        LocalNicAddress: nic.address.as_ptr(),
        ThreadSafe: 1,
        MaxDiscriminatorLen: config.discriminator_bytes_max as u16,
        MaxRegisterBytes: number(crate::memory::BYTES_MAX),
        MaxRegisterRegions: number(config.memories_max),
        MaxRegisterBlockBytes: number(crate::memory::BLOCK_BYTES_MAX),
        MaxVI: number(config.vis_max),
        MaxDescriptorsPerQueue: number(config.descriptors_max),
        MaxSegmentsPerDesc: number(config.segments_max),
        MaxCQ: number(config.completion_queues_max),
        MaxCQEntries: number(crate::completion::queue::ENTRIES_MAX),
        MaxTransferSize: number(config.transfer_bytes_max),
        NativeMTU: number(nic.core.packet_bytes()),
        MaxPtags: number(config.tags_max),
        ReliabilityLevelSupport: service::UNRELIABLE
            | service::RELIABLE_DELIVERY
            | service::RELIABLE_RECEPTION,
        RDMAReadSupport: service::RELIABLE_DELIVERY | service::RELIABLE_RECEPTION,
    }
}
