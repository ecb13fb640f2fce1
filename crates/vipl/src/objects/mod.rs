//! What handles name: NICs, and what is made on them.
//!
//! Purpose   the types alone, so that the calls' files need not know each other for them. A NIC knows its
//!           members by their handles; each member holds its NIC.

pub(crate) mod callbacks;
pub(crate) mod handle;
pub(crate) mod hosts;
pub(crate) mod members;
pub(crate) mod memory;
pub(crate) mod nic;
