//! Runs a board as a service on this host: `kiban up`.
//!
//! ```text
//!   board.toml ─► config ─► running ─┬─ links ─ kiban_link
//!                                    ├─ board ─ kiban_board, driven by kiban_link::Driver
//!      control, metrics, signals     └─ services: echo, http, forward …
//!      (on their own thread)   ─ requests ─▲
//! ```
//!
//! Configuration    TOML, validated completely before anything is changed.
//! Threads          there are two threads. One drives the board and does all its work. The other (`control`)
//!                  handles signals, the control socket and Prometheus, and passes requests to the first
//!                  through a queue that wakes it.
//! Limits           the limits on sessions, connections, requests and times are configuration keys or named
//!                  constants.
#![forbid(unsafe_code)]

mod capture;
pub mod config;
mod confinement;
pub mod control;
mod echo;
mod link;
mod link_state;
mod loopback;
mod losses;
pub mod metrics;
mod notify;
mod pings;
pub mod requests;
mod running;
pub mod services;
pub mod signals;
pub mod status;
pub mod switch;

pub use config::Plan;
pub use running::{Running, read};
