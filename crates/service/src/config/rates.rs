//! Traffic contracts in a configuration.

use super::error::hint;
use super::units::Word;
use kiban_atm::{Category, Contract, Interval, Service, Sustained, WEIGHT_MAX};
use std::time::Duration;

/// The number of cells per second at 100 Gbit/s.
const CELLS_MAX: f64 = 236e6;

/// A traffic contract as written in the configuration: rates in cells per second, burst size in cells.
pub(super) struct Rates {
    pub(super) pcr: Option<f64>,
    pub(super) scr: Option<f64>,
    pub(super) mbs: Option<u32>,
}

impl Rates {
    /// Validates a traffic contract for a line of the given rate in bit/s. Returns `None` if no contract is
    /// configured. `whose` names the contract's owner in errors.
    pub(super) fn contract(
        &self,
        whose: &str,
        line: u64,
        tolerance: Option<Duration>,
        usual: Duration,
    ) -> Result<Option<Contract>, (String, String)> {
        let pcr = match (self.pcr, self.scr, self.mbs) {
            (Some(pcr), ..) => pcr,
            (None, None, None) if tolerance.is_none() => return Ok(None),
            (None, ..) => {
                return Err((
                    format!("{whose} has a traffic contract without a peak cell rate"),
                    "set pcr, in cells/s".into(),
                ));
            }
        };
        let most = CELLS_MAX.min(line as f64 / 424.0 * 1.001);
        if !(pcr >= 1.0 && pcr <= most) {
            return Err((
                format!("pcr {pcr} of {whose} is out of range"),
                format!("must be 1 to {most:.0} cells/s on this line"),
            ));
        }
        let sustained = match (self.scr, self.mbs) {
            (None, None) => None,
            (Some(scr), Some(mbs)) if scr >= 1.0 && scr <= pcr && mbs >= 1 => {
                Some(Sustained { interval: cells(scr), burst_cells: mbs })
            }
            (Some(_), Some(_)) => {
                return Err((
                    format!("scr or mbs of {whose} is out of range"),
                    "scr must be between 1 and pcr, and mbs at least 1".into(),
                ));
            }
            _ => return Err((format!("{whose} has only one of scr and mbs"), "set both or neither".into())),
        };
        Ok(Some(Contract { sustained, ..Contract::peak(cells(pcr), tolerance.unwrap_or(usual)) }))
    }
}

/// Returns how a circuit is served, from the keys `category` and `weight`. An error has the key's word, if it
/// is known, what is wrong and what to do.
pub(super) fn service(
    category: Option<&Word>,
    weight: Option<u16>,
) -> Result<Service, (Option<&Word>, String, String)> {
    let category = match category {
        None => Category::Ubr,
        Some(word) => Category::of(&word.value).ok_or_else(|| {
            let remedy = hint(&word.value, &Category::ALL.map(Category::word));
            (Some(word), format!("unknown value `{}`", word.value), remedy)
        })?,
    };
    match weight.unwrap_or(1) {
        weight @ 1..=WEIGHT_MAX => Ok(Service { category, weight }),
        weight => {
            Err((None, format!("weight {weight} is out of range"), format!("must be 1 to {WEIGHT_MAX}")))
        }
    }
}

/// Returns the interval between cells at this rate.
fn cells(per_second: f64) -> Interval {
    Interval::per_second(per_second.round() as u64)
}
