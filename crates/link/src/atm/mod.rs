//! ATM tools without a board, on links of their own: pings and a switch.

pub mod ping;
pub mod switch;
