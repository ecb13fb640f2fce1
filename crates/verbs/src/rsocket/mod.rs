//! rsockets: the calls of sockets over RDMA (rsocket(7), `rdma/rsocket.h`).
//!
//! Goal      programs written for sockets run over the NIC by an `r` before each call; the wire is that of
//!           rdma-core's rsockets over iWARP, so that a peer with rdma-core and a real NIC understands us
//!           (docs/rsockets.md has the format).
//! Down      a [`socket::Socket`] uses the NIC's engine itself, not the functions of C: no pointers are
//!           needed here.
//! File      a socket's number is the descriptor of its channel: no other file has it, and it is readable
//!           when something may have happened since the last look that found nothing.
//! Helper    connections are accepted, and started ones connected_waiter, by a thread of ours ([`service`]):
//!           a peer that connects need not wait until the program accepts, as with TCP.
//! Fork      a child has none of its parent's rsockets: their numbers are unknown to it (EBADF).
//! Locks     a socket's state, then the NIC, then the NIC's events ([`inbox`]); callbacks of the NIC call
//!           nothing.
//! Left out  datagrams (EPROTONOSUPPORT), out-of-band data, ancillary data (ENOTSUP), signals for broken
//!           pipes.

mod address;
mod calls;
mod inbox;
mod iomap;
mod options;
mod poll;
mod repoll;
mod service;
mod sleepers;
mod socket;
mod stream;
mod wire;
mod world;
