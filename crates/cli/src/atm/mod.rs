//! `kiban atm`: tools for ATM links: ping, switch and bridge.

mod bridge;
mod command;
mod ping;
mod switch;

pub(crate) use command::Atm;
