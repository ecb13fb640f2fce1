//! The settings of a source for its line and circuit.

use kiban_atm::wire::atm::Vc;
use kiban_atm::{Contract, Interval};

/// How a source sends its cells.
#[derive(Clone, Copy, Debug)]
pub struct Outlet {
    /// Their circuit.
    pub vc: Vc,
    /// Time that one cell takes on the line.
    pub cell_time: Interval,
    /// The traffic contract to which the cells are shaped.
    pub contract: Option<Contract>,
}
