//! ATM tools that use links directly, without a board: pings and a switch.

pub mod ping;
pub mod switch;
