//! Several hosts: latency and throughput of each path alone, then of all at once, side by side.
//!
//! ```text
//! for each host: idle ── upload ── download ── both        then, for all at once: upload ── download
//! ```
//!
//! Alone     each host is measured as by [`super::latency`], so that no host disturbs another.
//! Together  the sum of the rates, compared with the sum of those alone, shows whether paths share a
//!           bottleneck ([`Sharing`]).
//! Findings  what is wrong with a path, each with its evidence ([`HostCause`]).

mod finding;
mod page;
mod report;
mod together;

pub use finding::{HostCause, HostFinding};
pub use report::{HostReport, Hosts, NotMeasured};
pub use together::{Direction, Group, Sharing, Together, together};
