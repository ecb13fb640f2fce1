//! TCP of a board against this host's kernel, through TUN, compared with the limit of the device and with TCP
//! between two kernels.
//!
//! Claim     with whole segments, a board receives and sends at no less than 0.6 times the rate of a stub
//!           without TCP, and receives at no less than 0.7 times the rate between two kernel endpoints over a
//!           veth. Packet by packet at MTU 1500, it reaches at least 0.75 times the stub's rate.
//! Stub      ([`stub`]) answers a handshake, then acknowledges everything, or sends what the window allows,
//!           without timers, congestion control or retransmission. It copies payload as an application would,
//!           and computes or verifies checksums if the device does not. Its rate is therefore the limit of
//!           the kernel boundary.
//! Fair      stub and board have the same kernel peer: a plain loop of reads or writes of 256 KiB with CUBIC
//!           ([`peer`]), pinned to one CPU. The stub or the board is pinned to the other CPU, and both spin.
//!           Every sample has a new namespace and device, and the two sides of a comparison take turns.
//! Counted   payload bytes at the receiver, from the first to the last.
//! iperf3    two kernel endpoints are also measured with iperf3, if it is installed, because readers know it.
//!           Above 30 Gbit/s, iperf3 itself is the bottleneck.
//! Attached  a program that uses the board through shared memory ([`attach`]) is compared with the board's
//!           own application.
//! Further   sixty sessions on a rate-limited link ([`sixty`]), two boards over UDP cells ([`cells`]), idle
//!           sessions ([`idle`]).
//! Groups    `KIBAN_BENCH_ROWS=whole,packets,kernels,known,attached,sixty,cells,idle` selects groups of rows.

mod attach;
mod board;
mod cells;
mod costs;
mod device;
mod flood;
mod idle;
mod peer;
mod sixty;
mod stub;
mod throughput;

pub(crate) use costs::{Kind, PacketCosts, of_cells, of_packets};
pub(crate) use device::{BEHIND, DEVICE, KERNEL, in_a_namespace};
pub(crate) use peer::{Wire, over_wire, received};
pub(crate) use throughput::run;
