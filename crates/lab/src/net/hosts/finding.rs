//! What is wrong with the path to a host.
//!
//! Loss      counts only on the idle path: a full queue loses packets on a healthy path, too. If too few
//!           probes were sent there, the report says that loss was not measured.
//! Slow      is a comparison with the best host of the same run, in the same direction. A host whose server
//!           limits the rate is not slow. The advice depends on whether packets wait in a queue (a link or
//!           shaper is full), are lost only under load, or neither.

use crate::net::latency::{Grade, Latency, LoadName, LoadRow, Next, trace_command};
use crate::table::readable;
use serde::Serialize;

/// The fewest probes that show whether the path loses packets.
const PROBES_MIN: u64 = 300;
/// The mean number of losses at which 95 % of all measurements lose three, which is a finding (Poisson).
const LOST_MEAN: f64 = 6.3;
/// A path is slow if it carries less than this part of the best one, as in a sweep of streams.
const SLOW_PART: f64 = 0.25;
/// A load fills a link if the median one-way delay grows by this time, ms.
const FULL_QUEUE_MIN: f64 = 1.0;
/// The share of retransmitted segments, percent, that is named as the reason of a low rate.
const RETRANSMITS_MIN: f64 = 1.0;

/// What is wrong with a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostCause {
    /// A load moved no data.
    Stalled,
    /// Packets are lost on the idle path.
    Loss,
    /// It carries much less than the path to another host.
    Slow,
    /// Packets wait in a long queue while it is loaded.
    Queue,
    /// A host limited the load, so that it did not fill the path.
    NotFilled,
    /// Too few probes were sent to see a loss.
    LossNotMeasured,
    /// The server limits the rate, so the path was not filled.
    ServerLimit,
}

impl HostCause {
    /// Returns the name for people.
    pub fn words(self) -> &'static str {
        match self {
            HostCause::Stalled => "bulk data stalls",
            HostCause::Loss => "loses packets",
            HostCause::Slow => "slow",
            HostCause::Queue => "long queue",
            HostCause::NotFilled => "path not filled",
            HostCause::LossNotMeasured => "loss not measured",
            HostCause::ServerLimit => "limited by its server",
        }
    }
}

/// A finding about a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct HostFinding {
    /// What is wrong.
    pub cause: HostCause,
    /// The evidence.
    pub because: String,
    /// What to do.
    pub advice: String,
}

/// Returns the row of a load.
pub(super) fn row(latency: &Latency, load: LoadName) -> &LoadRow {
    latency.loads.iter().find(|row| row.load == load).expect("each load was measured")
}

/// Returns the throughput alone, to the host and from it, Mbit/s.
pub(super) fn rates(latency: &Latency) -> [f64; 2] {
    let of = |load, way: usize| row(latency, load).throughput_mbps[way];
    [of(LoadName::Upload, 0), of(LoadName::Download, 1)]
}

/// Returns what to do about a path that is slow in a direction; `other` is the best host.
fn slow_advice(
    (name, other): (&str, &str),
    latency: &Latency,
    way: usize,
    lossy: bool,
    command: Next<'_>,
) -> String {
    let load = row(latency, [LoadName::Upload, LoadName::Download][way]);
    let (mbps, queue) = (readable(load.throughput_mbps[way]), readable(load.queue_ms[way]));
    let retransmits = load.retransmits_percent(way).filter(|percent| *percent >= RETRANSMITS_MIN);
    if lossy {
        return "find the cause of the losses first, because TCP sends slowly on a path that loses packets"
            .to_owned();
    }
    if load.queue_ms[way] >= FULL_QUEUE_MIN {
        return format!(
            "a link or shaper of about {mbps} Mbit/s is full: packets wait {queue} ms in its queue, and no losses \
             were seen on the idle path. Compare the links to {name} and to {other}: their speed (ethtool INTERFACE), and shapers (tc \
             -s qdisc show dev INTERFACE)"
        );
    }
    match retransmits {
        Some(percent) => format!(
            "{} % of the segments are retransmitted, although no losses were seen on the idle path and no queue \
             grows: a policer of about {mbps} Mbit/s, a very short queue, or a device that drops TCP segments. Compare the \
             drop counters on the way to {name} and to {other} (tc -s qdisc, ethtool -S); `{}` records a transfer for \
             `kiban lab explain`",
            readable(percent),
            trace_command(way, command),
        ),
        None => format!(
            "the path is not full: no queue grows, and no losses were seen. `{}` says what limits a connection",
            command("sweep --pattern stream --both-directions"),
        ),
    }
}

/// Returns the findings about a host; `best` are the name and the rate of the best host in each direction.
pub(super) fn findings(
    name: &str,
    latency: &Latency,
    best: [&(String, f64); 2],
    command: Next<'_>,
) -> Vec<HostFinding> {
    let mut found = Vec::new();
    let idle = row(latency, LoadName::Idle);
    for (way, word) in ["to", "from"].into_iter().enumerate() {
        let fate = &idle.probes[way];
        if let Some(percent) = idle.idle_loss(way) {
            found.push(HostFinding {
                cause: HostCause::Loss,
                because: format!(
                    "{} of {} probes {word} the host ({} %) were lost while the path was idle",
                    fate.lost,
                    fate.sent,
                    readable(percent)
                ),
                advice: format!(
                    "look at the error counters of each interface on the path (ip -s link, ethtool -S), and for \
                     wireless links and policers; `{}` measures the losses for longer",
                    command("udp --interval 5ms --time 30s")
                ),
            });
        }
    }
    let sent = idle.probes.iter().map(|fate| fate.sent).min().unwrap_or(0);
    let is_lossy = !found.is_empty();
    let limited = latency.loads.iter().any(|row| row.rate_limited);
    let slow = |way: usize| !limited && rates(latency)[way] < SLOW_PART * best[way].1;
    for (way, word) in ["to", "from"].into_iter().enumerate().filter(|(way, _)| slow(*way)) {
        let (other, rate) = best[way];
        found.push(HostFinding {
            cause: HostCause::Slow,
            because: format!(
                "{} Mbit/s {word} the host; {other} has {}",
                readable(rates(latency)[way]),
                readable(*rate)
            ),
            advice: slow_advice((name, other), latency, way, is_lossy, command),
        });
    }
    let alone = [LoadName::Upload, LoadName::Download].map(|load| row(latency, load));
    // A direction without a grade moved no data, or did not fill the path.
    let cause = if alone.iter().any(|row| row.is_stalled()) {
        Some(HostCause::Stalled)
    } else if alone.iter().any(|row| row.grade >= Some(Grade::C)) {
        Some(HostCause::Queue)
    } else {
        latency.grade.is_none().then_some(HostCause::NotFilled)
    };
    if let Some(cause) = cause {
        found.push(HostFinding {
            cause,
            because: latency.verdict.clone(),
            advice: latency.advice.join("; "),
        });
    }
    if sent < PROBES_MIN && !is_lossy {
        found.push(HostFinding {
            cause: HostCause::LossNotMeasured,
            because: format!(
                "only {sent} probes were sent on the idle path, because a host was busy: a loss below {} % would not \
                 show",
                readable((100.0 * LOST_MEAN / sent.max(1) as f64).min(100.0))
            ),
            advice: "measure again when both hosts are less busy".to_owned(),
        });
    }
    if limited {
        found.push(HostFinding {
            cause: HostCause::ServerLimit,
            because: "the server's rate limit slowed the load: the path may carry more".to_owned(),
            advice: "raise `rate` in the plan if the path may be filled".to_owned(),
        });
    }
    found
}
