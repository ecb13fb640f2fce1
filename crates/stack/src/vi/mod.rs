//! The VI Architecture (1.0, Compaq, Intel, Microsoft, 16 December 1997): a NIC with virtual interfaces, as a state machine.
//!
//! Goal      programs move data between their memories without the operating system in between; how a loss shows is
//!           chosen by the reliability level.
//! Host      VIs with a send and a receive queue each, registered memory under protection tags, completion queues,
//!           connections by request or between peers. Descriptors are posted and dequeued; nothing here waits.
//! Down      [`Nic::fetch`]: a link that can take a packet asks for one and lends the room; payload is copied once, from
//!           the host's memory into the link's. VIs take turns, a packet each.
//! Up        [`Nic::arrive`]: payload is copied once, into the memory of the descriptor or the place of an RDMA Write. What
//!           comes from shared memory is copied before it is judged.
//! Owed      acknowledgements are paid by [`Nic::settle`], when the host has had its chance to answer: the answer carries
//!           them.
//! Paths     a path is the way to one other NIC. One that *loses nothing* (a ring, a cLAN-like link) needs no timers;
//!           elsewhere packets are sent again from the first that is missing (go-back-N), within a window that halves at a
//!           loss.
//! Levels
//!
//! ```text
//!                           unreliable delivery   reliable delivery          reliable reception
//! a descriptor completes    its data has left     same, or is acknowledged*  its data is in the peer's memory
//! lost or doubled packets   message lost          mended                     mended
//! receive queue dry         message lost          connection lost**          sender waits
//! an error                  that descriptor's     connection lost            connection lost, and the descriptor says why
//! RDMA Read                 no                    yes                        yes
//! ```
//!
//! (*) where the path may lose packets, since the data may be needed again. (**) after [`Config::dry_patience`], which is
//! zero as in the VI Architecture.
//!
//! Limits    every table and queue has a bound in [`Config`]; refusals say which.
//! Left out  quality of service is compared, not provided; transfer sizes are compared as the architecture asks.

mod config;
mod connection;
mod endpoint;
mod memory;
mod receive;
mod send;
mod setup;
mod work;

pub use config::Config;
pub use memory::MemoryAttributes;
pub use setup::{ConnectError, Remoteness, Request};
pub use work::{Done, DoneAs, Operation, Remote, Segment, Status, Work};

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::fmt;
use endpoint::Vi;
use kiban_ground::{Instant, Region, RngKey, SecureRng, SharedRoom, Slab};
use kiban_wire::vi::{self as wire, SETUP_PACKET_BYTES_MAX, fault};
use memory::Registry;
use setup::Incoming;

kiban_ground::counters! {
    /// What happened in a VI NIC.
    pub struct ViCounters {
        /// Packets that arrived.
        packets_in,
        /// Packets that left.
        packets_out,
        /// Packets that break a rule of the format.
        malformed,
        /// Packets for a VI that is not there, or not connected to their sender.
        no_vi,
        /// Payload bytes copied, out of the host's memory and into it.
        bytes_copied,
        /// Messages received whole.
        messages_in,
        /// Messages of an unreliable sender that found no receive descriptor.
        dry,
        /// Packets that came before one that is missing.
        gaps,
        /// Packets that had come already.
        doubled,
        /// Times that packets were sent again.
        resends,
        /// Connections that broke.
        broken,
        /// Events that found their queue full.
        events_dropped,
        /// Completions that found their completion queue full.
        completions_dropped,
    }
}

/// How safely messages travel. Both ends of a connection have the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reliability {
    /// At most once, in order; losses are silent.
    Unreliable = 0,
    /// Exactly once, in order, or the connection is lost.
    Delivery = 1,
    /// The same, and done means: in the peer's memory.
    Reception = 2,
}

impl Reliability {
    const ALL: [Reliability; 3] = [Reliability::Unreliable, Reliability::Delivery, Reliability::Reception];
}

/// What a VI is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ViAttributes {
    /// The level. Both ends have the same.
    pub reliability: Reliability,
    /// Bytes of the longest message. Both ends have the same.
    pub transfer_bytes_max: u32,
    /// Quality of service, opaque. Both ends have the same.
    pub qos: u64,
    /// The protection tag.
    pub tag: u32,
    /// Whether the peer may write to memory that allows it.
    pub rdma_write: bool,
    /// Whether the peer may read memory that allows it. Never of an unreliable VI.
    pub rdma_read: bool,
}

/// Where a VI stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ViState {
    /// Not connected. Receive descriptors may be posted.
    Idle,
    /// A request of ours is under way.
    ConnectPending,
    /// Connected.
    Connected,
    /// The connection broke: everything is flushed; [`Nic::disconnect`] leads back to idle.
    Error,
}

/// Something that a host is told beside its descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A VI's connection is lost; the code is one of `kiban_wire::vi::fault`.
    ConnectionLost {
        /// Which VI.
        vi: u32,
        /// Why.
        fault: u32,
    },
    /// A message found no receive descriptor.
    ReceiveQueueEmpty {
        /// Which VI.
        vi: u32,
    },
    /// A peer's RDMA operation was refused.
    RdmaProtection {
        /// Which VI.
        vi: u32,
        /// Whether it was a write.
        write: bool,
    },
    /// A completion queue was too small: a completion is lost.
    CompletionQueueFull {
        /// Which queue.
        queue: u32,
    },
}

/// Why the NIC did not do what the host asked. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No such protection tag.
    UnknownTag,
    /// No such registered memory.
    UnknownMemory,
    /// No such VI.
    UnknownVi,
    /// No such completion queue.
    UnknownQueue,
    /// No such request to connect: answered, withdrawn, or given up.
    UnknownRequest,
    /// No such path.
    UnknownPath,
    /// Others use it.
    InUse,
    /// A bound of [`Config`] is reached.
    TooMany,
    /// The VI's state does not allow it.
    BadState(ViState),
    /// The ends differ in reliability.
    Reliability,
    /// The longest message differs from the peer's, or is longer than the NIC takes.
    TransferBytes,
    /// The ends differ in quality of service.
    Qos,
    /// An unreliable VI takes no RDMA Read.
    RdmaRead,
    /// A discriminator is too long.
    BadAddress,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::UnknownTag => "no such protection tag: create one, or use the one of your VI",
            Refusal::UnknownMemory => {
                "no such registered memory: its handle was never given, or is deregistered"
            }
            Refusal::UnknownVi => "no such VI: it was never made, or has been destroyed",
            Refusal::UnknownQueue => "no such completion queue: it was never made, or has been destroyed",
            Refusal::UnknownRequest => "no such request to connect: it is answered, withdrawn or given up",
            Refusal::UnknownPath => "there is no way to that NIC",
            Refusal::InUse => "others still use it: release them first",
            Refusal::TooMany => {
                "the NIC has no more of these: release some, or raise the bound in its settings"
            }
            Refusal::BadState(ViState::Idle) => "the VI is idle: connect it first",
            Refusal::BadState(ViState::ConnectPending) => "the VI is connecting: wait for the answer",
            Refusal::BadState(ViState::Connected) => "the VI is connected: disconnect it first",
            Refusal::BadState(ViState::Error) => "the VI's connection broke: disconnect it first",
            Refusal::Reliability => "the two ends have different reliability levels: make the VIs alike",
            Refusal::TransferBytes => {
                "the longest message differs from the peer's or exceeds the NIC's: choose one that both have"
            }
            Refusal::Qos => "the two ends have different qualities of service: make the VIs alike",
            Refusal::RdmaRead => "RDMA Read needs a reliable VI: choose reliable delivery or reception",
            Refusal::BadAddress => "the address's discriminator is longer than the NIC takes",
        })
    }
}

impl core::error::Error for Refusal {}

/// What a path is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathTraits {
    /// Bytes of the longest packet, header included.
    pub packet_bytes: usize,
    /// Whether every packet arrives, once and in order.
    pub loses_nothing: bool,
    /// Whether packets carry a check, and those without are dropped.
    pub checked: bool,
}

#[derive(Debug)]
struct Path {
    traits: PathTraits,
    /// Short packets that stand before all others: set-up, ends, refusals.
    letters: VecDeque<Letter>,
    /// VIs that may have something to send, each once.
    ready: VecDeque<u32>,
}

/// Letters of one path at most; more are from peers that ask faster than they listen, and are dropped.
const LETTERS_MAX: usize = 256;

/// A short packet, whole.
type Letter = ArrayVec<u8, SETUP_PACKET_BYTES_MAX>;

/// A completion queue.
#[derive(Debug)]
struct CompletionQueue {
    entries: VecDeque<(u32, bool)>,
    most: usize,
    users: usize,
}

/// Where protocols leave what is for others: letters, events, completions.
#[derive(Debug)]
struct Desk {
    letters: Vec<(u32, Letter)>,
    events: VecDeque<Event>,
    events_max: usize,
    queues: Slab<CompletionQueue>,
    /// VIs that owe an acknowledgement which can wait for the host.
    owing: Vec<u32>,
    /// VIs that may have something to send now.
    ready: Vec<u32>,
    counters: ViCounters,
    /// Something has happened that the host should look at.
    news: bool,
    /// No VI acts by itself before this; may be early.
    due: Instant,
}

impl Desk {
    fn event(&mut self, event: Event) {
        self.news = true;
        if self.events.len() < self.events_max {
            self.events.push_back(event);
        } else {
            self.counters.events_dropped += 1;
        }
    }

    /// A descriptor of a queue is done.
    #[inline]
    fn completion(&mut self, queue: Option<u32>, vi: u32, receive: bool) {
        self.news = true;
        let Some(number) = queue else { return };
        let Some(queue) = self.queues.get_mut(number) else { return };
        if queue.entries.len() < queue.most {
            queue.entries.push_back((vi, receive));
        } else {
            self.counters.completions_dropped += 1;
            self.event(Event::CompletionQueueFull { queue: number });
        }
    }

    fn due_at(&mut self, at: Instant) {
        self.due = self.due.min(at);
    }
}

/// A VI NIC.
#[derive(Debug)]
pub struct Nic {
    config: Config,
    memory: Registry,
    vis: Slab<Vi>,
    paths: Slab<Path>,
    incoming: Slab<Incoming>,
    listeners: Vec<Vec<u8>>,
    desk: Desk,
    rng: SecureRng,
}

impl Nic {
    /// A NIC, whose keys come from a generator under `key`.
    pub fn new(config: Config, key: RngKey) -> Nic {
        let mut rng = SecureRng::new(key);
        let mut salt = || rng.draw_u32();
        Nic {
            memory: Registry::new(config.memories_max, config.tags_max, salt()),
            vis: Slab::new(config.vis_max, salt()),
            paths: Slab::new(1 << 16, 0),
            incoming: Slab::new(config.requests_max, salt()),
            listeners: Vec::new(),
            desk: Desk {
                letters: Vec::new(),
                events: VecDeque::new(),
                events_max: config.events_max,
                queues: Slab::new(config.completion_queues_max, salt()),
                owing: Vec::new(),
                ready: Vec::new(),
                counters: ViCounters::default(),
                news: false,
                due: Instant::NEVER,
            },
            config,
            rng,
        }
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What has been counted.
    pub fn counters(&self) -> &ViCounters {
        &self.desk.counters
    }

    /// Whether a request to connect still waits for its answer.
    pub fn has_request(&self, request: u32) -> bool {
        self.incoming.get(request).is_some()
    }

    /// VIs and memories that there are now.
    pub fn in_use(&self) -> (usize, usize) {
        (self.vis.len(), self.memory.len())
    }

    // ---- memory

    /// A new protection tag.
    pub fn create_tag(&mut self) -> Result<u32, Refusal> {
        self.memory.create_tag()
    }

    /// Gives a tag back that no VI and no memory has.
    pub fn destroy_tag(&mut self, tag: u32) -> Result<(), Refusal> {
        self.memory.destroy_tag(tag)
    }

    /// Registers memory: its handle.
    pub fn register(&mut self, region: Region, attributes: MemoryAttributes) -> Result<u32, Refusal> {
        self.memory.register(region, attributes)
    }

    /// Forgets a memory at once: descriptors that name it end with an error. The region, for its owner.
    pub fn deregister(&mut self, handle: u32) -> Result<Region, Refusal> {
        self.memory.deregister(handle)
    }

    /// What a memory allows.
    pub fn memory_attributes(&self, handle: u32) -> Result<MemoryAttributes, Refusal> {
        self.memory.attributes(handle)
    }

    /// Changes what a memory allows.
    pub fn set_memory_attributes(
        &mut self,
        handle: u32,
        attributes: MemoryAttributes,
    ) -> Result<(), Refusal> {
        self.memory.set_attributes(handle, attributes)
    }

    // ---- completion queues

    /// A completion queue for `entries` completions.
    pub fn create_queue(&mut self, entries: usize) -> Result<u32, Refusal> {
        let queue = CompletionQueue { entries: VecDeque::new(), most: entries, users: 0 };
        self.desk.queues.insert(queue).ok_or(Refusal::TooMany)
    }

    /// Changes the room of a completion queue; not below what waits in it.
    pub fn resize_queue(&mut self, queue: u32, entries: usize) -> Result<(), Refusal> {
        let queue = self.desk.queues.get_mut(queue).ok_or(Refusal::UnknownQueue)?;
        if entries < queue.entries.len() {
            return Err(Refusal::InUse);
        }
        queue.most = entries;
        Ok(())
    }

    /// Gives a completion queue back that no VI has.
    pub fn destroy_queue(&mut self, queue: u32) -> Result<(), Refusal> {
        match self.desk.queues.get(queue) {
            None => Err(Refusal::UnknownQueue),
            Some(CompletionQueue { users: 1.., .. }) => Err(Refusal::InUse),
            Some(_) => self.desk.queues.remove(queue).map(|_| ()).ok_or(Refusal::UnknownQueue),
        }
    }

    /// The next completion: which VI has a done descriptor to dequeue, and whether on its receive queue.
    #[inline]
    pub fn queue_done(&mut self, queue: u32) -> Result<Option<(u32, bool)>, Refusal> {
        Ok(self.desk.queues.get_mut(queue).ok_or(Refusal::UnknownQueue)?.entries.pop_front())
    }

    // ---- VIs

    /// A new VI, idle; its completions go to the given queues as well.
    pub fn create_vi(
        &mut self,
        attributes: ViAttributes,
        send_queue: Option<u32>,
        receive_queue: Option<u32>,
    ) -> Result<u32, Refusal> {
        self.check(&attributes)?;
        for queue in [send_queue, receive_queue].into_iter().flatten() {
            self.desk.queues.get(queue).ok_or(Refusal::UnknownQueue)?;
        }
        self.memory.hold_tag(attributes.tag)?;
        let Some(vi) = self.vis.insert(Vi::new(attributes, send_queue, receive_queue)) else {
            self.memory.release_tag(attributes.tag);
            return Err(Refusal::TooMany);
        };
        for queue in [send_queue, receive_queue].into_iter().flatten() {
            if let Some(queue) = self.desk.queues.get_mut(queue) {
                queue.users += 1;
            }
        }
        Ok(vi)
    }

    fn check(&self, attributes: &ViAttributes) -> Result<(), Refusal> {
        if attributes.reliability == Reliability::Unreliable && attributes.rdma_read {
            return Err(Refusal::RdmaRead);
        }
        if attributes.transfer_bytes_max as usize > self.config.transfer_bytes_max {
            return Err(Refusal::TransferBytes);
        }
        Ok(())
    }

    /// Destroys a VI that is idle and whose queues are empty.
    pub fn destroy_vi(&mut self, number: u32) -> Result<(), Refusal> {
        let vi = self.vis.get(number).ok_or(Refusal::UnknownVi)?;
        if vi.state != ViState::Idle {
            return Err(Refusal::BadState(vi.state));
        }
        if vi.send.len() + vi.receive.len() > 0 {
            return Err(Refusal::InUse);
        }
        let vi = self.vis.remove(number).ok_or(Refusal::UnknownVi)?;
        self.desk.news = true;
        self.memory.release_tag(vi.attributes.tag);
        for queue in [vi.send_queue, vi.receive_queue].into_iter().flatten() {
            if let Some(queue) = self.desk.queues.get_mut(queue) {
                queue.users = queue.users.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// Where a VI stands, what it is made with, and whether its send and receive queues are empty.
    pub fn vi(&self, vi: u32) -> Result<(ViState, ViAttributes, bool, bool), Refusal> {
        let vi = self.vis.get(vi).ok_or(Refusal::UnknownVi)?;
        Ok((vi.state, vi.attributes, vi.send.len() == 0, vi.receive.len() == 0))
    }

    /// The completion queues of a VI: for sends, for receives.
    pub fn queues_of(&self, vi: u32) -> Result<(Option<u32>, Option<u32>), Refusal> {
        let vi = self.vis.get(vi).ok_or(Refusal::UnknownVi)?;
        Ok((vi.send_queue, vi.receive_queue))
    }

    /// Changes what an idle VI is made with.
    pub fn set_vi(&mut self, number: u32, attributes: ViAttributes) -> Result<(), Refusal> {
        self.check(&attributes)?;
        let vi = self.vis.get_mut(number).ok_or(Refusal::UnknownVi)?;
        if vi.state != ViState::Idle {
            return Err(Refusal::BadState(vi.state));
        }
        self.memory.hold_tag(attributes.tag)?;
        self.memory.release_tag(vi.attributes.tag);
        vi.attributes = attributes;
        Ok(())
    }

    // ---- work

    /// Posts a descriptor to a send queue. Of a VI in error it is flushed at once. What is wrong with the descriptor
    /// itself shows when it is done.
    pub fn post_send(&mut self, number: u32, work: Work<'_>) -> Result<(), Refusal> {
        self.post_judged_send(number, work, Status::OK)
    }

    /// The same, of a descriptor in which the host edge has found a fault already (a reserved bit, say): it keeps its
    /// place in the queue, and shows `status` when it is done.
    pub fn post_judged_send(&mut self, number: u32, work: Work<'_>, status: Status) -> Result<(), Refusal> {
        let vi = self.vis.get_mut(number).ok_or(Refusal::UnknownVi)?;
        if matches!(vi.state, ViState::Idle | ViState::ConnectPending) {
            return Err(Refusal::BadState(vi.state));
        }
        if vi.send.len() >= self.config.descriptors_max {
            return Err(Refusal::TooMany);
        }
        vi.post_send(number, &work, status, &self.config, &mut self.desk);
        self.deliver();
        Ok(())
    }

    /// Posts a descriptor to a receive queue, in any state; of a VI in error it is flushed at once.
    pub fn post_receive(&mut self, number: u32, cookie: u64, segments: &[Segment]) -> Result<(), Refusal> {
        self.post_judged_receive(number, cookie, segments, Status::OK)
    }

    /// The same, of a descriptor in which the host edge has found a fault already.
    pub fn post_judged_receive(
        &mut self,
        number: u32,
        cookie: u64,
        segments: &[Segment],
        status: Status,
    ) -> Result<(), Refusal> {
        let vi = self.vis.get_mut(number).ok_or(Refusal::UnknownVi)?;
        if vi.receive.len() >= self.config.descriptors_max {
            return Err(Refusal::TooMany);
        }
        vi.post_receive(number, cookie, segments, status, &self.config, &mut self.desk);
        self.deliver();
        Ok(())
    }

    /// The next descriptor of a send queue that is done.
    #[inline]
    pub fn send_done(&mut self, vi: u32) -> Result<Option<Done>, Refusal> {
        Ok(self.vis.get_mut(vi).ok_or(Refusal::UnknownVi)?.send.dequeue())
    }

    /// The next descriptor of a receive queue that is done.
    #[inline]
    pub fn receive_done(&mut self, vi: u32) -> Result<Option<Done>, Refusal> {
        Ok(self.vis.get_mut(vi).ok_or(Refusal::UnknownVi)?.receive.dequeue())
    }

    /// The next asynchronous event.
    pub fn event(&mut self) -> Option<Event> {
        self.desk.events.pop_front()
    }

    /// Whether something has happened since the last time that the host should look at.
    #[inline]
    pub fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.desk.news)
    }

    // ---- paths

    /// A way to another NIC. `packet_bytes` of at least 256 hold every set-up.
    pub fn open_path(&mut self, traits: PathTraits) -> Result<u32, Refusal> {
        let path = Path { traits, letters: VecDeque::new(), ready: VecDeque::new() };
        self.paths.insert(path).ok_or(Refusal::TooMany)
    }

    /// The way has gone: every connection on it is lost.
    pub fn close_path(&mut self, path: u32) {
        if self.paths.remove(path).is_none() {
            return;
        }
        let Nic { vis, desk, .. } = self;
        for (number, vi) in vis.iter_mut() {
            vi.on_path_gone(number, path, desk);
        }
        let stale: Vec<u32> =
            self.incoming.iter().filter(|(_, request)| request.path == path).map(|(n, _)| n).collect();
        stale.into_iter().for_each(|number| drop(self.incoming.remove(number)));
        self.deliver();
    }

    /// Whether anybody uses a path: a connection, or a request.
    pub fn uses(&self, path: u32) -> bool {
        self.vis.iter().any(|(_, vi)| vi.uses(path))
            || self.incoming.iter().any(|(_, request)| request.path == path)
            || self.paths.get(path).is_some_and(|path| !path.letters.is_empty())
    }

    /// Whether a path may have a packet to fetch.
    #[inline]
    pub fn has_packet(&self, path: u32) -> bool {
        self.paths.get(path).is_some_and(|path| !(path.letters.is_empty() && path.ready.is_empty()))
    }

    /// Fills `room` with the next packet of a path: its length. Nothing when there is none.
    ///
    /// # Panics
    /// When the room is shorter than the path's packets.
    pub fn fetch(&mut self, number: u32, room: &mut SharedRoom<'_>, now: Instant) -> Option<usize> {
        let Some((length, checked)) = self.fill_from(number, room, now) else {
            // A descriptor in error may have left letters instead of a packet.
            self.deliver();
            return self.has_letter(number).then(|| self.fetch(number, room, now)).flatten();
        };
        if checked {
            wire::fill(room.private(length).expect("checked paths have private rooms"));
        }
        self.desk.counters.packets_out += 1;
        self.deliver();
        Some(length)
    }

    fn has_letter(&self, path: u32) -> bool {
        self.paths.get(path).is_some_and(|path| !path.letters.is_empty())
    }

    #[inline]
    fn fill_from(&mut self, number: u32, room: &mut SharedRoom<'_>, now: Instant) -> Option<(usize, bool)> {
        let Nic { config, memory, vis, paths, desk, .. } = self;
        let path = paths.get_mut(number)?;
        assert!(room.len() >= path.traits.packet_bytes, "the room holds a packet of the path");
        if let Some(letter) = path.letters.pop_front() {
            room.write(0, letter.as_slice().into());
            return Some((letter.len(), path.traits.checked));
        }
        loop {
            let ready = path.ready.pop_front()?;
            // It may have connected elsewhere since it stood here.
            let Some(vi) = vis.get_mut(ready).filter(|vi| vi.path() == Some(number)) else { continue };
            if let Some(length) = vi.emit(ready, config, memory, room, desk, now) {
                path.ready.push_back(ready);
                return Some((length, path.traits.checked));
            }
            vi.queued = false;
        }
    }

    // ---- time

    /// When the NIC does something by itself. May be early, never late.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.desk.due
    }

    /// The host has had its chance: what is owed may go, and what time asks for is done.
    #[inline]
    pub fn settle(&mut self, now: Instant) {
        if !self.desk.owing.is_empty() {
            self.pay();
        }
        if now >= self.desk.due {
            self.advance(now);
        }
    }

    fn pay(&mut self) {
        for number in core::mem::take(&mut self.desk.owing) {
            let Some(vi) = self.vis.get_mut(number) else { continue };
            vi.owing = false;
            vi.pay(number, &mut self.desk);
        }
        self.deliver();
    }

    fn advance(&mut self, now: Instant) {
        self.desk.due = Instant::NEVER;
        let Nic { config, vis, desk, incoming, .. } = self;
        for (number, vi) in vis.iter_mut() {
            vi.advance(number, config, desk, now);
        }
        let stale: Vec<u32> =
            incoming.iter().filter(|(_, request)| request.until <= now).map(|(n, _)| n).collect();
        stale.into_iter().for_each(|number| drop(incoming.remove(number)));
        let next = incoming.iter().map(|(_, request)| request.until).min();
        next.into_iter().for_each(|at| desk.due_at(at));
        self.deliver();
    }

    /// Brings what lies on the desk to the paths.
    #[inline]
    fn deliver(&mut self) {
        let Nic { desk, vis, paths, .. } = self;
        for (number, letter) in desk.letters.drain(..) {
            if let Some(path) = paths.get_mut(number)
                && path.letters.len() < LETTERS_MAX
            {
                path.letters.push_back(letter);
            }
        }
        for number in desk.ready.drain(..) {
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

/// The fault by which a peer is told what a status says.
const fn fault_of(status: Status) -> u32 {
    if status.has(Status::LENGTH) {
        fault::LENGTH
    } else if status.has(Status::RDMA_PROTECTION) {
        fault::RDMA_PROTECTION
    } else if status.has(Status::PROTECTION) {
        fault::PROTECTION
    } else {
        fault::DESCRIPTOR
    }
}
