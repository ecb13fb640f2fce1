//! Hostile TCP segments at a board: against other hosts' streams, and in the attacker's own sessions. Other
//! streams are not affected, memory stays bounded and is freed, and nothing panics.

mod common;

use common::lines::{BAD, GOOD, Lines, attacker, config};
use common::packets::*;
use common::{address, socket};
use kiban_atm::TimedCell;
use kiban_atm::wire::aal5;
use kiban_base::SimRng;
use kiban_board::{BoardConfig, Completion, StreamId};
use kiban_tcpip::wire::tcp::{Flags, Header};
use std::net::SocketAddr;
use std::time::Duration;

const STEP: Duration = Duration::from_micros(100);

fn configs() -> [BoardConfig; 2] {
    [config(0), config(1)]
}

/// Returns the frames carried by the cells of one circuit, and the number of cells in the last, unfinished
/// frame.
fn frames_of(cells: &[TimedCell]) -> (Vec<Vec<u8>>, usize) {
    let (mut frames, mut bytes, mut done) = (Vec::new(), Vec::new(), 0);
    for (at, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.header & 0b1000 == 0) {
        bytes.extend_from_slice(&cell.payload);
        if cell.is_end() {
            frames.push(aal5::open(&bytes).expect("a board sends whole frames").1.to_vec());
            bytes.clear();
            done = at + 1;
        }
    }
    (frames, done)
}

/// Returns the TCP header in a frame, and its payload length.
fn tcp_of(frame: &[u8]) -> Option<(Header, usize)> {
    let packet = frame.get(8..)?;
    if packet.get(9) != Some(&6) {
        return None;
    }
    let (header, length) = Header::read(&packet[20..]).expect("a board sends right headers");
    Some((header, packet.len() - 20 - length))
}

/// The attacker as a TCP peer of board 1: it opens a session, and then sends arbitrary segments.
#[derive(Clone, Copy)]
struct Peer {
    local: SocketAddr,
    remote: SocketAddr,
    /// The sequence number of the attacker's next byte.
    next: u32,
    /// The sequence number that the attacker expects next from the board.
    expected: u32,
    window: u16,
}

impl Peer {
    fn open(lines: &mut Lines, port: u16, options: &[u8]) -> (Peer, StreamId) {
        let mut peer = Peer {
            local: SocketAddr::new(attacker(), port),
            remote: socket(1, 80),
            next: 0xffff_ff00,
            expected: 0,
            window: 60_000,
        };
        lines.answers[1].clear();
        let syn = peer.packet_with(peer.next, 0, Flags::SYN, options, b"");
        lines.inject(1, &syn);
        for _ in 0..10 {
            lines.step(STEP);
        }
        let answer = peer.heard(lines).into_iter().find(|(header, _)| header.flags.has(Flags::SYN));
        peer.expected = answer.expect("an answer to the SYN").0.sequence.0.wrapping_add(1);
        peer.next = peer.next.wrapping_add(1);
        lines.inject(1, &peer.packet(peer.next, peer.expected, Flags::ACK, b""));
        lines.step(STEP);
        let accepted = lines.completions(1).into_iter().find_map(|completion| match completion {
            Completion::Accepted { stream, remote, .. } if remote == peer.local => Some(stream),
            _ => None,
        });
        (peer, accepted.expect("the board takes the session"))
    }

    fn packet_with(
        &self,
        sequence: u32,
        acknowledgment: u32,
        flags: Flags,
        options: &[u8],
        payload: &[u8],
    ) -> Vec<TimedCell> {
        let segment = Segment { sequence, acknowledgment, flags, window: self.window };
        frame(BAD, &llc_ip(&tcp_packet_with(self.local, self.remote, segment, options, payload)))
    }

    fn packet(&self, sequence: u32, acknowledgment: u32, flags: Flags, payload: &[u8]) -> Vec<TimedCell> {
        self.packet_with(sequence, acknowledgment, flags, &[], payload)
    }

    /// Returns data that starts `from` bytes after our next sequence number.
    fn data(&self, from: u32, payload: &[u8]) -> Vec<TimedCell> {
        self.packet(self.next.wrapping_add(from), self.expected, Flags::ACK, payload)
    }

    fn reset(&self, from: u32) -> Vec<TimedCell> {
        self.packet(self.next.wrapping_add(from), self.expected, Flags::RST, b"")
    }

    /// Returns the segments that the board sent to the attacker, as headers and payload lengths.
    fn heard(&mut self, lines: &mut Lines) -> Vec<(Header, usize)> {
        let (frames, done) = frames_of(&lines.answers[1]);
        lines.answers[1].drain(..done);
        let ours = |(header, _): &(Header, usize)| header.target_port == self.local.port();
        frames.iter().filter_map(|frame| tcp_of(frame)).filter(ours).collect()
    }
}

/// The state of a stream, as an eavesdropper reads it from the line.
#[derive(Clone, Copy, Default)]
struct Listened {
    /// One past the last byte that board 0 sent.
    sent: u32,
    /// The highest acknowledgement of board 0.
    acknowledged: u32,
}

fn listen(lines: &mut Lines, seen: &mut usize, at: &mut Listened) {
    let sent: Vec<_> = lines.tap.as_ref().expect("a tap")[0][*seen..]
        .iter()
        .copied()
        .filter(|cell| cell.header >> 4 == 100)
        .collect();
    let (frames, done) = frames_of(&sent);
    *seen += done;
    for (header, length) in frames.iter().filter_map(|frame| tcp_of(frame)) {
        let end = header.sequence + length as u32;
        if at.sent == 0 || kiban_tcpip::wire::tcp::Sequence(at.sent).lt(end) {
            at.sent = end.0;
        }
        at.acknowledged = header.acknowledgment.0;
    }
}

#[test]
fn an_attacker_that_sees_everything_but_sends_no_data_cannot_break_a_stream() {
    for seed in 0..30 {
        let mut rng = SimRng::from_seed(seed);
        let mut lines = Lines::new();
        lines.tap = Some(Default::default());
        let (near, far) = lines.open(0, 80);
        let info = lines.boards[0].host().info(near).unwrap();
        let (mut seen, mut at) = (0, Listened::default());
        let mut challenged = 0;
        lines.carry((0, near), far, &noise(seed, 300_000), |lines, round| {
            listen(lines, &mut seen, &mut at);
            if round == 0 || at.sent == 0 {
                return;
            }
            // A sequence number in the window, but so far ahead that the stream does not reach it in this
            // step.
            let ahead = at.sent.wrapping_add(40_001 + rng.below(20_000) as u32);
            let beyond = at.sent.wrapping_add(200_000 + rng.below(1 << 30) as u32);
            let old = at.sent.wrapping_sub(200_000 + rng.below(1 << 30) as u32);
            let payload = noise(round, rng.below(2000) as usize);
            let (sequence, acknowledgment, flags, payload) = match rng.below(8) {
                0 => (ahead, at.acknowledged, Flags::RST, vec![]),
                1 => (ahead, at.acknowledged, Flags::SYN, vec![]),
                2 => (ahead, 0, Flags::SYN | Flags::ACK, vec![]),
                3 => (beyond, at.acknowledged, Flags::ACK | Flags::FIN, payload),
                4 => (old, at.acknowledged, Flags::ACK, payload),
                5 => (beyond, at.acknowledged, Flags::RST | Flags::ACK, vec![]),
                6 => (old, rng.draw() as u32, Flags(rng.draw() as u8 & !0x10), payload),
                // A segment that acknowledges unsent data is dropped, even if its data is in the window (RFC
                // 5961 §5.2).
                _ => (ahead, at.acknowledged.wrapping_add(1_000_000), Flags::ACK, payload),
            };
            challenged += 1;
            let segment = Segment { sequence, acknowledgment, flags, window: rng.draw() as u16 };
            lines.inject(1, &frame(BAD, &llc_ip(&tcp_packet(info.local, info.remote, segment, &payload))));
            // Attack the other direction with ACKs of data that was never sent, and with resets and SYNs in
            // the window.
            let (sequence, acknowledgment, flags) = match rng.below(4) {
                0 => (at.acknowledged, at.sent.wrapping_add(500_000), Flags::ACK),
                1 => (at.acknowledged.wrapping_add(999), at.sent, Flags::RST),
                2 => (at.acknowledged.wrapping_add(999), at.sent, Flags::SYN),
                _ => (at.acknowledged.wrapping_sub(70_000), rng.draw() as u32, Flags::ACK | Flags::FIN),
            };
            let segment = Segment { sequence, acknowledgment, flags, window: 0 };
            lines.inject(0, &frame(BAD, &llc_ip(&tcp_packet(info.remote, info.local, segment, b""))));
        });
        assert!(challenged > 100);
        for side in 0..2 {
            let board = &lines.boards[side];
            assert!(
                board.counter("tcp", "challenge_acks_out")
                    + board.counter("tcp", "challenge_acks_suppressed")
                    > 10,
                "board {side}"
            );
            assert_eq!(lines.boards[side].counter("tcp", "resets_in"), 0, "board {side}");
        }
        lines.close_and_check([near, far]);
    }
}

#[test]
fn replayed_frames_do_not_break_a_stream() {
    for seed in 0..10 {
        let mut rng = SimRng::from_seed(seed);
        let mut lines = Lines::new();
        lines.tap = Some(Default::default());
        let (near, far) = lines.open(0, 80);
        lines.carry((0, near), far, &noise(seed, 400_000), |lines, _| {
            for side in 0..2 {
                let sent = &lines.tap.as_ref().unwrap()[1 - side];
                let ends: Vec<_> = (0..sent.len()).filter(|at| sent[*at].is_end()).collect();
                if ends.len() > 2 {
                    let at = rng.below(ends.len() as u64 - 1) as usize;
                    // The copies are sent on the attacker's circuit, because they must not be mixed with
                    // cells of the stream's own circuit.
                    let again = sent[ends[at] + 1..=ends[at + 1]].iter().map(|old| {
                        let word = old.header & 0xf | u32::from(BAD.vci) << 4;
                        TimedCell::new(old.at, word, old.payload)
                    });
                    let again: Vec<_> = again.collect();
                    lines.inject(side, &again);
                }
            }
        });
        lines.close_and_check([near, far]);
    }
    assert_eq!(GOOD.vci, 100);
}

/// Segments of a stream arrive in any order, with any overlaps and duplicates, inside and around the window.
#[test]
fn overlapping_segments_are_read_once_and_in_order() {
    for seed in 0..40 {
        let mut rng = SimRng::from_seed(seed);
        let mut lines = Lines::new();
        lines.boards[1].host().listen(socket(1, 80)).unwrap();
        let (mut peer, stream) = Peer::open(&mut lines, 1000, &[]);
        let bytes = noise(seed, 60_000);
        let (mut got, mut buffer) = (Vec::new(), vec![0; 100_000]);
        for round in 0..20_000 {
            if got.len() == bytes.len() {
                break;
            }
            let piece = |from: usize, length: usize| {
                let from = from.min(bytes.len() - 1);
                (from as u32, &bytes[from..(from + length).min(bytes.len())])
            };
            for _ in 0..1 + rng.below(4) {
                let longest = if rng.happens(0.5) { 100 } else { 8000 };
                let length = 1 + rng.below(longest) as usize;
                let (from, payload) = match rng.below(4) {
                    // Sometimes send the missing segment, so that the stream makes progress and ends.
                    0 => piece(got.len(), length),
                    1 => piece(got.len().saturating_sub(length / 2), length),
                    2 => piece(got.len() + rng.below(30_000) as usize, length),
                    _ => piece(rng.below(bytes.len() as u64) as usize, length),
                };
                lines.inject(1, &peer.data(from, payload));
            }
            lines.step(STEP);
            if rng.happens(0.7) {
                let count = lines.boards[1].host().read(stream, &mut buffer).unwrap();
                got.extend_from_slice(&buffer[..count]);
                lines.drain(1);
            }
            assert!(got[..] == bytes[..got.len()], "seed {seed} round {round}");
            let memory = lines.boards[1].memory_mut();
            assert!(memory.pdus.available() * 2 > memory.pdus.capacity());
        }
        assert_eq!(got.len(), bytes.len(), "seed {seed}");
        peer.next = peer.next.wrapping_add(bytes.len() as u32);
        lines.inject(1, &peer.reset(0));
        lines.step(STEP);
        lines.boards[1].host().close(stream).unwrap();
        lines.pass(Duration::from_secs(100));
        lines.check_home();
    }
}

/// Where two copies of a byte differ, the first copy is delivered. No byte is delivered twice.
#[test]
fn contradictory_overlaps_give_one_consistent_stream() {
    for seed in 0..20 {
        let mut rng = SimRng::from_seed(seed);
        let mut lines = Lines::new();
        lines.boards[1].host().listen(socket(1, 80)).unwrap();
        let (peer, stream) = Peer::open(&mut lines, 1000, &[]);
        let mut buffer = vec![0; 100_000];
        let mut got = 0;
        for round in 0..300 {
            let from = got as u32 + rng.below(20_000) as u32;
            lines.inject(1, &peer.data(from, &noise(round, 1 + rng.below(3000) as usize)));
            if round % 3 == 0 {
                lines.inject(1, &peer.data(got as u32, &noise(round, 700)));
            }
            lines.step(STEP);
            got += lines.boards[1].host().read(stream, &mut buffer).unwrap();
            lines.drain(1);
        }
        assert_eq!(got as u64, lines.count("tcp", "bytes_in"));
        lines.boards[1].host().abort(stream).unwrap();
        lines.drain(1);
        lines.pass(Duration::from_secs(1));
        lines.check_home();
    }
}

#[test]
fn fifty_thousand_unread_small_segments_hold_a_few_pages() {
    let mut lines = Lines::new();
    let (near, far) = lines.open(0, 81);
    lines.boards[1].host().listen(socket(1, 80)).unwrap();
    let (mut peer, stream) = Peer::open(&mut lines, 1000, &[]);
    let bytes = noise(1, 50_000);
    let mut sent = 0;
    let good = noise(2, 1_500_000);
    lines.carry((0, near), far, &good, |lines, _| {
        for _ in 0..60.min(bytes.len() - sent) {
            lines.inject(1, &peer.data(sent as u32, &bytes[sent..sent + 1]));
            sent += 1;
        }
        let memory = lines.boards[1].memory_mut();
        // The data of the small segments, the window of the stream that is not attacked, and a margin.
        let away = memory.receive.capacity() - memory.receive.available();
        assert!(away < 50_000 / 4096 + 2 + 3 * 16 + 8, "{away} pages away");
    });
    assert_eq!(sent, bytes.len());
    assert_eq!(lines.boards[1].host().readable(stream).unwrap(), bytes.len());
    let mut buffer = vec![0; 60_000];
    let count = lines.boards[1].host().read(stream, &mut buffer).unwrap();
    assert!(buffer[..count] == bytes);
    peer.next = peer.next.wrapping_add(sent as u32);
    lines.inject(1, &peer.reset(0));
    lines.step(STEP);
    lines.boards[1].host().close(stream).unwrap();
    lines.close_and_check([near, far]);
}

#[test]
fn a_syn_flood_fills_only_the_backlog() {
    let mut config = configs();
    config[1].tcp.backlog = 20;
    let mut lines = Lines::of(config);
    let (near, far) = lines.open(0, 81);
    lines.boards[1].host().listen(socket(1, 80)).unwrap();
    lines.carry((0, near), far, &noise(1, 600_000), |lines, round| {
        for index in 0..20 {
            let local = SocketAddr::new(attacker(), (round * 20 + index) as u16);
            let syn = Segment { sequence: 1, acknowledgment: 0, flags: Flags::SYN, window: 1000 };
            lines.inject(1, &frame(BAD, &llc_ip(&tcp_packet(local, socket(1, 80), syn, b""))));
        }
        assert!(lines.boards[1].sessions() <= 21);
    });
    assert!(lines.count("tcp", "syn_cookies_sent") > 1000, "beyond the backlog nothing is remembered");
    assert_eq!(lines.boards[0].counter("tcp", "retransmits"), 0);
    // The attacker does not answer. The half-open sessions expire, and the listener accepts connections
    // again.
    lines.close_and_check([near, far]);
    let (near, far) = {
        let near = lines.boards[0].host().open(socket(1, 80)).unwrap();
        lines.drain(0);
        lines.pass(Duration::from_secs(1));
        let far = lines.completions(1).into_iter().find_map(|completion| match completion {
            Completion::Accepted { stream, .. } => Some(stream),
            _ => None,
        });
        (near, far.expect("the listener listens again"))
    };
    lines.close_and_check([near, far]);
}

/// Each session sends everything but its first byte, as single bytes with gaps between them, each in a
/// separate page.
#[test]
fn out_of_order_data_is_bounded_and_released_with_its_session() {
    let mut lines = Lines::new();
    let (near, far) = lines.open(0, 81);
    lines.boards[1].host().listen(socket(1, 80)).unwrap();
    let mut peers: Vec<_> = (0..8).map(|at| Peer::open(&mut lines, 1000 + at, &[])).collect();
    lines.carry((0, near), far, &noise(1, 2_000_000), |lines, round| {
        for (peer, _) in &peers {
            for index in 0..3u32 {
                let from = 1 + (round as u32 * 3 + index) * 2 % 15_000;
                lines.inject(1, &peer.data(from, &[7]));
            }
        }
        let memory = lines.boards[1].memory_mut();
        assert!(memory.receive.available() > 0, "there is always a page for what is in order");
        assert!(memory.pdus.available() * 2 > memory.pdus.capacity());
    });
    assert!(lines.count("tcp", "out_of_order_dropped") > 0, "memory was short, and what was early went");
    for (index, (peer, stream)) in peers.drain(..).enumerate() {
        assert_eq!(lines.boards[1].host().readable(stream).unwrap(), 0);
        // The host closes half of the sessions; the peers close the others.
        if index % 2 == 0 {
            lines.boards[1].host().abort(stream).unwrap();
            lines.drain(1);
        } else {
            lines.inject(1, &peer.reset(0));
            lines.step(STEP);
            lines.boards[1].host().close(stream).unwrap();
        }
    }
    lines.close_and_check([near, far]);
}

/// The attacker is the receiver: its window shrinks, closes or never opens, and its ACKs fall in the middle
/// of segments.
#[test]
fn a_misbehaving_receiver_holds_only_its_own_share() {
    for seed in 0..20 {
        let mut rng = SimRng::from_seed(seed);
        let mut lines = Lines::new();
        let (near, far) = lines.open(1, 81);
        lines.boards[1].host().listen(socket(1, 80)).unwrap();
        // The attacker's SYN has one of these options: none, an MSS of 1 or 0, a window shift of 255.
        let options: [&[u8]; 4] = [&[], &[2, 4, 0, 1], &[2, 4, 0, 0], &[3, 3, 255, 1]];
        let (mut peer, stream) = Peer::open(&mut lines, 1000, options[seed as usize % 4]);
        let wanted = noise(seed, 300_000);
        let (mut written, mut ended) = (0, false);
        lines.carry((1, near), far, &noise(1, 300_000), |lines, _| {
            ended |= lines
                .completions(1)
                .iter()
                .any(|completions| matches!(completions, Completion::Ended { .. }));
            if !ended {
                written += lines.boards[1].host().write(stream, &wanted[written..]).unwrap_or(0);
            }
            for (header, length) in peer.heard(lines) {
                let end = header.sequence + length as u32;
                let acknowledgment = match rng.below(5) {
                    0 => header.sequence.0,
                    1 => header.sequence.0.wrapping_add(rng.below(length as u64 + 1) as u32),
                    2 => end.0.wrapping_add(5000),
                    3 => end.0.wrapping_sub(rng.draw() as u32 % 100_000),
                    _ => end.0,
                };
                peer.window = match rng.below(4) {
                    0 => 0,
                    1 => 1,
                    2 => rng.draw() as u16,
                    _ => 60_000,
                };
                lines.inject(1, &peer.packet(peer.next, acknowledgment, Flags::ACK, b""));
            }
        });
        lines.boards[1].host().abort(stream).unwrap();
        lines.drain(1);
        lines.close_and_check([far, near]);
    }
}

/// Segments with random flags and options, with sequence numbers near the window and acknowledgements near
/// the data sent, in any state.
#[test]
fn random_segments_in_any_state_do_no_harm() {
    for seed in 0..80 {
        let mut rng = SimRng::from_seed(seed ^ 0xcafe);
        let mut lines = Lines::new();
        let (near, far) = lines.open(0, 81);
        lines.boards[1].host().listen(socket(1, 80)).unwrap();
        let (mut peer, stream) = Peer::open(&mut lines, 1000, &[]);
        let mut open = true;
        let mut buffer = vec![0; 10_000];
        lines.carry((0, near), far, &noise(seed, 100_000), |lines, round| {
            if open && rng.happens(0.02) {
                match rng.below(4) {
                    0 => lines.boards[1].host().finish(stream).unwrap(),
                    1 => {
                        lines.boards[1].host().close(stream).unwrap();
                        open = false
                    }
                    2 => {
                        lines.boards[1].host().abort(stream).unwrap();
                        open = false
                    }
                    _ => {
                        lines.boards[1].host().write(stream, &[1; 5000]).ok();
                    }
                }
                lines.drain(1);
            }
            if open && rng.happens(0.1) {
                lines.boards[1].host().read(stream, &mut buffer).unwrap();
                lines.drain(1);
            }
            for (header, length) in peer.heard(lines) {
                peer.expected = (header.sequence + length as u32).0;
                if header.flags.has(Flags::ACK) && rng.happens(0.5) {
                    peer.next = header.acknowledgment.0;
                }
            }
            for _ in 0..4 {
                let near = |rng: &mut SimRng, of: u32| match rng.below(4) {
                    0 => of,
                    1 => of.wrapping_add(rng.below(200_000) as u32),
                    2 => of.wrapping_sub(rng.below(5000) as u32),
                    _ => rng.draw() as u32,
                };
                let (sequence, acknowledgment) = (near(&mut rng, peer.next), near(&mut rng, peer.expected));
                peer.window = rng.draw() as u16;
                let options = noise(rng.draw(), 4 * rng.below(11) as usize);
                let payload = noise(round, if rng.happens(0.5) { 0 } else { rng.below(3000) as usize });
                // A reset ends the session, so it is sent only occasionally.
                let flags = rng.draw() as u8 & if rng.happens(0.9) { !0x04 } else { 0xff };
                let packet = peer.packet_with(sequence, acknowledgment, Flags(flags), &options, &payload);
                lines.inject(1, &packet);
            }
        });
        if open {
            lines.boards[1].host().abort(stream).unwrap();
            lines.drain(1);
        }
        // The random SYNs have opened sessions, which were reported to the host.
        for completion in lines.completions(1) {
            if let Completion::Accepted { stream, .. } = completion {
                lines.boards[1].host().abort(stream).ok();
                lines.drain(1);
            }
        }
        // The board gives up a silent peer after fifteen timeouts.
        lines.pass(Duration::from_secs(1000));
        assert_eq!(lines.boards[0].counter("tcp", "retransmits"), 0, "seed {seed}");
        lines.close_and_check([near, far]);
    }
}

/// Both sides of a session have the same address and port, because every packet that the board sends is
/// reflected to it unchanged.
#[test]
fn reflected_segments_open_no_connection() {
    let mut lines = Lines::new();
    let (near, far) = lines.open(0, 81);
    lines.boards[1].host().listen(socket(1, 80)).unwrap();
    let (_, stream) = Peer::open(&mut lines, 1000, &[]);
    lines.boards[1].host().write(stream, &[5; 20_000]).unwrap();
    lines.boards[1].host().ping(attacker(), 1, 1, b"mirror").unwrap();
    lines.boards[1].host().cell_loopback(0, 1).unwrap();
    lines.drain(1);
    lines.carry((0, near), far, &noise(1, 300_000), |lines, _| {
        let back = std::mem::take(&mut lines.answers[1]);
        lines.inject(1, &back);
    });
    assert!(lines.count("ip", "not_ours") > 1, "what we sent to others is not for us");
    lines.boards[1].host().abort(stream).unwrap();
    lines.close_and_check([near, far]);
    assert_eq!(address(1).to_string(), "10.0.0.2");
}
