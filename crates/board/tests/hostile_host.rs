//! A misbehaving host makes calls in any order, with any numbers, on boards with little memory. Nothing
//! panics, a refused call changes nothing, a stream behaves like a `Vec<u8>`, and in the end all memory is
//! free.

mod common;

use common::lines::{Lines, attacker, config as atm_config, port_of};
use common::packets::noise;
use common::{Pair, address, config, socket};
use kiban_base::Slice;
use kiban_board::{BoardConfig, Completion, HostError, PortConfig, SocketId, StreamId};
use kiban_tcpip::{tcp, udp};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

const SIZES: [usize; 8] = [0, 1, 7, 100, 1460, 5000, 40_000, 1 << 20];

/// One direction of a stream.
#[derive(Default)]
struct Direction {
    sent: Vec<u8>,
    got: Vec<u8>,
    /// Whether the stream was aborted or its reader has closed it, so that not all bytes need to arrive.
    cut: bool,
}

/// The model's state of one side of a stream.
#[derive(Clone, Copy)]
struct End {
    id: StreamId,
    link: usize,
    /// 0 if this side opened the stream; 1 if it accepted the stream.
    role: usize,
    open: bool,
    finished: bool,
    ended: bool,
    closed: bool,
}

struct Model {
    pair: Pair,
    ends: [Vec<End>; 2],
    links: Vec<[Direction; 2]>,
    /// The streams of the model, by the address of the connecting side.
    by_local: BTreeMap<SocketAddr, usize>,
    listeners: [Vec<u32>; 2],
    sockets: [Vec<(SocketId, u16)>; 2],
    stale_sockets: [Vec<SocketId>; 2],
    datagrams: Vec<Vec<u8>>,
    held: Vec<Slice>,
    written: u64,
}

type Op = (u8, u8, u8, u8);

impl Model {
    fn new(memory: u8) -> Model {
        let configs = [0, 1].map(|side| {
            let mut config = config(side);
            config.memory.page_bytes = [256, 512, 4096][memory as usize % 3];
            config.memory.transmit_bytes = 32 << 10;
            config.memory.receive_bytes = 32 << 10;
            config.memory.pdus = 24;
            config.datagrams_max = 3;
            config.udp_sockets_max = 3;
            config.tcp.sessions_max = 12;
            config.tcp.backlog = 3;
            config
        });
        Model {
            pair: Pair::of(configs),
            ends: Default::default(),
            links: Vec::new(),
            by_local: BTreeMap::new(),
            listeners: Default::default(),
            sockets: Default::default(),
            stale_sockets: Default::default(),
            datagrams: Vec::new(),
            held: Vec::new(),
            written: 0,
        }
    }

    /// Returns the free pages and blocks, and the number of sessions: a refused call must not change them.
    fn state(&mut self, side: usize) -> [usize; 4] {
        let board = &mut self.pair.boards[side];
        let sessions = board.sessions();
        let memory = board.memory_mut();
        [memory.transmit.available(), memory.receive.available(), memory.pdus.available(), sessions]
    }

    /// Makes a call, and checks that it has changed nothing if it failed.
    fn call<T>(
        &mut self,
        side: usize,
        call: impl FnOnce(&mut kiban_board::Host<'_>) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let before = self.state(side);
        let outcome = call(&mut self.pair.boards[side].host());
        if let Err(refused) = &outcome {
            assert!(refused.to_string().len() > 20, "{refused:?} says what to do");
            assert_eq!(self.state(side), before, "{refused:?} changes nothing");
        }
        outcome
    }

    fn step(&mut self, (what, side, which, amount): Op) {
        let side = usize::from(side & 1);
        let size = SIZES[usize::from(amount) % SIZES.len()];
        match what % 16 {
            0 => self.listen(side, which),
            1 | 2 => self.open(side, which),
            15 => self.pair.run_until(self.pair.now + Duration::from_millis(u64::from(which) * 4)),
            13 | 14 => self.pair.run(),
            12 => self.datagram(side, which, size),
            11 => self.other(side, which, size),
            what => {
                if self.ends[side].is_empty() {
                    return;
                }
                let at = usize::from(which) % self.ends[side].len();
                self.on_end(side, at, what, size);
            }
        }
        self.hear();
    }

    fn listen(&mut self, side: usize, which: u8) {
        let known = self.listeners[side].pop();
        match (known, which % 3) {
            (Some(listener), 0) => {
                self.call(side, |host| host.unlisten(listener)).unwrap();
                assert_eq!(self.call(side, |host| host.unlisten(listener)), Err(HostError::UnknownListener));
            }
            (known, _) => {
                self.listeners[side].extend(known);
                let local = [socket(side, 80), "0.0.0.0:80".parse().unwrap(), socket(side, 0)]
                    [usize::from(which) % 3];
                if let Ok(listener) = self.call(side, |host| host.listen(local)) {
                    self.listeners[side].push(listener);
                }
            }
        }
    }

    fn open(&mut self, side: usize, which: u8) {
        let remote = match which % 8 {
            0 => socket(1 - side, 81),
            1 => "192.0.2.1:80".parse().unwrap(),
            2 => socket(1 - side, 0),
            3 => "[2001:db8::1]:80".parse().unwrap(),
            _ => socket(1 - side, 80),
        };
        let Ok(id) = self.call(side, |host| host.open(remote)) else { return };
        let local = self.pair.boards[side].host().info(id).unwrap().local;
        let link = self.links.len();
        self.links.push(Default::default());
        self.by_local.insert(local, link);
        self.ends[side].push(End {
            id,
            link,
            role: 0,
            open: false,
            finished: false,
            ended: false,
            closed: false,
        });
    }

    fn on_end(&mut self, side: usize, at: usize, what: u8, size: usize) {
        let End { id, link, role, open, finished, ended, closed } = self.ends[side][at];
        if closed {
            let unknown = Err(HostError::UnknownStream);
            assert_eq!(self.call(side, |host| host.write(id, &[1; 9])), unknown.map(|()| 0));
            assert_eq!(self.call(side, |host| host.read(id, &mut [0; 9])), unknown.map(|()| 0));
            assert!(self.call(side, |host| host.take(id)).is_err());
            assert_eq!(self.call(side, |host| host.finish(id)), unknown);
            assert_eq!(self.call(side, |host| host.close(id)), unknown);
            assert_eq!(self.call(side, |host| host.abort(id)), unknown);
            assert_eq!(self.call(side, |host| host.room(id)), unknown.map(|()| 0));
            assert_eq!(self.call(side, |host| host.readable(id)), unknown.map(|()| 0));
            assert!(self.call(side, |host| host.info(id)).is_err());
            return;
        }
        match what {
            3..=5 => {
                self.written += 1;
                let bytes = noise(self.written, size);
                let outcome = self.call(side, |host| host.write(id, &bytes));
                match outcome {
                    Ok(count) => {
                        assert!(open && !finished && !ended && count <= size);
                        self.links[link][role].sent.extend_from_slice(&bytes[..count]);
                    }
                    Err(HostError::NotOpen) => assert!(!open || ended),
                    Err(HostError::Tcp(tcp::Refusal::Finished)) => assert!(finished),
                    Err(other) => panic!("{other:?}"),
                }
            }
            6 | 7 => {
                let readable = self.call(side, |host| host.readable(id)).unwrap();
                let mut buffer = vec![0; size];
                let count = self.call(side, |host| host.read(id, &mut buffer)).unwrap();
                assert_eq!(count, size.min(readable));
                self.got(link, role, &buffer[..count]);
            }
            8 => {
                if let Some(slice) = self.call(side, |host| host.take(id)).unwrap() {
                    self.got(link, role, slice.bytes());
                    self.held.push(slice);
                    if self.held.len() > 5 {
                        self.held.remove(0);
                    }
                }
            }
            9 => {
                self.call(side, |host| host.finish(id)).unwrap();
                self.ends[side][at].finished = true;
            }
            // An abort after an unsent FIN sends nothing (RFC 9293 §3.10.5, LAST-ACK), so the peer would stay
            // in FIN-WAIT-2. Such a stream is therefore closed, not aborted.
            _ if size.is_multiple_of(2) || finished => {
                self.call(side, |host| host.close(id)).unwrap();
                self.ends[side][at].closed = true;
                self.links[link][1 - role].cut = true;
                if !open {
                    self.links[link].iter_mut().for_each(|direction| direction.cut = true);
                }
            }
            _ => self.abort(side, at),
        }
    }

    fn abort(&mut self, side: usize, at: usize) {
        let End { id, link, .. } = self.ends[side][at];
        self.call(side, |host| host.abort(id)).unwrap();
        self.ends[side][at].closed = true;
        self.links[link].iter_mut().for_each(|direction| direction.cut = true);
    }

    fn got(&mut self, link: usize, role: usize, bytes: &[u8]) {
        let direction = &mut self.links[link][1 - role];
        direction.got.extend_from_slice(bytes);
        assert!(direction.sent.starts_with(&direction.got), "a stream is what was written");
    }

    fn datagram(&mut self, side: usize, which: u8, size: usize) {
        match which % 4 {
            0 => {
                let port = 1000 + u16::from(which / 4) % 4;
                match self.call(side, |host| host.bind(socket(side, port))) {
                    Ok(id) => self.sockets[side].push((id, port)),
                    Err(HostError::Udp(udp::Refusal::TooMany)) => assert_eq!(self.sockets[side].len(), 3),
                    Err(HostError::Udp(udp::Refusal::AddressInUse)) => {
                        assert!(self.sockets[side].iter().any(|known| known.1 == port));
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            1 => {
                if let Some((id, _)) = self.sockets[side].pop() {
                    self.call(side, |host| host.unbind(id)).unwrap();
                    self.stale_sockets[side].push(id);
                }
                for id in self.stale_sockets[side].clone() {
                    let unknown = HostError::Udp(udp::Refusal::UnknownSocket);
                    assert_eq!(self.call(side, |host| host.unbind(id)), Err(unknown));
                    assert_eq!(
                        self.call(side, |host| host.send_to(id, socket(1 - side, 1000), b"x")),
                        Err(unknown)
                    );
                    assert_eq!(self.call(side, |host| host.receive_from(id, &mut [0; 9])), Err(unknown));
                }
            }
            2 => {
                let Some((id, _)) = self.sockets[side].last().copied() else { return };
                let remote = match which / 4 % 8 {
                    7 => "192.0.2.1:80".parse().unwrap(),
                    6 => socket(1 - side, 0),
                    port => socket(1 - side, 1000 + u16::from(port) % 4),
                };
                let bytes = noise(self.datagrams.len() as u64, size);
                match self.call(side, |host| host.send_to(id, remote, &bytes)) {
                    Ok(()) => self.datagrams.push(bytes),
                    Err(HostError::TooLong) => assert!(size > 1472),
                    Err(HostError::NoRoute) => assert_eq!(remote.port(), 80),
                    Err(HostError::Udp(udp::Refusal::BadAddress)) => assert_eq!(remote.port(), 0),
                    Err(HostError::NoMemory) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
            _ => {
                let Some((id, _)) = self.sockets[side].last().copied() else { return };
                let mut buffer = vec![0; 2000];
                if let Some((_, count)) = self.call(side, |host| host.receive_from(id, &mut buffer)).unwrap()
                {
                    assert!(
                        self.datagrams.iter().any(|sent| sent[..] == buffer[..count]),
                        "a datagram that was sent"
                    );
                }
            }
        }
    }

    fn other(&mut self, side: usize, which: u8, size: usize) {
        match which % 4 {
            0 => assert_eq!(self.call(side, |host| host.cell_loopback(0, 0)), Err(HostError::NoCircuit)),
            1 => self.held.clear(),
            2 => assert_eq!(
                self.call(side, |host| host.ping("192.0.2.1".parse().unwrap(), 1, 1, b"")),
                Err(HostError::NoRoute)
            ),
            _ => match self.call(side, |host| host.ping(address(1 - side), 1, 1, &noise(1, size))) {
                Ok(()) | Err(HostError::NoMemory) => {}
                Err(HostError::TooLong) => assert!(size > 1472),
                Err(other) => panic!("{other:?}"),
            },
        }
    }

    /// Takes the boards' completions.
    fn hear(&mut self) {
        for side in 0..2 {
            for completion in self.pair.completions(side) {
                match completion {
                    Completion::Accepted { stream, remote, .. } => {
                        let link = self.by_local[&remote];
                        self.ends[side].push(End {
                            id: stream,
                            link,
                            role: 1,
                            open: true,
                            finished: false,
                            ended: false,
                            closed: false,
                        });
                    }
                    Completion::Opened { stream } => self.living(side, stream).open = true,
                    Completion::Ended { stream, reason } => {
                        let end = self.living(side, stream);
                        end.ended = true;
                        let link = end.link;
                        if reason != kiban_board::Reason::Closed {
                            self.links[link].iter_mut().for_each(|direction| direction.cut = true);
                        }
                    }
                    Completion::Readable { stream } | Completion::PeerFinished { stream } => {
                        self.known(side, stream);
                    }
                    Completion::Writable { stream } => {
                        self.known(side, stream);
                    }
                    Completion::Datagram { .. }
                    | Completion::DatagramError { .. }
                    | Completion::EchoReply { .. }
                    | Completion::EchoError { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn known(&mut self, side: usize, stream: StreamId) -> &mut End {
        self.ends[side].iter_mut().find(|end| end.id == stream).expect("a stream that the host knows")
    }

    /// Returns the model's side of a stream. It exists, because completions are taken here before the host
    /// can close the stream.
    fn living(&mut self, side: usize, stream: StreamId) -> &mut End {
        let end = self.known(side, stream);
        assert!(!end.closed, "a closed stream is not spoken of");
        end
    }

    /// Lets all written data arrive, closes everything, and checks that all memory is free.
    fn end(mut self) {
        self.held.clear();
        let mut buffer = vec![0; 1 << 20];
        for _round in 0..2000 {
            self.pair.run();
            self.hear();
            for side in 0..2 {
                for at in 0..self.ends[side].len() {
                    let End { id, link, role, closed, .. } = self.ends[side][at];
                    if !closed {
                        let count = self.call(side, |host| host.read(id, &mut buffer)).unwrap();
                        self.got(link, role, &buffer[..count]);
                    }
                }
            }
            if self
                .links
                .iter()
                .flatten()
                .all(|direction| direction.cut || direction.got.len() == direction.sent.len())
            {
                break;
            }
            let later = self.pair.now + Duration::from_millis(500);
            self.pair.run_until(later);
        }
        for (link, direction) in self.links.iter().flatten().enumerate() {
            assert!(
                direction.cut || direction.got == direction.sent,
                "way {link}: {} of {}",
                direction.got.len(),
                direction.sent.len()
            );
        }
        for side in 0..2 {
            for listener in std::mem::take(&mut self.listeners[side]) {
                self.call(side, |host| host.unlisten(listener)).unwrap();
            }
        }
        // Connects that are still in progress succeed or fail.
        for _round in 0..3 {
            for side in 0..2 {
                for at in 0..self.ends[side].len() {
                    let End { id, closed, .. } = self.ends[side][at];
                    if !closed {
                        self.call(side, |host| host.close(id)).unwrap();
                        self.ends[side][at].closed = true;
                    }
                }
                for (id, _) in std::mem::take(&mut self.sockets[side]) {
                    self.call(side, |host| host.unbind(id)).unwrap();
                }
            }
            let later = self.pair.now + Duration::from_secs(1500);
            self.pair.run_until(later);
            self.hear();
        }
        for side in 0..2 {
            let board = &mut self.pair.boards[side];
            let full = [
                board.memory_mut().transmit.capacity(),
                board.memory_mut().receive.capacity(),
                board.memory_mut().pdus.capacity(),
                0,
            ];
            assert_eq!(self.state(side), full, "board {side} is at rest");
        }
    }
}

fn play(memory: u8, steps: &[Op]) {
    let mut model = Model::new(memory);
    // Without listeners there would be little to test.
    for side in 0..2 {
        let listener = model.pair.boards[side].host().listen(socket(side, 80)).unwrap();
        model.listeners[side].push(listener);
    }
    steps.iter().for_each(|step| model.step(*step));
    model.end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn random_host_calls_leave_streams_intact_and_return_all_memory(
        memory in any::<u8>(),
        steps in prop::collection::vec(any::<Op>(), 1..120),
    ) {
        play(memory, &steps);
    }
}

/// A session's number may be reused before the session's end is reported; its stream is freed nevertheless.
#[test]
fn an_abort_and_an_open_in_one_burst_lose_no_memory() {
    let mut pair = Pair::new();
    pair.boards[1].host().listen(socket(1, 80)).unwrap();
    let mut stream = pair.boards[0].host().open(socket(1, 80)).unwrap();
    for _ in 0..20 {
        pair.run();
        let completions = pair.completions(1);
        let [.., Completion::Accepted { stream: far, .. }] = completions[..] else {
            panic!("{completions:?}")
        };
        pair.boards[1].host().write(far, &noise(1, 3000)).unwrap();
        pair.run();
        // The stream has unread bytes when it is aborted.
        assert_eq!(pair.boards[0].host().readable(stream).unwrap(), 3000);
        let mut host = pair.boards[0].host();
        host.write(stream, &[1; 100]).unwrap();
        host.abort(stream).unwrap();
        stream = host.open(socket(1, 80)).unwrap();
        pair.boards[1].host().close(far).unwrap();
    }
    pair.boards[0].host().abort(stream).unwrap();
    pair.run();
    for completion in pair.completions(1) {
        if let Completion::Accepted { stream, .. } = completion {
            pair.boards[1].host().close(stream).unwrap();
        }
    }
    pair.run_until(pair.now + Duration::from_secs(200));
    for board in &mut pair.boards {
        assert_eq!(board.sessions(), 0);
        assert!(board.memory_mut().is_all_free());
    }
}

/// There are sixteen pages, and twenty idle streams that have sent one byte each. A new stream still gets a
/// page.
#[test]
fn silent_streams_hold_no_page_that_others_need() {
    let mut configs = [config(0), config(1)];
    configs[0].memory.transmit_bytes = 16 * 4096;
    let mut pair = Pair::of(configs);
    pair.boards[1].host().listen(socket(1, 80)).unwrap();
    let streams: Vec<_> = (0..21).map(|_| pair.boards[0].host().open(socket(1, 80)).unwrap()).collect();
    pair.run();
    let accepted: Vec<_> =
        pair.completions(1)
            .into_iter()
            .filter_map(|completion| {
                if let Completion::Accepted { stream, .. } = completion { Some(stream) } else { None }
            })
            .collect();
    assert_eq!(accepted.len(), 21);
    let mut written = [0; 21];
    for _ in 0..100 {
        for (stream, written) in streams.iter().zip(&mut written) {
            if *written == 0 {
                *written = pair.boards[0].host().write(*stream, b"x").unwrap();
            }
        }
        pair.run();
        let mut buffer = [0; 10];
        for stream in &accepted {
            pair.boards[1].host().read(*stream, &mut buffer).unwrap();
        }
        pair.run_until(pair.now + Duration::from_millis(100));
    }
    assert_eq!(written, [1; 21], "every stream has said its byte");
}

/// Twenty peers do not read, and the host writes to each of them until no more is accepted. Then a peer that
/// reads is served.
#[test]
fn a_reading_stream_is_served_even_if_others_hold_all_memory() {
    let mut configs = [config(0), config(1)];
    configs[0].memory.transmit_bytes = 256 * 4096;
    // Each peer's unread data fits in the peer's own memory.
    configs[1].tcp.receive_buffer_bytes = 16 << 10;
    let mut pair = Pair::of(configs);
    pair.boards[1].host().listen(socket(1, 80)).unwrap();
    let words = noise(2, 64 << 10);
    let write = |pair: &mut Pair, stream| {
        let written = pair.boards[0].host().write(stream, &words).unwrap_or(0);
        pair.run();
        written
    };
    for _ in 0..20 {
        let stream = pair.boards[0].host().open(socket(1, 80)).unwrap();
        pair.run();
        while write(&mut pair, stream) > 0 {}
    }
    // One address may hold at most seven eighths of the memory; an eighth is reserved for others.
    assert!(pair.boards[0].memory_mut().transmit.available() <= 256 / 8);
    pair.completions(1);
    let reader = pair.boards[0].host().open(socket(1, 80)).unwrap();
    pair.run();
    let [.., Completion::Accepted { stream: far, .. }] = pair.completions(1)[..] else {
        panic!("no caller arrived")
    };
    let (mut got, mut buffer, begun) = (0, vec![0; 1 << 20], pair.now);
    // The transfer is slow, because each freed page is shared with streams that have not been served yet.
    while got < 32 << 10 {
        assert!(pair.now.since(begun) < Duration::from_secs(60), "{got} bytes");
        // Write to each stream that is reported writable.
        for completion in pair.completions(0) {
            if let Completion::Writable { stream } = completion {
                write(&mut pair, stream);
            }
        }
        write(&mut pair, reader);
        got += pair.boards[1].host().read(far, &mut buffer).unwrap();
        pair.run_until(pair.now + Duration::from_millis(10));
    }
    // The sessions that were aborted have freed enough memory, so no others are aborted.
    let stays = pair.boards[0].sessions();
    assert!((15..21).contains(&stays), "{stays}");
}

/// A stream that is closed while it waits for a page does not get one.
#[test]
fn finishing_while_waiting_for_a_page_cancels_the_wait() {
    let mut configs = [config(0), config(1)];
    configs[0].memory.transmit_bytes = 2 * 4096;
    let mut pair = Pair::of(configs);
    pair.boards[1].host().listen(socket(1, 80)).unwrap();
    let [first, second] = [0; 2].map(|_| pair.boards[0].host().open(socket(1, 80)).unwrap());
    pair.run();
    let accepted = pair.completions(1);
    let mut host = pair.boards[0].host();
    assert_eq!(host.write(first, &[1; 8192]), Ok(8192));
    assert_eq!(host.write(second, b"x"), Ok(0));
    host.finish(second).unwrap();
    for _ in 0..20 {
        pair.run_until(pair.now + Duration::from_millis(100));
        for completion in &accepted {
            if let Completion::Accepted { stream, .. } = completion {
                pair.boards[1].host().read(*stream, &mut [0; 10_000]).unwrap();
            }
        }
    }
    let completions = pair.completions(0);
    assert!(!completions.contains(&Completion::Writable { stream: second }), "{completions:?}");
    assert_eq!(pair.boards[0].memory_mut().transmit.available(), 2);
}

/// Datagrams hold all of the transmit memory. When they have been sent, the waiting writer is woken even
/// though nothing arrives.
#[test]
fn a_writer_gets_a_completion_when_datagrams_release_their_pages() {
    let mut configs = [atm_config(0), atm_config(1)];
    configs[0].memory.transmit_bytes = 8 * 4096;
    let mut lines = Lines::of(configs);
    let (near, far) = lines.open(0, 80);
    let bound = lines.boards[0].host().bind(socket(0, 1000)).unwrap();
    let nobody = SocketAddr::new(attacker(), 7);
    while lines.boards[0].host().send_to(bound, nobody, &[0; 4000]).is_ok() {}
    assert_eq!(lines.boards[0].host().write(near, b"please"), Ok(0));
    lines.drain(0);
    lines.pass(Duration::from_millis(50));
    assert!(lines.completions(0).contains(&Completion::Writable { stream: near }));
    assert_eq!(lines.boards[0].host().write(near, b"please"), Ok(6));
    lines.drain(0);
    lines.boards[0].host().unbind(bound).unwrap();
    lines.close_and_check([near, far]);
}

/// Streams continue even with a queue of only one frame, and with a second port that has no circuits.
#[test]
fn a_short_queue_and_a_port_without_circuits_block_no_other_stream() {
    for frames_max in [1, 2, 8, 9] {
        let make = |side| -> BoardConfig {
            let mut config = atm_config(side);
            port_of(&mut config).circuits.iter_mut().for_each(|circuit| circuit.frames_max = frames_max);
            let mut idle = port_of(&mut config).clone();
            idle.circuits.clear();
            idle.address = format!("10.9.0.{}", side + 1).parse().unwrap();
            idle.prefix = "10.9.0.0/24".parse().unwrap();
            config.ports.push(PortConfig::Atm(idle));
            config
        };
        let mut lines = Lines::of([make(0), make(1)]);
        let (near, far) = lines.open(0, 80);
        lines.carry((0, near), far, &noise(1, 100_000), |_, _| ());
        assert_eq!(lines.boards[0].counter("tcp", "retransmits"), 0, "queues of {frames_max}");
        lines.close_and_check([near, far]);
    }
}
