//! Log lines from services, on standard error; `KIBAN_LOG` sets the level (warn, info, debug, …).

use tracing_subscriber::EnvFilter;

/// Starts printing log lines as text or as JSON, by default from level `info`.
pub(crate) fn begin(json: bool) {
    start("info", json);
}

/// Starts printing log lines, by default only warnings and errors: they appear among those of a command.
pub(crate) fn begin_quietly() {
    start("warn", false);
}

fn start(level: &str, json: bool) {
    let filter = EnvFilter::try_from_env("KIBAN_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let lines = tracing_subscriber::fmt()
        // After a failed write, it would call `eprintln!`, which panics if standard error is closed.
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(crate::output::has_colours(&std::io::stderr()))
        .with_target(false);
    if json { lines.json().init() } else { lines.init() }
}
