//! The end that answers: its bounds, its strangers, its ports and its log.

pub(crate) mod data_ports;
mod event;
mod limits;
mod listener;
mod refusal_log;
pub(crate) mod unproven;

pub use event::{Event, Refusal};
pub use limits::Limits;
pub use listener::Server;
