//! Two channel adapters and the wire between them. Time is simulated.

use super::messages::message;
use kiban_base::{Instant, RngKey};
use kiban_rdma::roce::cm::{Accept, Cm, CmConfig, CmEvent, Connect, ConnectionId};
use kiban_rdma::wire::roce::cm::{Message, PortSpace, RejectReason};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// How long a packet takes.
pub(super) const DELAY: Duration = Duration::from_millis(1);
pub(super) const SERVICE: u64 = PortSpace::Tcp.service_id(7174);
pub(super) const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))];

/// A packet on its way: arrival time, a number that keeps equal times in order, destination, octets.
type Flying = Reverse<(Instant, u64, usize, Vec<u8>)>;

pub(super) struct Pair {
    pub(super) sides: [Cm; 2],
    pub(super) now: Instant,
    /// Every message that was sent: time, sender, message.
    pub(super) sent: Vec<(Instant, usize, Message)>,
    pub(super) events: [Vec<CmEvent>; 2],
    flying: BinaryHeap<Flying>,
    made: u64,
}

/// Returns where the packets of a side come from: RoCE's source ports say nothing.
pub(super) fn source(side: usize) -> SocketAddr {
    (ADDRESSES[side], 49_152 + side as u16).into()
}

pub(super) fn config(side: usize) -> CmConfig {
    CmConfig { ca_guid: 0x0200_0000_0000_0001 + side as u64, ..CmConfig::default() }
}

pub(super) fn connect() -> Connect {
    Connect {
        service_id: SERVICE,
        qpn: 0x11,
        psn: 0x111,
        private_data: b"hello".to_vec(),
        ..Connect::default()
    }
}

pub(super) fn accept() -> Accept {
    Accept { qpn: 0x22, psn: 0x222, private_data: b"welcome".to_vec(), ..Accept::default() }
}

impl Pair {
    /// Creates two sides, of which side 1 listens.
    pub(super) fn new(seed: u64) -> Pair {
        Pair::with([config(0), config(1)], seed)
    }

    pub(super) fn with(configs: [CmConfig; 2], seed: u64) -> Pair {
        let [one, two] = configs;
        let key = |side| RngKey::for_simulation(seed << 1 | side);
        let mut sides = [Cm::new(one, key(0)), Cm::new(two, key(1))];
        sides[1].listen(SERVICE).expect("free");
        let (sent, events) = (Vec::new(), [Vec::new(), Vec::new()]);
        Pair { sides, now: Instant::ZERO, sent, events, flying: BinaryHeap::new(), made: 0 }
    }

    pub(super) fn connect(&mut self) -> ConnectionId {
        self.sides[0].connect(ADDRESSES[0], source(1), &connect(), self.now).expect("room")
    }

    /// Takes everything that the sides can send now; `fate` says after which delays each message arrives.
    fn send(&mut self, fate: &mut impl FnMut(usize, &Message) -> Vec<Duration>) {
        for (sender, side) in self.sides.iter_mut().enumerate() {
            while let Some(transmit) = side.poll_transmit() {
                let message = message(&transmit.mad);
                assert_eq!((transmit.to.ip(), transmit.to.port()), (ADDRESSES[1 - sender], 4791));
                assert_eq!(transmit.from, ADDRESSES[sender]);
                for delay in fate(sender, &message) {
                    self.made += 1;
                    let flying = (self.now + delay, self.made, 1 - sender, transmit.mad.to_vec());
                    self.flying.push(Reverse(flying));
                }
                self.sent.push((self.now, sender, message));
            }
        }
    }

    /// Lets a MAD arrive.
    pub(super) fn deliver(&mut self, side: usize, mad: &[u8]) {
        self.sides[side].take(source(1 - side), ADDRESSES[side], mad, self.now).expect("a valid MAD");
    }

    /// Goes to the time of the next arrival or timer, and lets it happen. Returns false if there is none.
    fn step(&mut self) -> bool {
        let timers = self.sides.iter().filter_map(Cm::deadline);
        let arrival = self.flying.peek().map(|Reverse((at, ..))| *at);
        let Some(next) = timers.chain(arrival).min() else { return false };
        self.now = self.now.max(next);
        while let Some(Reverse((at, ..))) = self.flying.peek()
            && *at <= self.now
            && let Some(Reverse((_, _, side, mad))) = self.flying.pop()
        {
            self.deliver(side, &mad);
        }
        for side in &mut self.sides {
            side.advance(self.now);
            assert!(side.deadline().is_none_or(|deadline| deadline > self.now));
        }
        true
    }

    /// Runs until nothing flies and no timer runs. `consumer` handles the events.
    pub(super) fn run(
        &mut self,
        mut fate: impl FnMut(usize, &Message) -> Vec<Duration>,
        mut consumer: impl FnMut(usize, &mut Cm, &CmEvent, Instant),
    ) {
        for _ in 0..100_000 {
            for (side, cm) in self.sides.iter_mut().enumerate() {
                while let Some(event) = cm.poll_event() {
                    consumer(side, cm, &event, self.now);
                    self.events[side].push(event);
                }
            }
            self.send(&mut fate);
            if !self.step() {
                return;
            }
        }
        panic!("the pair never comes to rest");
    }

    /// Returns the names of a side's events.
    pub(super) fn names(&self, side: usize) -> Vec<&'static str> {
        self.events[side].iter().map(name).collect()
    }

    /// Returns the names of the messages that were sent, with the sender.
    pub(super) fn messages(&self) -> Vec<(usize, &'static str)> {
        self.sent.iter().map(|(_, sender, message)| (*sender, message_name(message))).collect()
    }

    /// Checks that both sides have forgotten everything.
    pub(super) fn assert_empty(&self) {
        for side in &self.sides {
            assert_eq!((side.connections(), side.deadline()), (0, None));
        }
    }
}

pub(super) fn arrives(_: usize, _: &Message) -> Vec<Duration> {
    vec![DELAY]
}

/// A consumer that accepts, confirms, and then disconnects at one side.
pub(super) fn polite(disconnecting: usize) -> impl FnMut(usize, &mut Cm, &CmEvent, Instant) {
    move |side, cm, event, now| match event {
        CmEvent::ConnectRequest { connection, .. } => {
            cm.accept(*connection, &accept(), now).expect("requested")
        }
        CmEvent::Connected { connection, .. } => {
            cm.confirm(*connection, b"ready").expect("connected");
            if side == disconnecting {
                cm.disconnect(*connection, b"bye", now).expect("established");
            }
        }
        CmEvent::Established { connection, .. } if side == disconnecting => {
            cm.disconnect(*connection, b"bye", now).expect("established");
        }
        _ => {}
    }
}

pub(super) fn name(event: &CmEvent) -> &'static str {
    match event {
        CmEvent::ConnectRequest { .. } => "request",
        CmEvent::Connected { .. } => "connected",
        CmEvent::Established { .. } => "established",
        CmEvent::Rejected { .. } => "rejected",
        CmEvent::Disconnected { .. } => "disconnected",
        CmEvent::TimedOut { .. } => "timed out",
        CmEvent::Unreachable { .. } => "unreachable",
        CmEvent::TimeWaitExit { .. } => "exit",
        CmEvent::ServiceRequest { .. } => "service request",
        CmEvent::ServiceReply { .. } => "service reply",
    }
}

pub(super) fn message_name(message: &Message) -> &'static str {
    match message {
        Message::Req(_) => "REQ",
        Message::Mra(_) => "MRA",
        Message::Rej(_) => "REJ",
        Message::Rep(_) => "REP",
        Message::Rtu(_) => "RTU",
        Message::Dreq(_) => "DREQ",
        Message::Drep(_) => "DREP",
        Message::SidrReq(_) => "SIDR_REQ",
        Message::SidrRep(_) => "SIDR_REP",
    }
}

/// Returns the reason and the text of a rejection.
pub(super) fn rejection(event: &CmEvent) -> (RejectReason, &str) {
    let CmEvent::Rejected { reason, private_data, .. } = event else { panic!("{event:?}") };
    (*reason, text(private_data))
}

/// Returns private data without the zeros after it.
pub(super) fn text(private_data: &[u8]) -> &str {
    let end = private_data.iter().position(|octet| *octet == 0).unwrap_or(private_data.len());
    std::str::from_utf8(&private_data[..end]).expect("text")
}
