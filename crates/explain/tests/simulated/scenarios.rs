//! Connections with known causes, drawn from a seed.
//!
//! Healthy connections include look-alikes: two writes without Nagle's algorithm, a single loss, reordering,
//! short transfers, exchanges that wait only for the round trip.

use crate::made::Draw;
use crate::programs::{Job, Reading};
use crate::world::{At, Scenario};
use kiban_base::{Instant, SimRng};
use kiban_explain::Cause;
use kiban_sim::{CableConfig, ImpairmentConfig, Middlebox};
use kiban_tcpip::tcp::{Config, LossDetection, Nagle, Offer};
use kiban_tcpip::wire::{ip, tcp};
use std::time::Duration;

const MS: fn(u64) -> Duration = Duration::from_millis;
const MBIT: u64 = 1_000_000;

/// Returns bandwidth times round trip, bytes.
fn product(bits_per_second: u64, one_way: Duration) -> u64 {
    (bits_per_second as f64 / 8.0 * one_way.as_secs_f64() * 2.0) as u64
}

/// Returns a scenario without any trouble: a bulk transfer over a path with `one_way` delay, whose window is
/// a little larger than the path.
fn plain(draw: &mut Draw, seed: u64, bits_per_second: u64, one_way: Duration) -> Scenario {
    let window = (product(bits_per_second, one_way) * 5 / 4).max(32 << 10);
    let tcp = Config {
        send_buffer_bytes: (2 * window + (64 << 10)) as u32,
        receive_buffer_bytes: window as u32,
        timestamps: !draw.one_in(4),
        pacing: draw.one_in(3),
        ..Config::default()
    };
    let cable = CableConfig::ip(bits_per_second, one_way);
    let seconds = (8 + draw.0.below(12)) as f64 * one_way.as_secs_f64() * 2.0 + 0.3;
    Scenario {
        seed,
        at: [At::Sender, At::Middle, At::Receiver][(seed / 2 % 3) as usize],
        sender_opens: draw.one_in(2),
        six: draw.one_in(4),
        sender: tcp.clone(),
        receiver: tcp,
        there: cable,
        back: cable,
        middleboxes: [None, None],
        job: Job::Bulk(((bits_per_second as f64 / 8.0 * seconds) as usize).clamp(100_000, 8_000_000)),
        reading: Reading::AtOnce,
        limit: Duration::from_secs(300),
    }
}

/// Returns a scenario with a cause.
pub(crate) fn scenario(cause: Option<Cause>, seed: u64) -> Scenario {
    let name = Cause::ALL.iter().position(|one| Some(*one) == cause).map_or(0, |at| at as u64 + 1);
    let mut rng = Draw(SimRng::from_seed(seed * 64 + name));
    let draw = &mut rng;
    let rate = draw.number(5 * MBIT, 100 * MBIT);
    let one_way = Duration::from_micros(draw.number(2_000, 40_000));
    let mut s = plain(draw, seed, rate, one_way);
    match cause {
        None => healthy(draw, &mut s, one_way),
        Some(Cause::ThinkTime) => {
            let message = draw.number(50, 5000) as usize;
            let (answer, pause) = (draw.number(1, 1400) as usize, one_way * 2 + MS(draw.number(30, 1500)));
            s.sender_opens = true;
            s.job =
                Job::Exchange { count: 1 + draw.0.below(20) as usize, writes: vec![message], no_delay: true };
            s.reading = Reading::Thinking { message, answer, pause };
            (s.sender.send_buffer_bytes, s.receiver.receive_buffer_bytes) = (64 << 10, 64 << 10);
        }
        Some(
            cause @ (Cause::PathMtu
            | Cause::PathFull
            | Cause::Refused
            | Cause::NoHandshake
            | Cause::NoResponse),
        ) => unreachable!("{cause:?} has captures of the kernel"),
        Some(Cause::Roce(_)) => unreachable!("see tests/roce"),
        Some(Cause::NagleDelayedAck) => nagle(draw, &mut s),
        Some(Cause::ReceiverLimited) => {
            let window = product(rate, one_way) / (3 + draw.0.below(6));
            s.receiver.receive_buffer_bytes = window.max(4500) as u32;
            if window < 4500 {
                s.there.bits_per_second = 100 * MBIT;
            }
            s.job = Job::Bulk((s.receiver.receive_buffer_bytes as usize) * (20 + draw.0.below(40) as usize));
        }
        Some(Cause::SenderLimited) => {
            let bytes = draw.number(2_000, 100_000) as usize;
            let wire = Duration::from_secs_f64(bytes as f64 * 8.0 / rate as f64);
            let pause = one_way * 4 + wire * 3 + MS(draw.number(10, 400));
            s.job = Job::Paused { count: 15 + draw.0.below(30) as usize, bytes, pause };
        }
        Some(Cause::Congestion) => {
            // A path that a few segments fill is full in spite of its losses.
            let rate = draw.number(20 * MBIT, 100 * MBIT);
            let one_way = Duration::from_micros(draw.number(12_000, 40_000));
            let opens = s.sender_opens;
            s = plain(draw, seed, rate, one_way);
            s.sender_opens = opens;
            if draw.one_in(2) {
                s.there.impairment =
                    ImpairmentConfig { loss: 0.003 + draw.0.unit() * 0.02, ..ImpairmentConfig::NONE };
            } else {
                s.there.packets_max = (product(rate, one_way) / 1500 / 6).clamp(4, 60) as usize;
                s.receiver.receive_buffer_bytes *= 2;
                s.sender.send_buffer_bytes *= 2;
            }
            let bytes = (rate as f64 / 8.0 * (one_way.as_secs_f64() * 60.0 + 1.0)) as usize;
            s.job = Job::Bulk(bytes.clamp(1_000_000, 10_000_000));
        }
        Some(Cause::RetransmissionTimeout) => timeouts(draw, &mut s, one_way),
        // It reads little by little.
        Some(Cause::SlowReader) if draw.one_in(2) => {
            let buffer = draw.number(64 << 10, 256 << 10);
            s.receiver.receive_buffer_bytes = buffer as u32;
            let bytes = draw.number(1500, 3000) as usize;
            // A tenth to a third of what the window and the path allow.
            let fastest = (rate as f64 / 8.0).min(buffer as f64 / one_way.as_secs_f64() / 2.0);
            let pause = Duration::from_secs_f64(bytes as f64 / fastest * (3.0 + draw.0.unit() * 7.0));
            s.reading = Reading::Slowly { bytes, pause };
            s.job = Job::Bulk(buffer as usize * (4 + draw.0.below(6) as usize));
        }
        // It reads large pieces, seldom.
        Some(Cause::SlowReader) => {
            let buffer = draw.number(16 << 10, 128 << 10);
            s.receiver.receive_buffer_bytes = buffer as u32;
            s.receiver.window_advertisement = if draw.one_in(2) { Offer::Steps } else { Offer::Room };
            let bytes = (buffer / (1 + draw.0.below(3))).min(60_000) as usize;
            let wire = Duration::from_secs_f64(buffer as f64 * 8.0 / rate as f64);
            let pause = one_way * 4 + wire + MS(draw.number(50, 800));
            s.reading = Reading::Slowly { bytes, pause };
            s.job = Job::Bulk(buffer as usize * 2 + bytes * (8 + draw.0.below(12) as usize));
        }
        Some(Cause::SmallMss) => {
            let mss = draw.number(88, 900) as u16;
            (s.sender.mss, s.sender.segment_bytes_max) = if draw.one_in(2) {
                (mss, u32::from(mss))
            } else {
                s.receiver.mss = mss;
                (1460, 1460)
            };
            s.job = match s.job {
                Job::Bulk(bytes) => Job::Bulk(bytes.min(usize::from(mss) * 3000)),
                other => other,
            };
        }
        Some(Cause::SillyWindow) => {
            let buffer = draw.number(300, 1200);
            s.receiver.receive_buffer_bytes = buffer as u32;
            s.receiver.window_advertisement = Offer::Room;
            s.receiver.update_percent = 5 + draw.0.below(15) as u32;
            s.receiver.memory_shares = false;
            s.sender.silly_window_percent = 1;
            s.sender.nagle = Nagle::Off;
            let bytes = (buffer / (3 + draw.0.below(5))).max(40) as usize;
            s.reading = Reading::Slowly { bytes, pause: MS(draw.number(1, 30)) };
            s.job = Job::Bulk(bytes * (60 + draw.0.below(200) as usize));
        }
        Some(Cause::LostWindowScaling) => {
            let rate = draw.number(40 * MBIT, 200 * MBIT);
            let one_way = Duration::from_micros(draw.number(15_000, 60_000));
            let opens = s.sender_opens;
            s = plain(draw, seed, rate, one_way);
            s.sender_opens = opens;
            let window = (product(rate, one_way) * 2).max(256 << 10) as u32;
            (s.receiver.receive_buffer_bytes, s.sender.send_buffer_bytes) = (window, window * 2);
            match draw.0.below(3) {
                0 => s.receiver.window_scaling = false,
                1 => s.sender.window_scaling = false,
                _ => {
                    // A firewall removes the option from the SYN-ACK: the server scales, and the client does
                    // not know it.
                    s.sender_opens = true;
                    s.middleboxes[1] = Some(Box::new(|_, packet| {
                        remove_window_scale(packet);
                        true
                    }));
                }
            }
            s.job = Job::Bulk(65_535 * (15 + draw.0.below(25) as usize));
            s.limit = Duration::from_secs(40);
        }
        Some(Cause::Policing) => s = policed(draw, seed).0,
        Some(Cause::Bufferbloat) => {
            let rate = draw.number(MBIT, 12 * MBIT);
            s = plain(draw, seed, rate, one_way);
            let queue = rate as f64 / 8.0 * (0.25 + one_way.as_secs_f64() * 6.0 + draw.0.unit() * 0.6);
            // The window fills the queue, or it makes it overflow.
            let window = if draw.one_in(4) {
                s.there.packets_max = 5000;
                queue
            } else {
                s.there.packets_max = queue as usize / 1500;
                4.0 * queue
            };
            s.receiver.receive_buffer_bytes = window as u32;
            s.sender.send_buffer_bytes = 2 * window as u32;
            s.job = Job::Bulk(queue as usize * (16 + draw.0.below(16) as usize));
        }
    }
    s
}

/// Returns a bulk transfer over a link whose queue is as deep as the path or half as deep: whatever is lost
/// there, the link is always busy.
pub(crate) fn full(seed: u64) -> Scenario {
    let mut draw = Draw(SimRng::from_seed(seed * 64 + 63));
    let (rate, one_way) =
        (draw.number(5 * MBIT, 40 * MBIT), Duration::from_micros(draw.number(5_000, 20_000)));
    let mut s = plain(&mut draw, seed, rate, one_way);
    let product = product(rate, one_way);
    s.there.packets_max = (product / 1500 / (1 + seed / 6)).max(10) as usize;
    (s.sender.send_buffer_bytes, s.receiver.receive_buffer_bytes) = (8 * product as u32, 4 * product as u32);
    s.job = Job::Bulk(rate as usize / 8 * 4);
    s
}

/// Returns a bulk transfer through a policer, and the policer's rate.
pub(crate) fn policed(draw: &mut Draw, seed: u64) -> (Scenario, u64) {
    let one_way = Duration::from_micros(draw.number(4_000, 40_000));
    let mut s = plain(draw, seed, 100 * MBIT, one_way);
    let rate = draw.number(2 * MBIT, 25 * MBIT);
    let burst = draw.number(20_000, 200_000);
    s.middleboxes[0] = Some(policer(rate, burst));
    s.job = Job::Bulk((rate as f64 / 8.0 * (3.0 + draw.0.unit() * 4.0)) as usize);
    (s, rate)
}

/// Returns a bulk transfer through a queue of a few packets, which loses what bursts exceed.
pub(crate) fn short_queue(seed: u64) -> Scenario {
    let draw = &mut Draw(SimRng::from_seed(seed));
    let (rate, one_way) =
        (draw.number(4 * MBIT, 20 * MBIT), Duration::from_micros(draw.number(2000, 20_000)));
    let mut s = plain(draw, seed, rate, one_way);
    s.there.packets_max = draw.number(4, 12) as usize;
    s.sender.send_buffer_bytes *= 4;
    s.receiver.receive_buffer_bytes *= 4;
    s.job = Job::Bulk((rate / 8 * 3) as usize);
    s
}

/// Returns a sender that pauses, over a path that loses one packet in ten.
pub(crate) fn pauses_and_losses(seed: u64) -> Scenario {
    let mut s = plain(&mut Draw(SimRng::from_seed(seed)), seed, 20 * MBIT, MS(5));
    s.there.impairment = ImpairmentConfig { loss: 0.1, ..ImpairmentConfig::NONE };
    s.job = Job::Paused { count: 30, bytes: 40_000, pause: MS(1000) };
    s
}

fn healthy(draw: &mut Draw, s: &mut Scenario, one_way: Duration) {
    match draw.0.below(8) {
        0 => s.job = Job::Bulk(draw.number(3_000, 200_000) as usize),
        1 => {
            let message = draw.number(50, 20_000) as usize;
            s.job = Job::Exchange { count: 30, writes: vec![message], no_delay: draw.one_in(2) };
            s.reading = Reading::Answering { message, answer: draw.number(1, 1400) as usize };
            s.sender.send_buffer_bytes = 64 << 10;
            s.receiver.receive_buffer_bytes = 64 << 10;
        }
        2 => {
            let writes = vec![draw.number(10, 200) as usize, draw.number(50, 1200) as usize];
            s.reading = Reading::Answering { message: writes.iter().sum(), answer: 100 };
            s.job = Job::Exchange { count: 30, writes, no_delay: true };
        }
        3 => {
            let mut met = 0;
            let victim = 100 + draw.0.below(100);
            s.middleboxes[0] = Some(Box::new(move |_, packet| {
                met += u64::from(packet.len() > 1000);
                met != victim || packet.len() <= 1000
            }));
            s.job = Job::Bulk(1_500_000);
        }
        4 => {
            let hold_back = Duration::from_micros(200).min(one_way / 8);
            s.there.impairment = ImpairmentConfig { reorder: 0.01, hold_back, ..ImpairmentConfig::NONE };
        }
        5 => {
            // A local network.
            let micros = draw.number(20, 400);
            let cable = CableConfig::ip(1000 * MBIT, Duration::from_micros(micros));
            (s.there, s.back) = (cable, cable);
            for tcp in [&mut s.sender, &mut s.receiver] {
                (tcp.send_buffer_bytes, tcp.receive_buffer_bytes) = (512 << 10, 512 << 10);
            }
            s.job = Job::Bulk(4_000_000);
        }
        _ => {}
    }
}

fn nagle(draw: &mut Draw, s: &mut Scenario) {
    let one_way = Duration::from_micros(draw.number(50, 20_000));
    (s.there.delay, s.back.delay) = (one_way, one_way);
    s.receiver.delayed_ack = MS([40, 40, 100, 200][draw.0.below(4) as usize]);
    s.sender.nagle = if draw.one_in(2) { Nagle::Classic } else { Nagle::Minshall };
    let writes = match draw.0.below(3) {
        // A header and a body.
        0 => vec![draw.number(10, 200) as usize, draw.number(50, 1300) as usize],
        // Three small writes.
        1 => vec![20, draw.number(20, 400) as usize, draw.number(20, 400) as usize],
        // A length, then more than a segment.
        _ => vec![4, draw.number(100, 1200) as usize],
    };
    s.reading = Reading::Answering { message: writes.iter().sum(), answer: draw.number(1, 500) as usize };
    s.job = Job::Exchange { count: 20 + draw.0.below(40) as usize, writes, no_delay: false };
}

fn timeouts(draw: &mut Draw, s: &mut Scenario, one_way: Duration) {
    if draw.one_in(2) {
        // The path fails again and again, longer than probes can bridge.
        let period = MS(700 + draw.0.below(800)) + one_way * 8;
        let outage = MS(250) + one_way * 6;
        let mut begin = Instant::ZERO + period / 2;
        s.middleboxes[0] = Some(Box::new(move |now, _| {
            if now >= begin + outage {
                begin = now + period;
            }
            now < begin
        }));
        s.job = Job::Bulk((s.there.bits_per_second as usize / 8 * 3).min(8_000_000));
        if draw.one_in(3) {
            (s.sender.sack, s.sender.loss_detection) = (false, LossDetection::NewReno);
        }
    } else {
        // Exchanges lose single segments, which no acknowledgements report.
        let message = draw.number(50, 1300) as usize;
        s.there.impairment = ImpairmentConfig { loss: 0.06 + 0.1 * draw.0.unit(), ..ImpairmentConfig::NONE };
        s.job =
            Job::Exchange { count: 60 + draw.0.below(60) as usize, writes: vec![message], no_delay: true };
        s.reading = Reading::Answering { message, answer: draw.number(1, 1000) as usize };
        let one_way = one_way.min(MS(12));
        (s.there.delay, s.back.delay) = (one_way, one_way);
    }
}

/// Returns a token bucket that drops packets above its rate.
fn policer(bits_per_second: u64, burst_bytes: u64) -> Middlebox {
    let (mut tokens, mut at) = (burst_bytes as f64, Instant::ZERO);
    Box::new(move |now, packet| {
        tokens += now.since(at).as_secs_f64() * bits_per_second as f64 / 8.0;
        tokens = tokens.min(burst_bytes as f64);
        at = now;
        let passes = tokens >= packet.len() as f64;
        if passes {
            tokens -= packet.len() as f64;
        }
        passes
    })
}

/// Replaces the window scale option of a SYN by padding.
fn remove_window_scale(packet: &mut [u8]) {
    let Ok(front) = ip::Front::read(packet) else { return };
    let segment = &mut packet[front.header_bytes..];
    if front.protocol != 6 || !tcp::flags(segment).has(tcp::Flags::SYN) {
        return;
    }
    let header_bytes = tcp::header_bytes(segment);
    let place = segment[20..header_bytes].windows(2).position(|option| option == [3, 3]);
    if let Some(place) = place {
        segment[20 + place..][..3].fill(1);
        tcp::fill(&mut segment[..header_bytes], front.pseudo(header_bytes));
    }
}
