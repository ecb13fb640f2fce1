//! The parameters that both sides of a comparison share.

use kiban_base::Wait;
use std::time::Duration;

/// The size of each side's ring of blocks.
pub(crate) const RING_BYTES: usize = 4 << 20;
/// The number of bytes after which a reader confirms.
pub(crate) const BATCH_BYTES: usize = 16 << 20;
/// Time for the warm-up of a sample.
pub(crate) const WARM: Duration = Duration::from_millis(30);

/// How long one end waits for the other.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The two wait policies that are compared.
pub(crate) const BLOCKING: (&str, Wait) = ("blocking", Wait::Interrupt);
pub(crate) const POLLING: (&str, Wait) = ("polling", Wait::Poll);

/// Formats a number of bytes.
pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        0x10_0000.. => format!("{} MiB", bytes >> 20),
        0x400.. => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}
