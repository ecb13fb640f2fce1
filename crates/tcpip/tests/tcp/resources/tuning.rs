//! Buffers that grow to what a connection can use.

use crate::common::cable::Nature;
use crate::common::ms;
use crate::common::station::Sizes;
use crate::common::world::{Role, World};
use kiban_tcpip::tcp::{Config, Info};

fn tuned() -> Config {
    Config {
        autotune: true,
        receive_buffer_bytes: 64 << 10,
        send_buffer_bytes: 64 << 10,
        receive_buffer_max_bytes: 2 << 20,
        send_buffer_max_bytes: 2 << 20,
        ..Config::default()
    }
}

/// Returns the throughput over a path of 50 ms and 100 Mbit/s, and the receiver's last session statistics.
fn over_a_long_path(config: Config, receiver: Role) -> (f64, Info) {
    let nature = Nature { delay: ms(25), rate: 100_000_000, port_frames: 64, ..Nature::default() };
    let sizes = Sizes { transmit_pages: 4096, receive_pages: 4096, blocks: 8192, ..Sizes::default() };
    let mut world = World::new([config.clone(), config], [nature; 2], [sizes; 2], 1);
    let length = 20_000_000;
    world.converse(Role::eager(length), receiver);
    let mut info = None;
    while world.apps[0][1].complete_at.is_none() {
        assert!(world.step().unwrap(), "it goes on");
        info = world.stations[1].tcp.infos().next().or(info);
    }
    (length as f64 * 8.0 / world.apps[0][1].complete_at.unwrap().as_secs_f64(), info.unwrap())
}

#[test]
fn a_window_grows_to_the_bandwidth_delay_product() {
    // 64 KB in 50 ms are 10 Mbit/s.
    let eager = || Role::eager(0).after_peer();
    let (fixed, info) = over_a_long_path(Config { autotune: false, ..tuned() }, eager());
    assert!(fixed < 10.5e6, "{fixed}");
    assert_eq!(info.receive_buffer_bytes, 64 << 10);
    for timestamps in [true, false] {
        let (grown, info) = over_a_long_path(Config { timestamps, ..tuned() }, eager());
        assert!(grown > 50e6, "{grown}, timestamps {timestamps}");
        assert!((600_000..=2 << 20).contains(&info.receive_buffer_bytes), "{}", info.receive_buffer_bytes);
    }
}

#[test]
fn a_slow_reader_keeps_its_window() {
    // 20,000 bytes every 10 ms are 100 KB per round trip, which is far less than the path could carry.
    let slow = Role { read_max: 20_000, read_every: ms(10), ..Role::eager(0).after_peer() };
    let (_, info) = over_a_long_path(tuned(), slow);
    assert!(info.receive_buffer_bytes < 500_000, "{}", info.receive_buffer_bytes);
}
