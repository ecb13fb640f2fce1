//! The measurement server: its limits, unauthenticated connections, ports and log.

mod data_ports;
mod event;
mod limits;
mod listener;
mod mix;
mod refusal_log;
mod unproven;

pub use event::{Event, Refusal};
pub use limits::Limits;
pub use listener::Server;
