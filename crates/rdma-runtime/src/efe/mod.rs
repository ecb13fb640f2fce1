//! EFE below an RDMA NIC in real time: over UDP, and in Ethernet frames.

mod link;
mod peers;
mod ports;

pub(crate) use link::EfeLink;
