//! Shared foundation of every kiban crate.
//!
//! Packet memory (pools of content pages, PDUs), time, random numbers, the timer wheel, counters, settings,
//! and waiting (doorbells and the policy that decides when to sleep). The crate contains no protocol and
//! makes no system calls: time, random numbers and memory are passed in by the caller.
//!
//! ```
//! use core::time::Duration;
//! use kiban_base::{Instant, Timer, TimerWheel};
//!
//! // Time is an argument: nothing here reads a clock.
//! let (mut wheel, mut timer) = (TimerWheel::new(), Timer::default());
//! let deadline = Instant::ZERO + Duration::from_millis(200);
//! wheel.set(&mut timer, 7, deadline);
//! assert_eq!(wheel.pop_expired(Instant::ZERO), None);
//! let (moment, key) = wheel.pop_expired(deadline).expect("the timer is due");
//! assert_eq!(key, 7);
//! assert!(timer.take_if_current(moment));
//! ```
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod atomic;
mod bell;
mod context;
mod counters;
mod memory;
pub mod pipe;
pub mod ring;
pub mod rng;
mod settings;
mod time;
mod timer_wheel;
mod wait;
mod wire;

// Files that the model checker also compiles refer to `region` by this path.
use memory::region;

pub use bell::{Atomic, Atomics, Bell, Processor};
pub use bytes::Bytes;
pub use context::{Context, Memory};
pub use counters::Copies;
pub use memory::{
    HEAD_BYTES, Page, PagePool, Pdu, PduPool, ROOM_BYTES, Region, Rope, RopeQueue, SLICES_MAX, SharedBytes,
    SharedRoom, Slab, Slice, Slices, Sum, TAIL_BYTES, copy_and_sum, recovery,
};
pub use rng::{RngKey, SecureRng, SimRng};
pub use settings::{Setting, SettingError};
pub use time::Instant;
pub use timer_wheel::{Timer, TimerWheel};
pub use wait::{Costs, Evidence, NoSuchWait, Report, Step, Wait, Waiter, loss_guard, optimum};
pub use wire::{Malformed, checksum, crc, ethernet, numbers};

/// The string type of a setting's textual form.
pub type SettingWord = alloc::string::String;
