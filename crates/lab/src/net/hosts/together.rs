//! All hosts at once: do the paths share a bottleneck?
//!
//! Method    the rate of each host at once is compared with its rate alone. A host that falls behind shares a
//!           bottleneck. If all together carry what one carries alone, all share one.
//! Pairs     which hosts share it, or a narrower one besides that of all, shows when two of them are loaded:
//!           they carry less together than the sum of what each carries alone.
//! Doubt     if one host alone carries nearly the whole sum, the others are too slow to make it fall behind.
//!           The bottleneck of all paths may be this host: its link, if all together carry what one does, or
//!           its processors, if they were busy.

use crate::engine::Failure;
use crate::load::{Meter, ProcMeter, Reading};
use crate::net::latency::{Clocks, LatencyRequest, PROBE_INTERVAL, Phase, StartLine, round_trips, run_phase};
use crate::remote::client::Client;
use crate::table::readable;
use kiban_os::Clock;
use serde::Serialize;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// A host falls behind if all at once leave it less than this part of its rate alone.
const KEPT: f64 = 0.7;
/// The bottleneck of all may be this host's link if all at once carry at most this multiple of the best host
/// alone.
const LIKE_ONE: f64 = 1.25;
/// Nothing can be told if one host carries more than this part of the sum, and none falls behind.
const DOMINANT: f64 = 0.8;
/// Two hosts share a bottleneck if, loaded together, they carry less than this part of their rates alone.
const PAIR_KEPT: f64 = 0.85;
/// A pair shares a narrower bottleneck than that of all if it carries less than this part of it.
const NARROWER: f64 = 0.9;
/// A host that loses less than the rest of this part is not compared with another such host.
const UNAFFECTED: f64 = 0.9;
/// The most hosts in a direction that are compared in pairs, and the longest load of a pair.
const COMPARED_MAX: usize = 8;
const PAIR_LENGTH_MAX: Duration = Duration::from_secs(3);
/// The most names in a sentence.
const NAMES_MAX: usize = 4;
/// The share of the processors' time above which this host may be the bottleneck.
const BUSY: f64 = 0.9;

/// Whether paths share a bottleneck.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// All hosts fall behind, or all at once carry what one carries alone.
    Bottleneck,
    /// No host falls behind.
    Nothing,
    /// Some hosts fall behind, and others do not.
    Partly,
    /// One host carries nearly everything, so it cannot be told.
    Unknown,
}

impl Sharing {
    /// Decides from the rates alone and at once, and from which hosts fall behind.
    fn of(alone: &[f64], at_once: &[f64], fell: &[bool]) -> Sharing {
        let sum = |rates: &[f64]| rates.iter().sum::<f64>();
        let best = alone.iter().copied().fold(0.0, f64::max);
        // One of the connections that share a bottleneck may keep its rate, and leave nothing to the others.
        let like_one = sum(at_once) <= LIKE_ONE * best && sum(at_once) < KEPT * sum(alone);
        let is_pair = alone.len() == 2 && sum(at_once) < PAIR_KEPT * sum(alone);
        if like_one || is_pair || fell.iter().all(|fell| *fell) {
            Sharing::Bottleneck
        } else if fell.contains(&true) {
            Sharing::Partly
        } else if best > DOMINANT * sum(alone) {
            Sharing::Unknown
        } else {
            Sharing::Nothing
        }
    }
}

/// Hosts that share a bottleneck, as pairs of them show.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Group {
    /// Their numbers in the order of the report.
    pub hosts: Vec<usize>,
    /// What two of them carry at once, Mbit/s.
    pub mbps: f64,
}

/// The rates of all hosts in one direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Direction {
    /// `to` or `from` the hosts.
    pub direction: &'static str,
    /// Whether they share a bottleneck.
    pub sharing: Sharing,
    /// The sum of the rates of each host alone, Mbit/s.
    pub alone_sum_mbps: f64,
    /// The sum of the rates of all at once, Mbit/s.
    pub sum_mbps: f64,
    /// The rate of each host alone, Mbit/s.
    pub alone_mbps: Vec<f64>,
    /// The rate of each host at once, Mbit/s.
    pub mbps: Vec<f64>,
    /// Which hosts fall behind their rate alone.
    pub fell: Vec<bool>,
    /// The hosts that share a bottleneck, or a narrower one than all do.
    pub groups: Vec<Group>,
    /// The number of hosts that were compared in pairs.
    pub compared: usize,
    /// The median round trip of each host, ms; `None` if no probe had a reply.
    pub round_trip_ms: Vec<Option<f64>>,
    /// Whether the processors of this host were busy, so that they may be the bottleneck.
    pub busy: bool,
}

impl Direction {
    pub(super) fn of(
        direction: &'static str,
        alone: &[f64],
        rows: Vec<(f64, Option<f64>)>,
        busy: bool,
    ) -> Direction {
        let (mbps, round_trip_ms): (Vec<f64>, _) = rows.into_iter().unzip();
        let fell: Vec<bool> =
            alone.iter().zip(&mbps).map(|(alone, at_once)| *at_once < KEPT * alone).collect();
        Direction {
            direction,
            sharing: Sharing::of(alone, &mbps, &fell),
            alone_sum_mbps: alone.iter().sum(),
            sum_mbps: mbps.iter().sum(),
            alone_mbps: alone.to_vec(),
            mbps,
            fell,
            groups: Vec::new(),
            compared: 0,
            round_trip_ms,
            busy,
        }
    }

    /// Returns the part of its rate alone that a host keeps.
    fn kept(&self, host: usize) -> f64 {
        self.mbps[host] / self.alone_mbps[host].max(f64::MIN_POSITIVE)
    }

    /// Returns the hosts that have to be compared in pairs, those that lose most first.
    fn suspects(&self) -> Vec<usize> {
        let mut suspects: Vec<usize> = (0..self.mbps.len()).collect();
        if self.sharing == Sharing::Bottleneck {
            // What limits the others alone may be the bottleneck of all.
            suspects.retain(|host| self.alone_mbps[*host] < NARROWER * self.sum_mbps);
        } else if suspects.iter().all(|host| self.kept(*host) >= UNAFFECTED) {
            return Vec::new();
        }
        suspects.sort_by(|one, other| self.kept(*one).total_cmp(&self.kept(*other)));
        // All hosts of two are the pair.
        if self.mbps.len() < 3 { Vec::new() } else { suspects }
    }

    /// Finds the hosts that share a bottleneck. `load` loads two hosts, and returns the sum of their rates.
    fn compare<E>(&mut self, mut load: impl FnMut([usize; 2]) -> Result<f64, E>) -> Result<(), E> {
        let mut suspects = self.suspects();
        suspects.truncate(COMPARED_MAX);
        self.compared = suspects.len();
        let mut groups: Vec<Group> = Vec::new();
        'hosts: for host in suspects {
            for group in &mut groups {
                let pair = [group.hosts[0], host];
                if pair.iter().all(|one| self.kept(*one) >= UNAFFECTED) {
                    continue;
                }
                let sum = load(pair)?;
                let alone = pair.iter().map(|one| self.alone_mbps[*one]).sum::<f64>();
                let is_that_of_all = self.sharing == Sharing::Bottleneck && sum >= NARROWER * self.sum_mbps;
                if sum < PAIR_KEPT * alone && !is_that_of_all {
                    group.hosts.push(host);
                    group.mbps = group.mbps.max(sum);
                    continue 'hosts;
                }
            }
            groups.push(Group { hosts: vec![host], mbps: 0.0 });
        }
        groups.retain(|group| group.hosts.len() > 1);
        self.groups = groups;
        let is_in_group = |host: &usize| self.groups.iter().any(|group| group.hosts.contains(host));
        // If the bottlenecks of groups explain what is lost, there is none of all.
        let others = (0..self.mbps.len()).filter(|host| !is_in_group(host));
        let explained = self.groups.iter().map(|group| group.mbps).sum::<f64>()
            + others.map(|host| self.alone_mbps[host]).sum::<f64>();
        let is_explained = self.sharing != Sharing::Bottleneck || self.sum_mbps >= PAIR_KEPT * explained;
        if !self.groups.is_empty() && is_explained {
            let is_all = self.groups[0].hosts.len() == self.mbps.len();
            self.sharing = if is_all { Sharing::Bottleneck } else { Sharing::Partly };
        }
        Ok(())
    }

    /// Returns the conclusion about this direction in words.
    fn words(&self, names: &[&str]) -> String {
        let (way, sum) = (self.direction, readable(self.sum_mbps));
        let words = match self.sharing {
            Sharing::Bottleneck => {
                let own = if self.may_be_this_host() { ", which may be this host's own link" } else { "" };
                let alone = readable(self.alone_sum_mbps);
                let mut words = format!(
                    "{way} the hosts, all paths share a bottleneck of about {sum} Mbit/s{own} (one at a time, {alone} \
                     in total)"
                );
                for group in self.groups.iter().filter(|group| group.hosts.len() < self.mbps.len()) {
                    words +=
                        &format!("; of these, {}", self.group_words(group, "a narrower bottleneck", names));
                }
                words
            }
            Sharing::Partly => {
                let is_in_group = |host: &usize| self.groups.iter().any(|group| group.hosts.contains(host));
                let fell: Vec<usize> =
                    (0..self.fell.len()).filter(|host| self.fell[*host] && !is_in_group(host)).collect();
                let share = if fell.len() == 1 {
                    "shares a bottleneck with another host"
                } else {
                    "share bottlenecks, with each other or with other hosts"
                };
                let groups = self.groups.iter().map(|group| self.group_words(group, "a bottleneck", names));
                let rest = (!fell.is_empty()).then(|| format!("{} {share}", self.listed(fell, names)));
                format!("{way} the hosts, {}", groups.chain(rest).collect::<Vec<_>>().join("; "))
            }
            Sharing::Nothing => {
                format!("{way} the hosts, no paths share a bottleneck ({sum} Mbit/s at once)")
            }
            Sharing::Unknown => format!(
                "{way} the hosts, it cannot be told whether paths share a bottleneck, because one host has most of \
                 the traffic"
            ),
        };
        let is_partial = self.compared == COMPARED_MAX && self.mbps.len() > COMPARED_MAX;
        let rest = format!("; only the {COMPARED_MAX} hosts that lose most were compared in pairs");
        words + if is_partial { &rest } else { "" }
    }

    /// Returns what the hosts of a group share.
    fn group_words(&self, group: &Group, what: &str, names: &[&str]) -> String {
        let mut hosts = group.hosts.clone();
        hosts.sort_unstable();
        format!("{} share {what} of about {} Mbit/s", self.listed(hosts, names), readable(group.mbps))
    }

    /// Returns hosts with their rates alone and at once.
    fn listed(&self, numbers: Vec<usize>, names: &[&str]) -> String {
        let one = |number: usize| {
            let rates = [&self.alone_mbps, &self.mbps].map(|rates| readable(rates[number]));
            format!("{} ({} Mbit/s alone, {} at once)", names[number], rates[0], rates[1])
        };
        listed(numbers.into_iter().map(one).collect())
    }

    /// Returns with which other hosts a host shares a bottleneck, if it does.
    pub(super) fn shared_with(&self, host: usize, names: &[String]) -> Option<String> {
        let group = self.groups.iter().find(|group| group.hosts.contains(&host))?;
        let mut others: Vec<usize> = group.hosts.iter().copied().filter(|other| *other != host).collect();
        others.sort_unstable();
        let others = listed(others.into_iter().map(|other| names[other].clone()).collect());
        Some(format!("{others} ({} the hosts)", self.direction))
    }

    /// Returns whether the bottleneck of all may be this host's link.
    fn may_be_this_host(&self) -> bool {
        let best = self.alone_mbps.iter().copied().fold(0.0, f64::max);
        self.sharing == Sharing::Bottleneck && self.sum_mbps <= LIKE_ONE * best
    }

    /// Returns whether this host's processors may be the bottleneck.
    fn doubts_processors(&self) -> bool {
        self.busy && self.sharing == Sharing::Bottleneck
    }
}

/// The measurement of all hosts at once.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Together {
    /// To the hosts, and from them; the hosts are in the order of the report.
    pub directions: [Direction; 2],
}

impl Together {
    /// Returns the conclusions in words; `names` are those of the hosts.
    pub(super) fn words(&self, names: &[&str]) -> Vec<String> {
        let mut words: Vec<String> = self.directions.iter().map(|way| way.words(names)).collect();
        if self.directions.iter().any(Direction::doubts_processors) {
            words.push("this host's processors were busy, so they may be that bottleneck".to_owned());
        }
        words
    }

    /// Returns what to do; `names` are those of the hosts.
    pub(super) fn advice(&self, names: &[&str]) -> Option<String> {
        let own = self.directions.iter().any(Direction::may_be_this_host).then(|| {
            "to tell this host's link from a common link behind it, compare the rate with that of its interface \
             (ethtool), or run this command on another host"
                .to_owned()
        });
        let mut sharing: Vec<Vec<&str>> = Vec::new();
        for way in &self.directions {
            let groups = way.groups.iter().map(|group| group.hosts.clone());
            let is_all = way.sharing == Sharing::Bottleneck && !way.may_be_this_host();
            for mut hosts in groups.chain(is_all.then(|| (0..names.len()).collect())) {
                hosts.sort_unstable();
                let hosts = hosts.into_iter().map(|host| names[host]).collect();
                if !sharing.contains(&hosts) {
                    sharing.push(hosts);
                }
            }
        }
        let links = sharing.iter().map(|hosts| {
            format!(
                "traceroute to {} shows the links that their paths have in common: compare the rate of each with \
                 that of the bottleneck (ethtool INTERFACE, tc -s qdisc show dev INTERFACE)",
                listed(hosts.iter().map(|name| (*name).to_owned()).collect())
            )
        });
        let advice: Vec<String> = own.into_iter().chain(links).collect();
        (!advice.is_empty()).then(|| advice.join("; "))
    }
}

/// Returns the first of several words, and how many more there are.
fn listed(mut words: Vec<String>) -> String {
    if words.len() > NAMES_MAX {
        let more = words.split_off(NAMES_MAX).len();
        words.push(format!("{more} more"));
    }
    let last = words.pop().unwrap_or_default();
    if words.is_empty() { last } else { format!("{} and {last}", words.join(", ")) }
}

/// Loads all hosts at once, first to them and then from them, and then pairs of those that may share a
/// bottleneck. `alone` are the rates of each host alone, to it and from it, Mbit/s.
///
/// # Errors
/// Returns the number of the host that failed, and the cause.
pub fn together(
    clients: &mut [Client],
    request: &LatencyRequest,
    alone: &[[f64; 2]],
    progress: &dyn Fn(&str),
) -> Result<Together, (usize, Failure)> {
    let mut load = |way: usize, hosts: &[usize], length: Duration| {
        let connections = if way == 0 { [request.connections, 0] } else { [0, request.connections] };
        let phase = Phase { connections, length, interval: PROBE_INTERVAL, octets: 0, settled: None };
        let mut meter = ProcMeter::new(Clock::new());
        let before = meter.read();
        let line = StartLine::new(hosts.len());
        let observed: Vec<_> = thread::scope(|scope| {
            let phase = &phase;
            let threads: Vec<_> = clients
                .iter_mut()
                .enumerate()
                .filter(|(number, _)| hosts.contains(number))
                .map(|(number, client)| {
                    let place = Some(line.place());
                    (number, scope.spawn(move || run_phase(client, Clock::new(), phase, place)))
                })
                .collect();
            let ended = |(number, thread): (usize, ScopedJoinHandle<'_, _>)| {
                (number, thread.join().expect("a phase does not panic"))
            };
            threads.into_iter().map(ended).collect()
        });
        let is_busy = before.zip(meter.read()).is_some_and(|(before, after)| is_busy(before, after));
        let mut rows = Vec::new();
        for (number, observed) in observed {
            let observed = observed.map_err(|failure| (number, failure))?;
            let rate = Clocks::of(&observed.exchanges).map(|clocks| observed.throughput_mbps(&clocks)[way]);
            rows.push((rate.unwrap_or(0.0), round_trips(&observed).map(|times| times.p50_ms)));
        }
        Ok((rows, is_busy))
    };
    let mut direction = |way: usize, name: &'static str, load_name: &str| {
        progress(&format!("all at once: {load_name}"));
        let all: Vec<usize> = (0..alone.len()).collect();
        let (rows, is_busy) = load(way, &all, request.length)?;
        let alone: Vec<f64> = alone.iter().map(|rates| rates[way]).collect();
        let mut direction = Direction::of(name, &alone, rows, is_busy);
        let mut pairs = 0;
        direction.compare(|pair| {
            pairs += 1;
            progress(&format!("pairs of hosts, to find what they share: {load_name}, pair {pairs}"));
            let (rows, _) = load(way, &pair, request.length.min(PAIR_LENGTH_MAX))?;
            Ok(rows.iter().map(|(mbps, _)| mbps).sum())
        })?;
        Ok(direction)
    };
    Ok(Together { directions: [direction(0, "to", "upload")?, direction(1, "from", "download")?] })
}

/// Returns whether the processors of this host were busy between two readings.
fn is_busy(before: Reading, after: Reading) -> bool {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let wall = after.wall_nanos.saturating_sub(before.wall_nanos) as f64 * cores as f64;
    after.busy_nanos.saturating_sub(before.busy_nanos) as f64 > BUSY * wall
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(direction: &'static str, alone: &[f64], together: &[f64], busy: bool) -> Direction {
        Direction::of(direction, alone, together.iter().map(|mbps| (*mbps, None)).collect(), busy)
    }

    #[test]
    fn rates_at_once_show_what_is_shared() {
        for (alone, together, expected) in [
            (&[94.0, 94.0, 93.0][..], &[40.0, 30.0, 24.0][..], Sharing::Bottleneck),
            (&[94.0, 94.0, 93.0], &[93.0, 92.0, 93.0], Sharing::Nothing),
            // One keeps its rate, and leaves nothing to the other.
            (&[19.1, 19.1], &[17.5, 1.6], Sharing::Bottleneck),
            // All share a link that is faster than each of the others.
            (&[38.0, 38.0, 38.0, 38.0], &[15.0, 14.0, 15.0, 14.0], Sharing::Bottleneck),
            // Each of two keeps more than 70 %, but both carry no more than a link that they share.
            (&[60.0, 60.0], &[50.0, 50.0], Sharing::Bottleneck),
            // Two of three share one.
            (&[94.0, 94.0, 93.0], &[47.0, 47.0, 93.0], Sharing::Partly),
            // The sum hides two hosts behind a slow link, of which one takes everything.
            (&[38.2, 38.2, 7.7, 7.7], &[38.0, 38.1, 7.7, 0.6], Sharing::Partly),
            // The rate of a slow host is too small to be seen in that of the other.
            (&[940.0, 9.0], &[931.0, 9.0], Sharing::Unknown),
            (&[940.0, 9.0], &[931.0, 3.0], Sharing::Partly),
        ] {
            assert_eq!(way("to", alone, together, false).sharing, expected, "{alone:?} {together:?}");
        }
    }

    /// Compares hosts whose paths have bottlenecks of these rates, each shared by these hosts.
    fn compared(alone: &[f64], at_once: &[f64], bottlenecks: &[(f64, &[usize])]) -> Direction {
        let mut direction = way("to", alone, at_once, false);
        let load = |pair: [usize; 2]| {
            let sum = pair.iter().map(|host| alone[*host]).sum::<f64>();
            let shared = bottlenecks.iter().filter(|(_, hosts)| pair.iter().all(|host| hosts.contains(host)));
            Ok::<_, ()>(shared.fold(sum, |sum, (rate, _)| sum.min(*rate)))
        };
        direction.compare(load).expect("it cannot fail");
        direction
    }

    #[test]
    fn pairs_name_all_hosts_that_share_a_bottleneck_and_a_narrower_one_besides() {
        let names = ["n1", "n2", "n3", "n4"];
        for (alone, at_once, bottlenecks, expected) in [
            // One keeps 85 % of its rate.
            (
                &[95.0, 95.0, 50.0][..],
                &[81.0, 14.0, 50.0][..],
                &[(95.0, &[0, 1][..])][..],
                "to the hosts, n1 (95 Mbit/s alone, 81 at once) and n2 (95 Mbit/s alone, 14 at once) share a bottleneck \
                 of about 95 Mbit/s",
            ),
            // Both keep 83 %.
            (
                &[60.0, 60.0, 95.0],
                &[50.0, 50.0, 95.0],
                &[(100.0, &[0, 1])],
                "to the hosts, n1 (60 Mbit/s alone, 50 at once) and n2 (60 Mbit/s alone, 50 at once) share a bottleneck \
                 of about 100 Mbit/s",
            ),
            // One takes everything.
            (
                &[38.2, 38.2, 7.7, 7.7],
                &[38.0, 38.1, 7.7, 0.6],
                &[(7.7, &[2, 3])],
                "to the hosts, n3 (7.7 Mbit/s alone, 7.7 at once) and n4 (7.7 Mbit/s alone, 0.6 at once) share a \
                 bottleneck of about 7.7 Mbit/s",
            ),
            // A link of 20 Mbit/s behind that of all.
            (
                &[95.0, 95.0, 20.0, 20.0],
                &[38.0, 38.0, 10.0, 10.0],
                &[(95.0, &[0, 1, 2, 3]), (20.0, &[2, 3])],
                "to the hosts, all paths share a bottleneck of about 96 Mbit/s, which may be this host's own link (one \
                 at a time, 230 in total); of these, n3 (20 Mbit/s alone, 10 at once) and n4 (20 Mbit/s alone, 10 at \
                 once) share a narrower bottleneck of about 20 Mbit/s",
            ),
            // All fall behind because of two bottlenecks, neither of which is that of all.
            (
                &[50.0; 4],
                &[25.0; 4],
                &[(50.0, &[0, 1]), (50.0, &[2, 3])],
                "to the hosts, n1 (50 Mbit/s alone, 25 at once) and n2 (50 Mbit/s alone, 25 at once) share a bottleneck \
                 of about 50 Mbit/s; n3 (50 Mbit/s alone, 25 at once) and n4 (50 Mbit/s alone, 25 at once) share a \
                 bottleneck of about 50 Mbit/s",
            ),
            // The wider of the two carries most of what all carry.
            (
                &[95.7, 95.7, 19.0, 19.0],
                &[48.0, 48.0, 9.5, 9.5],
                &[(95.7, &[0, 1]), (19.0, &[2, 3])],
                "to the hosts, n3 (19 Mbit/s alone, 9.5 at once) and n4 (19 Mbit/s alone, 9.5 at once) share a bottleneck \
                 of about 19 Mbit/s; n1 (95.7 Mbit/s alone, 48 at once) and n2 (95.7 Mbit/s alone, 48 at once) share a \
                 bottleneck of about 95.7 Mbit/s",
            ),
            // Only the bottleneck of all.
            (
                &[38.0; 4],
                &[15.0; 4],
                &[(60.0, &[0, 1, 2, 3])],
                "to the hosts, all paths share a bottleneck of about 60 Mbit/s (one at a time, 152 in total)",
            ),
            // More is lost than what the pair explains.
            (
                &[60.0, 60.0, 95.0],
                &[45.0, 45.0, 67.0],
                &[(100.0, &[0, 1])],
                "to the hosts, n1 (60 Mbit/s alone, 45 at once) and n2 (60 Mbit/s alone, 45 at once) share a bottleneck \
                 of about 100 Mbit/s",
            ),
            // No pair fills what three do.
            (
                &[40.0, 40.0, 40.0],
                &[20.0, 32.0, 38.0],
                &[(90.0, &[0, 1, 2])],
                "to the hosts, n1 (40 Mbit/s alone, 20 at once) shares a bottleneck with another host",
            ),
            (&[50.0; 3], &[49.0; 3], &[], "to the hosts, no paths share a bottleneck (147 Mbit/s at once)"),
        ] {
            assert_eq!(compared(alone, at_once, bottlenecks).words(&names), expected);
        }
    }

    #[test]
    fn at_most_eight_hosts_are_compared() {
        let mut loads = 0;
        let mut many = way("to", &[10.0; 20], &[5.0; 20], false);
        let load = |_: [usize; 2]| {
            loads += 1;
            Ok::<_, ()>(20.0)
        };
        many.compare(load).expect("it cannot fail");
        assert_eq!((many.compared, loads), (8, 28));
        assert!(many.words(&["n"; 20]).ends_with("; only the 8 hosts that lose most were compared in pairs"));
    }

    #[test]
    fn the_words_name_the_hosts_that_fall_behind_and_doubts_about_this_host() {
        let names = ["n1", "n2", "n3"];
        let together = |to: &[f64], from: &[f64], busy| Together {
            directions: [way("to", &[90.0; 3], to, busy), way("from", &[90.0; 3], from, busy)],
        };
        let one = together(&[40.0, 30.0, 24.0], &[90.0, 44.0, 46.0], true);
        assert_eq!(
            one.words(&names),
            [
                "to the hosts, all paths share a bottleneck of about 94 Mbit/s, which may be this host's own link (one \
                 at a time, 270 in total)",
                "from the hosts, n2 (90 Mbit/s alone, 44 at once) and n3 (90 Mbit/s alone, 46 at once) share \
                 bottlenecks, with each other or with other hosts",
                "this host's processors were busy, so they may be that bottleneck",
            ]
        );
        let advice = one.advice(&names).expect("this host may be it");
        assert!(advice.starts_with("to tell this host's link") && !advice.contains("traceroute"), "{advice}");
        let other = together(&[90.0, 90.0, 6.0], &[50.0, 50.0, 50.0], false);
        assert_eq!(
            other.words(&names),
            [
                "to the hosts, n3 (90 Mbit/s alone, 6 at once) shares a bottleneck with another host",
                "from the hosts, all paths share a bottleneck of about 150 Mbit/s (one at a time, 270 in total)",
            ]
        );
        let advice = other.advice(&names).expect("all share one");
        assert!(advice.starts_with("traceroute to n1, n2 and n3 shows the links"), "{advice}");
        let none = together(&[90.0; 3], &[90.0; 3], false);
        assert_eq!(none.advice(&names), None);
    }
}
