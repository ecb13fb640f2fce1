//! TCP of a board against this host's kernel, through TUN, compared with the limit of the device and with TCP
//! between two kernels.
//!
//! Claim     with whole segments, a board receives and sends at 0.6 or more of the rate of a stub without
//!           TCP, and receives at 0.7 of the rate of two kernel endpoints over a veth; packet by packet at
//!           MTU 1500, at 0.75 of the stub.
//! Stub      ([`stub`]) answers a handshake, then acknowledges everything, or sends what the window allows,
//!           without timers, congestion control or retransmission. It copies payload as an application would,
//!           and computes or verifies checksums if the device does not. Its rate is therefore the limit of
//!           the kernel boundary.
//! Fair      the same kernel peer for both, a plain loop of reads or writes of 256 KiB with CUBIC ([`peer`]),
//!           pinned to one CPU; the stub or the board is pinned to the other; both spin. Every sample has a
//!           new namespace and device; the two sides take turns.
//! Counted   payload bytes at the receiver, from the first to the last.
//! iperf3    measures two kernels as well, if it is installed, because readers know it; above 30 Gbit/s
//!           iperf3 itself is the bottleneck.
//! Attached  a program that uses the board through shared memory ([`attach`]), compared with the board's own.
//! Further   sixty sessions on a rate-limited link ([`sixty`]), two boards over UDP cells ([`cells`]), idle
//!           sessions ([`idle`]).
//! Groups    `KIBAN_BENCH_ROWS=whole,packets,kernels,known,attached,sixty,cells,idle` selects some.

mod attach;
mod board;
mod cells;
mod device;
mod flood;
mod idle;
mod peer;
mod sixty;
mod stub;
mod throughput;

pub(crate) use throughput::run;
