//! A connected rsocket: buffers, credits and messages.
//!
//! ```text
//! our send buffer, a ring ──Write──▶ the peer's receive buffer, two halves: the SGL says where ──▶ rrecv
//!                          ──Send───▶ the number of bytes (over RoCEv2: the Write's immediate data)
//! ```
//!
//! Transmit path   sends as much as fits into the peer's half buffer, as the credits allow, and as the send
//!                 buffer and send queue accept.
//! Receive path    when half of the receive buffer has been read, that half is granted to the peer again
//!                 with a Write to the peer's SGL and a message, which also carries credits. Credits are
//!                 also sent when half of them have been used.
//! Credits         a data message uses one; control messages use none, so that the two ends cannot deadlock.
//!                 [`CONTROLS`] extra receives are posted for control messages, and the peer is granted that
//!                 many fewer credits.
//! Memory          the addresses that peers see are fixed ([`RECEIVE_AT`], [`SGL_AT`]); each socket has its
//!                 own protection domain, so that peers of other sockets have no access.
//! Validation      a peer that exceeds its buffer or its credits is disconnected (EPROTO).
//! Limits          everything runs under the socket's lock.

use super::wire::{
    ByteOrder, CONNECT_BYTES, Connect, Control, ENTRIES, ENTRY_BYTES, Entry, IOMAP_BYTES, MESSAGE_BYTES,
    MapEntry, Message,
};
use crate::device::{Transport, transport};
use crate::engine::{Generation, refused};
use core::ffi::c_int;
use kiban_base::{Region, SharedBytes};
use kiban_rdma_runtime::verbs::{
    Access, AsyncEvent, Channel, Completion, CqChannels, Data, Engine, Kind, Notify, Operation, QpAttributes,
    QueuePair, ReceiveWork, SendWork, Service, Sge, Sges, Status, TaggedAddress,
};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// The address of our receive buffer, as peers see it.
const RECEIVE_AT: u64 = 1 << 32;
/// The address of our SGL, as peers see it. The peer announces its buffers there.
const SGL_AT: u64 = 2 << 32;
/// The address of the send buffer, in our own work requests.
const SEND_AT: u64 = 3 << 32;
/// The address of the memory for messages, in our own work requests.
const MESSAGES_AT: u64 = 4 << 32;

/// Maximum number of control messages in flight.
const CONTROLS: u16 = 4;
/// Maximum number of bytes in one transfer.
const TRANSFER_MAX: usize = 64 << 10;
/// A socket is writable when this many bytes in the send buffer are free.
const LOW_WATER: usize = 2048;
/// Maximum number of transfers posted together.
const BATCH: usize = 16;

/// Work request IDs have the kind of message in the upper half, and the number of send buffer bytes used in
/// the lower half.
const ID_DATA: u64 = 1 << 32;
const ID_CONTROL: u64 = 2 << 32;
const ID_DISCONNECT: u64 = 3 << 32;
const ID_WRITE: u64 = 4 << 32;
const ID_DIRECT: u64 = 5 << 32;

/// The work requests for a message.
type Works = SmallVec<[SendWork; 2]>;

/// Sizes of buffers and queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) send_bytes: usize,
    pub(super) receive_bytes: usize,
    pub(super) send_works: u16,
    pub(super) receive_works: u16,
    pub(super) inline_bytes: usize,
    pub(super) iomap: u16,
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EndReason {
    /// By disconnecting.
    Disconnected,
    /// With an errno.
    Error(c_int),
}

/// A connection, established or not.
pub(super) struct Stream {
    born: Generation,
    engine: &'static Engine,
    pd: u32,
    cq: u32,
    pub(super) qp: u32,
    pub(super) end: Option<u32>,
    keys: Keys,
    sizes: Sizes,
    memory: Memory,
    peer: Peer,
    /// Whether each direction is open.
    pub(super) may_write: bool,
    pub(super) may_read: bool,
    pub(super) over: Option<EndReason>,
    /// The disconnect message has been sent.
    disconnect_sent: bool,

    // ---- transmit state
    sent_messages: u16,
    credits: u16,
    /// The peer's buffers; `target` is the index of the current one.
    targets: [Entry; ENTRIES],
    target: usize,
    send_at: usize,
    send_free: usize,
    works_free: usize,
    controls_free: u16,

    // ---- receive state
    arrived: VecDeque<u32>,
    /// Number of bytes of the first message that have been read.
    read_of_first: u32,
    read_at: usize,
    /// Number of bytes that the peer may still write.
    granted: usize,
    /// Number of bytes that were read and not yet granted again.
    ungranted_bytes: usize,
    grant_at: usize,
    taken_messages: u16,
    credits_due: u16,
    /// The index of the next entry of the peer's SGL to write.
    entry: u32,
    /// The memory that the peer has mapped.
    pub(super) mapped: Vec<MapEntry>,
    pub(super) mappings: super::iomap::Mappings,
}

struct Keys {
    send: u32,
    receive: u32,
    sgl: u32,
    messages: u32,
}

struct Memory {
    send: Region,
    receive: Region,
    sgl: Region,
    messages: Region,
}

#[derive(Clone, Copy)]
struct Peer {
    order: ByteOrder,
    sgl: Entry,
    half: u32,
    iomap: u16,
}

/// Objects created so far, which are freed if the rest cannot be created.
#[derive(Default)]
struct Made {
    pd: Option<u32>,
    cq: Option<u32>,
    qp: Option<u32>,
    keys: SmallVec<[u32; 4]>,
}

impl Made {
    fn destroy(&self, engine: &Engine) {
        if let Some(qp) = self.qp {
            let _ = engine.destroy_qp(qp);
        }
        for key in &self.keys {
            let _ = engine.dereg_mr(*key);
        }
        if let Some(cq) = self.cq {
            let _ = engine.destroy_cq(cq);
        }
        if let Some(pd) = self.pd {
            let _ = engine.dealloc_pd(pd);
        }
    }
}

impl Stream {
    /// Creates a queue pair with its memory, at an address of this host.
    pub(super) fn new(
        engine: &'static Engine,
        address: IpAddr,
        sizes: Sizes,
        channel: Arc<Channel<u64>>,
        async_events: Arc<Channel<AsyncEvent>>,
    ) -> Result<Stream, c_int> {
        let mut made = Made::default();
        Stream::make(engine, address, sizes, channel, async_events, &mut made)
            .inspect_err(|_| made.destroy(engine))
    }

    fn make(
        engine: &'static Engine,
        address: IpAddr,
        sizes: Sizes,
        channel: Arc<Channel<u64>>,
        async_events: Arc<Channel<AsyncEvent>>,
        made: &mut Made,
    ) -> Result<Stream, c_int> {
        let receives = usize::from(sizes.receive_works + CONTROLS);
        let sends = usize::from(sizes.send_works) + 2 * usize::from(CONTROLS) + 2;
        let pd = engine.alloc_pd().map_err(refused)?;
        made.pd = Some(pd);
        let tells = CqChannels {
            completions: Some(channel),
            async_events: async_events.clone(),
            cookie: super::inbox::EVENTS,
        };
        let cq = engine.create_cq(receives + sends, tells).map_err(refused)?;
        made.cq = Some(cq);
        let attributes = QpAttributes {
            pd,
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            send_work_max: sends,
            receive_work_max: receives,
            send_sges_max: 2,
            receive_sges_max: 1,
            inline_bytes_max: sizes.inline_bytes.max(IOMAP_BYTES),
            signal_all: false,
            waits_for_receives: true,
        };
        let pair = QueuePair { address, service: Service::Connected, attributes, async_events, cookie: 0 };
        let (qp, _) = engine
            .create_qp(pair)
            .map_err(|error| error.raw_os_error().unwrap_or(libc::ENOMEM))?
            .map_err(refused)?;
        made.qp = Some(qp);
        engine.modify_to_init(qp, 0).map_err(refused)?;
        let memory = Memory {
            send: Region::new(SEND_AT, sizes.send_bytes),
            receive: Region::new(RECEIVE_AT, sizes.receive_bytes),
            sgl: Region::new(SGL_AT, ENTRIES * ENTRY_BYTES + usize::from(sizes.iomap) * IOMAP_BYTES),
            messages: Region::new(MESSAGES_AT, receives * MESSAGE_BYTES),
        };
        let remote = Access { local_write: true, remote_write: true, ..Access::NONE };
        let mut register = |region: &Region, access| {
            let key = engine.reg_mr(pd, region.clone(), region.address(), access).map_err(refused)?;
            made.keys.push(key);
            Ok::<u32, c_int>(key)
        };
        let keys = Keys {
            send: register(&memory.send, Access::NONE)?,
            receive: register(&memory.receive, remote)?,
            sgl: register(&memory.sgl, remote)?,
            messages: register(&memory.messages, Access::LOCAL)?,
        };
        let half = sizes.receive_bytes / 2;
        let mut stream = Stream {
            born: Generation::now(),
            engine,
            pd,
            cq,
            qp,
            end: None,
            keys,
            sizes,
            memory,
            peer: Peer { order: ByteOrder::OURS, sgl: Entry::default(), half: 0, iomap: 0 },
            may_write: true,
            may_read: true,
            over: None,
            disconnect_sent: false,
            sent_messages: 0,
            credits: 0,
            targets: [Entry::default(); ENTRIES],
            target: 0,
            send_at: 0,
            send_free: sizes.send_bytes,
            works_free: usize::from(sizes.send_works),
            controls_free: CONTROLS,
            arrived: VecDeque::new(),
            read_of_first: 0,
            read_at: 0,
            granted: half,
            ungranted_bytes: half,
            grant_at: half,
            taken_messages: 0,
            credits_due: sizes.receive_works / 2,
            entry: 1,
            mapped: vec![MapEntry::default(); usize::from(sizes.iomap)],
            mappings: super::iomap::Mappings::default(),
        };
        let works: Vec<ReceiveWork> = (0..receives as u64).map(|slot| stream.slot(slot)).collect();
        stream.engine.post_receives(qp, works).map_err(|(_, refusal)| refused(refusal))?;
        stream.arrived.reserve(receives);
        Ok(stream)
    }

    fn slot(&self, slot: u64) -> ReceiveWork {
        let address = MESSAGES_AT + slot * MESSAGE_BYTES as u64;
        let sge = Sge { stag: self.keys.messages, address, length: MESSAGE_BYTES as u32 };
        ReceiveWork { id: slot, sges: Sges::from_slice(&[sge]) }
    }

    fn half(&self) -> usize {
        self.sizes.receive_bytes / 2
    }

    /// Returns the private data for the connection setup.
    pub(super) fn connect_data(&self) -> [u8; CONNECT_BYTES] {
        Connect {
            order: ByteOrder::OURS,
            credits: self.sizes.receive_works,
            iomap: self.sizes.iomap,
            sgl: Entry { address: SGL_AT, key: self.keys.sgl, length: ENTRIES as u32 },
            buffer: Entry { address: RECEIVE_AT, key: self.keys.receive, length: self.half() as u32 },
        }
        .bytes()
    }

    /// Handles the peer's private data.
    pub(super) fn on_connect_data(&mut self, peer: &Connect) {
        self.peer = Peer { order: peer.order, sgl: peer.sgl, half: peer.buffer.length, iomap: peer.iomap };
        self.entry = if peer.sgl.length > 1 { 1 } else { 0 };
        self.targets[0] = peer.buffer;
        self.credits = peer.credits;
    }

    // ---- completions

    /// Handles all completions. Returns whether there were any.
    pub(super) fn advance(&mut self) -> bool {
        let mut handled = false;
        let mut slots: SmallVec<[u64; 32]> = SmallVec::new();
        loop {
            let mut batch: SmallVec<[Completion; 32]> = SmallVec::new();
            let taken =
                self.engine.poll_cq(self.cq, 32, false, |completion| batch.push(completion)).unwrap_or(0);
            handled |= taken > 0;
            for completion in batch {
                if matches!(completion.kind, Kind::Receive | Kind::ReceiveImmediate) {
                    if completion.status == Status::Success {
                        self.on_message(&completion);
                        slots.push(completion.id);
                    }
                } else {
                    self.on_send_completed(&completion);
                }
            }
            if !slots.is_empty() && self.over.is_none() {
                let works: SmallVec<[ReceiveWork; 32]> =
                    slots.drain(..).map(|slot| self.slot(slot)).collect();
                if self.engine.post_receives(self.qp, works).is_err() {
                    self.fail(libc::ECONNRESET);
                }
            }
            if taken < 32 {
                break;
            }
        }
        self.send_credits();
        handled
    }

    fn fail(&mut self, error: c_int) {
        if self.over.is_none() {
            self.over = Some(EndReason::Error(error));
            (self.may_read, self.may_write) = (false, false);
        }
    }

    fn disconnected(&mut self) {
        if self.over.is_none() {
            self.over = Some(EndReason::Disconnected);
            (self.may_read, self.may_write) = (false, false);
        }
    }

    /// Handles a connection that ended without notice: data in flight is lost.
    pub(super) fn on_gone(&mut self) {
        if !self.may_read && !self.may_write {
            self.disconnected();
        } else {
            self.fail(libc::ECONNRESET);
        }
    }

    /// Ends the connection because the peer broke a rule.
    fn broken(&mut self) {
        self.fail(libc::EPROTO);
        let _ = self.engine.modify_to_error(self.qp);
    }

    /// Returns the message that a completed receive holds, or that came as the immediate data of a Write.
    fn message_of(&self, completion: &Completion) -> Option<Message> {
        if let (Kind::ReceiveImmediate, Some(data)) = (completion.kind, completion.immediate) {
            return Some(Message::of_immediate(data));
        }
        let at = MESSAGES_AT + completion.id * MESSAGE_BYTES as u64;
        let mut bytes = [0; MESSAGE_BYTES];
        let copied = self.memory.messages.bytes(at, MESSAGE_BYTES)?.copy_to(0, &mut bytes);
        let is_whole = completion.bytes as usize == MESSAGE_BYTES && copied == MESSAGE_BYTES;
        is_whole.then(|| Message::read(bytes, self.peer.order))
    }

    fn on_message(&mut self, completion: &Completion) {
        let Some(message) = self.message_of(completion) else { return self.broken() };
        match message {
            Message::Data(bytes) => {
                let fits = bytes as usize <= self.granted
                    && self.arrived.len() < usize::from(self.sizes.receive_works);
                if !fits {
                    return self.broken();
                }
                self.granted -= bytes as usize;
                self.arrived.push_back(bytes);
            }
            Message::Credits(credits) => {
                self.credits = credits;
                self.adopt_targets();
            }
            Message::Iomap(index) => self.adopt_mapping(index),
            Message::Control(Control::Disconnect) => self.disconnected(),
            Message::Control(Control::Shutdown) => {
                self.may_read = false;
                if !self.may_write {
                    self.disconnected();
                }
            }
            Message::Control(Control::Keepalive) | Message::Unknown => {}
        }
    }

    /// Reads new entries in the SGL. A message follows the Write of its entry, but a later entry may be half
    /// written. An entry is complete only when its length equals that of the first buffer.
    fn adopt_targets(&mut self) {
        for (index, target) in self.targets.iter_mut().enumerate() {
            let at = SGL_AT + (index * ENTRY_BYTES) as u64;
            let mut bytes = [0; ENTRY_BYTES];
            let Some(from) = self.memory.sgl.bytes(at, ENTRY_BYTES) else { continue };
            from.copy_to(0, &mut bytes);
            let entry = Entry::read(&bytes, ByteOrder::OURS);
            if target.length == 0 && entry.length == self.peer.half && entry.length != 0 {
                *target = entry;
                let _ = self.memory.sgl.write(at, SharedBytes::from(&[0; ENTRY_BYTES][..]));
            }
        }
    }

    fn adopt_mapping(&mut self, index: u16) {
        let at = SGL_AT + (ENTRIES * ENTRY_BYTES + usize::from(index) * IOMAP_BYTES) as u64;
        let mut bytes = [0; IOMAP_BYTES];
        let (Some(mapped), Some(from)) =
            (self.mapped.get_mut(usize::from(index)), self.memory.sgl.bytes(at, IOMAP_BYTES))
        else {
            return self.broken();
        };
        from.copy_to(0, &mut bytes);
        *mapped = MapEntry::read(&bytes, ByteOrder::OURS);
    }

    fn on_send_completed(&mut self, completion: &Completion) {
        let bytes = (completion.id & u64::from(u32::MAX)) as usize;
        match completion.id & !u64::from(u32::MAX) {
            ID_DATA => {
                self.works_free += 2;
                self.send_free += bytes;
            }
            ID_DIRECT => {
                self.works_free += 1;
                self.send_free += bytes;
            }
            ID_CONTROL => self.controls_free += 1,
            ID_DISCONNECT => {
                self.controls_free += 1;
                self.disconnect_sent = true;
            }
            _ => {}
        }
        match completion.status {
            Status::Success => {}
            Status::Flushed | Status::Lost => {
                // An error that explains the flush may follow. A peer that disconnects announces this
                // beforehand.
                if self.over.is_none() {
                    self.on_gone();
                }
            }
            _ => self.fail(libc::EIO),
        }
    }

    // ---- credits

    fn send_credits(&mut self) {
        let half = self.half();
        let due =
            self.ungranted_bytes >= half || (self.taken_messages.wrapping_sub(self.credits_due) as i16) >= 0;
        if !due || self.controls_free == 0 || self.over.is_some() || self.peer.sgl.length == 0 {
            return;
        }
        self.credits_due = self.taken_messages.wrapping_add(self.sizes.receive_works / 2);
        let credits = self.taken_messages.wrapping_add(self.sizes.receive_works);
        let mut entry_written = None;
        if self.ungranted_bytes >= half {
            let address = RECEIVE_AT + self.grant_at as u64;
            let entry = Entry { address, key: self.keys.receive, length: half as u32 };
            let offset = self.peer.sgl.address.wrapping_add(u64::from(self.entry) * ENTRY_BYTES as u64);
            let place = TaggedAddress { stag: self.peer.sgl.key, offset };
            let data = Data::Inline(SmallVec::from_slice(&entry.bytes(self.peer.order)));
            entry_written = Some((place, data));
            self.ungranted_bytes -= half;
            self.granted += half;
            self.grant_at = if self.grant_at + half >= 2 * half { 0 } else { self.grant_at + half };
            self.entry = if self.entry + 1 >= self.peer.sgl.length { 0 } else { self.entry + 1 };
        }
        self.controls_free -= 1;
        let works = self.message(entry_written, ID_CONTROL, Message::Credits(credits));
        self.post(works);
    }

    /// Returns the work requests for a message and for the Write that precedes it, if there is one. Over
    /// RoCEv2, as in rdma-core for all devices but those of iWARP, the message is the immediate data of the
    /// Write, which is empty if there is none.
    fn message(&self, write: Option<(TaggedAddress, Data)>, id: u64, message: Message) -> Works {
        let inline = |bytes: &[u8]| Data::Inline(SmallVec::from_slice(bytes));
        if transport() == Transport::Roce {
            let nowhere = TaggedAddress { stag: 0, offset: 0 };
            let (remote, data) = write.unwrap_or_else(|| (nowhere, inline(&[])));
            let immediate = Some(message.immediate());
            return [SendWork::new(id, Operation::Write { remote, immediate }, data)].into_iter().collect();
        }
        let write =
            write.map(|(place, data)| unsignalled(SendWork::new(ID_WRITE, Operation::write(place), data)));
        let send = SendWork::new(id, Operation::SEND, inline(&message.bytes(self.peer.order)));
        write.into_iter().chain([send]).collect()
    }

    fn post(&mut self, works: impl IntoIterator<Item = SendWork>) {
        if self.engine.post_sends(self.qp, works).is_err() {
            // The connection has ended or is ending; an event with the reason may follow.
            self.on_gone();
        }
    }

    // ---- data

    /// Returns whether data can be sent now.
    pub(super) fn can_send(&self) -> bool {
        self.may_write
            && self.works_free >= 2
            && self.send_free >= LOW_WATER.min(self.sizes.send_bytes)
            && (self.credits.wrapping_sub(self.sent_messages) as i16) > CONTROLS as i16
            && self.targets[self.target].length > 0
    }

    /// Returns whether there is data to read.
    pub(super) fn has_data(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Copies bytes into the send buffer, or into the work request. Returns the data to send, and the number
    /// of buffer bytes used.
    fn take_in(&mut self, bytes: &[u8]) -> (Data, usize) {
        if bytes.len() <= self.sizes.inline_bytes {
            return (Data::Inline(SmallVec::from_slice(bytes)), 0);
        }
        let mut sges = Sges::new();
        let straight = (self.sizes.send_bytes - self.send_at).min(bytes.len());
        for part in [&bytes[..straight], &bytes[straight..]] {
            if part.is_empty() {
                continue;
            }
            let address = SEND_AT + self.send_at as u64;
            self.memory.send.write(address, SharedBytes::from(part)).expect("the ring has room for it");
            sges.push(Sge { stag: self.keys.send, address, length: part.len() as u32 });
            self.send_at = (self.send_at + part.len()) % self.sizes.send_bytes;
        }
        self.send_free -= bytes.len();
        (Data::Elements(sges), bytes.len())
    }

    /// Sends as much as possible without waiting. Returns the number of bytes.
    pub(super) fn send(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() && self.can_send() {
            let mut works: SmallVec<[SendWork; 2 * BATCH]> = SmallVec::new();
            while sent < bytes.len() && works.len() < 2 * BATCH && self.can_send() {
                let target = self.targets[self.target];
                let most = TRANSFER_MAX.min(self.send_free).min(target.length as usize);
                let part = &bytes[sent..bytes.len().min(sent + most)];
                let (data, used) = self.take_in(part);
                let place = TaggedAddress { stag: target.key, offset: target.address };
                let length = part.len() as u32;
                works.extend(self.message(Some((place, data)), ID_DATA | used as u64, Message::Data(length)));
                let target = &mut self.targets[self.target];
                target.address = target.address.wrapping_add(u64::from(length));
                target.length -= length;
                if target.length == 0 {
                    self.target = (self.target + 1) % ENTRIES;
                }
                self.sent_messages = self.sent_messages.wrapping_add(1);
                self.works_free -= 2;
                sent += part.len();
            }
            self.post(works);
        }
        sent
    }

    /// Writes to memory that the peer has mapped. Returns the number of bytes.
    pub(super) fn write_direct(&mut self, bytes: &[u8], entry: Entry, at: u64) -> usize {
        let mut sent = 0;
        while sent < bytes.len() && self.can_send() {
            let most = TRANSFER_MAX.min(self.send_free);
            let part = &bytes[sent..bytes.len().min(sent + most)];
            let (data, used) = self.take_in(part);
            let offset = entry.address.wrapping_add(at + sent as u64);
            let place = TaggedAddress { stag: entry.key, offset };
            self.works_free -= 1;
            self.post([SendWork::new(ID_DIRECT | used as u64, Operation::write(place), data)]);
            sent += part.len();
        }
        sent
    }

    /// Announces a mapping to the peer.
    pub(super) fn send_mapping(&mut self, index: u16, mapped: MapEntry) {
        let map = u64::from(self.peer.sgl.length) * ENTRY_BYTES as u64;
        let offset = self.peer.sgl.address.wrapping_add(map + u64::from(index) * IOMAP_BYTES as u64);
        let place = TaggedAddress { stag: self.peer.sgl.key, offset };
        let data = Data::Inline(SmallVec::from_slice(&mapped.bytes(self.peer.order)));
        let works = self.message(Some((place, data)), ID_DATA, Message::Iomap(index));
        self.sent_messages = self.sent_messages.wrapping_add(1);
        self.works_free -= 2;
        self.post(works);
    }

    /// Returns the number of entries of the peer's I/O map.
    pub(super) fn peer_iomap(&self) -> u16 {
        self.peer.iomap
    }

    /// Registers the program's memory, with or without write access for peers.
    pub(super) fn register(&self, memory: Region, access: Access) -> Result<u32, c_int> {
        let address = memory.address();
        self.engine.reg_mr(self.pd, memory, address, access).map_err(refused)
    }

    pub(super) fn deregister(&self, key: u32) {
        let _ = self.engine.dereg_mr(key);
    }

    /// Reads received bytes and returns their number. A peek leaves them in the buffer.
    pub(super) fn receive(&mut self, into: &mut [u8], skip: usize, peeks: bool) -> usize {
        let (mut got, mut at, mut skip) = (0, self.read_at, skip);
        let (mut index, mut read) = (0, self.read_of_first);
        while got < into.len() && index < self.arrived.len() {
            let left = (self.arrived[index] - read) as usize;
            let skipped = skip.min(left);
            let size = (left - skipped).min(into.len() - got);
            at = (at + skipped) % self.sizes.receive_bytes;
            skip -= skipped;
            let straight = (self.sizes.receive_bytes - at).min(size);
            for part in [straight, size - straight] {
                if let Some(from) = self.memory.receive.bytes(RECEIVE_AT + at as u64, part) {
                    from.copy_to(0, &mut into[got..got + part]);
                }
                got += part;
                at = (at + part) % self.sizes.receive_bytes;
            }
            read += (skipped + size) as u32;
            if read == self.arrived[index] {
                (index, read) = (index + 1, 0);
            }
        }
        if !peeks {
            self.arrived.drain(..index);
            self.taken_messages = self.taken_messages.wrapping_add(index as u16);
            self.read_of_first = read;
            self.read_at = at;
            self.ungranted_bytes += got;
            self.send_credits();
        }
        got
    }

    // ---- waiting and ending

    /// Requests an event for the next completion.
    pub(super) fn arm(&self) {
        let _ = self.engine.arm_cq(self.cq, Notify::Any);
    }

    /// Sends a control message. Returns false if there is no room for it now.
    pub(super) fn send_control(&mut self, control: Control) -> bool {
        if self.over.is_some() {
            return true;
        }
        if self.controls_free == 0 {
            return false;
        }
        self.controls_free -= 1;
        let id = if control == Control::Disconnect { ID_DISCONNECT } else { ID_CONTROL };
        let works = self.message(None, id, Message::Control(control));
        self.post(works);
        true
    }

    /// Returns whether everything has been sent or can no longer be sent.
    pub(super) fn is_idle(&self) -> bool {
        let idle = self.works_free == usize::from(self.sizes.send_works) && self.controls_free == CONTROLS;
        if idle { true } else { self.over.is_some() && !self.is_disconnecting() }
    }

    /// Returns whether the disconnect message is in flight.
    fn is_disconnecting(&self) -> bool {
        self.over == Some(EndReason::Disconnected) && !self.disconnect_sent && self.controls_free < CONTROLS
    }

    /// Ends the connection on our side.
    pub(super) fn end_here(&mut self) {
        self.disconnected();
    }
}

fn unsignalled(work: SendWork) -> SendWork {
    SendWork { signalled: false, ..work }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // In a forked child, all objects belong to the parent.
        if !self.born.is_now() {
            return;
        }
        let mut keys: SmallVec<[u32; 4]> =
            SmallVec::from_slice(&[self.keys.send, self.keys.receive, self.keys.sgl, self.keys.messages]);
        keys.extend(self.mappings.keys());
        Made { pd: Some(self.pd), cq: Some(self.cq), qp: Some(self.qp), keys }.destroy(self.engine);
        if let Some(end) = self.end {
            self.engine.release(end);
        }
    }
}
