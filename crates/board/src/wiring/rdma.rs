//! RDMA on a board: the NIC over the board's own TCP, and over EFE on a port of its own.
//!
//! Down      a burst of frames is written to its stream as far as TCP has room; the rest waits for `Writable`. Segments for
//!           EFE are handed to the endpoint, whose frames the port's line fetches.
//! Up        bytes are taken from the stream's pages and placed; a stream whose message waits for a receive is not read, so
//!           TCP's window closes.
//! Told      completions of streams and listeners that are the NIC's are taken out before the host sees them; instead there
//!           is [`Completion::Rdma`] when something has happened that the host should look at.
//! Copies    one out of the host's memory into pages, one out of pages into the host's memory.

use crate::board::Board;
use crate::edge::{Completion, StreamId};
use crate::host::{Host, Refused};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::SocketAddr;
use kiban_ground::{Instant, Region, RngKey, SharedBytes, SharedRoom};
use kiban_stack::efe::{self, Endpoint, ethernet};
use kiban_stack::iwarp::mpa;
use kiban_stack::iwarp::nic::{Nic, OpenError};
use kiban_stack::iwarp::rnic::{self, StreamWish};
use kiban_stack::iwarp::stream::Chunk;
use kiban_wire::ethernet::Mac;

kiban_ground::settings! {
    /// Settings of a board's RDMA NIC beside those of the core.
    pub struct RdmaSettings {
        /// Bytes of the host's memory that are moved at once on their way into pages.
        buffer_bytes: usize = 16 << 10,
    }
}

/// An RDMA NIC on a board.
#[derive(Clone, Debug, Default)]
pub struct RdmaConfig {
    /// The core.
    pub nic: rnic::Config,
    /// How connections over TCP begin; greetings over EFE are the same.
    pub mpa: mpa::Config,
    /// The wiring.
    pub settings: RdmaSettings,
}

/// A port for EFE in Ethernet frames. A board has one at most.
#[derive(Clone, Debug)]
pub struct EfePortConfig {
    /// The port's Ethernet address.
    pub mac: Mac,
    /// The endpoint.
    pub endpoint: efe::Config,
}

/// The NIC and what carries it.
pub(crate) struct RdmaTower {
    pub(crate) nic: Nic,
    config: mpa::Config,
    streams: BTreeMap<u32, StreamId>,
    ends: BTreeMap<StreamId, u32>,
    /// Streams that are the NIC's no more, and whose last words are nobody's.
    closing: BTreeSet<StreamId>,
    /// Streams whose peer has ended while a message of theirs waits for a receive.
    ended: BTreeSet<u32>,
    listeners: BTreeSet<u32>,
    efe: Option<(Mac, Endpoint)>,
    buffer: Vec<u8>,
    completions_seen: u64,
}

impl RdmaTower {
    pub(crate) fn new(config: &RdmaConfig, key: RngKey) -> RdmaTower {
        RdmaTower {
            nic: Nic::new(config.nic.clone(), key),
            config: config.mpa.clone(),
            streams: BTreeMap::new(),
            ends: BTreeMap::new(),
            closing: BTreeSet::new(),
            ended: BTreeSet::new(),
            listeners: BTreeSet::new(),
            efe: None,
            buffer: alloc::vec![0; config.settings.buffer_bytes.max(1)],
            completions_seen: 0,
        }
    }

    /// The board has a port for EFE.
    ///
    /// # Panics
    /// When it has one already.
    pub(crate) fn add_port(&mut self, port: &EfePortConfig, key: RngKey) {
        assert!(self.efe.is_none(), "a board has one port for EFE at most");
        self.efe = Some((port.mac, Endpoint::new(port.endpoint.clone(), key)));
    }

    /// A frame came to the EFE port.
    pub(crate) fn on_frame(&mut self, frame: SharedBytes<'_>, now: Instant) {
        let Some((mac, endpoint)) = &mut self.efe else { return };
        match frame.private() {
            Some(frame) => ethernet::arrive(endpoint, *mac, frame, now),
            None => {
                // Others may change it: it is judged in a copy.
                let mut copy = alloc::vec![0; frame.len()];
                frame.copy_to(0, &mut copy);
                ethernet::arrive(endpoint, *mac, &copy, now)
            }
        };
    }

    /// The next frame for the EFE port's line.
    pub(crate) fn fetch(&mut self, room: &mut SharedRoom<'_>, now: Instant) -> Option<usize> {
        let (mac, endpoint) = self.efe.as_mut()?;
        let most = room.len();
        match room.private(most) {
            Some(room) => ethernet::fetch(endpoint, *mac, room, now),
            None => {
                let mut copy = alloc::vec![0; most];
                let length = ethernet::fetch(endpoint, *mac, &mut copy, now)?;
                room.write(0, SharedBytes::from(&copy[..length]));
                Some(length)
            }
        }
    }

    /// What time asks for, and what is owed now that the host has had its chance.
    pub(crate) fn settle(&mut self, now: Instant) {
        self.nic.advance(now);
        if let Some((_, endpoint)) = &mut self.efe {
            endpoint.settle(now);
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        let efe = self.efe.as_ref().map_or(Instant::NEVER, |(_, endpoint)| endpoint.deadline());
        self.nic.deadline().min(efe)
    }

    pub(crate) fn counters(&self, see: &mut dyn FnMut(&'static str, &'static str, u64)) {
        self.nic.core.counters().each(&mut |name, value| see("rdma", name, value));
        if let Some((_, endpoint)) = &self.efe {
            endpoint.counters().each(&mut |name, value| see("efe", name, value));
        }
    }

    /// Whether something has happened that the host should look at.
    fn has_news(&mut self) -> bool {
        let completions = self.nic.core.counters().completions;
        let more = core::mem::replace(&mut self.completions_seen, completions) != completions;
        more || self.nic.has_news()
    }

    /// Takes what is the NIC's: whether it was.
    fn take(&mut self, completion: Completion, host: &mut Host<'_>) -> bool {
        let now = host.now();
        match completion {
            Completion::Accepted { stream, listener, .. } if self.listeners.contains(&listener) => {
                match self.nic.incoming(&self.config, listener, now) {
                    Some(end) => {
                        self.add(end, stream);
                        self.read(end, stream, host);
                    }
                    None => self.let_go(stream, host, false),
                }
                true
            }
            Completion::Opened { stream } | Completion::Writable { stream } => {
                let Some(&end) = self.ends.get(&stream) else { return self.closing.contains(&stream) };
                self.nic.stir(end);
                true
            }
            Completion::Readable { stream } => {
                let Some(&end) = self.ends.get(&stream) else { return self.closing.contains(&stream) };
                self.read(end, stream, host);
                true
            }
            Completion::PeerFinished { stream } => {
                let Some(&end) = self.ends.get(&stream) else { return self.closing.contains(&stream) };
                self.read(end, stream, host);
                match self.nic.stream(end).is_some_and(|(stream, _)| stream.wants_bytes()) {
                    true => self.gone(end, stream, host, true),
                    // What has come is not lost because the peer sends no more.
                    false => drop(self.ended.insert(end)),
                }
                true
            }
            Completion::Ended { stream, reason } => {
                let Some(&end) = self.ends.get(&stream) else { return self.closing.remove(&stream) };
                self.read(end, stream, host);
                self.gone(end, stream, host, reason == kiban_stack::tcp::Reason::Closed);
                self.closing.remove(&stream);
                true
            }
            Completion::Urgent { stream, .. } => self.ends.contains_key(&stream),
            _ => false,
        }
    }

    fn add(&mut self, end: u32, stream: StreamId) {
        self.streams.insert(end, stream);
        self.ends.insert(stream, end);
    }

    /// Takes what came to a stream.
    fn read(&mut self, end: u32, stream: StreamId, host: &mut Host<'_>) {
        loop {
            if !self.nic.stream(end).is_some_and(|(stream, _)| stream.wants_bytes()) {
                return;
            }
            match host.take(stream) {
                Ok(Some(slice)) => self.nic.receive(end, slice.bytes(), host.now()),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Writes what an end has to send, as far as its stream has room.
    fn write(&mut self, end: u32, stream: StreamId, host: &mut Host<'_>) {
        loop {
            let Some((mpa, core)) = self.nic.stream(end) else { return };
            if !mpa.fill(core) {
                break;
            }
            let (mut written, whole) = (0, mpa.unsent_bytes());
            for chunk in mpa.chunks() {
                let (taken, length) = match chunk {
                    Chunk::Own(bytes) => (host.write(stream, bytes).unwrap_or(0), bytes.len()),
                    Chunk::Memory(region) => {
                        (write_region(stream, region, &mut self.buffer, host), region.len())
                    }
                };
                written += taken;
                if taken < length {
                    break;
                }
            }
            mpa.advance(core, written);
            if written < whole {
                // There is room again, or it is over: a completion says so.
                return;
            }
        }
        match self.nic.wish(end) {
            StreamWish::Open => {}
            StreamWish::Finish => {
                // It fails when that was said before.
                let _ = host.finish(stream);
            }
            StreamWish::Abort => {
                self.nic.stream_gone(end, false);
                self.forget_stream(end, stream);
                self.let_go(stream, host, false);
            }
        }
    }

    /// The peer's half of a stream has ended.
    fn gone(&mut self, end: u32, stream: StreamId, host: &mut Host<'_>, in_order: bool) {
        self.nic.stream_gone(end, in_order);
        self.forget_stream(end, stream);
        self.let_go(stream, host, in_order);
    }

    fn forget_stream(&mut self, end: u32, stream: StreamId) {
        self.streams.remove(&end);
        self.ends.remove(&stream);
        self.ended.remove(&end);
    }

    fn let_go(&mut self, stream: StreamId, host: &mut Host<'_>, in_order: bool) {
        // A closed one ends later, and says so; one that has ended already is gone with this.
        match in_order {
            true if host.close(stream).is_ok() => drop(self.closing.insert(stream)),
            true => {}
            false => drop(host.abort(stream)),
        }
    }

    /// Moves what there is to move.
    fn pump(&mut self, host: &mut Host<'_>) {
        let now = host.now();
        if let Some((_, endpoint)) = &mut self.efe {
            self.nic.pump(endpoint, &self.config, now);
        }
        while let Some(end) = self.nic.next_resumed() {
            if let Some(&stream) = self.streams.get(&end) {
                self.read(end, stream, host);
                self.nic.stir(end);
                if self.ended.contains(&end)
                    && self.nic.stream(end).is_some_and(|(stream, _)| stream.wants_bytes())
                {
                    self.gone(end, stream, host, true);
                }
            }
        }
        while let Some(end) = self.nic.next_to_serve() {
            if let Some(&stream) = self.streams.get(&end) {
                self.write(end, stream, host);
            }
        }
        self.nic.let_go_withdrawn();
    }
}

/// Copies a part of the host's memory to a stream, by way of a buffer: how many bytes had room.
fn write_region(stream: StreamId, region: &Region, buffer: &mut [u8], host: &mut Host<'_>) -> usize {
    let mut written = 0;
    while written < region.len() {
        let room = host.room(stream).unwrap_or(0);
        let count = (region.len() - written).min(buffer.len());
        let at = region.address() + written as u64;
        let Some(bytes) = region.bytes(at, count) else { return written };
        bytes.copy_to(0, &mut buffer[..count]);
        // Without room the write asks to be told of it.
        let taken = host.write(stream, &buffer[..count]).unwrap_or(0);
        written += taken;
        if taken < count || room == 0 {
            break;
        }
    }
    written
}

impl Board {
    /// Lets the NIC take its streams' completions and move what there is to move.
    pub(crate) fn pump_rdma(&mut self) {
        let Some(mut tower) = self.rdma.take() else { return };
        for _ in 0..self.edge.completions.len() {
            let Some(completion) = self.edge.completions.pop_front() else { break };
            if !tower.take(completion, &mut Host::of(self)) {
                self.edge.completions.push_back(completion);
            }
        }
        tower.pump(&mut Host::of(self));
        if tower.has_news() && !self.edge.completions.contains(&Completion::Rdma) {
            self.edge.completions.push_back(Completion::Rdma);
            self.told = false;
        }
        self.rdma = Some(tower);
    }
}

/// The RDMA NIC as the board's host sees it, at one moment.
pub struct RdmaHost<'a> {
    board: &'a mut Board,
    tower: Option<Box<RdmaTower>>,
}

impl Drop for RdmaHost<'_> {
    fn drop(&mut self) {
        self.board.rdma = self.tower.take();
        self.board.unsettled = true;
    }
}

impl Host<'_> {
    /// The board's RDMA NIC; none where its configuration has none.
    pub fn rdma(&mut self) -> Option<RdmaHost<'_>> {
        let tower = self.board().rdma.take()?;
        Some(RdmaHost { board: self.board(), tower: Some(tower) })
    }
}

impl RdmaHost<'_> {
    fn tower(&mut self) -> &mut RdmaTower {
        self.tower.as_mut().expect("it is put back when this value goes")
    }

    /// The NIC: memory, queues, work, news of connections.
    pub fn nic(&mut self) -> &mut Nic {
        &mut self.tower().nic
    }

    /// Listens for connections over TCP: the listener's number.
    ///
    /// # Errors
    /// As [`Host::listen`].
    pub fn listen(&mut self, local: SocketAddr) -> Result<u32, Refused> {
        let listener = Host::of(self.board).listen(local)?;
        self.tower().listeners.insert(listener);
        Ok(listener)
    }

    /// Listens for connections over EFE; the listener's number is the service.
    pub fn listen_efe(&mut self, service: u16) {
        if let Some((_, endpoint)) = &mut self.tower().efe {
            endpoint.listen(service);
        }
    }

    /// Begins to connect over TCP: the end.
    ///
    /// # Errors
    /// As [`Host::open`]; `Busy` when the NIC has no room, or the private data is too long.
    pub fn connect(
        &mut self,
        remote: SocketAddr,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
    ) -> Result<u32, Refused> {
        let now = self.board.now;
        let stream = Host::of(self.board).open(remote)?;
        let tower = self.tower();
        match tower.nic.open(&tower.config, qp, depths, private_data, now) {
            Ok(end) => {
                tower.add(end, stream);
                Ok(end)
            }
            Err(_) => {
                let _ = Host::of(self.board).abort(stream);
                Err(Refused::Busy)
            }
        }
    }

    /// Begins to connect over EFE: the end.
    ///
    /// # Errors
    /// The private data is too long, there are too many, or the board has no port for it (`Gone`).
    pub fn connect_efe(
        &mut self,
        mac: Mac,
        service: u16,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
    ) -> Result<u32, OpenError> {
        let now = self.board.now;
        let RdmaTower { nic, config, efe, .. } = self.tower();
        let Some((_, endpoint)) = efe else { return Err(OpenError::Gone) };
        nic.connect_flow(endpoint, (mac.into(), service), config, qp, depths, private_data, now)
    }

    /// Accepts a request ([`Nic::news`]) for a queue pair.
    ///
    /// # Errors
    /// As [`Nic::accept`].
    pub fn accept(&mut self, end: u32, qp: u32, depths: (u16, u16), said: &[u8]) -> Result<(), OpenError> {
        let now = self.board.now;
        let RdmaTower { nic, efe, .. } = self.tower();
        nic.accept(efe.as_mut().map(|(_, endpoint)| endpoint), end, qp, depths, said, now)?;
        // Boards' ends take a reply and what follows it together: there is nothing to wait for but what was agreed.
        if nic.may_go_first(end) {
            nic.core.may_send(qp);
        }
        Ok(())
    }

    /// Refuses a request.
    ///
    /// # Errors
    /// As [`Nic::reject`].
    pub fn reject(&mut self, end: u32, said: &[u8]) -> Result<(), OpenError> {
        let now = self.board.now;
        let RdmaTower { nic, efe, .. } = self.tower();
        nic.reject(efe.as_mut().map(|(_, endpoint)| endpoint), end, said, now)
    }

    /// Forgets an end; a connection that it still has is cut.
    pub fn forget(&mut self, end: u32) {
        let now = self.board.now;
        let RdmaTower { nic, efe, .. } = self.tower();
        nic.forget(efe.as_mut().map(|(_, endpoint)| endpoint), end, now);
        if let Some(stream) = self.tower().streams.get(&end).copied() {
            self.tower().forget_stream(end, stream);
            // One that has ended already is gone with this.
            let _ = Host::of(self.board).abort(stream);
        }
    }
}
