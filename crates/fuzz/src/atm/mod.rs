//! ATM: AAL1, and boards behind cell ports.

pub(crate) mod aal1;
pub(crate) mod atm_board;
