//! TCP between two ends in one thread: kiban's boards compared with smoltcp.
//!
//! Claim     frame by frame at MTU 1500, kiban reaches at least 1.5 times smoltcp's goodput per core. With
//!           segments of up to 64 KB passed down whole, as to a device with TSO, it reaches at least 3 times
//!           as much.
//! Joined    both stacks are connected in the same way, by a bounded queue of packets in each direction. In
//!           its turn, an end receives packets, lets the application work, and sends packets. Both ends use
//!           one clock reading per turn.
//! Work      one connection carries data in one direction. The application writes from a buffer of
//!           [`SOURCE_BYTES`](joined::SOURCE_BYTES) while there is room, and reads whatever has arrived into
//!           a buffer, so there is one copy at each end.
//! Checks    both stacks compute the checksum of what they send and verify what they receive; kiban's port
//!           does not trust the checksums in its neighbour's PDUs, so it reads the payload on arrival to
//!           verify them. Before a sample counts, megabytes are compared byte by byte. After the sample, the
//!           last bytes read are compared, and nothing may have been retransmitted or refused.
//! Frames    in kiban's row at MTU 1500, the port segments what TCP passes down and merges what arrives:
//!           every packet between the ends has at most the MTU, with headers and checksums of its own.
//!           Another row measures kiban without segmentation and merging.
//! smoltcp   version 0.14 over preallocated frames, without Ethernet and congestion control, with or without
//!           delayed acknowledgements, whichever is faster. It receives, works and sends in the order in
//!           which an acknowledgement carries the open window.
//! Tuned     each side first runs with a grid of buffer and queue sizes. Its best setting counts, and is
//!           printed.
//! Counted   payload bytes read per CPU time of the thread.
//! Left out  the cost of a device or the kernel. smoltcp's segmentation offload leaves checksums to the
//!           device, so it cannot be combined with computed and verified checksums; the last row gives
//!           smoltcp an MTU of 64 KB instead.

mod boards;
mod goodput;
mod joined;
mod smol;

pub(crate) use goodput::run;
