//! RDMA: iWARP, the RNIC, the EFE endpoint.

pub(crate) mod efe_endpoint;
pub(crate) mod iwarp;
pub(crate) mod rnic;
