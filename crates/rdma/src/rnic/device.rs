//! Creation and use of protection domains, memory, completion queues and shared receive queues.

use super::clocks::StepLog;
use super::config::Config;
use super::control::qp::Qp;
use super::control::receive_queue::{SharedReceiveQueue, XrcDomain};
use super::counters::RnicCounters;
use super::error::RequestError;
use super::event::Event;
use super::host::cmt::{CompletionQueue, Notify};
use super::host::smt::StagTable;
use super::outbox::Outputs;
use super::work::{Access, Completion, ReceiveWork};
use crate::wire::rdmap::{Reason, Terminate};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kiban_base::{Region, RngKey, SecureRng, Slab};

/// An RDMA NIC: owns all queue pairs, queues and memory registrations.
#[derive(Debug)]
pub struct Rnic {
    pub(super) config: Config,
    pub(super) smt: StagTable,
    pub(super) qps: Slab<Qp>,
    pub(super) srqs: Slab<SharedReceiveQueue>,
    pub(super) xrc_domains: Slab<XrcDomain>,
    pub(super) outputs: Outputs,
    /// Spare buffers for streams that become active: one for outgoing frames, one for an incoming frame.
    pub(crate) spare: [Vec<u8>; 2],
}

impl Rnic {
    /// Creates a NIC. `key` seeds the random number generator for its steering tags and numbers.
    pub fn new(config: Config, key: RngKey) -> Rnic {
        let mut rng = SecureRng::new(key);
        Rnic {
            smt: StagTable::new(config.stags_max, config.blocks_max, config.pds_max, &mut rng),
            qps: Slab::new(config.qps_max, rng.draw_u32()),
            srqs: Slab::new(config.srqs_max, rng.draw_u32()),
            xrc_domains: Slab::new(config.pds_max, rng.draw_u32()),
            outputs: Outputs {
                cqs: Slab::new(config.cqs_max, rng.draw_u32()),
                cq_events: VecDeque::new(),
                overrun: Vec::new(),
                events: VecDeque::new(),
                events_max: config.events_max,
                tx_queue: VecDeque::new(),
                datagram_tx_queue: VecDeque::new(),
                packet_tx_queue: VecDeque::new(),
                resumed: Vec::new(),
                counters: RnicCounters::default(),
                clocks: StepLog::default(),
            },
            spare: [Vec::new(), Vec::new()],
            config,
        }
    }

    /// Returns the settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters.
    pub fn counters(&self) -> &RnicCounters {
        &self.outputs.counters
    }

    /// Returns the step log, for a model that assigns clock cycles to the blocks' steps.
    pub fn clocks(&mut self) -> &mut StepLog {
        &mut self.outputs.clocks
    }

    /// Returns the numbers of queue pairs and steering tags in use.
    pub fn in_use(&self) -> (usize, usize) {
        (self.qps.len(), self.smt.len())
    }

    /// Returns the oldest pending event.
    pub fn event(&mut self) -> Option<Event> {
        self.outputs.events.pop_front()
    }

    /// Returns whether [`Rnic::event`] or [`Rnic::cq_event`] has something to return.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.outputs.events.is_empty() || !self.outputs.cq_events.is_empty()
    }

    // ---- memory

    /// Creates a protection domain.
    ///
    /// # Errors
    /// [`RequestError::TooMany`] if there are [`Config::pds_max`] protection domains.
    pub fn create_pd(&mut self) -> Result<u32, RequestError> {
        self.smt.create_pd()
    }

    /// Returns whether a protection domain exists.
    pub fn has_pd(&self, pd: u32) -> bool {
        self.smt.has_pd(pd)
    }

    /// Destroys a protection domain to which no object belongs.
    ///
    /// # Errors
    /// [`RequestError::UnknownPd`]; [`RequestError::InUse`] while an object belongs to it.
    pub fn destroy_pd(&mut self, pd: u32) -> Result<(), RequestError> {
        self.smt.destroy_pd(pd)
    }

    /// Registers `region` at its own address. Returns its steering tag, which the owner and peers use.
    ///
    /// # Errors
    /// [`RequestError::BadAccess`] if peers may write but the owner may not (RDMA verbs §7.3);
    /// [`RequestError::BadAddress`] if the range wraps; [`RequestError::TooMany`];
    /// [`RequestError::UnknownPd`].
    pub fn register(&mut self, pd: u32, region: Region, access: Access) -> Result<u32, RequestError> {
        let address = region.address();
        self.register_blocks(pd, address, alloc::vec![region], access)
    }

    /// Registers several memory regions as one contiguous range that begins at `address`, and returns its
    /// steering tag.
    ///
    /// # Errors
    /// Same as for [`Rnic::register`]; also [`RequestError::TooMany`] for more than [`Config::blocks_max`]
    /// regions.
    pub fn register_blocks(
        &mut self,
        pd: u32,
        address: u64,
        blocks: Vec<Region>,
        access: Access,
    ) -> Result<u32, RequestError> {
        self.smt.register(pd, address, blocks, access)
    }

    /// Allocates a steering tag without memory, for [`super::Operation::Register`].
    ///
    /// # Errors
    /// [`RequestError::TooMany`] if `blocks_max` exceeds [`Config::blocks_max`], or all steering tags are in
    /// use; [`RequestError::UnknownPd`].
    pub fn allocate(&mut self, pd: u32, blocks_max: usize) -> Result<u32, RequestError> {
        self.smt.allocate(pd, blocks_max)
    }

    /// Allocates a memory window, for [`super::Operation::Bind`]. A type 2 window belongs to the queue pair
    /// that binds it.
    ///
    /// # Errors
    /// [`RequestError::TooMany`] if all steering tags are in use; [`RequestError::UnknownPd`].
    pub fn allocate_window(&mut self, pd: u32, type_2: bool) -> Result<u32, RequestError> {
        self.smt.allocate_window(pd, type_2)
    }

    /// Deregisters memory or frees a window. From now on, no byte is accessed through this tag. The lower
    /// layer must drop its own references to the memory, which belong to segments that have not been sent.
    /// Returns the memory to its owner.
    ///
    /// # Errors
    /// [`RequestError::UnknownStag`]; [`RequestError::InUse`] while a window is bound to the memory.
    pub fn deregister(&mut self, stag: u32) -> Result<Vec<Region>, RequestError> {
        self.smt.remove(stag)
    }

    /// Exchanges the memory behind two steering tags. No window may be bound to either.
    ///
    /// # Errors
    /// [`RequestError::UnknownStag`]; [`RequestError::InUse`] if a window is bound to the memory, or a tag is
    /// that of a window.
    pub fn swap_memory(&mut self, one: u32, other: u32) -> Result<(), RequestError> {
        self.smt.exchange(one, other)
    }

    /// Returns the current steering tag, including the key that a work request may have changed.
    pub fn current_stag(&self, stag: u32) -> Option<u32> {
        self.smt.current_stag(stag)
    }

    /// Deregisters like [`Rnic::deregister`], but first unbinds all windows bound to the memory.
    ///
    /// # Errors
    /// [`RequestError::UnknownStag`].
    pub fn deregister_with_windows(&mut self, stag: u32) -> Result<Vec<Region>, RequestError> {
        self.smt.unbind_windows(stag);
        self.smt.remove(stag)
    }

    /// Returns memory invalidated since the last call. Lower layers must drop their references to it before
    /// the host sees the completion.
    #[inline]
    pub fn next_invalidated(&mut self) -> Option<Region> {
        self.smt.invalidated.pop()
    }

    // ---- completion queues

    /// Creates a completion queue that holds up to `entries` completions.
    ///
    /// # Errors
    /// [`RequestError::TooMany`] if `entries` exceeds [`Config::cq_entries_max`], or there are
    /// [`Config::cqs_max`] queues.
    pub fn create_cq(&mut self, entries: usize) -> Result<u32, RequestError> {
        if entries > self.config.cq_entries_max {
            return Err(RequestError::TooMany);
        }
        self.outputs.cqs.insert(CompletionQueue::new(entries)).ok_or(RequestError::TooMany)
    }

    /// Resizes a completion queue, but not below the number of completions in it.
    ///
    /// # Errors
    /// [`RequestError::TooMany`] if `entries` exceeds [`Config::cq_entries_max`];
    /// [`RequestError::UnknownCq`]; [`RequestError::InUse`] if the queue holds more completions than
    /// `entries`.
    pub fn resize_cq(&mut self, cq: u32, entries: usize) -> Result<(), RequestError> {
        if entries > self.config.cq_entries_max {
            return Err(RequestError::TooMany);
        }
        let queue = self.outputs.cqs.get_mut(cq).ok_or(RequestError::UnknownCq)?;
        if entries < queue.entries.len() {
            return Err(RequestError::InUse);
        }
        queue.most = entries;
        Ok(())
    }

    /// Destroys a completion queue, which no queue pair may use any more.
    ///
    /// # Errors
    /// [`RequestError::UnknownCq`]; [`RequestError::InUse`] while a queue pair uses it.
    pub fn destroy_cq(&mut self, cq: u32) -> Result<(), RequestError> {
        match self.outputs.cqs.get(cq) {
            None => Err(RequestError::UnknownCq),
            Some(queue) if queue.users > 0 => Err(RequestError::InUse),
            Some(_) => {
                self.outputs.cqs.remove(cq);
                self.outputs.cq_events.retain(|&event_cq| event_cq != cq);
                Ok(())
            }
        }
    }

    /// Removes and returns the oldest completion.
    ///
    /// # Errors
    /// [`RequestError::UnknownCq`].
    #[inline]
    pub fn poll(&mut self, cq: u32) -> Result<Option<Completion>, RequestError> {
        Ok(self.outputs.cqs.get_mut(cq).ok_or(RequestError::UnknownCq)?.entries.pop_front())
    }

    /// Returns whether the next completion of a queue is one of flushed work.
    #[inline]
    pub fn is_next_flushed(&self, cq: u32) -> bool {
        let next = self.outputs.cqs.get(cq).and_then(|queue| queue.entries.front());
        next.is_some_and(|completion| completion.status == super::Status::Flushed)
    }

    /// Requests one notification, through [`Rnic::cq_event`], for the next completion of this kind.
    ///
    /// # Errors
    /// [`RequestError::UnknownCq`].
    pub fn arm(&mut self, cq: u32, notify: Notify) -> Result<(), RequestError> {
        self.outputs.cqs.get_mut(cq).ok_or(RequestError::UnknownCq).map(|queue| queue.arm(notify))
    }

    /// Returns the next completion queue that has a notification for the host.
    #[inline]
    pub fn cq_event(&mut self) -> Option<u32> {
        self.outputs.cq_events.pop_front()
    }

    // ---- shared receive queues

    /// Creates a shared receive queue. With a limit, one [`Event::SrqLimit`] is raised when fewer receives
    /// than the limit are left.
    ///
    /// # Errors
    /// [`RequestError::TooMany`] if `work_max` exceeds [`Config::work_max`], or there are
    /// [`Config::srqs_max`] queues; [`RequestError::UnknownPd`].
    pub fn create_srq(&mut self, pd: u32, work_max: usize, limit: usize) -> Result<u32, RequestError> {
        if work_max > self.config.work_max {
            return Err(RequestError::TooMany);
        }
        self.smt.hold_pd(pd)?;
        let srq = SharedReceiveQueue {
            pd,
            wqes: VecDeque::new(),
            most: work_max,
            users: 0,
            limit,
            waiters: Vec::new(),
            xrc: None,
        };
        self.srqs.insert(srq).ok_or_else(|| {
            self.smt.release_pd(pd);
            RequestError::TooMany
        })
    }

    /// Sets the limit of a shared receive queue.
    ///
    /// # Errors
    /// [`RequestError::UnknownSrq`].
    pub fn set_srq_limit(&mut self, srq: u32, limit: usize) -> Result<(), RequestError> {
        self.srqs.get_mut(srq).ok_or(RequestError::UnknownSrq).map(|srq| srq.limit = limit)
    }

    /// Returns the capacity and the limit of a shared receive queue.
    ///
    /// # Errors
    /// [`RequestError::UnknownSrq`].
    pub fn query_srq(&self, srq: u32) -> Result<(usize, usize), RequestError> {
        self.srqs.get(srq).ok_or(RequestError::UnknownSrq).map(|srq| (srq.most, srq.limit))
    }

    /// Destroys a shared receive queue that no queue pair uses.
    ///
    /// # Errors
    /// [`RequestError::UnknownSrq`]; [`RequestError::InUse`] while a queue pair uses it.
    pub fn destroy_srq(&mut self, srq: u32) -> Result<(), RequestError> {
        match self.srqs.get(srq) {
            None => Err(RequestError::UnknownSrq),
            Some(queue) if queue.users > 0 => Err(RequestError::InUse),
            Some(queue) => {
                let (pd, xrc) = (queue.pd, queue.xrc);
                self.srqs.remove(srq);
                self.smt.release_pd(pd);
                self.release_xrc(xrc);
                Ok(())
            }
        }
    }

    /// Posts a receive that any queue pair of the shared receive queue may consume.
    ///
    /// # Errors
    /// [`RequestError::UnknownSrq`]; [`RequestError::Full`]; [`RequestError::TooManyElements`] if there are
    /// more than [`Config::sges_max`].
    pub fn post_srq_receive(&mut self, srq: u32, work: ReceiveWork) -> Result<(), RequestError> {
        let queue = self.srqs.get_mut(srq).ok_or(RequestError::UnknownSrq)?;
        if queue.wqes.len() >= queue.most {
            return Err(RequestError::Full);
        }
        if work.sges.len() > self.config.sges_max {
            return Err(RequestError::TooManyElements);
        }
        queue.wqes.push_back(work);
        self.outputs.resumed.append(&mut queue.waiters);
        Ok(())
    }

    // ---- helpers for other blocks

    /// Returns a queue pair, and the NIC-wide outputs.
    pub(super) fn qp(&mut self, qp: u32) -> Result<(&mut Qp, &mut Outputs), RequestError> {
        Ok((self.qps.get_mut(qp).ok_or(RequestError::UnknownQp)?, &mut self.outputs))
    }

    /// Fails the queue pairs whose completion queue has overrun.
    #[inline]
    pub(super) fn fail_overrun(&mut self) {
        if !self.outputs.overrun.is_empty() {
            self.fail_all_overrun();
        }
    }

    #[cold]
    fn fail_all_overrun(&mut self) {
        while let Some(cq) = self.outputs.overrun.pop() {
            for (_, qp) in self.qps.iter_mut() {
                if qp.attributes.send_cq == cq || qp.attributes.receive_cq == cq {
                    let last = Terminate { reason: Reason::LOCAL_ERROR, segment: None, read_request: None };
                    qp.fail(Some(last), None, &mut self.outputs);
                }
            }
        }
    }
}
