//! Named attacks, each against a board that also serves a well-behaved peer.

use crate::input::Input;
use crate::tcpip::craft;
use crate::tcpip::session::{End, Opening};
use crate::tcpip::stand::{BOARD, PEER, Stand};
use kiban_board::{BoardConfig, Completion, HostError, IpPortConfig, MemoryConfig, PortConfig};
use kiban_tcpip::tcp::Refusal;
use kiban_tcpip::wire::icmp;
use kiban_tcpip::wire::tcp::{Flags, Header, Options, SackBlock, Sequence};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

fn stand() -> Stand {
    let port = IpPortConfig {
        address: BOARD.into(),
        prefix: "10.0.0.0/8".parse().expect("a prefix"),
        mtu_bytes: 1500,
        packets_max: 4096,
        cuts: false,
        merges: false,
        believe_sums: false,
    };
    let memory =
        MemoryConfig { page_bytes: 2048, transmit_bytes: 4 << 20, receive_bytes: 4 << 20, pdus: 2048 };
    let config = BoardConfig { memory, ports: vec![PortConfig::Ip(port)], ..BoardConfig::default() };
    let mut stand = Stand::new(&config);
    stand.board.host().listen(SocketAddr::new(BOARD.into(), 80)).expect("there is no listener yet");
    stand
}

fn peer(stand: &mut Stand, port: u16, options: Options) -> End {
    let local = SocketAddr::new(PEER.into(), port);
    End::open(stand, Opening { local, initial: 0xffff_fff0, window: 60_000, options, active: false })
}

/// Sends an acknowledgement of everything before `place`, modified by `change`.
fn acknowledge(end: &mut End, stand: &mut Stand, place: u32, change: impl FnOnce(&mut Header)) {
    let mut header = end.header();
    header.acknowledgment = Sequence(end.board_initial.wrapping_add(place));
    change(&mut header);
    end.send(stand, &header, &[], &[]);
    hear(end, stand);
}

/// Returns the payload bytes that the board has sent.
fn hear(end: &mut End, stand: &mut Stand) -> usize {
    let mut bytes = 0;
    for packet in std::mem::take(&mut stand.sent) {
        let (_, load) = crate::tcpip::stand::check_sent(&packet);
        let (header, used) = Header::read(load).expect("checked");
        if header.target_port == end.local.port() {
            end.hear(load);
            bytes += load.len() - used;
        }
    }
    bytes
}

/// Sends `bytes` of the stream, one segment at a time until each is acknowledged, and reads them at the host.
fn sing(end: &mut End, stand: &mut Stand, bytes: u32) {
    let goal = end.acknowledged + bytes;
    for _ in 0..1000 {
        if end.read >= goal {
            return;
        }
        end.next = end.acknowledged;
        let header = end.header();
        let count = (goal - end.acknowledged).min(1000) as usize;
        let payload = end.payload(header.sequence, count);
        end.send(stand, &header, &[], &payload);
        end.read(stand, 65536);
        stand.pass(Duration::from_millis(50));
        hear(end, stand);
    }
    panic!("the stream stands at {} of {goal}", end.read);
}

#[test]
fn a_million_syns_hold_only_a_backlog_and_harm_no_stream() {
    let mut stand = stand();
    let mut good = peer(&mut stand, 4000, Options::NONE);
    for number in 0..1_000_000_u32 {
        let source = Ipv4Addr::from(0x0a40_0000 | number >> 3);
        let ends = (SocketAddr::new(source.into(), 1 + (number & 7) as u16), good.remote);
        let header = Header {
            source_port: ends.0.port(),
            sequence: Sequence(number),
            acknowledgment: Sequence(0),
            flags: Flags::SYN,
            ..good.header()
        };
        stand.packet(&craft::tcp(ends, &header, &[], b""));
        if number.is_multiple_of(20_000) {
            stand.sent.retain(|packet| packet[16..20] == PEER.octets());
            sing(&mut good, &mut stand, 500);
            let backlog = stand.board.counter("tcp", "syns_in");
            assert!(stand.board.sessions() <= 1 + 128, "{backlog} taken");
        }
        stand.sent.retain(|packet| packet[16..20] == PEER.octets());
    }
    assert!(good.read > 50 * 500);
    // A connection attempt after the attack succeeds, at the latest once the half-open connections have
    // expired.
    stand.pass(Duration::from_secs(300));
    stand.sent.clear();
    let mut late = peer(&mut stand, 4001, Options::NONE);
    sing(&mut late, &mut stand, 5000);
    for end in [&good, &late] {
        stand.board.host().abort(end.stream).expect("it is open");
    }
    stand.drain();
    stand.finish();
}

#[test]
fn exhausting_the_ports_is_refused_and_harms_no_stream() {
    let mut stand = stand();
    let mut good = peer(&mut stand, 4000, Options::NONE);
    let remote = SocketAddr::new(PEER.into(), 9);
    let mut streams = Vec::new();
    let refused = loop {
        match stand.board.host().open(remote) {
            Ok(stream) => streams.push(stream),
            Err(refused) => break refused,
        }
        stand.drain();
        stand.sent.clear();
    };
    assert_eq!(refused, HostError::Tcp(Refusal::TooMany));
    assert!(streams.len() > 16_000, "{} streams", streams.len());
    sing(&mut good, &mut stand, 5000);
    streams.drain(..).for_each(|stream| stand.board.host().abort(stream).expect("it is there"));
    stand.drain();
    let again = stand.board.host().open(remote).expect("ports are free again");
    for stream in [again, good.stream] {
        stand.board.host().abort(stream).expect("it is there");
    }
    stand.drain();
    stand.finish();
}

/// Savage et al. 1999, attack 1 (ACK division): acknowledging one segment in a hundred pieces does not grow
/// the window faster than one ACK (RFC 3465).
#[test]
fn ack_division_does_not_grow_the_congestion_window_faster() {
    let mut stand = stand();
    let mss = Some(1460);
    let mut end = peer(&mut stand, 4000, Options { mss, window_shift: Some(7), ..Options::NONE });
    end.write(&mut stand, 200_000);
    hear(&mut end, &mut stand);
    let window = |stand: &mut Stand, end: &End| {
        stand.board.host().info(end.stream).expect("open").congestion_window_bytes
    };
    let before = window(&mut stand, &end);
    for piece in 1..=100 {
        acknowledge(&mut end, &mut stand, 1 + piece * 14, |_| {});
    }
    let grown = window(&mut stand, &end) - before;
    assert!(grown <= 1460, "1400 acknowledged bytes opened the window by {grown}");
}

/// Attack 2 (duplicate ACK spoofing): without SACK, each duplicate may release a segment (RFC 5681 §3.2), but
/// no more segments than were outstanding.
#[test]
fn spoofed_duplicate_acks_do_not_inflate_the_window() {
    for sack_permitted in [false, true] {
        let mut stand = stand();
        let options = Options { mss: Some(1460), window_shift: Some(7), sack_permitted, ..Options::NONE };
        let mut end = peer(&mut stand, 4000, options);
        end.write(&mut stand, 200_000);
        hear(&mut end, &mut stand);
        let flight = end.board_sent;
        for _ in 0..2000 {
            acknowledge(&mut end, &mut stand, 1, |_| {});
        }
        assert!(end.board_sent <= 2 * flight, "{} bytes out of {flight}", end.board_sent);
    }
}

/// Attack 3 (optimistic ACKs): an ACK of unsent data is counted, answered and ignored (RFC 9293 §3.10.7.4).
#[test]
fn an_optimistic_ack_is_answered_with_the_current_state() {
    let mut stand = stand();
    let mut end = peer(&mut stand, 4000, Options { mss: Some(1460), ..Options::NONE });
    end.write(&mut stand, 200_000);
    hear(&mut end, &mut stand);
    let (sent, before) = (end.board_sent, stand.board.counter("tcp", "acks_of_unsent_data"));
    for ahead in [1, 1460, 100_000, 1 << 30] {
        acknowledge(&mut end, &mut stand, sent + ahead, |_| {});
    }
    assert_eq!(end.board_sent, sent, "nothing follows from a lie");
    assert_eq!(stand.board.counter("tcp", "acks_of_unsent_data"), before + 4);
}

/// The peer sends SACK blocks for bytes that are not outstanding, inverted blocks, and blocks that cover
/// everything.
#[test]
fn false_sack_blocks_are_ignored_and_the_stream_is_intact() {
    let mut stand = stand();
    let options = Options { mss: Some(1460), sack_permitted: true, window_shift: Some(7), ..Options::NONE };
    let mut end = peer(&mut stand, 4000, options);
    end.write(&mut stand, 60_000);
    hear(&mut end, &mut stand);
    let flight = end.board_sent;
    let lies =
        [(0, 0), (5000, 1), (1, u32::MAX), (1 << 31, 1 << 30), (flight + 1, flight + 5000), (1, flight)];
    for (left, right) in lies {
        acknowledge(&mut end, &mut stand, 1, |header| {
            let base = Sequence(header.acknowledgment.0.wrapping_sub(1));
            header.options.sack.push(SackBlock { left: base + left, right: base + right });
        });
    }
    assert!(end.board_sent <= 2 * flight);
    // The receiver reneges (RFC 2018 §8): everything is retransmitted until it is acknowledged.
    let mut goal = 0;
    while goal < 60_001 {
        stand.tick();
        hear(&mut end, &mut stand);
        goal = (goal + 1460).min(60_001).max(end.board_sent.min(goal + 20_000));
        let place = goal.min(end.board_sent);
        acknowledge(&mut end, &mut stand, place, |_| {});
        goal = place;
        if stand.board.host().info(end.stream).map_or(0, |info| info.queued_bytes) == 0 {
            break;
        }
    }
    assert_eq!(end.board_sent, 60_001);
}

/// Segments of one byte would cost the board a thousand times as much work, so it ignores an MSS below 64.
#[test]
fn a_tiny_mss_is_raised_to_the_minimum() {
    for mss in [0, 1, 63] {
        let mut stand = stand();
        let mut end = peer(&mut stand, 4000, Options { mss: Some(mss), ..Options::NONE });
        end.write(&mut stand, 640);
        assert!(stand.sent.len() <= 10, "{} segments", stand.sent.len());
        assert_eq!(hear(&mut end, &mut stand), 640);
    }
}

/// The peer's window shrinks and grows. Data beyond the window is not retransmitted repeatedly, and the
/// stream continues when the window opens.
#[test]
fn a_window_that_shrinks_and_grows_loses_nothing() {
    let mut stand = stand();
    let mut end = peer(&mut stand, 4000, Options { mss: Some(1460), ..Options::NONE });
    end.write(&mut stand, 100_000);
    let mut seen = hear(&mut end, &mut stand);
    let mut input = Input::new(&[7; 1000]);
    for round in 0..200_u32 {
        let window = [0, 1, 500, 1459, 3000, 60_000][round as usize % 6];
        end.window = window;
        let place = end.board_sent.saturating_sub(u32::from(input.byte()) * (round % 3));
        acknowledge(&mut end, &mut stand, place.max(1), |_| {});
        stand.pass(Duration::from_millis(300));
        seen += hear(&mut end, &mut stand);
    }
    end.window = 60_000;
    for _ in 0..40 {
        let place = end.board_sent;
        acknowledge(&mut end, &mut stand, place, |_| {});
        stand.pass(Duration::from_millis(300));
        seen += hear(&mut end, &mut stand);
    }
    assert_eq!(end.board_sent, 1 + 100_000);
    assert!(seen < 3 * 100_000, "{seen} bytes were sent");
}

/// The urgent pointer advances by one byte with every segment. The host gets one completion per burst, not a
/// thousand.
#[test]
fn a_flood_of_urgent_pointers_makes_one_completion_per_burst() {
    let mut stand = stand();
    let mut end = peer(&mut stand, 4000, Options { mss: Some(1460), ..Options::NONE });
    let burst = |end: &End| -> Vec<Vec<u8>> {
        let mark = |urgent| Header { flags: Flags::ACK | Flags::URG, urgent, ..end.header() };
        (1..=1000).map(|urgent| craft::tcp((end.local, end.remote), &mark(urgent), &[], b"")).collect()
    };
    let completion = |stand: &mut Stand| -> Vec<u32> {
        let completion = stand.completions.drain(..).filter_map(|completion| match completion {
            Completion::Urgent { bytes, .. } => Some(bytes),
            _ => None,
        });
        completion.collect()
    };
    let packets = burst(&end);
    stand.burst(&packets);
    assert_eq!(completion(&mut stand), [1000], "the highest mark");
    sing(&mut end, &mut stand, 5000);
    end.next = end.acknowledged;
    let packets = burst(&end);
    stand.burst(&packets);
    assert_eq!(completion(&mut stand), [1000], "reported again, since it has advanced");
    stand.board.host().abort(end.stream).expect("it is open");
    stand.drain();
    stand.finish();
}

/// An error that reports a smaller MTU must quote a packet in flight. Otherwise the MTU does not change (RFC
/// 5927 §7).
#[test]
fn a_forged_fragmentation_needed_error_does_not_lower_the_mtu() {
    let mut stand = stand();
    let mut end = peer(&mut stand, 4000, Options { mss: Some(1460), ..Options::NONE });
    end.write(&mut stand, 20_000);
    hear(&mut end, &mut stand);
    let report = |stand: &mut Stand, end: &End, port: u16, place: u32| {
        let mut quoted = Header { ..end.header() };
        (quoted.source_port, quoted.target_port) = (end.remote.port(), port);
        quoted.sequence = Sequence(end.board_initial.wrapping_add(place));
        let packet = craft::tcp((end.remote, end.local), &quoted, &[], &[0; 1400]);
        let header = icmp::Header::Unreachable { code: 4, next_hop_mtu: 600 };
        stand.packet(&craft::icmp(Ipv4Addr::new(10, 7, 7, 7).into(), BOARD.into(), header, &packet[..28]));
        stand.board.counter("ip", "path_mtu_lowered")
    };
    let sent = end.board_sent;
    for (port, place) in [(4000, sent), (4000, 0), (4000, 0x8000_0000), (4001, 1), (1, 1)] {
        assert_eq!(report(&mut stand, &end, port, place), 0, "port {port}, byte {place}");
    }
    assert_eq!(stand.board.counter("tcp", "icmp_errors_rejected"), 5);
    // A genuine error is accepted.
    assert_eq!(report(&mut stand, &end, 4000, 1), 1);
    assert_eq!(stand.board.host().info(end.stream).expect("open").mss, 600 - 40);
}

/// Forty peers fill their windows with data that is not read, and two thousand send nothing. One more peer
/// still has full throughput, and memory is not exhausted.
#[test]
fn unread_and_silent_streams_leave_memory_for_others() {
    for bytes in [300, 1000, 1400] {
        who_is_not_read_leaves_room(bytes);
    }
}

fn who_is_not_read_leaves_room(bytes: u32) {
    let mut stand = stand();
    let options = Options { mss: Some(1460), ..Options::NONE };
    let mut greedy: Vec<End> = (0..40).map(|n| peer(&mut stand, 5000 + n, options)).collect();
    let silent: Vec<End> = (0..2000).map(|n| peer(&mut stand, 10_000 + n, options)).collect();
    let mut good = peer(&mut stand, 4000, options);
    for _ in 0..60 {
        for end in &mut greedy {
            end.next = end.acknowledged;
            while end.next + bytes <= end.board_offered.max(1 + bytes) {
                let header = end.header();
                let payload = end.payload(header.sequence, bytes as usize);
                let arrived = end.send(&mut stand, &header, &[], &payload);
                let memory = stand.board.memory_mut();
                let left = (memory.receive.available(), memory.pdus.available());
                assert!(arrived, "there is memory for a packet: {left:?} left");
                end.next += bytes;
            }
            hear(end, &mut stand);
        }
        sing(&mut good, &mut stand, 2000);
        stand.pass(Duration::from_millis(20));
        stand.sent.clear();
    }
    let held: u32 = greedy.iter().map(|end| end.acknowledged).sum();
    assert!(held > 1 << 20, "{held} bytes are held for those whom nobody reads");
    let receive = &mut stand.board.memory_mut().receive;
    let (left, all) = (receive.available(), receive.capacity());
    assert!(left * 20 > all, "{left} of {all} pages are left");
    assert_eq!(stand.board.counter("tcp", "retransmits"), 0);
    for end in greedy.iter().chain(&silent).chain([&good]) {
        stand.board.host().abort(end.stream).expect("it is open");
    }
    stand.drain();
    stand.finish();
}
