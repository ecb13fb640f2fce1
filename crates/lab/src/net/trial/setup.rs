//! The settings of a trial, read from a point.

use super::evidence::Pattern;
use crate::engine::{Failure, Parameter, Point, Value};
use kiban_measure::Settings;
use std::sync::LazyLock;
use std::time::Duration;

/// The name of the question that these parameters belong to.
pub const QUESTION: &str = "network";
/// Bytes of the header in write, write, read.
pub const HEADER_BYTES: u32 = 40;
/// The parameter value that selects the system's default.
pub const SYSTEM: &str = "system";

/// The largest number of connections of a trial in each direction.
const CONNECTIONS_MAX: u32 = 1000;

/// A trial's parameters.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// How messages are written.
    pub pattern: Pattern,
    /// Bytes of a message.
    pub message_bytes: u32,
    /// The size of both socket buffers; `None` leaves the system's default, which grows automatically.
    pub buffer_bytes: Option<u32>,
    /// TCP_NODELAY.
    pub no_delay: bool,
    /// TCP_MAXSEG; `None` leaves the MSS of the path.
    pub mss_bytes: Option<u32>,
    /// The congestion control; `None` leaves the system's default.
    pub congestion: Option<String>,
    /// Connections with these settings at once, 1 or more.
    pub connections: u32,
    /// Connections in the opposite direction at the same time.
    pub opposite: u32,
    /// The time to measure, s.
    pub seconds: f64,
}

impl Setup {
    /// Returns the settings of one connection for half a second, with the system's defaults.
    pub fn new(pattern: Pattern, message_bytes: u32) -> Setup {
        Setup {
            pattern,
            message_bytes,
            buffer_bytes: None,
            no_delay: false,
            mss_bytes: None,
            congestion: None,
            connections: 1,
            opposite: 0,
            seconds: 0.5,
        }
    }

    /// Returns the lengths of the writes of one message.
    pub fn writes(&self) -> Vec<u32> {
        match self.pattern {
            pattern if pattern.is_in_two_writes() && self.message_bytes > HEADER_BYTES => {
                vec![HEADER_BYTES, self.message_bytes - HEADER_BYTES]
            }
            _ => vec![self.message_bytes],
        }
    }

    /// Returns the socket settings.
    pub fn settings(&self) -> Settings {
        Settings {
            send_bytes: self.buffer_bytes,
            receive_bytes: self.buffer_bytes,
            no_delay: self.no_delay,
            mss_bytes: self.mss_bytes,
            congestion: self.congestion.clone(),
        }
    }

    /// Returns the time to measure.
    pub fn length(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Returns the point of these settings for a host.
    pub fn point(&self, host: &str) -> Point {
        let count = |count: Option<u32>| Value::Count(count.unwrap_or(0).into());
        [
            ("host", Value::Word(host.into())),
            ("pattern", Value::Word(self.pattern.name().into())),
            ("message_bytes", count(Some(self.message_bytes))),
            ("buffer_bytes", count(self.buffer_bytes)),
            ("no_delay", Value::Flag(self.no_delay)),
            ("mss_bytes", count(self.mss_bytes)),
            ("congestion", Value::Word(self.congestion.clone().unwrap_or(SYSTEM.into()))),
            ("connections", count(Some(self.connections))),
            ("opposite", count(Some(self.opposite))),
            ("seconds", Value::Figure(self.seconds)),
        ]
        .into_iter()
        .collect()
    }

    /// Reads the settings from a point.
    ///
    /// # Errors
    /// Returns [`Failure::Impossible`], which says what to change.
    pub fn of(point: &Point) -> Result<Setup, Failure> {
        let wrong = |what: &str| Failure::Impossible(format!("{what}: the point is {point}"));
        let count = |name: &str| {
            let count = point.count(name).and_then(|count| u32::try_from(count).ok());
            count.ok_or_else(|| wrong(&format!("{name} must be a whole number below 2^32")))
        };
        let some = |count: u32| (count > 0).then_some(count);
        let pattern = point.word("pattern").and_then(Pattern::of);
        let congestion = point.word("congestion").ok_or_else(|| wrong("congestion must be a name"))?;
        // Records of earlier versions do not have these parameters.
        let or = |name: &str, default| if point.0.contains_key(name) { count(name) } else { Ok(default) };
        let setup = Setup {
            pattern: pattern.ok_or_else(|| {
                let names: Vec<_> = Pattern::ALL.iter().map(|(_, name)| *name).collect();
                wrong(&format!("pattern must be one of {}", names.join(", ")))
            })?,
            message_bytes: count("message_bytes")?,
            buffer_bytes: some(count("buffer_bytes")?),
            no_delay: point.flag("no_delay").ok_or_else(|| wrong("no_delay must be true or false"))?,
            mss_bytes: some(count("mss_bytes")?),
            congestion: (congestion != SYSTEM).then(|| congestion.to_owned()),
            connections: or("connections", 1)?,
            opposite: or("opposite", 0)?,
            seconds: point.figure("seconds").ok_or_else(|| wrong("seconds must be a number"))?,
        };
        if setup.message_bytes == 0 {
            return Err(wrong("message_bytes must be at least 1"));
        }
        if !(1..=CONNECTIONS_MAX).contains(&setup.connections) || setup.opposite > CONNECTIONS_MAX {
            return Err(wrong(&format!(
                "connections must be 1 to {CONNECTIONS_MAX}, opposite 0 to {CONNECTIONS_MAX}"
            )));
        }
        if !(0.01..=3600.0).contains(&setup.seconds) {
            return Err(wrong("seconds must be 0.01 to 3600"));
        }
        Ok(setup)
    }

    /// Describes the settings in words, for a table or a title.
    pub fn words(&self) -> String {
        let bytes = |bytes: Option<u32>| bytes.map_or("system default".into(), |bytes| bytes.to_string());
        let mut words = format!(
            "{}, message {}, buffers {}, Nagle {}",
            self.pattern.name(),
            self.message_bytes,
            bytes(self.buffer_bytes),
            if self.no_delay { "off" } else { "on" }
        );
        if let Some(mss) = self.mss_bytes {
            words += &format!(", MSS {mss}");
        }
        if let Some(name) = &self.congestion {
            words += &format!(", {name}");
        }
        words + &self.count_words()
    }

    /// Returns how many connections there are, for the end of a title; empty for one.
    pub(in crate::net) fn count_words(&self) -> String {
        let mut words = String::new();
        if self.connections > 1 {
            words += &format!(", {} connections", self.connections);
        }
        words + &opposite_words(self.opposite)
    }
}

/// Returns how many connections there are in the opposite direction, for the end of a title; empty for none.
pub(in crate::net) fn opposite_words(count: u32) -> String {
    if count > 0 { format!(", {count} in the opposite direction") } else { String::new() }
}

/// The parameters of a point.
pub(in crate::net) static PARAMETERS: LazyLock<Vec<Parameter>> = LazyLock::new(|| {
    let parameter = |name, what, default| Parameter { name, what, default };
    let pattern = Pattern::WriteWriteRead.name();
    vec![
        parameter("host", "the host that runs `kiban lab serve`", None),
        parameter(
            "pattern",
            "how messages are written: write-write-read, write-read, stream; with -back, by the server",
            Some(Value::Word(pattern.into())),
        ),
        parameter("message_bytes", "bytes of a message", Some(Value::Count(1000))),
        parameter(
            "buffer_bytes",
            "SO_SNDBUF and SO_RCVBUF at both ends; 0: the system's default",
            Some(Value::Count(0)),
        ),
        parameter("no_delay", "TCP_NODELAY: disable Nagle's algorithm", Some(Value::Flag(false))),
        parameter("mss_bytes", "TCP_MAXSEG; 0: the path's", Some(Value::Count(0))),
        parameter(
            "congestion",
            "congestion control algorithm; system: the system's default",
            Some(Value::Word(SYSTEM.into())),
        ),
        parameter(
            "connections",
            "connections at once; figures are those of all of them together",
            Some(Value::Count(1)),
        ),
        parameter(
            "opposite",
            "connections in the opposite direction at the same time",
            Some(Value::Count(0)),
        ),
        parameter("seconds", "duration of the measurement, seconds", Some(Value::Figure(0.5))),
    ]
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setup_is_read_from_its_point() {
        let setup = Setup {
            pattern: Pattern::WriteWriteRead,
            message_bytes: 1000,
            buffer_bytes: Some(4000),
            no_delay: true,
            mss_bytes: None,
            congestion: Some("cubic".into()),
            connections: 4,
            opposite: 1,
            seconds: 0.5,
        };
        assert_eq!(Setup::of(&setup.point("h")), Ok(setup.clone()));
        // A record of an earlier version.
        let mut point = setup.point("h");
        point.0.retain(|name, _| name != "connections" && name != "opposite");
        assert_eq!(Setup::of(&point), Ok(Setup { connections: 1, opposite: 0, ..setup.clone() }));
        assert_eq!(setup.writes(), [40, 960]);
        assert_eq!(Setup { message_bytes: 40, ..setup.clone() }.writes(), [40]);
        assert_eq!(Setup { pattern: Pattern::WriteRead, ..setup.clone() }.writes(), [1000]);
        assert_eq!(Setup { pattern: Pattern::WriteWriteReadBack, ..setup.clone() }.writes(), [40, 960]);
        for bad in [
            Setup { message_bytes: 0, ..setup.clone() },
            Setup { connections: 0, ..setup.clone() },
            Setup { opposite: 1001, ..setup.clone() },
            Setup { seconds: 0.0, ..setup.clone() },
            Setup { seconds: f64::NAN, ..setup.clone() },
        ] {
            assert!(matches!(Setup::of(&bad.point("h")), Err(Failure::Impossible(_))), "{bad:?}");
        }
        assert!(Setup::of(&Point::default()).is_err());
    }
}
