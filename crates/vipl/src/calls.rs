//! The exported functions of `include/vipl.h` and `include/vipl_kiban.h`.
//!
//! Each function checks its pointers, looks up its objects and calls the module that implements it. The
//! headers document the calls.

use crate::abi::*;
use crate::border::{Answer, Out, call, read};
use crate::completion::{notify, queue, waiting};
use crate::naming::names;
use crate::nic::timeout;
use crate::objects::callbacks::Context;
use crate::objects::members::Direction;
use crate::work::Collected;
use crate::{connect, errors, handles, memory, nic, vi, work};
use core::ptr::{NonNull, null_mut};
use kiban_base::Wait;
use kiban_vi_runtime::Queue;
use std::sync::atomic::Ordering;

const BAD: VIP_RETURN = VIP_RETURN::INVALID_PARAMETER;

/// Defines calls: C functions whose bodies run under [`border`](crate::border). They are unsafe because they
/// use the program's pointers; every caller guarantees what `vipl.h` requires.
macro_rules! calls {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[doc = concat!("`", stringify!($name), "`: see `include/vipl.h` and `include/vipl_kiban.h`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> VIP_RETURN {
            call(move || $body)
        }
    )*};
}

/// Checks the pointer for a result.
macro_rules! out {
    ($at:expr) => {{
        // SAFETY: vipl.h requires that the pointer is null or valid for writes.
        unsafe { Out::at($at) }?
    }};
}

/// Reads the value at a program's pointer.
macro_rules! given {
    ($at:expr) => {{
        // SAFETY: vipl.h requires that the pointer is null or points to such a value.
        unsafe { read($at) }?
    }};
}

fn collected(found: Answer<Option<Collected>>, none: VIP_RETURN, out: Out<*mut VIP_DESCRIPTOR>) -> Answer {
    out.put(null_mut());
    let (descriptor, code) = found?.ok_or(none)?;
    out.put(descriptor);
    if code == VIP_RETURN::SUCCESS { Ok(()) } else { Err(code) }
}

fn entry(found: Answer<queue::Entry>, vi: Out<VIP_VI_HANDLE>, receives: Out<VIP_BOOLEAN>) -> Answer {
    vi.put(null_mut());
    let (handle, queue) = found?;
    vi.put(handle);
    receives.put(queue);
    Ok(())
}

// NIC, tags, memory.
calls! {
    fn VipOpenNic(DeviceName: *const VIP_CHAR, NicHandle: *mut VIP_NIC_HANDLE) {
        let out = out!(NicHandle);
        // SAFETY: vipl.h requires that the name is null or ends with NUL.
        unsafe { nic::open(DeviceName, out) }
    }

    fn VipCloseNic(NicHandle: VIP_NIC_HANDLE) { nic::close(NicHandle) }

    fn VipQueryNic(NicHandle: VIP_NIC_HANDLE, NicAttribs: *mut VIP_NIC_ATTRIBUTES) {
        let nic = handles::nic(NicHandle)?;
        out!(NicAttribs).put(nic::attributes(&nic));
        Ok(())
    }

    fn VipCreatePtag(NicHandle: VIP_NIC_HANDLE, Ptag: *mut VIP_PROTECTION_HANDLE) {
        let (nic, out) = (handles::nic(NicHandle)?, out!(Ptag));
        out.put(null_mut());
        out.put(memory::create_tag(&nic)?);
        Ok(())
    }

    fn VipDestroyPtag(NicHandle: VIP_NIC_HANDLE, Ptag: VIP_PROTECTION_HANDLE) {
        memory::destroy_tag(&handles::nic(NicHandle)?, Ptag)
    }

    fn VipRegisterMem(
        NicHandle: VIP_NIC_HANDLE,
        VirtualAddress: VIP_PVOID,
        Length: VIP_ULONG,
        MemAttribs: *mut VIP_MEM_ATTRIBUTES,
        MemoryHandle: *mut VIP_MEM_HANDLE,
    ) {
        let (nic, out) = (handles::nic(NicHandle)?, out!(MemoryHandle));
        let given = if MemAttribs.is_null() { None } else { Some(given!(MemAttribs)) };
        out.put(0);
        out.put(memory::register(&nic, VirtualAddress, Length, given)?);
        Ok(())
    }

    fn VipDeregisterMem(NicHandle: VIP_NIC_HANDLE, VirtualAddress: VIP_PVOID, MemoryHandle: VIP_MEM_HANDLE) {
        memory::deregister(&handles::nic(NicHandle)?, VirtualAddress, MemoryHandle)
    }

    fn VipQueryMem(
        NicHandle: VIP_NIC_HANDLE,
        Address: VIP_PVOID,
        MemHandle: VIP_MEM_HANDLE,
        MemAttribs: *mut VIP_MEM_ATTRIBUTES,
    ) {
        let (nic, out) = (handles::nic(NicHandle)?, out!(MemAttribs));
        out.put(memory::query(&nic, Address, MemHandle)?);
        Ok(())
    }

    fn VipSetMemAttributes(
        NicHandle: VIP_NIC_HANDLE,
        Address: VIP_PVOID,
        MemHandle: VIP_MEM_HANDLE,
        MemAttribs: *mut VIP_MEM_ATTRIBUTES,
    ) {
        memory::set(&handles::nic(NicHandle)?, Address, MemHandle, given!(MemAttribs))
    }
}

// VIs.
calls! {
    fn VipCreateVi(
        NicHandle: VIP_NIC_HANDLE,
        ViAttribs: *mut VIP_VI_ATTRIBUTES,
        SendCQHandle: VIP_CQ_HANDLE,
        RecvCQHandle: VIP_CQ_HANDLE,
        ViHandle: *mut VIP_VI_HANDLE,
    ) {
        let (nic, out) = (handles::nic(NicHandle)?, out!(ViHandle));
        let given = given!(ViAttribs);
        out.put(null_mut());
        out.put(vi::create(&nic, &given, SendCQHandle, RecvCQHandle)?);
        Ok(())
    }

    fn VipDestroyVi(ViHandle: VIP_VI_HANDLE) { vi::destroy(&*handles::vi(ViHandle)?) }

    fn VipQueryVi(
        ViHandle: VIP_VI_HANDLE,
        State: *mut VIP_VI_STATE,
        ViAttribs: *mut VIP_VI_ATTRIBUTES,
        ViSendQEmpty: *mut VIP_BOOLEAN,
        ViRecvQEmpty: *mut VIP_BOOLEAN,
    ) {
        let vi = handles::vi(ViHandle)?;
        let outs = (out!(State), out!(ViAttribs), out!(ViSendQEmpty), out!(ViRecvQEmpty));
        let (state, attributes, sends, receives) = vi::query(&vi)?;
        outs.0.put(state);
        outs.1.put(attributes);
        outs.2.put(sends.into());
        outs.3.put(receives.into());
        Ok(())
    }

    fn VipSetViAttributes(ViHandle: VIP_VI_HANDLE, ViAttribs: *mut VIP_VI_ATTRIBUTES) {
        vi::set(&*handles::vi(ViHandle)?, &given!(ViAttribs))
    }
}

// Work.
calls! {
    fn VipPostSend(ViHandle: VIP_VI_HANDLE, DescriptorPtr: *mut VIP_DESCRIPTOR, MemoryHandle: VIP_MEM_HANDLE) {
        work::post(&*handles::vi(ViHandle)?, DescriptorPtr, MemoryHandle, Direction::Send)
    }

    fn VipPostRecv(ViHandle: VIP_VI_HANDLE, DescriptorPtr: *mut VIP_DESCRIPTOR, MemoryHandle: VIP_MEM_HANDLE) {
        work::post(&*handles::vi(ViHandle)?, DescriptorPtr, MemoryHandle, Direction::Receive)
    }

    fn VipSendDone(ViHandle: VIP_VI_HANDLE, DescriptorPtr: *mut *mut VIP_DESCRIPTOR) {
        let (vi, out) = (handles::vi(ViHandle)?, out!(DescriptorPtr));
        collected(work::done(&vi, Direction::Send), VIP_RETURN::NOT_DONE, out)
    }

    fn VipRecvDone(ViHandle: VIP_VI_HANDLE, DescriptorPtr: *mut *mut VIP_DESCRIPTOR) {
        let (vi, out) = (handles::vi(ViHandle)?, out!(DescriptorPtr));
        collected(work::done(&vi, Direction::Receive), VIP_RETURN::NOT_DONE, out)
    }

    fn VipSendWait(ViHandle: VIP_VI_HANDLE, Timeout: VIP_ULONG, DescriptorPtr: *mut *mut VIP_DESCRIPTOR) {
        let (vi, out) = (handles::vi(ViHandle)?, out!(DescriptorPtr));
        collected(work::wait(&vi, Direction::Send, timeout(Timeout)).map(Some), BAD, out)
    }

    fn VipRecvWait(ViHandle: VIP_VI_HANDLE, Timeout: VIP_ULONG, DescriptorPtr: *mut *mut VIP_DESCRIPTOR) {
        let (vi, out) = (handles::vi(ViHandle)?, out!(DescriptorPtr));
        collected(work::wait(&vi, Direction::Receive, timeout(Timeout)).map(Some), BAD, out)
    }

    fn VipSendNotify(ViHandle: VIP_VI_HANDLE, UserContext: VIP_PVOID, Handler: Option<VIP_VI_CALLBACK>) {
        notify::on_work(&handles::vi(ViHandle)?, Direction::Send, Context(UserContext), Handler.ok_or(BAD)?)
    }

    fn VipRecvNotify(ViHandle: VIP_VI_HANDLE, UserContext: VIP_PVOID, Handler: Option<VIP_VI_CALLBACK>) {
        notify::on_work(&handles::vi(ViHandle)?, Direction::Receive, Context(UserContext), Handler.ok_or(BAD)?)
    }
}

// Completion queues.
calls! {
    fn VipCreateCQ(NicHandle: VIP_NIC_HANDLE, EntryCount: VIP_ULONG, CQHandle: *mut VIP_CQ_HANDLE) {
        let (nic, out) = (handles::nic(NicHandle)?, out!(CQHandle));
        out.put(null_mut());
        out.put(queue::create(&nic, EntryCount)?);
        Ok(())
    }

    fn VipDestroyCQ(CQHandle: VIP_CQ_HANDLE) { queue::destroy(&*handles::queue(CQHandle)?) }

    fn VipResizeCQ(CQHandle: VIP_CQ_HANDLE, EntryCount: VIP_ULONG) {
        queue::resize(&*handles::queue(CQHandle)?, EntryCount)
    }

    fn VipCQDone(CQHandle: VIP_CQ_HANDLE, ViHandle: *mut VIP_VI_HANDLE, RecvQueue: *mut VIP_BOOLEAN) {
        let queue = handles::queue(CQHandle)?;
        let (vi, receives) = (out!(ViHandle), out!(RecvQueue));
        entry(queue::done(&queue).and_then(|found| found.ok_or(VIP_RETURN::NOT_DONE)), vi, receives)
    }

    fn VipCQWait(
        CQHandle: VIP_CQ_HANDLE,
        Timeout: VIP_ULONG,
        ViHandle: *mut VIP_VI_HANDLE,
        RecvQueue: *mut VIP_BOOLEAN,
    ) {
        let queue = handles::queue(CQHandle)?;
        let (vi, receives) = (out!(ViHandle), out!(RecvQueue));
        entry(queue::wait(&queue, timeout(Timeout)), vi, receives)
    }

    fn VipCQNotify(CQHandle: VIP_CQ_HANDLE, UserContext: VIP_PVOID, Handler: Option<VIP_CQ_CALLBACK>) {
        notify::on_entry(&handles::queue(CQHandle)?, Context(UserContext), Handler.ok_or(BAD)?)
    }
}

// Connections.
calls! {
    fn VipConnectWait(
        NicHandle: VIP_NIC_HANDLE,
        LocalAddr: *mut VIP_NET_ADDRESS,
        Timeout: VIP_ULONG,
        RemoteAddr: *mut VIP_NET_ADDRESS,
        RemoteViAttribs: *mut VIP_VI_ATTRIBUTES,
        ConnHandle: *mut VIP_CONN_HANDLE,
    ) {
        let nic = handles::nic(NicHandle)?;
        let remote = NonNull::new(RemoteAddr).ok_or(BAD)?;
        let (attributes, request) = (out!(RemoteViAttribs), out!(ConnHandle));
        request.put(null_mut());
        // SAFETY: vipl.h requires that the length fields of `LocalAddr` are correct, and that
        // `RemoteAddr` has room for the longest address of this NIC.
        let (peer, handle) = unsafe { connect::wait(&nic, LocalAddr, timeout(Timeout), remote)? };
        attributes.put(peer);
        request.put(handle);
        Ok(())
    }

    fn VipConnectAccept(ConnHandle: VIP_CONN_HANDLE, ViHandle: VIP_VI_HANDLE) {
        connect::accept(ConnHandle, &*handles::vi(ViHandle)?)
    }

    fn VipConnectReject(ConnHandle: VIP_CONN_HANDLE) { connect::reject(ConnHandle) }

    fn VipConnectRequest(
        ViHandle: VIP_VI_HANDLE,
        LocalAddr: *mut VIP_NET_ADDRESS,
        RemoteAddr: *mut VIP_NET_ADDRESS,
        Timeout: VIP_ULONG,
        RemoteViAttribs: *mut VIP_VI_ATTRIBUTES,
    ) {
        let (vi, out) = (handles::vi(ViHandle)?, out!(RemoteViAttribs));
        // SAFETY: vipl.h requires that the length fields of both addresses are correct.
        out.put(unsafe { connect::request(&vi, LocalAddr, RemoteAddr, timeout(Timeout))? });
        Ok(())
    }

    fn VipDisconnect(ViHandle: VIP_VI_HANDLE) { connect::disconnect(&*handles::vi(ViHandle)?) }

    fn VipConnectPeerRequest(
        ViHandle: VIP_VI_HANDLE,
        LocalAddr: *mut VIP_NET_ADDRESS,
        RemoteAddr: *mut VIP_NET_ADDRESS,
        Timeout: VIP_ULONG,
    ) {
        let vi = handles::vi(ViHandle)?;
        // SAFETY: vipl.h requires that the length fields of both addresses are correct.
        unsafe { connect::request_peer(&vi, LocalAddr, RemoteAddr, timeout(Timeout)) }
    }

    fn VipConnectPeerDone(ViHandle: VIP_VI_HANDLE, RemoteViAttribs: *mut VIP_VI_ATTRIBUTES) {
        let (vi, out) = (handles::vi(ViHandle)?, out!(RemoteViAttribs));
        out.put(connect::peer_done(&vi)?);
        Ok(())
    }

    fn VipConnectPeerWait(ViHandle: VIP_VI_HANDLE, RemoteViAttribs: *mut VIP_VI_ATTRIBUTES) {
        let (vi, out) = (handles::vi(ViHandle)?, out!(RemoteViAttribs));
        out.put(connect::peer_wait(&vi)?);
        Ok(())
    }
}

// Names, errors, management.
calls! {
    fn VipNSInit(NicHandle: VIP_NIC_HANDLE, NSInitInfo: VIP_PVOID) {
        // SAFETY: vipl.h requires that `NSInitInfo` is null or a path that ends with NUL.
        unsafe { names::start(&*handles::nic(NicHandle)?, NSInitInfo.cast()) }
    }

    fn VipNSGetHostByName(
        NicHandle: VIP_NIC_HANDLE,
        Name: *mut VIP_CHAR,
        Address: *mut VIP_NET_ADDRESS,
        NameIndex: VIP_ULONG,
    ) {
        let nic = handles::nic(NicHandle)?;
        let address = NonNull::new(Address).ok_or(BAD)?;
        // SAFETY: vipl.h requires that the name is null or ends with NUL, and that `Address`
        // has room for an address of this NIC.
        unsafe { names::by_name(&nic, Name, address, NameIndex) }
    }

    fn VipNSGetHostByAddr(
        NicHandle: VIP_NIC_HANDLE,
        Address: *mut VIP_NET_ADDRESS,
        Name: *mut VIP_CHAR,
        NameLen: *mut VIP_ULONG,
    ) {
        let nic = handles::nic(NicHandle)?;
        // SAFETY: vipl.h requires that the length fields of the address are correct, and that
        // `Name` has room for `*NameLen` bytes.
        unsafe { names::by_address(&nic, Address, Name, NameLen) }
    }

    fn VipNSShutdown(NicHandle: VIP_NIC_HANDLE) { names::stop(&*handles::nic(NicHandle)?) }

    fn VipErrorCallback(NicHandle: VIP_NIC_HANDLE, UserContext: VIP_PVOID, Handler: Option<VIP_ERROR_HANDLER>) {
        errors::set(&handles::nic(NicHandle)?, Context(UserContext), Handler)
    }

    fn VipQuerySystemManagementInfo(NicHandle: VIP_NIC_HANDLE, InfoType: VIP_ULONG, SysManInfo: VIP_PVOID) {
        let nic = handles::nic(NicHandle)?;
        match InfoType {
            // SAFETY: vipl.h requires that the list's array has `NumAdAddrs` elements.
            VIP_SMI_AUTODISCOVERY => unsafe { names::discover(&nic, SysManInfo.cast()) },
            _ => Err(BAD),
        }
    }
}

// Giganet's additions.
calls! {
    fn VipAddTagCQ(CQHandle: VIP_CQ_HANDLE, _Event: *mut VIP_EVENT_HANDLE, _Tag: VIP_ULONG, _Priority: VIP_ULONG) {
        handles::queue(CQHandle)?;
        Err(VIP_RETURN::ERROR_NOT_SUPPORTED)
    }

    fn VipRemoveTagCQ(CQHandle: VIP_CQ_HANDLE, _Event: VIP_EVENT_HANDLE, _Tag: VIP_ULONG) {
        handles::queue(CQHandle)?;
        Err(VIP_RETURN::ERROR_NOT_SUPPORTED)
    }

    fn VipPostDeferredSends(
        ViHandle: VIP_VI_HANDLE,
        _EnableInterrupt: VIP_BOOLEAN,
        _SendsDeferred: *mut VIP_BOOLEAN,
    ) {
        handles::vi(ViHandle)?;
        Err(VIP_RETURN::ERROR_NOT_SUPPORTED)
    }
}

/// `VipGetUserData`: see `include/vipl.h`.
#[unsafe(no_mangle)]
pub extern "C" fn VipGetUserData(ViHandle: VIP_VI_HANDLE) -> VIP_PVOID {
    let mut data = null_mut();
    call(|| {
        data = handles::vi(ViHandle)?.user_data.load(Ordering::Acquire);
        Ok(())
    });
    data
}

/// `VipSetUserData`: see `include/vipl.h`.
#[unsafe(no_mangle)]
pub extern "C" fn VipSetUserData(ViHandle: VIP_VI_HANDLE, Data: VIP_PVOID) {
    call(|| {
        handles::vi(ViHandle)?.user_data.store(Data, Ordering::Release);
        Ok(())
    });
}

// kiban's extensions: waiting policies.
calls! {
    fn VipSetViWait(ViHandle: VIP_VI_HANDLE, Policy: u32, SpinMicroseconds: VIP_ULONG) {
        let (vi, wait) = (handles::vi(ViHandle)?, waiting::named(Policy, SpinMicroseconds)?);
        for queue in [Queue::Send(vi.number), Queue::Receive(vi.number)] {
            vi.nic.core.set_queue_wait(queue, wait);
        }
        Ok(())
    }

    fn VipSetCQWait(CQHandle: VIP_CQ_HANDLE, Policy: u32, SpinMicroseconds: VIP_ULONG) {
        let (queue, wait) = (handles::queue(CQHandle)?, waiting::named(Policy, SpinMicroseconds)?);
        queue.nic.core.set_queue_wait(Queue::Completions(queue.number), wait);
        Ok(())
    }

    fn VipRecvWaitHybrid(
        ViHandle: VIP_VI_HANDLE,
        SpinMicroseconds: VIP_ULONG,
        Timeout: VIP_ULONG,
        DescriptorPtr: *mut *mut VIP_DESCRIPTOR,
    ) {
        let (vi, out) = (handles::vi(ViHandle)?, out!(DescriptorPtr));
        let policy = waiting::hybrid(SpinMicroseconds);
        collected(work::wait_by(&vi, policy, timeout(Timeout)).map(Some), BAD, out)
    }

    fn VipRecvWaitAdaptive(ViHandle: VIP_VI_HANDLE, Timeout: VIP_ULONG, DescriptorPtr: *mut *mut VIP_DESCRIPTOR) {
        let (vi, out) = (handles::vi(ViHandle)?, out!(DescriptorPtr));
        collected(work::wait_by(&vi, Wait::Adaptive, timeout(Timeout)).map(Some), BAD, out)
    }

    fn VipQueryViWait(ViHandle: VIP_VI_HANDLE, RecvQueue: VIP_BOOLEAN, Report: *mut VIP_WAIT_REPORT) {
        let (vi, out) = (handles::vi(ViHandle)?, out!(Report));
        let queue = if RecvQueue != 0 { Queue::Receive(vi.number) } else { Queue::Send(vi.number) };
        out.put(waiting::report(&vi.nic, queue));
        Ok(())
    }

    fn VipQueryCQWait(CQHandle: VIP_CQ_HANDLE, Report: *mut VIP_WAIT_REPORT) {
        let (queue, out) = (handles::queue(CQHandle)?, out!(Report));
        out.put(waiting::report(&queue.nic, Queue::Completions(queue.number)));
        Ok(())
    }
}
