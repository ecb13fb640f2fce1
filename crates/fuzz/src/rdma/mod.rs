//! RDMA: iWARP, RoCEv2, the interface of a board's NIC, the RNIC and its RoCEv2 endpoint, the EFE endpoint.

pub(crate) mod efe_endpoint;
pub(crate) mod host;
pub(crate) mod iwarp;
pub(crate) mod nic_hif;
pub(crate) mod rnic;
pub(crate) mod roce;
pub(crate) mod roce_cm;
pub(crate) mod roce_endpoint;
