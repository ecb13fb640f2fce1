//! Urgent pointers of one session (RFC 9293 §3.8.5).

use crate::wire::tcp::Sequence;

/// The urgent pointers of a session.
#[derive(Debug, Default)]
pub(in crate::tcp::session) struct Urgent {
    /// SND.UP.
    pub(in crate::tcp::session) sent: Option<Sequence>,
    /// RCV.UP.
    pub(in crate::tcp::session) heard: Option<Sequence>,
}

#[cfg(test)]
impl Urgent {
    pub(in crate::tcp::session) fn heard_at(mark: Sequence) -> Urgent {
        Urgent { sent: None, heard: Some(mark) }
    }

    pub(in crate::tcp::session) fn heard(&self) -> Option<Sequence> {
        self.heard
    }
}
