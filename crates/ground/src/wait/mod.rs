//! Waiting: when to look again at once, and when to sleep until somebody rings.
//!
//! Goal      one policy for every queue, as data ([`Wait`]), and one decision code ([`Waiter`]) that real and
//!           virtual time drive alike.
//! Down      whoever waits says what happened: looked and found nothing, found something and how, lost the core.
//! Up        a [`Step`]: spin until a moment, or sleep until a moment or the bell ([`Bell`](crate::Bell)).
//! Cost      CPU time spun, plus for a sleep the CPU time of both ends, plus the price of the time that what
//!           arrived lay unseen ([`Costs`]). [`optimum`] is the least that somebody who knew the arrivals would pay.
//! Limits    nothing here reads a clock, and a moment that somebody else wrote is believed only between the
//!           beginning of the wait and now.
//! Left out  batches (wake me after n): a queue that wants them rings its bell more rarely.
//!
//! The paper's receive call (Murayama et al. 2000) is `hybrid`: poll for a set time, then wait for an interrupt, back
//! to polling when packets come.

mod adaptive;
mod costs;
mod gaps;
mod optimum;
mod period;
mod waiter;

pub use costs::Costs;
pub use optimum::optimum;
pub use waiter::{Evidence, Report, Step, Waiter};

use crate::{Setting, SettingWord};
use alloc::format;
use core::fmt;
use core::time::Duration;

/// How a queue waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Spins until something comes: the least latency, a whole core.
    Poll,
    /// Sleeps at once until the bell rings: the least CPU time when little comes.
    Interrupt,
    /// Spins for a set time, then sleeps until the bell rings (the paper's call).
    Hybrid {
        /// How long it spins.
        spin: Duration,
    },
    /// Learns when to spin, for how long, and when to sleep towards the next arrival.
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
        "poll, interrupt, hybrid:100us (any time) or adaptive".into()
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

/// The word stands for no way to wait. The message says what may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchWait;

impl fmt::Display for NoSuchWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no way to wait: write {}", Wait::expects())
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
