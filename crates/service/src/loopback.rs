//! Pending circuit pings, and the clients that wait for their results.

use crate::requests::Answer;
use kiban_atm::PING_TIMEOUT;
use kiban_base::Instant;
use kiban_board::{Completion, Host, Program};
use std::any::Any;
use std::time::Duration;
use tokio::sync::oneshot;

/// A ping that has not returned.
struct Ping {
    port: usize,
    circuit: u32,
    tag: u32,
    /// When it times out.
    until: Instant,
    sender: oneshot::Sender<Answer>,
}

/// Sends pings and receives their answers.
#[derive(Default)]
pub(crate) struct Loopbacks {
    pings: Vec<Ping>,
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
            Ok(tag) => self.pings.push(Ping { port, circuit, tag, until: now + PING_TIMEOUT, sender }),
            Err(refused) => {
                // The client may have disconnected.
                let _ = sender.send(Answer::Refused(format!("cannot ping the circuit: {refused}")));
            }
        }
    }

    fn answer(&mut self, index: usize, time: Option<Duration>) {
        let _ = self.pings.swap_remove(index).sender.send(Answer::Loopback(time));
    }
}

impl Program for Loopbacks {
    fn start(&mut self, _: &mut Host<'_>, _: Instant) {}

    fn on_completion(&mut self, completion: Completion, _: &mut Host<'_>, _: Instant) {
        let Completion::CellLoopback { port, circuit, tag, round_trip } = completion else { return };
        let is_it = |ping: &Ping| (ping.port, ping.circuit, ping.tag) == (port, circuit, tag);
        if let Some(index) = self.pings.iter().position(is_it) {
            self.answer(index, Some(round_trip));
        }
    }

    fn deadline(&self) -> Instant {
        self.pings.iter().map(|ping| ping.until).min().unwrap_or(Instant::NEVER)
    }

    fn on_timeout(&mut self, _: &mut Host<'_>, now: Instant) {
        while let Some(index) = self.pings.iter().position(|ping| ping.until <= now) {
            self.answer(index, None);
        }
    }

    fn is_done(&self) -> bool {
        self.pings.is_empty()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
