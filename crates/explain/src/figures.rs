//! Times in nanoseconds, and figures in words.

pub(crate) const MILLISECOND: u64 = 1_000_000;

/// Returns a percentile of the values.
pub(crate) fn percentile(mut values: Vec<u64>, percent: usize) -> Option<u64> {
    values.sort_unstable();
    values.get((values.len() * percent / 100).min(values.len().saturating_sub(1))).copied()
}

/// Returns milliseconds, rounded to microseconds.
pub(crate) fn millis(nanos: u64) -> f64 {
    (nanos as f64 * 1e-3).round() / 1e3
}

/// Returns seconds, rounded to microseconds.
pub(crate) fn seconds(nanos: u64) -> f64 {
    (nanos as f64 * 1e-3).round() / 1e6
}

/// Returns a time in words.
pub(crate) fn time(nanos: u64) -> String {
    let ms = nanos as f64 * 1e-6;
    match nanos {
        0..1_000_000 => format!("{:.0} us", ms * 1e3),
        1_000_000..10_000_000 => format!("{ms:.1} ms"),
        10_000_000..10_000_000_000 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms * 1e-3),
    }
}

/// Returns a number of bytes in words.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        ..1e4 => format!("{bytes:.0} bytes"),
        ..1e7 => format!("{:.0} KB", bytes * 1e-3),
        _ => format!("{:.0} MB", bytes * 1e-6),
    }
}

/// Returns a rate in words.
pub(crate) fn rate(bits_per_second: f64) -> String {
    match bits_per_second {
        ..1e4 => format!("{bits_per_second:.0} bit/s"),
        ..1e6 => format!("{:.0} kbit/s", bits_per_second * 1e-3),
        ..1e9 => format!("{:.1} Mbit/s", bits_per_second * 1e-6),
        _ => format!("{:.1} Gbit/s", bits_per_second * 1e-9),
    }
}

/// Returns a number of things in words.
pub(crate) fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns how often something happened in words.
pub(crate) fn times(count: usize) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
