//! Tests of internal state: the memory accounts return to zero when the sessions end.

use super::*;
use alloc::vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use kiban_base::{Context, Copies, Instant, Memory, PagePool, PduPool, RngKey, SecureRng};

const LEFT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 1000);
const RIGHT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 80);

/// Two TCP machines that share a packet memory and have no link: segments from one are passed straight to the
/// other.
struct Pair {
    memory: Memory,
    rng: SecureRng,
    copies: Copies,
    now: Instant,
    ends: [(Tcp, Outbox, Option<SessionId>); 2],
    /// Bytes delivered and not consumed, for each end.
    held: [u32; 2],
    reads: bool,
}

impl Pair {
    fn open() -> Pair {
        let mut rng = SecureRng::new(RngKey::for_simulation(1));
        let ends = [(); 2]
            .map(|()| (Tcp::new(Config::default(), 1 << 20, 1 << 20, &mut rng), Outbox::default(), None));
        let memory = Memory {
            transmit: PagePool::new(64, 4096),
            receive: PagePool::new(64, 4096),
            pdus: PduPool::new(64),
        };
        let copies = Copies::default();
        let mut pair = Pair { memory, rng, copies, now: Instant::ZERO, ends, held: [0; 2], reads: true };
        pair.ends[1].0.listen(RIGHT).unwrap();
        pair.ends[0].2 = Some(pair.with(0, |tcp, cx, _| tcp.open(LEFT, RIGHT, 0, cx)).unwrap());
        pair.run();
        pair
    }

    fn with<R>(&mut self, end: usize, work: impl FnOnce(&mut Tcp, &mut Context<'_>, &mut Outbox) -> R) -> R {
        let mut cx =
            Context { now: self.now, memory: &mut self.memory, rng: &mut self.rng, copies: &mut self.copies };
        let (tcp, out, _) = &mut self.ends[end];
        work(tcp, &mut cx, out)
    }

    fn run(&mut self) {
        for turn in 0..1000 {
            self.now += Duration::from_millis(1);
            let end = turn % 2;
            self.with(end, |tcp, cx, out| tcp.settle(&[1000], cx, out));
            while let Some(segment) = self.ends[end].1.down.pop_front() {
                self.with(1 - end, |tcp, cx, out| tcp.arrive(segment, 0, cx, out));
            }
            for end in 0..2 {
                while let Some(indication) = self.ends[end].1.up.pop_front() {
                    match indication {
                        Indication::Accepted { session, .. } => self.ends[end].2 = Some(session),
                        Indication::Data { pdu, .. } => self.held[end] += pdu.body_len() as u32,
                        Indication::Piece { slice, .. } => self.held[end] += slice.len() as u32,
                        _ => {}
                    }
                }
                if self.reads {
                    self.consume(end);
                }
            }
        }
    }

    fn consume(&mut self, end: usize) {
        let count = core::mem::take(&mut self.held[end]);
        if let Some(session) = self.ends[end].2 {
            self.with(end, |tcp, cx, out| tcp.consume(session, count, cx, out));
        }
    }

    fn send(&mut self, end: usize, count: usize) {
        let session = self.ends[end].2.unwrap();
        for _ in 0..count.div_ceil(1000) {
            let slice = self.memory.transmit.take().unwrap().append(&vec![7; 1000]).unwrap();
            self.ends[end].0.send(session, slice).unwrap();
        }
    }

    fn held(&self, end: usize) -> (u64, u64) {
        (self.ends[end].0.send_share.held(), self.ends[end].0.receive_share.held())
    }
}

#[test]
fn the_ledgers_count_queued_offered_and_held_bytes() {
    let mut pair = Pair::open();
    assert_eq!((pair.held(0).0, pair.held(1)), (0, (0, 256 << 10)));
    pair.reads = false;
    pair.send(0, 20_000);
    assert_eq!(pair.held(0).0, 20_000 + 8192);
    pair.run();
    // Unread bytes plus the offered window still equal the promise.
    assert_eq!((pair.held(0).0, pair.held(1).1, pair.held[1]), (0, 256 << 10, 20_000));
}

#[test]
fn the_ledgers_are_empty_after_every_kind_of_end() {
    type Way = fn(&mut Pair);
    let finish: Way = |pair| {
        for end in 0..2 {
            let session = pair.ends[end].2.unwrap();
            pair.ends[end].0.finish(session).unwrap();
        }
        pair.run();
        pair.now += Duration::from_secs(61);
    };
    let abort: Way = |pair| {
        let session = pair.ends[0].2.unwrap();
        pair.with(0, |tcp, cx, out| tcp.abort(session, cx, out)).unwrap();
    };
    let silence: Way = |pair| {
        for _ in 0..40 {
            pair.now += Duration::from_secs(60);
            for end in 0..2 {
                pair.with(end, |tcp, cx, out| tcp.settle(&[1000], cx, out));
                pair.ends[end].1.down.clear();
            }
        }
        let session = pair.ends[1].2.unwrap();
        let _ = pair.with(1, |tcp, cx, out| tcp.abort(session, cx, out));
    };
    for (n, way) in [finish, abort, silence].into_iter().enumerate() {
        for reads in [true, false] {
            let mut pair = Pair::open();
            pair.reads = reads;
            pair.send(0, 10_000);
            pair.send(1, 5_000);
            if n == 0 {
                pair.run();
            }
            way(&mut pair);
            pair.run();
            assert_eq!((pair.held(0), pair.held(1)), ((0, 0), (0, 0)), "way {n}, reads {reads}");
            assert_eq!((pair.ends[0].0.sessions(), pair.ends[1].0.sessions()), (0, 0));
            assert!(pair.memory.is_all_free());
        }
    }
}

#[test]
fn a_half_open_session_is_charged_for_its_offered_window() {
    let mut pair = Pair::open();
    let remote = SocketAddr::new(RIGHT.ip(), 9);
    pair.with(0, |tcp, cx, _| tcp.open(SocketAddr::new(LEFT.ip(), 7), remote, 0, cx)).unwrap();
    let before = pair.held(0).1;
    pair.with(0, |tcp, cx, out| tcp.settle(&[10], cx, out));
    assert_eq!(pair.held(0).1 - before, 65_535);
    pair.run();
    assert_eq!(pair.held(0).1, before, "refused: nothing is promised any more");
}
