//! Simulated NICs on boards: VI, RDMA over iWARP and RoCEv2, and the EFE-like transport.

mod efe;
mod efe_start;
#[path = "../../../rdma/tests/common/guarded.rs"]
mod guarded;
#[path = "../../../rdma/tests/common/model.rs"]
mod model;
mod rdma;
#[path = "../../../base/tests/common/refusal.rs"]
mod refusal;
mod roce_capture;
mod roce_switch;
mod roce_worlds;
mod vi;
