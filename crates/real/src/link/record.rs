//! A link that is recorded: what passes goes into a capture that Wireshark opens, and that [`super::pcap`] plays again.
//!
//! Packets   are written as they are (link type 101), frames as well (1). Where the system is left to fill in checksums they are
//!           not there yet, and segments are whole: record with offloads off if somebody is to check them.
//! Cells     are collected to frames, one ERF record each (197, type 4), so that the reader can check trailer and CRC; records say
//!           whether they were received (interface 0) or sent (1). Cells that the link did not take are in the record.
//! Time      wall time, with nanoseconds.
//! Fault     a file that cannot be written ends the record, not the link: it is counted.

use super::unit::Unit;
use super::{Lent, Link, LinkCounters, Traits};
use crate::clock::unix_nanos;
use kiban_board::recorder::Recorder;
use kiban_ground::Instant;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

/// How long a record may wait for the file.
const FLUSH_AFTER: Duration = Duration::from_millis(200);

kiban_ground::counters! {
    /// What became of the record.
    pub struct RecordCounters {
        /// Bytes in the file.
        bytes,
        /// Units that were not recorded, since the file could not be written.
        lost,
    }
}

/// A link around a link.
pub struct Recorded<U, L: ?Sized = dyn Link<U>> {
    /// Of what is received, and of what is sent: a circuit has frames under way in both directions.
    recorders: [Recorder; 2],
    file: Option<BufWriter<File>>,
    /// The wall's time at a moment of the driver's clock.
    origin: Option<(Instant, u64)>,
    flush_at: Instant,
    bytes: Vec<u8>,
    counters: RecordCounters,
    unit: std::marker::PhantomData<fn() -> U>,
    link: Box<L>,
}

impl<U: Unit, L: Link<U> + ?Sized> Recorded<U, L> {
    /// Records a link into a new file; `frames` says of a link of PDUs that they are Ethernet frames.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn new(link: Box<L>, path: &Path, frames: bool) -> io::Result<Recorded<U, L>> {
        let say = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot record into {}: {error}", path.display()))
        };
        let recorders = [(); 2].map(|()| Recorder::new(U::link_type(frames)));
        let mut bytes = Vec::new();
        recorders[0].begin(&mut bytes);
        let mut file = BufWriter::with_capacity(1 << 18, crate::regular::create(path).map_err(say)?);
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

    /// What became of the record.
    pub fn recorded(&self) -> RecordCounters {
        self.counters
    }

    fn nanoseconds(&mut self, now: Instant) -> u64 {
        let (moment, wall) = *self.origin.get_or_insert_with(|| (now, unix_nanos()));
        wall + now.since(moment).as_nanos() as u64
    }

    /// Writes what has been gathered: `units` units.
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
    fn traits(&self) -> Traits {
        self.link.traits()
    }

    fn receive(&mut self, lent: &mut Lent<'_>, into: &mut VecDeque<U>) -> io::Result<()> {
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

    fn send(&mut self, units: &mut VecDeque<U>, lent: &mut Lent<'_>) -> io::Result<()> {
        // What the link takes is recorded; it is known afterwards how much that is, and then it has gone: records are made first.
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
