//! A board as a service of this host: `kiban up`.
//!
//! ```text
//!   board.toml ─► config ─► running ─┬─ links ─ kiban_real::link
//!                                    ├─ board ─ kiban_board, driven by kiban_real::Driver
//!      control, metrics, signals     └─ services: echo, http, forward …
//!      (a thread of their own) ── orders ──▲
//! ```
//!
//! Config    TOML, judged whole before anything is touched.
//! Threads   two: one drives the board and does all its work, one (`control`) hears signals, the control socket and Prometheus, and
//!           asks the first by a queue with a bell.
//! Bound     sessions, connections, requests, times: each has a name in the configuration or in the code.
#![forbid(unsafe_code)]

pub mod config;
mod confinement;
pub mod control;
mod link;
mod loopback;
mod losses;
pub mod metrics;
mod notify;
pub mod orders;
mod running;
pub mod services;
pub mod signals;
mod standing;
pub mod status;
pub mod switch;
mod tape;

pub use config::Plan;
pub use running::{Running, read};
