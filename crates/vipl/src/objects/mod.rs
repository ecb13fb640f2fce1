//! The objects to which handles refer: NICs, and the objects created on them.
//!
//! Purpose   this module contains only the types, so that the files that implement the calls need not import
//!           each other. A NIC has the handles of its objects, and each object has a reference to its NIC.

pub(crate) mod callbacks;
pub(crate) mod handle;
pub(crate) mod hosts;
pub(crate) mod members;
pub(crate) mod memory;
pub(crate) mod nic;
