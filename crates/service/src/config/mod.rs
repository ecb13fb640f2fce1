//! The configuration of a board: TOML, parsed and validated before anything is changed.
//!
//! Stages           the text becomes tables, as written in the file (`tables`), and then a [`Plan`] with
//!                  typed values.
//! Errors           messages name the line, the key, what is wrong and what to do. For an unknown key, they
//!                  suggest the closest known one.
//! Reload           [`Plan::needs_new_board`] compares two configurations and returns the first key whose
//!                  change cannot be applied to a running board.

mod error;
mod forwarded;
mod plan;
mod rates;
mod read;
mod services;
pub mod switch;
mod tables;
mod units;
mod validator;

pub use error::ConfigError;
pub use forwarded::Forwarded;
pub use plan::{
    Carries, Endpoint, Kind, Mapped, NetConfig, Plan, PortPlan, RoutePlan, SandboxPlan, ServicePlan,
};
pub use units::DurationValue;
pub(crate) use validator::PORTS_MAX;
