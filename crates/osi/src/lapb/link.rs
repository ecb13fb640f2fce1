//! One end of a link: its state, and its interfaces to the layer above and to the line.

use super::config::Config;
use super::counters::Counters;
use super::primitives::{Indication, Misuse, Reason, Request};
use super::state::{Act, Event, State, cell};
use crate::wire::lapb::{FrameReject, HEADER_BYTES_MAX, Header, Unnumbered};
use alloc::collections::VecDeque;
use kiban_base::{Instant, Rope};

/// An unnumbered frame that waits for the line.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingFrame {
    pub(super) kind: Unnumbered,
    pub(super) poll_final: bool,
    /// Whether the frame expects an answer, so that T1 starts when it is sent.
    pub(super) is_timed: bool,
}

/// One end of a link.
#[derive(Debug)]
pub struct Link {
    pub(super) config: Config,
    pub(super) state: State,
    pub(super) is_wanted: bool,
    /// Whether the link set-up in progress is a reset of an existing link.
    pub(super) is_resetting: bool,
    /// Unacknowledged frames, followed by unsent ones.
    pub(super) frames: VecDeque<Rope>,
    pub(super) v_a: u8,
    /// V(S), and the highest V(S) so far, as distances from `v_a`.
    pub(super) next: usize,
    pub(super) sent: usize,
    pub(super) v_r: u8,
    /// Number of frames received but not yet acknowledged.
    pub(super) unacknowledged: usize,
    pub(super) peer_is_busy: bool,
    pub(super) busy_asked: bool,
    pub(super) up_is_full: bool,
    /// Whether a received frame was dropped while this end was busy.
    pub(super) dropped_while_busy: bool,
    /// Whether REJ was sent and the requested frame has not arrived yet.
    pub(super) reject_sent: bool,
    /// Whether a command with P = 1 awaits its response (timer recovery).
    pub(super) is_polling: bool,
    pub(super) attempts: u32,
    pub(super) pending_frames: VecDeque<PendingFrame>,
    pub(super) owed_reject: bool,
    pub(super) owed_final: bool,
    pub(super) owed_poll: bool,
    pub(super) owed_state: bool,
    pub(super) acknowledge_now: bool,
    pub(super) reject: Option<FrameReject>,
    pub(super) reply_due: Instant,
    pub(super) acknowledge_due: Instant,
    pub(super) idle_due: Instant,
    pub(super) up: VecDeque<Indication>,
    pub(super) up_frames: usize,
    pub(super) counters: Counters,
}

impl Link {
    /// Creates a link that is down.
    ///
    /// # Panics
    /// If the window is too large for the modulo, or a limit is 0.
    pub fn new(config: Config) -> Link {
        assert!((1..=config.modulo.mask()).contains(&config.window), "a window of {}", config.window);
        assert!(config.queue_frames_max > 0 && config.up_frames_max > 0 && config.attempts_max > 0);
        Link {
            config,
            state: State::Disconnected,
            is_wanted: false,
            is_resetting: false,
            frames: VecDeque::new(),
            v_a: 0,
            next: 0,
            sent: 0,
            v_r: 0,
            unacknowledged: 0,
            peer_is_busy: false,
            busy_asked: false,
            up_is_full: false,
            dropped_while_busy: false,
            reject_sent: false,
            is_polling: false,
            attempts: 0,
            pending_frames: VecDeque::new(),
            owed_reject: false,
            owed_final: false,
            owed_poll: false,
            owed_state: false,
            acknowledge_now: false,
            reject: None,
            reply_due: Instant::NEVER,
            acknowledge_due: Instant::NEVER,
            idle_due: Instant::NEVER,
            up: VecDeque::new(),
            up_frames: 0,
            counters: Counters::default(),
        }
    }

    /// Returns the link's state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns how many packets [`Request::Data`] can currently accept.
    pub fn room(&self) -> usize {
        match self.state {
            State::Connected => {
                self.config.queue_frames_max - self.frames.len().min(self.config.queue_frames_max)
            }
            _ => 0,
        }
    }

    /// Returns the number of packets that have never been sent. If the layer above passes down a packet only
    /// when this is 0, the P(R) in its packets is current.
    pub fn unsent(&self) -> usize {
        self.frames.len() - self.sent
    }

    /// Accepts a request from the layer above.
    ///
    /// # Errors
    /// [`Misuse::State`] if the link's state does not allow the request; [`Misuse::Full`] if the queue is
    /// full; [`Misuse::TooLong`] if the packet is longer than N1 allows.
    pub fn request(&mut self, request: Request) -> Result<(), Misuse> {
        match request {
            Request::Connect => match self.state {
                State::Disconnected => {
                    self.is_wanted = true;
                    self.set_up();
                }
                _ => return Err(Misuse::State),
            },
            Request::Disconnect => match self.state {
                State::SettingUp | State::Connected | State::Rejecting => {
                    self.is_wanted = false;
                    self.reset_state();
                    self.attempts = 1;
                    self.state = State::Disconnecting;
                    self.queue_unnumbered(PendingFrame {
                        kind: Unnumbered::Disc,
                        poll_final: true,
                        is_timed: true,
                    });
                }
                State::Disconnected | State::Disconnecting => return Err(Misuse::State),
            },
            Request::Data(packet) => {
                if self.state != State::Connected {
                    return Err(Misuse::State);
                }
                if self.frames.len() >= self.config.queue_frames_max {
                    return Err(Misuse::Full);
                }
                if packet.len() > self.config.information_bytes_max {
                    return Err(Misuse::TooLong);
                }
                self.frames.push_back(packet);
            }
            Request::Busy(busy) => {
                let before = self.is_busy();
                self.busy_asked = busy;
                self.tell_busy(before);
            }
        }
        Ok(())
    }

    /// Handles a frame from the line, without flags and FCS.
    pub fn arrive(&mut self, mut frame: Rope, now: Instant) {
        self.counters.frames_in += 1;
        let mut front = [0; HEADER_BYTES_MAX];
        let count = frame.copy_to(0, &mut front);
        let Ok((header, used)) = Header::read(&front[..count], self.config.modulo) else {
            // §2.3.5.3: an invalid frame is discarded without any other action.
            self.counters.invalid += 1;
            return;
        };
        if self.idle_due != Instant::NEVER {
            self.idle_due = now + self.config.idle_timeout;
        }
        let is_command = header.address == self.address();
        let (event, reasons) = self.classify(&header, is_command, frame.len() - used);
        let (act, next) = cell(self.state, event);
        if event == Event::Frmr {
            self.counters.rejected_by_peer += 1;
        }
        match act {
            Act::Ignore => {}
            Act::Transfer => {
                frame.skip(used);
                self.on_transfer(&header, is_command, [front[1], front[2]], frame, now);
            }
            Act::Ua => self.on_set_or_disc(next, header.poll_final, now),
            Act::UaOrDm if self.config.listens || self.is_wanted => {
                self.on_set_or_disc(next, header.poll_final, now);
            }
            Act::Dm | Act::UaOrDm => {
                self.go_down(Reason::ByPeer);
                self.queue_unnumbered(PendingFrame {
                    kind: Unnumbered::Dm,
                    poll_final: header.poll_final,
                    is_timed: false,
                });
            }
            Act::SetIfWanted if !self.is_wanted => {}
            Act::Set | Act::SetIfWanted => self.set_up(),
            Act::Agreed => self.come_up(now),
            Act::Gone => {
                let is_ours = self.state == State::Disconnecting;
                self.go_down(if is_ours { Reason::Requested } else { Reason::Refused });
            }
            Act::Reject => {
                let rejected = self.rejected(&header, [front[1], front[2]]);
                self.reject_frame(rejected, !is_command, reasons, is_command && header.poll_final);
            }
            Act::RejectAgain => self.queue_frmr(is_command && header.poll_final),
        }
    }

    /// Returns the next indication for the layer above.
    pub fn poll_up(&mut self) -> Option<Indication> {
        let indication = self.up.pop_front()?;
        if let Indication::Data(_) = indication {
            self.up_frames -= 1;
            if self.up_is_full && self.up_frames <= self.config.up_frames_max / 2 {
                self.up_is_full = false;
                self.tell_busy(true);
            }
        }
        Some(indication)
    }

    /// Returns the next frame for the line; call it when the line has room for one.
    pub fn poll_down(&mut self, now: Instant) -> Option<Rope> {
        let frame = self.next_frame(now)?;
        self.counters.frames_out += 1;
        Some(frame)
    }

    /// Returns when [`Link::settle`] must be called.
    pub fn deadline(&self) -> Instant {
        let acknowledge = if self.acknowledge_now { Instant::NEVER } else { self.acknowledge_due };
        self.reply_due.min(acknowledge).min(self.idle_due)
    }

    /// Handles timers that have expired.
    pub fn settle(&mut self, now: Instant) {
        if self.acknowledge_due <= now {
            self.acknowledge_now = true;
        }
        if self.idle_due <= now {
            self.idle_due = Instant::NEVER;
            if self.state == State::Connected && !self.is_polling && self.reply_due == Instant::NEVER {
                self.attempts = 1;
                self.poll_peer();
            }
        }
        if self.reply_due > now {
            return;
        }
        self.reply_due = Instant::NEVER;
        self.counters.timeouts += 1;
        let is_last = self.attempts >= self.config.attempts_max;
        self.attempts += 1;
        match self.state {
            State::Disconnected => {}
            State::SettingUp if is_last => self.go_down(Reason::NoAnswer),
            State::SettingUp => self.queue_sabm(),
            State::Disconnecting if is_last => self.go_down(Reason::Requested),
            State::Disconnecting => {
                self.queue_unnumbered(PendingFrame {
                    kind: Unnumbered::Disc,
                    poll_final: true,
                    is_timed: true,
                });
            }
            // §2.4.5.9 and §2.4.7.3: after N2 attempts, reset the link.
            State::Connected | State::Rejecting if is_last => self.set_up(),
            State::Connected => self.poll_peer(),
            State::Rejecting => self.queue_frmr(false),
        }
    }
}
