//! The host edge as programs see it: calls and completions.

mod datagrams;
mod groups;
mod intercept;
mod streams;

pub use groups::MEMBERSHIPS_MAX;
pub use streams::Host;
