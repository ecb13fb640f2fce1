//! A constant rate over AAL1: a source that sends cells at even intervals, and a sink that counts errors.
//!
//! Rate      the configured rate is the rate of the user's octets. The overhead of AAL1 (headers, pointers,
//!           check octets) and the cell headers are added.
//! Matrices  the user's octets are assumed to be ready when a matrix starts: the time to collect them is not
//!           part of a cell's delay.
//! Damage    the periods in which the sink received wrong octets, because cells were lost or a matrix could
//!           not be corrected. Damage is reported per period, because wrong octets damage all pictures of a
//!           period.
//! Clocks    the source's clock may deviate from its nominal rate by `clock_ppm`. The sink reads at the rate
//!           that keeps its buffer's level constant ([`Playout`]), and so recovers the source's rate. Time
//!           stamps, if enabled, carry the rate too.

use super::playout::{Playout, Recovered};
use super::{Outlet, Shared};
use crate::programs::terminal::Terminal;
use kiban_atm::aal1::{Config, Form, Receiver, ReceiverCounters, Sender, Srts, SrtsRecovery};
use kiban_atm::wire::aal1::PAYLOAD_OCTETS;
use kiban_atm::wire::atm::{CELL_BYTES, Header, Interface};
use kiban_atm::{Interval, Meter, SlotClock, TimedCell};
use kiban_base::Instant;
use std::any::Any;
use std::collections::BTreeSet;
use std::time::Duration;

/// Configuration of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamConfig {
    /// How octets are arranged in cells.
    pub form: Form,
    /// The rate of the user's octets, bit/s.
    pub bits_per_second: u64,
    /// Whether time stamps carry the source's clock.
    pub stamps: bool,
    /// The period in which damage is reported.
    pub period: Duration,
    /// The deviation of the source's clock from nominal, in parts per million; positive: faster.
    pub clock_ppm: f64,
    /// The settling time of the sink's clock recovery; it settles slightly later.
    pub settle: Duration,
}

impl StreamConfig {
    /// Returns the rate of the stream's cells on the line, bit/s.
    pub fn line_bits_per_second(&self) -> f64 {
        let cells = (CELL_BYTES as f64) / PAYLOAD_OCTETS as f64;
        let added = match self.form {
            Form::Stream | Form::Structured { block_octets: 1 } => 1.0,
            // In every eight cells, one octet is a pointer.
            Form::Structured { .. } => 376.0 / 375.0,
            Form::Corrected(code) => code.row_octets() as f64 / code.data_octets() as f64,
        };
        self.bits_per_second as f64 * added * cells
    }

    fn aal1(&self) -> Config {
        Config { stamps: self.stamps, ..Config::of(self.form) }
    }
}

/// A source of a constant rate.
pub struct StreamSource {
    outlet: Outlet,
    sender: Sender,
    /// The times at which cells are due, according to the source's clock.
    due: SlotClock,
    clock: SlotClock,
    meter: Option<Meter>,
    end: Instant,
    begin: Duration,
    srts: Option<Srts>,
    octets: u64,
    ledger: Shared,
}

impl StreamSource {
    /// Sends from `begin` to `end`.
    pub fn new(
        outlet: Outlet,
        config: StreamConfig,
        begin: Duration,
        end: Instant,
        ledger: Shared,
    ) -> StreamSource {
        let line = config.line_bits_per_second() * (1.0 + config.clock_ppm * 1e-6);
        let cell_time = Interval::of_line((line.round() as u64).max(1));
        StreamSource {
            outlet,
            sender: Sender::new(config.aal1()),
            due: SlotClock::new(cell_time),
            clock: SlotClock::new(outlet.cell_time),
            meter: outlet.contract.map(Meter::new),
            end,
            begin,
            srts: Srts::new(config.bits_per_second).filter(|_| config.stamps),
            octets: 0,
            ledger,
        }
    }

    /// Returns the payload of the next cell; octets are generated as they are needed.
    fn payload(&mut self, at: Instant) -> [u8; 48] {
        if let Some(srts) = self.srts.filter(|_| self.sender.count() == 0) {
            self.sender.set_stamp(srts.stamp(at));
        }
        loop {
            if let Some(payload) = self.sender.cell() {
                return payload;
            }
            let number = self.octets.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.octets += 1;
            self.sender.push(&number.to_be_bytes());
        }
    }
}

impl Terminal for StreamSource {
    fn cells(&mut self, until: Instant, out: &mut Vec<TimedCell>) {
        let word = Header::user(self.outlet.vc, false).to_word(Interface::Uni);
        loop {
            let due = self.due.start() + self.begin;
            if due >= self.end {
                return;
            }
            let earliest = self.meter.as_ref().map_or(Instant::ZERO, Meter::earliest).max(due);
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
            let payload = self.payload(due);
            self.due.step();
            self.ledger.borrow_mut().sent(&payload, at);
            out.push(TimedCell::new(at, word, payload));
        }
    }

    fn arrive(&mut self, _cells: &[TimedCell]) {}

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A sink of a constant rate.
pub struct StreamSink {
    receiver: Receiver,
    out: Vec<u8>,
    ledger: Shared,
    period: Duration,
    damaged: BTreeSet<u64>,
    srts: Option<SrtsRecovery>,
    playout: Playout,
    corrects: bool,
}

impl StreamSink {
    /// Creates the sink of a stream.
    pub fn new(config: StreamConfig, ledger: Shared) -> StreamSink {
        StreamSink {
            receiver: Receiver::new(config.aal1()),
            out: Vec::new(),
            ledger,
            period: config.period,
            damaged: BTreeSet::new(),
            srts: Srts::new(config.bits_per_second).filter(|_| config.stamps).map(SrtsRecovery::new),
            playout: Playout::new(config.bits_per_second, config.settle),
            corrects: matches!(config.form, Form::Corrected(_)),
        }
    }

    /// Returns the counters of AAL1.
    pub fn counters(&self) -> &ReceiverCounters {
        self.receiver.counters()
    }

    /// Returns the numbers of the periods with damage, counted from time zero.
    pub fn damaged(&self) -> &BTreeSet<u64> {
        &self.damaged
    }

    /// Returns the ratio of the source's clock to the nominal rate, according to its time stamps.
    pub fn clock_ratio(&self) -> Option<f64> {
        self.srts.as_ref()?.ratio()
    }

    /// Returns the recovered clock of the source, according to the buffer's level.
    pub fn recovered(&self) -> Option<Recovered> {
        self.playout.recovered()
    }
}

/// Returns the counters that indicate damage.
fn damage(counters: &ReceiverCounters, corrects: bool) -> u64 {
    let whole = counters.sequence_losses + counters.matrices_cut + counters.blocks_realigned;
    whole + if corrects { counters.matrices_uncorrectable } else { counters.cells_lost }
}

impl Terminal for StreamSink {
    fn cells(&mut self, _until: Instant, _out: &mut Vec<TimedCell>) {}

    fn arrive(&mut self, cells: &[TimedCell]) {
        for cell in cells {
            self.ledger.borrow_mut().arrived(&cell.payload, cell.at);
            let before = *self.receiver.counters();
            self.receiver.on_cell(&cell.payload, &mut self.out);
            if !self.out.is_empty() {
                self.playout.on_octets(self.out.len(), cell.at);
                self.out.clear();
            }
            let after = self.receiver.counters();
            if damage(after, self.corrects) > damage(&before, self.corrects) {
                self.damaged.insert(cell.at.as_nanos() / self.period.as_nanos() as u64);
            }
            if let Some(srts) = &mut self.srts {
                while let Some(stamp) = self.receiver.next_stamp() {
                    srts.on_stamp(stamp);
                }
            }
        }
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
