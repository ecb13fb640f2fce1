//! Records of trials, and the files that hold them.

pub mod key;
pub mod record;
pub mod store;
pub(crate) mod store_error;
