//! The host edge as programs see it: calls and completions.

mod datagrams;
mod intercept;
mod streams;

pub use streams::Host;
