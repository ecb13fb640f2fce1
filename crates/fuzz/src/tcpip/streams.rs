//! A reference model of streams: two boards, an impaired cable, and applications with varied behaviour.
//!
//! Input     eight bytes, the seed of all random choices. (Further bytes only change the seed.)
//! Model     a stream is the sequence of bytes written; bytes that are read are compared with it immediately.
//! Random for each board: profile, MTU, buffers, memory, Nagle, SACK, TSO and LRO. For each direction: delay,
//!           loss, duplication, reordering and corruption. For every connection: which side opens it, how
//!           much each side writes and in what pattern, how slowly it reads, whether it finishes before or
//!           after its peer, and whether it aborts midway.
//! Size      a search benefits from many tries, so the traffic in a world is limited to `SEGMENTS`, and the
//!           work to [`Size::work_max`], whatever the input. Worlds at their full drawn size have a separate
//!           test.
//! Checks    every connection that is not aborted, by an application or because memory is short, ends
//!           completely in both directions, and aborted ones end.
//!           No session is left, memory is freed, and no program is idle while there is work.

use crate::features::Features;
use crate::tcpip::stand::Stand;
use kiban_base::{Instant, SimRng};
use kiban_board::{BoardConfig, Completion, IpPortConfig, MemoryConfig, PortConfig, Reason, StreamId};
use kiban_tcpip::tcp::{Config, LossDetection, Nagle};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

const FIRST_PORT: u16 = 1000;
/// Approximate number of segments in a small world, over all connections.
const SEGMENTS: usize = 192;
/// Maximum number of connections in one world, and maximum number of bytes on one side of a connection.
const CONVERSATIONS_MAX: usize = 4;
const ROLE_BYTES_MAX: usize = 120_000;
/// Maximum number of bytes per write.
const WRITE_MAX: usize = 20_000;
const HOURS_MAX: u64 = 200;

/// The size of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// As drawn from the seed.
    Whole,
    /// Limits that let a search run hundreds of worlds per second.
    Small,
}

impl Size {
    /// Maximum number of arrivals, deadlines and instants in one world. More than that is a packet storm.
    pub const fn work_max(self) -> usize {
        match self {
            Size::Whole => 2_000_000,
            Size::Small => 40_000,
        }
    }
}

fn one_of<T: Copy>(rng: &mut SimRng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize]
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns `count` bytes of one side of a connection, starting at offset `place`. They are generated once,
/// because generating them would otherwise dominate the search.
fn content(conversation: usize, side: usize, place: usize, count: usize) -> &'static [u8] {
    const SALT: usize = 7919;
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let count = ROLE_BYTES_MAX + SALT * 2 * CONVERSATIONS_MAX;
        (0..count as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8 ^ (at >> 8) as u8).collect()
    });
    let from = (conversation * 2 + side) * SALT + place;
    &bytes[from..from + count]
}

/// One direction of the cable.
struct Cable {
    rng: SimRng,
    delay: Duration,
    loss: f64,
    duplication: f64,
    reordering: f64,
    corruption: f64,
    jitter: Duration,
    flying: BTreeMap<(Instant, u64), Vec<u8>>,
    sent: u64,
}

impl Cable {
    fn new(rng: &mut SimRng) -> Cable {
        let impairment = one_of(rng, &[0.0, 0.005, 0.03, 0.15]);
        let mut some = |share| if rng.happens(share) { impairment } else { 0.0 };
        let (loss, duplication, reordering, corruption) = (some(0.7), some(0.4), some(0.5), some(0.4));
        Cable {
            delay: one_of(rng, &[Duration::from_micros(20), ms(1), ms(15), ms(150), ms(600)]),
            jitter: one_of(rng, &[Duration::from_micros(30), ms(4), ms(300)]),
            rng: rng.fork(1),
            loss,
            duplication,
            reordering,
            corruption,
            flying: BTreeMap::new(),
            sent: 0,
        }
    }

    fn send(&mut self, mut packet: Vec<u8>, now: Instant) {
        if self.rng.happens(self.loss) {
            return;
        }
        if self.rng.happens(self.corruption) {
            let bit = self.rng.below(packet.len() as u64 * 8) as usize;
            packet[bit / 8] ^= 1 << (bit % 8);
        }
        let copies = 1 + usize::from(self.rng.happens(self.duplication));
        for _ in 0..copies {
            let late = self.rng.happens(self.reordering);
            let most = if late { self.jitter.as_nanos() as u64 } else { 0 };
            let at = now + self.delay + Duration::from_nanos(self.rng.below(most + 1));
            self.sent += 1;
            self.flying.insert((at, self.sent), packet.clone());
        }
    }
}

/// The role of one side of a connection.
#[derive(Clone, Copy, Debug)]
struct Role {
    bytes: usize,
    write_max: usize,
    read_max: usize,
    read_every: Duration,
    after_peer: bool,
    /// The number of bytes after which this side aborts.
    abort_at: usize,
}

impl Role {
    fn new(rng: &mut SimRng) -> Role {
        Role {
            bytes: one_of(rng, &[0, 1, 700, 5_000, 40_000, ROLE_BYTES_MAX]),
            write_max: one_of(rng, &[usize::MAX, usize::MAX, 3000, 200]),
            read_max: one_of(rng, &[usize::MAX, usize::MAX, 4000, 900]),
            read_every: one_of(rng, &[Duration::ZERO, Duration::ZERO, ms(1), ms(20)]),
            after_peer: rng.happens(0.2),
            abort_at: if rng.happens(0.06) { rng.below(30_000) as usize } else { usize::MAX },
        }
    }
}

#[derive(Debug)]
struct App {
    role: Role,
    stream: Option<StreamId>,
    open: bool,
    written: usize,
    read: usize,
    finished: bool,
    peer_finished: bool,
    ended: Option<Reason>,
    act_at: Instant,
    /// Whether the stream has been closed or aborted at this side.
    gone: bool,
}

struct World {
    stands: [Stand; 2],
    cables: [Cable; 2],
    /// The applications, by connection and side.
    apps: Vec<[App; 2]>,
    now: Instant,
    work: usize,
    /// The number of sessions that each board has aborted because they were stuck.
    stuck: [u64; 2],
}

fn address(side: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + side as u8])
}

fn config(side: usize, rng: &mut SimRng) -> (BoardConfig, u64) {
    let mut tcp = match rng.below(6) {
        0 => Config::bsd43(),
        1 => Config::solaris23(),
        2 => Config { loss_detection: LossDetection::NewReno, ..Config::default() },
        3 => Config { loss_detection: LossDetection::Sack, pacing: true, ..Config::default() },
        _ => Config { sack: rng.happens(0.7), ..Config::default() },
    };
    let mtu = one_of(rng, &[200, 576, 1500, 1500, 9180]);
    let cuts = rng.happens(0.3);
    tcp.mss = mtu as u16 - 40;
    tcp.segment_bytes_max = if cuts { 20_000 } else { u32::from(tcp.mss) };
    tcp.segmentation_offload = cuts;
    tcp.send_buffer_bytes = one_of(rng, &[4_000, 20_000, 128 << 10]);
    tcp.receive_buffer_bytes = one_of(rng, &[3_000, 16_000, 65_536, 200_000]);
    tcp.floor_bytes = one_of(rng, &[4 << 10, 16 << 10]);
    if rng.happens(0.2) {
        tcp.nagle = Nagle::Off;
    }
    // Impairments must not abort sessions, and no FIN may arrive after TIME-WAIT.
    (tcp.rto_retries, tcp.syn_retries) = (60, 60);
    tcp.time_wait = Duration::from_secs(7200);
    let port = IpPortConfig {
        address: address(side),
        prefix: "10.0.0.0/24".parse().expect("a prefix"),
        mtu_bytes: mtu,
        packets_max: one_of(rng, &[16, 64, 256]),
        cuts,
        merges: rng.happens(0.4),
        believe_sums: false,
    };
    let pages = one_of(rng, &[128, 512]);
    let page_bytes = one_of(rng, &[1024, 4096]);
    let bytes = pages * page_bytes;
    let memory = MemoryConfig { page_bytes, transmit_bytes: bytes, receive_bytes: bytes, pdus: 512 };
    let seed = rng.draw();
    (BoardConfig { memory, tcp, ports: vec![PortConfig::Ip(port)], ..BoardConfig::default() }, seed)
}

impl World {
    fn new(seed: u64, size: Size) -> World {
        let mut rng = SimRng::from_seed(seed).fork(300);
        let configs = [config(0, &mut rng), config(1, &mut rng)];
        let cables = [Cable::new(&mut rng.fork(10)), Cable::new(&mut rng.fork(11))];
        let stands = configs.each_ref().map(|(config, seed)| Stand::with_key(config, crate::key::key(*seed)));
        let now = stands[0].now;
        let mut world = World { stands, cables, apps: Vec::new(), now, work: 0, stuck: [0; 2] };
        let count = rng.below(CONVERSATIONS_MAX as u64) as usize + 1;
        let mss = usize::from(configs[0].0.tcp.mss.min(configs[1].0.tcp.mss));
        for number in 0..count {
            let mut roles = [Role::new(&mut rng), Role::new(&mut rng)];
            if size == Size::Small {
                let reads =
                    roles.map(|role| if role.read_every.is_zero() { usize::MAX } else { role.read_max });
                for (role, read) in roles.iter_mut().zip([reads[1], reads[0]]) {
                    let piece = mss.min(role.write_max).min(read);
                    role.bytes = role.bytes.min(SEGMENTS / (2 * count) * piece);
                }
            }
            // If both sides waited for the other to finish first, neither would ever finish.
            let both = roles[0].after_peer && roles[1].after_peer;
            world.apps.push([0, 1].map(|side: usize| App {
                role: Role { after_peer: roles[side].after_peer && !(both && side == 1), ..roles[side] },
                stream: None,
                open: false,
                written: 0,
                read: 0,
                finished: false,
                peer_finished: false,
                ended: None,
                act_at: now,
                gone: false,
            }));
            let opener = rng.below(2) as usize;
            let port = FIRST_PORT + number as u16;
            let listener = SocketAddr::new(address(1 - opener), port);
            world.stands[1 - opener].board.host().listen(listener).expect("the port is free");
            let stream = world.stands[opener].board.host().open(listener).expect("there is a route");
            world.apps[number][opener].stream = Some(stream);
        }
        world.stands.iter_mut().for_each(Stand::drain);
        world
    }

    fn is_done(&self) -> bool {
        self.apps.iter().flatten().all(|app| app.gone)
    }

    fn is_aborted(&self, number: usize) -> bool {
        self.apps[number].iter().any(|app| app.role.abort_at < usize::MAX)
    }

    fn run(&mut self, size: Size) {
        while self.work < size.work_max() {
            self.work += 1;
            while self.turn() {}
            if self.is_done() {
                return;
            }
            let next = self.next();
            if next == Instant::NEVER {
                // If one side aborted, the other may never notice: the reset may be lost, and there may be no
                // data left to send that would be answered with another reset.
                let mut left = false;
                for number in 0..self.apps.len() {
                    for side in 0..2 {
                        let (is_aborted, app) = (self.is_aborted(number), &mut self.apps[number][side]);
                        if app.gone {
                            continue;
                        }
                        assert!(is_aborted, "idle while work waits: conversation {number}, {side}: {app:?}");
                        left = true;
                        app.gone = true;
                        if let Some(stream) = app.stream {
                            self.stands[side]
                                .board
                                .host()
                                .abort(stream)
                                .expect("a stream stays until closed");
                        }
                    }
                }
                assert!(left, "nothing is left to happen");
                continue;
            }
            assert!(next > self.now, "the next event, at {next:?}, is not after {:?}", self.now);
            self.now = next;
            assert!(self.now.as_secs_f64() < (HOURS_MAX * 3600) as f64, "it takes too long: {:?}", self.apps);
        }
        panic!("a storm");
    }

    /// Returns the time of the next event.
    fn next(&self) -> Instant {
        let mut next = Instant::NEVER;
        for side in 0..2 {
            next = next.min(self.stands[side].deadline);
            next =
                next.min(self.cables[side].flying.first_key_value().map_or(Instant::NEVER, |(key, _)| key.0));
        }
        let waiting = self.apps.iter().flatten().filter(|app| !app.gone && app.act_at > self.now);
        waiting.map(|app| app.act_at).chain([next]).min().expect("one at least")
    }

    /// Does everything that is due now. Returns whether there was anything to do.
    fn turn(&mut self) -> bool {
        let mut moved = false;
        for side in 0..2 {
            self.stands[side].now = self.now;
            while let Some(first) = self.cables[1 - side].flying.first_entry() {
                if first.key().0 > self.now {
                    break;
                }
                self.work += 1;
                // If there is no memory for the packet, it is lost.
                self.stands[side].packet(&first.remove());
                moved = true;
            }
            if self.stands[side].deadline <= self.now {
                self.work += 1;
                self.stands[side].tick();
                moved = true;
            }
            moved |= self.host(side);
            // A call that changes nothing for its application may still make work due now: a write that finds
            // no memory schedules a search for sessions without progress.
            moved |= self.stands[side].deadline <= self.now;
            for packet in std::mem::take(&mut self.stands[side].sent) {
                self.cables[side].send(packet, self.now);
            }
        }
        moved
    }

    /// Handles completions, then runs every application once.
    fn host(&mut self, side: usize) -> bool {
        let mut moved = false;
        self.stands[side].drain();
        while let Some(completion) = self.stands[side].completions.pop_front() {
            moved = true;
            self.on_completion(side, completion);
        }
        for number in 0..self.apps.len() {
            moved |= self.act(side, number);
        }
        self.stands[side].drain();
        moved
    }

    fn on_completion(&mut self, side: usize, completion: Completion) {
        let now = self.now;
        let find = |apps: &mut Vec<[App; 2]>, stream| {
            apps.iter_mut().map(|app| &mut app[side]).position(|app| app.stream == Some(stream))
        };
        match completion {
            Completion::Accepted { stream, .. } => {
                let local = self.stands[side].board.host().info(stream).map(|info| info.local);
                let Ok(local) = local else {
                    // The connection was reset before it was accepted.
                    let _ = self.stands[side].board.host().close(stream);
                    return;
                };
                let number = usize::from(local.port() - FIRST_PORT);
                let app = &mut self.apps[number][side];
                if app.stream.is_some() {
                    // A late copy of a SYN, whose connection was aborted.
                    self.stands[side].board.host().abort(stream).expect("it was reported just now");
                    return;
                }
                (app.stream, app.open, app.act_at) = (Some(stream), true, now);
            }
            Completion::Opened { stream } => {
                if let Some(number) = find(&mut self.apps, stream) {
                    (self.apps[number][side].open, self.apps[number][side].act_at) = (true, now);
                }
            }
            Completion::Readable { stream } | Completion::Writable { stream } => {
                if let Some(number) = find(&mut self.apps, stream) {
                    let app = &mut self.apps[number][side];
                    app.act_at = if app.act_at > now { app.act_at } else { now };
                }
            }
            Completion::PeerFinished { stream } => {
                if let Some(number) = find(&mut self.apps, stream) {
                    let app = &mut self.apps[number][side];
                    assert!(!app.peer_finished, "the peer finishes twice");
                    app.peer_finished = true;
                }
            }
            Completion::Ended { stream, reason } => {
                if let Some(number) = find(&mut self.apps, stream) {
                    let board_aborts = self.stands[side].board.tcp_counters().persist_sessions_aborted;
                    if reason == Reason::TimedOut && self.stuck[side] < board_aborts {
                        // RFC 6429: memory is short, and the peer has acknowledged little. The application
                        // aborts, too.
                        self.stuck[side] += 1;
                        self.apps[number][side].role.abort_at = 0;
                    }
                    let is_aborted = self.is_aborted(number);
                    let app = &mut self.apps[number][side];
                    assert!(app.ended.is_none(), "a stream ends twice");
                    app.ended = Some(reason);
                    assert!(is_aborted || reason == Reason::Closed, "{number} ends as {reason:?}: {app:?}");
                }
            }
            _ => {}
        }
    }

    /// Runs an application. Returns whether it did anything.
    fn act(&mut self, side: usize, number: usize) -> bool {
        let now = self.now;
        let is_aborted = self.is_aborted(number);
        let theirs = self.apps[number][1 - side].written;
        let whole = self.apps[number][1 - side].role.bytes;
        let app = &mut self.apps[number][side];
        let Some(stream) = app.stream else { return false };
        if app.gone {
            return false;
        }
        let mut host = self.stands[side].board.host();
        let mut moved = false;
        // Most applications have nothing to do most of the time; checking this first saves most of the
        // world's run time.
        if app.act_at <= now && host.readable(stream).expect("the stream is there") > 0 {
            let mut bytes = [0; 8192];
            let most = app.role.read_max.min(bytes.len());
            let count = host.read(stream, &mut bytes[..most]).expect("the stream is there");
            assert!(app.read + count <= theirs, "more is read than was written");
            let is_right = bytes[..count] == *content(number, 1 - side, app.read, count);
            assert!(is_right, "conversation {number}, side {side}: wrong bytes from byte {} on", app.read);
            app.read += count;
            if count > 0 {
                moved = true;
                app.act_at = now + app.role.read_every;
            }
        }
        while app.open && app.ended.is_none() && app.written < app.role.bytes {
            let wish = (app.role.bytes - app.written).min(app.role.write_max).min(WRITE_MAX);
            // If there is no room, a write of one byte fails like a longer one, but needs fewer generated
            // bytes.
            let wish = if host.room(stream).is_ok_and(|room| room > 0) { wish } else { 1 };
            // A stream may have ended before its completion is delivered.
            let Ok(count) = host.write(stream, content(number, side, app.written, wish)) else { break };
            app.written += count;
            moved |= count > 0;
            if count < wish {
                break;
            }
        }
        if app.read + app.written >= app.role.abort_at {
            host.abort(stream).expect("the stream is there");
            app.gone = true;
            return true;
        }
        let may_finish =
            app.open && app.written == app.role.bytes && (!app.role.after_peer || app.peer_finished);
        if may_finish && !app.finished && app.ended.is_none() {
            app.finished = true;
            moved = true;
            // This fails only if the stream has ended and its completion has not been delivered yet.
            let _ = host.finish(stream);
        }
        let nothing_left = host.readable(stream).expect("the stream is there") == 0;
        if app.ended.is_some() && nothing_left {
            assert!(is_aborted || app.read == whole, "{} of {whole} bytes came: {app:?}", app.read);
            assert!(is_aborted || app.written == app.role.bytes);
            host.close(stream).expect("the stream is there");
            app.gone = true;
            moved = true;
        }
        moved
    }
}

/// Runs the world of an input; returns the work that it took.
pub fn play(bytes: &[u8], size: Size, features: &mut Features<'_>) -> usize {
    let mut seed = 0xcbf2_9ce4_8422_2325_u64;
    bytes.iter().for_each(|byte| seed = (seed ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let mut world = World::new(seed, size);
    world.run(size);
    for stand in &mut world.stands {
        stand.show(features);
        stand.finish();
    }
    world.work
}

pub(crate) fn run(bytes: &[u8], features: &mut Features<'_>) {
    play(bytes, Size::Small, features);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    (0..4_u64).map(|seed| seed.to_le_bytes().to_vec()).collect()
}
