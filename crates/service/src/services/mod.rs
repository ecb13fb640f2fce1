//! A board's services, which use the board through its host edge.
//!
//! ```text
//! completions ─► Services ─┬─► Echo, Discard, Source ─┐
//!                          ├─► Http                   ├─► Host
//! files ready ─► Services ─┴─► Forward, Net, Attach, Rdma, Sockets ─┘
//! ```
//!
//! Services         each service receives the completions of its own streams ([`kiban_board::Consumer`]). The
//!                  time is an argument, so services also run in the simulator. Only `forward`, `net`,
//!                  `attach`, `osi`, `rdma` and `sockets` use the system's file descriptors.
//! Shards           on a divided board, most services have a part on every shard (`make.rs`). Those of
//!                  `attach` and `sockets` pass work to each other.
//! Limits           each service limits its sessions and shares them among peer addresses (`slots.rs`);
//!                  further connections are reset and counted. Once a second, idle sessions are ended.
//! Reload           services can be added and removed while the board runs. A removed service stops
//!                  listening; its open sessions continue until they end.

mod attach;
mod clients;
mod counters;
mod datagrams;
mod forward;
mod http;
mod make;
mod net;
mod options;
mod osi;
mod pace;
mod plain;
mod rdma;
mod relay;
mod service;
mod sessions;
mod set;
mod shard_link;
mod slots;
mod sockets;
mod tokens;

pub use attach::{Attach, ClientBells, Edge, Tcp};
pub use counters::{GuestView, ProgramCounters, ProgramView, ServiceCounters};
pub use forward::Forward;
pub use http::{Content, Entry, Found, Http, HttpConfig, Store, disk::Folder};
pub use make::make;
pub(crate) use make::{Maker, make_parts, runs_everywhere};
pub use net::{Net, serve_namespace};
pub use osi::Osi;
pub use plain::{Plain, Role};
pub use rdma::Rdma;
pub use service::{Service, SessionLimits};
pub use set::{Services, View};
pub use sockets::Sockets;
