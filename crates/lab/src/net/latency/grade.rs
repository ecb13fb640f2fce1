//! Grades of latency under load.
//!
//! Thresholds  those of DSLReports' speed test (<https://www.dslreports.com/faq/17930>): the increase of the
//!           round trip while the line is full.
//! Difference  DSLReports grades the mean of both directions, and their mean increases. Here each direction
//!           has a grade, from medians, and the worse one is that of the path: a good download does not make
//!           up for an upload that disturbs calls.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A grade.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Grade {
    /// Less than 5 ms.
    #[serde(rename = "A+")]
    APlus,
    /// Less than 30 ms.
    A,
    /// Less than 60 ms.
    B,
    /// Less than 200 ms.
    C,
    /// Less than 400 ms.
    D,
    /// 400 ms and more.
    F,
}

/// The increase in ms below which a path has this grade.
const THRESHOLDS: [(f64, Grade); 5] =
    [(5.0, Grade::APlus), (30.0, Grade::A), (60.0, Grade::B), (200.0, Grade::C), (400.0, Grade::D)];

impl Grade {
    /// Returns the grade of an increase of the round trip, ms.
    pub fn of(increase_ms: f64) -> Grade {
        THRESHOLDS.iter().find(|(below, _)| increase_ms < *below).map_or(Grade::F, |(_, grade)| *grade)
    }

    /// Returns what the grade means for calls and games.
    pub fn words(self) -> &'static str {
        match self {
            Grade::APlus | Grade::A => "load hardly delays other traffic",
            Grade::B => "load delays other traffic noticeably",
            Grade::C => "load disturbs calls and games",
            Grade::D | Grade::F => "load makes calls and games unusable",
        }
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Grade::APlus => "A+",
            Grade::A => "A",
            Grade::B => "B",
            Grade::C => "C",
            Grade::D => "D",
            Grade::F => "F",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_have_the_published_thresholds() {
        for (increase_ms, expected) in [
            (-3.0, "A+"),
            (4.9, "A+"),
            (5.0, "A"),
            (29.9, "A"),
            (30.0, "B"),
            (59.9, "B"),
            (60.0, "C"),
            (199.9, "C"),
            (200.0, "D"),
            (399.9, "D"),
            (400.0, "F"),
            (1e6, "F"),
        ] {
            assert_eq!(Grade::of(increase_ms).to_string(), expected, "{increase_ms}");
        }
        assert!(Grade::F > Grade::APlus);
    }
}
