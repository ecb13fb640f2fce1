//! The host: it posts work and reads completions.

use super::entries::*;
use crate::{Completion, CompletionKind, DataSegment, Operation, Status, Work};
use core::fmt;
use kiban_base::ring::{Consumer, Poisoned, Producer};

/// The host's side.
#[derive(Debug)]
pub struct Host {
    work: Producer,
    done: Consumer,
}

/// The reason why an entry could not be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PostError {
    /// The work ring is full. Take completions, then retry.
    Full,
    /// The request has more segments, or a longer name, than fit into an entry.
    TooLong,
    /// The board violated the ring's protocol, or ended the attachment.
    Broken,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PostError::Full => "the work ring is full: take completions, then post again",
            PostError::TooLong => "the request has too many segments, or too long a name, for the ring",
            PostError::Broken => "the board has closed the attachment",
        })
    }
}

impl core::error::Error for PostError {}

impl Host {
    /// Creates the host's side of two new rings.
    pub fn new(work: Producer, done: Consumer) -> Host {
        Host { work, done }
    }

    fn push(&mut self, entry: &Entry) -> Result<(), PostError> {
        match self.work.push(&entry.bytes[..entry.length]) {
            Ok(true) => Ok(()),
            Ok(false) => Err(PostError::Full),
            Err(Poisoned) => Err(PostError::Broken),
        }
    }

    /// Posts a descriptor to a VI's send queue.
    ///
    /// # Errors
    /// [`PostError`] if the entry does not fit or the ring is full or broken.
    pub fn send(&mut self, vi: u32, work: &Work<'_>) -> Result<(), PostError> {
        if work.segments.len() > SEGMENTS_MAX {
            return Err(PostError::TooLong);
        }
        let flags = u8::from(work.immediate.is_some()) | (u8::from(work.fence) << 1);
        let (op, remote) = match work.operation {
            Operation::Send => (op::SEND, None),
            Operation::Write(remote) => (op::WRITE, Some(remote)),
            Operation::Read(remote) => (op::READ, Some(remote)),
        };
        let mut entry = Entry::new(op, flags, vi, work.cookie);
        entry.put_word(16, work.immediate.unwrap_or(0));
        if let Some(remote) = remote {
            entry.put_word(20, remote.handle);
            entry.put_long(24, remote.address);
        }
        entry.put_segments(work.segments);
        self.push(&entry)
    }

    /// Posts a descriptor to a VI's receive queue.
    ///
    /// # Errors
    /// Same as for [`Host::send`].
    pub fn receive(&mut self, vi: u32, cookie: u64, segments: &[DataSegment]) -> Result<(), PostError> {
        if segments.len() > SEGMENTS_MAX {
            return Err(PostError::TooLong);
        }
        let mut entry = Entry::new(op::RECEIVE, 0, vi, cookie);
        entry.put_segments(segments);
        self.push(&entry)
    }

    /// Posts a control request; its [`Indication::Reply`] has the same cookie.
    ///
    /// # Errors
    /// Same as for [`Host::send`].
    pub fn post_control(&mut self, cookie: u64, control: &Control) -> Result<(), PostError> {
        let both = |write: bool, read: bool| u8::from(write) | (u8::from(read) << 1);
        let entry = match control {
            Control::CreateVi { reliability, transfer_bytes_max, rdma_write, rdma_read } => {
                let mut entry = Entry::new(op::CREATE_VI, both(*rdma_write, *rdma_read), 0, cookie);
                entry.put_word(16, *reliability as u32);
                entry.put_word(20, *transfer_bytes_max);
                entry
            }
            Control::Register { address, length, rdma_write, rdma_read } => {
                let mut entry = Entry::new(op::REGISTER, both(*rdma_write, *rdma_read), 0, cookie);
                entry.put_word(16, *length);
                entry.put_long(24, *address);
                entry
            }
            Control::DestroyVi(vi) => Entry::new(op::DESTROY_VI, 0, *vi, cookie),
            Control::Deregister(handle) => Entry::new(op::DEREGISTER, 0, *handle, cookie),
            Control::Disconnect(vi) => Entry::new(op::DISCONNECT, 0, *vi, cookie),
            Control::Reject(request) => Entry::new(op::REJECT, 0, *request, cookie),
            Control::Accept { request, vi } => {
                let mut entry = Entry::new(op::ACCEPT, 0, *vi, cookie);
                entry.put_word(16, *request);
                entry
            }
            Control::Listen(discriminator) => {
                if discriminator.len() > NAME_BYTES_MAX {
                    return Err(PostError::TooLong);
                }
                let mut entry = Entry::new(op::LISTEN, 0, 0, cookie);
                entry.put_names(discriminator, &[]);
                entry
            }
            Control::Connect { vi, host, discriminator, patience_ms } => {
                if host.len().max(discriminator.len()) > NAME_BYTES_MAX {
                    return Err(PostError::TooLong);
                }
                let mut entry = Entry::new(op::CONNECT, 0, *vi, cookie);
                entry.put_word(16, *patience_ms);
                entry.put_names(host, discriminator);
                entry
            }
        };
        self.push(&entry)
    }

    /// Returns whether an indication is available. This costs one load.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.done.is_ready()
    }

    /// Returns the next indication from the board, or `None` if there is none.
    ///
    /// # Errors
    /// [`Poisoned`] if the board violated the ring's protocol or wrote an invalid entry; the board is no
    /// longer trusted.
    pub fn next_indication(&mut self) -> Result<Option<Indication>, Poisoned> {
        let mut bytes = [0; DONE_BYTES];
        match self.done.peek()? {
            None => return Ok(None),
            Some(entry) => entry.copy_to(0, &mut bytes),
        };
        self.done.release();
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let cookie = u64::from(word(8)) | (u64::from(word(12)) << 32);
        let cookie = if cfg!(target_endian = "big") { cookie.rotate_left(32) } else { cookie };
        match bytes[0] {
            indication_kind::DONE => {
                let kinds = [
                    CompletionKind::Send,
                    CompletionKind::Receive,
                    CompletionKind::Write,
                    CompletionKind::RemoteWrite,
                    CompletionKind::Read,
                ];
                let kind = *kinds.get(usize::from(bytes[1])).ok_or(Poisoned)?;
                let immediate = (bytes[2] != 0).then_some(word(24));
                let done = Completion { cookie, kind, status: Status(word(16)), length: word(20), immediate };
                Ok(Some(Indication::Done { vi: word(4), done }))
            }
            indication_kind::REPLY => {
                let result = match bytes[1] {
                    0 => Ok(word(4)),
                    code => Err(*ControlError::ALL.get(usize::from(code) - 1).ok_or(Poisoned)?),
                };
                Ok(Some(Indication::Reply { cookie, result }))
            }
            indication_kind::REQUEST => Ok(Some(Indication::Request { request: word(4) })),
            indication_kind::LOST => Ok(Some(Indication::Lost { vi: word(4), fault: word(16) })),
            _ => Err(Poisoned),
        }
    }
}
