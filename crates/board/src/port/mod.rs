//! The port edge: where the board meets a link or a cable.
//!
//! ATM       the board's ends of circuits (`atm`): encapsulation, InATMARP, loopback, segmentation,
//!           reassembly. Cells wait until the line fetches them.
//! Packets   a bounded queue of IP packets or Ethernet frames (`packets`), with an Ethernet link, a bridge,
//!           or neither.
//! Shards    the line of an ATM port belongs to shard 0 (`sharing`).
//! NICs      ports of the VI NIC and of EFE belong to the NICs.
//! Room      TCP sends as much as a port has room for. Other packets may fill at most half of a queue
//!           (`QueueLimit`).

mod atm;
mod counters;
mod events;
mod fcs;
mod kinds;
mod packets;
mod pause;
mod sharing;

pub(crate) use atm::AtmPort;
pub(crate) use counters::QueueLimit;
pub(crate) use events::{AtmEvent, LinkEvent};
pub(crate) use kinds::Port;
pub(crate) use packets::PacketPort;
pub(crate) use sharing::{CellBurst, Outgoing};
