//! Names: devices for `VipOpenNic`, and the hosts that programs look up.

pub(crate) mod device;
pub(crate) mod names;
