//! Which rows of a family are measured.

/// Returns whether a group of rows is to be measured: all, or those that KIBAN_BENCH_ROWS names.
pub(crate) fn wanted(group: &str) -> bool {
    let only = std::env::var("KIBAN_BENCH_ROWS").unwrap_or_default();
    only.is_empty() || only.split(',').any(|name| name == group)
}
