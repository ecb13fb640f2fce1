//! Shards: parts of a plan that run in different processes or on different machines.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Shard `number` out of `of` shards. It takes every `of`-th trial, so that slow regions of the plan are
/// spread over all shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shard {
    number: u32,
    of: u32,
}

impl Shard {
    /// The whole plan as one shard.
    pub const ALL: Shard = Shard { number: 1, of: 1 };

    /// Creates shard `number` (counted from 1) out of `of` shards; returns `None` if `number` is out of
    /// range.
    pub fn new(number: u32, of: u32) -> Option<Shard> {
        (1..=of).contains(&number).then_some(Shard { number, of })
    }

    /// Returns whether the shard is the whole plan.
    pub fn is_all(self) -> bool {
        self.of == 1
    }

    /// Returns the numbers of the trials that belong to the shard, in a plan of `all` trials.
    pub fn trials(self, all: u64) -> impl Iterator<Item = u64> {
        (u64::from(self.number - 1)..all).step_by(self.of as usize)
    }

    /// Returns how many trials belong to the shard, in a plan of `all` trials.
    pub fn count(self, all: u64) -> u64 {
        all.saturating_sub(u64::from(self.number - 1)).div_ceil(u64::from(self.of))
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parts =
            text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        let shard = parts.and_then(|(number, of)| Shard::new(number, of));
        shard.ok_or_else(|| {
            format!("invalid shard '{text}': expected k/n with k from 1 to n, for example 3/7")
        })
    }
}

impl TryFrom<String> for Shard {
    type Error = String;

    fn try_from(text: String) -> Result<Shard, String> {
        text.parse()
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> String {
        shard.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_partition_the_trials() {
        for (of, all) in [(1, 5), (2, 5), (7, 5), (7, 100), (3, 0)] {
            let shards = (1..=of).map(|number| Shard::new(number, of).expect("it is one of them"));
            let mut trials: Vec<u64> = shards
                .flat_map(|shard| {
                    assert_eq!(shard.trials(all).count() as u64, shard.count(all));
                    shard.trials(all)
                })
                .collect();
            trials.sort_unstable();
            assert_eq!(trials, (0..all).collect::<Vec<_>>(), "{of} {all}");
        }
    }

    #[test]
    fn a_shard_is_parsed_and_printed_as_a_fraction() {
        let shard: Shard = "3/7".parse().expect("it is one");
        assert_eq!((shard.to_string(), shard.is_all()), ("3/7".to_owned(), false));
        for text in ["0/7", "8/7", "1/0", "3", "a/b", "-1/2", "1/2/3"] {
            assert!(text.parse::<Shard>().is_err_and(|what| what.contains(text)), "{text}");
        }
    }
}
