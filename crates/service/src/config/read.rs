//! Parses a configuration into a plan.

use super::error::ConfigError;
use super::plan::Plan;
use super::tables::Tables;
use super::validator::Validator;
use std::path::Path;

impl Plan {
    /// Parses and validates a configuration; `name` is the board's name if the text does not set one.
    ///
    /// # Errors
    /// Returns the first error in the text.
    pub fn read(text: &str, name: &str) -> Result<Plan, ConfigError> {
        Plan::read_in(text, name, Path::new(""))
    }

    /// Parses and validates a configuration whose relative paths start at the directory `folder`, usually
    /// that of the configuration file.
    ///
    /// # Errors
    /// Same as for [`Plan::read`].
    pub fn read_in(text: &str, name: &str, folder: &Path) -> Result<Plan, ConfigError> {
        let tables: Tables = toml::from_str(text).map_err(|error| ConfigError::of_toml(text, &error))?;
        Validator { text, folder }.plan(tables, name)
    }
}
