//! Units over AAL5: a source that cuts units into frames and cells, and a sink that detects which units
//! arrived whole.
//!
//! Unit      a picture or a packet of audio, which is useful only as a whole. It is sent in frames of at most
//!           `frame_octets_max`.
//! Frame     each frame starts with the number of its unit, the time at which the unit was ready, its own
//!           number within the unit and the number of frames; the rest is filled so that all cells differ.
//! Limits    if a frame collects more cells than the longest frame has, it is dropped with all cells up to
//!           the next end mark.

use super::{Outlet, Shared, Unit};
use crate::programs::terminal::Terminal;
use kiban_atm::wire::aal5;
use kiban_atm::wire::atm::{CELL_PAYLOAD_BYTES, Header, Interface};
use kiban_atm::{Meter, SlotClock, TimedCell};
use kiban_base::Instant;
use kiban_base::crc::Crc32Aal5;
use std::any::Any;
use std::collections::VecDeque;

/// Length of a frame's header in octets.
const HEAD_OCTETS: usize = 20;

/// A source of units.
pub struct FrameSource {
    outlet: Outlet,
    program: Box<dyn Iterator<Item = Unit>>,
    frame_octets_max: usize,
    end: Instant,
    meter: Option<Meter>,
    clock: SlotClock,
    /// The cells of the current unit, each with a flag that says whether it ends a frame.
    cells: VecDeque<([u8; CELL_PAYLOAD_BYTES], bool)>,
    /// When the unit was ready.
    ready: Instant,
    next: Option<Unit>,
    units: u64,
    ledger: Shared,
}

impl FrameSource {
    /// Creates a source that sends the units of a program until `end`.
    pub fn new(
        outlet: Outlet,
        program: Box<dyn Iterator<Item = Unit>>,
        frame_octets_max: usize,
        end: Instant,
        ledger: Shared,
    ) -> FrameSource {
        let meter = outlet.contract.map(Meter::new);
        let clock = SlotClock::new(outlet.cell_time);
        let (cells, ready) = (VecDeque::new(), Instant::ZERO);
        let mut source = FrameSource {
            outlet,
            program,
            frame_octets_max,
            end,
            meter,
            clock,
            cells,
            ready,
            next: None,
            units: 0,
            ledger,
        };
        source.advance();
        source
    }

    /// Returns the number of units whose first cell has been sent.
    pub fn units(&self) -> u64 {
        self.units
    }

    fn advance(&mut self) {
        self.next = self.program.next().filter(|unit| unit.at < self.end);
    }

    /// Cuts the next unit into cells.
    fn cut(&mut self, unit: Unit) {
        let parts = unit.octets.div_ceil(self.frame_octets_max).max(1);
        let mut left = unit.octets;
        for part in 0..parts {
            let octets = left.min(self.frame_octets_max);
            left -= octets;
            let frame = self.frame(unit, part as u16, parts as u16, octets.max(HEAD_OCTETS));
            let (cells, _) = frame.as_chunks::<CELL_PAYLOAD_BYTES>();
            let last = cells.len() - 1;
            self.cells.extend(cells.iter().enumerate().map(|(at, cell)| (*cell, at == last)));
        }
        self.units += 1;
        self.ready = unit.at;
    }

    fn frame(&self, unit: Unit, part: u16, parts: u16, octets: usize) -> Vec<u8> {
        let mut frame = vec![0; octets];
        frame[..8].copy_from_slice(&self.units.to_be_bytes());
        frame[8..16].copy_from_slice(&unit.at.as_nanos().to_be_bytes());
        frame[16..18].copy_from_slice(&part.to_be_bytes());
        frame[18..20].copy_from_slice(&parts.to_be_bytes());
        let (words, _) = frame[HEAD_OCTETS..].as_chunks_mut::<8>();
        for (place, word) in words.iter_mut().enumerate() {
            let number = self.units << 32 | u64::from(part) << 20 | place as u64;
            *word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        }
        let mut crc = Crc32Aal5::new();
        crc.update(&frame);
        let mut tail = [0; aal5::TAIL_BYTES_MAX];
        let count = aal5::write_tail(octets, 0, crc, &mut tail);
        frame.extend_from_slice(&tail[..count]);
        frame
    }
}

impl Terminal for FrameSource {
    fn cells(&mut self, until: Instant, out: &mut Vec<TimedCell>) {
        let word = |last| Header::user(self.outlet.vc, last).to_word(Interface::Uni);
        let words = [word(false), word(true)];
        loop {
            if self.cells.is_empty() {
                let Some(unit) = self.next.filter(|unit| unit.at < until) else { return };
                self.cut(unit);
                self.advance();
            }
            let earliest = self.meter.as_ref().map_or(Instant::ZERO, Meter::earliest).max(self.ready);
            // A slot that is not used when it is due cannot be used later. So compute the next slot on a copy
            // of the clock, and keep the copy only if the slot is used now.
            let mut clock = self.clock.clone();
            clock.skip_to(earliest);
            if clock.start() >= until {
                return;
            }
            self.clock = clock;
            if let Some(meter) = &mut self.meter {
                meter.pass(self.clock.start());
            }
            let at = self.clock.end();
            self.clock.step();
            let (payload, last) = self.cells.pop_front().expect("there are cells");
            self.ledger.borrow_mut().sent(&payload, at);
            out.push(TimedCell::new(at, words[usize::from(last)], payload));
        }
    }

    fn arrive(&mut self, _cells: &[TimedCell]) {}

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// The results for units since the last call of `take`.
#[derive(Clone, Debug, Default)]
pub struct Units {
    /// Units that arrived completely.
    pub whole: u64,
    /// Units that did not arrive completely, counted when a later unit arrives.
    pub lost: u64,
    /// Frames that arrived completely.
    pub frames: u64,
    /// Frames that did not arrive completely.
    pub frames_spoilt: u64,
    /// The time from when each complete unit was ready until its last cell arrived, in nanoseconds.
    pub delays: Vec<u64>,
}

/// A sink of units.
pub struct FrameSink {
    ledger: Shared,
    frame: Vec<u8>,
    frame_bytes_max: usize,
    /// The current unit, and the number of its frames that have arrived.
    unit: (u64, u16),
    /// The number of the next unit expected.
    expected: u64,
    units: Units,
}

impl FrameSink {
    /// Creates a sink for frames of `frame_octets_max` octets.
    pub fn new(frame_octets_max: usize, ledger: Shared) -> FrameSink {
        FrameSink {
            ledger,
            frame: Vec::new(),
            frame_bytes_max: aal5::pdu_bytes(frame_octets_max.max(HEAD_OCTETS)),
            unit: (u64::MAX, 0),
            expected: 0,
            units: Units::default(),
        }
    }

    /// Returns the results for units since the last call.
    pub fn take(&mut self) -> Units {
        std::mem::take(&mut self.units)
    }

    fn on_frame(&mut self, at: Instant) {
        let Some((number, sent, part, parts)) = aal5::open(&self.frame).ok().and_then(|(_, payload)| {
            let (number, rest) = payload.split_first_chunk::<8>()?;
            let (sent, rest) = rest.split_first_chunk::<8>()?;
            let (part, rest) = rest.split_first_chunk::<2>()?;
            let parts = rest.first_chunk::<2>()?;
            let sent = Instant::from_nanos(u64::from_be_bytes(*sent));
            Some((u64::from_be_bytes(*number), sent, u16::from_be_bytes(*part), u16::from_be_bytes(*parts)))
        }) else {
            self.units.frames_spoilt += 1;
            return;
        };
        self.units.frames += 1;
        // Frames arrive in order: a unit is complete when its last frame arrives after all others.
        let before = if self.unit.0 == number { self.unit.1 } else { 0 };
        self.unit = (number, if part == before { part + 1 } else { u16::MAX });
        if self.unit.1 == parts {
            self.units.whole += 1;
            self.units.lost += number.saturating_sub(self.expected);
            self.expected = number.saturating_add(1);
            self.units.delays.push(at.since(sent).as_nanos() as u64);
        }
    }
}

impl Terminal for FrameSink {
    fn cells(&mut self, _until: Instant, _out: &mut Vec<TimedCell>) {}

    fn arrive(&mut self, cells: &[TimedCell]) {
        for cell in cells {
            self.ledger.borrow_mut().arrived(&cell.payload, cell.at);
            if self.frame.len() <= self.frame_bytes_max {
                self.frame.extend_from_slice(&cell.payload);
            }
            if cell.is_end() {
                if self.frame.len() <= self.frame_bytes_max {
                    self.on_frame(cell.at);
                } else {
                    self.units.frames_spoilt += 1;
                }
                self.frame.clear();
            }
        }
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
