//! The network between boards: lines of cells, cables of packets, switches, and taps.

pub(crate) mod cable;
pub(crate) mod ecn;
pub(crate) mod line;
pub(crate) mod pfc;
pub(crate) mod plug;
pub(crate) mod star;
pub(crate) mod switch;
pub(crate) mod tap;
