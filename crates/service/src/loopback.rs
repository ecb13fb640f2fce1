//! Pending circuit pings, and the clients that wait for their results.

use crate::pings::Pings;
use crate::requests::Answer;
use kiban_atm::PING_TIMEOUT;
use kiban_base::Instant;
use kiban_board::{Completion, Host, Program};
use std::any::Any;
use tokio::sync::oneshot;

/// The port, the circuit and the tag of a ping.
type Key = (usize, u32, u32);

/// Sends pings and receives their answers.
#[derive(Default)]
pub(crate) struct Loopbacks {
    pings: Pings<Key>,
}

impl Loopbacks {
    /// Sends a ping. The result goes to `sender`, immediately if the ping cannot be sent.
    pub(crate) fn ask(
        &mut self,
        (port, circuit): (usize, u32),
        segment: bool,
        sender: oneshot::Sender<Answer>,
        host: &mut Host<'_>,
        now: Instant,
    ) {
        let tag = match segment {
            true => host.segment_loopback(port, circuit),
            false => host.cell_loopback(port, circuit),
        };
        match tag {
            Ok(tag) => self.pings.add((port, circuit, tag), now + PING_TIMEOUT, sender),
            Err(refused) => {
                // The client may have disconnected.
                let _ = sender.send(Answer::Refused(format!("cannot ping the circuit: {refused}")));
            }
        }
    }
}

impl Program for Loopbacks {
    fn start(&mut self, _: &mut Host<'_>, _: Instant) {}

    fn on_completion(&mut self, completion: Completion, _: &mut Host<'_>, _: Instant) {
        let Completion::CellLoopback { port, circuit, tag, round_trip } = completion else { return };
        self.pings.answer(|key| *key == (port, circuit, tag), |_| Answer::Loopback(Some(round_trip)));
    }

    fn deadline(&self) -> Instant {
        self.pings.deadline()
    }

    fn on_timeout(&mut self, _: &mut Host<'_>, now: Instant) {
        self.pings.expire(now, |_| Answer::Loopback(None));
    }

    fn is_done(&self) -> bool {
        self.pings.is_empty()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
