//! The RDMA NIC over TCP sockets, compared with the sockets alone.
//!
//! Claim     a write into another process's memory costs hardly more than sending the same bytes over a
//!           socket. A short message takes at most a quarter longer than a raw round trip, and many short
//!           messages share a system call.
//! Sides     RDMA Writes are compared with a raw stream of the same block size, and Sends with a raw
//!           ping-pong. Both are also compared with the TCP transports of libfabric and UCX, where these are
//!           installed. Another row shows the memory of idle queue pairs.
//! Fair      the other end is another process on another CPU, which the benchmark starts from its own
//!           executable. A sample connects, exchanges messages for a while, and then measures. It ends when
//!           the other end has *received* the last byte: the raw reader confirms each batch with a byte, and
//!           the NIC's peer answers a Read. Rings, their alignment, TCP_NODELAY and the system's buffers are
//!           the same on both sides.
//! Wait      both sides wait in the same way. With `blocking` they sleep (a blocking socket, and
//!           [`kiban_base::Wait::Interrupt`]); with `polling` they spin (a non-blocking socket, and
//!           [`kiban_base::Wait::Poll`]).
//! Guard     the kernel's work for the loopback may count as foreign load, so the limit on foreign load is
//!           half a core.
//! Left out  EFE: its results are in virtual time, and are checked by tests.

mod idle;
mod measured;
mod others;
mod peer;
mod programs;
mod rates;
mod raw;
mod serve;
mod setting;
mod verbs;

pub(crate) use self::idle::{grown, resident};
pub(crate) use self::measured::Measured;
pub(crate) use self::others::{free_port, is_installed, wait_for_listener};
pub(crate) use self::peer::{Peer, ROLE, answer, next_word, own_address};
pub(crate) use self::raw::stream as raw_stream;
pub(crate) use self::serve::{serve, wait};
pub(crate) use self::setting::{BATCH_BYTES, BLOCKING, PATIENCE, POLLING, RING_BYTES, WARM, size};
pub(crate) use self::verbs::{Over, Stream, stream as nic_stream};
pub(crate) use rates::run;
