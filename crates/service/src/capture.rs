//! A capture point on every link: records traffic while a client has a capture running. At other times it
//! costs only one flag test.
//!
//! Format           packets, frames, or cells reassembled into frames, as [`kiban_link::record`] writes them.
//! Limits           each capture has a maximum duration, number of packets, and size ([`BYTES_MAX`]).
//! End              a capture ends at a limit, on request, or when the client that started it disconnects.
//!                  Its file is then complete, and a client that is still connected receives the result.
//! Errors           a write error ends the capture, not the link.

use crate::requests::{Captured, RunningCapture};
use kiban_base::Instant;
use kiban_board::recorder::Recorder;
use kiban_link::unit::Unit;
use kiban_link::{Link, LinkContext, LinkCounters, LinkTraits};
use kiban_os::text::printable;
use kiban_os::{Flag, lock};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Size limit of a capture file, in bytes.
const BYTES_MAX: u64 = 4 << 30;

/// Parameters of a capture.
pub(crate) struct Wanted<'a> {
    /// The capture's number, unique on this board.
    pub(crate) number: u64,
    /// The port to capture.
    pub(crate) port: String,
    pub(crate) file: &'a Path,
    pub(crate) ends: Instant,
    pub(crate) packets: u64,
}

/// A capture in progress.
struct Recording {
    number: u64,
    port: String,
    path: PathBuf,
    file: BufWriter<File>,
    /// One recorder for received units and one for sent units, because frames on a circuit are reassembled
    /// separately in each direction.
    recorders: [Recorder; 2],
    begins: Instant,
    wall: u64,
    ends: Instant,
    packets_max: u64,
    packets: u64,
    bytes: u64,
    fault: Option<String>,
    /// The client that started it.
    tell: oneshot::Sender<Result<Captured, String>>,
}

impl Recording {
    /// Returns whether the capture has reached a limit.
    fn is_full(&self) -> bool {
        self.packets >= self.packets_max || self.bytes >= BYTES_MAX || self.fault.is_some()
    }

    fn is_over(&self, now: Instant) -> bool {
        self.ends <= now || self.is_full() || self.tell.is_closed()
    }

    /// Flushes the buffer, closes the file, and sends the client the result.
    fn end(mut self) -> Result<Captured, String> {
        let flushed = self.file.flush().map_err(|error| error.to_string());
        let Recording { port, path: file, packets, bytes, .. } = self;
        let outcome = match (self.fault, flushed) {
            (Some(fault), _) | (None, Err(fault)) => {
                Err(format!("{} is incomplete after {packets} packets: {fault}", shown(&file)))
            }
            (None, Ok(())) => Ok(Captured { port, file, packets, bytes }),
        };
        // The client may have disconnected.
        let _ = self.tell.send(outcome.clone());
        outcome
    }
}

/// Escapes a path supplied by a client so that it cannot break a message across lines.
fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// The capture point of one link.
#[derive(Default)]
pub(crate) struct CapturePoint {
    /// Whether a capture is running. Changed only while `recording` is locked.
    runs: Flag,
    /// Whether the capture has reached a limit. Changed only while `recording` is locked.
    is_full: Flag,
    /// After a panic during recording, the counts may include units that were not written to the file.
    recording: Mutex<Option<Recording>>,
    /// The link type for capture files; unset until the link is first opened.
    form: OnceLock<u32>,
}

impl CapturePoint {
    /// Starts a capture into a new file.
    pub(crate) fn begin(&self, wanted: Wanted<'_>, now: Instant) -> Result<RunningCapture, String> {
        let Wanted { number, port, file: path, ends, packets } = wanted;
        let mut recording = lock(&self.recording);
        if let Some(other) = &*recording {
            return Err(format!("port {port} is already being captured into {}", shown(&other.path)));
        }
        let form = *self.form.get().ok_or_else(|| format!("the link of port {port} has never been up"))?;
        let say = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => format!("{} already exists: name another file", shown(path)),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                let uid = rustix::process::geteuid().as_raw();
                let what = format!("the board's process writes the file as user {uid}");
                format!("{}: {error}: {what}: name a file that this user can create", shown(path))
            }
            _ => format!("{}: {error}", shown(path)),
        };
        let recorders = [(); 2].map(|()| Recorder::new(form));
        let mut head = Vec::new();
        recorders[0].begin(&mut head);
        let mut file = {
            // Open for writing only, because `create_new` alone would also request read access, which the
            // sandbox denies for captures.
            let mut options = File::options();
            // Only the user who runs the board may read the captured traffic.
            let file = options.write(true).create_new(true).mode(0o600).open(path).map_err(say)?;
            BufWriter::with_capacity(1 << 18, file)
        };
        file.write_all(&head).map_err(say)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "records carry wall-clock time; no decision depends on it"
        )]
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (tell, ended) = oneshot::channel();
        *recording = Some(Recording {
            number,
            port,
            path: path.to_owned(),
            file,
            recorders,
            begins: now,
            wall: wall.as_nanos() as u64,
            ends,
            packets_max: packets,
            packets: 0,
            bytes: head.len() as u64,
            fault: None,
            tell,
        });
        self.is_full.set(false);
        self.runs.set(true);
        Ok(RunningCapture { number, ended })
    }

    /// Returns whether the running capture has reached a limit.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.get()
    }

    /// If the running capture has reached a limit or its client is gone, ends the capture and returns its
    /// result.
    pub(crate) fn end(&self, now: Instant) -> Option<Result<Captured, String>> {
        self.end_if(|recording| recording.is_over(now))
    }

    /// Ends the capture with this number.
    pub(crate) fn end_number(&self, number: u64) -> Option<Result<Captured, String>> {
        self.end_if(|recording| recording.number == number)
    }

    /// Ends a capture because the board is stopping.
    pub(crate) fn end_any(&self) -> Option<Result<Captured, String>> {
        self.end_if(|_| true)
    }

    fn end_if(&self, ends: impl FnOnce(&Recording) -> bool) -> Option<Result<Captured, String>> {
        if !self.runs.get() {
            return None;
        }
        let mut place = lock(&self.recording);
        let recording = place.take_if(|its| ends(its))?;
        self.runs.set(false);
        self.is_full.set(false);
        // Flush and close the file without holding the lock.
        drop(place);
        Some(recording.end())
    }

    /// Returns when the capture ends.
    pub(crate) fn ends(&self) -> Instant {
        if !self.runs.get() {
            return Instant::NEVER;
        }
        let recording = lock(&self.recording);
        recording.as_ref().map_or(Instant::NEVER, |recording| recording.ends)
    }

    /// Records units if a capture is running; `direction` is 0 for received units and 1 for sent ones.
    fn record<'a, U: Unit>(&self, direction: usize, units: impl Iterator<Item = &'a U>, now: Instant) {
        let mut place = lock(&self.recording);
        let Some(recording) = place.as_mut().filter(|recording| !recording.is_full()) else { return };
        let mut bytes = Vec::new();
        let nanoseconds = recording.wall + now.since(recording.begins).as_nanos() as u64;
        for unit in units {
            let before = bytes.len();
            unit.record(&mut recording.recorders[direction], nanoseconds, direction as u8, &mut bytes);
            // A cell adds a record only if it completes a frame.
            recording.packets += u64::from(bytes.len() > before);
            if recording.packets >= recording.packets_max {
                break;
            }
        }
        recording.bytes += bytes.len() as u64;
        if let Err(error) = recording.file.write_all(&bytes) {
            recording.fault = Some(error.to_string());
        }
        if recording.is_full() {
            self.is_full.set(true);
        }
    }
}

/// A link with a capture point.
pub(crate) struct CapturedLink<U> {
    link: Box<dyn Link<U>>,
    capture: Arc<CapturePoint>,
    /// Whether units that the link does not accept stay in the queue and are offered again.
    keeps: bool,
    /// The number of queued units that have already been recorded.
    noted: usize,
}

impl<U: Unit> CapturedLink<U> {
    pub(crate) fn new(
        link: Box<dyn Link<U>>,
        frames: bool,
        keeps: bool,
        capture: Arc<CapturePoint>,
    ) -> CapturedLink<U> {
        capture.form.get_or_init(|| U::link_type(frames));
        CapturedLink { link, capture, keeps, noted: 0 }
    }
}

impl<U: Unit> Link<U> for CapturedLink<U> {
    fn traits(&self) -> LinkTraits {
        self.link.traits()
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<U>) -> io::Result<()> {
        let before = into.len();
        let result = self.link.receive(lent, into);
        if self.capture.runs.get() && into.len() > before {
            self.capture.record(0, into.range(before..), lent.now);
        }
        result
    }

    fn send(&mut self, units: &mut VecDeque<U>, lent: &mut LinkContext<'_>) -> io::Result<()> {
        if !self.capture.runs.get() {
            self.noted = 0;
            return self.link.send(units, lent);
        }
        // Units that the link did not accept are offered again, but must be recorded only once. Cells are
        // never offered again, because the line does not wait.
        let noted = if self.keeps { self.noted.min(units.len()) } else { 0 };
        self.capture.record(1, units.range(noted..), lent.now);
        let result = self.link.send(units, lent);
        self.noted = units.len();
        result
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.link.file()
    }

    fn deadline(&self) -> Instant {
        self.link.deadline()
    }

    fn counters(&self) -> LinkCounters {
        self.link.counters()
    }
}
