//! The engine behind the drop-in verbs libraries: one RDMA NIC for all devices that a process opens.
//!
//! Purpose          provides the semantics of `libibverbs` and `librdmacm`, below their C ABI
//!                  (crates/verbs). It uses numbers instead of pointers, no errno, and no structures that a
//!                  program can see.
//! Connections      through the connection manager ([`Engine::listen`], [`Engine::connect`]), or out of band:
//!                  programs exchange GID, queue pair number and PSN themselves and pass them in
//!                  ([`Engine::modify_to_rtr`]); docs/out-of-band.md.
//! Board            instead of a NIC of this process, that of a running board ([`Engine::open_on_board`]).
//! Events           are reported through [`Channel`]s, whose files programs poll. Connection events are
//!                  reported through [`CmEventHandler`]s, which are called while the NIC is locked: they must
//!                  record the event and return.
//! EFE              connections of both kinds can use EFE over UDP instead of TCP ([`Wire::Efe`], `efe.rs`).
//! Progress         any thread that posts, polls or waits makes progress. If no thread does so, the helper
//!                  thread makes progress within microseconds, because programs also wait on files and on
//!                  memory that peers write to.
//! Limits           one lock for all objects of a process.
//! Not implemented  fork: a child's first call creates an engine of its own.

mod board;
mod channel;
mod connections;
mod datagrams;
mod efe;
mod ends;
mod engine;
mod engine_state;
mod events;
mod oob;
mod pairs;
mod ports;
mod queue_pairs;
mod roce;
mod roce_activity;
mod roce_cm;
mod roce_connections;
mod roce_groups;
mod roce_multicast;
mod roce_services;
mod roce_shared;
mod xrc;

pub use self::channel::Channel;
pub use self::ends::{CmEvent, CmEventHandler, ConnectRequest, DatagramPeer};
pub use self::engine::{Engine, InUse};
pub use self::events::{AsyncEvent, AsyncEventKind, CqChannels, Features, Wire};
pub use self::pairs::{Peer, QueuePair, Sending, Service, State};
pub use self::roce_groups::{MULTICAST_GROUPS_MAX, MULTICAST_QPS_MAX};
pub use self::xrc::{Creation, FileId};
pub use kiban_os::turn::ends_this_call;
pub use kiban_rdma::hif::Transport as BoardTransport;
pub use kiban_rdma::nic::{ConnectError, OpenError};
pub use kiban_rdma::rnic::{
    Access, Binding, Completion, Data, Kind, Notify, Operation, QpAttributes, ReceiveWork, RequestError,
    SendWork, Sge, Sges, Status, TaggedAddress,
};
pub use kiban_rdma::roce::gid;
pub use kiban_rdma::wire::rdmap::Atomic;
pub use kiban_rdma::wire::roce::cm::{PortSpace, mtu_code};

#[cfg(test)]
mod tests;
