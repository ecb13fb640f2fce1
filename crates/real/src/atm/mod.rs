//! What an operator of ATM needs beside boards, on links of its own: pings, and a switch.

pub mod ping;
pub mod switch;
