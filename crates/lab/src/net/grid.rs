//! The grid of a sweep: all combinations of some settings, converted to and from a plan of the engine.
//!
//! Maps      message length and socket buffers are the axes of a map. The settings that all cells of a map
//!           share are called a group.

use crate::engine::{Plan, Value};
use crate::net::trial::evidence::Pattern;
use crate::net::trial::setup::{QUESTION, SYSTEM, Setup};

/// All combinations.
#[derive(Clone, PartialEq, Debug)]
pub struct Grid {
    /// Message lengths, bytes.
    pub messages: Vec<u32>,
    /// Socket buffers, bytes; 0 is the system's default.
    pub buffers: Vec<u32>,
    /// How messages are written.
    pub patterns: Vec<Pattern>,
    /// TCP_NODELAY.
    pub no_delay: Vec<bool>,
    /// MSS, bytes; 0 is the path's.
    pub mss: Vec<u32>,
    /// Congestion control algorithms; `system` is the system's default.
    pub congestion: Vec<String>,
    /// Connections at once.
    pub connections: Vec<u32>,
    /// Connections in the opposite direction at the same time.
    pub opposite: Vec<u32>,
    /// The time for which each point is measured, s.
    pub seconds: f64,
}

/// The duration of a point with exchanges, s.
const EXCHANGES_SECONDS: f64 = 0.5;
/// The duration of a point if all are streams, s. Slow start over a long path takes most of a second.
const STREAMS_SECONDS: f64 = 2.0;
/// The same if several run at once, which need time to fill a long queue, and to share a path.
const STREAMS_AT_ONCE_SECONDS: f64 = 5.0;
/// The buffers for streams. The system's own, and the large ones, fill a path; the smallest one does so if
/// bandwidth times delay is below it.
const STREAMS_BUFFERS: [u32; 4] = [0, 64 << 10, 256 << 10, 1 << 20];
/// Message lengths if all patterns are streams: for a stream, only the cost of a call depends on them.
const STREAMS_MESSAGES: [u32; 3] = [1000, 16_000, 64 << 10];

impl Grid {
    /// Returns the grid of these patterns, with the values of a sweep for which nothing else is given;
    /// `at_once` if any point has several connections.
    pub fn usual(patterns: &[Pattern], on_board: bool, at_once: bool) -> Grid {
        let has_streams = patterns.iter().any(|pattern| pattern.is_stream());
        let has_exchanges = patterns.iter().any(|pattern| !pattern.is_stream());
        let mut buffers: Vec<u32> = Vec::new();
        if has_exchanges {
            buffers.extend((2000..=18_000).step_by(2000));
        }
        if has_streams {
            buffers.extend(STREAMS_BUFFERS);
        }
        buffers.sort_unstable();
        Grid {
            messages: match has_exchanges {
                true => std::iter::once(100).chain((500..=6000).step_by(500)).collect(),
                false => STREAMS_MESSAGES.into(),
            },
            // A board has the buffers of its configuration.
            buffers: if on_board { vec![0] } else { buffers },
            patterns: patterns.into(),
            no_delay: vec![false],
            mss: vec![0],
            congestion: vec![SYSTEM.to_owned()],
            connections: vec![1],
            opposite: vec![0],
            seconds: match (has_exchanges, at_once) {
                (true, _) => EXCHANGES_SECONDS,
                (false, false) => STREAMS_SECONDS,
                (false, true) => STREAMS_AT_ONCE_SECONDS,
            },
        }
    }

    /// Returns the engine's plan for a host, without duplicates.
    pub fn plan(&self, host: &str) -> Plan {
        let counts = |list: &[u32]| list.iter().map(|count| Value::Count((*count).into())).collect();
        let words = |list: Vec<&str>| list.into_iter().map(|word| Value::Word(word.to_owned())).collect();
        let parameters: [(&str, Vec<Value>); 10] = [
            ("host", words(vec![host])),
            ("message_bytes", counts(&self.messages)),
            ("buffer_bytes", counts(&self.buffers)),
            ("pattern", words(self.patterns.iter().map(|pattern| pattern.name()).collect())),
            ("no_delay", self.no_delay.iter().copied().map(Value::Flag).collect()),
            ("mss_bytes", counts(&self.mss)),
            ("congestion", words(self.congestion.iter().map(String::as_str).collect())),
            ("connections", counts(&self.connections)),
            ("opposite", counts(&self.opposite)),
            ("seconds", vec![Value::Figure(self.seconds)]),
        ];
        let once = |values: Vec<Value>| {
            values.into_iter().fold(Vec::new(), |mut once, value| {
                if !once.contains(&value) {
                    once.push(value);
                }
                once
            })
        };
        let parameters = parameters.map(|(name, values)| (name.to_owned(), once(values)));
        Plan { question: QUESTION.to_owned(), repetitions: 1, seeds: vec![1], parameters: parameters.into() }
    }

    /// Returns the command that repeats the sweep of a host, without the port, which records do not contain.
    /// `host` may name the board over which the host is reached.
    pub fn command(&self, host: &str) -> String {
        let (host, board) =
            host.split_once(" over board ").map_or((host, None), |(host, name)| (host, Some(name)));
        let board = board.map_or(String::new(), |name| format!(" --board {name}"));
        fn list<T: ToString>(values: &[T]) -> String {
            values.iter().map(T::to_string).collect::<Vec<_>>().join(",")
        }
        let mut command = format!(
            "kiban lab sweep {host}{board} --messages {} --buffers {}",
            list(&self.messages),
            list(&self.buffers)
        );
        let patterns: Vec<&str> = self.patterns.iter().map(|pattern| pattern.name()).collect();
        let nagle: Vec<&str> = self.no_delay.iter().map(|off| if *off { "off" } else { "on" }).collect();
        for (option, values, default) in [
            ("pattern", list(&patterns), Pattern::WriteWriteRead.name()),
            ("nagle", list(&nagle), "on"),
            ("mss", list(&self.mss), "0"),
            ("congestion", list(&self.congestion), SYSTEM),
            ("connections", list(&self.connections), "1"),
            ("opposite", list(&self.opposite), "0"),
            ("seconds", self.seconds.to_string(), "0.5"),
        ] {
            if values != default {
                command += &format!(" --{option} {values}");
            }
        }
        command
    }

    /// Returns a plan's host and grid; `None` if the plan belongs to another question.
    pub fn of(plan: &Plan) -> Option<(String, Grid)> {
        let values = |name: &str| plan.parameters.get(name).into_iter().flatten();
        let counts = |name: &str| {
            let count = |value: &Value| match value {
                Value::Count(count) => u32::try_from(*count).ok(),
                _ => None,
            };
            values(name).filter_map(count).collect::<Vec<u32>>()
        };
        // Runs of earlier versions do not have these parameters.
        let or = |name: &str, default| {
            if plan.parameters.contains_key(name) { counts(name) } else { vec![default] }
        };
        let words = |name: &str| {
            let word = |value: &Value| if let Value::Word(word) = value { Some(word.clone()) } else { None };
            values(name).filter_map(word).collect::<Vec<String>>()
        };
        let flag = |value: &Value| if let Value::Flag(flag) = value { Some(*flag) } else { None };
        let grid = Grid {
            messages: counts("message_bytes"),
            buffers: counts("buffer_bytes"),
            patterns: words("pattern").iter().filter_map(|name| Pattern::of(name)).collect(),
            no_delay: values("no_delay").filter_map(flag).collect(),
            mss: counts("mss_bytes"),
            congestion: words("congestion"),
            connections: or("connections", 1),
            opposite: or("opposite", 0),
            seconds: plan.trial(0).point.figure("seconds")?,
        };
        let host = words("host").pop().filter(|_| plan.question == QUESTION)?;
        Some((host, grid))
    }

    /// Returns the groups. The settings of a group are those that the cells of one map share; message length
    /// and buffer size are left open.
    pub fn groups(&self) -> Vec<Setup> {
        let mut groups = vec![Setup { seconds: self.seconds, ..Setup::new(Pattern::WriteWriteRead, 1) }];
        /// Repeats each group with each value of one more setting.
        fn by<T>(groups: &mut Vec<Setup>, values: &[T], set: impl Fn(&mut Setup, &T)) {
            let with = |group: &Setup, value: &T| {
                let mut group = group.clone();
                set(&mut group, value);
                group
            };
            let all = groups.iter().flat_map(|group| values.iter().map(|value| with(group, value)));
            *groups = all.collect();
        }
        by(&mut groups, &self.patterns, |group, pattern| group.pattern = *pattern);
        by(&mut groups, &self.no_delay, |group, no_delay| group.no_delay = *no_delay);
        by(&mut groups, &self.mss, |group, mss| group.mss_bytes = (*mss > 0).then_some(*mss));
        by(&mut groups, &self.congestion, |group, name| {
            group.congestion = (name != SYSTEM).then(|| name.clone());
        });
        by(&mut groups, &self.connections, |group, count| group.connections = *count);
        by(&mut groups, &self.opposite, |group, count| group.opposite = *count);
        groups
    }

    /// Returns a cell of a group's map.
    pub fn cell(&self, group: &Setup, buffer: u32, message: u32) -> Setup {
        Setup { message_bytes: message, buffer_bytes: (buffer > 0).then_some(buffer), ..group.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_read_from_its_plan_and_has_a_cell_for_each_point() {
        let grid = Grid {
            messages: vec![100, 1000],
            buffers: vec![0, 8000],
            patterns: vec![Pattern::WriteWriteRead, Pattern::Stream],
            no_delay: vec![true, false],
            mss: vec![0, 1400],
            congestion: vec![SYSTEM.to_owned(), "bbr".to_owned()],
            connections: vec![1, 4],
            opposite: vec![0, 1],
            seconds: 1.0,
        };
        let plan = grid.plan("192.0.2.1");
        assert_eq!(Grid::of(&plan), Some(("192.0.2.1".to_owned(), grid.clone())));
        // Store the plan and read it back, which must not change 1.0 into another value.
        let kept: Plan =
            serde_json::from_str(&serde_json::to_string(&plan).expect("plain")).expect("as kept");
        assert_eq!(kept, plan);
        let mut points: Vec<String> = (0..plan.trials()).map(|at| plan.trial(at).point.to_string()).collect();
        let mut cells = Vec::new();
        for group in grid.groups() {
            for buffer in &grid.buffers {
                let row = grid.messages.iter().map(|message| grid.cell(&group, *buffer, *message));
                cells.extend(row.map(|setup| setup.point("192.0.2.1").to_string()));
            }
        }
        points.sort();
        cells.sort();
        assert_eq!(points, cells);
        assert_eq!(Grid::of(&Plan { question: "toy".to_owned(), ..plan }), None);
    }

    #[test]
    fn the_usual_buffers_of_streams_fill_a_path() {
        use crate::net::diagnosis::boundary::should_be_slow;
        use crate::net::trial::path::Path;
        let streams = [Pattern::Stream, Pattern::StreamBack];
        let grid = Grid::usual(&streams, false, false);
        assert!(grid.buffers.contains(&0) && grid.buffers.iter().max() >= Some(&(1 << 20)));
        // A healthy path of 100 Mbit/s and 10 ms: no stream is below a quarter of that.
        let path = Path { round_trip_us: 10_000.0, mss_bytes: 1448, rate_mbps: 100.0 };
        for group in grid.groups() {
            for (buffer, message) in
                grid.buffers.iter().flat_map(|buffer| grid.messages.iter().map(move |one| (*buffer, *one)))
            {
                assert!(!should_be_slow(&grid.cell(&group, buffer, message), &path, 25.0), "{buffer}");
            }
        }
        assert_eq!(grid.plan("h").trials(), 24);
        assert_eq!(Grid::usual(&streams, true, false).buffers, [0]);
        let exchanges = Grid::usual(&[Pattern::WriteWriteRead], false, false);
        assert_eq!((exchanges.plan("h").trials(), exchanges.seconds), (117, 0.5));
        assert!(Grid::usual(&streams, false, true).seconds > grid.seconds);
        let both = Grid::usual(&[Pattern::WriteWriteRead, Pattern::Stream], false, true);
        let mut all = exchanges.buffers.iter().chain(&grid.buffers);
        assert!(all.all(|buffer| both.buffers.contains(buffer)) && both.buffers.is_sorted());
    }

    #[test]
    fn duplicate_values_are_measured_once() {
        let grid = Grid {
            messages: vec![100],
            buffers: vec![0],
            patterns: vec![Pattern::Stream; 2],
            no_delay: vec![false; 3],
            mss: vec![0],
            congestion: vec!["bbr".to_owned(), "bbr".to_owned()],
            connections: vec![1],
            opposite: vec![0],
            seconds: 0.5,
        };
        assert_eq!(grid.plan("h").trials(), 1);
    }

    #[test]
    fn a_command_has_the_options_that_are_not_defaults() {
        let mut grid = Grid {
            messages: vec![100, 1000],
            buffers: vec![0],
            patterns: vec![Pattern::WriteWriteRead],
            no_delay: vec![false],
            mss: vec![0],
            congestion: vec![SYSTEM.to_owned()],
            connections: vec![1],
            opposite: vec![0],
            seconds: 0.5,
        };
        assert_eq!(grid.command("h"), "kiban lab sweep h --messages 100,1000 --buffers 0");
        (grid.no_delay, grid.seconds, grid.connections) = (vec![false, true], 2.0, vec![1, 4]);
        let expected = "kiban lab sweep h --board b --messages 100,1000 --buffers 0 --nagle on,off \
                        --connections 1,4 --seconds 2";
        assert_eq!(grid.command("h over board b"), expected);
    }
}
