//! Simulated boards on lines, cables and switches.

mod cables;
mod canary;
mod consumers;
mod host_port;
mod hostile_worlds;
mod long_path;
mod osi;
#[path = "../../../base/tests/common/refusal.rs"]
mod refusal;
mod shards;
mod short_queue;
mod traffic;
mod tx_queues;
mod worlds;
