//! Reproductions of published results: the published values, the values measured here, and a verdict on each.
//!
//! Verdicts  a value to which a constant was fitted is [`Verdict::Fitted`], however well it is reproduced.
//!           Only a value that was not used in any fit can be [`Verdict::Met`].
//! Papers    one module each; `docs/reproduce-*.md` describes the published results, the assumptions and the
//!           open questions.

pub mod atm_board;
pub mod flow;
pub mod mechanisms;
pub mod osi_board;
pub mod overview;
pub mod page;
pub mod paired;
pub mod rdma_nic;
mod report;
pub mod via_library;
pub mod weaknesses;
pub mod wide_area;

use report::off;
pub use report::{Constant, Curve, Figure, Report, Row, Verdict};
