//! Ground: what every room of kiban stands on.
//!
//! Packet memory (pools of content pages, PDUs), moments in time, random numbers, alarms, counters, settings, and waiting:
//! doorbells and the decision when to sleep.
//! No protocol and no operating system: time, random numbers and memory are values that a caller lends.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod alarm;
mod atomic;
mod bell;
mod context;
mod counters;
mod depot;
mod page;
mod pdu;
pub mod pipe;
mod references;
mod region;
pub mod ring;
pub mod rng;
mod rope;
mod settings;
mod slab;
mod sum;
mod time;
mod wait;

pub use alarm::{Alarm, Alarms};
pub use bell::{Atomic, Atomics, Bell, Processor};
pub use bytes::Bytes;
pub use context::{Context, Memory};
pub use counters::Copies;
pub use page::{Page, Pool, Slice};
pub use pdu::{Blocks, HEAD_BYTES, Pdu, SLICES_MAX, Slices, TAIL_BYTES};
pub use region::{Region, SharedBytes, SharedRoom};
pub use rng::{RngKey, SecureRng, SimRng};
pub use rope::{ROOM_BYTES, Rope, RopeQueue};
pub use settings::{Setting, SettingError};
pub use slab::Slab;
pub use sum::{Sum, copy_and_sum};
pub use time::Instant;
pub use wait::{Costs, Evidence, NoSuchWait, Report, Step, Wait, Waiter, optimum};

/// The word that a setting is written as.
pub type SettingWord = alloc::string::String;
