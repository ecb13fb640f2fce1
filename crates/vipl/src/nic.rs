//! NICs: opening, closing, bounds, and whose number is whose handle.

use crate::abi::{VIP_CHAR, VIP_NIC_ATTRIBUTES, VIP_NIC_HANDLE, VIP_RETURN, VIP_ULONG, service};
use crate::border::{Answer, Out, locked, writing};
use crate::connect::Waiters;
use crate::device;
use crate::handles::{self, Handle, Object, QuickMap};
use crate::memory::Memories;
use crate::names::Hosts;
use crate::notify::Callbacks;
use kiban_real::random;
use kiban_real::vi::{Device, Failure, HostAddress, OpenError};
use kiban_stack::vi::{Config, ConnectError, Refusal};
use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

/// A NIC that a program has opened.
pub(crate) struct Nic {
    /// The NIC itself, driven in real time.
    pub(crate) core: kiban_real::vi::Nic,
    pub(crate) config: Config,
    pub(crate) host: HostAddress,
    handle: OnceLock<Handle>,
    name: [VIP_CHAR; 64],
    /// The host address: `VipQueryNic` gives a pointer to it.
    address: Box<[u8]>,
    pub(crate) memories: RwLock<Memories>,
    /// Descriptors that are posted, by address: the handle of the memory in which they lie.
    pub(crate) posted: Mutex<QuickMap<usize, u32>>,
    /// Handles of what was made on this NIC, by the NIC's own numbers.
    numbers: Mutex<Numbers>,
    /// Threads that wait for requests to connect.
    pub(crate) waiters: Mutex<Waiters>,
    pub(crate) hosts: Mutex<Option<Hosts>>,
    pub(crate) callbacks: Callbacks,
}

#[derive(Default)]
struct Numbers {
    tags: QuickMap<u32, Handle>,
    vis: QuickMap<u32, Handle>,
    queues: QuickMap<u32, Handle>,
    /// Requests have no number that is told.
    requests: Vec<Handle>,
}

/// What a number of the NIC's is of.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Tag,
    Vi,
    Queue,
}

impl Numbers {
    fn of(&mut self, kind: Kind) -> &mut QuickMap<u32, Handle> {
        match kind {
            Kind::Tag => &mut self.tags,
            Kind::Vi => &mut self.vis,
            Kind::Queue => &mut self.queues,
        }
    }
}

/// The bounds of a NIC that a program opens. Servers of the time waited at a discriminator for every client.
fn config() -> Config {
    Config { requests_max: 4096, ..Config::default() }
}

impl Nic {
    pub(crate) fn handle(&self) -> VIP_NIC_HANDLE {
        self.handle.get().map_or(core::ptr::null_mut(), |handle| handle.as_pointer())
    }

    /// An object made on this NIC gets a handle.
    pub(crate) fn adopt(&self, kind: Kind, number: u32, object: Object) -> Answer<Handle> {
        let handle = handles::insert(object)?;
        locked(&self.numbers).of(kind).insert(number, handle);
        Ok(handle)
    }

    /// An object has gone: nobody finds it any more.
    pub(crate) fn disown(&self, kind: Kind, number: u32) {
        if let Some(handle) = locked(&self.numbers).of(kind).remove(&number) {
            handles::remove(handle);
        }
    }

    pub(crate) fn adopt_request(&self, object: Object) -> Answer<Handle> {
        let handle = handles::insert(object)?;
        locked(&self.numbers).requests.push(handle);
        Ok(handle)
    }

    pub(crate) fn disown_request(&self, handle: Handle) -> Option<Object> {
        locked(&self.numbers).requests.retain(|known| *known != handle);
        handles::remove(handle)
    }

    /// The handle of a number, for answers; null when it has none.
    pub(crate) fn handle_of(&self, kind: Kind, number: u32) -> *mut c_void {
        let mut numbers = locked(&self.numbers);
        numbers.of(kind).get(&number).map_or(core::ptr::null_mut(), |handle| handle.as_pointer())
    }
}

/// A timeout of the program's: milliseconds, or for ever.
pub(crate) fn timeout(milliseconds: VIP_ULONG) -> Duration {
    match milliseconds {
        crate::abi::VIP_INFINITE | VIP_ULONG::MAX => Duration::MAX,
        milliseconds => Duration::from_millis(crate::abi::wide(milliseconds)),
    }
}

impl From<Refusal> for VIP_RETURN {
    fn from(refusal: Refusal) -> VIP_RETURN {
        match refusal {
            Refusal::UnknownTag => VIP_RETURN::INVALID_PTAG,
            Refusal::UnknownMemory
            | Refusal::UnknownVi
            | Refusal::UnknownQueue
            | Refusal::UnknownPath
            | Refusal::BadAddress => VIP_RETURN::INVALID_PARAMETER,
            // Whoever asked has given up, or its time was over.
            Refusal::UnknownRequest => VIP_RETURN::TIMEOUT,
            Refusal::InUse | Refusal::TooMany => VIP_RETURN::ERROR_RESOURCE,
            Refusal::BadState(_) => VIP_RETURN::INVALID_STATE,
            Refusal::Reliability => VIP_RETURN::INVALID_RELIABILITY_LEVEL,
            Refusal::TransferBytes => VIP_RETURN::INVALID_MTU,
            Refusal::Qos => VIP_RETURN::INVALID_QOS,
            Refusal::RdmaRead => VIP_RETURN::INVALID_RDMAREAD,
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
        }
    }
}

impl From<Failure> for VIP_RETURN {
    fn from(failure: Failure) -> VIP_RETURN {
        match failure {
            Failure::Refused(refusal) => refusal.into(),
            Failure::Timeout => VIP_RETURN::TIMEOUT,
            Failure::Connect(error) => error.into(),
            // A queue that reports elsewhere is not waited for; the handle of a NIC that is closed names nothing.
            Failure::OnCompletionQueue | Failure::Closed => VIP_RETURN::INVALID_PARAMETER,
            // The device is there no more.
            Failure::Gone => VIP_RETURN::ERROR_RESOURCE,
        }
    }
}

fn open_first(devices: &[Device]) -> Result<kiban_real::vi::Nic, OpenError> {
    let (last, first) = devices.split_last().expect("a name means a device at least");
    first
        .iter()
        .find_map(|device| kiban_real::vi::Nic::open_with(device, config()).ok())
        .map_or_else(|| kiban_real::vi::Nic::open_with(last, config()), Ok)
}

/// # Safety
/// `name` is null or ends with a 0.
pub(crate) unsafe fn open(name: *const VIP_CHAR, out: Out<VIP_NIC_HANDLE>) -> Answer {
    out.put(core::ptr::null_mut());
    if name.is_null() {
        return Err(VIP_RETURN::INVALID_PARAMETER);
    }
    // SAFETY: promised by the caller.
    let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| VIP_RETURN::INVALID_PARAMETER)?;
    let otherwise = std::env::var("KIBAN_VI_DEVICE").ok();
    // A random name; should another NIC have it, this one is not opened.
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
    // Of two threads that close it, one finds it here.
    let Some(Object::Nic(nic)) = handles::remove(Handle::of(pointer)) else {
        return Err(VIP_RETURN::INVALID_PARAMETER);
    };
    let Numbers { tags, vis, queues, requests } = core::mem::take(&mut *locked(&nic.numbers));
    let numbered = [tags, vis, queues];
    for handle in numbered.iter().flat_map(QuickMap::values).chain(&requests) {
        handles::remove(*handle);
    }
    nic.core.close();
    // The memory is the program's again, whoever may still be on the way out of a call.
    for handle in writing(&nic.memories).take_all() {
        nic.core.deregister(handle).expect("it was registered, and we alone give it back");
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
        MaxCQEntries: number(crate::queue::ENTRIES_MAX),
        MaxTransferSize: number(config.transfer_bytes_max),
        NativeMTU: number(nic.core.packet_bytes()),
        MaxPtags: number(config.tags_max),
        ReliabilityLevelSupport: service::UNRELIABLE
            | service::RELIABLE_DELIVERY
            | service::RELIABLE_RECEPTION,
        RDMAReadSupport: service::RELIABLE_DELIVERY | service::RELIABLE_RECEPTION,
    }
}
