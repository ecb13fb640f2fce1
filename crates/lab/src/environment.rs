//! The environment of a measurement: hardware, operating system and version of kiban.
//!
//! Fields that cannot be read are `None`. Host names and user names are not recorded.

use std::fs;
use std::process::Command;

use kiban_os::clock::allowed_cpus;
use serde::{Deserialize, Serialize};

/// The machine, the system and the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Model of the CPU.
    pub cpu: Option<String>,
    /// Instruction set.
    pub arch: String,
    /// CPUs of the machine.
    pub cores: Option<usize>,
    /// The CPUs this process may run on.
    pub cpus_allowed: Option<Vec<usize>>,
    /// Operating system and its version.
    pub kernel: Option<String>,
    /// Version of kiban.
    pub kiban: String,
    /// Commit of the source, with `-dirty` if there are uncommitted changes; `None` outside a repository.
    pub commit: Option<String>,
    /// Whether debug assertions were compiled in; results of such builds are meaningless.
    pub debug: bool,
}

impl Environment {
    /// Reads the environment of this machine and process.
    pub fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            cpu: cpu_model(&cpuinfo),
            arch: std::env::consts::ARCH.to_owned(),
            cores: cpu_count(&fs::read_to_string("/proc/stat").unwrap_or_default()),
            cpus_allowed: allowed_cpus().ok(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .ok()
                .map(|release| format!("{} {}", std::env::consts::OS, release.trim())),
            kiban: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit(),
            debug: cfg!(debug_assertions),
        }
    }

    /// Returns a one-line description.
    pub fn line(&self) -> String {
        let commit = self.commit.as_ref().map_or(String::new(), |commit| format!(" ({commit})"));
        let cores = self.cores.map_or(String::new(), |cores| format!(", {cores} cores"));
        let pinned = match &self.cpus_allowed {
            Some(allowed) if Some(allowed.len()) != self.cores => format!(", on CPU {allowed:?}"),
            _ => String::new(),
        };
        format!(
            "kiban {}{commit}; {} {}{cores}{pinned}; {}{}",
            self.kiban,
            self.cpu.as_deref().unwrap_or("unknown CPU"),
            self.arch,
            self.kernel.as_deref().unwrap_or(std::env::consts::OS),
            if self.debug { "; DEBUG BUILD, results are meaningless" } else { "" },
        )
    }
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Counts the lines `cpu0`, `cpu1`, ... of `/proc/stat`.
fn cpu_count(stat: &str) -> Option<usize> {
    let numbered = |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| !rest.starts_with(' '));
    Some(stat.lines().filter(numbered).count()).filter(|&count| count > 0)
}

fn commit() -> Option<String> {
    let arguments = ["describe", "--always", "--dirty", "--abbrev=12"];
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|commit| !commit.is_empty())
}

/// Formats seconds since 1970 as a UTC time in RFC 3339 form, for example `2026-11-20T20:04:05Z`.
///
/// The computation uses years that begin in March, so that the leap day is the last day of a year; 400 years
/// have 146,097 days.
pub fn date(unix_seconds: u64) -> String {
    const DAYS_1970: u64 = 719_468; // from 0000-03-01 to 1970-01-01
    let (days, second) = (unix_seconds / 86_400 + DAYS_1970, unix_seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_000_000_000, "2001-09-09T01:46:40Z"),
            (1_704_067_199, "2023-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }

    #[test]
    fn the_machine_is_described_from_its_own_files() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A Fast CPU\nmodel name\t: other\n";
        assert_eq!(cpu_model(cpuinfo).as_deref(), Some("A Fast CPU"));
        assert_eq!(cpu_model(""), None);
        assert_eq!(cpu_count("cpu  1 2\ncpu0 1\ncpu1 1\nintr 1\n"), Some(2));
        assert_eq!(cpu_count(""), None);
    }

    #[test]
    fn the_line_names_what_invalidates_results() {
        let environment = Environment {
            cpu: Some("A Fast CPU".to_owned()),
            arch: "x86_64".to_owned(),
            cores: Some(2),
            cpus_allowed: Some(vec![1]),
            kernel: Some("linux 6.1".to_owned()),
            kiban: "0.1.0".to_owned(),
            commit: Some("abc-dirty".to_owned()),
            debug: true,
        };
        let expected = "kiban 0.1.0 (abc-dirty); A Fast CPU x86_64, 2 cores, on CPU [1]; linux 6.1; \
                        DEBUG BUILD, results are meaningless";
        assert_eq!(environment.line(), expected);
    }
}
