//! Which clients the NIC's objects belong to, and what the service counts.

use crate::services::counters::ServiceCounters;
use kiban_rdma::hif::Transport;
use std::collections::BTreeMap;

/// The owners of objects that the NIC's events name.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) listeners: BTreeMap<(Transport, u32), u64>,
    pub(super) ends: BTreeMap<u32, u64>,
    pub(super) cqs: BTreeMap<u32, u64>,
    pub(super) counters: ServiceCounters,
}
