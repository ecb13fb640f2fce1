//! Devices: one for each usable address of the host (ibv_get_device_list(3)).
//!
//! State      devices `kiban0`, `kiban1` …; their pointers stay valid for the life of the process. The list
//!            only grows and has no lock, so that a forked child can use it. A device whose address
//!            disappears is no longer listed, but has the same name if the address returns.
//! Transport  `KIBAN_TRANSPORT` selects how devices present themselves: `ib`, a channel adapter with RoCE v2
//!            GIDs, which most programs expect; `roce`, the same; `iwarp`, an RNIC; or `efe`, a device of a
//!            kind that no standard names.
//! Board      `KIBAN_BOARD` selects the NIC of a running board: then there is one device for each address of
//!            the board, and none for those of the host.

pub(crate) mod ethernet;
pub(crate) mod interfaces;
pub(crate) mod kernel;
mod list;
pub(crate) mod names;
pub(crate) mod query;
pub(crate) mod rates;
mod selection;
pub(crate) mod sysfs;
pub(crate) mod table;
mod tree;

pub(crate) use self::list::Device;
pub(crate) use self::selection::{Transport, board, lists_all, transport};
