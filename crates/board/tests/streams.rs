//! A client uses a board's streams through shared memory. Both run in one process and take turns.

mod common;
#[path = "../../base/tests/common/refusal.rs"]
mod refusal;

use common::{Pair, socket};
use kiban_attach::{BACKLOG_MAX, Client, EndReason, Indication, Layout, Read, Request, STATISTICS_BYTES};
use kiban_base::ring::Shape;
use kiban_base::{Instant, Region, SimRng};
use kiban_board::streams::ClientStreams;
use kiban_board::{Completion, StreamId};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

const ROOM: usize = 8 << 10;

/// A client of board 0; board 1 is its peer.
struct Rig {
    pair: Pair,
    memory: Region,
    client: Client,
    client_streams: ClientStreams,
    indications: VecDeque<Indication>,
    /// The completions of board 1.
    world: Vec<Completion>,
}

impl Rig {
    fn new(slots: usize) -> Rig {
        Rig::with_room(slots, ROOM)
    }

    fn with_room(slots: usize, room: usize) -> Rig {
        let layout = Layout::new(128, slots, room).expect("within bounds");
        let memory = Region::new(0, layout.bytes());
        Rig {
            client: Client::new(&memory, layout),
            client_streams: ClientStreams::new(&memory, layout),
            memory,
            pair: Pair::new(),
            indications: VecDeque::new(),
            world: Vec::new(),
        }
    }

    /// Runs the board until all is idle.
    fn run(&mut self) {
        loop {
            let mut busy = self
                .client_streams
                .process_requests(&mut self.pair.boards[0].host())
                .expect("a correct client");
            self.pair.run();
            for completion in self.pair.completions(0) {
                busy = true;
                let mut host = self.pair.boards[0].host();
                let known =
                    self.client_streams.on_completion(completion, &mut host).expect("a correct client");
                assert!(known, "{completion:?}");
            }
            self.client_streams.flush_indications().expect("a correct client");
            self.world.extend(self.pair.completions(1));
            while let Some(indication) = self.client.next_indication().expect("a correct board") {
                self.indications.push_back(indication);
            }
            if !busy {
                return;
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.pair.now + time;
        while self.pair.now < until {
            self.run();
            self.pair.run_until(until);
        }
        self.run();
    }

    fn ask(&mut self, ask: Request) {
        self.client.request(ask).expect("a correct board");
        self.run();
    }

    fn connect(&mut self, port: u16) -> u32 {
        let slot = self.client.claim().expect("a slot is free");
        self.ask(Request::Connect { slot, local: None, remote: socket(1, port), traffic_class: 0 });
        slot
    }

    /// Connects a stream to a listener of board 1. Returns the client's slot and board 1's stream.
    fn connected(&mut self) -> (u32, StreamId) {
        self.pair.boards[1].host().listen(socket(1, 80)).expect("a free port");
        let slot = self.connect(80);
        let indication = self.indications.pop_front();
        assert!(
            matches!(indication, Some(Indication::Opened { slot: own, .. }) if own == slot),
            "{indication:?}"
        );
        (slot, self.accepted())
    }

    /// Returns the stream that board 1 has accepted.
    fn accepted(&mut self) -> StreamId {
        let accepted = self.world.iter().find_map(|completion| match completion {
            Completion::Accepted { stream, .. } => Some(*stream),
            _ => None,
        });
        self.world.clear();
        accepted.expect("accepted")
    }

    /// Connects from board 1.
    fn call(&mut self, port: u16) -> StreamId {
        let stream = self.pair.boards[1].host().open(socket(0, port)).expect("a route");
        self.run();
        stream
    }

    fn read(&mut self, slot: u32, into: &mut Vec<u8>) -> Read {
        let mut buffer = [0; 3000];
        let read = self.client.read(slot, &mut buffer).expect("a correct board");
        if let Read::Bytes(count) = read {
            into.extend_from_slice(&buffer[..count]);
        }
        read
    }

    fn read_far(&mut self, stream: StreamId, into: &mut Vec<u8>) {
        let mut buffer = [0; 5000];
        while let Ok(count @ 1..) = self.pair.boards[1].host().read(stream, &mut buffer) {
            into.extend_from_slice(&buffer[..count]);
        }
    }

    fn is_home(&mut self) {
        self.pass(Duration::from_secs(300));
        assert_eq!(self.client_streams.streams(), 0);
        for board in &mut self.pair.boards {
            assert!(board.memory_mut().is_all_free(), "{board:?}");
        }
    }
}

fn noise(length: usize) -> Vec<u8> {
    let mut rng = SimRng::from_seed(length as u64);
    (0..length).map(|_| rng.draw() as u8).collect()
}

#[test]
fn a_client_connects_transfers_both_ways_and_closes_in_order() {
    let mut rig = Rig::new(4);
    let (slot, far) = rig.connected();
    let bytes = noise(300_000);
    let (mut sent, mut got) = (0, Vec::new());
    while got.len() < bytes.len() {
        sent += rig.client.write(slot, bytes[sent..].into()).expect("a correct board");
        rig.run();
        rig.read_far(far, &mut got);
        rig.pass(Duration::from_millis(1));
    }
    assert!(got == bytes);
    let (mut sent, mut got) = (0, Vec::new());
    while got.len() < bytes.len() {
        sent += rig.pair.boards[1].host().write(far, &bytes[sent..]).expect("it is open");
        rig.run();
        rig.client.arm(slot);
        while let Read::Bytes(_) = rig.read(slot, &mut got) {}
        rig.pass(Duration::from_millis(1));
    }
    assert!(got == bytes);
    assert!(
        rig.indications.iter().any(|indication| *indication == Indication::Notify { slot }),
        "an armed waiter is notified"
    );
    rig.indications.clear();
    // The client sends a FIN first, then the peer.
    rig.client.finish(slot).expect("a correct board");
    rig.run();
    assert!(rig.world.contains(&Completion::PeerFinished { stream: far }));
    assert_eq!(rig.read(slot, &mut got), Read::Nothing);
    rig.pair.boards[1].host().close(far).expect("it is open");
    rig.pass(Duration::from_millis(1));
    assert_eq!(rig.read(slot, &mut got), Read::End);
    rig.ask(Request::Close { slot });
    assert_eq!(rig.indications.back(), Some(&Indication::Free { slot }));
    let counters = rig.client_streams.counters();
    assert_eq!((counters.opened, counters.ended, counters.reset, counters.invalid_requests), (1, 1, 0, 0));
    assert_eq!((counters.bytes_in, counters.bytes_out), (300_000, 300_000));
    rig.is_home();
}

/// Sends bytes in both directions while one memory allocation is refused. Returns whether the run reached
/// that allocation.
fn check_refusal(refusal: refusal::Refusal) -> bool {
    let mut rig = Rig::new(1);
    rig.pair.boards[1].host().listen(socket(1, 80)).expect("a free port");
    refusal.arm(rig.pair.boards[refusal.side].memory_mut());
    let slot = rig.connect(80);
    let (bytes, tick) = (noise(30_000), Duration::from_millis(50));
    let (mut far, mut is_open) = (None, false);
    let (mut sent, mut got) = ([0; 2], [Vec::new(), Vec::new()]);
    for _ in 0..10_000 {
        rig.pass(tick);
        is_open |= rig.indications.iter().any(|indication| matches!(indication, Indication::Opened { .. }));
        far = far.or(rig.world.iter().find_map(|completion| match completion {
            Completion::Accepted { stream, .. } => Some(*stream),
            _ => None,
        }));
        let (true, Some(far)) = (is_open, far) else { continue };
        sent[0] += rig.client.write(slot, bytes[sent[0]..].into()).expect("a correct board");
        sent[1] += rig.pair.boards[1].host().write(far, &bytes[sent[1]..]).expect("it is open");
        rig.read_far(far, &mut got[0]);
        while let Read::Bytes(_) = rig.read(slot, &mut got[1]) {}
        if got.iter().all(|got| got.len() == bytes.len()) {
            break;
        }
    }
    assert!(got.iter().all(|got| *got == bytes), "{refusal:?}: {sent:?}, {:?}", got.map(|got| got.len()));
    rig.client.finish(slot).expect("a correct board");
    rig.pass(tick);
    let _ = rig.pair.boards[1].host().close(far.expect("it was accepted"));
    rig.pass(tick);
    rig.ask(Request::Close { slot });
    rig.is_home();
    refusal.has_happened(rig.pair.boards[refusal.side].memory_mut())
}

#[test]
fn an_allocation_failure_delays_a_client_and_loses_nothing() {
    refusal::each(check_refusal);
}

#[test]
fn a_waiting_writer_is_notified_when_half_of_the_room_is_free() {
    // There is more data than the board moves from the pipe to TCP at a time.
    const ROOM: usize = 256 << 10;
    let mut rig = Rig::with_room(1, ROOM);
    let (slot, far) = rig.connected();
    let sent = noise(4_000_000);
    let mut written = 0;
    // The peer does not read, so eventually no more data is accepted.
    loop {
        let count = rig.client.write(slot, sent[written..].into()).expect("a correct board");
        rig.pass(Duration::from_secs(1));
        if count == 0 {
            break;
        }
        written += count;
    }
    assert!(written < sent.len() - ROOM, "it is full");
    let (mut got, mut quiet) = (Vec::new(), 0);
    while got.len() < written {
        rig.client.arm(slot);
        rig.indications.clear();
        let mut buffer = [0; 700];
        let count = rig.pair.boards[1].host().read(far, &mut buffer).unwrap_or(0);
        got.extend_from_slice(&buffer[..count]);
        rig.pass(Duration::from_secs(1));
        if rig.indications.contains(&Indication::Notify { slot }) {
            break;
        }
        quiet += usize::from(rig.client.has_room(slot));
    }
    assert!(rig.indications.contains(&Indication::Notify { slot }), "it is notified in the end");
    let more = rig.client.write(slot, sent[written..].into()).expect("a correct board");
    assert!((ROOM / 2..ROOM).contains(&more), "{more} of {ROOM} bytes are free");
    assert!(quiet > 0, "there was some room before");
    rig.ask(Request::Close { slot });
    while got.len() < written + more {
        rig.read_far(far, &mut got);
        rig.pass(Duration::from_secs(1));
    }
    assert!(got == sent[..written + more]);
    let _ = rig.pair.boards[1].host().close(far);
    rig.is_home();
}

#[test]
fn a_check_chooses_a_port_but_does_not_listen() {
    let mut rig = Rig::new(4);
    rig.ask(Request::CheckListen { listener: 3, local: socket(0, 0) });
    let Some(Indication::Listening { listener: 3, result: Ok(local) }) = rig.indications.pop_front() else {
        panic!("it is granted")
    };
    assert!(local.port() != 0 && local.ip() == socket(0, 0).ip());
    let stream = rig.call(local.port());
    assert!(matches!(rig.world.pop(), Some(Completion::Ended { stream: own, .. }) if own == stream));
    rig.pair.boards[1].host().close(stream).expect("it has ended");
    rig.ask(Request::Listen { listener: 3, local, shares: false, v6_only: false });
    assert_eq!(rig.indications.pop_front(), Some(Indication::Listening { listener: 3, result: Ok(local) }));
    rig.ask(Request::CheckListen { listener: 4, local });
    let taken = Indication::Listening { listener: 4, result: Err(EndReason::InUse) };
    assert_eq!(rig.indications.pop_front(), Some(taken));
    rig.ask(Request::Unlisten { listener: 3 });
    rig.is_home();
}

#[test]
fn connections_use_the_offered_slots_and_others_wait() {
    let mut rig = Rig::new(4);
    rig.ask(Request::Listen { listener: 7, local: socket(0, 9), shares: false, v6_only: false });
    assert_eq!(
        rig.indications.pop_front(),
        Some(Indication::Listening { listener: 7, result: Ok(socket(0, 9)) })
    );
    rig.ask(Request::Listen { listener: 8, local: socket(0, 9), shares: false, v6_only: false });
    assert_eq!(
        rig.indications.pop_front(),
        Some(Indication::Listening { listener: 8, result: Err(EndReason::InUse) })
    );
    let offered = rig.client.claim().expect("a slot");
    rig.ask(Request::Offer { listener: 7, slot: offered });
    let callers = [rig.call(9), rig.call(9), rig.call(9)];
    let Some(Indication::Accepted { listener: 7, slot, local, remote }) = rig.indications.pop_front() else {
        panic!()
    };
    assert_eq!((slot, local, remote.ip()), (offered, socket(0, 9), socket(1, 0).ip()));
    assert!(rig.indications.is_empty(), "no other connection has a slot yet");
    // Before there is a slot for them, the second connection sends data and a FIN, and the third is aborted.
    rig.pair.boards[1].host().write(callers[1], b"late").expect("it is open");
    rig.pair.boards[1].host().finish(callers[1]).expect("it is open");
    rig.pair.boards[1].host().abort(callers[2]).expect("it is open");
    rig.run();
    let second = rig.client.claim().expect("a slot");
    rig.ask(Request::Offer { listener: 7, slot: second });
    assert!(matches!(rig.indications.pop_front(), Some(Indication::Accepted { slot, .. }) if slot == second));
    let mut got = Vec::new();
    assert_eq!(rig.read(second, &mut got), Read::Bytes(4));
    assert_eq!(rig.read(second, &mut got), Read::End);
    assert_eq!(got, b"late");
    let third = rig.client.claim().expect("a slot");
    rig.ask(Request::Offer { listener: 7, slot: third });
    assert!(rig.indications.is_empty(), "it has gone");
    // Connections beyond the backlog are reset.
    for _ in 0..BACKLOG_MAX + 3 {
        rig.call(9);
    }
    assert_eq!(rig.client_streams.counters().refused, 2);
    rig.indications.clear();
    rig.ask(Request::Unlisten { listener: 7 });
    assert!(rig.call(9) != callers[0]);
    rig.run();
    let refused = |completion: &Completion| matches!(completion, Completion::Ended { .. });
    assert!(rig.world.iter().any(refused), "nobody listens any more");
    rig.client_streams.detach(&mut rig.pair.boards[0].host());
    rig.run();
    for completion in std::mem::take(&mut rig.world) {
        if let Completion::Opened { stream } = completion {
            let _ = rig.pair.boards[1].host().abort(stream);
        }
    }
    rig.is_home();
}

#[test]
fn impossible_requests_return_their_reason() {
    let mut rig = Rig::new(1);
    let slot = rig.connect(81);
    assert_eq!(rig.indications.pop_front(), Some(Indication::Ended { slot, why: EndReason::Refused }));
    assert_eq!(rig.client.claim(), None, "the slot is in use until it is closed");
    for (local, remote, why) in [
        (None, "192.0.2.1:80", EndReason::NoRoute),
        (Some(socket(1, 0)), "10.0.0.2:80", EndReason::BadAddress),
        (None, "224.0.0.1:80", EndReason::NoRoute),
    ] {
        rig.ask(Request::Close { slot });
        assert_eq!(rig.indications.pop_front(), Some(Indication::Free { slot }));
        assert_eq!(rig.client.claim(), Some(slot));
        let remote: SocketAddr = remote.parse().expect("an address");
        rig.ask(Request::Connect { slot, local, remote, traffic_class: 0 });
        assert_eq!(rig.indications.pop_front(), Some(Indication::Ended { slot, why }), "{remote}");
    }
    // Requests for a slot that the client does not have, or that is in use, are counted and have no effect.
    for ask in [
        Request::Notify { slot: 9 },
        Request::Close { slot: u32::MAX },
        Request::Abort { slot: 1 },
        Request::Offer { listener: 3, slot },
        Request::Connect { slot, local: None, remote: socket(1, 80), traffic_class: 0 },
        Request::Unlisten { listener: 1 },
        Request::Nagle { slot, is_on: true },
    ] {
        rig.ask(ask);
    }
    assert!(rig.indications.is_empty());
    assert_eq!(rig.client_streams.counters().invalid_requests, 7);
    rig.ask(Request::Abort { slot });
    rig.is_home();
}

#[test]
fn the_statistics_of_a_stream_arrive_in_pieces_and_those_of_an_ended_one_are_refused() {
    let mut rig = Rig::new(2);
    let (slot, far) = rig.connected();
    rig.client.write(slot, noise(5000)[..].into()).expect("a correct board");
    rig.pass(Duration::from_secs(1));
    rig.indications.clear();
    rig.ask(Request::QueryStatistics { slot });
    let pieces = rig.indications.drain(..).map(|indication| match indication {
        Indication::Statistics { slot: own, piece: Some(piece) } if own == slot => piece,
        other => panic!("{other:?}"),
    });
    let bytes = pieces.collect::<Vec<_>>().concat();
    assert_eq!(bytes.len(), STATISTICS_BYTES);
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    // Linux's layout: the state is established, the MSS is that of the path, and all bytes are acknowledged.
    assert_eq!((bytes[0], word(120)), (1, 5000));
    assert!((500..9200).contains(&word(16)), "{}", word(16));

    rig.pair.boards[1].host().abort(far).expect("it is open");
    rig.pass(Duration::from_secs(1));
    rig.indications.clear();
    rig.ask(Request::QueryStatistics { slot });
    assert_eq!(rig.indications.pop_front(), Some(Indication::Statistics { slot, piece: None }));
    // A slot that is not in use has none, and no answer.
    rig.ask(Request::QueryStatistics { slot: 1 });
    assert_eq!((rig.indications.pop_front(), rig.client_streams.counters().invalid_requests), (None, 1));
}

#[test]
fn a_listener_on_port_0_learns_its_port_and_foreign_listeners_are_rejected() {
    let mut rig = Rig::new(4);
    // Ports that are in use are skipped.
    let mut free = vec![50_000, 60_000, 65_535];
    for port in (49_152..=65_535).filter(|port| !free.contains(port)) {
        rig.pair.boards[0].host().listen(socket(0, port)).expect("a free port");
    }
    let mut ports = Vec::new();
    for listener in 0..3 {
        rig.ask(Request::Listen { listener, local: socket(0, 0), shares: false, v6_only: false });
        let Some(Indication::Listening { result: Ok(local), .. }) = rig.indications.pop_front() else {
            panic!()
        };
        assert_eq!(local.ip(), socket(0, 0).ip());
        ports.push(local.port());
    }
    free.sort_by_key(|free| ports.iter().position(|port| port == free));
    assert_eq!(ports, free);
    let offered = rig.client.claim().expect("a slot");
    rig.ask(Request::Offer { listener: 0, slot: offered });
    rig.call(ports[0]);
    assert!(matches!(rig.indications.pop_front(), Some(Indication::Accepted { listener: 0, .. })));
    // The client cannot listen on the peer's address, because that is not an address of the board.
    rig.ask(Request::Listen { listener: 9, local: socket(1, 9), shares: false, v6_only: false });
    assert_eq!(
        rig.indications.pop_front(),
        Some(Indication::Listening { listener: 9, result: Err(EndReason::BadAddress) })
    );
    rig.client_streams.detach(&mut rig.pair.boards[0].host());
}

#[test]
fn a_client_that_does_not_read_is_not_served_until_it_does() {
    const ASKS: usize = 5000;
    let mut rig = Rig::new(4);
    rig.ask(Request::Listen { listener: 1, local: socket(0, 9), shares: false, v6_only: false });
    assert!(matches!(rig.indications.pop_front(), Some(Indication::Listening { result: Ok(_), .. })));
    for _ in 0..ASKS {
        rig.client
            .request(Request::Listen { listener: 2, local: socket(0, 9), shares: false, v6_only: false })
            .expect("a correct board");
        rig.client_streams.process_requests(&mut rig.pair.boards[0].host()).expect("a correct client");
    }
    assert!(!rig.client_streams.is_ready(), "what it asks waits in its own ring");
    while rig.indications.len() < ASKS {
        let before = rig.indications.len();
        rig.run();
        assert!(rig.indications.len() > before, "{before} of {ASKS}");
    }
    let taken = Indication::Listening { listener: 2, result: Err(EndReason::InUse) };
    assert!(rig.indications.iter().all(|indication| *indication == taken));
    rig.client_streams.detach(&mut rig.pair.boards[0].host());
    rig.is_home();
}

#[test]
fn a_reset_is_reported_after_the_data_before_it() {
    let mut rig = Rig::new(1);
    let (slot, far) = rig.connected();
    rig.pair.boards[1].host().write(far, &noise(3 * ROOM)).expect("it is open");
    rig.pass(Duration::from_secs(1));
    rig.pair.boards[1].host().abort(far).expect("it is open");
    rig.run();
    assert!(
        !rig.indications.contains(&Indication::Ended { slot, why: EndReason::Reset }),
        "there are bytes to read yet"
    );
    let mut got = Vec::new();
    while let Read::Bytes(_) = rig.read(slot, &mut got) {
        rig.run();
    }
    assert!(got == noise(3 * ROOM));
    assert!(rig.indications.contains(&Indication::Ended { slot, why: EndReason::Reset }));
    rig.ask(Request::Close { slot });
    // When the client resets a stream, the peer is reset.
    rig.pair.boards[1].host().listen(socket(1, 82)).expect("a free port");
    let slot = rig.connect(82);
    let far = rig.accepted();
    rig.ask(Request::Abort { slot });
    let reset =
        |completion: &Completion| matches!(completion, Completion::Ended { stream, .. } if *stream == far);
    assert!(rig.world.iter().any(reset));
    rig.is_home();
}

#[test]
fn written_data_is_sent_after_its_client_has_gone() {
    let mut rig = Rig::new(2);
    let (slot, far) = rig.connected();
    let bytes = noise(2_000_000);
    let (mut sent, mut got) = (0, Vec::new());
    // Write until TCP accepts no more and the pipe is full as well.
    loop {
        let count = rig.client.write(slot, bytes[sent..].into()).expect("a correct board");
        sent += count;
        rig.run();
        if count == 0 {
            break;
        }
    }
    let connecting = rig.client.claim().expect("a slot");
    rig.ask(Request::Connect { slot: connecting, local: None, remote: socket(1, 99), traffic_class: 0 });
    rig.client_streams.detach(&mut rig.pair.boards[0].host());
    assert!(!rig.client_streams.is_finished());
    while got.len() < sent {
        rig.read_far(far, &mut got);
        rig.pass(Duration::from_millis(10));
    }
    assert!(got == bytes[..sent]);
    assert!(rig.world.contains(&Completion::PeerFinished { stream: far }), "a FIN, no reset");
    assert!(rig.client_streams.is_finished());
    rig.pair.boards[1].host().close(far).expect("it is open");
    rig.is_home();
}

#[test]
fn a_client_that_corrupts_its_memory_harms_only_itself() {
    let ring = Shape::new(64, 48).bytes() as u64;
    let (slots, slot_bytes) = (128 + 2 * ring, 2 * (128 + ROOM as u64) + 128);
    let mut condemned = 0;
    for seed in 0..300 {
        let mut rng = SimRng::from_seed(seed);
        let mut rig = Rig::new(3);
        let (slot, far) = rig.connected();
        rig.ask(Request::Listen { listener: 1, local: socket(0, 9), shares: false, v6_only: false });
        let offered = rig.client.claim().expect("a slot");
        rig.ask(Request::Offer { listener: 1, slot: offered });
        rig.pair.boards[1].host().write(far, &noise(5000)).expect("it is open");
        let _ = rig.client.write(slot, noise(3000)[..].into());
        let broken = (0..200).any(|_| {
            // Corrupt random words. Control words (the rings, and the beginning of each slot) are corrupted
            // more often than payload.
            let bytes = rng.draw().to_ne_bytes();
            let at = match rng.below(4) {
                0 => rng.below(rig.memory.len() as u64),
                1 => 128 + rng.below(1024),
                _ => slots + rng.below(3) * slot_bytes + rng.below(256),
            };
            let (at, count) = (at & !3, 1 + rng.below(8) as usize);
            rig.memory.write(at, bytes[..count].into());
            let _ = rig.client.request(Request::Notify { slot });
            let mut host = rig.pair.boards[0].host();
            let mut broken = rig.client_streams.process_requests(&mut host).is_err();
            rig.pair.run();
            for completion in rig.pair.completions(0) {
                let mut host = rig.pair.boards[0].host();
                broken |= rig.client_streams.on_completion(completion, &mut host).is_err();
            }
            broken || rig.client_streams.flush_indications().is_err()
        });
        condemned += u32::from(broken);
        rig.client_streams.disconnect(&mut rig.pair.boards[0].host());
        assert!(rig.client_streams.is_finished());
        let _ = rig.pair.boards[1].host().abort(far);
        let later = rig.pair.now + Duration::from_secs(300);
        rig.pair.run_until(later.max(Instant::from_nanos(1)));
        for board in &mut rig.pair.boards {
            assert!(board.memory_mut().is_all_free(), "{seed}: {board:?}");
        }
    }
    assert!(condemned > 100, "{condemned} of 300 were found out");
}
