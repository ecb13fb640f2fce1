//! Simulations in which memory is scarce or an allocation fails.

mod datagrams;
#[path = "../../../base/tests/common/refusal.rs"]
mod refusal;
mod starvation;
