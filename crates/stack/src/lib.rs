//! Protocols as state machines without I/O.
//!
//! One folder a family. A protocol knows what stands above and below it only by the values that pass: requests go
//! down, indications come up, answers are owed until the burst is settled. Time, random numbers and memory are lent by the
//! caller ([`kiban_ground::Context`]); no protocol calls its neighbour. The wiring is `kiban-board`'s.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod atm;
pub mod efe;
pub mod ethernet;
mod families;
pub mod icmp;
pub mod ip;
pub mod iwarp;
pub mod osi;
pub mod tcp;
pub mod udp;
pub mod vi;

pub mod lapb;
pub mod x25;
