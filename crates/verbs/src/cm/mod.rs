//! The connection manager (rdma_cm(7)).
//!
//! Purpose         the functions `rdma_*`, over connections of kiban's NIC ([`kiban_rdma_runtime::verbs`]).
//! Files           `channel.rs` event channels; `id.rs` identifiers; `resolve.rs` addresses and routes;
//!                 `connect.rs` connections; `queues.rs` queue pairs of identifiers; `endpoint.rs` endpoints;
//!                 `device.rs` devices; `below.rs` the interfaces below.
//! Lock order      the engine's lock, then an identifier's lock:
//!                 [`CmEventHandler::on_event`](kiban_rdma_runtime::verbs::CmEventHandler::on_event) is
//!                 called under the first and takes the second. So nothing here calls the engine while it
//!                 holds an identifier's lock, and the lists of the [`World`] are locked for look-ups only.
//! Event types     depend on the transport, as in the kernel. On iWARP the active side gets ESTABLISHED, and
//!                 the status is an errno. On InfiniBand and RoCE, a program with a queue pair of its own
//!                 gets CONNECT_RESPONSE and calls `rdma_establish`; a reject has a reason of IBTA 12.6.7.2;
//!                 TIMEWAIT_EXIT follows DISCONNECTED.
//! Fork            identifiers belong to one process: a forked child starts without any.
//! Not implemented datagrams (`RDMA_PS_UDP`): addresses are resolved, but connecting fails with EOPNOTSUPP;
//!                 multicast, `AF_IB` and type of service; the QPN of the peer, which iWARP does not
//!                 transmit.

mod address;
mod below;
mod channel;
mod connect;
mod device;
mod endpoint;
mod id;
mod queues;
mod resolve;
#[cfg(test)]
mod tests;
mod world;
