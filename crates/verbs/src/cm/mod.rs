//! The connection manager (rdma_cm(7)).
//!
//! Goal      `rdma_*` as programs for iWARP and for RoCE know them, over connections of kiban's NIC
//!           ([`kiban_rdma_runtime::verbs`]).
//! Parts     `channel.rs` events and their channels; `id.rs` identifiers; `resolve.rs` addresses;
//!           `connect.rs` connections; `queues.rs` the queue pair of an identifier; `endpoint.rs` both at
//!           once; `device.rs` devices; `below.rs` what all of this is built on.
//! Locks     the engine's lock comes first:
//!           [`CmEventHandler::told`](kiban_rdma_runtime::verbs::CmEventHandler::told) is called under it and
//!           takes an identifier's. So nothing here calls the engine while it holds an identifier's lock, and
//!           the lists of the [`World`] are locked for look-ups only.
//! Kinds     the kernel reports events in two ways, by the kind of the device. iWARP: the connecting side
//!           gets ESTABLISHED, and a status is an errno. InfiniBand and RoCE: a program with a queue pair of
//!           its own gets CONNECT_RESPONSE and calls `rdma_establish`; a refusal has the number of the
//!           InfiniBand standard (12.6.7.2); TIMEWAIT_EXIT follows DISCONNECTED.
//! Fork      identifiers are the process's: a child finds none of its parent's, and starts afresh.
//! Left out  datagrams (`RDMA_PS_UDP`): addresses are resolved, connections are refused with EOPNOTSUPP;
//!           multicast, `AF_IB`, types of service; numbers of the peer's queue pair, which the wire of iWARP
//!           does not carry.

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

/// The objects of this process, by the addresses that the program knows.
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
    // The first here, or the first since a fork: what the parent had stays where it is, since the child has a
    // copy of locks that some thread of the parent may have held.
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
