//! Evidence of cases whose cause is known, and of look-alikes.

use super::*;
use crate::net::trial::digest::Digest;
use crate::net::trial::evidence::{Beside, Carried, Pattern, Windows};
use crate::net::trial::path::Path;
use crate::remote::protocol::{Outcome, Welcome};
use kiban_measure::socket::Given;
use kiban_measure::{Settings, TcpInfo};

fn counters(list: &[(&str, u64)]) -> Counters {
    Counters(list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect())
}

/// Returns the evidence of a stream that nothing limits: one second at 100 Mbit/s over a path with an RTT
/// of 10 ms.
pub(in crate::net::diagnosis) fn stream() -> Evidence {
    let zero = TcpInfo {
        data_segs_out: Some(0),
        busy_us: Some(0),
        rwnd_limited_us: Some(0),
        sndbuf_limited_us: Some(0),
        ..TcpInfo::default()
    };
    let given = Given { send_bytes: 800_000, receive_bytes: 800_000, congestion: "cubic".into() };
    Evidence {
        pattern: Pattern::Stream,
        message_bytes: 6000,
        last_write_bytes: 6000,
        settings: Settings::default(),
        seconds: 1.0,
        path: Path { round_trip_us: 10_000.0, mss_bytes: 1448, rate_mbps: 100.0 },
        board: None,
        peer: Welcome {
            kiban: "0".into(),
            kernel: "Linux".into(),
            board: None,
            congestion: vec!["cubic".into()],
            trial_seconds_max: 60,
            buffer_bytes_max: 1 << 26,
            message_bytes_max: 1 << 24,
            bytes_per_second_max: 1 << 32,
        },
        given: given.clone(),
        info_before: zero,
        info: TcpInfo {
            snd_mss: 1448,
            rtt_us: 10_000,
            snd_cwnd: 1000,
            snd_wnd: Some(400_000),
            data_segs_out: Some(8_600),
            busy_us: Some(1_000_000),
            rwnd_limited_us: Some(0),
            sndbuf_limited_us: Some(0),
            ..TcpInfo::default()
        },
        counters: Counters::default(),
        receiver: Outcome {
            bytes: 12_500_000,
            seconds: 1.0,
            rate_limited: false,
            info: TcpInfo { rcv_mss: 1448, ato_us: 40_000, ..TcpInfo::default() },
            given,
            counters: Counters::default(),
            asked: None,
            windows: None,
        },
        exchanges: None,
        capture: None,
        windows: None,
        beside: None,
    }
}

/// Returns samples of a window of which this part is below half of the largest one.
fn windows(max_bytes: u32, shrunk: u32) -> Option<Windows> {
    Some(Windows { samples: 100, shrunk, max_bytes, at_half: None })
}

/// Returns the evidence of half a second of exchanges that stalled.
pub(in crate::net::diagnosis) fn stalled() -> Evidence {
    let mut evidence = stream();
    evidence.pattern = Pattern::WriteWriteRead;
    (evidence.message_bytes, evidence.last_write_bytes) = (1000, 960);
    evidence.receiver.counters = counters(&[("DelayedACKs", 24)]);
    evidence.info.rtt_us = 100;
    evidence.exchanges = Some(Exchanges {
        count: 23,
        warm_up: 3,
        p50_us: 44_000.0,
        max_us: 48_000.0,
        stalls: 23,
        stall_ms: 44.0,
        stalled_part: 1.0,
    });
    evidence
}

/// `net.ipv4.tcp_rmem = "4096 65536 65536"` at the receiver, and a round trip of 60 ms: 3.5 Mbit/s.
fn limited_by_tcp_rmem(evidence: &mut Evidence) {
    (evidence.path.round_trip_us, evidence.info.rtt_us) = (60_000.0, 60_500);
    evidence.receiver.given.receive_bytes = 65_536;
    (evidence.info.snd_wnd, evidence.windows) = (Some(32_768), windows(32_768, 3));
    evidence.info.rwnd_limited_us = Some(960_000);
    evidence.receiver.bytes = 437_500;
    evidence.info.data_segs_out = Some(302);
}

/// The buffer would allow more, but the window field of 16 bits is not scaled.
fn without_scaling(evidence: &mut Evidence) {
    (evidence.path.round_trip_us, evidence.info.rtt_us) = (80_000.0, 80_500);
    (evidence.info.snd_wnd, evidence.windows) = (Some(64_240), windows(64_240, 0));
    evidence.info.window_scaling = Some(false);
    evidence.info.rwnd_limited_us = Some(960_000);
    evidence.receiver.bytes = 790_000;
    evidence.info.data_segs_out = Some(550);
    evidence.receiver.counters = counters(&[("TCPToZeroWindowAdv", 1)]);
}

/// `net.ipv4.tcp_wmem = "4096 16384 65536"` at the sender, BBR, and an RTT of 41 ms. The burst that
/// measures the path has the same limit.
fn limited_by_tcp_wmem(evidence: &mut Evidence) {
    (evidence.path.round_trip_us, evidence.info.rtt_us) = (40_993.0, 40_344);
    (evidence.path.rate_mbps, evidence.receiver.bytes) = (9.26, 1_146_000);
    evidence.given.send_bytes = 65_536;
    evidence.info.sndbuf_limited_us = Some(330_000);
    (evidence.info.snd_cwnd, evidence.info.data_segs_out) = (94, Some(800));
}

/// Buffers of this many bytes that the program has set, BBR, and an RTT of 20 ms.
fn limited_by_program(bytes: u32, window: u32, mbps: f64, shares_us: [u64; 2]) -> impl Fn(&mut Evidence) {
    move |e| {
        (e.settings.send_bytes, e.settings.receive_bytes) = (Some(bytes), Some(bytes));
        (e.given.send_bytes, e.receiver.given.receive_bytes) = (2 * bytes, 2 * bytes);
        (e.path.round_trip_us, e.path.rate_mbps) = (20_479.0, 36.8);
        (e.info.rtt_us, e.info.min_rtt_us) = (26_692, Some(20_113));
        let samples = if bytes < 4000 { 5 } else { 62 };
        e.windows = Some(Windows { samples, shrunk: 0, max_bytes: window, at_half: None });
        e.info.snd_wnd = Some(window);
        (e.info.rwnd_limited_us, e.info.sndbuf_limited_us) = (Some(shares_us[0]), Some(shares_us[1]));
        e.receiver.bytes = (mbps * 125_000.0) as u64;
        e.receiver.counters = counters(&[("DelayedACKs", 1), ("TCPToZeroWindowAdv", 0)]);
    }
}

#[test]
fn each_cause_is_recognised_from_its_evidence() {
    let digest =
        |gaps, held, sent_again| Some(Digest { gaps, held, held_ms: 41.7, sent_again, ..Digest::default() });
    let exchange = |change: &dyn Fn(&mut Evidence)| {
        let mut evidence = stalled();
        change(&mut evidence);
        evidence
    };
    let streamed = |change: &dyn Fn(&mut Evidence)| {
        let mut evidence = stream();
        change(&mut evidence);
        evidence
    };
    let quiet = |evidence: &mut Evidence| evidence.receiver.counters = Counters::default();
    for (what, evidence, expected) in [
        ("stalls and delayed acknowledgements", exchange(&|_| ()), Cause::NagleDelayedAck),
        (
            "a capture alone",
            exchange(&|e| {
                quiet(e);
                e.capture = digest(6, 6, 0);
            }),
            Cause::NagleDelayedAck,
        ),
        (
            "a capture in which nothing was held outweighs counters",
            exchange(&|e| e.capture = digest(6, 0, 0)),
            Cause::NotExplained,
        ),
        (
            "a capture looks like it, but Nagle is off",
            exchange(&|e| {
                e.settings.no_delay = true;
                e.capture = digest(6, 6, 0);
            }),
            Cause::NotExplained,
        ),
        ("Nagle is off", exchange(&|e| e.settings.no_delay = true), Cause::NotExplained),
        ("one write", exchange(&|e| e.pattern = Pattern::WriteRead), Cause::NotExplained),
        ("a body of a whole segment", exchange(&|e| e.last_write_bytes = 1448), Cause::NotExplained),
        ("no delayed acknowledgements", exchange(&quiet), Cause::NotExplained),
        ("sent again, as captured", exchange(&|e| e.capture = digest(6, 0, 6)), Cause::Loss),
        ("sent again, as counted", exchange(&|e| e.info.total_retrans = 20), Cause::Loss),
        ("replies sent again", exchange(&|e| e.receiver.info.total_retrans = 20), Cause::Loss),
        (
            "a full small window",
            exchange(&|e| {
                e.last_write_bytes = 6000;
                e.info.rwnd_limited_us = Some(900_000);
                e.info.snd_wnd = Some(1400);
            }),
            Cause::SillyWindow,
        ),
        ("the server held back", streamed(&|e| e.receiver.rate_limited = true), Cause::ServerLimit),
        (
            "2 % sent again",
            streamed(&|e| {
                e.info.total_retrans = 172;
                e.receiver.bytes /= 20;
            }),
            Cause::Loss,
        ),
        (
            "a receive buffer of 20 kB over 10 ms",
            streamed(&|e| {
                e.receiver.given.receive_bytes = 40_000;
                e.info.snd_wnd = Some(20_000);
                e.info.rwnd_limited_us = Some(950_000);
                e.receiver.bytes = 1_900_000;
            }),
            Cause::ReceiveBuffer,
        ),
        (
            "a send buffer of 20 kB over 10 ms",
            streamed(&|e| {
                e.given.send_bytes = 40_000;
                e.info.sndbuf_limited_us = Some(950_000);
                e.receiver.bytes = 1_900_000;
            }),
            Cause::SendBuffer,
        ),
        (
            "a window that was shut",
            streamed(&|e| {
                e.info.rwnd_limited_us = Some(950_000);
                e.receiver.counters = counters(&[("TCPToZeroWindowAdv", 30)]);
                e.receiver.bytes = 1_900_000;
            }),
            Cause::Receiver,
        ),
        (
            "a constant window of tcp_rmem's maximum, although the buffer was full at times",
            streamed(&|e| {
                limited_by_tcp_rmem(e);
                e.receiver.counters = counters(&[("TCPToZeroWindowAdv", 8)]);
            }),
            Cause::ReceiveBuffer,
        ),
        (
            "the same buffer, filled by a sender that paces itself, whose window limited the burst, too",
            streamed(&|e| {
                limited_by_tcp_rmem(e);
                e.info.rwnd_limited_us = Some(468_000);
                (e.receiver.bytes, e.path.rate_mbps) = (510_000, 4.1);
                e.windows = Some(Windows { samples: 8, shrunk: 0, max_bytes: 32_768, at_half: None });
            }),
            Cause::ReceiveBuffer,
        ),
        (
            "the same buffer, but the window shrinks",
            streamed(&|e| {
                limited_by_tcp_rmem(e);
                e.windows = windows(32_768, 90);
            }),
            Cause::Receiver,
        ),
        (
            "the maximum of tcp_wmem, with a sender that paces itself",
            streamed(&limited_by_tcp_wmem),
            Cause::SendBuffer,
        ),
        (
            "the same, whose round trips look like a queue on a busy host",
            streamed(&|e| {
                limited_by_tcp_wmem(e);
                (e.info.rtt_us, e.info.min_rtt_us) = (68_500, Some(41_000));
                e.info.sndbuf_limited_us = Some(150_000);
            }),
            Cause::SendBuffer,
        ),
        (
            "a send buffer that holds the queue of a full path",
            streamed(&|e| {
                (e.info.rtt_us, e.info.min_rtt_us) = (1_300_000, Some(10_000));
                (e.receiver.bytes, e.given.send_bytes) = (2_500_000, 4_194_304);
                e.info.sndbuf_limited_us = Some(950_000);
            }),
            Cause::PathFull,
        ),
        (
            "a program's buffers of 2000 bytes, with a sender that paces itself",
            streamed(&limited_by_program(2000, 724, 0.26, [670_000, 0])),
            Cause::ReceiveBuffer,
        ),
        (
            "of 16,000 bytes",
            streamed(&limited_by_program(16_000, 18_824, 5.89, [440_000, 90_000])),
            Cause::ReceiveBuffer,
        ),
        (
            "of 65,536 bytes, whose round trips look like a queue",
            streamed(&limited_by_program(65_536, 80_480, 20.36, [400_000, 50_000])),
            Cause::ReceiveBuffer,
        ),
        (
            "a program that seldom reads, and just now has not",
            streamed(&|e| {
                (e.path.round_trip_us, e.info.rtt_us, e.info.snd_wnd) = (100_000.0, 100_000, Some(2048));
                e.windows = Some(Windows { samples: 40, shrunk: 30, max_bytes: 67_840, at_half: None });
                (e.info.rwnd_limited_us, e.receiver.bytes) = (Some(890_000), 200_000);
                e.receiver.counters = counters(&[("DelayedACKs", 15)]);
            }),
            Cause::Receiver,
        ),
        (
            "a route with a congestion window of 4 segments, which the burst had, too",
            streamed(&|e| {
                (e.path.round_trip_us, e.path.rate_mbps) = (100_000.0, 0.45);
                (e.info.rtt_us, e.info.min_rtt_us, e.info.snd_cwnd) = (100_000, Some(100_000), 4);
                e.receiver.bytes = 57_920;
            }),
            Cause::CongestionWindow,
        ),
        ("no window scaling", streamed(&without_scaling), Cause::WindowScaling),
        (
            "no window scaling, but the program reads slowly",
            streamed(&|e| {
                without_scaling(e);
                (e.windows, e.receiver.bytes) = (windows(64_240, 95), 100_000);
            }),
            Cause::Receiver,
        ),
        (
            "no window scaling, but a smaller buffer is the limit",
            streamed(&|e| {
                limited_by_tcp_rmem(e);
                (e.info.window_scaling, e.windows) = (Some(false), windows(20_000, 0));
            }),
            Cause::ReceiveBuffer,
        ),
        (
            "a queue that the stream keeps filled",
            streamed(&|e| {
                (e.info.rtt_us, e.info.min_rtt_us) = (40_000, Some(10_100));
                (e.receiver.bytes, e.info.total_retrans) = (1_200_000, 100);
            }),
            Cause::PathFull,
        ),
        (
            "the rate of the path",
            streamed(&|e| {
                (e.path.rate_mbps, e.receiver.bytes) = (10.0, 1_212_500);
                e.info.snd_cwnd = 12;
            }),
            Cause::PathFull,
        ),
        (
            "a policer at its rate, which drops a tenth",
            streamed(&|e| {
                (e.path.rate_mbps, e.receiver.bytes) = (10.0, 1_212_500);
                (e.info.data_segs_out, e.info.total_retrans) = (Some(930), 93);
            }),
            Cause::Loss,
        ),
        (
            "the rate of a burst in slow start is not that of the path",
            streamed(&|e| {
                (e.path.round_trip_us, e.info.rtt_us, e.path.rate_mbps) = (60_000.0, 60_000, 16.0);
                (e.receiver.bytes, e.info.snd_cwnd) = (2_000_000, 80);
            }),
            Cause::CongestionWindow,
        ),
        (
            "lost acknowledgements are no lost segments",
            streamed(&|e| {
                (e.info.data_segs_out, e.info.total_retrans) = (Some(400), 12);
                e.counters = counters(&[("TCPDSACKRecv", 11), ("TCPTimeouts", 0)]);
                (e.receiver.bytes, e.info.snd_cwnd) = (570_000, 400);
            }),
            Cause::NotExplained,
        ),
        (
            "a single retransmission",
            streamed(&|e| {
                (e.info.data_segs_out, e.info.total_retrans) = (Some(90), 1);
                (e.receiver.bytes, e.info.snd_cwnd) = (130_000, 400);
            }),
            Cause::NotExplained,
        ),
        (
            "nothing to send",
            streamed(&|e| {
                e.info.busy_us = Some(200_000);
                e.receiver.bytes = 1_900_000;
            }),
            Cause::Sender,
        ),
        (
            "a congestion window of ten segments",
            streamed(&|e| {
                e.info.snd_cwnd = 10;
                e.receiver.bytes = 1_448_000;
            }),
            Cause::CongestionWindow,
        ),
        (
            "a window of 1400 and stalls of 40 ms",
            streamed(&|e| {
                e.info.rwnd_limited_us = Some(980_000);
                e.info.snd_wnd = Some(1400);
                e.receiver.counters = counters(&[("DelayedACKs", 22)]);
                e.receiver.bytes = 40_000;
            }),
            Cause::SillyWindow,
        ),
        (
            "last pieces held",
            streamed(&|e| {
                e.message_bytes = 1000;
                e.receiver.counters = counters(&[("DelayedACKs", 22)]);
                e.receiver.bytes = 22_000;
            }),
            Cause::NagleDelayedAck,
        ),
        (
            "an old kernel tells no shares",
            streamed(&|e| {
                e.info.busy_us = None;
                e.receiver.bytes = 1_900_000;
            }),
            Cause::NotExplained,
        ),
    ] {
        let explanation = explain(&evidence, 0.0);
        assert_eq!(explanation.cause, expected, "{what}: {}", explanation.because);
        assert!(explanation.because.len() > 20, "{what}");
    }
}

#[test]
fn acknowledgements_that_wait_are_named_only_beside_an_opposite_stream_and_a_faster_one() {
    let mut slow = stream();
    (slow.info.rtt_us, slow.info.min_rtt_us, slow.info.snd_cwnd) = (625_000, Some(10_000), 110);
    slow.receiver.bytes = 255_000;
    slow.beside =
        Some(Beside { same: Vec::new(), opposite: vec![Carried { bytes: 117_500.0, seconds: 1.0 }] });
    let of = |evidence: &Evidence, best_mbps| explain(evidence, best_mbps).cause;
    assert_eq!(of(&slow, 38.3), Cause::AcknowledgementQueue, "{}", explain(&slow, 38.3).because);
    // Without a faster stream in the same direction, the queue is that of the stream.
    assert_eq!(of(&slow, 2.04), Cause::PathFull);
    let alone = Evidence { beside: None, ..slow.clone() };
    assert_eq!(of(&alone, 38.3), Cause::CongestionWindow);
    let mut short = slow.clone();
    short.info.rtt_us = 12_000;
    assert_ne!(of(&short, 38.3), Cause::AcknowledgementQueue);
    let mut limited = slow;
    limited.info.rwnd_limited_us = Some(900_000);
    assert_ne!(of(&limited, 38.3), Cause::AcknowledgementQueue);
}

#[test]
fn losses_at_the_beginning_of_a_stream_are_no_lasting_fault() {
    // A fifth of the segments of the first half, and one percent of those of the second.
    let mut evidence = stream();
    (evidence.info.data_segs_out, evidence.info.total_retrans) = (Some(8000), 840);
    assert!(is_lossy(&evidence) && lost_percent(&evidence) > Some(10.0));
    let at_half = Some([4000, 800]);
    evidence.windows = Some(Windows { at_half, ..Windows::default() });
    assert!(!is_lossy(&evidence) && lost_percent(&evidence) == Some(1.0));
    // A policer drops all the time.
    evidence.info.total_retrans = 1600;
    assert!(is_lossy(&evidence));
    // The second half is too short to tell.
    evidence.info.data_segs_out = Some(4050);
    assert!(is_lossy(&evidence) && lost_percent(&evidence) > Some(20.0));
}

#[test]
fn stalled_or_below_the_threshold_counts_as_slow() {
    let mut evidence = stalled();
    assert!(is_slow(&evidence, 0.0));
    evidence.exchanges.as_mut().expect("exchanges").stalled_part = 0.4;
    assert!(!is_slow(&evidence, 1e9));
    // The stream has 100 Mbit/s.
    assert!(!is_slow(&stream(), 99.0) && is_slow(&stream(), 101.0));
}

#[test]
fn a_buffer_allows_at_least_the_rate_that_was_measured() {
    // 542.7 Mbit/s with a buffer of 4000 bytes on a path of 8 us, but the smoothed RTT ended at 2.18 ms.
    let mut evidence = stream();
    (evidence.path.round_trip_us, evidence.info.rtt_us) = (8.0, 2180);
    evidence.receiver.given.receive_bytes = 8000;
    evidence.receiver.bytes = 67_837_500;
    evidence.info.rwnd_limited_us = Some(950_000);
    let explanation = explain(&evidence, 0.0);
    assert_eq!(explanation.cause, Cause::ReceiveBuffer);
    assert!(
        explanation.because.ends_with("allows at most 542.70 Mbit/s with an RTT of 0.06 ms"),
        "{}",
        explanation.because
    );
}

#[test]
fn a_window_of_the_system_that_limits_is_judged_without_a_threshold() {
    let bound = |change: &dyn Fn(&mut Evidence)| {
        let mut evidence = stream();
        change(&mut evidence);
        is_system_bound(&evidence)
    };
    assert!(bound(&limited_by_tcp_rmem) && bound(&without_scaling) && !bound(&|_| ()));
    assert!(bound(&limited_by_tcp_wmem));
    // A sender that waits for its turn on a busy host looks like a full buffer.
    assert!(!bound(&|e| {
        limited_by_tcp_wmem(e);
        (e.given.send_bytes, e.info.sndbuf_limited_us) = (4_194_304, Some(900_000));
    }));
    // A program that sets a small buffer limits itself.
    assert!(!bound(&|e| {
        limited_by_tcp_rmem(e);
        e.settings.receive_bytes = Some(32_768);
    }));
    // Over loopback, a program that waits for its turn looks like a window.
    assert!(!bound(&|e| {
        limited_by_tcp_rmem(e);
        e.path.round_trip_us = 40.0;
    }));
}

#[test]
fn heavy_loss_is_judged_without_a_threshold() {
    let lossy = |segments: u32, again: u32| {
        let mut evidence = stream();
        (evidence.info.data_segs_out, evidence.info.total_retrans) = (Some(segments), again);
        is_lossy(&evidence)
    };
    assert!(lossy(3321, 712) && lossy(670, 50));
    // A path of 5 Mbit/s with a queue of 50 ms, for a second.
    let mut thin = stream();
    (thin.info.data_segs_out, thin.info.total_retrans) = (Some(670), 50);
    (thin.path.round_trip_us, thin.info.min_rtt_us, thin.info.rtt_us) = (16.0, Some(20), 48_000);
    assert!(!is_lossy(&thin));
    assert!(!lossy(8600, 163) && !lossy(60, 20) && !lossy(0, 0));
}

#[test]
fn cause_letters_are_unique() {
    let mut letters: Vec<char> = Cause::ALL.iter().map(|(_, letter, _)| *letter).collect();
    letters.sort_unstable();
    letters.dedup();
    assert_eq!(letters.len(), Cause::ALL.len());
}
