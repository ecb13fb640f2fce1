//! The host interface in the form of rings: a host posts work and reads completions through memory that it
//! shares with the board.
//!
//! Purpose          let a host in another thread or process use the VI NIC without function calls: the host
//!                  fills a slot in the work ring and polls the completion ring.
//! Requests         [`Host`] posts entries. [`Attachment::drain`], on the board's side, copies each entry
//!                  once, validates the copy and executes it. A control entry (create a VI, register memory,
//!                  connect) is answered with a reply that has the same cookie.
//! Indications      completions, replies, requests and events go into the completion ring while it has room.
//!                  Any others wait in the NIC, which affects only that host.
//! Isolation        a host refers to its VIs and memories by numbers that the board assigned; it cannot use
//!                  the VIs and memories of other hosts. Its memory is part of one arena that both sides map,
//!                  and descriptors cannot reach beyond it. The worst that a host can cause by writing to its
//!                  rings is the rejection of a request, or the end of its own attachment.
//! End              [`Attachment::end`] releases everything: connections, VIs, memory, tag.
//! Limits           a descriptor has at most [`SEGMENTS_MAX`] segments, and a host has at most `vis_max`
//!                  VIs.
//! Not implemented  completion queues chosen by the host: all completions of an attachment use one ring.
mod attachment;
mod entries;
mod host;

pub use self::attachment::Attachment;
pub use self::entries::{Control, ControlError, Indication, SEGMENTS_MAX, done_shape, work_shape};
pub use self::host::{Host, PostError};
