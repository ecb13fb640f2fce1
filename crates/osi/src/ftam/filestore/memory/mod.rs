//! A disk in memory into which faults can be injected, for tests and the simulator.
//!
//! Purpose    implements everything that `Disk` specifies, and returns any of its errors at a moment that
//!            the test chooses.
//! Faults     a limited capacity ([`MemoryDisk::with_capacity`]), denied paths, an error in the n-th call of
//!            some kind, files changed by another program ([`MemoryDisk::put`]), and a crash of the process
//!            ([`MemoryDisk::crash`]), which closes everything and loses data that was not synced.
//! Limits     the numbers of open files, unfinished contents and records, as on a real disk.

mod disk;
#[cfg(test)]
mod tests;

pub use disk::{BEGUN_MAX, Call, MemoryDisk, OPEN_MAX, RECORDS_MAX};
