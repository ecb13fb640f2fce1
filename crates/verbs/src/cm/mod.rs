//! The connection manager (rdma_cm(7)).
//!
//! Purpose         the functions `rdma_*`, over connections of kiban's NIC ([`kiban_rdma_runtime::verbs`]).
//! Files           `channel.rs` event channels; `id.rs` identifiers; `resolve.rs` addresses and routes;
//!                 `connect.rs` connections; `multicast.rs` multicast groups; `queues.rs` queue pairs of
//!                 identifiers; `endpoint.rs` endpoints; `device.rs` devices; `below.rs` the interfaces
//!                 below.
//! Lock order      the engine's lock, then an identifier's lock:
//!                 [`CmEventHandler::on_event`](kiban_rdma_runtime::verbs::CmEventHandler::on_event) is
//!                 called while the first is held, and takes the second. Code here must therefore not call
//!                 the engine while it holds an identifier's lock, and locks the lists in [`World`] only for
//!                 look-ups.
//! Event types     depend on the transport, as in the kernel. On iWARP, the active side gets ESTABLISHED,
//!                 and the status is an errno value. On InfiniBand and RoCE, a program that created its queue
//!                 pair itself gets CONNECT_RESPONSE and calls `rdma_establish`. A reject has a reason from
//!                 IBTA 12.6.7.2, and TIMEWAIT_EXIT follows DISCONNECTED.
//! Fork            identifiers belong to one process. A forked child starts without any.
//! Datagrams       (`RDMA_PS_UDP`) and multicast need RoCEv2, because only its messages carry QPNs and Q_Keys
//!                 for them. On other transports, addresses are resolved, but connecting, listening and
//!                 joining fail with EOPNOTSUPP.
//! Not implemented `AF_IB` and type of service; the QPN of the peer, which iWARP does not transmit.

mod address;
mod below;
mod channel;
mod connect;
mod device;
mod endpoint;
mod id;
mod multicast;
mod queues;
mod resolve;
#[cfg(test)]
mod tests;
mod world;
