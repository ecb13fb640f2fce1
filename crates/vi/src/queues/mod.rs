//! The host interface as rings: a host posts work and reads completions through memory that it shares with
//! the board.
//!
//! Purpose          a host that is another thread or process uses the VI NIC without a call: it fills a slot
//!                  of the work ring and polls the completion ring.
//! Requests         [`Host`] posts. [`Attachment::drain`], on the board's side, copies each entry once,
//!                  validates the copy and executes it. A control entry (create a VI, register memory,
//!                  connect) is answered by a reply with its cookie.
//! Indications      completions, replies, requests and events go into the completion ring while it has room;
//!                  the rest waits in the NIC and affects only that host.
//! Isolation        a host refers to its VIs and memories by numbers that the board assigned; it cannot use
//!                  those of other hosts. Its memory is part of one arena that both sides map, and
//!                  descriptors cannot reach beyond it. The worst that it can cause by writing into its rings
//!                  is a rejection, or the end of its own attachment.
//! End              [`Attachment::end`] releases everything: connections, VIs, memory, tag.
//! Limits           a descriptor has up to [`SEGMENTS_MAX`] segments; a host up to `vis_max` VIs.
//! Not implemented  completion queues chosen by the host: all completions of an attachment use one ring.
mod attachment;
mod entries;
mod host;

pub use self::attachment::Attachment;
pub use self::entries::{Control, ControlError, Indication, SEGMENTS_MAX, done_shape, work_shape};
pub use self::host::{Host, PostError};
