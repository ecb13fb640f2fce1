//! The measurement server: its limits, unauthenticated connections, ports and log.

pub(crate) mod data_ports;
mod event;
mod limits;
mod listener;
mod refusal_log;
pub(crate) mod unproven;

pub use event::{Event, Refusal};
pub use limits::Limits;
pub use listener::Server;
