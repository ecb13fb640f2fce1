//! Real links: where packets leave the process. One file each.

pub mod channel;
pub mod packet;
pub mod same_user;
pub mod shared;
pub mod shm;
pub mod tcp;
pub mod udp;
