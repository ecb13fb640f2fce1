//! The calls that make connections, and the addresses that they take.
//!
//! Listening  after its first call of `VipConnectWait`, a server listens at the discriminator even between
//!            calls, so that clients are queued in the meantime. It stops listening when a wait times out and
//!            no other thread is waiting.

use crate::abi::{VIP_CONN_HANDLE, VIP_NET_ADDRESS, VIP_RETURN, VIP_VI_ATTRIBUTES};
use crate::border::Answer;
use crate::handles::{self, Object};
use crate::naming::device;
use crate::objects::handle::Handle;
use crate::objects::members::{Request, Vi};
use crate::objects::nic::Nic;
use crate::vi::peer_to_c;
use core::mem::offset_of;
use core::ptr::NonNull;
use kiban_os::lock;
use kiban_vi::ViState;
use kiban_vi_runtime::{Address, Failure, HostAddress};
use std::sync::Arc;
use std::time::Duration;

const BYTES_AT: usize = offset_of!(VIP_NET_ADDRESS, HostAddress);

/// Copies the host address and the discriminator out of a `VIP_NET_ADDRESS`.
///
/// # Safety
/// `at` is null, or points to a `VIP_NET_ADDRESS` that has as many bytes after its two length fields as these
/// fields say.
unsafe fn read(nic: &Nic, at: *const VIP_NET_ADDRESS) -> Answer<(Vec<u8>, Vec<u8>)> {
    let at = NonNull::new(at.cast_mut().cast::<u8>()).ok_or(VIP_RETURN::INVALID_PARAMETER)?;
    // SAFETY: the caller guarantees an address, which starts with its two lengths. It may be unaligned,
    // because old programs keep addresses in char arrays.
    let [host, discriminator] = unsafe { at.cast::<[u16; 2]>().read_unaligned() }.map(usize::from);
    if host > 256 || discriminator > nic.config.discriminator_bytes_max {
        return Err(VIP_RETURN::INVALID_PARAMETER);
    }
    let mut bytes = vec![0u8; host + discriminator];
    // SAFETY: the caller guarantees that as many bytes follow the two lengths as the lengths say.
    unsafe { at.add(BYTES_AT).copy_to_nonoverlapping(NonNull::from(&mut bytes[..]).cast(), bytes.len()) };
    let discriminator = bytes.split_off(host);
    Ok((bytes, discriminator))
}

/// Reads a `VIP_NET_ADDRESS` that names another NIC, and parses its host address.
///
/// # Safety
/// Same as for [`read`].
unsafe fn read_remote(nic: &Nic, at: *const VIP_NET_ADDRESS) -> Answer<Address> {
    // SAFETY: the caller guarantees what `read` requires.
    let (host, discriminator) = unsafe { read(nic, at)? };
    let host = device::from_bytes(&host, &nic.host).ok_or(VIP_RETURN::INVALID_PARAMETER)?;
    Ok(Address { host, discriminator })
}

/// Reads the host of an address.
///
/// # Safety
/// Same as for [`read`].
pub(crate) unsafe fn read_host(nic: &Nic, at: *const VIP_NET_ADDRESS) -> Answer<HostAddress> {
    // SAFETY: the caller guarantees what `read` requires.
    Ok(unsafe { read_remote(nic, at)? }.host)
}

/// Writes an address to the program's memory. If the discriminator is `None`, the discriminator in that
/// memory is left unchanged.
///
/// # Safety
/// `at` has room for the address.
pub(crate) unsafe fn write(
    nic: &Nic,
    at: NonNull<VIP_NET_ADDRESS>,
    host: &HostAddress,
    discriminator: Option<&[u8]>,
) {
    let at = at.cast::<u8>();
    let host = device::to_bytes(host, &nic.host);
    // SAFETY: the caller guarantees room for the address; both lengths fit in 16 bits, because a NIC's
    // address and a discriminator are short.
    unsafe {
        at.cast::<u16>().write_unaligned(host.len() as u16);
        at.add(BYTES_AT).copy_from_nonoverlapping(NonNull::from(&host[..]).cast(), host.len());
        if let Some(bytes) = discriminator {
            at.add(offset_of!(VIP_NET_ADDRESS, DiscriminatorLen))
                .cast::<u16>()
                .write_unaligned(bytes.len() as u16);
            at.add(BYTES_AT + host.len()).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
    }
}

/// The result of a server's wait: the client's attributes, and the handle of the request.
pub(crate) type WaitResult = (VIP_VI_ATTRIBUTES, VIP_CONN_HANDLE);

/// # Safety
/// `local` is null or an address whose length fields are correct; `remote` has room for any address of this
/// NIC.
pub(crate) unsafe fn wait(
    nic: &Arc<Nic>,
    local: *const VIP_NET_ADDRESS,
    timeout: Duration,
    remote: NonNull<VIP_NET_ADDRESS>,
) -> Answer<WaitResult> {
    // SAFETY: the caller guarantees that `local` is null or an address whose length fields are correct.
    let (_, discriminator) = unsafe { read(nic, local)? };
    *lock(&nic.waiters).entry(discriminator.clone()).or_default() += 1;
    let incoming = nic.core.connect_wait(&discriminator, timeout);
    let mut waiters = lock(&nic.waiters);
    let still = waiters.get_mut(&discriminator).map_or(0, |count| {
        *count -= 1;
        *count
    });
    if still == 0 {
        waiters.remove(&discriminator);
        if incoming == Err(Failure::Timeout) {
            nic.core.unlisten(&discriminator);
        }
    }
    drop(waiters);
    let incoming = incoming?;
    // SAFETY: the caller guarantees that `remote` has room for any address of this NIC.
    unsafe { write(nic, remote, &incoming.from.host, Some(&incoming.from.discriminator)) };
    let attributes = peer_to_c(&incoming.remoteness);
    let request = Object::Request(Arc::new(Request { nic: nic.clone(), incoming }));
    Ok((attributes, handles::adopt_request(nic, request)?.as_pointer()))
}

pub(crate) fn accept(pointer: VIP_CONN_HANDLE, vi: &Vi) -> Answer {
    let request = handles::request(pointer)?;
    if !Arc::ptr_eq(&request.nic, &vi.nic) {
        return Err(VIP_RETURN::INVALID_PARAMETER);
    }
    let accepted = request.nic.core.accept(&request.incoming, vi.number).map_err(VIP_RETURN::from);
    // A request stays queued for another VI if its attributes differ from this VI's.
    if matches!(accepted, Ok(()) | Err(VIP_RETURN::TIMEOUT)) {
        handles::disown_request(&request.nic, Handle::of(pointer));
    }
    accepted
}

pub(crate) fn reject(pointer: VIP_CONN_HANDLE) -> Answer {
    let request = handles::request(pointer)?;
    if handles::disown_request(&request.nic, Handle::of(pointer)).is_none() {
        return Err(VIP_RETURN::INVALID_PARAMETER);
    }
    // This fails if the client has given up waiting.
    let _ = request.nic.core.reject(&request.incoming);
    Ok(())
}

/// # Safety
/// `local` and `remote` are null or addresses whose length fields are correct.
pub(crate) unsafe fn request(
    vi: &Vi,
    local: *const VIP_NET_ADDRESS,
    remote: *const VIP_NET_ADDRESS,
    timeout: Duration,
) -> Answer<VIP_VI_ATTRIBUTES> {
    // SAFETY: the caller guarantees that both are null or addresses whose length fields are correct.
    let ((_, local), remote) = unsafe { (read(&vi.nic, local)?, read_remote(&vi.nic, remote)?) };
    Ok(peer_to_c(&vi.nic.core.connect(vi.number, &local, &remote, timeout)?))
}

/// # Safety
/// As for [`request`].
pub(crate) unsafe fn request_peer(
    vi: &Vi,
    local: *const VIP_NET_ADDRESS,
    remote: *const VIP_NET_ADDRESS,
    timeout: Duration,
) -> Answer {
    // SAFETY: the caller guarantees that both are null or addresses whose length fields are correct.
    let ((_, local), remote) = unsafe { (read(&vi.nic, local)?, read_remote(&vi.nic, remote)?) };
    Ok(vi.nic.core.connect_peer(vi.number, &local, &remote, timeout)?)
}

pub(crate) fn peer_done(vi: &Vi) -> Answer<VIP_VI_ATTRIBUTES> {
    // Read the state first, because a pending request may complete between the two calls.
    let is_pending = vi.nic.core.vi(vi.number)?.0 == ViState::ConnectPending;
    match vi.nic.core.peer_done(vi.number)? {
        Some(outcome) => Ok(peer_to_c(&outcome?)),
        None if is_pending => Err(VIP_RETURN::NOT_DONE),
        None => Err(VIP_RETURN::INVALID_STATE),
    }
}

pub(crate) fn peer_wait(vi: &Vi) -> Answer<VIP_VI_ATTRIBUTES> {
    // The request's own timeout ends this wait.
    Ok(peer_to_c(&vi.nic.core.peer_wait(vi.number, Duration::MAX)?))
}

pub(crate) fn disconnect(vi: &Vi) -> Answer {
    Ok(vi.nic.core.disconnect(vi.number)?)
}
