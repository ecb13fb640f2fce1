//! The send module's state of a queue pair between two segments.

use super::super::host::dmac::Cursor;

/// A message that the send module has partly sent.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Job {
    /// A Send or a Write, of which `sent` bytes have been sent.
    Message { wqe: u64, cursor: Cursor, sent: u32, length: u32 },
    /// The immediate data after a Write.
    Immediate { wqe: u64, data: u64, solicited: bool },
    /// Read requests, one per element, starting with this element.
    Requests { wqe: u64, element: usize, behind: u64 },
    /// The response to the peer's oldest read.
    Response,
}
