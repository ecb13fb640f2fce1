//! How a write is passed to TCP in every profile: whole or cluster by cluster, within the send buffer or
//! beyond it.

mod common;

use common::lines::{self, Lines};
use common::{Pair, config, socket};
use kiban_base::Instant;
use kiban_board::{Completion, Input, Output, StreamId};
use kiban_tcpip::tcp::{Config, Nagle, PROFILES};
use std::time::Duration;

fn opened(tcp: &Config) -> (Pair, StreamId, StreamId) {
    let mut pair = Pair::of([0, 1].map(|side| {
        let mut config = config(side);
        config.tcp = tcp.clone();
        config
    }));
    pair.boards[1].host().listen(socket(1, 80)).unwrap();
    let near = pair.boards[0].host().open(socket(1, 80)).unwrap();
    pair.run();
    pair.completions(0);
    let [Completion::Accepted { stream: far, .. }] = pair.completions(1)[..] else { panic!("accepted") };
    (pair, near, far)
}

/// Returns the payload bytes of each packet that a board sends before the peer answers.
fn leaving(pair: &mut Pair) -> Vec<usize> {
    let mut lengths = Vec::new();
    loop {
        match pair.boards[0].poll() {
            Output::Transmit { pdu, .. } => lengths.push(pdu.len() - 40),
            Output::Completions => {}
            Output::Idle { .. } => return lengths,
        }
    }
}

#[test]
fn tcp_can_send_each_cluster_before_the_next_is_copied() {
    // After a write of 4000 bytes to an idle session, the first cluster is sent alone and full segments
    // follow. The rest waits (RFC 896).
    for (chunk, expected) in [
        (None, &[1460, 1460][..]),
        (Some(1024), &[1024, 1460, 1460]),
        (Some(2048), &[1460, 1460]),
        (Some(4096), &[1460, 1460]),
    ] {
        let (mut pair, near, _) = opened(&Config {
            copy_chunk_bytes: chunk,
            timestamps: false,
            nagle: Nagle::Classic,
            ..Config::default()
        });
        assert_eq!(pair.boards[0].host().write(near, &[7; 4000]), Ok(4000));
        assert_eq!(leaving(&mut pair), expected, "{chunk:?}");
    }
}

#[test]
fn a_system_v_stream_accepts_a_write_whole_or_not_at_all() {
    let (mut pair, near, _) = opened(&Config { mss: 1460, send_buffer_bytes: 2000, ..Config::solaris23() });
    // The send buffer holds at least two segments, which is 2920 bytes. A write is accepted while less than
    // that is queued.
    for expected in [2900, 2900, 0] {
        assert_eq!(pair.boards[0].host().write(near, &[7; 2900]), Ok(expected));
    }
}

#[test]
fn every_profile_carries_the_stream_with_small_and_large_buffers() {
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n * 7 + n / 256) as u8).collect();
    for name in PROFILES {
        // Written by copying, or put into the board's pages.
        for (buffer, is_direct) in
            [2000, 5000, 60_000].map(|buffer| [(buffer, false), (buffer, true)]).concat()
        {
            let profile = Config::profile(name).expect("it has a name");
            let tcp = Config { send_buffer_bytes: buffer, receive_buffer_bytes: buffer, ..profile };
            let (mut pair, near, far) = opened(&tcp);
            let (mut sent, mut got, mut target) = (0, Vec::new(), vec![0; 9000]);
            let mut blocked = false;
            while got.len() < bytes.len() {
                // A writer whose write was partial waits for the completion, as an application does.
                blocked &= !pair.completions(0).contains(&Completion::Writable { stream: near });
                while !blocked && sent < bytes.len() {
                    let end = bytes.len().min(sent + 3333);
                    let mut host = pair.boards[0].host();
                    if is_direct {
                        let taken = host.write_from(near, end - sent, |parts| fill(parts, &bytes[sent..end]));
                        match taken.unwrap() {
                            Some(count) => sent += count.unwrap(),
                            None => blocked = true,
                        }
                    } else {
                        let taken = host.write(near, &bytes[sent..end]).unwrap();
                        blocked = sent + taken < end;
                        sent += taken;
                    }
                }
                let later = pair.now + Duration::from_millis(10);
                pair.run_until(later);
                while let Ok(count @ 1..) = pair.boards[1].host().read(far, &mut target) {
                    got.extend_from_slice(&target[..count]);
                }
                assert!(
                    pair.now.as_secs_f64() < 60.0,
                    "{name} {buffer}: {} of {} bytes",
                    got.len(),
                    bytes.len()
                );
            }
            assert!(got == bytes, "{name} {buffer}");
            pair.boards[0].host().close(near).unwrap();
            pair.boards[1].host().close(far).unwrap();
            let later = pair.now + Duration::from_secs(200);
            pair.run_until(later);
            assert!(pair.boards.iter_mut().all(|board| board.memory_mut().is_all_free()), "{name} {buffer}");
        }
    }
}

/// Copies bytes into parts of pages, up to 3000.
fn fill(parts: &mut [&mut [u8]], bytes: &[u8]) -> Result<usize, ()> {
    let mut rest = &bytes[..bytes.len().min(3000)];
    let most = rest.len();
    for part in parts {
        let (front, behind) = rest.split_at(part.len().min(rest.len()));
        part[..front.len()].copy_from_slice(front);
        rest = behind;
    }
    Ok(most - rest.len())
}

#[test]
fn a_failed_read_into_pages_changes_nothing() {
    let (mut pair, near, far) = opened(&Config::default());
    let mut host = pair.boards[0].host();
    assert_eq!(host.write(near, b"be"), Ok(2));
    assert_eq!(host.write_from(near, 9000, |_| Err("not yet")), Ok(Some(Err("not yet"))));
    assert_eq!(host.write_from(near, 9000, |_| Ok::<_, ()>(0)), Ok(Some(Ok(0))));
    assert_eq!(host.write_from(near, 9000, |parts| fill(parts, b"gin")), Ok(Some(Ok(3))));
    pair.run();
    let mut target = [0; 9];
    assert_eq!(pair.boards[1].host().read(far, &mut target), Ok(5));
    assert_eq!(&target[..5], b"begin");
}

/// A turn that is late commits all cells that were queued, so no end of a frame announces room any more.
#[test]
fn a_late_turn_that_empties_an_atm_port_makes_room_for_what_waits() {
    let mut lines = Lines::of([0, 1].map(|side| {
        let mut config = lines::config(side);
        lines::port_of(&mut config).circuits[0].frames_max = 2;
        config
    }));
    let (near, _) = lines.open(0, 80);
    let is_idle = |lines: &Lines| lines.boards[0].next_cell_end(0) == Instant::NEVER;
    while !is_idle(&lines) {
        lines.step(Duration::from_millis(1));
    }
    let mut late = lines.now;
    assert!(!lines.boards[0].has_made_room(0, late), "nothing waits");
    // Two segments: the port has room for one.
    assert_eq!(lines.boards[0].host().write(near, &[7; 16_384]), Ok(16_384));
    lines.drain(0);
    for (waits, bytes_min) in [(true, 8192), (false, 8192)] {
        assert!(!lines.boards[0].has_made_room(0, late), "the frame has not left");
        late += Duration::from_secs(1);
        let mut cells = Vec::new();
        lines.boards[0].cells(0, late, &mut cells);
        assert!(cells.len() * 48 > bytes_min && is_idle(&lines));
        assert_eq!(lines.boards[0].next_room(0), Instant::NEVER);
        assert_eq!(lines.boards[0].has_made_room(0, late), waits);
        lines.boards[0].handle(Input::Room, late);
        lines.drain(0);
    }
}
