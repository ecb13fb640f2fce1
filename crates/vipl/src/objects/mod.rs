//! The objects of handles: NICs, and the objects created on them.
//!
//! Purpose   only the types, so that the files of the calls need not import each other. A NIC knows its
//!           objects by their handles; each object holds its NIC.

pub(crate) mod callbacks;
pub(crate) mod handle;
pub(crate) mod hosts;
pub(crate) mod members;
pub(crate) mod memory;
pub(crate) mod nic;
