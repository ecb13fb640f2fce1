//! Real links: where packets leave the process. One file each.

pub mod channel;
pub mod shm;
pub mod udp;
