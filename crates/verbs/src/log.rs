//! Log lines on standard error, for programs that `KIBAN_LOG` makes talkative.
//!
//! Purpose   names the transport, and what a program asked for and this library does not have: the program
//!           itself often only says that something failed.
//! Limits    without `KIBAN_LOG`, or with a level below `info`, nothing is written.

use core::ffi::c_int;
use core::fmt;
use std::io::{Write, stderr};
use std::sync::OnceLock;

/// Returns whether lines are written at a level.
fn includes_info(level: &str) -> bool {
    ["info", "debug", "trace"].iter().any(|wanted| level.eq_ignore_ascii_case(wanted))
}

/// Logs a line.
pub(crate) fn info(line: fmt::Arguments<'_>) {
    static IS_WANTED: OnceLock<bool> = OnceLock::new();
    let level = || std::env::var_os("KIBAN_LOG").unwrap_or_default();
    if *IS_WANTED.get_or_init(|| includes_info(&level().to_string_lossy())) {
        // If the line cannot be written, the program goes on.
        let _ = writeln!(stderr(), "kiban: {line}");
    }
}

/// Logs a call that is not supported, and returns EOPNOTSUPP.
pub(crate) fn unsupported(what: &str) -> c_int {
    info(format_args!("not supported: {what}"));
    libc::EOPNOTSUPP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_need_the_level_info() {
        let levels = ["", "off", "error", "warn", "info", "DEBUG", "trace", "information"];
        assert_eq!(levels.map(includes_info), [false, false, false, false, true, true, true, false]);
    }
}
