//! Source clock recovery at the receiver (I.363.1 §2.5.2.2): by residual time stamps, or by the buffer level.
//!
//! Purpose   read octets as fast as they are sent, to within parts per million, without a separate clock
//!           line.
//! SRTS      both ends have a clock derived from the network's: 155.52 MHz divided by a power of two, so that
//!           it is one to two times the service rate. The source counts clock ticks during 3008 service bits
//!           and sends the count modulo 16. The receiver knows the count to within eight, so four bits
//!           determine it exactly (Lau and Fleischer 1992). Over n periods the source rate is 3008 n / ticks,
//!           exact to one tick.
//! Adaptive  this method needs no common clock: a filling buffer means that reading is too slow. The
//!           controller is proportional-integral and critically damped. Some time after `settle`, the buffer
//!           is at its target level and the read rate equals the source rate.
//! Limits    SRTS needs a source rate within ±7 ticks per period, at most 2000 parts per million. Network
//!           jitter moves the adaptive rate by jitter / `settle`, and never beyond `tolerance_ppm`.

use crate::wire::aal1::{STAMP_PERIOD_BITS, STAMPS};
use core::time::Duration;
use kiban_base::Instant;

/// Frequency of the network clock.
pub const NETWORK_HERTZ: u64 = 155_520_000;

/// The residual time stamps of a service with a nominal rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Srts {
    service_bits_per_second: u64,
    /// The derived clock is the network clock divided by two to this power.
    shift: u32,
}

impl Srts {
    /// Creates the parameters for a service rate in bit/s; `None` if it is zero or above the network clock.
    pub const fn new(service_bits_per_second: u64) -> Option<Srts> {
        if service_bits_per_second == 0 || service_bits_per_second > NETWORK_HERTZ {
            return None;
        }
        // The slowest derived clock that is not slower than the service.
        let shift = (NETWORK_HERTZ / service_bits_per_second).ilog2();
        Some(Srts { service_bits_per_second, shift })
    }

    /// Returns the frequency of the derived clock as (numerator, divisor).
    pub const fn derived_hertz(self) -> (u64, u64) {
        (NETWORK_HERTZ, 1 << self.shift)
    }

    /// Returns the ticks of the derived clock since time zero.
    pub const fn ticks(self, at: Instant) -> u64 {
        let ticks = at.as_nanos() as u128 * NETWORK_HERTZ as u128 / 1_000_000_000;
        (ticks >> self.shift) as u64
    }

    /// Returns the time stamp of a period that ends at `at` on the network clock.
    pub const fn stamp(self, at: Instant) -> u8 {
        (self.ticks(at) % STAMPS) as u8
    }

    /// Returns the ticks of `periods` periods at the nominal rate.
    const fn nominal_ticks(self, periods: u64) -> u64 {
        let bits = periods as u128 * STAMP_PERIOD_BITS as u128 * NETWORK_HERTZ as u128;
        ((bits / self.service_bits_per_second as u128) >> self.shift) as u64
    }
}

/// The receiver: estimates the source rate from time stamps.
#[derive(Clone, Copy, Debug)]
pub struct SrtsRecovery {
    srts: Srts,
    last: Option<u8>,
    /// Number of periods since the last complete stamp.
    missing: u64,
    periods: u64,
    ticks: u64,
}

impl SrtsRecovery {
    /// Creates a receiver without history.
    pub const fn new(srts: Srts) -> SrtsRecovery {
        SrtsRecovery { srts, last: None, missing: 0, periods: 0, ticks: 0 }
    }

    /// Processes the stamp of the next period; `None` if it was lost.
    pub fn on_stamp(&mut self, stamp: Option<u8>) {
        let Some(stamp) = stamp else {
            self.missing += 1;
            return;
        };
        let periods = core::mem::take(&mut self.missing) + 1;
        let Some(last) = self.last.replace(stamp) else { return };
        let nominal = self.srts.nominal_ticks(periods);
        let residue = (u64::from(stamp) + STAMPS - u64::from(last)) % STAMPS;
        // Choose the tick count nearest to the nominal one that has this residue.
        let ahead = (residue + STAMPS - nominal % STAMPS) % STAMPS;
        let ticks =
            if ahead < STAMPS / 2 { nominal + ahead } else { (nominal + ahead).saturating_sub(STAMPS) };
        self.periods += periods;
        self.ticks += ticks;
    }

    /// Returns the source rate in bit/s, measured by the network clock, or `None` before the second stamp.
    pub fn bits_per_second(&self) -> Option<f64> {
        let (hertz, divisor) = self.srts.derived_hertz();
        let bits = (self.periods * STAMP_PERIOD_BITS) as f64;
        (self.ticks > 0).then(|| bits * hertz as f64 / divisor as f64 / self.ticks as f64)
    }

    /// Returns the source rate as a ratio to the nominal rate.
    pub fn ratio(&self) -> Option<f64> {
        self.bits_per_second().map(|rate| rate / self.srts.service_bits_per_second as f64)
    }
}

/// Clock recovery by the buffer level.
#[derive(Clone, Copy, Debug)]
pub struct Adaptive {
    octets_per_second: f64,
    target_octets: f64,
    settle: f64,
    tolerance: f64,
    integral: f64,
    ratio: f64,
}

impl Adaptive {
    /// Creates a controller for a service of a nominal rate, with a buffer level of `target_octets`.
    pub fn new(bits_per_second: u64, target_octets: usize, settle: Duration, tolerance_ppm: u32) -> Adaptive {
        Adaptive {
            octets_per_second: bits_per_second as f64 / 8.0,
            target_octets: target_octets as f64,
            settle: settle.as_secs_f64(),
            tolerance: f64::from(tolerance_ppm) * 1e-6,
            integral: 0.0,
            ratio: 1.0,
        }
    }

    /// Processes the buffer level `elapsed` after the last call; returns the read rate until the next call,
    /// as a ratio to the nominal rate.
    pub fn on_level(&mut self, octets: usize, elapsed: Duration) -> f64 {
        // Seconds of data by which the buffer is above its target.
        let ahead = (octets as f64 - self.target_octets) / self.octets_per_second;
        let proportional = ahead / self.settle;
        let step = ahead * elapsed.as_secs_f64() / (4.0 * self.settle * self.settle);
        self.integral = (self.integral + step).clamp(-self.tolerance, self.tolerance);
        self.ratio = 1.0 + (proportional + self.integral).clamp(-self.tolerance, self.tolerance);
        self.ratio
    }

    /// Returns the current read rate in bit/s.
    pub fn bits_per_second(&self) -> f64 {
        self.octets_per_second * 8.0 * self.ratio
    }
}
