//! The model's receive queue compared with the real VI NIC: the same arrivals, the same process, the same
//! stalls.
//!
//! The process runs once over [`Posted`] and once over two NICs in virtual time: the sender posts a message
//! when the packet is due to be sent, the receiver's process dequeues it and reposts the descriptor when its
//! work is done. Both runs must take and lose the same packets at the same times.

use kiban_base::{Costs, Instant, Region, RngKey, SharedBytes, SharedRoom, Wait, loss_guard};
use kiban_sim::waiting::{
    ArrivalPattern, Arrivals, Level, Outcome, Packet, Posted, Posting, Process, ReceiveQueue, Stall,
    StallLength, StallTiming,
};
use kiban_vi::{
    Config, DataSegment, Event, MemoryAttributes, Nic, PathTraits, Reliability, ViAttributes, ViState, Work,
};
use std::collections::VecDeque;
use std::time::Duration;

const PACKET_BYTES: usize = 256;
const MESSAGE_BYTES: u32 = 16;
const PATH: PathTraits = PathTraits { packet_bytes: PACKET_BYTES, lossless: true, checked: false };

struct End {
    nic: Nic,
    path: u32,
    vi: u32,
    segment: DataSegment,
}

impl End {
    fn new(config: &Config, reliability: Reliability, seed: u64) -> End {
        let mut nic = Nic::new(config.clone(), RngKey::for_simulation(seed));
        let path = nic.open_path(PATH).expect("room for a path");
        let tag = nic.create_tag().expect("room for a tag");
        let memory = MemoryAttributes { tag, rdma_write: false, rdma_read: false };
        let handle = nic.register(Region::new(0, MESSAGE_BYTES as usize), memory).expect("room for memory");
        let attributes = ViAttributes {
            reliability,
            transfer_bytes_max: MESSAGE_BYTES,
            qos: 0,
            tag,
            rdma_write: false,
            rdma_read: false,
        };
        let vi = nic.create_vi(attributes, None, None).expect("room for a VI");
        let segment = DataSegment { address: 0, handle, length: MESSAGE_BYTES };
        End { nic, path, vi, segment }
    }

    fn state(&self) -> ViState {
        self.nic.vi(self.vi).expect("the VI is there").0
    }

    fn fetch(&mut self, room: &mut [u8], now: Instant) -> Option<usize> {
        self.nic.fetch(self.path, &mut SharedRoom::from(room), now)
    }
}

/// Two NICs and a sender. Everything except messages is delivered at once. A message occupies the link for
/// `pace`.
struct Nics {
    sender: End,
    receiver: End,
    pace: Duration,
    arrivals: Arrivals,
    next: Option<Packet>,
    link_free: Instant,
    now: Instant,
    /// The messages in transit, by number, with the times at which they were due to be sent.
    wanted: VecDeque<Packet>,
    posted: usize,
    lost: Vec<u64>,
    broken: Option<Instant>,
}

impl Nics {
    fn new(posting: Posting, mut arrivals: Arrivals) -> Nics {
        let mut config = Config {
            descriptors_max: 1 << 20,
            // The sending NIC is notified when a descriptor is posted, so it need not probe. The probe
            // interval is so long that the test would hang if the notification were missing.
            dry_retry: Duration::from_secs(1 << 20),
            ..Config::default()
        };
        let reliability = match posting.level {
            Level::Unreliable => Reliability::Unreliable,
            Level::Reception => Reliability::Reception,
            Level::Delivery { patience } => {
                config.dry_patience = patience;
                Reliability::Delivery
            }
        };
        let next = arrivals.next().map(|wanted| Packet { number: 0, wanted });
        let mut nics = Nics {
            sender: End::new(&config, reliability, 1),
            receiver: End::new(&config, reliability, 2),
            pace: posting.pace,
            arrivals,
            next,
            link_free: Instant::ZERO,
            now: Instant::ZERO,
            wanted: VecDeque::new(),
            posted: 0,
            lost: Vec::new(),
            broken: None,
        };
        nics.connect();
        (0..posting.descriptors).for_each(|_| nics.post_receive());
        nics
    }

    fn connect(&mut self) {
        self.receiver.nic.listen(b"port").expect("room for a listener");
        let End { nic, vi, path, .. } = &mut self.sender;
        nic.request(*vi, *path, (b"mine", b"port"), false, self.now, self.now + Duration::from_secs(1))
            .expect("the VI is idle");
        self.exchange();
        let request = self.receiver.nic.request_at(b"port").expect("the request arrived");
        self.receiver.nic.accept(request.number, self.receiver.vi, self.now).expect("the ends are alike");
        self.exchange();
        assert!(matches!(self.sender.nic.outcome(self.sender.vi), Ok(Some(Ok(_)))));
        self.link_free = self.now;
    }

    fn post_receive(&mut self) {
        let End { nic, vi, segment, .. } = &mut self.receiver;
        nic.post_receive(*vi, 0, std::slice::from_ref(segment)).expect("room for a descriptor");
    }

    /// Delivers everything that can be delivered: responses at once, a message when the link is free.
    fn exchange(&mut self) {
        let mut room = [0; PACKET_BYTES];
        loop {
            for end in [&mut self.receiver, &mut self.sender] {
                end.nic.settle(self.now);
            }
            let mut quiet = true;
            while let Some(length) = self.receiver.fetch(&mut room, self.now) {
                self.sender.nic.arrive(self.sender.path, SharedBytes::from(&room[..length]), self.now);
                quiet = false;
            }
            if self.link_free <= self.now {
                let before = self.sender.nic.counters().packets_out;
                if let Some(length) = self.sender.fetch(&mut room, self.now) {
                    let [dry, taken] = self.seen();
                    self.receiver.nic.arrive(
                        self.receiver.path,
                        SharedBytes::from(&room[..length]),
                        self.now,
                    );
                    assert_eq!(self.sender.nic.counters().packets_out, before + 1);
                    if [dry, taken] != self.seen() || self.is_held() {
                        self.link_free = self.now + self.pace;
                    }
                    if self.seen()[0] > dry {
                        let packet = self.wanted.remove(self.wanted.len() - self.unsent() - 1);
                        self.lost.push(packet.expect("it was sent").number);
                    }
                    quiet = false;
                }
            }
            if quiet {
                break;
            }
        }
        while let Ok(Some(_)) = self.sender.nic.send_done(self.sender.vi) {}
        while self.sender.nic.event().is_some() {}
        if self.broken.is_none() && self.sender.state() == ViState::Error {
            (self.broken, self.next) = (Some(self.now), None);
        }
    }

    /// Returns the number of messages that found no descriptor, and of those that arrived.
    fn seen(&self) -> [u64; 2] {
        let counters = self.receiver.nic.counters();
        [counters.no_descriptor, counters.messages_in]
    }

    /// Returns the number of messages that are still with the sender and may yet be sent.
    fn unsent(&self) -> usize {
        if self.broken.is_some() {
            return 0;
        }
        let gone = self.seen().iter().sum::<u64>() as usize;
        self.posted - gone
    }

    /// Returns whether a message was refused and waits.
    fn is_held(&mut self) -> bool {
        let mut refused = false;
        while let Some(event) = self.receiver.nic.event() {
            refused |= matches!(event, Event::ReceiveQueueEmpty { .. });
        }
        refused
    }
}

impl ReceiveQueue for Nics {
    fn advance(&mut self, until: Instant) {
        loop {
            self.exchange();
            let wants = self.next.map_or(Instant::NEVER, |packet| packet.wanted);
            let link =
                if self.link_free > self.now && self.unsent() > 0 { self.link_free } else { Instant::NEVER };
            let deadline = self.sender.nic.deadline().max(self.now + Duration::from_nanos(1));
            let at = wants.min(link).min(deadline);
            if at > until {
                self.now = until;
                return self.exchange();
            }
            self.now = at.max(self.now);
            while let Some(packet) = self.next.filter(|packet| packet.wanted <= self.now) {
                let work = Work::send(packet.number, std::slice::from_ref(&self.sender.segment));
                self.sender
                    .nic
                    .post_send(self.sender.vi, work.with_immediate(packet.number as u32))
                    .expect("connected");
                self.wanted.push_back(packet);
                self.posted += 1;
                let next = self.arrivals.next();
                self.next = next.map(|wanted| Packet { number: packet.number + 1, wanted });
            }
        }
    }

    fn next(&mut self) -> Option<Instant> {
        if self.unsent() > 0 {
            return Some(self.link_free.max(self.now));
        }
        self.next.map(|packet| packet.wanted.max(self.link_free))
    }

    fn take(&mut self) -> Option<Packet> {
        let done = self.receiver.nic.receive_done(self.receiver.vi).expect("the VI is there")?;
        if !done.status.is_ok() {
            return None;
        }
        let packet = self.wanted.pop_front().expect("what arrives was sent");
        assert_eq!(done.immediate, Some(packet.number as u32), "in order, none twice");
        Some(packet)
    }

    fn loss_guard(&self) -> Duration {
        let lossy = self.receiver.nic.descriptors_at_risk(self.receiver.vi);
        lossy.map_or(Duration::ZERO, |(_, descriptors)| loss_guard(descriptors))
    }

    fn post(&mut self, now: Instant) {
        self.now = now;
        self.post_receive();
        self.exchange();
    }
}

/// Runs the process over both queues, and compares the losses and the time at which the connection broke.
fn check(
    process: &Process,
    posting: Posting,
    rhythm: ArrivalPattern,
    packets: u64,
) -> (Outcome, Vec<u64>, Option<Instant>) {
    let arrivals = Arrivals::new(rhythm, packets, 11);
    let mut posted = Posted::new(posting, arrivals.clone());
    let outcome = process.run(&mut posted);
    let mut nics = Nics::new(posting, arrivals);
    let shipped = process.run(&mut nics);
    let differs = posted.lost().iter().zip(&nics.lost).find(|(model, shipped)| model != shipped);
    let counts = (posted.lost().len(), nics.lost.len());
    assert!(posted.lost() == nics.lost, "the same packets are lost: {counts:?}, first {differs:?}");
    assert_eq!(posted.connection_lost_at(), nics.broken, "the connection is lost at the same moment");
    assert_eq!(outcome, shipped, "everything took as long");
    (outcome, nics.lost, nics.broken)
}

const fn micros(length: u64) -> Duration {
    Duration::from_micros(length)
}

const STALL: Stall = Stall {
    when: StallTiming::Waking(0.02),
    length: StallLength::Uniform { least: micros(1000), most: micros(40_000) },
};
/// Arrival patterns with packets of 12.5 KB, at about 62.5 MB/s.
const RHYTHMS: [ArrivalPattern; 3] = [
    ArrivalPattern::Constant { gap: micros(200) },
    ArrivalPattern::Exponential { mean: micros(200) },
    ArrivalPattern::Bursts { packets: 40, gap: micros(125), pause: micros(3000) },
];

fn process(wait: Wait) -> Process {
    Process { wait, costs: Costs::default(), work: micros(80), stalls: vec![STALL], seed: 4 }
}

const WAITS: [Wait; 3] = [Wait::Interrupt, Wait::Hybrid { spin: micros(100) }, Wait::Adaptive];
const PACKETS: u64 = 20_000;

#[test]
fn an_unreliable_nic_loses_the_very_packets_that_the_model_loses() {
    let posting = Posting { descriptors: 107, level: Level::Unreliable, pace: micros(100) };
    for wait in WAITS {
        for rhythm in RHYTHMS {
            let (outcome, lost, _) = check(&process(wait), posting, rhythm, PACKETS);
            assert_eq!(outcome.taken + lost.len() as u64, PACKETS, "{wait} {rhythm:?}");
            // With constant gaps, the adaptive policy never sleeps while a stall would lose packets.
            let is_safe = wait == Wait::Adaptive && rhythm == RHYTHMS[0];
            assert_eq!(lost.is_empty(), is_safe, "{wait} {rhythm:?}");
        }
    }
}

#[test]
fn a_nic_with_reliable_reception_holds_the_sender_as_the_model_does_and_loses_nothing() {
    let posting = Posting { descriptors: 107, level: Level::Reception, pace: micros(100) };
    for wait in WAITS {
        for rhythm in RHYTHMS {
            let (outcome, lost, broken) = check(&process(wait), posting, rhythm, PACKETS);
            assert_eq!((outcome.taken, lost.len(), broken), (PACKETS, 0, None), "{wait} {rhythm:?}");
        }
    }
}

#[test]
fn reliable_delivery_loses_nothing_or_ends_the_connection_as_the_model_says() {
    for (patience, whole) in [(0, false), (5_000, false), (40_000, true)] {
        let posting = Posting {
            descriptors: 107,
            level: Level::Delivery { patience: micros(patience) },
            pace: micros(100),
        };
        let (outcome, lost, broken) = check(&process(Wait::Interrupt), posting, RHYTHMS[0], PACKETS);
        assert!(lost.is_empty());
        assert_eq!((outcome.taken == PACKETS, broken.is_none()), (whole, whole), "{patience} us");
    }
}
