//! The tour: a real file between two boards, one way and the other, and what it cost.
//!
//! Goal      one row a transfer: did the file arrive whole, how fast in virtual time against what the line
//!           can do, what was copied, what the processor spent, how long one had to wait.
//! Setting   paper \[1\]'s: two boards with TCP/IP on board, OC-3c lines, an ATM switch between them.
//! Honest    virtual figures are exact; processor time is measured while the transfer runs, on the machine as
//!           it is. A percentage of a virtual limit counts only where the run was faster than what it
//!           simulates: a row says so otherwise.

pub mod osi;
pub mod rdma;
pub mod vi;

use crate::limits;
use crate::table::{Table, figure};
use kiban_base::Instant;
use kiban_board::Board;
use kiban_os::clock::{Clock, TickScale, ticks};
use kiban_sim::program::{Received, Receiver, Sender, Sink, Source};
use kiban_sim::{Pair, Plan, Tap, World};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Virtual time after which a transfer is given up.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);
/// The TCP port that receives.
const PORT: u16 = 5001;
/// The generated file when none is given: 64 MiB.
pub const GENERATED_BYTES: u64 = 64 << 20;

/// The file that is moved.
#[derive(Clone)]
pub enum Cargo {
    /// In memory: generated, or read from something that is no plain file.
    Memory(Rc<[u8]>),
    /// A plain file of so many bytes, read where it lies.
    File(Rc<File>, u64),
}

impl Cargo {
    /// Noise of so many bytes, always the same.
    pub fn generated(bytes: u64) -> Cargo {
        let mut chance = kiban_base::SimRng::from_seed(bytes);
        let mut noise = Vec::with_capacity(bytes as usize + 8);
        while (noise.len() as u64) < bytes {
            noise.extend_from_slice(&chance.draw().to_le_bytes());
        }
        noise.truncate(bytes as usize);
        Cargo::Memory(noise.into())
    }

    /// Opens a file. Something that has no length of its own (a pipe) is read to its end.
    ///
    /// # Errors
    /// What the operating system says; a directory is refused.
    pub fn open(path: &Path) -> io::Result<Cargo> {
        let mut file = File::open(path)?;
        let about = file.metadata()?;
        if about.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory, name a file"));
        }
        // Some files of the system have bytes and say they have none: those are read like pipes.
        if about.is_file() && about.len() > 0 {
            return Ok(Cargo::File(Rc::new(file), about.len()));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(Cargo::Memory(bytes.into()))
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        match self {
            Cargo::Memory(bytes) => bytes.len() as u64,
            Cargo::File(_, bytes) => *bytes,
        }
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn read(&self, at: u64, target: &mut [u8]) -> io::Result<()> {
        match self {
            Cargo::Memory(bytes) => {
                let at = at as usize;
                target.copy_from_slice(&bytes[at..at + target.len()]);
                Ok(())
            }
            Cargo::File(file, _) => file.read_exact_at(target, at),
        }
    }
}

/// One transfer of the tour.
#[derive(Clone, Copy, Debug)]
pub struct Leg {
    /// Which board sends: 0 or 1.
    pub sender: usize,
    /// Sessions at once; the file is cut into as many parts.
    pub sessions: usize,
    /// TCP's window, bytes.
    pub window_bytes: u32,
}

/// The tour: one session there and back, then sixty.
pub const LEGS: [Leg; 4] = [
    Leg { sender: 0, sessions: 1, window_bytes: 256 << 10 },
    Leg { sender: 1, sessions: 1, window_bytes: 256 << 10 },
    Leg { sender: 0, sessions: 60, window_bytes: 256 << 10 },
    Leg { sender: 1, sessions: 60, window_bytes: 256 << 10 },
];

/// One row of the tour's result. Keys and units are stable; `docs/tour.md` says what each means.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which board.
    pub board: &'static str,
    /// What it runs, from the host down.
    pub stack: &'static str,
    /// What was done.
    pub operation: String,
    /// Sessions at once.
    pub sessions: usize,
    /// Bytes of the file.
    pub bytes: u64,
    /// Whether what arrived has the SHA-256 of what was sent, part by part.
    pub sha256_equal: bool,
    /// Which clock `virtual_seconds` is by: virtual, or real.
    pub clock: &'static str,
    /// From the first connection request to the last byte at the receiving host.
    pub virtual_seconds: f64,
    /// The file's bits by `virtual_seconds`, in Mbit/s; none for an empty file.
    pub mbps: Option<f64>,
    /// What the line can carry at most in segments of this size, Mbit/s.
    pub limit_mbps: f64,
    /// `mbps` in percent of `limit_mbps`.
    pub limit_percent: Option<f64>,
    /// What the paper measured in this setting, Mbit/s.
    pub paper_mbps: Option<f64>,
    /// Bytes copied by the boards, for any reason, for each byte of the file.
    pub copies_per_byte: Option<f64>,
    /// Segments that TCP sent again.
    pub retransmissions: u64,
    /// Processor time of both boards for each PDU that one of them sent, nanoseconds.
    pub cpu_ns_per_pdu: f64,
    /// Wall-clock time of the whole transfer.
    pub wall_seconds: f64,
    /// Cells that left the sending board; of the VI board, packets; of FTAM over X.25 frames, in loopback
    /// TPDUs.
    pub cells: u64,
    /// Processor time of both boards for each byte of the file, nanoseconds.
    pub cpu_ns_per_byte: Option<f64>,
    /// SHA-256 of the file as it arrived, or of its parts one after another's hashes when there are several
    /// sessions.
    pub sha256: String,
}

/// What went wrong on the tour.
#[derive(Debug)]
pub enum Failure {
    /// The file could not be read while it was sent.
    Reading(io::Error),
    /// A capture could not be written.
    Capturing(io::Error),
    /// The transfer came to a halt: a bug, with what is known.
    Halted(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Reading(error) => write!(f, "the file could not be read to its end: {error}"),
            Failure::Capturing(error) => write!(f, "the capture could not be written: {error}"),
            Failure::Halted(what) => write!(f, "the transfer came to a halt, which is a bug: {what}"),
        }
    }
}

impl std::error::Error for Failure {}

type Shared<T> = Rc<RefCell<T>>;

/// Runs one transfer. `progress` hears of the bytes that have arrived.
///
/// # Errors
/// See [`Failure`].
pub fn run(
    leg: Leg,
    cargo: &Cargo,
    pcap: Option<&Path>,
    progress: &mut dyn FnMut(u64),
) -> Result<Row, Failure> {
    let plan = Plan::with_window(leg.window_bytes);
    let mut pair = Pair::new(&plan);
    let scale = TickScale::calibrate();
    pair.world.lend_ticks(ticks);
    let trouble: Shared<Option<io::Error>> = Rc::default();
    let captures = pcap.map_or(Ok(Vec::new()), |folder| set_taps(&mut pair, leg, folder))?;
    let (sender, receiver) = (pair.boards[leg.sender], pair.boards[1 - leg.sender]);

    let sent: Vec<Shared<Sha256>> = (0..leg.sessions).map(|_| Rc::default()).collect();
    let streams = (0..leg.sessions)
        .map(|part| {
            let (from, to) = part_of(cargo.len(), leg.sessions, part);
            (to - from, source(cargo.clone(), from, sent[part].clone(), trouble.clone()))
        })
        .collect();
    let arrived: Shared<u64> = Rc::default();
    let received: Shared<Vec<Shared<Sha256>>> = Rc::default();
    let make = {
        let (arrived, received) = (arrived.clone(), received.clone());
        Box::new(move |_| sink(arrived.clone(), &received))
    };

    let clock = Clock::new();
    pair.world.run_program(receiver, Box::new(Receiver::new(PORT, leg.sessions, make)));
    pair.world.run_program(sender, Box::new(Sender::new(Pair::socket(1 - leg.sender, PORT), streams)));
    let done = watch(&mut pair.world, &arrived, &trouble, progress)?;
    let wall_seconds = clock.now().as_secs_f64();
    captures.iter().try_for_each(|capture| capture.borrow_mut().finish())?;
    let ends = ends(&mut pair, leg);
    if !done {
        return Err(Failure::Halted(format!(
            "{:?}, {} of {} bytes",
            pair.world,
            arrived.borrow(),
            cargo.len()
        )));
    }

    let hashes = |hashers: &[Shared<Sha256>]| -> Vec<Vec<u8>> {
        hashers.iter().map(|hasher| hasher.borrow().clone().finalize().to_vec()).collect()
    };
    let (sent, received) = (hashes(&sent), hashes(&received.borrow()));
    // Streams may be accepted in another order than opened: they are told apart by the sender's port.
    let arrived_as = |part: usize| {
        let at = ends.received.iter().position(|stream| Some(stream.remote) == ends.locals[part]);
        at.and_then(|at| received.get(at))
    };
    let sha256_equal =
        received.len() == sent.len() && (0..sent.len()).all(|part| arrived_as(part) == Some(&sent[part]));
    let sha256 = match &received[..] {
        [one] => hex(one),
        many => hex(&many.iter().fold(Sha256::new(), |whole, part| whole.chain_update(part)).finalize()),
    };

    let last = ends.received.iter().map(|stream| stream.last_at).max().unwrap_or(Instant::ZERO);
    let virtual_seconds = last.as_secs_f64();
    let limit_mbps = limits::oc3c_mbps(usize::from(plan.tcp.mss), 0);
    let per_byte = |value: f64| (!cargo.is_empty()).then(|| value / cargo.len() as f64);
    let mbps = (!cargo.is_empty()).then(|| cargo.len() as f64 * 8.0 / virtual_seconds / 1e6);
    let boards = [pair.world.board(sender), pair.world.board(receiver)];
    let total = |family, name| boards.iter().map(|board| board.counter(family, name)).sum::<u64>();
    let cpu_nanos = scale.nanos(pair.world.cost().board_ticks);
    let pdus = total("segmentation", "frames_out");
    Ok(Row {
        board: "atm",
        stack: "TCP/IPv4/LLC-SNAP/AAL5/ATM/OC-3c",
        operation: format!("file {} to {}", leg.sender, 1 - leg.sender),
        sessions: leg.sessions,
        bytes: cargo.len(),
        sha256_equal,
        clock: "virtual",
        virtual_seconds,
        mbps,
        limit_mbps,
        limit_percent: mbps.map(|mbps| mbps / limit_mbps * 100.0),
        paper_mbps: mbps.and((leg.sessions == 1 && leg.window_bytes == 256 << 10).then_some(133.4)),
        copies_per_byte: per_byte(copied(&boards) as f64),
        retransmissions: total("tcp", "retransmissions"),
        cpu_ns_per_pdu: cpu_nanos / pdus.max(1) as f64,
        wall_seconds,
        cells: pair.world.line(pair.sending[leg.sender]).cells(),
        cpu_ns_per_byte: per_byte(cpu_nanos),
        sha256,
    })
}

/// Runs a world until its programs are done, or patience is at its end, and tells of the bytes that have
/// arrived: whether they are.
fn watch(
    world: &mut World,
    arrived: &Shared<u64>,
    trouble: &Shared<Option<io::Error>>,
    progress: &mut dyn FnMut(u64),
) -> Result<bool, Failure> {
    let mut looks = 0u32;
    let done = world.run_with(Instant::ZERO + PATIENCE, &mut |_| {
        looks += 1;
        if looks.is_multiple_of(256) {
            progress(*arrived.borrow());
        }
    });
    progress(*arrived.borrow());
    match trouble.borrow_mut().take() {
        Some(error) => Err(Failure::Reading(error)),
        None => Ok(done),
    }
}

/// Where a part of the file begins and ends.
fn part_of(bytes: u64, parts: usize, part: usize) -> (u64, u64) {
    let edge = |part: usize| (u128::from(bytes) * part as u128 / parts as u128) as u64;
    (edge(part), edge(part + 1))
}

fn source(cargo: Cargo, from: u64, hasher: Shared<Sha256>, trouble: Shared<Option<io::Error>>) -> Source {
    Box::new(move |at, target| {
        if let Err(error) = cargo.read(from + at, target) {
            // The transfer ends with zeros and is reported as failed.
            target.fill(0);
            trouble.borrow_mut().get_or_insert(error);
        }
        hasher.borrow_mut().update(&*target);
    })
}

fn sink(arrived: Shared<u64>, received: &Shared<Vec<Shared<Sha256>>>) -> Sink {
    let hasher: Shared<Sha256> = Rc::default();
    received.borrow_mut().push(hasher.clone());
    Box::new(move |_, bytes| {
        *arrived.borrow_mut() += bytes.len() as u64;
        hasher.borrow_mut().update(bytes);
    })
}

/// A capture being written; what goes wrong is kept until the end.
struct Capture {
    path: PathBuf,
    file: io::BufWriter<File>,
    failure: Option<io::Error>,
}

impl Capture {
    fn check(&mut self, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            self.failure.get_or_insert(error);
        }
    }

    /// Everything is on its way to the disk, or it is said why not.
    fn finish(&mut self) -> Result<(), Failure> {
        let outcome = self.file.flush();
        self.check(outcome);
        self.failure.take().map_or(Ok(()), |error| Err(capturing(&self.path, &error)))
    }
}

fn capturing(path: &Path, error: &io::Error) -> Failure {
    Failure::Capturing(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Puts a tap on both lines into the boards; each writes a capture into `folder`.
fn set_taps(pair: &mut Pair, leg: Leg, folder: &Path) -> Result<Vec<Shared<Capture>>, Failure> {
    std::fs::create_dir_all(folder).map_err(|error| capturing(folder, &error))?;
    let mut captures = Vec::new();
    for side in 0..2 {
        let (from, to) = (leg.sender, 1 - leg.sender);
        let path = folder.join(format!("atm-{}-sessions-{from}-to-{to}-at-board-{side}.pcap", leg.sessions));
        let file = io::BufWriter::new(File::create(&path).map_err(|error| capturing(&path, &error))?);
        let capture = Rc::new(RefCell::new(Capture { path, file, failure: None }));
        captures.push(capture.clone());
        let sink = move |bytes: &[u8]| {
            let mut capture = capture.borrow_mut();
            let outcome = capture.file.write_all(bytes);
            capture.check(outcome);
        };
        pair.world.line(pair.receiving[side]).set_tap(Tap::new(side as u8, Box::new(sink)));
    }
    Ok(captures)
}

/// What the programs knew when all was over.
struct Ends {
    received: Vec<Received>,
    locals: Vec<Option<std::net::SocketAddr>>,
}

fn ends(pair: &mut Pair, leg: Leg) -> Ends {
    let receivers = pair.world.take_programs(pair.boards[1 - leg.sender]);
    let senders = pair.world.take_programs(pair.boards[leg.sender]);
    let receiver = receivers.first().and_then(|program| program.as_any().downcast_ref::<Receiver>());
    let sender = senders.first().and_then(|program| program.as_any().downcast_ref::<Sender>());
    Ends {
        received: receiver.map(Receiver::received).unwrap_or_default(),
        locals: sender.map(Sender::locals).unwrap_or_default(),
    }
}

/// Bytes that the boards copied, for any reason.
fn copied(boards: &[&Board]) -> u64 {
    let mut total = 0;
    for board in boards {
        board.copies().each(&mut |_, bytes| total += bytes);
    }
    total
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Nanoseconds, in thousands where there are many: a slow machine's table is no wider.
fn nanos(nanos: f64) -> String {
    if nanos < 99_999.5 { figure(nanos) } else { format!("{:.0}k", nanos / 1e3) }
}

/// The lines below the table.
const LEGEND: [&str; 4] = [
    "goodput  Mbit/s in simulated time (OS, loop: real time); paper: as published; x60: 60 TCP sessions",
    "% limit  goodput / what the link can carry (OS: / a bare TCP stream; loop: / a copy in memory)",
    "kcells   thousands of cells sent (VI: packets; write, read: DDP segments; X.25: frames; loop: TPDUs)",
    "copies   bytes copied per byte of the file; ns: CPU time per PDU, per byte; wall: real seconds",
];

/// Returns the table of `rows`, at most 100 columns wide.
pub fn table(rows: &[Row]) -> Table {
    let bytes = rows.first().map_or(0, |row| row.bytes);
    let title = format!("File transfer between two boards: {:.1} MB", bytes as f64 / 1e6);
    let mut table = Table::new(title)
        .words("transfer")
        .numbers("goodput")
        .numbers("% limit")
        .numbers("paper")
        .numbers("kcells")
        .numbers("retransmits")
        .numbers("copies")
        .numbers("ns/PDU")
        .numbers("ns/B")
        .numbers("wall")
        .words("SHA-256");
    let or_dash =
        |value: Option<f64>, digits: usize| value.map_or("-".into(), |value| format!("{value:.digits$}"));
    for row in rows {
        let counts = row.clock == "real" || row.wall_seconds < row.virtual_seconds;
        let mut percent = or_dash(row.limit_percent, 3);
        if !counts && row.limit_percent.is_some() {
            let mark = table
                .note("the simulation ran slower than real time on this machine: disregard the percentage");
            percent.push_str(&mark);
        }
        let mut transfer = row.operation.trim_start_matches("file ").to_owned();
        if row.sessions > 1 {
            transfer = format!("{transfer} x{}", row.sessions);
        }
        if row.bytes < bytes {
            transfer.push_str(&table.note(format!("the first {:.1} MB of the file", row.bytes as f64 / 1e6)));
        }
        let verdict = if row.sha256_equal { "equal" } else { "DIFFERS" };
        table.row([
            transfer,
            or_dash(row.mbps, 2),
            percent,
            or_dash(row.paper_mbps, 1),
            figure((row.cells as f64 / 1e3).round()),
            row.retransmissions.to_string(),
            or_dash(row.copies_per_byte, 3),
            nanos(row.cpu_ns_per_pdu),
            or_dash(row.cpu_ns_per_byte, if row.cpu_ns_per_byte < Some(10.0) { 3 } else { 1 }),
            format!("{:.2}", row.wall_seconds),
            verdict.into(),
        ]);
    }
    if !rows.is_empty() {
        LEGEND.into_iter().for_each(|line| table.remark(line));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tour(leg: Leg, cargo: &Cargo) -> Row {
        run(leg, cargo, None, &mut |_| {}).expect("a tour that ends")
    }

    #[test]
    fn a_file_arrives_whole_and_the_row_says_so() {
        let cargo = Cargo::generated(3_000_000);
        for leg in LEGS {
            let row = tour(leg, &cargo);
            assert!(row.sha256_equal);
            assert_eq!((row.bytes, row.sessions, row.retransmissions), (3_000_000, leg.sessions, 0));
            assert!(row.limit_percent.unwrap() > 95.0 && row.limit_percent.unwrap() < 100.0);
            assert!((3.9..4.2).contains(&row.copies_per_byte.unwrap()), "{row:?}");
        }
    }

    #[test]
    fn an_empty_file_and_one_shorter_than_its_sessions_arrive_too() {
        for bytes in [0, 1, 59] {
            let row = tour(LEGS[2], &Cargo::generated(bytes));
            assert!(row.sha256_equal, "{bytes} bytes");
            assert_eq!(row.mbps.is_some(), bytes > 0);
        }
    }

    #[test]
    fn on_a_slow_machine_the_table_is_no_wider() {
        let row = tour(LEGS[0], &Cargo::generated(10));
        for (pdu, byte, shown) in [(93_596.2, 2.499, "93,596"), (1_557_052.0, 129.977, "1557k")] {
            let slow = Row {
                operation: "FTAM X.25".into(),
                limit_percent: Some(99.997),
                cpu_ns_per_pdu: pdu,
                cpu_ns_per_byte: Some(byte),
                wall_seconds: 99.0,
                ..row.clone()
            };
            // The table holds only this row: the measured CPU time of a real row differs from machine to machine.
            let text = table(&[slow]).to_string();
            assert!(text.contains(shown) && text.lines().all(|line| line.chars().count() <= 100), "{text}");
        }
    }

    #[test]
    fn parts_cover_a_file_without_gap() {
        for (bytes, parts) in [(0, 3), (7, 60), (100, 60), (u64::MAX / 2, 7)] {
            let edges: Vec<_> = (0..parts).map(|part| part_of(bytes, parts, part)).collect();
            assert!(edges.windows(2).all(|pair| pair[0].1 == pair[1].0));
            assert_eq!((edges[0].0, edges[parts - 1].1), (0, bytes));
        }
    }

    #[test]
    fn the_rows_have_the_documented_keys_and_no_others() {
        let row = serde_json::to_value(tour(LEGS[0], &Cargo::generated(10))).unwrap();
        let page = include_str!("../../../../docs/tour.md");
        let documented: Vec<&str> = page
            .lines()
            .skip_while(|line| !line.starts_with("| key |"))
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .collect();
        let mut keys: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = documented.clone();
        keys.sort_unstable();
        expected.sort_unstable();
        assert_eq!(keys, expected);
    }
}
