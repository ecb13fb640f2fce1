//! The services of a board; they use it through its host edge.
//!
//! ```text
//! completions ─► Services ─┬─► Echo, Discard, Source ─┐
//!                          ├─► Http                   ├─► Host
//! files ready ─► Services ─┴─► Forward, Attach, Sockets ─┘
//! ```
//!
//! Services         get the completions of their own streams ([`kiban_board::Consumer`]) and receive the time
//!                  as an argument, so they also run in the simulator; only `forward`, `attach` and `sockets`
//!                  use files of the system.
//! Limits           each service has a limit of sessions, shared among peer addresses (`slots.rs`); further
//!                  connections are reset and counted. One check a second ends the idle sessions.
//! Reload           services are added and removed while the board runs: a removed service stops listening;
//!                  its open sessions continue until they end.

mod attach;
mod clients;
mod counters;
mod forward;
mod http;
mod make;
mod pace;
mod plain;
mod relay;
mod service;
mod set;
mod slots;
mod sockets;

pub use attach::{Attach, ClientBells};
pub use counters::ServiceCounters;
pub use forward::Forward;
pub use http::{Content, Entry, Found, Http, HttpConfig, Store, disk::Folder};
pub use make::make;
pub use plain::{Plain, Role};
pub use service::{Service, SessionLimits};
pub use set::{Services, View};
pub use sockets::Sockets;
