//! Compares texts with snapshots.

use std::path::Path;

/// Compares a text with its recorded snapshot. With `KIBAN_KEEP_SNAPSHOTS=1`, records the text instead.
pub(crate) fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if std::env::var_os("KIBAN_KEEP_SNAPSHOTS").is_some() {
        std::fs::write(&path, text).expect("the snapshot can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = kept.lines().zip(text.lines()).find(|(kept, now)| kept != now);
    assert!(
        kept == text,
        "{name} has changed, first at {differs:?}; if that is meant, run with KIBAN_KEEP_SNAPSHOTS=1 and look at the \
         difference"
    );
}
