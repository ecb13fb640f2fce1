//! The transfers over TCP, and the table of all rows.

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

/// Virtual time after which a transfer is abandoned.
pub(super) const PATIENCE: Duration = Duration::from_secs(24 * 3600);
/// The TCP port of the receiver.
pub(super) const PORT: u16 = 5001;
/// The number of transfers of a row in real time; its limit is measured once more.
pub(super) const ROUNDS: u64 = 3;
/// The size of the generated file, which is used if no file is given: 64 MiB.
pub const GENERATED_BYTES: u64 = 64 << 20;

/// The file to transfer.
#[derive(Clone)]
pub enum Payload {
    /// Contents in memory: generated, or read from something other than a regular file.
    Memory(Rc<[u8]>),
    /// A regular file and its length in bytes; it is read during the transfer.
    File(Rc<File>, u64),
}

impl Payload {
    /// Generates `bytes` pseudo-random bytes; the same length always gives the same contents.
    pub fn generated(bytes: u64) -> Payload {
        let mut rng = kiban_base::SimRng::from_seed(bytes);
        let mut noise = Vec::with_capacity(bytes as usize + 8);
        while (noise.len() as u64) < bytes {
            noise.extend_from_slice(&rng.draw().to_le_bytes());
        }
        noise.truncate(bytes as usize);
        Payload::Memory(noise.into())
    }

    /// Opens a file. A file that has no length (a pipe, a device) is read into memory up to its end.
    ///
    /// # Errors
    /// Returns the operating system's error, or `IsADirectory`.
    pub fn open(path: &Path) -> io::Result<Payload> {
        let mut file = File::open(path)?;
        let about = file.metadata()?;
        if about.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory, expected a file"));
        }
        // Files in /proc report a length of 0 although they have contents: read them like pipes.
        if about.is_file() && about.len() > 0 {
            return Ok(Payload::File(Rc::new(file), about.len()));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(Payload::Memory(bytes.into()))
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Payload::Memory(bytes) => bytes.len() as u64,
            Payload::File(_, bytes) => *bytes,
        }
    }

    /// Returns whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn read(&self, at: u64, target: &mut [u8]) -> io::Result<()> {
        match self {
            Payload::Memory(bytes) => {
                let at = at as usize;
                target.copy_from_slice(&bytes[at..at + target.len()]);
                Ok(())
            }
            Payload::File(file, _) => file.read_exact_at(target, at),
        }
    }
}

/// One transfer of the tour.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The sending board: 0 or 1.
    pub sender: usize,
    /// Concurrent TCP sessions; the file is split into as many parts.
    pub sessions: usize,
    /// The TCP window in bytes.
    pub window_bytes: u32,
}

/// The transfers over TCP: one session in each direction, then sixty in each direction.
pub const TRANSFERS: [Transfer; 4] = [
    Transfer { sender: 0, sessions: 1, window_bytes: 256 << 10 },
    Transfer { sender: 1, sessions: 1, window_bytes: 256 << 10 },
    Transfer { sender: 0, sessions: 60, window_bytes: 256 << 10 },
    Transfer { sender: 1, sessions: 60, window_bytes: 256 << 10 },
];

/// One row of the tour's result. Keys and units are stable; `docs/tour.md` describes them.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The kind of board: `atm`, `vi`, `rdma` or `osi`.
    pub board: &'static str,
    /// The protocol stack, from the host down.
    pub stack: &'static str,
    /// The operation, for example `file 0 to 1`.
    pub operation: String,
    /// Concurrent TCP sessions.
    pub sessions: usize,
    /// Bytes transferred.
    pub bytes: u64,
    /// Whether the SHA-256 of every received part equals that of the part that was sent.
    pub sha256_equal: bool,
    /// The clock of `virtual_seconds`: `virtual` or `real`.
    pub clock: &'static str,
    /// Seconds from the first connection request to the last byte at the receiving host.
    pub virtual_seconds: f64,
    /// Goodput in Mbit/s: the file's bits divided by `virtual_seconds`; `None` for an empty file.
    pub mbps: Option<f64>,
    /// The highest rate that the line can carry in segments of this size, Mbit/s.
    pub limit_mbps: f64,
    /// `mbps` as a percentage of `limit_mbps`; `None` if a transfer in real time was faster than every
    /// measurement of its limit.
    pub limit_percent: Option<f64>,
    /// In real time, the lowest and the highest goodput of several transfers, Mbit/s.
    pub mbps_range: Option<[f64; 2]>,
    /// In real time, the lowest and the highest measurement of the limit, Mbit/s.
    pub limit_mbps_range: Option<[f64; 2]>,
    /// The throughput that the paper reports for this set-up, Mbit/s.
    pub paper_mbps: Option<f64>,
    /// Bytes that the boards copied, for any reason, per byte of the file.
    pub copies_per_byte: Option<f64>,
    /// Retransmissions of TCP, EFE, LAPB or VI on both boards.
    pub retransmissions: u64,
    /// CPU time of both boards per PDU that either board sent, nanoseconds.
    pub cpu_ns_per_pdu: f64,
    /// Wall-clock time of the whole transfer, seconds.
    pub wall_seconds: f64,
    /// Cells that left the sending board; for VI, packets; for RDMA, DDP segments; for FTAM over X.25,
    /// frames; for FTAM in loopback, TPDUs.
    pub cells: u64,
    /// CPU time of both boards per byte of the file, nanoseconds.
    pub cpu_ns_per_byte: Option<f64>,
    /// SHA-256 of the received file; with several sessions, of the concatenated hashes of the parts.
    pub sha256: String,
}

/// Why a transfer failed.
#[derive(Debug)]
pub enum Failure {
    /// Reading the file failed during the transfer.
    Reading(io::Error),
    /// Writing a capture failed.
    Capturing(io::Error),
    /// The transfer stalled, which is a bug; the text describes the state.
    Halted(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Reading(error) => write!(f, "cannot read the file: {error}"),
            Failure::Capturing(error) => write!(f, "cannot write the capture: {error}"),
            Failure::Halted(what) => write!(f, "the transfer stalled, please report this bug: {what}"),
        }
    }
}

impl std::error::Error for Failure {}

pub(super) type Shared<T> = Rc<RefCell<T>>;

/// Where captures are written.
#[derive(Clone, Debug)]
pub struct Captures {
    /// The directory.
    pub folder: PathBuf,
    /// The size at which a capture file ends; later packets are left out.
    pub file_bytes_max: u64,
    /// The number of files that [`run`] wrote.
    pub files: usize,
    /// The number of these files that lack packets because of `file_bytes_max`.
    pub files_cut: usize,
    /// The size of these files together.
    pub bytes: u64,
}

/// Runs one transfer. Calls `progress` with the number of bytes received so far.
///
/// # Errors
/// See [`Failure`].
pub fn run(
    leg: Transfer,
    cargo: &Payload,
    mut pcap: Option<&mut Captures>,
    progress: &mut dyn FnMut(u64),
) -> Result<Row, Failure> {
    let plan = Plan::with_window(leg.window_bytes);
    let mut pair = Pair::new(&plan);
    let scale = TickScale::calibrate();
    pair.world.set_tick_source(ticks);
    let read_error: Shared<Option<io::Error>> = Rc::default();
    let captures = pcap.as_deref().map_or(Ok(Vec::new()), |to| set_taps(&mut pair, leg, to))?;
    let (sender, receiver) = (pair.boards[leg.sender], pair.boards[1 - leg.sender]);

    let sent: Vec<Shared<Sha256>> = (0..leg.sessions).map(|_| Rc::default()).collect();
    let streams = (0..leg.sessions)
        .map(|part| {
            let (from, to) = part_of(cargo.len(), leg.sessions, part);
            (to - from, source(cargo.clone(), from, sent[part].clone(), read_error.clone()))
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
    let done = watch(&mut pair.world, &arrived, &read_error, progress)?;
    let wall_seconds = clock.now().as_secs_f64();
    for capture in &captures {
        let capture = &mut *capture.borrow_mut();
        capture.finish()?;
        if let Some(pcap) = &mut pcap {
            pcap.files += 1;
            pcap.files_cut += usize::from(capture.room_bytes == 0);
            pcap.bytes += capture.bytes;
        }
    }
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
    // Streams may be accepted in a different order than they were opened: match them by the sender's port.
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
        mbps_range: None,
        limit_mbps_range: None,
        paper_mbps: mbps.and((leg.sessions == 1 && leg.window_bytes == 256 << 10).then_some(133.4)),
        copies_per_byte: per_byte(copied(&boards) as f64),
        retransmissions: total("tcp", "retransmits"),
        cpu_ns_per_pdu: cpu_nanos / pdus.max(1) as f64,
        wall_seconds,
        cells: pair.world.line(pair.sending[leg.sender]).cells(),
        cpu_ns_per_byte: per_byte(cpu_nanos),
        sha256,
    })
}

/// Runs a world until its programs are done or [`PATIENCE`] has passed, and reports progress. Returns whether
/// the programs are done.
pub(super) fn watch(
    world: &mut World,
    arrived: &Shared<u64>,
    read_error: &Shared<Option<io::Error>>,
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
    match read_error.borrow_mut().take() {
        Some(error) => Err(Failure::Reading(error)),
        None => Ok(done),
    }
}

/// Returns the offsets at which a part of the file begins and ends.
fn part_of(bytes: u64, parts: usize, part: usize) -> (u64, u64) {
    let edge = |part: usize| (u128::from(bytes) * part as u128 / parts as u128) as u64;
    (edge(part), edge(part + 1))
}

pub(super) fn source(
    cargo: Payload,
    from: u64,
    hasher: Shared<Sha256>,
    read_error: Shared<Option<io::Error>>,
) -> Source {
    Box::new(move |at, target| {
        if let Err(error) = cargo.read(from + at, target) {
            // The transfer continues with zeros and is reported as failed.
            target.fill(0);
            read_error.borrow_mut().get_or_insert(error);
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

/// A capture file; the first write error is kept and reported by `finish`.
struct Capture {
    path: PathBuf,
    file: io::BufWriter<File>,
    /// The number of bytes that may still be written.
    room_bytes: u64,
    /// The number of bytes that were written.
    bytes: u64,
    failure: Option<io::Error>,
}

impl Capture {
    /// Writes the file's header or a record. After the first record without room, writes no more.
    fn write(&mut self, bytes: &[u8]) {
        self.room_bytes = self.room_bytes.saturating_sub(bytes.len() as u64);
        if self.room_bytes > 0 {
            self.bytes += bytes.len() as u64;
            let outcome = self.file.write_all(bytes);
            self.check(outcome);
        }
    }

    fn check(&mut self, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            self.failure.get_or_insert(error);
        }
    }

    /// Flushes the file and returns the first error of this capture.
    fn finish(&mut self) -> Result<(), Failure> {
        let outcome = self.file.flush();
        self.check(outcome);
        self.failure.take().map_or(Ok(()), |error| Err(capturing(&self.path, &error)))
    }
}

fn capturing(path: &Path, error: &io::Error) -> Failure {
    Failure::Capturing(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Puts a tap on the receiving line of each board; each tap writes a capture.
fn set_taps(pair: &mut Pair, leg: Transfer, to: &Captures) -> Result<Vec<Shared<Capture>>, Failure> {
    let Captures { folder, file_bytes_max, .. } = to;
    std::fs::create_dir_all(folder).map_err(|error| capturing(folder, &error))?;
    let mut captures = Vec::new();
    for side in 0..2 {
        let (from, into) = (leg.sender, 1 - leg.sender);
        let path =
            folder.join(format!("atm-{}-sessions-{from}-to-{into}-at-board-{side}.pcap", leg.sessions));
        let file = io::BufWriter::new(File::create(&path).map_err(|error| capturing(&path, &error))?);
        let capture = Capture { path, file, room_bytes: *file_bytes_max, bytes: 0, failure: None };
        let capture = Rc::new(RefCell::new(capture));
        captures.push(capture.clone());
        let sink = move |bytes: &[u8]| capture.borrow_mut().write(bytes);
        pair.world.line(pair.receiving[side]).set_tap(Tap::new(side as u8, Box::new(sink)));
    }
    Ok(captures)
}

/// The state of the programs after the transfer.
struct Ends {
    received: Vec<Received>,
    locals: Vec<Option<std::net::SocketAddr>>,
}

fn ends(pair: &mut Pair, leg: Transfer) -> Ends {
    let receivers = pair.world.take_programs(pair.boards[1 - leg.sender]);
    let senders = pair.world.take_programs(pair.boards[leg.sender]);
    let receiver = receivers.first().and_then(|program| program.as_any().downcast_ref::<Receiver>());
    let sender = senders.first().and_then(|program| program.as_any().downcast_ref::<Sender>());
    Ends {
        received: receiver.map(Receiver::received).unwrap_or_default(),
        locals: sender.map(Sender::locals).unwrap_or_default(),
    }
}

/// Returns the number of bytes that the boards copied, for any reason.
pub(super) fn copied(boards: &[&Board]) -> u64 {
    let mut total = 0;
    for board in boards {
        board.copies().each(&mut |_, bytes| total += bytes);
    }
    total
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Formats nanoseconds. Values from 100,000 on are shown in thousands, so that the column stays narrow on
/// slow machines.
fn nanos(nanos: f64) -> String {
    if nanos < 99_999.5 { figure(nanos) } else { format!("{:.0}k", nanos / 1e3) }
}

/// The lines below the table.
const LEGEND: [&str; 4] = [
    "goodput  Mbit/s in simulated time (OS, loop: real time); paper: as published; x60: 60 TCP sessions",
    "% limit  goodput in % of the link's capacity (OS: of a bare TCP stream; loop: of a copy in memory)",
    "kcells   thousands of cells sent (VI: packets; write, read: DDP segments; X.25: frames; loop: TPDUs)",
    "copies   bytes copied per byte of the file; ns: CPU time per PDU and per byte; wall: elapsed seconds",
];

/// Describes the ranges of a row in real time.
fn spread(row: &Row) -> Option<String> {
    let ([low, high], limits) = (row.mbps_range?, row.limit_mbps_range?);
    let limit = if row.board == "osi" { "copies in memory" } else { "bare TCP streams" };
    let why = match row.limit_percent {
        Some(_) => String::new(),
        None => format!("; no percentage, because it was faster than all {limit}"),
    };
    Some(format!(
        "{}: {} to {} Mbit/s in {ROUNDS} transfers; {} to {} in {} {limit} before, between and after \
         them{why}",
        row.operation,
        figure(low),
        figure(high),
        figure(limits[0]),
        figure(limits[1]),
        ROUNDS + 1
    ))
}

/// Returns the table of `rows`, at most 100 columns wide.
pub fn table(rows: &[Row]) -> Table {
    let bytes = rows.first().map_or(0, |row| row.bytes);
    let title = format!("File transfer between two boards: {:.1} MB", bytes as f64 / 1e6);
    let mut table = Table::new(title)
        .text_column("transfer")
        .number_column("goodput")
        .number_column("% limit")
        .number_column("paper")
        .number_column("kcells")
        .number_column("retransmits")
        .number_column("copies")
        .number_column("ns/PDU")
        .number_column("ns/B")
        .number_column("wall")
        .text_column("SHA-256");
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
        if let Some(spread) = spread(row) {
            percent.push_str(&table.note(spread));
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

    fn tour(leg: Transfer, cargo: &Payload) -> Row {
        run(leg, cargo, None, &mut |_| {}).expect("a tour that ends")
    }

    #[test]
    fn a_file_arrives_intact_and_the_row_reports_it() {
        let cargo = Payload::generated(3_000_000);
        for leg in TRANSFERS {
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
            let row = tour(TRANSFERS[2], &Payload::generated(bytes));
            assert!(row.sha256_equal, "{bytes} bytes");
            assert_eq!(row.mbps.is_some(), bytes > 0);
        }
    }

    #[test]
    fn on_a_slow_machine_the_table_is_no_wider() {
        let row = tour(TRANSFERS[0], &Payload::generated(10));
        for (pdu, byte, shown) in [(93_596.2, 2.499, "93,596"), (1_557_052.0, 129.977, "1557k")] {
            let slow = Row {
                operation: "FTAM X.25".into(),
                limit_percent: Some(99.997),
                cpu_ns_per_pdu: pdu,
                cpu_ns_per_byte: Some(byte),
                wall_seconds: 99.0,
                ..row.clone()
            };
            // The table holds only this row, because the CPU time of a row in real time differs from machine
            // to machine.
            let text = table(&[slow]).to_string();
            assert!(text.contains(shown) && text.lines().all(|line| line.chars().count() <= 100), "{text}");
        }
    }

    #[test]
    fn parts_cover_a_file_without_gaps() {
        for (bytes, parts) in [(0, 3), (7, 60), (100, 60), (u64::MAX / 2, 7)] {
            let edges: Vec<_> = (0..parts).map(|part| part_of(bytes, parts, part)).collect();
            assert!(edges.windows(2).all(|pair| pair[0].1 == pair[1].0));
            assert_eq!((edges[0].0, edges[parts - 1].1), (0, bytes));
        }
    }

    #[test]
    fn the_rows_have_the_documented_keys_and_no_others() {
        let row = serde_json::to_value(tour(TRANSFERS[0], &Payload::generated(10))).unwrap();
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
