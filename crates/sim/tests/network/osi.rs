//! Files through all seven layers, on a serial line in virtual time and in internal loopback.

use kiban_base::{Instant, SimRng};
use kiban_osi::ftam::filestore::Path;
use kiban_osi::ftam::initiator::{Job, Outcome};
use kiban_osi::stack::meter::Task;
use kiban_osi::wire::ftam::{BinaryParameters, Document};
use kiban_sim::osi::{Boards, Medium, OSI_BOARD_1992, Peer, Setup};
use kiban_sim::{ImpairmentConfig, Pair, Plan, check};
use std::time::Duration;

const BINARY: Document = Document::UnstructuredBinary(BinaryParameters::NONE);

fn path(name: &str) -> Path {
    Path::read(name).expect("a name")
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut rng = SimRng::from_seed(bytes as u64);
    (0..bytes).map(|_| rng.draw() as u8).collect()
}

fn put(boards: &mut Boards, contents: &[u8]) -> Duration {
    boards.disk(0).put(&path("mine"), contents);
    let begun = boards.now();
    let job = Job::Put { local: path("mine"), remote: "theirs".into(), document: BINARY };
    assert_eq!(boards.job(job), Ok(Outcome::Done));
    assert!(boards.disk(1).contents(&path("theirs")) == Some(contents), "it arrives as it was");
    boards.now().since(begun)
}

fn get(boards: &mut Boards, contents: &[u8]) -> Duration {
    let begun = boards.now();
    let job = Job::Get { remote: "theirs".into(), local: path("back"), document: None };
    assert_eq!(boards.job(job), Ok(Outcome::Done));
    assert!(boards.disk(0).contents(&path("back")) == Some(contents), "it comes back as it was");
    boards.now().since(begun)
}

/// Transfers a file to the responder and back; returns how long each transfer took.
fn there_and_back(setup: &Setup, contents: &[u8]) -> (Boards, [Duration; 2]) {
    let mut boards = Boards::new(setup);
    boards.connect().expect("an association");
    let times = [put(&mut boards, contents), get(&mut boards, contents)];
    boards.close().expect("it is released");
    for side in 0..2 {
        assert_eq!(boards.disk(side).loose_ends(), (0, 0));
    }
    (boards, times)
}

#[test]
fn a_file_is_transferred_both_ways_over_every_medium() {
    let slow = Medium::Line {
        bits_per_second: 9600,
        delay: Duration::from_millis(250),
        impairment: ImpairmentConfig::NONE,
    };
    for (join, bytes) in [
        (Medium::line(2_000_000), 200_000),
        (Medium::line(64_000), 50_000),
        (slow, 20_000),
        (Medium::Loopback, 200_000),
    ] {
        for (fdata_bytes, tpdu_bytes) in [(8000, 2048), (100, 128), (16_384, 1024)] {
            let setup = Setup { fdata_bytes, tpdu_bytes, ..Setup::new(join) };
            let (boards, _) = there_and_back(&setup, &noise(bytes));
            if let Some(line) = boards.line(0) {
                assert_eq!(line.counters().invalid_frames, 0);
            }
        }
    }
    there_and_back(&Setup::new(Medium::line(2_000_000)), b"");
    let large = Setup { fdata_bytes: 1 << 18, tpdu_bytes: 65_531, ..Setup::new(Medium::Loopback) };
    there_and_back(&large, &noise(3_000_000));
}

#[test]
fn lost_and_corrupted_frames_are_retransmitted() {
    for (loss, bit_error, lose_every) in [(0.02, 0.0, 0), (0.0, 0.02, 0), (0.0, 0.0, 9), (0.05, 0.05, 0)] {
        let impairment = ImpairmentConfig { loss, bit_error, lose_every, ..ImpairmentConfig::NONE };
        let join = Medium::Line { bits_per_second: 2_000_000, delay: Duration::from_micros(10), impairment };
        let (boards, _) = there_and_back(&Setup::new(join), &noise(300_000));
        let module = boards.module(0).expect("on a line");
        assert!(module.link().counters().retransmits > 0, "{impairment:?}");
        assert_eq!(module.link().counters().resets, 0);
        assert_eq!(module.layer().counters().resets_for_errors, 0);
        let lines = [0, 1].map(|from| boards.line(from).expect("on a line"));
        let broken: u64 = lines.iter().map(|line| line.counters().invalid_frames).sum();
        let flipped: u64 = lines.iter().map(|line| line.impairment_counters().corrupted).sum();
        assert_eq!(broken, flipped, "the FCS finds every bit error");
    }
}

/// Two boards, a cable between them, and streams from board 0 to board 1.
#[test]
fn a_2_mbit_line_is_well_used() {
    let contents = noise(2 << 20);
    let (boards, times) = there_and_back(&Setup::new(Medium::line(2_000_000)), &contents);
    let limit_mbps = 2.0 * 8000.0 / f64::from(8000 + 23 + 4 * (3 + 8)) / (1.0 + 1.0 / 62.0);
    for time in times {
        let mbps = contents.len() as f64 * 8.0 / time.as_secs_f64() / 1e6;
        assert!((0.995 * limit_mbps..limit_mbps * 1.0005).contains(&mbps), "{mbps} of {limit_mbps}");
    }
    assert!((1.951..1.953).contains(&limit_mbps), "{limit_mbps}");
    let line = boards.line(0).expect("on a line").counters();
    let stuffed = line.stuffed_bits as f64 / (8.0 * line.bytes as f64);
    assert!((stuffed * 62.0 - 1.0).abs() < 0.02, "{stuffed}");
}

#[test]
fn the_same_setting_gives_the_same_run() {
    let impairment = ImpairmentConfig { loss: 0.03, bit_error: 0.01, ..ImpairmentConfig::NONE };
    let join = Medium::Line { bits_per_second: 2_000_000, delay: Duration::from_micros(10), impairment };
    for costs in [None, Some(OSI_BOARD_1992)] {
        let run = |seed| {
            let (boards, times) = there_and_back(&Setup { costs, seed, ..Setup::new(join) }, &noise(100_000));
            let frames = [0, 1].map(|from| *boards.line(from).expect("on a line").counters());
            (times, boards.now(), frames.map(|counters| format!("{counters:?}")), boards.spent(0))
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }
}

#[test]
fn time_passes_while_tasks_work() {
    let contents = noise(200_000);
    let costs = Some(OSI_BOARD_1992);
    let (boards, times) = there_and_back(&Setup { costs, ..Setup::new(Medium::Loopback) }, &contents);
    // Both sides share one processor, so the sum of their times equals the elapsed time, except for the last
    // step.
    let spent: Duration = (0..2).flat_map(|side| boards.spent(side)).sum();
    let end = Instant::ZERO + spent;
    assert!(end >= boards.now() && end.since(boards.now()) < Duration::from_millis(10), "{spent:?}");
    assert!(times[0] > Duration::from_millis(500), "{times:?}");

    let (boards, times) = there_and_back(&Setup { costs, ..Setup::new(Medium::line(2_000_000)) }, &contents);
    for side in 0..2 {
        let spent: Duration = boards.spent(side).iter().sum();
        assert!(boards.now() >= Instant::ZERO + spent, "side {side}");
    }
    // Doubling the costs nearly doubles the elapsed time.
    let twice = kiban_sim::osi::Costs { block: 2 * OSI_BOARD_1992.block, ..OSI_BOARD_1992 };
    let (_, slow) =
        there_and_back(&Setup { costs: Some(twice), ..Setup::new(Medium::line(2_000_000)) }, &contents);
    assert!(slow[0] > times[0].mul_f64(1.9), "{slow:?} {times:?}");
}

/// The paper's figure 3: the sender's task above the lower module polls all the time, while the receiver's
/// task does not.
#[test]
fn the_sender_polls_while_the_line_is_the_limit() {
    let mut boards =
        Boards::new(&Setup { costs: Some(OSI_BOARD_1992), ..Setup::new(Medium::line(2_000_000)) });
    boards.connect().expect("an association");
    let time = put(&mut boards, &noise(200_000));
    let lower = |side: usize| boards.spent(side)[Task::Lower as usize];
    assert!(lower(0) > 3 * lower(1), "{:?} {:?}", lower(0), lower(1));
    let busy: Duration = boards.spent(0).iter().sum();
    assert!(busy.as_secs_f64() > 0.8 * time.as_secs_f64(), "{busy:?} {time:?}");
}

/// Transfers a file over the boards' own TCP while one memory allocation is refused. Returns whether the run
/// reached that allocation.
fn check_refusal(refusal: crate::refusal::Refusal) -> bool {
    let mut pair = Pair::new(&Plan::with_window(48 << 10));
    let contents = noise(30_000);
    let job = Job::Put { local: path("mine"), remote: "theirs".into(), document: BINARY };
    let mut initiator = Peer::initiator(Pair::socket(1, 102), job, 8000, 2048);
    initiator.disk_mut().put(&path("mine"), &contents);
    let board = pair.boards[refusal.side];
    refusal.arm(pair.world.board_mut(board).memory_mut());
    pair.world.run_program(pair.boards[1], Box::new(Peer::responder(102, 8000, 2048)));
    pair.world.run_program(pair.boards[0], Box::new(initiator));
    assert!(pair.world.run(Instant::ZERO + Duration::from_secs(600)), "{refusal:?}: {:?}", pair.world);
    let [one, other] = pair.boards.map(|board| pair.world.program::<Peer>(board).expect("it runs"));
    assert!(matches!(one.ended(), Some((Ok(Outcome::Done), _))), "{refusal:?}: {:?}", one.ended());
    assert!(other.disk().contents(&path("theirs")) == Some(&contents), "{refusal:?}");
    assert_eq!(other.disk().loose_ends(), (0, 0), "{refusal:?}");
    assert_eq!(check::check_idle(&mut pair.world, &pair.boards), [], "{refusal:?}");
    refusal.has_happened(pair.world.board_mut(board).memory_mut())
}

#[test]
fn any_page_or_block_that_is_refused_delays_a_file_over_tcp_and_loses_nothing() {
    crate::refusal::each(check_refusal);
}
