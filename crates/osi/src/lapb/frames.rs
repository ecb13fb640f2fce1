//! Classifies received frames, and chooses the next frame to send.

use super::config::{PENDING_FRAMES_MAX, Role};
use super::link::{Link, PendingFrame};
use super::state::{Event, State};
use crate::wire::lapb::{self, Control, HEADER_BYTES_MAX, Header, Modulo, Reasons, Supervisory, Unnumbered};
use kiban_base::{Instant, Rope};

impl Link {
    pub(super) fn address(&self) -> u8 {
        match self.config.role {
            Role::Dte => lapb::A,
            Role::Dce => lapb::B,
        }
    }

    pub(super) fn peer_address(&self) -> u8 {
        lapb::A ^ lapb::B ^ self.address()
    }

    pub(super) fn classify(
        &self,
        header: &Header,
        is_command: bool,
        information_bytes: usize,
    ) -> (Event, Reasons) {
        let set = match self.config.modulo {
            Modulo::Eight => Unnumbered::Sabm,
            Modulo::OneTwentyEight => Unnumbered::Sabme,
        };
        let numbered = match (is_command, header.poll_final) {
            (true, true) => Event::PollCommand,
            (true, false) => Event::Command,
            (false, _) => Event::Response,
        };
        let event = match header.control {
            Control::Information { .. } if is_command => {
                if information_bytes > self.config.information_bytes_max {
                    return (Event::Invalid, Reasons::Y);
                }
                return (numbered, Reasons::default());
            }
            Control::Supervisory(..) => numbered,
            Control::Unnumbered(kind @ (Unnumbered::Sabm | Unnumbered::Sabme)) if is_command => {
                if kind == set { Event::Set } else { Event::OtherSet }
            }
            Control::Unnumbered(Unnumbered::Disc) if is_command => Event::Disc,
            Control::Unnumbered(Unnumbered::Ua) if !is_command => {
                if header.poll_final {
                    Event::UaFinal
                } else {
                    Event::Ua
                }
            }
            Control::Unnumbered(Unnumbered::Dm) if !is_command => {
                if header.poll_final {
                    Event::DmFinal
                } else {
                    Event::Dm
                }
            }
            // The FRMR's information field is not used, because every FRMR leads to a new link set-up.
            Control::Unnumbered(Unnumbered::Frmr) if !is_command => return (Event::Frmr, Reasons::default()),
            // §2.4.6.3: an undefined control field, a command sent as a response, or a response sent as a
            // command.
            Control::Information { .. } | Control::Unnumbered(_) | Control::Undefined(_) => {
                return (Event::Invalid, Reasons::W);
            }
        };
        if information_bytes > 0 { (Event::Invalid, Reasons::X) } else { (event, Reasons::W) }
    }

    pub(super) fn next_frame(&mut self, now: Instant) -> Option<Rope> {
        if let Some(pending) = self.pending_frames.pop_front() {
            if pending.is_timed {
                self.reply_due = now + self.config.reply_timeout;
            }
            return Some(self.unnumbered(pending));
        }
        if self.state != State::Connected {
            return None;
        }
        let ready = if self.is_busy() { Supervisory::ReceiveNotReady } else { Supervisory::ReceiveReady };
        if self.owed_reject || self.owed_final {
            let is_reject = core::mem::take(&mut self.owed_reject) && !self.is_busy();
            let kind = if is_reject { Supervisory::Reject } else { ready };
            let is_final = core::mem::take(&mut self.owed_final);
            return Some(self.supervisory(kind, self.address(), is_final));
        }
        if core::mem::take(&mut self.owed_poll) {
            self.reply_due = now + self.config.reply_timeout;
            return Some(self.supervisory(ready, self.peer_address(), true));
        }
        if core::mem::take(&mut self.owed_state) {
            return Some(self.supervisory(ready, self.address(), false));
        }
        let may_send = !self.peer_is_busy && !self.is_polling && self.next < usize::from(self.config.window);
        if may_send && let Some(packet) = self.frames.get(self.next) {
            let mut frame = packet.clone();
            let n_s = self.v_a.wrapping_add(self.next as u8) & self.config.modulo.mask();
            let control = Control::Information { n_s, n_r: self.v_r };
            self.next += 1;
            if self.next <= self.sent {
                self.counters.retransmits += 1;
            }
            self.sent = self.sent.max(self.next);
            if self.reply_due == Instant::NEVER {
                self.reply_due = now + self.config.reply_timeout;
            }
            self.acknowledged();
            self.put_header(&mut frame, Header { address: self.peer_address(), control, poll_final: false });
            return Some(frame);
        }
        if self.acknowledge_now || self.acknowledge_due <= now {
            return Some(self.supervisory(ready, self.address(), false));
        }
        None
    }

    pub(super) fn put_header(&self, frame: &mut Rope, header: Header) {
        let mut bytes = [0; HEADER_BYTES_MAX];
        let length = header.write(self.config.modulo, &mut bytes);
        frame.prepend(&bytes[..length]);
    }

    pub(super) fn supervisory(&mut self, kind: Supervisory, address: u8, poll_final: bool) -> Rope {
        self.acknowledged();
        self.owed_state = false;
        let mut frame = Rope::new();
        self.put_header(
            &mut frame,
            Header { address, control: Control::Supervisory(kind, self.v_r), poll_final },
        );
        frame
    }

    pub(super) fn unnumbered(&self, pending: PendingFrame) -> Rope {
        let is_command = matches!(pending.kind, Unnumbered::Sabm | Unnumbered::Sabme | Unnumbered::Disc);
        let mut frame = Rope::new();
        if let (Unnumbered::Frmr, Some(reject)) = (pending.kind, &self.reject) {
            let mut bytes = [0; 5];
            let length = reject.write(self.config.modulo, &mut bytes);
            frame.prepend(&bytes[..length]);
        }
        let address = if is_command { self.peer_address() } else { self.address() };
        let control = Control::Unnumbered(pending.kind);
        self.put_header(&mut frame, Header { address, control, poll_final: pending.poll_final });
        frame
    }

    /// Records that the frame to be sent carries the current V(R) and so acknowledges all frames received.
    pub(super) fn acknowledged(&mut self) {
        self.unacknowledged = 0;
        self.acknowledge_now = false;
        self.acknowledge_due = Instant::NEVER;
    }

    pub(super) fn queue_unnumbered(&mut self, pending: PendingFrame) {
        if self.pending_frames.len() == PENDING_FRAMES_MAX {
            self.pending_frames.pop_front();
            self.counters.answers_lost += 1;
        }
        self.pending_frames.push_back(pending);
    }
}
