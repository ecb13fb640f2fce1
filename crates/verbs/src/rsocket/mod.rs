//! rsockets: the socket API over RDMA (rsocket(7), `rdma/rsocket.h`).
//!
//! Purpose         lets a socket program run over the NIC: each call has the same name with a leading `r`.
//!                 The wire format is that of rdma-core's rsockets over iWARP, so that peers with rdma-core
//!                 and a hardware NIC interoperate (docs/rsockets.md).
//! Implementation  a [`socket::Socket`] uses the NIC's engine directly, not the C functions, so that no raw
//!                 pointers are needed.
//! Descriptors     the number of an rsocket is the file descriptor of its channel. The descriptor becomes
//!                 readable when an event may have arrived since the last check that found none.
//! Service thread  accepts connections and completes non-blocking connects ([`service`]), so that, as with
//!                 TCP, a peer can connect before the program calls raccept().
//! Fork            a child does not inherit its parent's rsockets; calls on their numbers fail with EBADF.
//! Lock order      a socket's state, then the NIC, then the NIC's events ([`inbox`]); callbacks of the NIC
//!                 take no other locks.
//! Not implemented datagrams (EPROTONOSUPPORT), out-of-band data, ancillary data (ENOTSUP), SIGPIPE.

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
