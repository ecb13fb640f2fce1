//! Addresses and routes (rdma_bind_addr(3), rdma_resolve_addr(3), rdma_resolve_route(3), rdma_set_option(3)).
//!
//! Purpose         chooses the device from the system's routing table: a UDP socket connected to the
//!                 destination reports the local address from which it would send.
//! Ports           are separate from those of TCP (rdma-runtime: `port_space`). A bound port is reserved by a
//!                 TCP socket that does not listen, until the identifier listens. The system assigns the port
//!                 of a connecting identifier, and a new one on each retry.
//! Loopback        an identifier with a loopback address uses the first device. In the kernel (cma.c), it has
//!                 no device before its destination is known, or a request arrives. Programs differ in what
//!                 they expect: DAPL and librpma bind an address to find its device, and libfabric binds
//!                 `localhost` to enumerate all devices. Only libfabric's identifier is synchronous, so such
//!                 identifiers behave as in the kernel, and others have the device once they are bound.
//! Events          the result is known when the call returns; an event also reports it, as with the kernel.
//! Not implemented time limits, because nothing here waits. The type of service and the ACK timeout are
//!                 accepted and ignored.

use super::channel::{QueuedEvent, complete};
use super::id::{Id, Phase, with};
use super::world::{Taken, world};
use super::{address, below, device};
use crate::abi::*;
use crate::device::query::active_mtu_of;
use crate::device::{Device, board};
use crate::ffi::{catch_panics, errno_of, errno_of_told};
use core::ffi::{c_int, c_void};
use kiban_os::lock;
use kiban_rdma_runtime::tcp::ReservedPort;
use kiban_rdma_runtime::verbs::PortSpace;
use libc::sockaddr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

/// Reserves an address within this process, because sockets with SO_REUSEADDR do not exclude each other.
fn take(id: &Arc<Id>, at: SocketAddr, shares: bool, family_only: bool) -> Result<(), c_int> {
    let mut taken = lock(&world().taken);
    let meets = |other: &Taken| {
        other.at.port() == at.port()
            && (other.at.ip() == at.ip() || other.at.ip().is_unspecified() || at.ip().is_unspecified())
            && !(shares && other.shares)
            && !(family_only && other.family_only && other.at.is_ipv4() != at.is_ipv4())
    };
    if taken.iter().any(meets) {
        return Err(libc::EADDRINUSE);
    }
    taken.push(Taken { id: id.abi() as usize, at, shares, family_only });
    Ok(())
}

/// Binds an identifier that is not bound.
pub(super) fn bind(id: &Arc<Id>, at: SocketAddr) -> Result<(), c_int> {
    let (shares, family_only, is_synchronous) = {
        let state = id.state();
        if state.phase != Phase::Idle {
            return Err(libc::EINVAL);
        }
        // As in the kernel (cma.c), IPv4 addresses never stand for IPv6 addresses.
        (state.shares, state.family_only || at.is_ipv4(), state.own)
    };
    // Start the engine now: programs such as qperf announce the port to their peers before they listen, so
    // listening must not take long.
    if below::engine()?.is_on_board() {
        return bind_on_board(id, at);
    }
    let reserved = ReservedPort::for_rdma(at, family_only).map_err(|error| errno_of(&error))?;
    let bound = reserved.address().map_err(|error| errno_of(&error))?;
    take(id, bound, shares, family_only)?;
    let is_any = at.ip().is_unspecified() || is_synchronous && at.ip().to_canonical().is_loopback();
    if !is_any && !device::bind_device(id, at.ip()) {
        lock(&world().taken).retain(|taken| taken.id != id.abi() as usize);
        return Err(libc::ENODEV);
    }
    let mut state = id.state();
    state.phase = Phase::Bound;
    state.reserved = Some(reserved);
    state.local = Some(bound);
    // SAFETY: the struct lives as long as the identifier.
    unsafe { (*id.abi()).route.addr.src = address::written(bound) };
    Ok(())
}

/// Binds an identifier to an address of the board. The board reserves the port when the identifier listens.
fn bind_on_board(id: &Arc<Id>, at: SocketAddr) -> Result<(), c_int> {
    let at = address::plain(at);
    let is_any = at.ip().is_unspecified();
    if !is_any && (at.ip().is_loopback() || !device::bind_device(id, at.ip())) {
        return Err(libc::EADDRNOTAVAIL);
    }
    let mut state = id.state();
    state.phase = Phase::Bound;
    state.local = Some(at);
    // SAFETY: the struct lives as long as the identifier.
    unsafe { (*id.abi()).route.addr.src = address::written(at) };
    Ok(())
}

/// # Safety
/// `id` is a live identifier, and `at` is null or a socket address of the length that its family requires.
#[unsafe(export_name = "kiban_rdma_bind_addr")]
pub(super) unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, at: *mut sockaddr) -> c_int {
    with(id, |id| {
        // SAFETY: the caller of `rdma_bind_addr` guarantees that `at` is null or an address of the length
        // that its family requires.
        let at = unsafe { address::read(at)? };
        bind(id, at)?;
        Ok(0)
    })
}

/// Returns the address of this host, or of the board, from which a destination is reached.
fn source(from: Option<IpAddr>, to: SocketAddr) -> io::Result<IpAddr> {
    if board().is_some() {
        // The board chooses the route; this names the device.
        let from = from.filter(|from| !from.is_unspecified());
        let all = Device::all().map_err(io::Error::from_raw_os_error)?;
        let same = |device: &&Device| device.address.is_ipv4() == to.is_ipv4();
        let found = from.or_else(|| all.into_iter().find(same).map(|device| device.address));
        return found.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into());
    }
    let any = match to {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind(SocketAddr::new(from.unwrap_or(any), 0))?;
    // Nothing is sent, so any port except 0 will do.
    socket.connect(SocketAddr::new(to.ip(), to.port().max(1)))?;
    Ok(socket.local_addr()?.ip().to_canonical())
}

/// Maps the unspecified address to an address of this host.
fn destination(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(to) if to.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, to.port()).into(),
        SocketAddr::V6(to) if to.ip().is_unspecified() => (Ipv6Addr::LOCALHOST, to.port()).into(),
        to => address::plain(to),
    }
}

/// Finds the device through which an address is reached.
fn resolve(id: &Arc<Id>, from: Option<IpAddr>, to: SocketAddr) -> Result<(), c_int> {
    let from = from.filter(|from| !from.is_unspecified()).map(|from| from.to_canonical());
    let source = match source(from, to) {
        Ok(source) => source,
        Err(error) => return Err(errno_of(&error)),
    };
    if !device::bind_device(id, source) {
        return Err(libc::ENODEV);
    }
    let mut state = id.state();
    let port = state.local.map_or(0, |local| local.port());
    let local = SocketAddr::new(source, port);
    state.local = Some(local);
    state.peer = Some(to);
    state.phase = Phase::Address;
    // SAFETY: the struct lives as long as the identifier.
    unsafe { (*id.abi()).route.addr.src = address::written(local) };
    Ok(())
}

/// Implements `rdma_resolve_addr`.
pub(super) fn resolve_addr(id: &Arc<Id>, from: Option<SocketAddr>, to: SocketAddr) -> Result<c_int, c_int> {
    let phase = id.state().phase;
    match (phase, from) {
        (Phase::Idle, Some(from)) => bind(id, from)?,
        (Phase::Idle | Phase::Bound, _) => {}
        _ => return Err(libc::EINVAL),
    }
    let to = destination(to);
    // SAFETY: the struct lives as long as the identifier.
    unsafe { (*id.abi()).route.addr.dst = address::written(to) };
    let from = id.state().local.map(|local| local.ip());
    let note = match resolve(id, from, to) {
        Ok(()) => QueuedEvent::plain(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0),
        Err(error) => QueuedEvent::plain(id, RDMA_CM_EVENT_ADDR_ERROR, -error),
    };
    id.state().channel.tell(note);
    Ok(complete(id))
}

/// # Safety
/// `id` is a live identifier; `from` and `to` are null or socket addresses of the lengths that their families
/// require.
#[unsafe(export_name = "kiban_rdma_resolve_addr")]
pub(super) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    from: *mut sockaddr,
    to: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    with(id, |id| {
        // SAFETY: the caller of `rdma_resolve_addr` guarantees that `to` is null or an address of the length
        // that its family requires.
        let to = unsafe { address::read(to)? };
        // SAFETY: the caller of `rdma_resolve_addr` guarantees that `from` is null or an address of the
        // length that its family requires. Like null, family 0 means that there is no address.
        let from = unsafe {
            match from.as_ref().filter(|from| from.sa_family != 0) {
                Some(from) => Some(address::read(from)?),
                None => None,
            }
        };
        if from.is_some_and(|from| from.is_ipv4() != to.is_ipv4()) {
            return Err(libc::EINVAL);
        }
        resolve_addr(id, from, to)
    })
}

/// Fills in the route in the program's struct, with one path record.
pub(super) fn fill_route(id: &Arc<Id>) {
    let (local, peer, device) = {
        let state = id.state();
        (state.local, state.peer, state.device)
    };
    let (Some(local), Some(peer)) = (local, peer) else { return };
    let mtu = active_mtu_of(device.unwrap_or(local.ip()));
    let place = id.abi();
    // SAFETY: the struct lives as long as the identifier; a path record in it was allocated here.
    unsafe {
        (*place).route.addr.addr.ibaddr =
            rdma_ib_addr { sgid: address::gid(local.ip()), dgid: address::gid(peer.ip()), pkey: 0xffff };
        if (*place).route.path_rec.is_null() {
            (*place).route.path_rec = Box::into_raw(Box::new(path(local.ip(), peer.ip(), mtu)));
            (*place).route.num_paths = 1;
        }
    }
}

/// Returns a path record as for RoCE: no subnet, and so no local identifiers.
fn path(from: IpAddr, to: IpAddr, mtu: ibv_mtu) -> ibv_sa_path_rec {
    /// The selector "exactly" (IBTA 15.2.5.16).
    const EQUAL: u8 = 2;
    ibv_sa_path_rec {
        dgid: address::gid(to),
        sgid: address::gid(from),
        hop_limit: 64,
        reversible: 1,
        numb_path: 1,
        pkey: 0xffff,
        mtu_selector: EQUAL,
        mtu: mtu as u8,
        rate_selector: EQUAL,
        rate: IBV_RATE_10_GBPS as u8,
        packet_life_time_selector: EQUAL,
        // 4.096 us times 2^18, the kernel's value for RoCE.
        packet_life_time: 18,
        ..ibv_sa_path_rec::ZERO
    }
}

/// Implements `rdma_resolve_route`.
pub(super) fn resolve_route(id: &Arc<Id>) -> Result<c_int, c_int> {
    {
        let mut state = id.state();
        if state.phase != Phase::Address {
            return Err(libc::EINVAL);
        }
        state.phase = Phase::Route;
    }
    fill_route(id);
    id.state().channel.tell(QueuedEvent::plain(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0));
    Ok(complete(id))
}

/// # Safety
/// `id` is an identifier created by this library.
#[unsafe(export_name = "kiban_rdma_resolve_route")]
pub(super) unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    with(id, resolve_route)
}

/// # Safety
/// The address was written by this module.
unsafe fn port(of: &rdma_addr_socket) -> u16 {
    // SAFETY: both families store the port at the same offset, in network byte order.
    unsafe { if c_int::from(of.addr.sa_family) == 0 { 0 } else { of.sin.sin_port } }
}

/// # Safety
/// `id` is an identifier created by this library.
#[unsafe(export_name = "kiban_rdma_get_src_port")]
pub(super) unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    catch_panics(0, || {
        super::id::find(id).map_or(0, |id| {
            // A retry changes the address, so read it under the lock.
            let _state = id.state();
            // SAFETY: the struct lives as long as the identifier.
            unsafe { port(&(*id.abi()).route.addr.src) }
        })
    })
}

/// # Safety
/// `id` is an identifier created by this library.
#[unsafe(export_name = "kiban_rdma_get_dst_port")]
pub(super) unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the struct lives as long as the identifier.
    catch_panics(0, || super::id::find(id).map_or(0, |id| unsafe { port(&(*id.abi()).route.addr.dst) }))
}

/// # Safety
/// `id` is a live identifier, and `value` points to `bytes` bytes.
#[unsafe(export_name = "kiban_rdma_set_option")]
pub(super) unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    bytes: usize,
) -> c_int {
    with(id, |id| {
        if value.is_null() && bytes > 0 {
            return Err(libc::EINVAL);
        }
        let number = || {
            if bytes != size_of::<c_int>() {
                return Err(libc::EINVAL);
            }
            // SAFETY: the caller of `rdma_set_option` guarantees that `value` points to `bytes` bytes, which
            // is the size of an `int` here.
            Ok(unsafe { value.cast::<c_int>().read_unaligned() } != 0)
        };
        match (level, option) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS | RDMA_OPTION_ID_ACK_TIMEOUT) => {
                if bytes != 1 {
                    return Err(libc::EINVAL);
                }
                if option == RDMA_OPTION_ID_ACK_TIMEOUT {
                    // SAFETY: the caller of `rdma_set_option` guarantees that `value` points to one byte.
                    id.state().ack_timeout = unsafe { value.cast::<u8>().read() } & 31;
                }
                Ok(0)
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => {
                let shares = number()?;
                let mut state = id.state();
                // Once an identifier is bound, address sharing can still be turned on, but not off.
                if state.phase != Phase::Idle && !shares {
                    return Err(libc::EINVAL);
                }
                state.shares = shares;
                drop(state);
                let place = id.abi() as usize;
                lock(&world().taken)
                    .iter_mut()
                    .filter(|taken| taken.id == place)
                    .for_each(|t| t.shares = shares);
                Ok(0)
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => {
                let only = number()?;
                let mut state = id.state();
                if !matches!(state.phase, Phase::Idle | Phase::Bound) {
                    return Err(libc::EINVAL);
                }
                state.family_only = only;
                Ok(0)
            }
            (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => {
                // Programs that query the subnet manager themselves pass path records. They are ignored: the
                // system chooses the route.
                if bytes == 0 || !bytes.is_multiple_of(size_of::<ibv_path_data>()) {
                    return Err(libc::EINVAL);
                }
                resolve_route(id)
            }
            _ => Err(libc::ENOSYS),
        }
    })
}

/// The kernel's maximum, also for values out of range.
const BACKLOG_MAX: u32 = 1024;

fn backlog_of(backlog: c_int) -> u32 {
    u32::try_from(backlog).ok().filter(|most| (1..BACKLOG_MAX).contains(most)).unwrap_or(BACKLOG_MAX)
}

/// Listens on the board at the address to which an identifier is bound.
fn listen_on_board(id: &Arc<Id>, backlog: c_int) -> Result<(), c_int> {
    let local = {
        let mut state = id.state();
        if state.phase != Phase::Bound {
            return Err(libc::EINVAL);
        }
        (state.phase, state.backlog) = (Phase::Listening, backlog_of(backlog));
        state.local.ok_or(libc::EINVAL)?
    };
    let listening = below::engine()?.listen_on_board(local, id.listens());
    let mut state = id.state();
    match listening {
        Ok((listener, local)) => {
            (state.listener, state.local) = (Some(listener), Some(local));
            // SAFETY: the struct lives as long as the identifier.
            unsafe { (*id.abi()).route.addr.src = address::written(local) };
            Ok(())
        }
        Err(error) => {
            state.phase = Phase::Bound;
            drop(state);
            let _ = errno_of_told(&io::Error::new(io::ErrorKind::AddrInUse, error));
            Err(libc::EADDRINUSE)
        }
    }
}

/// Listens at the address to which an identifier is bound, in its port space.
pub(super) fn listen(id: &Arc<Id>, backlog: c_int, space: PortSpace) -> Result<(), c_int> {
    if id.state().phase == Phase::Idle {
        bind(id, (Ipv4Addr::UNSPECIFIED, 0).into())?;
    }
    if below::engine()?.is_on_board() {
        return listen_on_board(id, backlog);
    }
    let socket = {
        let mut state = id.state();
        if state.phase != Phase::Bound {
            return Err(libc::EINVAL);
        }
        let reserved = state.reserved.as_ref().ok_or(libc::EINVAL)?;
        let socket = reserved.listen(BACKLOG_MAX).map_err(|error| errno_of(&error))?;
        state.phase = Phase::Listening;
        state.backlog = backlog_of(backlog);
        socket
    };
    let listening = below::engine().and_then(|engine| {
        let addresses = Device::that_listen_at(socket.address().map_err(|error| errno_of(&error))?.ip())?;
        let listening = engine.listen(space, socket, addresses, id.listens());
        listening.map_err(|error| errno_of_told(&error))
    });
    let mut state = id.state();
    match listening {
        Ok(listener) => {
            state.listener = Some(listener);
            state.reserved = None;
            Ok(())
        }
        Err(error) => {
            state.phase = Phase::Bound;
            Err(error)
        }
    }
}
