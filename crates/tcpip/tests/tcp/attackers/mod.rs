//! Hostile peers and off-path attackers.

pub(crate) mod attacks;
pub(crate) mod cookies;
pub(crate) mod cost;
pub(crate) mod hardening;
pub(crate) mod hostile;
