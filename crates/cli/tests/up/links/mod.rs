//! Links between boards and to the kernel.

pub(crate) mod atm;
pub(crate) mod capture;
mod dhcp;
pub(crate) mod iperf;
pub(crate) mod kernel;
pub(crate) mod ping;
mod shards;
mod shards_attached;
mod snooping;
