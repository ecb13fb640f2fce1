//! Configuration values with units (sizes, rates, durations), and their positions in the text.

use serde::{Deserialize, Deserializer};
use std::ops::Deref;
use std::str::FromStr;
use std::time::Duration;
use toml::Spanned;

/// A value with its position in the text.
#[derive(Clone, Debug)]
pub(super) struct Located<T> {
    /// The value.
    pub(super) value: T,
    /// Byte offset of the value.
    pub(super) at: usize,
}

/// Compares only the values, not their positions.
impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Located<T>) -> bool {
        self.value == other.value
    }
}

impl<T> Deref for Located<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Located<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Located<T>, D::Error> {
        let spanned = Spanned::<T>::deserialize(from)?;
        let at = spanned.span().start;
        Ok(Located { value: spanned.into_inner(), at })
    }
}

/// A string that is parsed only when the configuration is validated.
pub(super) type Word = Located<String>;

impl Word {
    /// Returns a command-line argument, which has no position.
    pub(super) fn plain(text: &str) -> Word {
        Located { value: text.to_owned(), at: 0 }
    }

    /// Parses the word.
    pub(super) fn read<T: FromStr>(&self) -> Result<T, T::Err> {
        self.value.parse()
    }
}

/// One word, or a list of words.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Words(pub(super) Vec<Word>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Words, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a string or a list of strings: [\"…\", \"…\"]")]
        enum Either {
            One(String),
            Many(Vec<String>),
        }
        let either = Spanned::<Either>::deserialize(from)?;
        let at = either.span().start;
        let word = |value| Located { value, at };
        Ok(Words(match either.into_inner() {
            Either::One(one) => vec![word(one)],
            Either::Many(many) => many.into_iter().map(word).collect(),
        }))
    }
}

/// A size in bytes: `64MiB`, `4KiB`, `1GB`, `512`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bytes(pub(super) u64);

impl FromStr for Bytes {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Bytes, &'static str> {
        let (number, unit) = split(text);
        let factor = match unit {
            "" | "B" => 1.0,
            "KiB" => 1024.0,
            "MiB" => 1_048_576.0,
            "GiB" => 1_073_741_824.0,
            "kB" | "KB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            _ => return Err("write a size such as 64MiB, 4KiB or 512"),
        };
        match number {
            Some(number) if number * factor < 1e18 => Ok(Bytes((number * factor) as u64)),
            _ => Err("write a size such as 64MiB, 4KiB or 512"),
        }
    }
}

/// A rate in bit/s: `149.76Mbit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rate(pub(super) u64);

impl FromStr for Rate {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Rate, &'static str> {
        const SAY: &str = "write a rate such as 149.76Mbit, 10Gbit or 64kbit";
        let (number, unit) = split(text);
        let factor = match unit {
            "bit" => 1.0,
            "kbit" | "Kbit" => 1e3,
            "Mbit" => 1e6,
            "Gbit" => 1e9,
            _ => return Err(SAY),
        };
        match number.map(|number| (number * factor).round()) {
            Some(rate) if (1.0..=1e12).contains(&rate) => Ok(Rate(rate as u64)),
            _ => Err(SAY),
        }
    }
}

/// A duration: `500us`, `10s`, `5min`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DurationValue(pub Duration);

impl FromStr for DurationValue {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<DurationValue, &'static str> {
        const SAY: &str = "write a time such as 500us, 10s or 5min";
        let (number, unit) = split(text);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "min" | "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(SAY),
        };
        match number {
            Some(number) if number * seconds < 1e9 => {
                Ok(DurationValue(Duration::from_secs_f64(number * seconds)))
            }
            _ => Err(SAY),
        }
    }
}

fn split(text: &str) -> (Option<f64>, &str) {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number = digits.trim_end().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    (number, &text[digits.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rates_and_times_have_units() {
        for (word, bytes) in [("512", 512), ("4KiB", 4096), ("1.5MiB", 1_572_864), ("1GB", 1_000_000_000)] {
            assert_eq!(word.parse(), Ok(Bytes(bytes)), "{word}");
        }
        for (word, rate) in [("149.76Mbit", 149_760_000), ("64kbit", 64_000), ("1Gbit", 1_000_000_000)] {
            assert_eq!(word.parse(), Ok(Rate(rate)), "{word}");
        }
        for (word, nanos) in [
            ("500us", 500_000),
            ("10s", 10_000_000_000),
            ("1.5min", 90_000_000_000),
            ("2m", 120_000_000_000),
            ("1d", 86_400_000_000_000),
        ] {
            assert_eq!(word.parse(), Ok(DurationValue(Duration::from_nanos(nanos))), "{word}");
        }
        for word in ["", "-1MiB", "MiB", "1TiBit", "1e400", "nan", "10 parsecs"] {
            assert!(word.parse::<Bytes>().is_err(), "{word}");
            assert!(word.parse::<Rate>().is_err(), "{word}");
            assert!(word.parse::<DurationValue>().is_err(), "{word}");
        }
    }
}
