//! The OSI board's rows of the tour: a file transfer by FTAM through all seven layers.
//!
//! Set-ups   X.25: two boards on a line of 2 Mbit/s as in paper \[5\] (packets of 2048 bytes, windows of 7,
//!           F-DATA of 8000 bytes), in virtual time. TCP: TPKTs over the boards' own TCP, on OC-3c lines as
//!           in the tour's first rows, in virtual time, with F-DATA of 256 KiB. Loopback: both ends on one
//!           board, connected below the transport layer, in real time, with F-DATA of 256 KiB.
//! Limits    for the lines, the payload that frames of these sizes can carry; for the loopback, the rate of a
//!           copy between two in-memory filestores, measured between several transfers (`rounds`).
//! Size      the filestores are in memory, so only the first [`PART_BYTES_MAX`] bytes of a file are
//!           transferred.
//! Copies    only the copies of TCP and ATM are counted. The seven OSI layers do not copy; each in-memory
//!           filestore makes one copy, which is not counted.

use super::{Failure, PATIENCE, PORT, Payload, Row, hex, rounds};
use crate::limits;
use kiban_base::{Instant, Rope};
use kiban_os::clock::{Clock, TickScale, ticks};
use kiban_osi::ftam::filestore::memory::MemoryDisk;
use kiban_osi::ftam::filestore::{Disk, DiskError, Path, WriteMode};
use kiban_osi::ftam::initiator::{Job, Outcome};
use kiban_osi::wire::ftam::{BinaryParameters, Document};
use kiban_osi::wire::tpkt;
use kiban_sim::osi::{Boards, Medium, Peer, Setup};
use kiban_sim::{Pair, Plan};
use sha2::{Digest, Sha256};

/// The maximum number of bytes of a file that are transferred.
pub const PART_BYTES_MAX: u64 = 64 << 20;
const LINE_BITS_PER_SECOND: u64 = 2_000_000;
/// The throughput that paper \[5\] reports for such a line, Mbit/s.
const PAPER_MBPS: f64 = 1.5;
const FDATA_BYTES: usize = 8000;
const TPDU_BYTES: usize = 2048;
/// Header bytes in front of an F-DATA: FTAM 4, presentation 15, session 4.
const FDATA_HEADER_BYTES: usize = 23;
const TPDU_HEADER_BYTES: usize = 3;
/// Framing bytes of X.25 and LAPB: packet header 3, address and control 2, FCS 2, flag 1.
const FRAME_BYTES: usize = 8;
const LARGE_FDATA_BYTES: usize = 256 << 10;
const LARGE_TPDU_BYTES: usize = 65_531;
/// Header bytes in front of a large F-DATA, where length fields take more octets: FTAM 5, presentation 18,
/// session 4.
const LARGE_FDATA_HEADER_BYTES: usize = 27;

/// The layers below transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LowerLayer {
    /// X.25 and LAPB on a line, in virtual time.
    Line,
    /// TPKTs over the board's own TCP, in virtual time.
    Tcp,
    /// The board's internal loopback, in real time.
    Loopback,
}

/// The OSI rows in the order of the table.
pub const TRANSFERS: [LowerLayer; 3] = [LowerLayer::Line, LowerLayer::Tcp, LowerLayer::Loopback];

/// Returns the name of a row.
pub fn name(over: LowerLayer) -> &'static str {
    match over {
        LowerLayer::Line => "FTAM X.25",
        LowerLayer::Tcp => "FTAM TCP",
        LowerLayer::Loopback => "FTAM loop",
    }
}

/// Returns the payload rate of the X.25 line in Mbit/s, without the bits of zero insertion.
fn line_limit_mbps() -> f64 {
    let tpdus = (FDATA_BYTES + FDATA_HEADER_BYTES).div_ceil(TPDU_BYTES - TPDU_HEADER_BYTES);
    let bytes = FDATA_BYTES + FDATA_HEADER_BYTES + tpdus * (TPDU_HEADER_BYTES + FRAME_BYTES);
    LINE_BITS_PER_SECOND as f64 * FDATA_BYTES as f64 / bytes as f64 / 1e6
}

/// Copies `contents` between two in-memory filestores. Returns the rate in Mbit/s, or 0 for an empty file.
fn disks_mbps(contents: &[u8], path: &Path) -> Result<f64, DiskError> {
    let (mut from, mut to) = (MemoryDisk::new(), MemoryDisk::new());
    from.put(path, contents);
    let clock = Clock::new();
    let (source, entry) = from.open(path)?;
    let begun = to.begin(path, WriteMode::Replace)?;
    let mut at = 0;
    while at < entry.bytes {
        let bytes = from.read(source, at, LARGE_FDATA_BYTES)?;
        let length = bytes.len() as u64;
        to.write(begun.handle, at, Rope::from(bytes))?;
        at += length;
    }
    to.finish(begun.handle, &[])?;
    Ok(contents.len() as f64 * 8.0 / clock.now().as_secs_f64() / 1e6)
}

/// Returns the payload rate of FTAM over TCP on an OC-3c line in Mbit/s: TCP's limit, less the headers above
/// it.
fn tcp_limit_mbps(plan: &Plan) -> f64 {
    let bytes = LARGE_FDATA_BYTES + LARGE_FDATA_HEADER_BYTES;
    let tpdus = bytes.div_ceil(LARGE_TPDU_BYTES - TPDU_HEADER_BYTES);
    let all = bytes + tpdus * (TPDU_HEADER_BYTES + tpkt::HEADER_BYTES);
    limits::oc3c_mbps(usize::from(plan.tcp.mss), 0) * LARGE_FDATA_BYTES as f64 / all as f64
}

/// The measurements of one row.
struct Measured {
    seconds: f64,
    wall_seconds: f64,
    limit_mbps: f64,
    received: Vec<u8>,
    copied: Option<u64>,
    /// Frames, TPDUs or cells that left the sender.
    sent: u64,
    /// PDUs that both boards sent.
    pdus: u64,
    retransmits: u64,
    cpu_ticks: u64,
}

/// Returns the file's name at both ends.
fn file() -> Path {
    Path::read("file").expect("a good name")
}

fn put() -> Job {
    let document = Document::UnstructuredBinary(BinaryParameters::NONE);
    Job::Put { local: file(), remote: "file".into(), document }
}

fn halted(what: &dyn std::fmt::Debug) -> Failure {
    Failure::Halted(format!("FTAM: {what:?}"))
}

/// Runs the transfer over X.25 or in loopback, which has no limit yet.
fn joined(over: LowerLayer, contents: &[u8]) -> Result<Measured, Failure> {
    let mut setup = Setup::new(Medium::line(LINE_BITS_PER_SECOND));
    let mut limit_mbps = line_limit_mbps();
    if over == LowerLayer::Loopback {
        limit_mbps = 0.0;
        setup = Setup {
            fdata_bytes: LARGE_FDATA_BYTES,
            tpdu_bytes: LARGE_TPDU_BYTES,
            ..Setup::new(Medium::Loopback)
        };
    }
    let mut boards = Boards::new(&Setup { ticks: Some(ticks), ..setup });
    boards.disk(0).put(&file(), contents);
    let clock = Clock::new();
    boards.connect().map_err(|failure| halted(&failure))?;
    let outcome = boards.job(put()).map_err(|failure| halted(&failure))?;
    if outcome != Outcome::Done {
        return Err(halted(&outcome));
    }
    let wall_seconds = clock.now().as_secs_f64();
    let seconds = if over == LowerLayer::Line { boards.now().as_secs_f64() } else { wall_seconds };
    let pdus = [0, 1].map(|side| match boards.line(side) {
        Some(line) => line.counters().frames,
        None => boards.files(side).stack().layers().0.counters().tpdus_out,
    });
    let received = boards.disk(1).contents(&file()).unwrap_or_default().to_vec();
    let resent = |side| boards.module(side).map_or(0, |module| module.link().counters().retransmits);
    Ok(Measured {
        seconds,
        wall_seconds,
        limit_mbps,
        received,
        copied: None,
        sent: pdus[0],
        pdus: pdus.iter().sum(),
        retransmits: resent(0) + resent(1),
        cpu_ticks: (0..2).flat_map(|side| boards.spent_ticks(side)).sum(),
    })
}

/// Runs the transfer over the boards' own TCP.
fn over_tcp(contents: &[u8]) -> Result<Measured, Failure> {
    let plan = Plan::with_window(256 << 10);
    let mut pair = Pair::new(&plan);
    pair.world.set_tick_source(ticks);
    let [sender, receiver] = pair.boards;
    let mut initiator = Peer::initiator(Pair::socket(1, PORT), put(), LARGE_FDATA_BYTES, LARGE_TPDU_BYTES);
    initiator.disk_mut().put(&file(), contents);
    let clock = Clock::new();
    pair.world.run_program(receiver, Box::new(Peer::responder(PORT, LARGE_FDATA_BYTES, LARGE_TPDU_BYTES)));
    pair.world.run_program(sender, Box::new(initiator));
    pair.world.run(Instant::ZERO + PATIENCE);
    let wall_seconds = clock.now().as_secs_f64();
    let [one, other] = pair.boards.map(|board| pair.world.program::<Peer>(board).expect("it ran"));
    let seconds = match one.ended() {
        Some((Ok(Outcome::Done), at)) => at.as_secs_f64(),
        other => return Err(halted(&other)),
    };
    let received = other.disk().contents(&file()).unwrap_or_default().to_vec();
    let boards = pair.boards.map(|board| pair.world.board(board));
    let total = |family, name| boards.iter().map(|board| board.counter(family, name)).sum::<u64>();
    let (copied, cost) = (super::copied(&boards), pair.world.cost());
    Ok(Measured {
        seconds,
        wall_seconds,
        limit_mbps: tcp_limit_mbps(&plan),
        received,
        copied: Some(copied),
        pdus: total("segmentation", "frames_out"),
        retransmits: total("tcp", "retransmits"),
        // The layers above TCP run in the host programs.
        cpu_ticks: cost.board_ticks + cost.host_ticks,
        sent: pair.world.line(pair.sending[0]).cells(),
    })
}

/// Runs one transfer. Calls `progress` with the number of bytes received, once at the end.
///
/// # Errors
/// See [`Failure`].
pub fn run(over: LowerLayer, cargo: &Payload, progress: &mut dyn FnMut(u64)) -> Result<Row, Failure> {
    let scale = TickScale::calibrate();
    let mut contents = vec![0; cargo.len().min(PART_BYTES_MAX) as usize];
    cargo.read(0, &mut contents).map_err(Failure::Reading)?;
    let row = match over {
        LowerLayer::Line | LowerLayer::Tcp => transfer(over, &contents, &scale)?,
        LowerLayer::Loopback => {
            let mut copy = || disks_mbps(&contents, &file()).map_err(|error| halted(&error));
            rounds::run(&mut copy, &mut |_| transfer(over, &contents, &scale))?
        }
    };
    progress(row.bytes);
    Ok(row)
}

/// Runs one transfer; a row in loopback has no limit.
fn transfer(over: LowerLayer, contents: &[u8], scale: &TickScale) -> Result<Row, Failure> {
    let measured = match over {
        LowerLayer::Line | LowerLayer::Loopback => joined(over, contents)?,
        LowerLayer::Tcp => over_tcp(contents)?,
    };
    let [sent, received] = [contents, &measured.received[..]].map(Sha256::digest);

    let bytes = contents.len();
    let per_byte = |value: f64| (bytes > 0).then(|| value / bytes as f64);
    let mbps = (bytes > 0).then(|| bytes as f64 * 8.0 / measured.seconds / 1e6);
    let cpu_nanos = scale.nanos(measured.cpu_ticks);
    Ok(Row {
        board: "osi",
        stack: match over {
            LowerLayer::Line => "FTAM/ACSE/Presentation/Session/TP0/X.25/LAPB",
            LowerLayer::Tcp => "FTAM/ACSE/Presentation/Session/TP0/TPKT/TCP/IPv4/LLC-SNAP/AAL5/ATM/OC-3c",
            LowerLayer::Loopback => "FTAM/ACSE/Presentation/Session/TP0",
        },
        operation: name(over).into(),
        sessions: 1,
        bytes: bytes as u64,
        sha256_equal: sent == received,
        clock: if over == LowerLayer::Loopback { "real" } else { "virtual" },
        virtual_seconds: measured.seconds,
        mbps,
        limit_mbps: measured.limit_mbps,
        limit_percent: mbps.map(|mbps| mbps / measured.limit_mbps * 100.0),
        mbps_range: None,
        limit_mbps_range: None,
        paper_mbps: mbps.and((over == LowerLayer::Line).then_some(PAPER_MBPS)),
        copies_per_byte: measured.copied.and_then(|copied| per_byte(copied as f64)),
        retransmissions: measured.retransmits,
        cpu_ns_per_pdu: cpu_nanos / measured.pdus.max(1) as f64,
        wall_seconds: measured.wall_seconds,
        cells: measured.sent,
        cpu_ns_per_byte: per_byte(cpu_nanos),
        sha256: hex(&received),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_crosses_all_seven_layers_intact() {
        for over in TRANSFERS {
            for bytes in [0, 1, 3_000_000] {
                let row = run(over, &Payload::generated(bytes), &mut |_| {}).expect("it ends");
                assert!(row.sha256_equal, "{over:?} {bytes}");
                assert_eq!((row.bytes, row.retransmissions), (bytes, 0));
                assert_eq!(row.mbps.is_some(), bytes > 0);
            }
        }
    }

    #[test]
    fn a_line_of_two_mbit_per_second_carries_almost_that() {
        let row = run(LowerLayer::Line, &Payload::generated(3_000_000), &mut |_| {}).expect("it ends");
        // The difference from 100 % has two causes: random contents need one inserted zero in 62 bits, and
        // the association takes some frames.
        assert!((97.5..98.5).contains(&row.limit_percent.expect("bytes arrived")), "{row:?}");
        assert!((1.98..1.99).contains(&row.limit_mbps), "{row:?}");
    }

    #[test]
    fn the_boards_own_tcp_fills_its_line_with_a_file() {
        let row = run(LowerLayer::Tcp, &Payload::generated(8_000_000), &mut |_| {}).expect("it ends");
        // The difference from 100 % is due to the association and slow start.
        assert!((98.0..100.0).contains(&row.limit_percent.expect("bytes arrived")), "{row:?}");
        assert!((3.9..4.2).contains(&row.copies_per_byte.expect("TCP copies")), "{row:?}");
    }

    #[test]
    fn only_part_of_a_long_file_is_transferred() {
        let row =
            run(LowerLayer::Loopback, &Payload::generated(PART_BYTES_MAX + 5), &mut |_| {}).expect("it ends");
        assert_eq!((row.bytes, row.sha256_equal), (PART_BYTES_MAX, true));
    }
}
