//! Hostile peers and off-path attackers.

pub(crate) mod cookies;
pub(crate) mod floods;
pub(crate) mod hardening;
pub(crate) mod hostile;
