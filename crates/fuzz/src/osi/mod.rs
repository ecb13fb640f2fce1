//! OSI: FTAM, the layers below it, and X.25.

pub(crate) mod circuits;
pub(crate) mod ftam;
pub(crate) mod lower;
pub(crate) mod upper;
pub(crate) mod x25;
