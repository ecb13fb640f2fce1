//! OSI: FTAM, the layers below it, the host interface of a board, and X.25.

pub(crate) mod circuits;
pub(crate) mod ftam;
pub(crate) mod hif;
pub(crate) mod lower;
pub(crate) mod switch;
pub(crate) mod upper;
pub(crate) mod x25;
