//! Records a link: writes its traffic into a capture that Wireshark can open and [`super::pcap`] can replay.
//!
//! Packets          packets (link type 101) and frames (link type 1) are written as they are. If checksums
//!                  and segmentation are left to the system, they have not been done yet, so turn offloads
//!                  off if the capture's checksums are to be verified.
//! Cells            cells are reassembled into frames, one ERF record each (197, type 4), so that the reader
//!                  can check trailer and CRC. The interface number of a record says whether the frame was
//!                  received (0) or sent (1). Cells that the link did not take are recorded too.
//! Time             wall-clock time, with nanoseconds.
//! Errors           a write error ends the recording, not the link; units that are not recorded are counted.

use super::unit::Unit;
use super::{Link, LinkContext, LinkCounters, LinkTraits};
use kiban_base::Instant;
use kiban_board::recorder::Recorder;
use kiban_os::clock::unix_nanos;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

/// How long a record may wait before it is flushed to the file.
const FLUSH_AFTER: Duration = Duration::from_millis(200);

kiban_base::counters! {
    /// Counters of a recording.
    pub struct RecordCounters {
        /// Bytes written to the file.
        bytes,
        /// Units that were not recorded because the file could not be written.
        lost,
    }
}

/// A recording around a link.
pub struct Recorded<U, L: ?Sized = dyn Link<U>> {
    /// One recorder for received units and one for sent units, because a circuit may have a frame in
    /// reassembly in each direction.
    recorders: [Recorder; 2],
    file: Option<BufWriter<File>>,
    /// The wall-clock time that corresponds to a time of the driver's clock, in nanoseconds.
    origin: Option<(Instant, u64)>,
    flush_at: Instant,
    bytes: Vec<u8>,
    counters: RecordCounters,
    unit: std::marker::PhantomData<fn() -> U>,
    link: Box<L>,
}

impl<U: Unit, L: Link<U> + ?Sized> Recorded<U, L> {
    /// Records a link into a new file; `frames` is set if a PDU link carries Ethernet frames.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn new(link: Box<L>, path: &Path, frames: bool) -> io::Result<Recorded<U, L>> {
        let say = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot record into {}: {error}", path.display()))
        };
        let recorders = [(); 2].map(|()| Recorder::new(U::link_type(frames)));
        let mut bytes = Vec::new();
        recorders[0].begin(&mut bytes);
        let mut file = BufWriter::with_capacity(1 << 18, kiban_os::regular::create(path).map_err(say)?);
        file.write_all(&bytes).and_then(|()| file.flush()).map_err(say)?;
        Ok(Recorded {
            recorders,
            file: Some(file),
            origin: None,
            flush_at: Instant::NEVER,
            counters: RecordCounters { bytes: bytes.len() as u64, lost: 0 },
            bytes,
            unit: std::marker::PhantomData,
            link,
        })
    }

    /// Returns the counters of the recording.
    pub fn recorded(&self) -> RecordCounters {
        self.counters
    }

    fn nanoseconds(&mut self, now: Instant) -> u64 {
        let (moment, wall) = *self.origin.get_or_insert_with(|| (now, unix_nanos()));
        wall + now.since(moment).as_nanos() as u64
    }

    /// Writes the gathered records, of `units` units.
    fn write(&mut self, units: usize, now: Instant) {
        let Some(file) = &mut self.file else {
            self.counters.lost += units as u64;
            return;
        };
        if file.write_all(&self.bytes).is_err() {
            self.file = None;
            self.counters.lost += units as u64;
            return;
        }
        self.counters.bytes += self.bytes.len() as u64;
        self.flush_at = self.flush_at.min(now + FLUSH_AFTER);
    }
}

impl<U: Unit, L: Link<U> + ?Sized> Link<U> for Recorded<U, L> {
    fn traits(&self) -> LinkTraits {
        self.link.traits()
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<U>) -> io::Result<()> {
        let before = into.len();
        let result = self.link.receive(lent, into);
        if into.len() > before {
            let nanoseconds = self.nanoseconds(lent.now);
            self.bytes.clear();
            for unit in into.range(before..) {
                unit.record(&mut self.recorders[0], nanoseconds, 0, &mut self.bytes);
            }
            self.write(into.len() - before, lent.now);
        }
        if lent.now >= self.flush_at {
            self.flush_at = Instant::NEVER;
            if let Some(file) = &mut self.file
                && file.flush().is_err()
            {
                self.file = None;
            }
        }
        result
    }

    fn send(&mut self, units: &mut VecDeque<U>, lent: &mut LinkContext<'_>) -> io::Result<()> {
        // Only the units that the link accepts are recorded. Their number is known only after the link has
        // accepted them, so the records are made first.
        let nanoseconds = self.nanoseconds(lent.now);
        self.bytes.clear();
        let mut ends = Vec::with_capacity(units.len());
        for unit in &*units {
            unit.record(&mut self.recorders[1], nanoseconds, 1, &mut self.bytes);
            ends.push(self.bytes.len());
        }
        let before = units.len();
        let result = self.link.send(units, lent);
        let taken = before - units.len();
        if let Some(last) = taken.checked_sub(1) {
            self.bytes.truncate(ends[last]);
            self.write(taken, lent.now);
        }
        result
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.link.file()
    }

    fn deadline(&self) -> Instant {
        self.flush_at.min(self.link.deadline())
    }

    fn counters(&self) -> LinkCounters {
        self.link.counters()
    }
}

impl<U, L: ?Sized> std::fmt::Debug for Recorded<U, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recorded({:?})", self.counters)
    }
}
