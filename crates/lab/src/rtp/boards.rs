//! RTP between two simulated boards, over a cable with known impairments.
//!
//! Purpose   a receiver's figures can be compared with what the cable did: which packets it lost, and how
//!           long it held each one back.
//! Path      the sender's UDP and IP, a cable, the receiver's IP and UDP: the boards that `kiban up` runs.
//! Jitter    the cable holds each packet back for a time that is uniform between zero and `hold_back`. The
//!           difference of two such times is a third of `hold_back` on average, to which the jitter of RFC
//!           3550 converges as long as packets do not overtake each other.
//! Clock     all boards have the world's time, so the one-way delay is known.

use super::measured::{Received, Sent, Transits};
use super::stream::{Sender, Stream};
use crate::stats::{quantile, sorted};
use kiban_base::{Instant, SimRng};
use kiban_board::{BoardConfig, Completion, Host, IpPortConfig, PortConfig, Program, SocketId};
use kiban_sim::{Attachment, CableConfig, ImpairmentConfig, Tap, World};
use kiban_tcpip::ip::Prefix;
use kiban_tcpip::rtp::{Config, Session};
use serde::Serialize;
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

/// The port for RTP; RTCP uses the next one.
const PORT: u16 = 5004;
/// The longest datagram of these streams, bytes.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;

/// What to simulate.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The streams, which are alike.
    pub stream: Stream,
    /// The number of streams.
    pub streams: usize,
    /// Packets of each stream.
    pub packets: u64,
    /// The cable's propagation delay.
    pub delay: Duration,
    /// The cable's impairments.
    pub impairment: ImpairmentConfig,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// The figures of the receiver, and those that the receiving program computes from the same packets in
/// another way.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Simulated {
    /// The receiver's report.
    pub received: Received,
    /// The sender's report.
    pub sent: Sent,
    /// Datagrams that the cable lost in the streams' direction, RTCP included.
    pub cable_lost: u64,
    /// Datagrams that it duplicated.
    pub cable_duplicated: u64,
    /// By SSRC: the mean difference of consecutive transit times, ms, of the packets that arrived.
    pub mean_difference_ms: BTreeMap<u32, f64>,
    /// The median transit time of all packets, ms.
    pub transit_p50_ms: f64,
}

impl fmt::Display for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.received)?;
        writeln!(f, "{}", self.sent)?;
        writeln!(
            f,
            "The cable lost {} datagrams and duplicated {}, RTCP included.",
            self.cable_lost, self.cable_duplicated
        )?;
        for (ssrc, mean) in &self.mean_difference_ms {
            writeln!(f, "{ssrc:08x}: consecutive transit times differ by {mean:.3} ms on average")?;
        }
        Ok(())
    }
}

fn address(side: usize) -> IpAddr {
    [10, 0, 0, 1 + side as u8].into()
}

/// Sends the streams, and receives reports.
struct Sending {
    senders: Vec<(u32, Sender)>,
    sockets: Option<[SocketId; 2]>,
    rng: SimRng,
    end: Instant,
    is_done: bool,
}

impl Program for Sending {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        let bind = |host: &mut Host<'_>, port| host.bind(SocketAddr::new(address(0), port)).expect("free");
        self.sockets = Some([bind(host, PORT), bind(host, PORT + 1)]);
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        let Completion::Datagram { socket } = completion else { return };
        let mut room = vec![0; DATAGRAM_BYTES_MAX];
        while let Ok(Some((_, count))) = host.receive_from(socket, &mut room) {
            for (_, sender) in &mut self.senders {
                let _ = sender.session.on_rtcp(&room[..count], now);
            }
        }
    }

    fn deadline(&self) -> Instant {
        if self.is_done {
            return Instant::NEVER;
        }
        let due = |(_, sender): &(u32, Sender)| {
            sender.due().map_or(self.end, |due| due.min(sender.session.deadline()))
        };
        self.senders.iter().map(due).min().unwrap_or(self.end)
    }

    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        let Some([data, control]) = self.sockets else { return };
        let to = |port| SocketAddr::new(address(1), port);
        let rng = &mut self.rng;
        let is_over = now >= self.end;
        for (_, sender) in &mut self.senders {
            while sender.due().is_some_and(|due| due <= now) {
                let Some(packet) = sender.packet(now) else { break };
                host.send_to(data, to(PORT), &packet).expect("the board has memory");
            }
            let report = sender.session.poll(|| rng.unit(), now);
            let goodbye = if is_over { sender.session.leave(rng.unit(), now) } else { None };
            for packet in report.into_iter().chain(goodbye) {
                host.send_to(control, to(PORT + 1), &packet).expect("the board has memory");
            }
        }
        self.is_done = is_over;
    }

    fn is_done(&self) -> bool {
        self.is_done
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Receives the streams, and sends reports.
struct Receiving {
    session: Session,
    transits: Transits,
    clock_hz: u32,
    control: Option<SocketId>,
    data: Option<SocketId>,
    rng: SimRng,
    end: Instant,
    /// The arrival and the transit time of each packet, ns, by SSRC. The timestamp says when a packet was
    /// due, which is when it was sent.
    seen: BTreeMap<u32, Vec<i64>>,
}

impl Program for Receiving {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        let bind = |host: &mut Host<'_>, port| host.bind(SocketAddr::new(address(1), port)).expect("free");
        (self.data, self.control) = (Some(bind(host, PORT)), Some(bind(host, PORT + 1)));
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        let Completion::Datagram { socket } = completion else { return };
        let mut room = vec![0; DATAGRAM_BYTES_MAX];
        while let Ok(Some((_, count))) = host.receive_from(socket, &mut room) {
            if Some(socket) == self.control {
                let _ = self.session.on_rtcp(&room[..count], now);
                continue;
            }
            let Ok(arrival) = self.session.on_rtp(&room[..count], now) else { continue };
            let (ssrc, timestamp, verdict) = (arrival.header.ssrc, arrival.header.timestamp, arrival.verdict);
            let sent = u64::from(timestamp) * 1_000_000_000 / u64::from(self.clock_hz);
            self.seen.entry(ssrc).or_default().push(now.as_nanos() as i64 - sent as i64);
            self.transits.on_packet(&self.session, ssrc, verdict, self.clock_hz);
        }
    }

    fn deadline(&self) -> Instant {
        self.session.deadline().min(self.end)
    }

    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        let rng = &mut self.rng;
        if now >= self.end {
            self.end = Instant::NEVER;
        }
        if let (Some(report), Some(control)) = (self.session.poll(|| rng.unit(), now), self.control) {
            let to = SocketAddr::new(address(0), PORT + 1);
            host.send_to(control, to, &report).expect("the board has memory");
        }
    }

    fn is_done(&self) -> bool {
        self.end == Instant::NEVER
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Runs the streams in virtual time; returns the figures, and a capture (pcap) of the packets that arrive at
/// the receiver. The same plan always gives the same results.
///
/// # Panics
/// If a packet is too long for UDP.
pub fn run(plan: &Plan) -> (Simulated, Vec<u8>) {
    let mut world = World::new(plan.seed);
    let boards = [0, 1].map(|side| {
        let port = PortConfig::Ip(IpPortConfig {
            address: address(side),
            prefix: Prefix::new(address(side), 24),
            mtu_bytes: 1500,
            packets_max: 256,
            cuts: false,
            merges: false,
            believe_sums: false,
        });
        world.add_board(&BoardConfig { ports: vec![port], ..BoardConfig::default() })
    });
    let clean = CableConfig::ip(1_000_000_000, plan.delay);
    let cable = CableConfig { impairment: plan.impairment, ..clean };
    let ends = boards.map(|board| Attachment::Board(board, 0));
    let (there, back) = world.connect_packets(ends[0], ends[1], &cable).expect("both carry packets");
    // Reports return unharmed, so that the sender's figures can be compared, too.
    world.cable(back).set_config(clean);
    let capture = Rc::new(RefCell::new(Vec::new()));
    let written = Rc::clone(&capture);
    let sink = Box::new(move |bytes: &[u8]| written.borrow_mut().extend_from_slice(bytes));
    world.cable(there).set_tap(Tap::new(0, sink));

    let mut rng = SimRng::from_seed(plan.seed ^ 0x7274_7020);
    let length = plan.stream.interval.mul_f64(plan.packets as f64);
    // The last packets and reports are still on their way.
    let end = Instant::ZERO + length + Duration::from_secs(1);
    let mut senders = Vec::new();
    for number in 0..plan.streams {
        let ssrc = rng.draw() as u32;
        let config = Config { ssrc, cname: format!("stream-{number}").into_bytes(), ..Config::default() };
        let session = Sender::session(&plan.stream, plan.streams, config, rng.draw(), Instant::ZERO);
        let offset = plan.stream.interval.mul_f64(number as f64 / plan.streams as f64);
        senders.push((ssrc, Sender::new(&plan.stream, session, Instant::ZERO + offset, plan.packets)));
    }
    let config = Config { ssrc: rng.draw() as u32, cname: b"receiver".to_vec(), ..Config::default() };
    let session = Sender::session(&plan.stream, plan.streams, config, rng.draw(), Instant::ZERO);
    let receiving = Receiving {
        session,
        transits: Transits::default(),
        clock_hz: plan.stream.clock_hz,
        control: None,
        data: None,
        rng: rng.fork(1),
        end: end + Duration::from_secs(1),
        seen: BTreeMap::new(),
    };
    let sending = Sending { senders, sockets: None, rng: rng.fork(2), end, is_done: false };
    world.run_program(boards[1], Box::new(receiving));
    world.run_program(boards[0], Box::new(sending));
    world.run(end + Duration::from_secs(10));

    let impairments = *world.cable(there).impairment_counters();
    let receiving = world.program::<Receiving>(boards[1]).expect("it was started");
    let sending = world.program::<Sending>(boards[0]).expect("it was started");
    let difference = |transits: &Vec<i64>| {
        let pairs = transits.windows(2).map(|pair| pair[0].abs_diff(pair[1]) as f64 * 1e-6);
        pairs.sum::<f64>() / (transits.len().max(2) - 1) as f64
    };
    let all: Vec<f64> = receiving.seen.values().flatten().map(|nanos| *nanos as f64 * 1e-6).collect();
    let simulated = Simulated {
        received: Received::of(&receiving.session, &receiving.transits, plan.stream.clock_hz, Some(0)),
        sent: Sent::of(&sending.senders, plan.stream.clock_hz),
        cable_lost: impairments.lost,
        cable_duplicated: impairments.duplicated,
        mean_difference_ms: receiving.seen.iter().map(|(ssrc, seen)| (*ssrc, difference(seen))).collect(),
        transit_p50_ms: quantile(&sorted(&all), 0.5).unwrap_or(0.0),
    };
    drop(world);
    (simulated, capture.take())
}
