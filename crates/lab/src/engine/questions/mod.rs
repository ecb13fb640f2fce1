//! All questions: those that a plan can run, and those that need a command of their own
//! (`Question::own_command`).

mod atm_board;
mod osi_board;
mod parameters;
mod registry;
mod wide_area;

pub use registry::{all, find, suggest};
