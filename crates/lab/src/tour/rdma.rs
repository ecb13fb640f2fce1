//! The RDMA board's rows of the tour: a file is transferred by RDMA Write and by RDMA Read, over four lower
//! layers.
//!
//! Protocol  blocks of 256 KiB, at most eight outstanding. With Write, the source writes a block into the
//!           sink's memory and announces it with a Send; with Read, the source announces the block and the
//!           sink reads it. The sink acknowledges every block with a Send after it has hashed it.
//! Set-ups   TCP of the operating system: two NICs of this process over the loopback, in real time. The
//!           board's own TCP: OC-3c lines as in the ATM board's rows. EFE, and RoCEv2 over the board's own
//!           UDP: Ethernet of 10 Gbit/s.
//! Limits    in virtual time, the limit is the payload that the line can carry in frames of these sizes; in
//!           real time, it is the rate of a bare TCP stream of the same file, measured between several
//!           transfers (`rounds`), with the same block size and with hashing at both ends.

use super::{Failure, Payload, ROUNDS, Row, Shared, hex, rounds, source, watch};
use crate::limits;
use kiban_atm::wire::atm::Vc;
use kiban_base::ethernet::{HEADER_BYTES as ETHERNET_HEADER_BYTES, Mac};
use kiban_base::{Instant, Region, SharedBytes};
use kiban_board::{
    AtmPortConfig, BoardConfig, CircuitConfig, Completion, EfePortConfig, EthernetPortConfig, Host,
    MemoryConfig, PortConfig, RdmaConfig, RoceConfig,
};
use kiban_os::clock::{Clock, TickScale, ticks};
use kiban_rdma::efe;
use kiban_rdma::iwarp::mpa;
use kiban_rdma::nic::CmEvent;
use kiban_rdma::rnic::{
    Access, Data, Kind, Operation, QpAttributes, ReceiveWork, Rnic, SendWork, Sge, Status, TaggedAddress,
};
use kiban_rdma::wire::ddp::{TAGGED_BYTES, UNTAGGED_BYTES};
use kiban_rdma::wire::efe::{HEADER_BYTES as EFE_HEADER_BYTES, SEGMENT_BYTES_MAX};
use kiban_rdma::wire::roce::Reth;
use kiban_rdma_runtime as rdma;
use kiban_sim::program::Source;
use kiban_sim::{Attachment, CableConfig, ETHERNET_FRAMING_BYTES, ImpairmentConfig, Program, World};
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::ip::Prefix;
use sha2::{Digest, Sha256};
use std::any::Any;
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::time::Duration;

/// Bytes of a block.
const BLOCK_BYTES: usize = 256 << 10;
/// The maximum number of blocks outstanding, which is also the number of block slots in the memory of each
/// side.
const BLOCKS: u64 = 8;
/// Bytes of the message that announces or acknowledges a block; it holds the block's length.
const WORD_BYTES: usize = 4;
/// The TCP port, or the EFE service number.
const SERVICE: u16 = 7471;
const ETHERNET_BITS_PER_SECOND: u64 = 10_000_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// The RDMA operation that transfers the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// The source writes them.
    Write,
    /// The sink reads them.
    Read,
}

/// The lower layer of the RDMA NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LowerLayer {
    /// The operating system's TCP, in real time.
    OsTcp,
    /// The board's own TCP, over ATM.
    OwnTcp,
    /// EFE, over Ethernet.
    Efe,
    /// RoCEv2 on the board's own UDP, over Ethernet.
    Roce,
}

/// The rows in the order of the table.
pub const TRANSFERS: [(Method, LowerLayer); 8] = [
    (Method::Write, LowerLayer::OsTcp),
    (Method::Read, LowerLayer::OsTcp),
    (Method::Write, LowerLayer::OwnTcp),
    (Method::Read, LowerLayer::OwnTcp),
    (Method::Write, LowerLayer::Efe),
    (Method::Read, LowerLayer::Efe),
    (Method::Write, LowerLayer::Roce),
    (Method::Read, LowerLayer::Roce),
];

impl LowerLayer {
    fn stack(self) -> &'static str {
        match self {
            LowerLayer::OsTcp => "RDMAP/DDP/MPA/TCP of the operating system",
            LowerLayer::OwnTcp => "RDMAP/DDP/MPA/TCP/IPv4/LLC-SNAP/AAL5/ATM/OC-3c",
            LowerLayer::Efe => "RDMAP/DDP/EFE/Ethernet",
            LowerLayer::Roce => "RoCEv2/UDP/IPv4/Ethernet",
        }
    }

    fn name(self) -> &'static str {
        match self {
            LowerLayer::OsTcp => "OS",
            LowerLayer::OwnTcp => "TCP",
            LowerLayer::Efe => "EFE",
            LowerLayer::Roce => "RoCE",
        }
    }
}

/// Returns the name of a row.
pub fn name(by: Method, over: LowerLayer) -> String {
    let by = match by {
        Method::Write => "write",
        Method::Read => "read",
    };
    format!("{by} {}", over.name())
}

/// Runs one transfer. Calls `progress` with the number of bytes received so far.
///
/// # Errors
/// See [`Failure`].
pub fn run(
    by: Method,
    over: LowerLayer,
    cargo: &Payload,
    progress: &mut dyn FnMut(u64),
) -> Result<Row, Failure> {
    match over {
        LowerLayer::OsTcp => in_real_time(by, cargo, progress),
        LowerLayer::OwnTcp | LowerLayer::Efe | LowerLayer::Roce => in_virtual_time(by, over, cargo, progress),
    }
}

fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES as u64)
}

fn length_of(bytes: u64, block: u64) -> usize {
    (bytes - block * BLOCK_BYTES as u64).min(BLOCK_BYTES as u64) as usize
}

/// Returns the offset of a block in the memory of either side.
fn place_of(block: u64) -> u64 {
    block % BLOCKS * BLOCK_BYTES as u64
}

// ---- in virtual time

/// One side of the transfer: the source, which connects, or the sink.
struct End {
    by: Method,
    over: LowerLayer,
    bytes: u64,
    /// Reads the file; `None` on the sink.
    source: Option<Source>,
    hasher: Shared<Sha256>,
    arrived: Shared<u64>,
    memory: Region,
    words: Region,
    qp: u32,
    cq: u32,
    stag: u32,
    words_stag: u32,
    peer: Option<TaggedAddress>,
    begun: u64,
    taken: u64,
    last_at: Instant,
    gone: bool,
    buffer: Vec<u8>,
}

impl End {
    fn new(by: Method, over: LowerLayer, bytes: u64, source: Option<Source>, arrived: Shared<u64>) -> End {
        End {
            by,
            over,
            bytes,
            source,
            hasher: Shared::default(),
            arrived,
            memory: Region::new(1 << 32, BLOCKS as usize * BLOCK_BYTES),
            words: Region::new(2 << 32, 4 * BLOCKS as usize * WORD_BYTES),
            qp: 0,
            cq: 0,
            stag: 0,
            words_stag: 0,
            peer: None,
            begun: 0,
            taken: 0,
            last_at: Instant::ZERO,
            gone: false,
            buffer: vec![0; BLOCK_BYTES],
        }
    }

    fn said(&self) -> Vec<u8> {
        [&self.stag.to_be_bytes()[..], &self.memory.address().to_be_bytes()[..]].concat()
    }

    fn on_private_data(&mut self, said: &[u8]) {
        if let Some((stag, offset)) = said.split_first_chunk::<4>()
            && let Some(offset) = offset.first_chunk::<8>()
        {
            self.peer =
                Some(TaggedAddress { stag: u32::from_be_bytes(*stag), offset: u64::from_be_bytes(*offset) });
        }
    }

    fn remote(&self, block: u64) -> TaggedAddress {
        let peer = self.peer.expect("the peer has said where its memory is");
        TaggedAddress { offset: peer.offset + place_of(block), ..peer }
    }

    fn sge(&self, block: u64, length: usize) -> Data {
        let address = self.memory.address() + place_of(block);
        Data::one(Sge { stag: self.stag, address, length: length as u32 })
    }

    fn word(&self, core: &mut Rnic, length: usize) {
        let word = (length as u32).to_be_bytes();
        let work = SendWork {
            signalled: false,
            ..SendWork::new(0, Operation::SEND, Data::Inline(word.into_iter().collect()))
        };
        core.post_send(self.qp, work).expect("the queue is long enough");
    }

    fn receive(&self, core: &mut Rnic, slot: u64) {
        let address = self.words.address() + slot * WORD_BYTES as u64;
        let sge = Sge { stag: self.words_stag, address, length: WORD_BYTES as u32 };
        let work = ReceiveWork { id: slot, sges: [sge].into_iter().collect() };
        core.post_receive(self.qp, work).expect("the queue is long enough");
    }

    /// Sends blocks while fewer than [`BLOCKS`] are outstanding (source only).
    fn send_blocks(&mut self, core: &mut Rnic) {
        while self.begun < blocks_of(self.bytes) && self.begun - self.taken < BLOCKS {
            let length = length_of(self.bytes, self.begun);
            let source = self.source.as_mut().expect("the source has the file");
            source(self.begun * BLOCK_BYTES as u64, &mut self.buffer[..length]);
            let address = self.memory.address() + place_of(self.begun);
            self.memory.write(address, SharedBytes::from(&self.buffer[..length])).expect("a block of it");
            if self.by == Method::Write {
                let operation = Operation::write(self.remote(self.begun));
                let work = SendWork {
                    signalled: false,
                    ..SendWork::new(0, operation, self.sge(self.begun, length))
                };
                core.post_send(self.qp, work).expect("the queue is long enough");
            }
            self.word(core, length);
            self.begun += 1;
        }
        if self.taken == blocks_of(self.bytes) {
            // The transfer is complete when both sides have seen the disconnect.
            let _ = core.disconnect(self.qp);
        }
    }

    /// Hashes and acknowledges a block that has arrived (sink only).
    fn take(&mut self, core: &mut Rnic, now: Instant) {
        let length = length_of(self.bytes, self.taken);
        let at = self.memory.address() + place_of(self.taken);
        self.memory.bytes(at, length).expect("a block of it").copy_to(0, &mut self.buffer);
        self.hasher.borrow_mut().update(&self.buffer[..length]);
        *self.arrived.borrow_mut() += length as u64;
        self.taken += 1;
        self.last_at = now;
        self.word(core, length);
    }

    fn on_done(&mut self, core: &mut Rnic, done: kiban_rdma::rnic::Completion, now: Instant) {
        if done.status != Status::Success {
            return;
        }
        match done.kind {
            Kind::Receive => {
                self.receive(core, done.id);
                match (&self.source, self.by) {
                    (Some(_), _) => {
                        self.taken += 1;
                        self.send_blocks(core);
                    }
                    (None, Method::Write) => self.take(core, now),
                    (None, Method::Read) => {
                        let (block, length) = (self.begun, length_of(self.bytes, self.begun));
                        let operation = Operation::read(self.remote(block));
                        let work = SendWork::new(block, operation, self.sge(block, length));
                        core.post_send(self.qp, work).expect("the queue is long enough");
                        self.begun += 1;
                    }
                }
            }
            Kind::Read => self.take(core, now),
            _ => {}
        }
    }
}

impl Program for End {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        let mut rdma = host.rdma().expect("the board has an RDMA NIC");
        let core = &mut rdma.nic().core;
        let room = "a new NIC has room";
        let pd = core.create_pd().expect(room);
        self.cq = core.create_cq(16 * BLOCKS as usize).expect(room);
        self.stag = core.register(pd, self.memory.clone(), Access::ALL).expect(room);
        self.words_stag = core.register(pd, self.words.clone(), Access::LOCAL).expect(room);
        let attributes = QpAttributes {
            pd,
            send_cq: self.cq,
            receive_cq: self.cq,
            srq: None,
            send_work_max: 4 * BLOCKS as usize,
            receive_work_max: 4 * BLOCKS as usize,
            send_sges_max: 1,
            receive_sges_max: 1,
            inline_bytes_max: WORD_BYTES,
            signal_all: false,
            waits_for_receives: false,
        };
        self.qp = core.create_qp(attributes).expect(room);
        (0..4 * BLOCKS).for_each(|slot| self.receive(core, slot));
        let (said, depths) = (self.said(), (BLOCKS as u16, BLOCKS as u16));
        match (self.source.is_some(), self.over) {
            (true, LowerLayer::Efe) => {
                rdma.connect_efe(mac(1), SERVICE, self.qp, depths, &said).expect(room);
            }
            (true, LowerLayer::Roce) => {
                rdma.connect_roce(address(1), self.qp, depths, &said).expect("a route");
            }
            (false, LowerLayer::Roce) => rdma.listen_roce(SERVICE).expect("the port is free"),
            (true, _) => drop(rdma.connect(address(1), self.qp, depths, &said).expect("a route")),
            (false, LowerLayer::Efe) => rdma.listen_efe(SERVICE).expect("the service is free"),
            (false, _) => drop(rdma.listen(address(1)).expect("the port is free")),
        }
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        let (Completion::Rdma, Some(mut rdma)) = (completion, host.rdma()) else { return };
        while let Some(event) = rdma.nic().poll() {
            match event {
                CmEvent::ConnectRequest(request) => {
                    self.on_private_data(&request.private_data);
                    let (said, depths) = (self.said(), (BLOCKS as u16, BLOCKS as u16));
                    rdma.accept(request.end, self.qp, depths, &said).expect("it waits");
                }
                CmEvent::Connected { private_data, .. } => {
                    self.on_private_data(&private_data);
                    if self.source.is_some() {
                        self.send_blocks(&mut rdma.nic().core);
                    }
                }
                CmEvent::Gone { .. } | CmEvent::Failed { .. } => self.gone = true,
                CmEvent::Withdrawn { .. } => {}
            }
        }
        while let Ok(Some(done)) = rdma.nic().core.poll(self.cq) {
            self.on_done(&mut rdma.nic().core, done, now);
        }
    }

    fn is_done(&self) -> bool {
        self.gone
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn mac(side: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, 1 + side as u8])
}

fn address(side: usize) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1 + side as u8).into(), SERVICE)
}

fn board(side: usize, over: LowerLayer) -> BoardConfig {
    let port = match over {
        LowerLayer::Efe => {
            PortConfig::Efe(EfePortConfig { mac: mac(side), endpoint: efe::Config::default() })
        }
        LowerLayer::Roce => {
            let addresses = vec![(address(side).ip(), Prefix::new(address(side).ip(), 24))];
            let link = LinkConfig { addresses, ..LinkConfig::new(mac(side)) };
            PortConfig::Ethernet(EthernetPortConfig::on(link))
        }
        _ => {
            let prefix = Prefix::new(address(side).ip(), 24);
            let circuit = CircuitConfig::to(Vc { vpi: 0, vci: 100 }, address(1 - side).ip());
            let port = AtmPortConfig::oc3c(address(side).ip(), prefix);
            PortConfig::Atm(AtmPortConfig { circuits: vec![circuit], ..port })
        }
    };
    BoardConfig {
        memory: MemoryConfig::default(),
        tcp: kiban_sim::Plan::with_window(256 << 10).tcp,
        ports: vec![port],
        rdma: Some(RdmaConfig {
            roce: (over == LowerLayer::Roce).then(RoceConfig::default),
            ..RdmaConfig::default()
        }),
        ..BoardConfig::default()
    }
}

/// Returns the payload rate of the line in Mbit/s: blocks in segments, and one announcement per block.
fn limit_mbps(over: LowerLayer) -> f64 {
    match over {
        LowerLayer::Efe => {
            let payload = SEGMENT_BYTES_MAX - TAGGED_BYTES;
            let frame = |segment: usize| {
                (segment + EFE_HEADER_BYTES + ETHERNET_HEADER_BYTES).max(60) + ETHERNET_FRAMING_BYTES
            };
            let (whole, rest) = (BLOCK_BYTES / payload, BLOCK_BYTES % payload);
            let bytes = whole * frame(SEGMENT_BYTES_MAX)
                + frame(TAGGED_BYTES + rest)
                + frame(UNTAGGED_BYTES + WORD_BYTES);
            ETHERNET_BITS_PER_SECOND as f64 * BLOCK_BYTES as f64 / bytes as f64 / 1e6
        }
        LowerLayer::Roce => {
            let path_mtu = RoceConfig::default().nic.path_mtu;
            let packets = BLOCK_BYTES / path_mtu * limits::roce_frame_bytes(path_mtu);
            let bytes = packets + Reth::BYTES + limits::roce_frame_bytes(WORD_BYTES);
            ETHERNET_BITS_PER_SECOND as f64 * BLOCK_BYTES as f64 / bytes as f64 / 1e6
        }
        _ => {
            let most = mpa::ulpdu_bytes_max(usize::MAX, false) - TAGGED_BYTES;
            let (whole, rest) = (BLOCK_BYTES / most, BLOCK_BYTES % most);
            let bytes = whole * mpa::fpdu_bytes(most + TAGGED_BYTES)
                + mpa::fpdu_bytes(rest + TAGGED_BYTES)
                + mpa::fpdu_bytes(UNTAGGED_BYTES + WORD_BYTES);
            limits::oc3c_mbps(8192, 0) * BLOCK_BYTES as f64 / bytes as f64
        }
    }
}

fn in_virtual_time(
    by: Method,
    over: LowerLayer,
    cargo: &Payload,
    progress: &mut dyn FnMut(u64),
) -> Result<Row, Failure> {
    let scale = TickScale::calibrate();
    let mut world = World::new(1);
    world.set_tick_source(ticks);
    let boards = [0, 1].map(|side| world.add_board(&board(side, over)));
    let plugs = boards.map(|board| Attachment::Board(board, 0));
    match over {
        LowerLayer::Efe => {
            let cable = CableConfig::ethernet(ETHERNET_BITS_PER_SECOND, Duration::from_nanos(3700));
            let cable = CableConfig { packets_max: 1, ..cable };
            world.connect_packets(plugs[0], plugs[1], &cable).expect("both are EFE ports");
        }
        LowerLayer::Roce => {
            let cable = CableConfig::ethernet(ETHERNET_BITS_PER_SECOND, Duration::from_nanos(3700));
            world.connect_packets(plugs[0], plugs[1], &cable).expect("both are Ethernet ports");
        }
        _ => drop(
            world.connect(plugs[0], plugs[1], 200.0, ImpairmentConfig::NONE).expect("both are ATM ports"),
        ),
    }
    let (sent, arrived): (Shared<Sha256>, Shared<u64>) = Default::default();
    let read_error: Rc<RefCell<Option<std::io::Error>>> = Rc::default();
    let file = source(cargo.clone(), 0, sent.clone(), read_error.clone());
    let clock = Clock::new();
    world.run_program(boards[1], Box::new(End::new(by, over, cargo.len(), None, arrived.clone())));
    world.run_program(boards[0], Box::new(End::new(by, over, cargo.len(), Some(file), arrived.clone())));
    let done = watch(&mut world, &arrived, &read_error, progress)?;
    let wall_seconds = clock.now().as_secs_f64();
    if !done || *arrived.borrow() < cargo.len() {
        return Err(Failure::Halted(format!("{world:?}, {} of {} bytes", arrived.borrow(), cargo.len())));
    }
    let sink = world.program::<End>(boards[1]).expect("it ran");
    let (received, last) = (sink.hasher.borrow().clone().finalize(), sink.last_at);
    let boards = boards.map(|number| world.board(number));
    let total = |family, name| boards.iter().map(|board| board.counter(family, name)).sum::<u64>();
    // The boards' copy counters include the copy into pages: from host memory for TCP, from the packet for
    // RoCEv2. Add the copy into EFE's frames or RoCEv2's packets, and the copy into the receiver's memory.
    let builds = matches!(over, LowerLayer::Efe | LowerLayer::Roce);
    let to_packets = if builds { total("rdma", "payload_out_bytes") } else { 0 };
    let copied = super::copied(&boards) + to_packets + total("rdma", "placed_bytes");
    let units = if over == LowerLayer::Roce { "packets_out" } else { "segments_out" };
    Ok(row(&Measured {
        by,
        over,
        bytes: cargo.len(),
        sha256_equal: sent.borrow().clone().finalize() == received,
        sha256: hex(&received),
        clock: "virtual",
        seconds: last.as_secs_f64(),
        wall_seconds,
        limit_mbps: limit_mbps(over),
        copied,
        segments: boards[0].counter("rdma", units),
        pdus: total("rdma", units),
        retransmits: total("tcp", "retransmits")
            + total("efe", "retransmits")
            + total("rdma", "packets_retransmitted"),
        cpu_nanos: scale.nanos(world.cost().board_ticks),
    }))
}

// ---- in real time

/// Measures a bare TCP stream over the loopback with the same hashing and block size, in Mbit/s.
fn bare_tcp_mbps(bytes: u64, file: &mut Source) -> std::io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let at = listener.local_addr()?;
    let clock = Clock::new();
    let reading = std::thread::spawn(move || -> std::io::Result<u64> {
        let (mut stream, _) = listener.accept()?;
        let (mut buffer, mut total, mut hasher) = (vec![0; BLOCK_BYTES], 0, Sha256::new());
        loop {
            match stream.read(&mut buffer)? {
                0 => {
                    std::hint::black_box(hasher.finalize());
                    return Ok(total);
                }
                read => {
                    hasher.update(&buffer[..read]);
                    total += read as u64;
                }
            }
        }
    });
    let mut stream = TcpStream::connect(at)?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; BLOCK_BYTES];
    for block in 0..blocks_of(bytes) {
        let piece = &mut buffer[..length_of(bytes, block)];
        file(block * BLOCK_BYTES as u64, piece);
        stream.write_all(piece)?;
    }
    drop(stream);
    let total = reading.join().map_err(|_| std::io::Error::other("the reader panicked"))??;
    Ok(total as f64 * 8.0 / clock.now().as_secs_f64() / 1e6)
}

struct RealEnd {
    context: rdma::Context,
    cq: rdma::Cq,
    qp: rdma::Qp,
    memory: rdma::Mr,
    words: rdma::Mr,
}

impl RealEnd {
    fn open() -> Result<RealEnd, rdma::Error> {
        let context = rdma::Context::open(&rdma::Lower::Tcp { from: None })?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(16 * BLOCKS as usize)?;
        let qp = pd.create_qp(&cq, &cq, rdma::QpOptions::default())?;
        let memory = pd.reg_mr(BLOCKS as usize * BLOCK_BYTES, rdma::Access::ALL)?;
        let words = pd.reg_mr(4 * BLOCKS as usize * WORD_BYTES, rdma::Access::LOCAL)?;
        for slot in 0..4 * BLOCKS {
            qp.post_recv(slot, &[words.slice(slot as usize * WORD_BYTES, WORD_BYTES)])?;
        }
        Ok(RealEnd { context, cq, qp, memory, words })
    }

    fn said(&self) -> Vec<u8> {
        [&self.memory.rkey().to_be_bytes()[..], &self.memory.address().to_be_bytes()[..]].concat()
    }

    fn options(&self) -> rdma::Connect {
        rdma::Connect { private_data: self.said(), ..rdma::Connect::default() }
    }

    fn block(&self, block: u64, length: usize) -> rdma::Slice {
        self.memory.slice(place_of(block) as usize, length)
    }

    /// Waits for the next completion; returns an error if the work request failed.
    fn done(&self) -> Result<rdma::Completion, rdma::Error> {
        let done = self.cq.wait(PATIENCE)?;
        match done.status {
            rdma::Status::Success => Ok(done),
            status => Err(rdma::Error::Os(std::io::Error::other(status.to_string()))),
        }
    }

    fn receive_again(&self, slot: u64) -> Result<(), rdma::Error> {
        self.qp.post_recv(slot, &[self.words.slice(slot as usize * WORD_BYTES, WORD_BYTES)])
    }

    fn word(&self, length: usize) -> rdma::Wr {
        rdma::Wr::send_inline(0, &(length as u32).to_be_bytes()).unsignalled()
    }
}

fn remote_of(said: &[u8], block: u64) -> rdma::Remote {
    let rkey = said.first_chunk().map_or(0, |rkey| u32::from_be_bytes(*rkey));
    let address = said.get(4..).and_then(|rest| rest.first_chunk()).map_or(0, |at| u64::from_be_bytes(*at));
    rdma::Remote { rkey, address: address + place_of(block) }
}

/// Runs the sink in real time; returns the hash of the received file.
fn sink(end: &RealEnd, listener: &rdma::Listener, by: Method, bytes: u64) -> Result<Vec<u8>, rdma::Error> {
    let request = listener.request(PATIENCE)?;
    let said = request.private_data().to_vec();
    let connection = request.accept(&end.qp, &end.options())?;
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; BLOCK_BYTES]);
    let (mut begun, mut taken) = (0, 0);
    while taken < blocks_of(bytes) {
        let done = end.done()?;
        let here = match done.kind {
            rdma::Kind::Receive => {
                end.receive_again(done.id)?;
                if by == Method::Read {
                    let slice = end.block(begun, length_of(bytes, begun));
                    end.qp.post_send(rdma::Wr::read(begun, slice, remote_of(&said, begun)))?;
                    begun += 1;
                }
                by == Method::Write
            }
            kind => kind == rdma::Kind::Read,
        };
        if here {
            let length = length_of(bytes, taken);
            end.memory.read(place_of(taken) as usize, &mut buffer[..length]);
            hasher.update(&buffer[..length]);
            taken += 1;
            end.qp.post_send(end.word(length))?;
        }
    }
    connection.wait_disconnected(PATIENCE)?;
    Ok(hasher.finalize().to_vec())
}

/// Runs the source in real time.
fn feed(
    end: &RealEnd,
    to: rdma::Address,
    by: Method,
    bytes: u64,
    file: &mut Source,
    progress: &mut dyn FnMut(u64),
) -> Result<(), rdma::Error> {
    let connection = end.qp.connect(to, &end.options(), PATIENCE)?;
    let said = connection.private_data().to_vec();
    let (mut begun, mut taken, mut buffer) = (0, 0, vec![0; BLOCK_BYTES]);
    while taken < blocks_of(bytes) {
        while begun < blocks_of(bytes) && begun - taken < BLOCKS {
            let length = length_of(bytes, begun);
            file(begun * BLOCK_BYTES as u64, &mut buffer[..length]);
            end.memory.write(place_of(begun) as usize, &buffer[..length]);
            let block = rdma::Wr::write(0, end.block(begun, length), remote_of(&said, begun)).unsignalled();
            let written = (by == Method::Write).then_some(block);
            end.qp.post_send_all(written.into_iter().chain([end.word(length)]))?;
            begun += 1;
        }
        let done = end.done()?;
        if done.kind == rdma::Kind::Receive {
            end.receive_again(done.id)?;
            taken += 1;
            progress((taken * BLOCK_BYTES as u64).min(bytes));
        }
    }
    connection.disconnect();
    connection.wait_disconnected(PATIENCE)
}

fn in_real_time(by: Method, cargo: &Payload, progress: &mut dyn FnMut(u64)) -> Result<Row, Failure> {
    let bytes = cargo.len();
    let mut bare = || {
        let mut file = source(cargo.clone(), 0, Shared::default(), Rc::default());
        bare_tcp_mbps(bytes, &mut file).map_err(Failure::Reading)
    };
    rounds::run(&mut bare, &mut |round| {
        transfer(by, cargo, &mut |done| progress((round * bytes + done) / ROUNDS))
    })
}

/// Runs one transfer in real time; its row has no limit.
fn transfer(by: Method, cargo: &Payload, progress: &mut dyn FnMut(u64)) -> Result<Row, Failure> {
    let halted = |error: rdma::Error| Failure::Halted(error.to_string());
    let (one, two) = (RealEnd::open().map_err(halted)?, RealEnd::open().map_err(halted)?);
    let at = rdma::Address::Ip(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0));
    let listener = two.context.listen(at, &rdma::Connect::default()).map_err(halted)?;
    let sent: Shared<Sha256> = Shared::default();
    let read_error: Rc<RefCell<Option<std::io::Error>>> = Rc::default();
    let mut file = source(cargo.clone(), 0, sent.clone(), read_error.clone());
    let (clock, cpu) = (Clock::new(), kiban_os::clock::process_cpu_nanos());
    let bytes = cargo.len();
    let received = std::thread::scope(|scope| {
        let sinking = scope.spawn(|| sink(&two, &listener, by, bytes));
        feed(&one, listener.address(), by, bytes, &mut file, progress).map_err(halted)?;
        let received = sinking.join().map_err(|_| Failure::Halted("the sink panicked".into()))?;
        received.map_err(halted)
    })?;
    let seconds = clock.now().as_secs_f64();
    let cpu_nanos = kiban_os::clock::process_cpu_nanos().saturating_sub(cpu) as f64;
    if let Some(error) = read_error.borrow_mut().take() {
        return Err(Failure::Reading(error));
    }
    let (one, two) = (one.context.counters(), two.context.counters());
    Ok(row(&Measured {
        by,
        over: LowerLayer::OsTcp,
        bytes: cargo.len(),
        sha256_equal: sent.borrow().clone().finalize()[..] == received[..],
        sha256: hex(&received),
        clock: "real",
        seconds,
        wall_seconds: seconds,
        limit_mbps: 0.0,
        copied: one.placed_bytes + two.placed_bytes,
        segments: one.segments_out,
        pdus: one.segments_out + two.segments_out,
        retransmits: 0,
        cpu_nanos,
    }))
}

/// The measurements of one row.
struct Measured {
    by: Method,
    over: LowerLayer,
    bytes: u64,
    sha256_equal: bool,
    sha256: String,
    clock: &'static str,
    seconds: f64,
    wall_seconds: f64,
    limit_mbps: f64,
    copied: u64,
    segments: u64,
    pdus: u64,
    retransmits: u64,
    cpu_nanos: f64,
}

fn row(measured: &Measured) -> Row {
    let bytes = measured.bytes as f64;
    let per_byte = |value: f64| (measured.bytes > 0).then(|| value / bytes);
    let mbps = (measured.bytes > 0).then(|| bytes * 8.0 / measured.seconds / 1e6);
    Row {
        board: "rdma",
        stack: measured.over.stack(),
        operation: name(measured.by, measured.over),
        sessions: 1,
        bytes: measured.bytes,
        sha256_equal: measured.sha256_equal,
        clock: measured.clock,
        virtual_seconds: measured.seconds,
        mbps,
        limit_mbps: measured.limit_mbps,
        limit_percent: mbps.map(|mbps| mbps / measured.limit_mbps * 100.0),
        mbps_range: None,
        limit_mbps_range: None,
        paper_mbps: None,
        copies_per_byte: per_byte(measured.copied as f64),
        retransmissions: measured.retransmits,
        cpu_ns_per_pdu: measured.cpu_nanos / measured.pdus.max(1) as f64,
        wall_seconds: measured.wall_seconds,
        cells: measured.segments,
        cpu_ns_per_byte: per_byte(measured.cpu_nanos),
        sha256: measured.sha256.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_arrives_intact_by_write_and_read_over_every_lower_layer() {
        for (by, over) in TRANSFERS {
            for bytes in [0, 1, BLOCK_BYTES as u64, 5_000_000] {
                let row = run(by, over, &Payload::generated(bytes), &mut |_| {}).expect("it ends");
                assert!(row.sha256_equal, "{by:?} {over:?} {bytes} bytes");
                assert_eq!((row.bytes, row.retransmissions), (bytes, 0), "{by:?} {over:?}");
                assert_eq!(row.mbps.is_some(), bytes > 0);
            }
        }
    }

    #[test]
    fn rdma_adds_no_copies_to_those_of_its_lower_layer() {
        for (by, over) in TRANSFERS.into_iter().filter(|(_, over)| *over != LowerLayer::OsTcp) {
            let row = run(by, over, &Payload::generated(5_000_000), &mut |_| {}).expect("it ends");
            let copies = row.copies_per_byte.expect("bytes arrived");
            // The minimum number of copies: from host memory, into cells, out of cells, into host memory. EFE
            // needs only the first and the last; RoCEv2 builds packets and copies them into pages.
            let least = match over {
                LowerLayer::Efe => 2.0,
                LowerLayer::Roce => 3.0,
                _ => 4.0,
            };
            // The pages hold RoCEv2's headers, too.
            let most = least + if over == LowerLayer::Roce { 0.1 } else { 0.05 };
            assert!((least..most).contains(&copies), "{by:?} {over:?}: {copies}");
        }
    }

    #[test]
    fn virtual_rows_nearly_reach_the_line_rate() {
        for (by, over) in TRANSFERS.into_iter().filter(|(_, over)| *over != LowerLayer::OsTcp) {
            let row = run(by, over, &Payload::generated(20_000_000), &mut |_| {}).expect("it ends");
            let percent = row.limit_percent.expect("bytes arrived");
            assert!((97.0..100.0).contains(&percent), "{by:?} {over:?}: {percent} %");
        }
    }
}
