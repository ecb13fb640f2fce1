//! Buffers that grow to what a connection can use, and the statistics of a session.

use crate::common::cable::Nature;
use crate::common::ms;
use crate::common::peer::*;
use crate::common::station::Sizes;
use crate::common::world::{Role, World};
use core::time::Duration;
use kiban_tcpip::tcp::{Config, Info};
use kiban_tcpip::wire::tcp::{Header, Options};

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

#[test]
fn the_window_scale_allows_for_the_largest_buffer() {
    for (autotune, words) in
        [(true, "SYN 0+0 win 65535 mss 1460 shift 6"), (false, "SYN 0+0 win 65535 mss 1460 shift 1")]
    {
        let mut talk = Peer::opening(Config { autotune, ..tuned() });
        assert!(talk.said()[0].starts_with(words), "{autotune}");
    }
}

#[test]
fn info_reports_a_sessions_work_and_its_limits() {
    let mut talk =
        Peer::established(Config { send_buffer_bytes: 5000, floor_bytes: 1000, ..Config::default() });
    let info = |talk: &Peer| talk.station.tcp.info(talk.id()).unwrap();
    assert_eq!((info(&talk).segments_in, info(&talk).segments_out, info(&talk).busy), (1, 1, Duration::ZERO));
    // Limited by the path for 100 ms, while neither the buffer nor the window is full.
    talk.write(&bytes(3000));
    talk.pass(ms(100));
    talk.hear(seg(ACK, 1, 3001, 60_000), b"");
    let seen = info(&talk);
    assert_eq!((seen.busy, seen.window_limited, seen.buffer_limited), (ms(100), ms(0), ms(0)));
    assert_eq!((seen.bytes_acknowledged, talk.now.since(seen.data_sent_at)), (3000, ms(100)));
    // Limited by the buffer for 50 ms, while all of it is outstanding.
    talk.write(&bytes(5000));
    talk.pass(ms(50));
    talk.hear(seg(ACK, 1, 8001, 1000), b"");
    // Limited by the window for 70 ms, while 2000 bytes wait behind a window of 1000.
    talk.write(&bytes(3000));
    talk.pass(ms(70));
    talk.hear(seg(ACK, 1, 9001, 60_000), b"");
    talk.hear(seg(ACK, 1, 11_001, 60_000), b"");
    let seen = info(&talk);
    assert_eq!((seen.busy, seen.window_limited, seen.buffer_limited), (ms(220), ms(70), ms(50)));
    // The other way.
    talk.hear(seg(ACK, 501, 11_001, 60_000), &bytes(500));
    talk.hear(seg(ACK, 1, 11_001, 60_000), &bytes(700));
    talk.hear(seg(ACK, 1, 11_001, 60_000), &bytes(100));
    talk.pass(ms(5));
    let seen = info(&talk);
    assert_eq!((seen.bytes_in, seen.out_of_order_segments, seen.duplicate_segments), (1000, 1, 1));
    assert_eq!(
        (talk.now.since(seen.last_received_at), talk.now.since(seen.data_received_at)),
        (ms(5), ms(5))
    );
    assert_eq!((seen.peer_segment_bytes, seen.receive_buffer_bytes), (700, 256 << 10));
}

#[test]
fn info_reports_the_negotiated_options() {
    let options = Options { mss: Some(1000), window_shift: Some(5), sack_permitted: true, ..Options::NONE };
    let mut talk = Peer::listening(Config::default());
    talk.hear(Header { options, ..seg(SYN, 0, 0, 1000) }, b"");
    talk.hear(seg(ACK, 1, 1, 1000), b"");
    let info = talk.station.tcp.info(talk.id()).unwrap();
    assert_eq!((info.window_shifts, info.sack, info.timestamps), ((5, 3), true, false));
}
