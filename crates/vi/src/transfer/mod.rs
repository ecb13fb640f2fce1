//! Data transfer: descriptors on work queues, packets made from them, and packets placed in memory.

pub(crate) mod outputs;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod work;
