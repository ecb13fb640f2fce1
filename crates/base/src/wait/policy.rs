//! Wait policies, as data.

use crate::{Setting, SettingWord};
use alloc::format;
use core::fmt;
use core::time::Duration;

/// How a queue waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Spins until something arrives: the least latency, at the cost of a whole core.
    Poll,
    /// Sleeps at once until the bell rings: the least CPU time if arrivals are rare.
    Interrupt,
    /// Spins for a set time, then sleeps until the bell rings (the receive call in the paper).
    Hybrid {
        /// How long it spins.
        spin: Duration,
    },
    /// Learns when and how long to spin, and when to nap towards the next arrival.
    #[default]
    Adaptive,
}

impl Setting for Wait {
    fn read(word: &str) -> Option<Self> {
        match word {
            "poll" => Some(Wait::Poll),
            "interrupt" => Some(Wait::Interrupt),
            "adaptive" => Some(Wait::Adaptive),
            _ => Some(Wait::Hybrid { spin: Duration::read(word.strip_prefix("hybrid:")?)? }),
        }
    }
    fn show(&self) -> SettingWord {
        match self {
            Wait::Poll => "poll".into(),
            Wait::Interrupt => "interrupt".into(),
            Wait::Hybrid { spin } => format!("hybrid:{}", spin.show()),
            Wait::Adaptive => "adaptive".into(),
        }
    }
    fn expects() -> SettingWord {
        "poll, interrupt, hybrid:DURATION (such as hybrid:100us) or adaptive".into()
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

/// The word is not a wait policy. The message lists the valid ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchWait;

impl fmt::Display for NoSuchWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a wait policy: write {}", Wait::expects())
    }
}

impl core::error::Error for NoSuchWait {}

impl core::str::FromStr for Wait {
    type Err = NoSuchWait;
    fn from_str(word: &str) -> Result<Self, NoSuchWait> {
        Wait::read(word).ok_or(NoSuchWait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_policy_is_written_and_read_as_a_word() {
        for (word, wait) in [
            ("poll", Wait::Poll),
            ("interrupt", Wait::Interrupt),
            ("hybrid:100us", Wait::Hybrid { spin: Duration::from_micros(100) }),
            ("hybrid:0s", Wait::Hybrid { spin: Duration::ZERO }),
            ("adaptive", Wait::Adaptive),
        ] {
            assert_eq!(word.parse(), Ok(wait));
            assert_eq!(wait.to_string(), word);
        }
        for word in ["", "hybrid", "hybrid:", "hybrid:many", "spin", "Poll"] {
            assert_eq!(word.parse::<Wait>(), Err(NoSuchWait), "{word}");
        }
        assert_eq!(Wait::default(), Wait::Adaptive);
    }
}
