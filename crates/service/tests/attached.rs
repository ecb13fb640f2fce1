//! Tests of the `attach` service in virtual time: what remote peers can do to the streams of attached
//! programs.

use kiban_base::{Instant, RopeQueue, SharedBytes};
use kiban_board::{BoardConfig, Completion, Host, IpPortConfig, PortConfig, Program, StreamId};
use kiban_link::FdProgram;
use kiban_os::channel::PendingChannel;
use kiban_osi::Selector;
use kiban_osi::ftam::filestore::memory::MemoryDisk;
use kiban_osi::ftam::filestore::{Actions, Admission, AuthResult, Authenticator, Credentials, Locks, Path};
use kiban_osi::ftam::initiator::{self, Event, Initiator, Job};
use kiban_osi::ftam::responder::{self, Responder, Store};
use kiban_osi::ftam::{self, Machine, Role};
use kiban_osi::hif::{BoardSide, UserSide};
use kiban_osi::wire::hif::{Open, ToBoard};
use kiban_service::config::{Endpoint, Kind, ServicePlan};
use kiban_service::services::{Attach, Edge, Osi, Service, Services, SessionLimits, Tcp};
use kiban_sim::{Attachment, BoardNumber, CableConfig, World};
use kiban_streams::call::{complete, memory_bytes};
use kiban_streams::nonblocking::{Board, Listener};
use kiban_streams::{Answer, Greeting, Settings, TOKEN_BYTES};
use kiban_tcpip::tcp;
use std::any::Any;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

const ROOM_BYTES: usize = 256 << 10;

fn at(side: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 0, 0, side]), port)
}

/// A board's services. Requests from attached programs are polled every 10 ms.
struct Driven {
    services: Rc<RefCell<Services>>,
    look_at: Instant,
}

impl Program for Driven {
    fn start(&mut self, host: &mut Host<'_>, now: Instant) {
        self.services.borrow_mut().start(host, now);
    }
    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        self.services.borrow_mut().on_completion(completion, host, now);
    }
    fn deadline(&self) -> Instant {
        self.look_at.min(self.services.borrow().deadline())
    }
    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        let mut services = self.services.borrow_mut();
        if services.deadline() <= now {
            services.on_timeout(host, now);
        }
        services.on_file(host, now);
        self.look_at = now + Duration::from_millis(10);
    }
    fn is_done(&self) -> bool {
        false
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Remote peers. Each has one connection, from which it reads at a given rate in bytes per second.
struct Peers {
    to: SocketAddr,
    count: usize,
    reads: usize,
    streams: Vec<StreamId>,
    act_at: Instant,
}

impl Program for Peers {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        self.streams = (0..self.count).filter_map(|_| host.open(self.to).ok()).collect();
    }
    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        if let Completion::Ended { stream, .. } = completion {
            self.streams.retain(|its| *its != stream);
            let _ = host.close(stream);
        }
    }
    fn deadline(&self) -> Instant {
        self.act_at
    }
    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        let mut buffer = vec![0; self.reads];
        for stream in &self.streams {
            let _ = host.read(*stream, &mut buffer);
        }
        self.act_at = now + Duration::from_secs(1);
    }
    fn is_done(&self) -> bool {
        false
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Rig {
    world: World,
    boards: [BoardNumber; 2],
    services: Rc<RefCell<Services>>,
    folder: PathBuf,
}

impl Rig {
    /// Creates two boards. Programs attach to the second, which allows `sessions_max` streams in all.
    fn new(name: &str, sessions_max: usize) -> Rig {
        Rig::with_edge(Tcp, name, sessions_max)
    }

    /// Like [`Rig::new`], but the streams end at `edge`.
    fn with_edge<E: Edge + 'static>(edge: E, name: &str, sessions_max: usize) -> Rig {
        let folder = std::env::temp_dir().join(format!("kiban-attached-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a directory");
        let mut world = World::new(1);
        let boards = [1, 2].map(|side| {
            let port = IpPortConfig {
                address: at(side, 0).ip(),
                prefix: "10.0.0.0/24".parse().expect("a prefix"),
                mtu_bytes: 1500,
                packets_max: 256,
                cuts: false,
                merges: false,
                believe_sums: false,
            };
            let receive_buffer_bytes = if side == 1 { 8 << 10 } else { 256 << 10 };
            let tcp = tcp::Config { receive_buffer_bytes, ..tcp::Config::default() };
            world.add_board(&BoardConfig { ports: vec![PortConfig::Ip(port)], tcp, ..BoardConfig::default() })
        });
        let cable = CableConfig::ethernet(100_000_000, Duration::from_millis(5));
        world
            .connect_packets(Attachment::Board(boards[0], 0), Attachment::Board(boards[1], 0), &cable)
            .expect("both take packets");
        let mut services = Services::new().expect("a file or two");
        let bounds = SessionLimits { sessions_max, idle: None };
        let path = folder.join("it.streams");
        let service =
            Attach::new(edge, path.clone(), bounds, services.chime().clone()).expect("a file or two");
        let kind = Kind::Attach { path };
        let plan = ServicePlan {
            name: "it".into(),
            listen: Endpoint::UnixSocket("attach"),
            sessions_max,
            idle: None,
            kind,
        };
        services.put(plan, Box::new(service) as Box<dyn Service>);
        let services = Rc::new(RefCell::new(services));
        let driven = Driven { services: services.clone(), look_at: Instant::ZERO };
        world.run_program(boards[1], Box::new(driven));
        let mut rig = Rig { world, boards, services, folder };
        rig.pass(1);
        assert!(rig.services.borrow().failures().is_empty());
        rig
    }

    fn pass(&mut self, seconds: u64) {
        let until = self.world.now() + Duration::from_secs(seconds);
        self.world.settle(until);
    }

    /// Attaches a program that reserves `streams` streams.
    fn attach(&mut self, streams: usize) -> std::io::Result<Board> {
        let settings = Settings { streams, room_bytes: ROOM_BYTES, ..Settings::default() };
        self.while_calling(move |path| Board::attach_at(path, settings))
    }

    /// Runs the services while another thread calls them. Virtual time does not advance during this call.
    fn while_calling<T: Send + 'static>(
        &mut self,
        call: impl FnOnce(&std::path::Path) -> T + Send + 'static,
    ) -> T {
        let path = self.folder.join("it.streams");
        let caller = std::thread::spawn(move || call(&path));
        while !caller.is_finished() {
            let now = self.world.now();
            self.services.borrow_mut().on_file(&mut self.world.board_mut(self.boards[1]).host(), now);
            std::thread::yield_now();
        }
        caller.join().expect("it does not panic")
    }

    /// Like [`Rig::attach`], but with a listener on `port`.
    fn listening(&mut self, streams: usize, port: u16) -> (Board, Listener) {
        let board = self.attach(streams).expect("streams are free");
        let mut listener = board.start_listen(at(2, port)).expect("a listener");
        self.pass(1);
        assert!(!board.is_gone() && listener.is_listening().expect("the port is free"));
        (board, listener)
    }

    fn call(&mut self, port: u16, count: usize, reads: usize) {
        let act_at = self.world.now();
        let peers = Peers { to: at(2, port), count, reads, streams: Vec::new(), act_at };
        self.world.run_program(self.boards[0], Box::new(peers));
        self.pass(2);
    }

    fn sessions(&self) -> usize {
        self.services.borrow().sessions()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn connections_to_one_programs_listener_take_no_streams_from_another() {
    let mut rig = Rig::new("callers", 6);
    let (one, listener) = rig.listening(3, 80);
    rig.call(80, 100, 1000);
    let taken: Vec<_> = (0..100).map_while(|_| listener.accept().expect("it listens")).collect();
    assert!((1..=3).contains(&taken.len()), "{} streams", taken.len());
    // Another program can use as many streams as if the first program did not exist.
    let (other, its) = rig.listening(3, 81);
    rig.call(81, 1, 1000);
    assert!(its.accept().expect("it listens").is_some());
    assert!(!one.is_gone() && !other.is_gone());
}

#[test]
fn an_undivided_board_gives_a_client_one_channel() {
    let mut rig = Rig::new("one-channel", 6);
    let mut greet = |further| {
        let greeting = Greeting { streams: 3, room_bytes: ROOM_BYTES, further };
        let bytes = memory_bytes(greeting.layout(1).expect("within the limits"));
        let call = move |path: &std::path::Path| {
            complete(PendingChannel::connect_at(path, &greeting.to_bytes(), bytes)?, bytes)
        };
        rig.while_calling(call)
    };
    let first = greet(None).expect("streams are free");
    assert_eq!(Answer::from_bytes(first.answer()).expect("it is valid"), None);
    for shard in [0, 1] {
        let error = greet(Some((shard, [0; TOKEN_BYTES]))).expect_err("it has only the first");
        assert!(error.to_string().starts_with("invalid greeting: there is no such channel"), "{error}");
    }
    assert!(!first.is_gone());
}

#[test]
fn a_slow_peer_does_not_keep_the_streams_of_an_ended_program() {
    for (reads, seconds) in [(300, 150), (3000, 300)] {
        let mut rig = Rig::new(&format!("gone-{reads}"), 2);
        let (board, listener) = rig.listening(2, 80);
        rig.call(80, 1, reads);
        let stream = listener.accept().expect("it listens").expect("a peer has connected");
        let bytes = vec![7; ROOM_BYTES];
        // Write until both the stream and the pipe are full.
        loop {
            let count = stream.write(bytes[..].into()).expect("it is open");
            rig.pass(1);
            let _ = board.is_gone();
            if count == 0 {
                break;
            }
        }
        drop((stream, listener, board));
        rig.pass(1);
        assert_eq!(rig.sessions(), 1, "what was written still leaves");
        rig.pass(seconds);
        assert_eq!(rig.sessions(), 0, "{reads} bytes a second");
        let counters = rig.services.borrow().views().next().expect("one").counters;
        // A peer that reads at the minimum rate or faster gets all the data.
        assert_eq!(counters.aborted, u64::from(reads < 512), "{reads} bytes a second");
    }
}

#[test]
fn a_program_that_feeds_the_osi_layers_leaves_turns_to_others() {
    let mut rig = Rig::with_edge(Osi::default(), "turns", 2);
    let (board, listener) = rig.listening(2, 102);
    rig.call(102, 1, 1000);
    let stream = listener.accept().expect("it listens").expect("a peer has connected");
    let (called, calling) = (Selector::NONE, Selector::NONE);
    let open = Open { role: Role::Responder, tpdu_bytes_max: 1024, tsdu_bytes_max: 1 << 16, called, calling };
    // These messages cause no output, so no queue becomes full.
    let mut bytes = ToBoard::Open(open).into_rope().to_vec();
    let message = ToBoard::TsduBytesMax(1 << 16).into_rope().to_vec();
    while bytes.len() + message.len() <= ROOM_BYTES {
        bytes.extend(&message);
    }
    assert_eq!(stream.write(bytes[..].into()).expect("it is open"), bytes.len());
    let now = rig.world.now();
    rig.services.borrow_mut().on_file(&mut rig.world.board_mut(rig.boards[1]).host(), now);
    assert!(!stream.is_drained() && rig.services.borrow().is_ready(), "the rest waits for the next turn");
    rig.pass(1);
    assert!(stream.is_drained() && !board.is_gone(), "all turns have come");
}

/// Admits everybody.
struct Everyone;

impl Authenticator for Everyone {
    fn authenticate(&mut self, _: &Credentials) -> AuthResult {
        AuthResult::Admitted(Admission { user: "ann".into(), rights: Actions::ALL, home: Path::root() })
    }
}

fn user_side(role: Role) -> UserSide {
    let (called, calling) = (Selector::NONE, Selector::NONE);
    let open = Open { role, tpdu_bytes_max: 2048, tsdu_bytes_max: 1 << 20, called, calling };
    let abstract_syntaxes = ftam::ABSTRACT_SYNTAXES.to_vec();
    UserSide::new(Machine::user_side(ftam::Config { role, abstract_syntaxes }), open)
}

/// What a [`Getter`] has received.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    has_finished: bool,
}

/// A remote FTAM user that fetches the file `big`, and reads at most 40,000 bytes per second.
struct Getter {
    user: UserSide,
    layers: BoardSide,
    initiator: Initiator,
    disk: MemoryDisk,
    stream: Option<StreamId>,
    received: Rc<RefCell<Received>>,
    act_at: Instant,
}

impl Getter {
    fn new(received: Rc<RefCell<Received>>, act_at: Instant) -> Getter {
        let mut user = user_side(Role::Initiator);
        let mut initiator = Initiator::new(initiator::Config::default());
        initiator.connect(user.machine()).expect("it has no association");
        let (layers, disk) = (BoardSide::new(), MemoryDisk::new());
        Getter { user, layers, initiator, disk, stream: None, received, act_at }
    }
}

impl Program for Getter {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        host.open(at(2, 102)).expect("a route");
    }
    fn on_completion(&mut self, completion: Completion, _: &mut Host<'_>, _: Instant) {
        match completion {
            Completion::Opened { stream } => self.stream = Some(stream),
            Completion::PeerFinished { .. } => self.received.borrow_mut().has_finished = true,
            _ => {}
        }
    }
    fn deadline(&self) -> Instant {
        self.act_at
    }
    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        self.act_at = now + Duration::from_secs(1);
        let Some(stream) = self.stream else { return };
        let mut buffer = vec![0; 40_000];
        let count = host.read(stream, &mut buffer).unwrap_or(0);
        self.received.borrow_mut().bytes.extend(&buffer[..count]);
        self.layers.from_network(buffer[..count].to_vec().into(), now);
        self.initiator.work(self.user.machine(), &mut self.disk, 1 << 16);
        if self.initiator.event() == Some(Event::Connected) {
            let local = Path::read("big").expect("a name");
            let get = Job::Get { remote: "big".into(), local, document: None };
            self.initiator.start(get, self.user.machine(), &mut self.disk).expect("it is idle");
        }
        self.user.settle();
        self.layers.from_user(take_all(self.user.outgoing()).into());
        self.layers.work(now).expect("its messages are valid");
        self.user.arrive(take_all(self.layers.to_user()).into());
        let bytes = take_all(self.layers.to_network());
        assert_eq!(host.write(stream, &bytes).unwrap_or(bytes.len()), bytes.len(), "requests are short");
    }
    fn is_done(&self) -> bool {
        false
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn take_all(queue: &mut RopeQueue) -> Vec<u8> {
    let bytes: Vec<u8> = queue.runs().flatten().copied().collect();
    queue.skip(bytes.len());
    bytes
}

#[test]
fn a_slow_peer_receives_what_the_osi_layers_hold_when_the_program_exits() {
    let mut rig = Rig::with_edge(Osi::default(), "last", 2);
    let (board, listener) = rig.listening(2, 102);
    let received = Rc::new(RefCell::new(Received::default()));
    rig.world.run_program(rig.boards[0], Box::new(Getter::new(received.clone(), rig.world.now())));
    rig.pass(2);
    let stream = listener.accept().expect("it listens").expect("a peer has connected");

    // The program serves the file until the layers hold as much as they accept.
    let mut user = user_side(Role::Responder);
    let mut responder = Responder::new(responder::Config::default(), "10.0.0.1");
    let (mut disk, mut locks) = (MemoryDisk::new(), Locks::new(4));
    disk.put(&Path::read("big").expect("a name"), &vec![7; 8 << 20]);
    for _ in 0..30 {
        rig.pass(1);
        let mut bytes = Vec::new();
        stream.read(ROOM_BYTES, |piece| piece.append_to(&mut bytes)).expect("it is open");
        user.arrive(bytes.into());
        let room = user.room();
        let mut store = Store { disk: &mut disk, locks: &mut locks, authenticator: &mut Everyone };
        responder.work(user.machine(), &mut store, room);
        user.settle();
        let runs: Vec<&[u8]> = user.outgoing().runs().collect();
        let count = stream.write_runs(runs.into_iter().map(SharedBytes::from)).expect("it is open");
        user.outgoing().skip(count);
    }
    assert!(!user.outgoing().is_empty(), "the layers accept no more");
    drop((stream, listener, board));
    rig.pass(120);

    // The peer receives whole TPKTs (RFC 1006 §6), and then the end of the stream.
    let Received { bytes, has_finished } = &*received.borrow();
    let mut rest = &bytes[..];
    while let [3, _, high, low, ..] = *rest
        && let Some((_, after)) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low])))
    {
        rest = after;
    }
    assert!(rest.is_empty(), "{} bytes of a TPKT after {} bytes", rest.len(), bytes.len());
    assert!(has_finished, "and no reset");
    assert_eq!(rig.sessions(), 0);
}
