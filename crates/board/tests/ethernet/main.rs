//! Boards on an Ethernet: ARP, neighbour discovery, address autoconfiguration, and both IP families.

mod autoconf;
mod both_families;
#[path = "../common/mod.rs"]
mod common;
mod groups;
mod guest;
mod helpers;
mod leases;
mod listeners;
mod neighbours;
mod shards;
