//! The rate below which a stream is slow.
//!
//! Default   a quarter of the best stream in either direction. This finds settings that are slow on any
//!           network, and a slow direction, but no stream is slow if all are.
//! Absolute  a rate, such as the 10 Mbit/s below which paper \[2\] counts a cell of its figure 8.
//! Kept      in `verdict.json` beside the records, so that reports judge as the sweep did. The threshold is
//!           no parameter of a point: the same records can be judged by another one without a measurement.

use crate::engine::StoreError;
use crate::engine::store::{pretty, write_atomically};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A stream below this fraction of the best one is slow, unless a rate is given.
const BEST_PART: f64 = 0.25;

/// The rate below which a stream is slow.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlowBelow {
    /// A quarter of the best stream in either direction.
    #[default]
    QuarterOfBest,
    /// This rate, Mbit/s.
    Mbps(f64),
}

/// The contents of `verdict.json`.
#[derive(Serialize, Deserialize)]
struct Verdict {
    streams_slow_below: SlowBelow,
}

impl SlowBelow {
    /// Returns the threshold in Mbit/s, given the rate of the best stream.
    pub fn mbps(self, best_mbps: f64) -> f64 {
        match self {
            SlowBelow::QuarterOfBest => BEST_PART * best_mbps,
            SlowBelow::Mbps(mbps) => mbps,
        }
    }

    fn path(dir: &Path) -> PathBuf {
        dir.join("verdict.json")
    }

    /// Reads the threshold of a sweep from its directory; the default if none was kept.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn read(dir: &Path) -> Result<SlowBelow, StoreError> {
        let path = SlowBelow::path(dir);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SlowBelow::default()),
            Err(error) => return Err(StoreError::Read(path, error)),
        };
        let verdict: Verdict = serde_json::from_slice(&bytes).map_err(|error| {
            StoreError::Mismatch(format!(
                "{}: {error}; run `kiban lab sweep` again, which writes the file",
                path.display()
            ))
        })?;
        Ok(verdict.streams_slow_below)
    }

    /// Keeps the threshold in a sweep's directory.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(self, dir: &Path) -> Result<(), StoreError> {
        write_atomically(&SlowBelow::path(dir), &pretty(&Verdict { streams_slow_below: self }))
    }
}

/// Reads a rate with its unit: `10Mbit/s`, `800kbit/s`, `1.5Gbit/s`; `/s` may be left out.
impl FromStr for SlowBelow {
    type Err = String;

    fn from_str(text: &str) -> Result<SlowBelow, String> {
        let word = text.strip_suffix("/s").unwrap_or(text);
        let units = [("kbit", 1e-3), ("Mbit", 1.0), ("Gbit", 1e3)];
        let unit = units.iter().find_map(|(unit, mbps)| Some((word.strip_suffix(unit)?, mbps)));
        let rate = unit.and_then(|(number, mbps)| Some(number.trim().parse::<f64>().ok()? * mbps));
        rate.filter(|mbps| *mbps > 0.0 && mbps.is_finite())
            .map(SlowBelow::Mbps)
            .ok_or_else(|| "write a rate above 0 with its unit, such as 10Mbit/s".to_owned())
    }
}

impl fmt::Display for SlowBelow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlowBelow::QuarterOfBest => f.write_str("a quarter of the best stream"),
            SlowBelow::Mbps(mbps) => write!(f, "{mbps} Mbit/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_with_its_unit() {
        for (text, mbps) in [
            ("10Mbit/s", 10.0),
            ("10Mbit", 10.0),
            ("800kbit/s", 0.8),
            ("1.5Gbit/s", 1500.0),
            ("2 Mbit/s", 2.0),
        ] {
            assert_eq!(text.parse(), Ok(SlowBelow::Mbps(mbps)), "{text}");
        }
        for text in ["", "10", "10MB/s", "0Mbit/s", "-1Mbit/s", "infMbit/s", "NaNMbit", "Mbit/s"] {
            assert!(text.parse::<SlowBelow>().is_err_and(|why| why.contains("10Mbit/s")), "{text}");
        }
    }

    #[test]
    fn the_last_threshold_is_kept_beside_the_records() {
        let dir = tempfile::tempdir().expect("there is disk space");
        assert_eq!(SlowBelow::read(dir.path()).expect("no file"), SlowBelow::QuarterOfBest);
        for threshold in [SlowBelow::Mbps(10.0), SlowBelow::QuarterOfBest] {
            threshold.write(dir.path()).expect("there is disk space");
            assert_eq!(SlowBelow::read(dir.path()).expect("as written"), threshold);
        }
        std::fs::write(dir.path().join("verdict.json"), "{").expect("there is disk space");
        assert!(SlowBelow::read(dir.path()).is_err());
        assert_eq!((SlowBelow::QuarterOfBest.mbps(40.0), SlowBelow::Mbps(10.0).mbps(40.0)), (10.0, 10.0));
    }
}
