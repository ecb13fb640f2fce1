//! A model of the receiving host of paper \[4\], with one set of constants for all points.
//!
//! Load      packets of one size arrive at constant intervals, at the same byte rate for every size, but at
//!           most one packet per [`Host::gap_min`].
//! Buffer    the buffer consists of receive descriptors, each for a packet of the largest size, because in
//!           the VI Architecture a descriptor receives one message of any length. A buffer of 7 MB is 106
//!           descriptors.
//! Stalls    delay the wake-up of a sleeping process (see [`STALLS`]); a running process keeps the processor.

use super::super::Constant;
use kiban_base::{Costs, Wait};
use kiban_sim::waiting::{
    ArrivalPattern, Arrivals, Level, Outcome, Posted, Posting, Process, Stall, StallLength, StallTiming,
};
use std::time::Duration;

const fn micros(length: u64) -> Duration {
    Duration::from_micros(length)
}

/// The paper's KB.
pub const KB: u64 = 1000;
/// The paper's MB.
pub const MB: u64 = 1_000_000;
/// Bytes of a receive descriptor: the longest packet, "65 KB".
pub const DESCRIPTOR_BYTES: u64 = 65_536;

/// A receiving host and its sender.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// The offered load, bytes per second.
    pub bytes_per_second: u64,
    /// The rate of the link, bytes per second.
    pub link_bytes_per_second: u64,
    /// The minimum interval between two packets of the sender.
    pub gap_min: Duration,
    /// CPU time of the receiving process per packet.
    pub work: Duration,
    /// The costs of waiting.
    pub costs: Costs,
    /// The stalls that the operating system causes.
    pub stalls: Vec<Stall>,
}

/// Frequent stalls that last three timer ticks of Linux 2.2 (10 ms each) plus some kernel work, and rare,
/// longer ones. Both come at the same wake-up only once in 55,000,000, which no run reaches.
pub const STALLS: [Stall; 2] = [
    Stall {
        when: StallTiming::EveryWaking(11_000),
        length: StallLength::Uniform { least: micros(30_000), most: micros(33_500) },
    },
    Stall {
        when: StallTiming::EveryWaking(5_000_000),
        length: StallLength::Uniform { least: micros(37_200), most: micros(38_400) },
    },
];

impl Host {
    /// Returns the host of the paper: Pentium III 600 MHz, Linux 2.2.12, cLAN 1000.
    pub fn of_2000() -> Host {
        Host {
            bytes_per_second: 62_500_000,
            link_bytes_per_second: 100_000_000,
            gap_min: micros(125),
            work: micros(101),
            costs: Costs {
                wake: micros(20),
                sleep: micros(2),
                ring: micros(1),
                timer_late: micros(10_000),
                timer_late_seldom: micros(20_000),
                price: 1.0,
            },
            stalls: STALLS.to_vec(),
        }
    }

    /// Returns the interval between two packets.
    pub fn gap(&self, packet_bytes: u64) -> Duration {
        let ArrivalPattern::Constant { gap } = self.rhythm(packet_bytes) else {
            unreachable!("packets come evenly")
        };
        gap
    }

    fn rhythm(&self, packet_bytes: u64) -> ArrivalPattern {
        ArrivalPattern::packets(packet_bytes, self.bytes_per_second, self.gap_min)
    }

    /// Returns the length of the longest stall.
    pub fn stall_longest(&self) -> Duration {
        self.stalls.iter().map(|stall| stall.length.max()).max().unwrap_or_default()
    }

    /// Receives packets of one size.
    pub fn receive(
        &self,
        wait: Wait,
        level: Level,
        descriptors: usize,
        packet_bytes: u64,
        packets: u64,
    ) -> Received {
        let pace = Duration::from_nanos(packet_bytes * 1_000_000_000 / self.link_bytes_per_second);
        let arrivals = Arrivals::new(self.rhythm(packet_bytes), packets, 1);
        let mut queue = Posted::new(Posting { descriptors, level, pace }, arrivals);
        let process =
            Process { wait, costs: self.costs, work: self.work, stalls: self.stalls.clone(), seed: 1 };
        let outcome = process.run(&mut queue);
        let missing = packets - outcome.taken;
        Received { outcome, packets, lost: missing, held: queue.held() }
    }
}

/// Returns the number of receive descriptors of a buffer.
pub fn descriptors(buffer_bytes: u64) -> usize {
    (buffer_bytes / DESCRIPTOR_BYTES) as usize
}

/// The result for packets of one size.
#[derive(Clone, Debug)]
pub struct Received {
    /// The costs and latencies of waiting.
    pub outcome: Outcome,
    /// Packets sent.
    pub packets: u64,
    /// Packets that did not arrive, because they were lost one by one or because the connection broke.
    pub lost: u64,
    /// How long flow control stopped the sender.
    pub held: Duration,
}

impl Received {
    /// Returns the packet loss, percent.
    pub fn loss_percent(&self) -> f64 {
        self.lost as f64 / self.packets as f64 * 100.0
    }

    /// Returns the CPU use, percent.
    pub fn cpu_percent(&self) -> f64 {
        self.outcome.cpu() * 100.0
    }
}

/// Returns the constants of the model.
pub(super) fn constants(host: &Host) -> Vec<Constant> {
    let constant = |name, value: String, origin, why| Constant { name, value, origin, why };
    let us = |length: Duration| format!("{} us", length.as_micros());
    let [often, seldom] = STALLS.map(|stall| match (stall.when, stall.length) {
        (StallTiming::EveryWaking(times), StallLength::Uniform { least, most }) => (
            format!("1 in {}", super::super::super::table::figure(times as f64)),
            format!("{:.1}..{:.1} ms", least.as_secs_f64() * 1e3, most.as_secs_f64() * 1e3),
        ),
        _ => unreachable!("so they are above"),
    });
    vec![
        constant(
            "offered rate",
            format!("{:.1} MB/s", host.bytes_per_second as f64 / 1e6),
            "fitted",
            "Fig. 2: from 100 to 300 us of polling, CPU use grows by a quarter of the interval between \
            packets",
        ),
        constant("link", "100 MB/s".to_owned(), "sourced", "paper [4], section 1"),
        constant(
            "minimum gap",
            us(host.gap_min),
            "assumed",
            "the sender is the same kind of machine; the gap must exceed the work, or no receiver keeps up",
        ),
        constant(
            "work per packet",
            us(host.work),
            "fitted",
            "Fig. 2: the remainder of 25, 31 and 50 % after subtracting polling is 104 us for work and sleep; \
            work of 100 us or more keeps a process that polls for 140 us awake at 15 KB, as table 3 has it",
        ),
        constant(
            "sleep",
            us(host.costs.sleep + host.costs.ring),
            "fitted",
            "CPU time for falling asleep, the interrupt and waking: the rest of the 104 us",
        ),
        constant("wake-up", us(host.costs.wake), "assumed", "time from the interrupt until the process runs"),
        constant(
            "timed sleeps",
            us(host.costs.timer_late),
            "sourced",
            "late by one tick of Linux 2.2's clock (HZ = 100), which is too coarse for packets, so adaptive \
            waiting does not use timed sleeps",
        ),
        constant(
            "size of a descriptor",
            format!("{DESCRIPTOR_BYTES} B"),
            "assumed",
            "a descriptor holds one packet of any length (VI Architecture 1.0), so it must hold the longest \
            packet in Fig. 2; see the documentation",
        ),
        constant(
            "stalled process",
            "sleeping".to_owned(),
            "assumed",
            "a process is stalled when it wakes up, because Linux 2.2 does not preempt the kernel; a \
            running process keeps the processor",
        ),
        constant(
            "sizes in table 3",
            "5 KB apart".to_owned(),
            "assumed",
            "the paper gives lossy sizes as 10..15 and 20..25 KB",
        ),
        constant(
            "frequent stalls",
            often.0,
            "fitted",
            "wake-ups; gives a loss of 0.2 % with 100 us and 7 MB",
        ),
        constant(
            "their length",
            often.1,
            "fitted",
            "long enough for loss in that cell at 15 KB, too short for loss with 140 us and 7 MB at 20 KB",
        ),
        constant(
            "rare stalls",
            seldom.0,
            "fitted",
            "wake-ups; gives a loss of 0.00025 % with 140 us and 7 MB",
        ),
        constant(
            "their length",
            seldom.1,
            "fitted",
            "long enough for the loss of 0.0001 % with 100 us and 10 MB",
        ),
    ]
}
