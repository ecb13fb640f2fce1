//! The NIC: calls from the host, and packets that links fetch.

use crate::config::Config;
use crate::connection::request::Incoming;
use crate::counters::ViCounters;
use crate::error::RequestError;
use crate::memory::{MemoryAttributes, Registry};
use crate::traits::{Event, PathTraits, Reliability, ViAttributes, ViState};
use crate::transfer::outputs::{CONTROL_PACKETS_MAX, CompletionQueue, Outputs, Path};
use crate::transfer::work::{Completion, DataSegment, Status, Work};
use crate::vi::Vi;
use crate::wire;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kiban_base::{Instant, Region, RngKey, SecureRng, SharedRoom, Slab};

/// A VI NIC.
#[derive(Debug)]
pub struct Nic {
    pub(crate) config: Config,
    pub(crate) memory: Registry,
    pub(crate) vis: Slab<Vi>,
    pub(crate) paths: Slab<Path>,
    pub(crate) incoming: Slab<Incoming>,
    pub(crate) listeners: Vec<Vec<u8>>,
    pub(crate) outputs: Outputs,
    pub(crate) rng: SecureRng,
}

impl Nic {
    /// Creates a NIC whose connection keys come from a random number generator seeded with `key`.
    pub fn new(config: Config, key: RngKey) -> Nic {
        let mut rng = SecureRng::new(key);
        let mut salt = || rng.draw_u32();
        Nic {
            memory: Registry::new(config.memories_max, config.tags_max, salt()),
            vis: Slab::new(config.vis_max, salt()),
            paths: Slab::new(1 << 16, 0),
            incoming: Slab::new(config.requests_max, salt()),
            listeners: Vec::new(),
            outputs: Outputs {
                control_packets: Vec::new(),
                events: VecDeque::new(),
                events_max: config.events_max,
                queues: Slab::new(config.completion_queues_max, salt()),
                pending_acks: Vec::new(),
                ready: Vec::new(),
                counters: ViCounters::default(),
                progress: false,
                due: Instant::NEVER,
            },
            config,
            rng,
        }
    }

    /// Returns the settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters.
    pub fn counters(&self) -> &ViCounters {
        &self.outputs.counters
    }

    /// Returns whether a connection request still awaits its answer.
    pub fn has_request(&self, request: u32) -> bool {
        self.incoming.get(request).is_some()
    }

    /// Returns the numbers of existing VIs and registered memory regions.
    pub fn in_use(&self) -> (usize, usize) {
        (self.vis.len(), self.memory.len())
    }

    // ---- memory

    /// Creates a protection tag.
    ///
    /// # Errors
    /// [`RequestError::TooMany`] if the NIC's limit is reached.
    pub fn create_tag(&mut self) -> Result<u32, RequestError> {
        self.memory.create_tag()
    }

    /// Destroys a protection tag.
    ///
    /// # Errors
    /// [`RequestError::UnknownTag`], or [`RequestError::InUse`] while a VI or registered memory has it.
    pub fn destroy_tag(&mut self, tag: u32) -> Result<(), RequestError> {
        self.memory.destroy_tag(tag)
    }

    /// Registers memory and returns its handle.
    ///
    /// # Errors
    /// [`RequestError::UnknownTag`], or [`RequestError::TooMany`].
    pub fn register(&mut self, region: Region, attributes: MemoryAttributes) -> Result<u32, RequestError> {
        self.memory.register(region, attributes)
    }

    /// Deregisters memory at once and returns the region. Descriptors that refer to the region then complete
    /// with an error.
    ///
    /// # Errors
    /// [`RequestError::UnknownMemory`].
    pub fn deregister(&mut self, handle: u32) -> Result<Region, RequestError> {
        self.memory.deregister(handle)
    }

    /// Returns the attributes of registered memory.
    ///
    /// # Errors
    /// [`RequestError::UnknownMemory`].
    pub fn memory_attributes(&self, handle: u32) -> Result<MemoryAttributes, RequestError> {
        self.memory.attributes(handle)
    }

    /// Changes the attributes of registered memory.
    ///
    /// # Errors
    /// [`RequestError::UnknownMemory`], or [`RequestError::UnknownTag`].
    pub fn set_memory_attributes(
        &mut self,
        handle: u32,
        attributes: MemoryAttributes,
    ) -> Result<(), RequestError> {
        self.memory.set_attributes(handle, attributes)
    }

    // ---- completion queues

    /// Creates a completion queue for up to `entries` completions.
    ///
    /// # Errors
    /// [`RequestError::TooMany`].
    pub fn create_queue(&mut self, entries: usize) -> Result<u32, RequestError> {
        let queue = CompletionQueue { entries: VecDeque::new(), most: entries, users: 0 };
        self.outputs.queues.insert(queue).ok_or(RequestError::TooMany)
    }

    /// Changes the capacity of a completion queue.
    ///
    /// # Errors
    /// [`RequestError::UnknownQueue`], or [`RequestError::InUse`] if it holds more completions than
    /// `entries`.
    pub fn resize_queue(&mut self, queue: u32, entries: usize) -> Result<(), RequestError> {
        let queue = self.outputs.queues.get_mut(queue).ok_or(RequestError::UnknownQueue)?;
        if entries < queue.entries.len() {
            return Err(RequestError::InUse);
        }
        queue.most = entries;
        Ok(())
    }

    /// Destroys a completion queue.
    ///
    /// # Errors
    /// [`RequestError::UnknownQueue`], or [`RequestError::InUse`] while a VI uses it.
    pub fn destroy_queue(&mut self, queue: u32) -> Result<(), RequestError> {
        match self.outputs.queues.get(queue) {
            None => Err(RequestError::UnknownQueue),
            Some(CompletionQueue { users: 1.., .. }) => Err(RequestError::InUse),
            Some(_) => self.outputs.queues.remove(queue).map(|_| ()).ok_or(RequestError::UnknownQueue),
        }
    }

    /// Removes the next completion. Returns the VI that has a completed descriptor to dequeue, and whether
    /// the descriptor is on the receive queue.
    ///
    /// # Errors
    /// [`RequestError::UnknownQueue`].
    #[inline]
    pub fn queue_done(&mut self, queue: u32) -> Result<Option<(u32, bool)>, RequestError> {
        Ok(self.outputs.queues.get_mut(queue).ok_or(RequestError::UnknownQueue)?.entries.pop_front())
    }

    // ---- VIs

    /// Creates an idle VI and returns its number. Its completions are also added to the given completion
    /// queues.
    ///
    /// # Errors
    /// [`RequestError::RdmaRead`] or [`RequestError::TransferBytes`] for attributes that the NIC does not
    /// support; [`RequestError::UnknownQueue`], [`RequestError::UnknownTag`], [`RequestError::TooMany`].
    pub fn create_vi(
        &mut self,
        attributes: ViAttributes,
        send_queue: Option<u32>,
        receive_queue: Option<u32>,
    ) -> Result<u32, RequestError> {
        self.check(&attributes)?;
        for queue in [send_queue, receive_queue].into_iter().flatten() {
            self.outputs.queues.get(queue).ok_or(RequestError::UnknownQueue)?;
        }
        self.memory.hold_tag(attributes.tag)?;
        let Some(vi) = self.vis.insert(Vi::new(attributes, send_queue, receive_queue)) else {
            self.memory.release_tag(attributes.tag);
            return Err(RequestError::TooMany);
        };
        for queue in [send_queue, receive_queue].into_iter().flatten() {
            if let Some(queue) = self.outputs.queues.get_mut(queue) {
                queue.users += 1;
            }
        }
        Ok(vi)
    }

    pub(crate) fn check(&self, attributes: &ViAttributes) -> Result<(), RequestError> {
        if attributes.reliability == Reliability::Unreliable && attributes.rdma_read {
            return Err(RequestError::RdmaRead);
        }
        if attributes.transfer_bytes_max as usize > self.config.transfer_bytes_max {
            return Err(RequestError::TransferBytes);
        }
        Ok(())
    }

    /// Destroys a VI.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`]; [`RequestError::BadState`] unless it is idle; [`RequestError::InUse`]
    /// unless its queues are empty.
    pub fn destroy_vi(&mut self, number: u32) -> Result<(), RequestError> {
        let vi = self.vis.get(number).ok_or(RequestError::UnknownVi)?;
        if vi.state != ViState::Idle {
            return Err(RequestError::BadState(vi.state));
        }
        if vi.send.len() + vi.receive.len() > 0 {
            return Err(RequestError::InUse);
        }
        let vi = self.vis.remove(number).ok_or(RequestError::UnknownVi)?;
        self.outputs.progress = true;
        self.memory.release_tag(vi.attributes.tag);
        for queue in [vi.send_queue, vi.receive_queue].into_iter().flatten() {
            if let Some(queue) = self.outputs.queues.get_mut(queue) {
                queue.users = queue.users.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// Returns a VI's state, its attributes, and whether its send and receive queues are empty.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`].
    pub fn vi(&self, vi: u32) -> Result<(ViState, ViAttributes, bool, bool), RequestError> {
        let vi = self.vis.get(vi).ok_or(RequestError::UnknownVi)?;
        Ok((vi.state, vi.attributes, vi.send.len() == 0, vi.receive.len() == 0))
    }

    /// Returns the completion queues of a VI, for sends and for receives.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`].
    pub fn queues_of(&self, vi: u32) -> Result<(Option<u32>, Option<u32>), RequestError> {
        let vi = self.vis.get(vi).ok_or(RequestError::UnknownVi)?;
        Ok((vi.send_queue, vi.receive_queue))
    }

    /// Returns the path of a VI that loses what arrives while it has no receive descriptor, and the number of
    /// descriptors on its receive queue; `None` for a VI that is reliable or not connected.
    pub fn descriptors_at_risk(&self, vi: u32) -> Option<(u32, usize)> {
        self.vis.get(vi)?.descriptors_at_risk()
    }

    /// Returns the same as [`Nic::descriptors_at_risk`] for each VI whose receive descriptors complete on a
    /// completion queue.
    pub fn queue_at_risk(&self, queue: u32) -> impl Iterator<Item = (u32, usize)> {
        let of_queue = self.vis.iter().filter(move |(_, vi)| vi.receive_queue == Some(queue));
        of_queue.filter_map(|(_, vi)| vi.descriptors_at_risk())
    }

    /// Changes the attributes of an idle VI.
    ///
    /// # Errors
    /// [`RequestError::RdmaRead`], [`RequestError::TransferBytes`], [`RequestError::UnknownVi`],
    /// [`RequestError::UnknownTag`]; [`RequestError::BadState`] unless the VI is idle.
    pub fn set_vi(&mut self, number: u32, attributes: ViAttributes) -> Result<(), RequestError> {
        self.check(&attributes)?;
        let vi = self.vis.get_mut(number).ok_or(RequestError::UnknownVi)?;
        if vi.state != ViState::Idle {
            return Err(RequestError::BadState(vi.state));
        }
        self.memory.hold_tag(attributes.tag)?;
        self.memory.release_tag(vi.attributes.tag);
        vi.attributes = attributes;
        Ok(())
    }

    // ---- work

    /// Posts a descriptor to a send queue. If the VI is in the error state, the descriptor is flushed at
    /// once. An invalid descriptor is accepted and completes with an error status.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`]; [`RequestError::BadState`] if the VI is idle or connecting;
    /// [`RequestError::TooMany`] if the queue is full.
    pub fn post_send(&mut self, number: u32, work: Work<'_>) -> Result<(), RequestError> {
        self.post_failed_send(number, work, Status::OK)
    }

    /// Like [`Nic::post_send`], for a descriptor in which the host interface has already found an error (a
    /// reserved bit, for example). The descriptor keeps its position in the queue and completes with
    /// `status`.
    ///
    /// # Errors
    /// Same as for [`Nic::post_send`].
    pub fn post_failed_send(
        &mut self,
        number: u32,
        work: Work<'_>,
        status: Status,
    ) -> Result<(), RequestError> {
        let vi = self.vis.get_mut(number).ok_or(RequestError::UnknownVi)?;
        if matches!(vi.state, ViState::Idle | ViState::ConnectPending) {
            return Err(RequestError::BadState(vi.state));
        }
        if vi.send.len() >= self.config.descriptors_max {
            return Err(RequestError::TooMany);
        }
        vi.post_send(number, &work, status, &self.config, &mut self.outputs);
        self.deliver();
        Ok(())
    }

    /// Posts a descriptor to a receive queue, in any state. If the VI is in the error state, the descriptor
    /// is flushed at once.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`], or [`RequestError::TooMany`] if the queue is full.
    pub fn post_receive(
        &mut self,
        number: u32,
        cookie: u64,
        segments: &[DataSegment],
    ) -> Result<(), RequestError> {
        self.post_failed_receive(number, cookie, segments, Status::OK)
    }

    /// Like [`Nic::post_receive`], for a descriptor in which the host interface has already found an error.
    ///
    /// # Errors
    /// Same as for [`Nic::post_receive`].
    pub fn post_failed_receive(
        &mut self,
        number: u32,
        cookie: u64,
        segments: &[DataSegment],
        status: Status,
    ) -> Result<(), RequestError> {
        let vi = self.vis.get_mut(number).ok_or(RequestError::UnknownVi)?;
        if vi.receive.len() >= self.config.descriptors_max {
            return Err(RequestError::TooMany);
        }
        vi.post_receive(number, cookie, segments, status, &self.config, &mut self.outputs);
        self.deliver();
        Ok(())
    }

    /// Dequeues the next completed descriptor from a send queue.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`].
    #[inline]
    pub fn send_done(&mut self, vi: u32) -> Result<Option<Completion>, RequestError> {
        Ok(self.vis.get_mut(vi).ok_or(RequestError::UnknownVi)?.send.dequeue())
    }

    /// Dequeues the next completed descriptor from a receive queue.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`].
    #[inline]
    pub fn receive_done(&mut self, vi: u32) -> Result<Option<Completion>, RequestError> {
        Ok(self.vis.get_mut(vi).ok_or(RequestError::UnknownVi)?.receive.dequeue())
    }

    /// Removes and returns the next asynchronous event.
    pub fn event(&mut self) -> Option<Event> {
        self.outputs.events.pop_front()
    }

    /// Returns whether something has happened since the last call that the host should look at. Resets the
    /// flag.
    #[inline]
    pub fn take_progress(&mut self) -> bool {
        core::mem::take(&mut self.outputs.progress)
    }

    // ---- paths

    /// Opens a path to another NIC and returns its number. If `packet_bytes` is at least 256, every set-up
    /// packet fits.
    ///
    /// # Errors
    /// [`RequestError::TooMany`].
    pub fn open_path(&mut self, traits: PathTraits) -> Result<u32, RequestError> {
        let path = Path { traits, control_packets: VecDeque::new(), ready: VecDeque::new() };
        self.paths.insert(path).ok_or(RequestError::TooMany)
    }

    /// Closes a path; every connection on it is lost.
    pub fn close_path(&mut self, path: u32) {
        if self.paths.remove(path).is_none() {
            return;
        }
        let Nic { vis, outputs, .. } = self;
        for (number, vi) in vis.iter_mut() {
            vi.on_path_gone(number, path, outputs);
        }
        let stale: Vec<u32> =
            self.incoming.iter().filter(|(_, request)| request.path == path).map(|(n, _)| n).collect();
        stale.into_iter().for_each(|number| drop(self.incoming.remove(number)));
        self.deliver();
    }

    /// Returns whether a connection, a request or a queued control packet uses a path.
    pub fn uses(&self, path: u32) -> bool {
        self.vis.iter().any(|(_, vi)| vi.uses(path))
            || self.incoming.iter().any(|(_, request)| request.path == path)
            || self.paths.get(path).is_some_and(|path| !path.control_packets.is_empty())
    }

    /// Returns whether a path may have a packet to be fetched.
    #[inline]
    pub fn has_packet(&self, path: u32) -> bool {
        self.paths.get(path).is_some_and(|path| !(path.control_packets.is_empty() && path.ready.is_empty()))
    }

    /// Writes the next packet of a path into `room` and returns its length. Returns `None` if there is no
    /// packet.
    ///
    /// # Panics
    /// If `room` is shorter than the path's maximum packet length.
    pub fn fetch(&mut self, number: u32, room: &mut SharedRoom<'_>, now: Instant) -> Option<usize> {
        let Some((length, checked)) = self.fill_from(number, room, now) else {
            // If a descriptor is in error, control packets may have been queued instead of a packet of its
            // data.
            self.deliver();
            return self.has_control_packet(number).then(|| self.fetch(number, room, now)).flatten();
        };
        if checked {
            wire::fill(room.private(length).expect("checked paths have private rooms"));
        }
        self.outputs.counters.packets_out += 1;
        self.deliver();
        Some(length)
    }

    pub(crate) fn has_control_packet(&self, path: u32) -> bool {
        self.paths.get(path).is_some_and(|path| !path.control_packets.is_empty())
    }

    #[inline]
    pub(crate) fn fill_from(
        &mut self,
        number: u32,
        room: &mut SharedRoom<'_>,
        now: Instant,
    ) -> Option<(usize, bool)> {
        let Nic { config, memory, vis, paths, outputs, .. } = self;
        let path = paths.get_mut(number)?;
        assert!(room.len() >= path.traits.packet_bytes, "the room holds a packet of the path");
        if let Some(letter) = path.control_packets.pop_front() {
            room.write(0, letter.as_slice().into());
            return Some((letter.len(), path.traits.checked));
        }
        loop {
            let ready = path.ready.pop_front()?;
            // The VI may have connected elsewhere since it was queued.
            let Some(vi) = vis.get_mut(ready).filter(|vi| vi.path() == Some(number)) else { continue };
            if let Some(length) = vi.emit(ready, config, memory, room, outputs, now) {
                path.ready.push_back(ready);
                return Some((length, path.traits.checked));
            }
            vi.queued = false;
        }
    }

    // ---- time

    /// Returns the time at which the NIC next needs [`Nic::settle`]. The time may be early, but is never
    /// late.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.outputs.due
    }

    /// Ends a burst: queues pending acknowledgements and handles expired timers. Call it after the host has
    /// had the opportunity to send an answer.
    #[inline]
    pub fn settle(&mut self, now: Instant) {
        if !self.outputs.pending_acks.is_empty() {
            self.send_pending_acks();
        }
        if now >= self.outputs.due {
            self.advance(now);
        }
    }

    pub(crate) fn send_pending_acks(&mut self) {
        for number in core::mem::take(&mut self.outputs.pending_acks) {
            let Some(vi) = self.vis.get_mut(number) else { continue };
            vi.in_ack_list = false;
            vi.send_pending_ack(number, &mut self.outputs);
        }
        self.deliver();
    }

    pub(crate) fn advance(&mut self, now: Instant) {
        self.outputs.due = Instant::NEVER;
        let Nic { config, vis, outputs, incoming, .. } = self;
        for (number, vi) in vis.iter_mut() {
            vi.advance(number, config, outputs, now);
        }
        let stale: Vec<u32> =
            incoming.iter().filter(|(_, request)| request.until <= now).map(|(n, _)| n).collect();
        stale.into_iter().for_each(|number| drop(incoming.remove(number)));
        let next = incoming.iter().map(|(_, request)| request.until).min();
        next.into_iter().for_each(|at| outputs.due_at(at));
        self.deliver();
    }

    /// Moves control packets and ready VIs from `Outputs` to their paths.
    #[inline]
    pub(crate) fn deliver(&mut self) {
        let Nic { outputs, vis, paths, .. } = self;
        for (number, letter) in outputs.control_packets.drain(..) {
            if let Some(path) = paths.get_mut(number)
                && path.control_packets.len() < CONTROL_PACKETS_MAX
            {
                path.control_packets.push_back(letter);
            }
        }
        for number in outputs.ready.drain(..) {
            if let Some(vi) = vis.get_mut(number)
                && !vi.queued
                && let Some(path) = vi.path().and_then(|path| paths.get_mut(path))
            {
                vi.queued = true;
                path.ready.push_back(number);
            }
        }
    }
}
