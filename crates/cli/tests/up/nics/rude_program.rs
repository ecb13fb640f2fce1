//! A program that speaks the protocol of a board's RDMA NIC itself, to break its rules; another that keeps
//! them; and what the board must have released afterwards.

use super::board_nic::{RDMA, on, sessions};
use super::rdma::{LONG, Pair, Side, at, join, moves};
use crate::common::{Board, PORT, TestDir, enter, is_clean};
use kiban_base::ring::{Consumer, Producer};
use kiban_base::{Region, SharedBytes};
use kiban_os::Clock;
use kiban_os::channel::{Channel, FRONT_BYTES, PendingChannel};
use kiban_os::clock::machine_nanos;
use kiban_rdma::hif::{
    Answer, COMPLETION_BYTES, CompletionRing, ENTRY_BYTES, Greeting, Layout, MEMORY_AT, Notice, Piece,
    Refusal, Request, Transport, completion_from_bytes,
};
use kiban_rdma::rnic::{Completion, Data, QpAttributes, Sge, Sges, TaggedAddress};
use kiban_rdma_runtime::{Access, Connect, Lower, QpState};
use std::net::SocketAddr;

/// The descriptors of a board, and its mappings of memory that it shares with programs.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) descriptors: usize,
    pub(super) mappings: usize,
}

pub(super) fn held(board: &Board<'_>) -> Held {
    let folder = format!("/proc/{}", board.child.id());
    let maps = std::fs::read_to_string(format!("{folder}/maps")).expect("the board runs");
    Held {
        descriptors: std::fs::read_dir(format!("{folder}/fd")).expect("the board runs").count(),
        mappings: maps.lines().filter(|line| line.contains("/memfd:kiban")).count(),
    }
}

/// Waits until a board has released everything that programs of its NIC have made it hold.
pub(super) fn has_released(board: &Board<'_>, idle: &serde_json::Value, before: &Held) {
    sessions(board, 0);
    is_clean(board, idle);
    let clock = Clock::new();
    // The connection of an earlier `kiban status` may have been open before.
    let is_more = |now: &Held| now.descriptors > before.descriptors || now.mappings > before.mappings;
    while is_more(&held(board)) {
        assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "{:?}, not {before:?}", held(board));
        std::thread::yield_now();
    }
}

/// A program that keeps the rules, and a peer of it beside the board.
pub(super) struct Victim {
    pub(super) near: Side,
    pub(super) far: Side,
    pub(super) pairs: Vec<Pair>,
}

impl Victim {
    pub(super) fn new(dir: &TestDir) -> Victim {
        let (near, far) = (on(dir, Transport::Tcp), Side::new(&Lower::Tcp { from: None }));
        let listener = near.context.listen(at("10.9.0.2", 7471).into(), &Connect::default());
        let pairs = vec![join(&far, &near, &listener.expect("its address"))];
        Victim { near, far, pairs }
    }

    /// Checks that it still works.
    pub(super) fn works(&self) {
        moves(&self.far, &self.near, &self.pairs, 100_000);
    }
}

/// A program that speaks the protocol itself.
pub(super) struct Rude<'a> {
    pub(super) dir: &'a TestDir,
    pub(super) key: u8,
    pub(super) memories: u32,
    pub(super) channel: Channel,
    pub(super) work: Producer,
    pub(super) notices: Consumer,
    /// Notices other than replies.
    pub(super) events: Vec<Notice>,
}

/// A completion queue of such a program.
pub(super) struct RudeCq {
    pub(super) number: u32,
    pub(super) ring: Consumer,
    pub(super) memory: Region,
}

/// Registered memory of such a program.
pub(super) struct RudeMemory {
    pub(super) stag: u32,
    pub(super) region: Region,
}

pub(super) const REGION_BYTES: u32 = 1 << 20;

impl RudeMemory {
    pub(super) fn all(&self) -> Data {
        elements(self.stag, REGION_BYTES)
    }

    pub(super) fn remote(&self) -> TaggedAddress {
        TaggedAddress { stag: self.stag, offset: 0 }
    }

    pub(super) fn is_zero(&self) -> bool {
        let bytes = self.region.bytes(MEMORY_AT as u64, 4096).expect("its memory");
        let mut copy = [1; 4096];
        bytes.copy_to(0, &mut copy);
        copy == [0; 4096]
    }
}

pub(super) fn elements(stag: u32, length: u32) -> Data {
    Data::Elements(Sges::from_slice(&[Sge { stag, address: 0, length }]))
}

pub(super) fn attributes(pd: u32, cq: u32) -> QpAttributes {
    QpAttributes {
        pd,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        send_work_max: 64,
        receive_work_max: 64,
        send_sges_max: 4,
        receive_sges_max: 4,
        inline_bytes_max: 64,
        signal_all: false,
        waits_for_receives: true,
    }
}

/// Polls until there is a result, and the board has not disconnected the program.
pub(super) fn wait<T>(channel: &Channel, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::new();
    loop {
        if let Some(found) = look() {
            return found;
        }
        let waits = clock.now().as_secs_f64() < LONG.as_secs_f64() && !channel.is_gone();
        assert!(waits, "{what}: nothing, or disconnected");
        std::thread::yield_now();
    }
}

impl<'a> Rude<'a> {
    pub(super) fn attach(dir: &'a TestDir, key: u8) -> Rude<'a> {
        let bytes = Layout::new(FRONT_BYTES).bytes().next_multiple_of(4096);
        let channel = Rude::call(dir, &Greeting::Nic { key: [key; 16] }, bytes).expect("it is admitted");
        let (memory, layout) = (channel.region().clone(), Layout::new(FRONT_BYTES));
        Rude {
            dir,
            key,
            memories: 0,
            work: Producer::new(&memory, layout.work_at(), layout.work()),
            notices: Consumer::new(&memory, layout.notices_at(), layout.notices()),
            channel,
            events: Vec::new(),
        }
    }

    pub(super) fn call(dir: &TestDir, greeting: &Greeting, bytes: usize) -> std::io::Result<Channel> {
        let door = dir.0.join("kiban/lab.rdma");
        let half = PendingChannel::connect_at(&door, &greeting.to_bytes(), bytes)?;
        kiban_streams::call::complete(half, bytes)
    }

    pub(super) fn share(&mut self, bytes: usize) -> std::io::Result<(u32, Region)> {
        self.memories += 1;
        let greeting = Greeting::Memory { key: [self.key; 16], memory: self.memories };
        let channel = Rude::call(self.dir, &greeting, bytes)?;
        Ok((self.memories, channel.region().clone().with_address(0)))
    }

    pub(super) fn push(&mut self, entry: &[u8]) {
        assert_eq!(self.work.push(entry), Ok(true));
        self.channel.ring(machine_nanos);
    }

    /// Sends a request without waiting for the reply. Returns false once the board has disconnected the
    /// program.
    pub(super) fn tell(&mut self, request: &Request) -> bool {
        let entry = request.to_bytes(0).expect("it fits");
        let clock = Clock::new();
        while self.work.push(&entry) == Ok(false) {
            self.channel.ring(machine_nanos);
            if self.channel.is_gone() {
                return false;
            }
            assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "the board processes no requests");
            std::thread::yield_now();
        }
        self.channel.ring(machine_nanos);
        true
    }

    pub(super) fn take_notice(&mut self) -> Option<Notice> {
        let mut entry = [0; ENTRY_BYTES];
        let bytes = self.notices.peek().expect("a board that keeps the rules")?;
        let length = bytes.copy_to(0, &mut entry);
        self.notices.release();
        // The board may have found the ring full.
        self.channel.ring(machine_nanos);
        Some(Notice::from_bytes(&entry[..length]).expect("a board that keeps the rules"))
    }

    pub(super) fn ask(&mut self, request: &Request) -> Result<Answer, Refusal> {
        self.push(&request.to_bytes(1).expect("it fits"));
        loop {
            let notice = self.notice("a reply");
            match notice {
                Notice::Reply { number: 1, result } => return result,
                Notice::Reply { .. } => {}
                event => self.events.push(event),
            }
        }
    }

    pub(super) fn notice(&mut self, what: &str) -> Notice {
        let clock = Clock::new();
        loop {
            if let Some(notice) = self.take_notice() {
                return notice;
            }
            // What the board reported before it ended the connection has been read by then.
            let waits = clock.now().as_secs_f64() < LONG.as_secs_f64() && !self.channel.is_gone();
            assert!(waits, "{what}: nothing, or disconnected");
            std::thread::yield_now();
        }
    }

    /// Waits for an event, and drops those before it.
    pub(super) fn event<T>(&mut self, what: &str, is_it: impl Fn(&Notice) -> Option<T>) -> T {
        let known = std::mem::take(&mut self.events);
        if let Some(found) = known.iter().find_map(&is_it) {
            return found;
        }
        loop {
            if let Some(found) = is_it(&self.notice(what)) {
                return found;
            }
        }
    }

    pub(super) fn number(&mut self, request: &Request) -> u32 {
        match self.ask(request) {
            Ok(Answer::Number(number)) => number,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    /// Waits until the board has disconnected it.
    pub(super) fn is_disconnected(&self) {
        let clock = Clock::new();
        while !self.channel.is_gone() {
            assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "the board must disconnect it");
            std::thread::yield_now();
        }
    }

    pub(super) fn cq(&mut self, entries: u32) -> RudeCq {
        let ring = CompletionRing::new(entries as usize);
        let (number, memory) = self.share(ring.bytes().next_multiple_of(4096)).expect("it is shared");
        let number = self.number(&Request::CreateCq { memory: number, entries });
        RudeCq { number, ring: Consumer::new(&memory, CompletionRing::AT, ring.shape()), memory }
    }

    pub(super) fn memory(&mut self, pd: u32) -> RudeMemory {
        let (memory, region) = self.share(MEMORY_AT + REGION_BYTES as usize).expect("it is shared");
        let pieces = vec![Piece { memory, offset: 0, length: REGION_BYTES.into() }];
        let stag = self.number(&Request::Register { pd, pieces, address: 0, access: Access::ALL });
        RudeMemory { stag, region }
    }

    pub(super) fn qp(&mut self, pd: u32, cq: &RudeCq) -> u32 {
        self.number(&Request::CreateQp { attributes: attributes(pd, cq.number) })
    }

    pub(super) fn connect(&mut self, qp: u32, port: u16) -> u32 {
        self.connect_over(Transport::Tcp, qp, at("10.9.0.2", port))
    }

    pub(super) fn connect_over(&mut self, transport: Transport, qp: u32, remote: SocketAddr) -> u32 {
        let depths = (16, 16);
        self.number(&Request::Connect { transport, remote, qp, depths, private_data: Vec::new() })
    }

    /// Connects two queue pairs of its own, through a listener of its own at this port.
    pub(super) fn pair(&mut self, pd: u32, cq: &RudeCq, port: u16) -> [u32; 2] {
        let pair = [self.qp(pd, cq), self.qp(pd, cq)];
        let end = self.connect(pair[0], port);
        let asking = self.event("a connection request", |notice| match notice {
            Notice::ConnectRequest { end, .. } => Some(*end),
            _ => None,
        });
        let accept = Request::Accept { end: asking, qp: pair[1], depths: (16, 16), private_data: Vec::new() };
        self.number(&accept);
        self.is_connected(end);
        pair
    }

    /// Waits until an end is connected.
    pub(super) fn is_connected(&mut self, end: u32) {
        self.event("a connection", |notice| match notice {
            Notice::Connected { end: connected, .. } if *connected == end => Some(()),
            _ => None,
        });
    }

    pub(super) fn listen(&mut self, port: u16) {
        let listen = Request::Listen { transport: Transport::Tcp, local: at("10.9.0.2", port) };
        assert!(matches!(self.ask(&listen), Ok(Answer::Listening { .. })), "port {port}");
    }

    pub(super) fn completion(&self, cq: &mut RudeCq) -> Completion {
        wait(&self.channel, "a completion", || {
            let mut entry = [0; COMPLETION_BYTES];
            cq.ring.peek().expect("a board that keeps the rules")?.copy_to(0, &mut entry);
            cq.ring.release();
            Some(completion_from_bytes(&entry).expect("a board that keeps the rules"))
        })
    }

    pub(super) fn state(&mut self, qp: u32) -> QpState {
        match self.ask(&Request::QueryQp { qp }) {
            Ok(Answer::Qp { state, .. }) => state,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until a queue pair is no longer connected.
    pub(super) fn is_over(&mut self, qp: u32, what: &str) {
        let clock = Clock::new();
        while self.state(qp) == QpState::Rts {
            assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "{what}: it is still connected");
        }
    }

    /// Writes a word into a ring.
    pub(super) fn scribble(&self, at: usize, word: u32) {
        let memory = self.channel.region().clone().with_address(0);
        memory.write(at as u64, SharedBytes::from(&word.to_ne_bytes()[..])).expect("within");
    }
}

/// Runs programs that misuse the NIC of a new board, with these `settings` of its service. Afterwards, the
/// board must have released everything that they have made it hold.
pub(super) fn against_board(name: &str, settings: &str, programs: impl FnOnce(&TestDir, &Board<'_>)) {
    if !enter() {
        return;
    }
    let dir = TestDir::new(name);
    let board = dir.up(&format!("{PORT}{RDMA}{settings}"));
    let (idle, before) = (board.status(), held(&board));
    programs(&dir, &board);
    has_released(&board, &idle, &before);
    assert!(!dir.log().contains("panicked"), "{}", dir.log());
}
