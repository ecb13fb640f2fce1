//! The measurement server: its limits, unauthenticated connections, ports and log, and its part of each
//! kind of measurement.

mod budget;
mod data_ports;
mod event;
mod limits;
mod listener;
mod mix;
mod probe;
mod refusal_log;
mod session;
mod trial;
mod unproven;

pub use event::{Event, Refusal};
pub use limits::Limits;
pub use listener::Server;
