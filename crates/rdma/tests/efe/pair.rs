//! Two endpoints and the path between them.

use kiban_base::{Instant, RngKey};
use kiban_rdma::efe::{Config, Endpoint, Event, FlowNumber, Peer};
use kiban_rdma::wire::efe::{Header, Kind};
use std::collections::VecDeque;
use std::time::Duration;

/// One-way delay of a frame.
pub(crate) const DELAY: Duration = Duration::from_micros(5);
pub(crate) const SERVICE: u16 = 5;
pub(crate) const A_WHILE: Duration = Duration::from_millis(5);

/// Decides whether the path loses a frame, given the side that sent it and its header.
type Loses = Box<dyn FnMut(usize, &Header) -> bool>;

pub(crate) struct Pair {
    pub(crate) ends: [Endpoint; 2],
    pub(crate) now: Instant,
    pub(crate) loses: Loses,
    /// Every frame that was sent, including lost ones.
    pub(crate) log: Vec<(usize, Header, Vec<u8>)>,
    under_way: VecDeque<(Instant, usize, Vec<u8>)>,
}

/// Returns the address of a side.
pub(crate) fn peer(side: usize) -> Peer {
    Peer(100 + side as u64)
}

impl Pair {
    pub(crate) fn strangers(config: &Config) -> Pair {
        let mut ends = [1, 2].map(|seed| Endpoint::new(config.clone(), RngKey::for_simulation(seed)));
        ends.iter_mut().for_each(|end| end.listen(SERVICE));
        Pair {
            ends,
            now: Instant::ZERO,
            loses: Box::new(|_, _| false),
            log: Vec::new(),
            under_way: VecDeque::new(),
        }
    }

    /// Creates a flow from side 0 to side 1; returns its numbers on both sides.
    pub(crate) fn connected(config: &Config) -> (Pair, [FlowNumber; 2]) {
        let mut pair = Pair::strangers(config);
        let flows = pair.connect();
        (pair, flows)
    }

    pub(crate) fn ask(&mut self) -> FlowNumber {
        self.ends[0].connect(peer(1), SERVICE, b"hello", self.now).expect("room for a flow")
    }

    /// Connects from side 0; side 1 accepts.
    pub(crate) fn connect(&mut self) -> [FlowNumber; 2] {
        let asking = self.ask();
        self.run(DELAY * 3);
        let events = self.events(1);
        let [Event::ConnectRequest { flow, peer: asker, service, greeting }] = &events[..] else {
            panic!("side 1 got a request: {events:?}")
        };
        assert_eq!((*asker, *service, &greeting[..]), (peer(0), SERVICE, &b"hello"[..]));
        self.ends[1].accept(*flow, b"welcome", self.now).expect("it was asked");
        self.run(DELAY * 5);
        assert_eq!(self.events(0), [Event::Connected { flow: asking, greeting: b"welcome".to_vec() }]);
        assert_eq!(self.events(1), [Event::Connected { flow: *flow, greeting: Vec::new() }]);
        [asking, *flow]
    }

    pub(crate) fn events(&mut self, side: usize) -> Vec<Event> {
        std::iter::from_fn(|| self.ends[side].poll()).collect()
    }

    /// Advances the time.
    pub(crate) fn run(&mut self, length: Duration) {
        let until = self.now + length;
        loop {
            self.flush();
            let arrival = self.under_way.front().map_or(Instant::NEVER, |frame| frame.0);
            let deadline = self.ends[0].deadline().min(self.ends[1].deadline());
            let next = arrival.min(deadline).max(self.now);
            if next > until {
                self.now = until;
                return;
            }
            assert!(next > self.now || arrival <= self.now, "a deadline that has been reached passes");
            self.now = next;
            while self.under_way.front().is_some_and(|frame| frame.0 <= self.now) {
                let (_, from, frame) = self.under_way.pop_front().expect("just seen");
                self.ends[1 - from].arrive(peer(from), &frame, self.now);
            }
        }
    }

    fn flush(&mut self) {
        for from in 0..2 {
            let end = &mut self.ends[from];
            end.settle(self.now);
            let mut room = vec![0; end.frame_bytes_max()];
            let mut frames = 0;
            while let Some((to, length)) = end.fetch(&mut room, self.now) {
                let frame = room[..length].to_vec();
                let (header, _) = Header::read(&frame).expect("sent packets are well formed");
                self.log.push((from, header, frame.clone()));
                if to == peer(1 - from) && !(self.loses)(from, &header) {
                    self.under_way.push_back((self.now + DELAY, from, frame));
                }
                frames += 1;
                assert!(frames < 10_000, "an endpoint sends without end");
            }
        }
    }

    /// Returns all segments that a flow holds for its host.
    pub(crate) fn read_all(&mut self, side: usize, flow: FlowNumber) -> Vec<Vec<u8>> {
        let (mut segments, mut out) = (Vec::new(), Vec::new());
        while self.ends[side].receive(flow, &mut out, self.now) {
            segments.push(out.clone());
        }
        segments
    }

    pub(crate) fn send(&mut self, side: usize, flow: FlowNumber, segment: &[u8]) {
        self.ends[side].send(flow, segment, self.now).expect("room for a segment");
    }

    /// Sends `count` numbered segments from side 0 and reads them at side 1, regardless of losses on the
    /// path.
    pub(crate) fn transfer(&mut self, flows: [FlowNumber; 2], count: u32) {
        let (mut sent, mut read) = (0u32, 0u32);
        let patience = self.now + Duration::from_secs(20);
        while read < count {
            while sent < count && self.ends[0].room(flows[0]) > 0 {
                self.send(0, flows[0], &sent.to_be_bytes());
                sent += 1;
            }
            self.run(DELAY);
            for segment in self.read_all(1, flows[1]) {
                assert_eq!(segment, read.to_be_bytes(), "once and in order");
                read += 1;
            }
            assert!(self.now < patience, "{read} of {count} came");
        }
    }

    /// Returns how many frames of this kind a side has sent.
    pub(crate) fn sent(&self, side: usize, kind: Kind) -> usize {
        self.log.iter().filter(|(from, header, _)| (*from, header.kind) == (side, kind)).count()
    }
}
