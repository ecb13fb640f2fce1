//! Selects the rows of a family.

/// Returns whether to measure a group of rows: true for all groups, or for those that KIBAN_BENCH_ROWS names.
pub(crate) fn wanted(group: &str) -> bool {
    let only = std::env::var("KIBAN_BENCH_ROWS").unwrap_or_default();
    only.is_empty() || only.split(',').any(|name| name == group)
}
