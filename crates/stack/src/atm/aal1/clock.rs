//! The source's clock at the far end (I.363.1 §2.5.2.2): residual time stamps, or the level of the buffer.
//!
//! Goal      read octets as fast as they are sent, to parts in a million, without a wire for the clock.
//! SRTS      both ends have the network's clock, 155.52 MHz divided by a power of two so that it is one to two times the service's
//!           rate. The source counts its ticks in the time that 3008 bits of the service take and sends the count modulo
//!           16; the far end knows the count to within eight, so that four bits tell it exactly (Lau and Fleischer 1992).
//!           Over n periods the rate is 3008 n / ticks of it, exact to a tick.
//! Adaptive  without a common clock: a buffer that fills says that reading is too slow. A proportional and integral rule, damped
//!           critically: after `settle` and some more the buffer stands at its target and the rate is the source's.
//! Limits    SRTS needs the source's rate within ±7 ticks of a period, at most 2000 parts in a million. Jitter of the network
//!           moves the adaptive rate by jitter / `settle`, and never beyond `tolerance_ppm`.

use core::time::Duration;
use kiban_ground::Instant;
use kiban_wire::aal1::{STAMP_PERIOD_BITS, STAMPS};

/// The network's clock.
pub const NETWORK_HERTZ: u64 = 155_520_000;

/// Residual time stamps of a service with a nominal rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Srts {
    service_bits_per_second: u64,
    /// The network's clock is divided by two to this power.
    shift: u32,
}

impl Srts {
    /// Of a service of so many bit/s; none if its rate is zero or above the network's clock.
    pub const fn new(service_bits_per_second: u64) -> Option<Srts> {
        if service_bits_per_second == 0 || service_bits_per_second > NETWORK_HERTZ {
            return None;
        }
        // The slowest that is not slower than the service.
        let shift = (NETWORK_HERTZ / service_bits_per_second).ilog2();
        Some(Srts { service_bits_per_second, shift })
    }

    /// Ticks of the derived clock a second, as a whole number and what it is divided by.
    pub const fn derived_hertz(self) -> (u64, u64) {
        (NETWORK_HERTZ, 1 << self.shift)
    }

    /// Ticks of the derived clock since the origin of time.
    pub const fn ticks(self, at: Instant) -> u64 {
        let ticks = at.as_nanos() as u128 * NETWORK_HERTZ as u128 / 1_000_000_000;
        (ticks >> self.shift) as u64
    }

    /// The stamp of a period that ends at `at`, by the network's clock.
    pub const fn stamp(self, at: Instant) -> u8 {
        (self.ticks(at) % STAMPS) as u8
    }

    /// Ticks of so many periods at the nominal rate.
    const fn nominal_ticks(self, periods: u64) -> u64 {
        let bits = periods as u128 * STAMP_PERIOD_BITS as u128 * NETWORK_HERTZ as u128;
        ((bits / self.service_bits_per_second as u128) >> self.shift) as u64
    }
}

/// The far end: what stamps say of the source's rate.
#[derive(Clone, Copy, Debug)]
pub struct SrtsRecovery {
    srts: Srts,
    last: Option<u8>,
    /// Periods since the last stamp that was whole.
    missing: u64,
    periods: u64,
    ticks: u64,
}

impl SrtsRecovery {
    /// Nothing is known yet.
    pub const fn new(srts: Srts) -> SrtsRecovery {
        SrtsRecovery { srts, last: None, missing: 0, periods: 0, ticks: 0 }
    }

    /// The stamp of the next period; none where it was lost.
    pub fn on_stamp(&mut self, stamp: Option<u8>) {
        let Some(stamp) = stamp else {
            self.missing += 1;
            return;
        };
        let periods = core::mem::take(&mut self.missing) + 1;
        let Some(last) = self.last.replace(stamp) else { return };
        let nominal = self.srts.nominal_ticks(periods);
        let residue = (u64::from(stamp) + STAMPS - u64::from(last)) % STAMPS;
        // The number nearest to the nominal one that leaves this residue.
        let ahead = (residue + STAMPS - nominal % STAMPS) % STAMPS;
        let ticks =
            if ahead < STAMPS / 2 { nominal + ahead } else { (nominal + ahead).saturating_sub(STAMPS) };
        self.periods += periods;
        self.ticks += ticks;
    }

    /// The source's rate by the network's clock, bit/s; none before two stamps.
    pub fn bits_per_second(&self) -> Option<f64> {
        let (hertz, divisor) = self.srts.derived_hertz();
        let bits = (self.periods * STAMP_PERIOD_BITS) as f64;
        (self.ticks > 0).then(|| bits * hertz as f64 / divisor as f64 / self.ticks as f64)
    }

    /// The same as a ratio to the nominal rate.
    pub fn ratio(&self) -> Option<f64> {
        self.bits_per_second().map(|rate| rate / self.srts.service_bits_per_second as f64)
    }
}

/// The rate by the level of the buffer.
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
    /// For a service of a nominal rate, with a buffer that is to stand at `target_octets`.
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

    /// The buffer holds so many octets, `elapsed` after the last look: how fast to read until the next, as a ratio to the nominal
    /// rate.
    pub fn on_level(&mut self, octets: usize, elapsed: Duration) -> f64 {
        // Seconds by which the buffer is ahead of its target.
        let ahead = (octets as f64 - self.target_octets) / self.octets_per_second;
        let proportional = ahead / self.settle;
        let step = ahead * elapsed.as_secs_f64() / (4.0 * self.settle * self.settle);
        self.integral = (self.integral + step).clamp(-self.tolerance, self.tolerance);
        self.ratio = 1.0 + (proportional + self.integral).clamp(-self.tolerance, self.tolerance);
        self.ratio
    }

    /// The rate that is read at, bit/s.
    pub fn bits_per_second(&self) -> f64 {
        self.octets_per_second * 8.0 * self.ratio
    }
}
