//! The connection manager (rdma_cm(7)).
//!
//! Purpose         the functions `rdma_*`, over connections of kiban's NIC ([`kiban_rdma_runtime::verbs`]).
//! Files           `channel.rs` event channels; `id.rs` identifiers; `resolve.rs` addresses and routes;
//!                 `connect.rs` connections; `queues.rs` queue pairs of identifiers; `endpoint.rs` endpoints;
//!                 `device.rs` devices; `below.rs` the interfaces below.
//! Lock order      the engine's lock, then an identifier's lock:
//!                 [`CmEventHandler::on_event`](kiban_rdma_runtime::verbs::CmEventHandler::on_event) is
//!                 called under the first and takes the second. So nothing here calls the engine while it
//!                 holds an identifier's lock, and the lists of the [`World`] are locked for look-ups only.
//! Event types     depend on the transport, as in the kernel. On iWARP the active side gets ESTABLISHED, and
//!                 the status is an errno. On InfiniBand and RoCE, a program with a queue pair of its own
//!                 gets CONNECT_RESPONSE and calls `rdma_establish`; a reject has a reason of IBTA 12.6.7.2;
//!                 TIMEWAIT_EXIT follows DISCONNECTED.
//! Fork            identifiers belong to one process: a forked child starts without any.
//! Not implemented datagrams (`RDMA_PS_UDP`): addresses are resolved, but connecting fails with EOPNOTSUPP;
//!                 multicast, `AF_IB` and type of service; the QPN of the peer, which iWARP does not
//!                 transmit.

mod address;
mod below;
mod channel;
mod connect;
mod device;
mod endpoint;
mod id;
mod queues;
mod resolve;
#[cfg(test)]
mod tests;

use self::channel::{Channels, DeliveredEvent};
use self::id::Id;
use crate::atomic::AtomicPtr;
use crate::sync::published::Published;
use core::convert::Infallible;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// An address that an identifier has bound.
struct Taken {
    id: usize,
    at: SocketAddr,
    /// Whether other identifiers with this flag may bind it too.
    shares: bool,
}

/// The objects of this process, by the addresses of their C structs.
struct World {
    process: u32,
    ids: Mutex<HashMap<usize, Arc<Id>>>,
    channels: Mutex<Channels>,
    /// Events that the program has not acknowledged.
    events: Mutex<HashMap<usize, Box<DeliveredEvent>>>,
    taken: Mutex<Vec<Taken>>,
    /// The default domain of each device, by its context.
    domains: Mutex<HashMap<usize, usize>>,
}

/// Returns the objects of this process.
fn world() -> &'static World {
    static WORLD: Published<World> = Published(AtomicPtr::new(core::ptr::null_mut()));
    let process = std::process::id();
    // Create a new one in a forked child, and leak the copy of the parent's: other threads of the parent may
    // have held its locks.
    let Ok(world) = WORLD.get_or_make(
        |world| world.process == process,
        || {
            Ok::<_, Infallible>(World {
                process,
                ids: Mutex::default(),
                channels: Mutex::default(),
                events: Mutex::default(),
                taken: Mutex::default(),
                domains: Mutex::default(),
            })
        },
    );
    world
}
