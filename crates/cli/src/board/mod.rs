//! Commands that run a board as a service of this host, control it, and use it.

pub(crate) mod connect;
pub(crate) mod control;
pub(crate) mod ping;
pub(crate) mod run;
pub(crate) mod top;
pub(crate) mod up;
