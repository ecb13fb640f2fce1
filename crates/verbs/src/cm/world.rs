//! The objects of this process: identifiers, channels, events, and the addresses that are bound.

use super::channel::{Channels, DeliveredEvent};
use super::id::Id;
use crate::atomic::AtomicPtr;
use crate::engine::Generation;
use crate::sync::published::Published;
use core::convert::Infallible;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// An address that an identifier has bound.
pub(super) struct Taken {
    pub(super) id: usize,
    pub(super) at: SocketAddr,
    /// Whether other identifiers with this flag may also bind it.
    pub(super) shares: bool,
    /// Whether an unspecified address stands for addresses of its own family only.
    pub(super) family_only: bool,
}

/// The objects of this process, by the addresses of their C structs.
pub(super) struct World {
    born: Generation,
    pub(super) ids: Mutex<HashMap<usize, Arc<Id>>>,
    pub(super) channels: Mutex<Channels>,
    /// Events that the program has not acknowledged.
    pub(super) events: Mutex<HashMap<usize, Box<DeliveredEvent>>>,
    pub(super) taken: Mutex<Vec<Taken>>,
    /// The default protection domain of each device, indexed by the device's context.
    pub(super) domains: Mutex<HashMap<usize, usize>>,
    /// The default XRC domain of each device.
    pub(super) xrc_domains: Mutex<HashMap<usize, usize>>,
}

/// Returns the objects of this process.
pub(super) fn world() -> &'static World {
    static WORLD: Published<World> = Published(AtomicPtr::new(core::ptr::null_mut()));
    // In a forked child, create a new set and leak the copy of the parent's: other threads in the parent may
    // have held its locks.
    let Ok(world) = WORLD.get_or_make(
        |world| world.born.is_now(),
        || {
            Ok::<_, Infallible>(World {
                born: Generation::now(),
                ids: Mutex::default(),
                channels: Mutex::default(),
                events: Mutex::default(),
                taken: Mutex::default(),
                domains: Mutex::default(),
                xrc_domains: Mutex::default(),
            })
        },
    );
    world
}
