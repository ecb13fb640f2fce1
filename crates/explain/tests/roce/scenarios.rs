//! Connections with known causes, drawn from a seed.
//!
//! Healthy connections include look-alikes: a single loss, a few marks, a few RNR NAKs, reordering that
//! selective retransmission tolerates, exchanges of messages, large messages one at a time.

use crate::made::Draw;
use crate::programs::{Job, Verb};
use crate::world::{At, Scenario, opcode};
use kiban_base::{Instant, SimRng};
use kiban_explain::roce::Cause;
use kiban_rdma::nic;
use kiban_rdma::wire::roce::{Opcode, Operation};
use kiban_sim::{CableConfig, ImpairmentConfig, Middlebox};
use kiban_tcpip::wire::ipv4;
use std::collections::BTreeSet;
use std::time::Duration;

const US: fn(u64) -> Duration = Duration::from_micros;
const GBIT: u64 = 1_000_000_000;

impl Draw {
    fn verb(&mut self, verbs: &[Verb]) -> Verb {
        verbs[self.0.below(verbs.len() as u64) as usize]
    }

    /// Returns a bulk transfer.
    fn bulk(&mut self, verbs: &[Verb]) -> Job {
        let bytes = self.number(16 << 10, 256 << 10) as usize;
        let count = (self.number(600_000, 2_000_000) as usize / bytes).max(6);
        Job::new(self.verb(verbs), bytes, count, 4 + self.0.below(12) as usize)
    }
}

/// Returns a scenario without any trouble: a bulk transfer.
fn plain(draw: &mut Draw, seed: u64) -> Scenario {
    let rate = [10, 25, 40, 100][draw.0.below(4) as usize] * GBIT;
    let one_way = US(draw.number(1, 40));
    let cable = CableConfig { holds: true, packets_max: 4, ..CableConfig::ethernet(rate, one_way) };
    let is_hardware = !draw.one_in(3);
    Scenario {
        seed,
        at: [At::Requester, At::Middle, At::Responder][(seed / 2 % 3) as usize],
        opens: draw.one_in(2),
        six: !is_hardware && draw.one_in(2),
        is_hardware,
        nic: nic::RoceConfig {
            path_mtu: [1024, 1024, 2048, 4096][draw.0.below(4) as usize],
            window_bytes: draw.number(128 << 10, 512 << 10) as usize,
            ..nic::RoceConfig::default()
        },
        there: cable,
        back: cable,
        middleboxes: [None, None],
        stalls_at_responder: false,
        job: draw.bulk(&[Verb::Write, Verb::Send, Verb::Read]),
        has_management: draw.one_in(2),
        snap_bytes: if draw.one_in(2) { 128 } else { usize::MAX },
    }
}

/// Returns whether a packet with data is not the last of its message, so that another one shows its loss.
fn is_followed(packet: &[u8]) -> bool {
    matches!(opcode(packet), Some(Opcode::Transport(_, operation))
        if operation.carries_payload() && !operation.is_last())
}

/// Returns whether a packet with this PSN is met for the first time: what is sent again arrives.
fn is_new(met: &mut BTreeSet<[u8; 3]>, packet: &[u8]) -> bool {
    let bth = if packet[0] >> 4 == 6 { 48 } else { 28 };
    packet.get(bth + 9..bth + 12).is_some_and(|psn| met.insert([psn[0], psn[1], psn[2]]))
}

/// Returns a middlebox that loses packets that are followed by others.
fn loses(mut rng: SimRng, probability: f64) -> Middlebox {
    let mut met = BTreeSet::new();
    Box::new(move |_, packet| !(is_followed(packet) && is_new(&mut met, packet) && rng.happens(probability)))
}

/// Returns a middlebox that marks packets of RC with data (congestion experienced) with a probability.
fn marks(mut rng: SimRng, probability: f64) -> Middlebox {
    Box::new(move |_, packet| {
        let has_data = matches!(opcode(packet), Some(Opcode::Transport(_, operation))
            if operation.carries_payload());
        if has_data && packet.len() > 500 && rng.happens(probability) {
            if packet[0] >> 4 == 6 {
                packet[1] |= 0x30;
            } else {
                packet[1] |= 3;
                ipv4::fill(&mut packet[..20]);
            }
        }
        true
    })
}

/// Returns the side whose packets carry the data.
fn data_side(job: &Job) -> usize {
    usize::from(job.verb == Verb::Read)
}

/// Returns a scenario with a cause.
pub(crate) fn scenario(cause: Option<Cause>, seed: u64) -> Scenario {
    let name = Cause::ALL.iter().position(|one| Some(*one) == cause).map_or(0, |at| at as u64 + 1);
    let mut rng = Draw(SimRng::from_seed(seed * 64 + name));
    let draw = &mut rng;
    let mut s = plain(draw, seed);
    let trip = s.there.delay * 2;
    match cause {
        None => healthy(draw, &mut s),
        Some(Cause::RemoteError) => {
            if draw.one_in(2) {
                s.job =
                    Job::new(Verb::Write, draw.number(8, 20_000) as usize, 40, 1 + draw.0.below(8) as usize);
            }
            s.job.verb = draw.verb(&[Verb::Write, Verb::Read, Verb::Add]);
            s.job.wrong = Some(draw.0.below(s.job.count as u64 / 2) as usize);
        }
        Some(Cause::PacketLoss) => {
            s.is_hardware = true;
            s.six = false;
            let rng = draw.0.fork(1);
            let probability = 0.015 + draw.0.unit() * 0.03;
            s.job.count = (s.job.count * 2).max(1_500_000 / s.job.bytes);
            s.middleboxes[data_side(&s.job)] = Some(loses(rng, probability));
        }
        Some(Cause::AckTimeout) => timeouts(draw, &mut s, trip),
        Some(Cause::Rnr) => {
            let bytes = draw.number(64, 32 << 10) as usize;
            let wire = Duration::from_secs_f64(bytes as f64 * 8.0 / s.there.bits_per_second as f64);
            s.job = Job::new(Verb::Send, bytes, 60 + draw.0.below(100) as usize, 8);
            s.job.receives = 1 + draw.0.below(4) as usize;
            s.job.repost = trip + wire * 4 + US(draw.number(20, 200));
            s.nic.rnr_timer = 5 + draw.0.below(12) as u8;
        }
        Some(Cause::CongestionMarks) => {
            let rng = draw.0.fork(1);
            let probability = draw.number(50, 500) as f64 * 1e-3;
            let rate = [40, 100][draw.0.below(2) as usize] * GBIT;
            (s.there.bits_per_second, s.back.bits_per_second) = (rate, rate);
            s.job.count *= 2;
            s.middleboxes[data_side(&s.job)] = Some(marks(rng, probability));
        }
        Some(Cause::SlowResponder) => {
            let bytes = draw.number(8, 64 << 10) as usize;
            s.job = Job::new(
                draw.verb(&[Verb::Write, Verb::Send, Verb::Read, Verb::Add]),
                bytes,
                60 + draw.0.below(100) as usize,
                1 + draw.0.below(8) as usize,
            );
            s.stalls_at_responder = true;
            s.back.holds = false;
            s.back.packets_max = 1000;
            s.back.impairment = ImpairmentConfig {
                stalls: 0.05 + draw.0.unit() * 0.15,
                stall: trip * 40 + US(draw.number(200, 2000)),
                ..ImpairmentConfig::NONE
            };
        }
        Some(Cause::RequesterLimited) => {
            let bytes = draw.number(64, 64 << 10) as usize;
            let wire = Duration::from_secs_f64(bytes as f64 * 8.0 / s.there.bits_per_second as f64);
            let depth = 1 + draw.0.below(4) as usize;
            let verb = draw.verb(&[Verb::Write, Verb::Send, Verb::Read, Verb::Add]);
            s.job = Job::new(verb, bytes, 40 + draw.0.below(60) as usize, depth);
            let pause = trip * 4 + wire * 4 * depth as u32 + US(draw.number(50, 2000));
            s.job.pause = Some((depth, pause));
        }
        Some(Cause::OneAtATime) => {
            let share = s.there.bits_per_second as f64 / 8.0 * trip.as_secs_f64() / 3.0;
            let bytes = draw.number(8, (share as u64).clamp(64, 64 << 10)) as usize;
            let verb = draw.verb(&[Verb::Write, Verb::Send, Verb::Read, Verb::Add]);
            s.job = Job::new(verb, bytes, 30 + draw.0.below(200) as usize, 1);
        }
        Some(Cause::SmallPathMtu) => {
            s.nic.path_mtu = if draw.one_in(2) { 256 } else { 512 };
            s.job.count = s.job.count.min(500_000 / s.job.bytes).max(4);
        }
        Some(Cause::Reordering) => {
            s.is_hardware = true;
            s.six = false;
            s.job.verb = draw.verb(&[Verb::Write, Verb::Send]);
            let packet =
                Duration::from_secs_f64(s.nic.path_mtu as f64 * 8.0 / s.there.bits_per_second as f64);
            s.there.impairment = ImpairmentConfig {
                reorder: 0.01 + draw.0.unit() * 0.04,
                hold_back: packet * (3 + draw.0.below(10) as u32),
                ..ImpairmentConfig::NONE
            };
        }
        Some(Cause::IcrcError) => {
            // Only behind the damage is it seen, and only in whole packets.
            s.at = if draw.one_in(2) { At::Middle } else { At::Responder };
            s.snap_bytes = usize::MAX;
            s.is_hardware = true;
            s.six = false;
            s.job.verb = draw.verb(&[Verb::Write, Verb::Send]);
            let (mut rng, probability) = (draw.0.fork(1), 0.01 + draw.0.unit() * 0.03);
            let mut met = BTreeSet::new();
            s.job.count = (s.job.count * 2).max(1_500_000 / s.job.bytes);
            s.middleboxes[0] = Some(Box::new(move |_, packet| {
                if is_followed(packet) && is_new(&mut met, packet) && rng.happens(probability) {
                    let at = 60 + rng.below(packet.len() as u64 - 60) as usize;
                    packet[at] ^= 1 << rng.below(8);
                }
                true
            }));
        }
    }
    s
}

fn healthy(draw: &mut Draw, s: &mut Scenario) {
    match draw.0.below(10) {
        // Short transfers.
        0 => s.job = Job::new(draw.verb(&[Verb::Write, Verb::Read]), draw.number(8, 100_000) as usize, 4, 2),
        // Requests and answers.
        1 => {
            s.job = Job::new(Verb::Send, draw.number(8, 8000) as usize, 60, 1);
            s.job.answer = Some(draw.number(8, 8000) as usize);
        }
        // A single loss.
        2 => {
            let (mut met, victim) = (0, 100 + draw.0.below(100));
            s.job = Job::new(Verb::Write, 128 << 10, 20, 8);
            s.middleboxes[0] = Some(Box::new(move |_, packet| {
                met += u64::from(is_followed(packet));
                met != victim || !is_followed(packet)
            }));
        }
        // A few marks.
        3 => s.middleboxes[data_side(&s.job)] = Some(marks(draw.0.fork(1), 0.0005)),
        // Reordering that selective retransmission tolerates.
        4 => {
            s.is_hardware = false;
            s.job.verb = Verb::Write;
            s.there.impairment =
                ImpairmentConfig { reorder: 0.005, hold_back: US(2), ..ImpairmentConfig::NONE };
        }
        // Large messages, one at a time.
        5 => {
            let wire = s.there.bits_per_second as f64 / 8.0 * (s.there.delay * 2).as_secs_f64();
            let bytes = (wire * 20.0) as usize;
            s.job = Job::new(Verb::Write, bytes.clamp(100_000, 1_000_000), 6, 1);
            let least =
                US(1).max(Duration::from_secs_f64(100_000.0 * 8.0 / s.there.bits_per_second as f64) / 40);
            (s.there.delay, s.back.delay) = (least, least);
        }
        // A few RNR NAKs at the beginning.
        6 => {
            s.job = Job::new(Verb::Send, 64 << 10, 30, 8);
            s.job.receives = 8;
            s.nic.rnr_timer = 1;
        }
        // Small messages, many at a time.
        7 => s.job = Job::new(draw.verb(&[Verb::Write, Verb::Send]), draw.number(8, 2000) as usize, 400, 16),
        _ => {}
    }
}

fn timeouts(draw: &mut Draw, s: &mut Scenario, trip: Duration) {
    // 2 to 67 ms.
    s.nic.ack_timeout = 9 + draw.0.below(6) as u8;
    if draw.one_in(2) {
        // The path fails after so many packets, again and again.
        let every = draw.number(20, 100);
        let outage = trip * 4 + US(400);
        let (mut met, mut end) = (0, Instant::ZERO);
        let side = data_side(&s.job);
        s.middleboxes[side] = Some(Box::new(move |now, packet| {
            met += u64::from(is_followed(packet));
            if met == every {
                (met, end) = (0, now + outage);
            }
            now >= end || opcode(packet).is_none_or(|opcode| opcode.octet() >> 5 == 3)
        }));
    } else {
        // Single messages, or their acknowledgements, are lost.
        let verb = draw.verb(&[Verb::Write, Verb::Send, Verb::Read]);
        s.job = Job::new(verb, draw.number(8, 1000) as usize, 60 + draw.0.below(60) as usize, 1);
        // What is lost before the place of the capture was not sent again there, but shows only a silence.
        let side = if s.at == At::Requester { draw.0.below(2) as usize } else { 1 };
        let (mut rng, probability) = (draw.0.fork(1), 0.05 + draw.0.unit() * 0.1);
        s.middleboxes[side] = Some(Box::new(move |_, packet| {
            let is_rc = matches!(opcode(packet), Some(Opcode::Transport(_, operation))
                if operation != Operation::SendMiddle && packet.len() < 1200)
                && opcode(packet).is_some_and(|opcode| opcode.octet() >> 5 == 0);
            !(is_rc && rng.happens(probability))
        }));
    }
}
