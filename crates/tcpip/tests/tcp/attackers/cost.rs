//! Measures the cost of a segment from a hostile peer, as a function of how much state the peer has built up.
//!
//! If the cost per segment grew with the state that a peer builds up, the total would be quadratic in what it
//! sends. Each row does the same work with little and with much state.

use crate::common::ms;
use crate::common::peer::*;
use crate::common::station::{Frame, Sizes, Station};
use core::net::{IpAddr, Ipv4Addr};
use kiban_tcpip::tcp::{Config, LossDetection, SynCookies};
use kiban_tcpip::wire::tcp::{Header, Options, SackBlock};

/// Returns the time that each of `count` rounds of `work` takes, microseconds.
#[expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures, and decides nothing")]
fn each(count: u32, mut work: impl FnMut(u32)) -> f64 {
    let start = std::time::Instant::now();
    (0..count).for_each(&mut work);
    start.elapsed().as_secs_f64() * 1e6 / f64::from(count)
}

/// Returns a talk whose peer has a huge window and tiny segments, with `bytes` outstanding.
fn flight(detection: LossDetection, out: usize) -> (Peer, u32) {
    let config = Config {
        loss_detection: detection,
        send_buffer_bytes: 4 << 20,
        initial_window_segments: 1,
        memory_shares: false,
        ..Config::default()
    };
    let mut talk = Peer::listening(config.clone());
    talk.station = Station::new(
        1,
        config,
        Sizes { transmit_pages: 4096, receive_pages: 4096, blocks: 1 << 18, ..Sizes::default() },
        1,
    );
    talk.station.tcp.listen(talk.local()).unwrap();
    talk.room = usize::MAX;
    let options = Options { mss: Some(64), sack_permitted: true, window_shift: Some(14), ..Options::NONE };
    talk.hear(Header { options, ..seg(SYN, 0, 0, 60_000) }, b"");
    talk.hear(seg(ACK, 1, 1, 60_000), b"");
    talk.frames.clear();
    // Repeatedly acknowledging everything opens the congestion window.
    let mut sent = 1;
    loop {
        let room = talk.station.tcp.room(talk.id()).min(1 << 20);
        talk.write(&bytes(room));
        let info = talk.station.tcp.info(talk.id()).unwrap();
        talk.frames.clear();
        if info.outstanding_bytes as usize >= out {
            return (talk, sent);
        }
        sent += info.outstanding_bytes;
        talk.pass(ms(10));
        talk.frames.clear();
        talk.hear(seg(ACK, 1, sent, 60_000), b"");
        talk.frames.clear();
    }
}

/// Every second segment is SACKed, three at a time, beginning at the far or the near end of the flight.
fn holes(detection: LossDetection, segments: u32, from_far: bool) -> f64 {
    let (mut talk, una) = flight(detection, segments as usize * 64);
    let base = talk.initial + una;
    let acks = segments / 2 / 3;
    talk.room = 0;
    each(acks, |n| {
        let mut options = Options::NONE;
        for k in 0..3 {
            let at = if from_far { segments / 2 - 1 - (n * 3 + k) } else { n * 3 + k };
            let left = base + (at * 2 + 1) * 64;
            options.sack.push(SackBlock { left, right: left + 64 });
        }
        talk.arrive(Header { options, ..seg(ACK, 1, una, 60_000) }, b"");
        talk.frames.clear();
    })
}

/// The same SACK block for one far segment, repeated.
fn repeated(detection: LossDetection, segments: u32) -> f64 {
    let (mut talk, una) = flight(detection, segments as usize * 64);
    let base = talk.initial + una;
    talk.room = 0;
    each(2000, |n| {
        let mut options = Options::NONE;
        let left = base + ((n % 7) * 2 + 1) * 64;
        options.sack.push(SackBlock { left, right: left + 64 });
        talk.arrive(Header { options, ..seg(ACK, 1, una, 60_000) }, b"");
    })
}

/// Repeated short segments after a hole, each of which extends a run that is no longer in the list of recent
/// runs.
fn crumbs(pieces: u32) -> f64 {
    let mut talk = Peer::established(Config::default());
    for n in 0..pieces {
        talk.arrive(seg(ACK, 10 + n, 1, 60_000), b"x");
    }
    for n in 0..8 {
        talk.arrive(seg(ACK, 2000 + 2 * n, 1, 60_000), b"x");
    }
    each(20_000, |n| {
        let at = if n % 5 == 0 { 10 + n % pieces } else { 2000 + 2 * (n % 8) };
        talk.arrive(seg(ACK, at, 1, 60_000), b"x");
    })
}

/// Out-of-order segments arrive while memory is scarce and many sessions are open.
fn scarce(sessions: u32) -> f64 {
    let mut talk =
        Peer::listening(Config { syn_cookies: SynCookies::Off, backlog: 1 << 20, ..Config::default() });
    let server = talk.local();
    let mut first = None;
    for n in 0..sessions {
        let source = IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + n / 60_000));
        let port = (n % 60_000) as u16 + 1;
        let options = Options { mss: Some(1000), ..Options::NONE };
        let syn = Header { source_port: port, options, ..seg(SYN, n, 0, 1000) };
        talk.station.arrive(&Frame::of(source, server.ip(), &syn, b""), talk.now);
        talk.settle();
        let answer = talk.frames.pop().unwrap().header().0;
        talk.frames.clear();
        let ack =
            Header { source_port: port, acknowledgment: answer.sequence + 1, ..seg(ACK, n + 1, 0, 1000) };
        talk.station.arrive(&Frame::of(source, server.ip(), &ack, b""), talk.now);
        talk.settle();
        first.get_or_insert((source, ack));
    }
    let (source, ack) = first.unwrap();
    // Most pages are in use.
    let pages: Vec<_> = (0..1000).map(|_| talk.station.memory.receive.take().unwrap()).collect();
    let cost = each(2000, |n| {
        let header = Header { sequence: ack.sequence + 10 + n % 3, ..ack };
        talk.station.arrive(&Frame::of(source, server.ip(), &header, b"x"), talk.now);
    });
    drop(pages);
    cost
}

#[test]
#[ignore = "measures; run it alone, with --nocapture"]
fn the_cost_of_a_segment_does_not_grow_with_the_queue() {
    let row = |name: &str, small: (u32, f64), large: (u32, f64)| {
        println!("{name:44} {:6}: {:8.2} us   {:6}: {:8.2} us", small.0, small.1, large.0, large.1);
    };
    let both = |name: &str, sizes: (u32, u32), work: &dyn Fn(u32) -> f64| {
        row(name, (sizes.0, work(sizes.0)), (sizes.1, work(sizes.1)));
    };
    for detection in [LossDetection::Rack, LossDetection::Sack] {
        let name = |what: &str| format!("{detection:?} {what}");
        both(&name("holes from the near end"), (1024, 16_384), &|n| holes(detection, n, false));
        both(&name("holes from the far end"), (1024, 16_384), &|n| holes(detection, n, true));
        both(&name("the same blocks again"), (1024, 16_384), &|n| repeated(detection, n));
    }
    both("crumbs told again", (64, 480), &crumbs);
    both("an early segment, scarce memory, sessions", (256, 8192), &scarce);
}
