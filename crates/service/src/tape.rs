//! A tape at every link: what passes is recorded while somebody wants it, and costs a look at a flag while nobody does.
//!
//! Form      as [`kiban_real::link::record`] writes it: packets, frames, or cells gathered to frames.
//! Bound     in time, and [`BYTES_MAX`] bytes.
//! Fault     a file that cannot be written ends the record, not the link.

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
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest record, bytes.
const BYTES_MAX: u64 = 4 << 30;

/// What is being recorded.
struct Recording {
    path: PathBuf,
    file: BufWriter<File>,
    /// Of what is received, and of what is sent: a circuit has frames under way in both directions.
    recorders: [Recorder; 2],
    begins: Instant,
    wall: u64,
    ends: Instant,
    units: u64,
    bytes: u64,
    fault: Option<String>,
}

/// Where a link's recorder is put in.
#[derive(Default)]
pub(crate) struct Tape {
    runs: AtomicBool,
    recording: Mutex<Option<Recording>>,
    /// The link type of records; none while no link has been there.
    form: OnceLock<u32>,
}

impl Tape {
    /// Begins a record in a new file.
    pub(crate) fn begin(&self, path: &Path, now: Instant, time: Duration) -> Result<(), String> {
        let mut recording = self.recording.lock().expect("nobody panics with it");
        if let Some(other) = &*recording {
            return Err(format!("it is being recorded into {}", other.path.display()));
        }
        let form = *self.form.get().ok_or("the link has not been there yet")?;
        let say = |error: io::Error| format!("{}: {error}", path.display());
        let recorders = [(); 2].map(|()| Recorder::new(form));
        let mut head = Vec::new();
        recorders[0].begin(&mut head);
        let mut file = BufWriter::with_capacity(1 << 18, File::create_new(path).map_err(say)?);
        file.write_all(&head).map_err(say)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "records carry the wall's time; nothing is decided by it"
        )]
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        *recording = Some(Recording {
            path: path.to_owned(),
            file,
            recorders,
            begins: now,
            wall: wall.as_nanos() as u64,
            ends: now + time,
            units: 0,
            bytes: 0,
            fault: None,
        });
        self.runs.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends a record whose time is over, or which failed: its file, and how it ended.
    pub(crate) fn end(&self, now: Instant) -> Option<(PathBuf, Result<u64, String>)> {
        if !self.runs.load(Ordering::Acquire) {
            return None;
        }
        let mut place = self.recording.lock().expect("nobody panics with it");
        if !place.as_ref().is_some_and(|recording| recording.ends <= now || recording.fault.is_some()) {
            return None;
        }
        self.runs.store(false, Ordering::Release);
        let mut recording = place.take()?;
        let flushed = recording.file.flush().map_err(|error| error.to_string());
        let outcome = match (recording.fault, flushed) {
            (Some(fault), _) | (None, Err(fault)) => Err(fault),
            (None, Ok(())) => Ok(recording.units),
        };
        Some((recording.path, outcome))
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
        let Some(recording) = place.as_mut().filter(|recording| recording.fault.is_none()) else { return };
        let mut bytes = Vec::new();
        let nanoseconds = recording.wall + now.since(recording.begins).as_nanos() as u64;
        for unit in units {
            unit.record(&mut recording.recorders[way], nanoseconds, way as u8, &mut bytes);
            recording.units += 1;
        }
        recording.bytes += bytes.len() as u64;
        if recording.bytes > BYTES_MAX {
            recording.fault = Some(format!("it is longer than {BYTES_MAX} bytes"));
        } else if let Err(error) = recording.file.write_all(&bytes) {
            recording.fault = Some(error.to_string());
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
