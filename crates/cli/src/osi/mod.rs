//! Commands for the OSI layers below FTAM, and code that the OSI commands share.

pub(crate) mod command;
pub(crate) mod peer;
pub(crate) mod xot;
