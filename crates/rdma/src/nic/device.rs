//! The NIC: its tables, the memory that it releases, and its timers.

use super::connection::{CmEvent, ConnectError, OpenError};
use super::end::{End, Transport, Waiting};
use crate::efe::FlowNumber;
use crate::rnic::{Config, QpState, RequestError, Rnic};
use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;
use kiban_base::{Instant, Region, RngKey, SecureRng, Slab};

/// An RDMA NIC with connections.
#[derive(Debug)]
pub struct Nic {
    /// The core: memory, queues, work.
    pub core: Rnic,
    pub(super) ends: Slab<End>,
    pub(super) of_qp: BTreeMap<u32, u32>,
    pub(super) of_flow: BTreeMap<FlowNumber, u32>,
    pub(super) waiting: Waiting,
    pub(super) timers: BinaryHeap<Reverse<(Instant, u32)>>,
    pub(super) tx_queue: VecDeque<u32>,
    pub(super) events: VecDeque<CmEvent>,
    pub(super) start_timeout: Duration,
    pub(super) answer_timeout: Duration,
    pub(super) waiting_max: usize,
    /// Byte-stream ends to be resumed, found while EFE flows were processed.
    pub(super) resumable: Vec<u32>,
}

impl Nic {
    /// Creates a NIC. `key` seeds the random number generator for its steering tags and numbers.
    pub fn new(config: Config, key: RngKey) -> Nic {
        let most = config.qps_max.saturating_mul(2);
        let mut rng = SecureRng::new(key);
        let salt = rng.draw_u32();
        let Config { start_timeout, answer_timeout, waiting_max, .. } = config;
        Nic {
            core: Rnic::new(config, rng.draw_key()),
            ends: Slab::new(most, salt),
            of_qp: BTreeMap::new(),
            of_flow: BTreeMap::new(),
            waiting: Waiting::default(),
            timers: BinaryHeap::new(),
            tx_queue: VecDeque::new(),
            events: VecDeque::new(),
            start_timeout,
            answer_timeout,
            waiting_max,
            resumable: Vec::new(),
        }
    }

    /// Returns the next connection event.
    pub fn poll(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// Returns whether a connection event is pending.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the number of ends.
    pub fn ends(&self) -> usize {
        self.ends.len()
    }

    /// Returns the queue pair that belongs to an end.
    pub fn qp_of(&self, end: u32) -> Option<u32> {
        self.ends.get(end)?.qp
    }

    /// Returns the end that belongs to a queue pair.
    pub fn end_of(&self, qp: u32) -> Option<u32> {
        self.of_qp.get(&qp).copied()
    }

    /// Returns whether an end's connection is established and has not ended.
    pub fn is_established(&self, end: u32) -> bool {
        self.ends.get(end).is_some_and(|end| end.is_established && !matches!(end.below, Transport::Nothing))
    }

    /// Checks that a queue pair can be connected: it has no connection, is in its initial state and is not
    /// for datagrams.
    pub(super) fn check_free(&self, qp: u32) -> Result<(), OpenError> {
        let end = self.end_of(qp).and_then(|end| self.ends.get(end));
        let is_idle = matches!(self.core.query_qp(qp), Ok((_, QpState::Idle, _)));
        let has_streams = self.core.datagram_state(qp) == Err(RequestError::OtherKind);
        match is_idle && has_streams && end.is_none_or(|end| matches!(end.below, Transport::Nothing)) {
            true => Ok(()),
            false => Err(OpenError::InUse),
        }
    }

    /// Resets a queue pair and detaches it from its connection, which then closes.
    ///
    /// # Errors
    /// [`RequestError::UnknownQp`]; [`RequestError::BadState`] unless the queue pair is idle or in error.
    pub fn reset(&mut self, qp: u32) -> Result<(), RequestError> {
        self.core.reset(qp)?;
        if let Some(number) = self.of_qp.remove(&qp)
            && let Some(end) = self.ends.get_mut(number)
        {
            end.qp = None;
            if let Transport::Stream(stream) = &mut end.below {
                stream.detach();
            }
            self.schedule(number);
        }
        Ok(())
    }

    pub(super) fn add(
        &mut self,
        below: Transport,
        qp: Option<u32>,
        listener: Option<u32>,
        now: Instant,
    ) -> Option<u32> {
        let until = now + self.start_timeout;
        let end =
            End { below, qp, listener, until, is_established: false, failed: false, is_scheduled: false };
        let number = self.ends.insert(end)?;
        if let Some(qp) = qp {
            self.of_qp.insert(qp, number);
        }
        self.timers.push(Reverse((until, number)));
        Some(number)
    }

    /// Deregisters memory: its steering tag becomes invalid, and streams drop their references to it.
    ///
    /// # Errors
    /// The tag is unknown, or windows are bound to the memory.
    pub fn deregister(&mut self, stag: u32) -> Result<Vec<Region>, RequestError> {
        let blocks = self.core.deregister(stag)?;
        Ok(self.let_go_all(blocks))
    }

    /// Deregisters like [`Nic::deregister`], but first unbinds all windows bound to the memory.
    ///
    /// # Errors
    /// The tag is unknown.
    pub fn deregister_with_windows(&mut self, stag: u32) -> Result<Vec<Region>, RequestError> {
        let blocks = self.core.deregister_with_windows(stag)?;
        Ok(self.let_go_all(blocks))
    }

    pub(super) fn let_go_all(&mut self, blocks: Vec<Region>) -> Vec<Region> {
        blocks.iter().for_each(|block| self.release_memory(block));
        self.release_invalidated();
        blocks
    }

    pub(super) fn release_memory(&mut self, memory: &Region) {
        for (_, end) in self.ends.iter_mut() {
            if let Transport::Stream(stream) = &mut end.below {
                stream.release_memory(memory);
            }
        }
    }

    /// Makes streams drop their references to invalidated memory. A driver calls it after each round of work,
    /// before its host polls.
    #[inline]
    pub fn release_invalidated(&mut self) {
        while let Some(memory) = self.core.next_invalidated() {
            self.release_memory(&memory);
        }
    }

    /// Returns the next deadline.
    pub fn deadline(&self) -> Instant {
        self.timers.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at)
    }

    /// Gives up connections that were not established in time.
    pub fn settle(&mut self, now: Instant) {
        while let Some(&Reverse((at, number))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            let Some(end) = self.ends.get(number) else { continue };
            if !end.is_established && end.until <= now {
                self.fail(number, ConnectError::Timeout);
            }
        }
    }
}
