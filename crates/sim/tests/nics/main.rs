//! Simulated NICs on boards: VI, RDMA, and the EFE-like transport.

mod efe;
mod rdma;
#[path = "../../../base/tests/common/refusal.rs"]
mod refusal;
mod vi;
