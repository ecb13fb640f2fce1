//! The configuration of a board: TOML, parsed and validated before anything is changed.
//!
//! Stages           tables as written in the file (`tables`), then a [`Plan`] with typed values.
//! Errors           name the line, the key, what is wrong and what to do; for an unknown key they suggest the
//!                  nearest known one.
//! Reload           [`Plan::needs_new_board`] compares two configurations, and returns the first key whose
//!                  change a running board cannot apply.

mod error;
mod plan;
mod rates;
mod services;
pub mod switch;
mod tables;
mod units;
mod validator;

pub use error::ConfigError;
pub use plan::{Carries, Endpoint, Kind, Plan, PortPlan, RoutePlan, SandboxPlan, ServicePlan};
pub use units::DurationValue;
pub(crate) use validator::PORTS_MAX;

use std::path::Path;
use tables::Tables;
use validator::Validator;

impl Plan {
    /// Parses and validates a configuration; `name` is the board's name if the text gives none.
    ///
    /// # Errors
    /// [`ConfigError`]: the first error in the text.
    pub fn read(text: &str, name: &str) -> Result<Plan, ConfigError> {
        Plan::read_in(text, name, Path::new(""))
    }

    /// Like [`Plan::read`], with directories relative to `folder`.
    ///
    /// # Errors
    /// As [`Plan::read`].
    pub fn read_in(text: &str, name: &str, folder: &Path) -> Result<Plan, ConfigError> {
        let tables: Tables = toml::from_str(text).map_err(|error| ConfigError::of_toml(text, &error))?;
        Validator { text, folder }.plan(tables, name)
    }
}
