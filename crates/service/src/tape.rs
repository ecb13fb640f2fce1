//! A tape at every link: what passes is recorded while somebody wants it, and costs a look at a flag while nobody does.
//!
//! Form      as [`kiban_real::link::record`] writes it: packets, frames, or cells gathered to frames.
//! Bound     in time, in packets, and [`BYTES_MAX`] bytes.
//! End       at a bound, when it is asked for, or when who wanted it has gone; the file is whole then, and who wanted it is told.
//! Fault     a file that cannot be written ends the record, not the link.

use crate::orders::{Captured, Capturing};
use kiban_board::recorder::Recorder;
use kiban_ground::Instant;
use kiban_real::link::unit::Unit;
use kiban_real::link::{Lent, Link, LinkCounters, Traits};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// The longest record, bytes.
const BYTES_MAX: u64 = 4 << 30;

/// What is wanted of a record.
pub(crate) struct Wanted<'a> {
    /// Its number among all records of the board.
    pub(crate) number: u64,
    /// What is recorded.
    pub(crate) port: String,
    pub(crate) file: &'a Path,
    pub(crate) ends: Instant,
    pub(crate) packets: u64,
}

/// What is being recorded.
struct Recording {
    number: u64,
    port: String,
    path: PathBuf,
    file: BufWriter<File>,
    /// Of what is received, and of what is sent: a circuit has frames under way in both directions.
    recorders: [Recorder; 2],
    begins: Instant,
    wall: u64,
    ends: Instant,
    packets_max: u64,
    packets: u64,
    bytes: u64,
    fault: Option<String>,
    /// Who wanted it.
    tell: oneshot::Sender<Result<Captured, String>>,
}

impl Recording {
    /// Whether it has come to a bound.
    fn is_full(&self) -> bool {
        self.packets >= self.packets_max || self.bytes >= BYTES_MAX || self.fault.is_some()
    }

    fn is_over(&self, now: Instant) -> bool {
        self.ends <= now || self.is_full() || self.tell.is_closed()
    }

    /// Writes what is left, and tells who wanted it.
    fn end(mut self) -> Result<Captured, String> {
        let flushed = self.file.flush().map_err(|error| error.to_string());
        let Recording { port, path: file, packets, bytes, .. } = self;
        let outcome = match (self.fault, flushed) {
            (Some(fault), _) | (None, Err(fault)) => {
                Err(format!("{} is not whole, after {packets} packets: {fault}", file.display()))
            }
            (None, Ok(())) => Ok(Captured { port, file, packets, bytes }),
        };
        // Who wanted it may have gone.
        let _ = self.tell.send(outcome.clone());
        outcome
    }
}

/// Where a link's recorder is put in.
#[derive(Default)]
pub(crate) struct Tape {
    runs: AtomicBool,
    /// Whether the record has come to a bound.
    is_full: AtomicBool,
    recording: Mutex<Option<Recording>>,
    /// The link type of records; none while no link has been there.
    form: OnceLock<u32>,
}

impl Tape {
    /// Begins a record in a new file.
    pub(crate) fn begin(&self, wanted: Wanted<'_>, now: Instant) -> Result<Capturing, String> {
        let Wanted { number, port, file: path, ends, packets } = wanted;
        let mut recording = self.recording.lock().expect("nobody panics with it");
        if let Some(other) = &*recording {
            return Err(format!("port {port} is being recorded into {}", other.path.display()));
        }
        let form =
            *self.form.get().ok_or_else(|| format!("the link of port {port} has not been there yet"))?;
        let say = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => format!("{} is there already: name another file", path.display()),
            _ => format!("{}: {error}", path.display()),
        };
        let recorders = [(); 2].map(|()| Recorder::new(form));
        let mut head = Vec::new();
        recorders[0].begin(&mut head);
        let mut file = {
            // Not `create_new`, which asks for reading as well: the sandbox lets records be written only.
            let file = File::options().write(true).create_new(true).open(path).map_err(say)?;
            BufWriter::with_capacity(1 << 18, file)
        };
        file.write_all(&head).map_err(say)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "records carry the wall's time; nothing is decided by it"
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
        self.is_full.store(false, Ordering::Release);
        self.runs.store(true, Ordering::Release);
        Ok(Capturing { number, ended })
    }

    /// Whether its record has come to a bound.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Ends a record that is over: how it ended.
    pub(crate) fn end(&self, now: Instant) -> Option<Result<Captured, String>> {
        self.end_if(|recording| recording.is_over(now))
    }

    /// Ends the record of a number.
    pub(crate) fn end_number(&self, number: u64) -> Option<Result<Captured, String>> {
        self.end_if(|recording| recording.number == number)
    }

    /// Ends a record, since the board ends.
    pub(crate) fn end_any(&self) -> Option<Result<Captured, String>> {
        self.end_if(|_| true)
    }

    fn end_if(&self, ends: impl FnOnce(&Recording) -> bool) -> Option<Result<Captured, String>> {
        if !self.runs.load(Ordering::Acquire) {
            return None;
        }
        let recording = self.recording.lock().expect("nobody panics with it").take_if(|its| ends(its))?;
        self.runs.store(false, Ordering::Release);
        self.is_full.store(false, Ordering::Release);
        Some(recording.end())
    }

    /// When a record ends.
    pub(crate) fn ends(&self) -> Instant {
        if !self.runs.load(Ordering::Acquire) {
            return Instant::NEVER;
        }
        let recording = self.recording.lock().expect("nobody panics with it");
        recording.as_ref().map_or(Instant::NEVER, |recording| recording.ends)
    }

    /// Records units, if it runs: 0 received, 1 sent.
    fn record<'a, U: Unit>(&self, way: usize, units: impl Iterator<Item = &'a U>, now: Instant) {
        let mut place = self.recording.lock().expect("nobody panics with it");
        let Some(recording) = place.as_mut().filter(|recording| !recording.is_full()) else { return };
        let mut bytes = Vec::new();
        let nanoseconds = recording.wall + now.since(recording.begins).as_nanos() as u64;
        for unit in units {
            let before = bytes.len();
            unit.record(&mut recording.recorders[way], nanoseconds, way as u8, &mut bytes);
            // A cell makes a record where its frame ends.
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
            self.is_full.store(true, Ordering::Release);
        }
    }
}

/// A link with a tape.
pub(crate) struct Taped<U> {
    link: Box<dyn Link<U>>,
    tape: Arc<Tape>,
    /// Whether what the link does not take is kept for it.
    keeps: bool,
    /// Units that wait for it and stand in the record.
    noted: usize,
}

impl<U: Unit> Taped<U> {
    pub(crate) fn new(link: Box<dyn Link<U>>, frames: bool, keeps: bool, tape: Arc<Tape>) -> Taped<U> {
        tape.form.get_or_init(|| U::link_type(frames));
        Taped { link, tape, keeps, noted: 0 }
    }
}

impl<U: Unit> Link<U> for Taped<U> {
    fn traits(&self) -> Traits {
        self.link.traits()
    }

    fn receive(&mut self, lent: &mut Lent<'_>, into: &mut VecDeque<U>) -> io::Result<()> {
        let before = into.len();
        let result = self.link.receive(lent, into);
        if self.tape.runs.load(Ordering::Acquire) && into.len() > before {
            self.tape.record(0, into.range(before..), lent.now);
        }
        result
    }

    fn send(&mut self, units: &mut VecDeque<U>, lent: &mut Lent<'_>) -> io::Result<()> {
        if !self.tape.runs.load(Ordering::Acquire) {
            self.noted = 0;
            return self.link.send(units, lent);
        }
        // What the link did not take comes again; it is recorded once. Cells do not: the line has gone on.
        let noted = if self.keeps { self.noted.min(units.len()) } else { 0 };
        self.tape.record(1, units.range(noted..), lent.now);
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
