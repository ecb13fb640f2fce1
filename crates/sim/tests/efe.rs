//! scratch
use kiban_ground::Instant;
use kiban_sim::{Star, StarConfig, Stream};

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

#[test]
fn scratch() {
    for n in [1usize, 2, 3, 4, 8, 16, 32, 64] {
        for stagger in [0u64, 1] {
            let streams = (1..=n)
                .map(|h| {
                    let mut s = Stream::new(h, 0, u64::MAX);
                    s.begin = Instant::from_nanos(stagger * h as u64 * 300_000);
                    s
                })
                .collect();
            let config = StarConfig::ten_gigabit(n + 1);
            let mut star = Star::new(&config, streams);
            star.run(ms(20));
            star.take_queue_watch();
            let before: Vec<u64> = star.streams.iter().map(|s| s.read_bytes).collect();
            star.run(ms(70));
            let q = star.take_queue_watch();
            let rates: Vec<f64> = star
                .streams
                .iter()
                .zip(&before)
                .map(|(s, b)| (s.read_bytes - b) as f64 * 8.0 / 50e6)
                .collect();
            let sum: f64 = rates.iter().sum();
            let mean = sum / n as f64;
            let limit = 10.0 * 1472.0 / 1538.0;
            let min = rates.iter().cloned().fold(f64::MAX, f64::min) / mean;
            let max = rates.iter().cloned().fold(0.0, f64::max) / mean;
            println!(
                "n {n} st {stagger}: sum {:.2}% min {min:.3} max {max:.3} queue {:.1} most {} drops {} resends {} timeouts {} breaths {} wrong {}",
                sum / limit * 100.0,
                q.mean(),
                q.most,
                star.switch.port_counters().queue_full,
                (1..=n).map(|h| star.endpoint(h).counters().resends).sum::<u64>(),
                (1..=n).map(|h| star.endpoint(h).counters().timeouts).sum::<u64>(),
                star.endpoint(1).counters().breaths,
                star.streams.iter().map(|s| s.wrong).sum::<u64>()
            );
        }
    }
}
