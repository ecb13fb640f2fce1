//! The cells to measure.

use kiban_base::Wait;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Messages of a burst.
pub const BURST: u64 = 32;
/// The offered load in bytes per second, as in the model of the paper's host.
const BYTES_PER_SECOND: u64 = 62_500_000;
/// The minimum mean interval between two messages.
const GAP_MIN: Duration = Duration::from_micros(100);
/// The paper's KB.
const KB: u32 = 1000;

/// The link between sender and receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// Shared memory.
    Shm,
    /// UDP through the loopback.
    Udp,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Link::Shm => "shared memory",
            Link::Udp => "UDP",
        })
    }
}

/// How the sender spaces messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Evenly.
    Paced,
    /// In bursts, at the same mean rate.
    Bursts,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The link.
    pub link: Link,
    /// The wait policy of the receiver.
    pub wait: String,
    /// How messages are spaced.
    pub pattern: Pattern,
    /// Bytes per message.
    pub bytes: u32,
    /// Receive descriptors.
    pub descriptors: u32,
    /// Messages to send.
    pub messages: u64,
    /// Whether a computing thread shares the receiver's processor.
    pub workload: bool,
}

impl Cell {
    /// Returns the mean interval between two messages.
    pub fn gap(&self) -> Duration {
        Duration::from_nanos(u64::from(self.bytes) * 1_000_000_000 / BYTES_PER_SECOND).max(GAP_MIN)
    }

    /// Returns when a message is due, after the start.
    pub fn due(&self, number: u64) -> Duration {
        let before = match self.pattern {
            Pattern::Paced => number,
            Pattern::Bursts => number / BURST * BURST,
        };
        Duration::from_nanos(self.gap().as_nanos() as u64 * before)
    }
}

/// A set of measurements: all combinations.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The links.
    pub links: Vec<Link>,
    /// The receiver's wait policies.
    pub waits: Vec<Wait>,
    /// Message sizes, KB.
    pub sizes_kb: Vec<u32>,
    /// Numbers of receive descriptors.
    pub descriptors: Vec<u32>,
    /// How long each cell lasts.
    pub length: Duration,
    /// Whether a computing thread shares the receiver's processor.
    pub workload: bool,
}

const fn hybrid(spin_us: u64) -> Wait {
    Wait::Hybrid { spin: Duration::from_micros(spin_us) }
}

impl Plan {
    /// Returns the full plan. 106, 152 and 228 descriptors are the paper's 7, 10 and 15 MB.
    pub fn full() -> Plan {
        Plan {
            links: vec![Link::Shm, Link::Udp],
            waits: vec![Wait::Poll, Wait::Interrupt, hybrid(100), hybrid(140), hybrid(300), Wait::Adaptive],
            sizes_kb: vec![1, 5, 10, 15, 25, 50, 65],
            descriptors: vec![4, 16, 106, 152, 228, 2000],
            length: Duration::from_millis(300),
            workload: true,
        }
    }

    /// Returns a plan with fewer and shorter cells.
    pub fn quick() -> Plan {
        Plan {
            waits: vec![Wait::Interrupt, hybrid(100), hybrid(300), Wait::Adaptive],
            sizes_kb: vec![1, 15, 50],
            descriptors: vec![4, 106, 1000],
            length: Duration::from_millis(60),
            ..Plan::full()
        }
    }

    /// Returns the cells in the order in which they are measured. The wait policy varies fastest, so that
    /// policies that are compared run close to each other.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &link in &self.links {
            for &descriptors in &self.descriptors {
                for &kb in &self.sizes_kb {
                    for pattern in [Pattern::Paced, Pattern::Bursts] {
                        cells.extend(self.waits.iter().map(|wait| {
                            let wait = wait.to_string();
                            let bytes = kb * KB;
                            let workload = self.workload;
                            let cell =
                                Cell { link, wait, pattern, bytes, descriptors, messages: 0, workload };
                            let messages = self.length.as_nanos() / cell.gap().as_nanos();
                            // Whole bursts, so that both patterns send as much.
                            let messages = (messages as u64).next_multiple_of(BURST);
                            Cell { messages, ..cell }
                        }));
                    }
                }
            }
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_patterns_offer_the_same_load() {
        for cell in Plan::quick().cells() {
            let due: Vec<u64> = [0, 1, 31, 32, 64].map(|number| cell.due(number).as_micros() as u64).to_vec();
            let gap = cell.gap().as_micros() as u64;
            let within = if cell.pattern == Pattern::Paced { [1, 31] } else { [0, 0] };
            assert_eq!(due, [0, within[0] * gap, within[1] * gap, 32 * gap, 64 * gap], "{cell:?}");
            assert!(cell.messages.is_multiple_of(BURST) && cell.messages > 0);
        }
        let gaps: Vec<u128> = [1, 5, 50]
            .map(|kb| {
                let plan = Plan { sizes_kb: vec![kb], ..Plan::quick() };
                plan.cells()[0].gap().as_micros()
            })
            .to_vec();
        assert_eq!(gaps, [100, 100, 800]);
    }
}
