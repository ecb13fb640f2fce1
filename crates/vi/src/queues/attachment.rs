//! The board's side: it executes what a host posts, and reports completions.

use super::entries::*;
use crate::{
    AddressSegment, Completion, Event, MemoryAttributes, Nic, Operation, Reliability, RequestError,
    ViAttributes, Work,
};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use kiban_base::ring::{Consumer, Poisoned, Producer};
use kiban_base::{Instant, Region};

/// A connection that a host has requested.
#[derive(Debug)]
pub struct Call {
    /// Address of the remote host, in the driver's format.
    pub host: Vec<u8>,
    vi: u32,
    discriminator: Vec<u8>,
    patience: core::time::Duration,
    cookie: u64,
}

/// The board's side: the state kept for one host.
#[derive(Debug)]
pub struct Attachment {
    work: Consumer,
    done: Producer,
    arena: Region,
    tag: u32,
    queue: u32,
    vis_max: usize,
    vis: Vec<u32>,
    memories: Vec<u32>,
    listeners: Vec<Vec<u8>>,
    requests: Vec<u32>,
    calls: Vec<Call>,
    /// VIs whose connect request awaits a reply, and the cookie of each request.
    connecting: Vec<(u32, u64)>,
    /// Indications that did not fit into the completion ring.
    waiting: Vec<[u8; DONE_BYTES]>,
}

/// Maximum number of memory regions that one host can register, and also of discriminators at which it can
/// listen.
const MEMORIES_MAX: usize = 512;
const LISTENERS_MAX: usize = 8;
/// Maximum number of entries taken from one host before the next host is served.
const TURN_ENTRIES: usize = 64;
/// Maximum number of indications queued for a host that does not read them. Above this number, no more
/// entries are taken from that host.
const WAITING_MAX: usize = 256;

impl Attachment {
    /// Attaches a host with two new rings and its arena.
    ///
    /// # Errors
    /// [`RequestError::TooMany`] if the NIC has no protection tag or completion queue left.
    pub fn new(
        nic: &mut Nic,
        work: Consumer,
        done: Producer,
        arena: Region,
        vis_max: usize,
    ) -> Result<Attachment, RequestError> {
        let tag = nic.create_tag()?;
        let bound = nic.config().descriptors_max.saturating_mul(2).saturating_mul(vis_max.max(1));
        let queue = match nic.create_queue(bound) {
            Ok(queue) => queue,
            Err(refusal) => {
                nic.destroy_tag(tag)?;
                return Err(refusal);
            }
        };
        Ok(Attachment {
            work,
            done,
            arena,
            tag,
            queue,
            vis_max,
            vis: Vec::new(),
            memories: Vec::new(),
            listeners: Vec::new(),
            requests: Vec::new(),
            calls: Vec::new(),
            connecting: Vec::new(),
            waiting: Vec::new(),
        })
    }

    /// Returns whether a VI belongs to this host.
    pub fn has(&self, vi: u32) -> bool {
        self.vis.contains(&vi)
    }

    /// Returns whether the host has posted an entry. This costs one load.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.work.is_ready()
    }

    /// Returns whether no more entries are processed, because the host does not read its indications.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    /// Executes the entries that the host has posted and returns how many. Call [`Attachment::call`]
    /// afterwards.
    ///
    /// # Errors
    /// [`Poisoned`] if the host violated the ring's protocol: end the attachment.
    pub fn drain(&mut self, nic: &mut Nic, now: Instant) -> Result<usize, Poisoned> {
        let mut taken = 0;
        while taken < TURN_ENTRIES && self.waiting.len() < WAITING_MAX {
            let mut entry = Entry { bytes: [0; ENTRY_BYTES], length: 0 };
            match self.work.peek()? {
                None => break,
                // The entry is copied once, and only the copy is validated.
                Some(bytes) => entry.length = bytes.copy_to(0, &mut entry.bytes).min(bytes.len()),
            }
            self.work.release();
            taken += 1;
            self.act(&entry, nic, now);
        }
        Ok(taken)
    }

    fn act(&mut self, entry: &Entry, nic: &mut Nic, now: Instant) {
        let (kind, cookie) = (entry.bytes[0], entry.long(8));
        if matches!(kind, op::RECEIVE | op::SEND | op::WRITE | op::READ) {
            if let Err(denied) = self.post(entry, nic) {
                self.reply(cookie, Err(denied));
            }
            return;
        }
        if kind == op::CONNECT {
            match self.call_of(entry) {
                Ok(call) => self.calls.push(call),
                Err(denied) => self.reply(cookie, Err(denied)),
            }
            return;
        }
        let result = self.control(entry, nic, now);
        self.reply(cookie, result);
    }

    fn own_vi(&self, vi: u32) -> Result<u32, ControlError> {
        if self.has(vi) { Ok(vi) } else { Err(ControlError::NotYours) }
    }

    fn post(&mut self, entry: &Entry, nic: &mut Nic) -> Result<(), ControlError> {
        let vi = self.own_vi(entry.word(4))?;
        let segments = entry.segments().ok_or(ControlError::Garbage)?;
        let cookie = entry.long(8);
        if entry.bytes[0] == op::RECEIVE {
            return Ok(nic.post_receive(vi, cookie, &segments)?);
        }
        let remote = AddressSegment { address: entry.long(24), handle: entry.word(20) };
        let operation = match entry.bytes[0] {
            op::SEND => Operation::Send,
            op::WRITE => Operation::Write(remote),
            _ => Operation::Read(remote),
        };
        let immediate = (entry.bytes[1] & 1 != 0).then_some(entry.word(16));
        let work = Work { cookie, operation, segments: &segments, immediate, fence: entry.bytes[1] & 2 != 0 };
        Ok(nic.post_send(vi, work)?)
    }

    fn call_of(&self, entry: &Entry) -> Result<Call, ControlError> {
        let vi = self.own_vi(entry.word(4))?;
        let (host, discriminator) = entry.names().ok_or(ControlError::Garbage)?;
        Ok(Call {
            host: host.to_vec(),
            vi,
            discriminator: discriminator.to_vec(),
            patience: core::time::Duration::from_millis(entry.word(16).into()),
            cookie: entry.long(8),
        })
    }

    /// Returns the next connection that the host requested. The driver then finds a path to `Call::host`.
    pub fn call(&mut self) -> Option<Call> {
        if self.calls.is_empty() { None } else { Some(self.calls.remove(0)) }
    }

    /// Sends the request of a call over `path`, or denies it if `path` is `None`.
    pub fn connect(&mut self, call: &Call, path: Option<u32>, nic: &mut Nic, now: Instant) {
        let names = (&[][..], &call.discriminator[..]);
        let requested = path
            .ok_or(ControlError::Unreachable)
            .and_then(|path| Ok(nic.request(call.vi, path, names, false, now, now + call.patience)?));
        match requested {
            Ok(()) => self.connecting.push((call.vi, call.cookie)),
            Err(denied) => self.reply(call.cookie, Err(denied)),
        }
    }

    fn control(&mut self, entry: &Entry, nic: &mut Nic, now: Instant) -> Result<u32, ControlError> {
        let number = entry.word(4);
        let (write, read) = (entry.bytes[1] & 1 != 0, entry.bytes[1] & 2 != 0);
        match entry.bytes[0] {
            op::CREATE_VI => {
                if self.vis.len() >= self.vis_max {
                    return Err(ControlError::TooMany);
                }
                let reliability = match entry.word(16) {
                    0 => Reliability::Unreliable,
                    1 => Reliability::Delivery,
                    2 => Reliability::Reception,
                    _ => return Err(ControlError::Garbage),
                };
                let attributes = ViAttributes {
                    reliability,
                    transfer_bytes_max: entry.word(20),
                    qos: 0,
                    tag: self.tag,
                    rdma_write: write,
                    rdma_read: read,
                };
                let vi = nic.create_vi(attributes, Some(self.queue), Some(self.queue))?;
                self.vis.push(vi);
                Ok(vi)
            }
            op::DESTROY_VI => {
                nic.destroy_vi(self.own_vi(number)?)?;
                self.vis.retain(|vi| *vi != number);
                Ok(0)
            }
            op::REGISTER => {
                if self.memories.len() >= MEMORIES_MAX {
                    return Err(ControlError::TooMany);
                }
                let part = self
                    .arena
                    .part(entry.long(24), entry.word(16) as usize)
                    .ok_or(ControlError::OutOfRange)?;
                let attributes = MemoryAttributes { tag: self.tag, rdma_write: write, rdma_read: read };
                let handle = nic.register(part, attributes)?;
                self.memories.push(handle);
                Ok(handle)
            }
            op::DEREGISTER => {
                let place =
                    self.memories.iter().position(|own| *own == number).ok_or(ControlError::NotYours)?;
                self.memories.swap_remove(place);
                nic.deregister(number)?;
                Ok(0)
            }
            op::LISTEN => {
                let (discriminator, _) = entry.names().ok_or(ControlError::Garbage)?;
                if self.listeners.len() >= LISTENERS_MAX {
                    return Err(ControlError::TooMany);
                }
                if nic.listens(discriminator) {
                    return Err(ControlError::BadState);
                }
                nic.listen(discriminator)?;
                self.listeners.push(discriminator.to_vec());
                Ok(0)
            }
            op::ACCEPT | op::REJECT => {
                let request = if entry.bytes[0] == op::ACCEPT { entry.word(16) } else { number };
                if !self.requests.contains(&request) {
                    return Err(ControlError::NotYours);
                }
                match entry.bytes[0] {
                    op::ACCEPT => nic.accept(request, self.own_vi(number)?, now)?,
                    _ => nic.reject(request)?,
                }
                self.requests.retain(|own| *own != request);
                Ok(0)
            }
            op::DISCONNECT => {
                nic.disconnect(self.own_vi(number)?)?;
                self.connecting.retain(|(vi, _)| *vi != number);
                Ok(0)
            }
            _ => Err(ControlError::Garbage),
        }
    }

    fn reply(&mut self, cookie: u64, result: Result<u32, ControlError>) {
        let mut bytes = [0; DONE_BYTES];
        bytes[0] = indication_kind::REPLY;
        match result {
            Ok(value) => bytes[4..8].copy_from_slice(&value.to_ne_bytes()),
            Err(denied) => bytes[1] = denied as u8,
        }
        bytes[8..16].copy_from_slice(&cookie.to_ne_bytes());
        self.waiting.push(bytes);
    }

    /// Handles an event of the NIC and returns whether it concerned this host.
    pub fn on_event(&mut self, event: Event) -> bool {
        let (vi, fault) = match event {
            Event::ConnectionLost { vi, fault } => (vi, fault),
            // The host learns about these events from descriptor statuses.
            Event::ReceiveQueueEmpty { vi } | Event::RdmaProtection { vi, .. } => return self.has(vi),
            Event::CompletionQueueFull { queue } => return queue == self.queue,
        };
        if !self.has(vi) {
            return false;
        }
        let mut bytes = [0; DONE_BYTES];
        bytes[0] = indication_kind::LOST;
        bytes[4..8].copy_from_slice(&vi.to_ne_bytes());
        bytes[16..20].copy_from_slice(&fault.to_ne_bytes());
        self.waiting.push(bytes);
        true
    }

    /// Writes pending indications into the host's ring, as long as it has room, and returns whether it wrote
    /// any.
    ///
    /// # Errors
    /// [`Poisoned`] if the host violated the ring's protocol: end the attachment.
    pub fn deliver_indications(&mut self, nic: &mut Nic) -> Result<bool, Poisoned> {
        let mut replies: ArrayVec<(u64, Result<u32, ControlError>), 16> = ArrayVec::new();
        self.connecting.retain(|(vi, cookie)| {
            if replies.is_full() {
                return true;
            }
            match nic.outcome(*vi) {
                Ok(None) => true,
                Ok(Some(outcome)) => {
                    replies.push((*cookie, outcome.map(|_| 0).map_err(ControlError::from)));
                    false
                }
                Err(refusal) => {
                    replies.push((*cookie, Err(refusal.into())));
                    false
                }
            }
        });
        replies.into_iter().for_each(|(cookie, result)| self.reply(cookie, result));
        let Attachment { waiting, listeners, requests, done, queue, .. } = self;
        requests.retain(|request| nic.has_request(*request));
        for discriminator in listeners.iter() {
            while waiting.len() < WAITING_MAX
                && let Some(request) = nic.request_at(discriminator)
            {
                let mut bytes = [0; DONE_BYTES];
                bytes[0] = indication_kind::REQUEST;
                bytes[4..8].copy_from_slice(&request.number.to_ne_bytes());
                waiting.push(bytes);
                requests.push(request.number);
            }
        }
        let mut posted = false;
        let sent = waiting.iter().map_while(|bytes| match done.push(bytes) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(condemned) => Some(Err(condemned)),
        });
        let count = sent.collect::<Result<Vec<_>, _>>()?.len();
        waiting.drain(..count);
        posted |= count > 0;
        // While the ring is full, completions wait in the NIC in order.
        while waiting.is_empty() && done.room()?.is_some() {
            let Ok(Some((vi, receive))) = nic.queue_done(*queue) else { break };
            let next = if receive { nic.receive_done(vi) } else { nic.send_done(vi) };
            let Ok(Some(one)) = next else { continue };
            done.push(&done_entry(vi, &one))?;
            posted = true;
        }
        Ok(posted)
    }

    /// Detaches the host and releases everything it owned.
    pub fn end(self, nic: &mut Nic) {
        self.listeners.iter().for_each(|discriminator| nic.unlisten(discriminator));
        for request in self.requests {
            let _ = nic.reject(request);
        }
        for vi in self.vis {
            let _ = nic.disconnect(vi);
            while matches!(nic.send_done(vi), Ok(Some(_))) || matches!(nic.receive_done(vi), Ok(Some(_))) {}
            nic.destroy_vi(vi).expect("it is idle, and its queues are empty");
        }
        for handle in self.memories {
            let _ = nic.deregister(handle);
        }
        nic.destroy_queue(self.queue).expect("no VI has it any more");
        nic.destroy_tag(self.tag).expect("nothing has it any more");
    }
}

fn done_entry(vi: u32, done: &Completion) -> [u8; DONE_BYTES] {
    let mut bytes = [0; DONE_BYTES];
    bytes[0] = indication_kind::DONE;
    bytes[1] = done.kind as u8;
    bytes[2] = u8::from(done.immediate.is_some());
    bytes[4..8].copy_from_slice(&vi.to_ne_bytes());
    bytes[8..16].copy_from_slice(&done.cookie.to_ne_bytes());
    bytes[16..20].copy_from_slice(&done.status.0.to_ne_bytes());
    bytes[20..24].copy_from_slice(&done.length.to_ne_bytes());
    bytes[24..28].copy_from_slice(&done.immediate.unwrap_or(0).to_ne_bytes());
    bytes
}
