//! Segmentation and merging at an IP port: TCP handles many packets in one step, and the stream is unchanged.

mod common;

use common::{Pair, config, socket};
use kiban_board::{Completion, PortConfig};
use std::time::Duration;

fn pair(cuts: bool, merges: bool) -> Pair {
    Pair::of([0, 1].map(|side| {
        let mut config = config(side);
        config.tcp.segment_bytes_max = if cuts { 20 * 1460 } else { 1460 };
        config.tcp.segmentation_offload = cuts;
        for port in &mut config.ports {
            if let PortConfig::Ip(ip) = port {
                (ip.cuts, ip.merges, ip.packets_max) = (cuts, merges, 256);
            }
        }
        config
    }))
}

fn noise(length: usize) -> Vec<u8> {
    let mut rng = kiban_base::SimRng::from_seed(length as u64);
    (0..length).map(|_| rng.draw() as u8).collect()
}

/// Sends `bytes` in writes of irregular sizes, while the cable loses every `loss`-th packet. Returns the
/// bytes received.
fn transfer(pair: &mut Pair, bytes: &[u8], loss: Option<u64>) -> Vec<u8> {
    pair.boards[1].host().listen(socket(1, 80)).unwrap();
    let near = pair.boards[0].host().open(socket(1, 80)).unwrap();
    pair.run();
    let [Completion::Accepted { stream: far, .. }] = pair.completions(1)[..] else { panic!("accepted") };
    pair.lose_every = loss;
    let (mut sent, mut got, mut buffer, mut step) = (0, Vec::new(), vec![0; 50_000], 0);
    while got.len() < bytes.len() {
        step += 1;
        let end = bytes.len().min(sent + 1 + step * 7919 % 40_000);
        sent += pair.boards[0].host().write(near, &bytes[sent..end]).unwrap();
        let later = pair.now + Duration::from_millis(1);
        pair.run_until(later);
        while let Ok(count @ 1..) = pair.boards[1].host().read(far, &mut buffer) {
            got.extend_from_slice(&buffer[..count]);
        }
        assert!(step < 100_000, "{} of {} bytes", got.len(), bytes.len());
    }
    pair.lose_every = None;
    pair.boards[0].host().close(near).unwrap();
    pair.boards[1].host().close(far).unwrap();
    let later = pair.now + Duration::from_secs(200);
    pair.run_until(later);
    for board in &mut pair.boards {
        assert!(board.memory_mut().is_all_free());
        assert_eq!(board.counter("tcp", "checksum_errors") + board.counter("ip", "checksum_errors"), 0);
    }
    got
}

#[test]
fn every_combination_of_tso_and_lro_carries_the_same_stream() {
    let bytes = noise(1_500_000);
    for (cuts, merges) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut pair = pair(cuts, merges);
        assert!(transfer(&mut pair, &bytes, None) == bytes, "cuts {cuts}, merges {merges}");
        let packets = pair.packets[0];
        assert!(packets >= 1_500_000 / 1460, "every packet is of the port's size: {packets}");
        assert!(pair.longest <= 1500);
        let segments = pair.boards[1].counter("tcp", "segments_in");
        assert_eq!(segments < packets / 2, merges, "{segments} segments of {packets} packets");
        assert!(!cuts || pair.boards[0].counter("tcp", "segments_out") < packets / 2);
    }
}

#[test]
fn losses_are_recovered_with_tso_and_lro_too() {
    let bytes = noise(400_000);
    for loss in [23, 53, 101] {
        let mut pair = pair(true, true);
        assert!(transfer(&mut pair, &bytes, Some(loss)) == bytes, "every {loss}-th lost");
    }
}

#[test]
fn a_damaged_packet_is_not_merged() {
    let bytes = noise(300_000);
    let mut pair = pair(true, true);
    pair.damage_every = Some(13);
    // This test does not use `transfer`, which checks that there are no checksum errors, because it expects
    // some.
    pair.boards[1].host().listen(socket(1, 80)).unwrap();
    let near = pair.boards[0].host().open(socket(1, 80)).unwrap();
    let later = pair.now + Duration::from_secs(10);
    pair.run_until(later);
    let far = pair.completions(1).iter().find_map(|completion| match completion {
        Completion::Accepted { stream, .. } => Some(*stream),
        _ => None,
    });
    let (far, mut sent, mut got, mut buffer) = (far.unwrap(), 0, Vec::new(), vec![0; 50_000]);
    for _ in 0..20_000 {
        sent += pair.boards[0].host().write(near, &bytes[sent..]).unwrap();
        let later = pair.now + Duration::from_millis(5);
        pair.run_until(later);
        while let Ok(count @ 1..) = pair.boards[1].host().read(far, &mut buffer) {
            got.extend_from_slice(&buffer[..count]);
        }
        if got.len() == bytes.len() {
            break;
        }
    }
    assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
    let wrong = |side: usize| {
        let board = &pair.boards[side];
        board.counter("tcp", "checksum_errors") + board.counter("ip", "checksum_errors")
    };
    assert!(wrong(1) > 5, "damage was seen: {}", wrong(1));
}

#[test]
fn large_segments_count_as_the_packets_they_become() {
    let mut pair = Pair::of([0, 1].map(|side| {
        let mut config = config(side);
        config.tcp.segment_bytes_max = 40 * 1460;
        for port in &mut config.ports {
            if let PortConfig::Ip(ip) = port {
                ip.packets_max = 256;
            }
        }
        config
    }));
    pair.boards[1].host().listen(socket(1, 80)).unwrap();
    let streams: Vec<_> = (0..60).map(|_| pair.boards[0].host().open(socket(1, 80)).unwrap()).collect();
    pair.run();
    pair.boards[0].hold(0, true);
    let bytes = noise(20_000);
    for stream in streams {
        pair.boards[0].host().write(stream, &bytes).unwrap();
    }
    let later = pair.now + Duration::from_millis(1);
    pair.run_until(later);
    // Each stream may first send ten packets, as one segment. One stream's segment waits at the port, while
    // the other streams take turns in their TX queue.
    let waiting = pair.boards[0].waiting(0);
    assert!((6..=26).contains(&waiting), "{waiting} segments");
}
