//! Untrusted clients, files and boards, and the privileges that a board drops.

pub(crate) mod files;
pub(crate) mod folders;
pub(crate) mod fuse;
pub(crate) mod impostors;
pub(crate) mod sandbox;
