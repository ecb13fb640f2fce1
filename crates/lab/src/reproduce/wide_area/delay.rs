//! Round-trip delay over distance: table 1 of paper \[2\].
//!
//! Two workstations at one site are connected by a circuit that is looped back at a distant site, so a ping
//! crosses the distance four times. The distances are not published; those used here would give the published
//! ping times if propagation in fibre were the only delay.

use kiban_base::Instant;
use kiban_board::{Completion, Host};
use kiban_sim::{Pair, Plan, Program};
use std::any::Any;
use std::net::IpAddr;
use std::time::Duration;

/// The speed of light in fibre, metres per second (the paper, §2.1).
pub const METRES_PER_SECOND: f64 = 2.1e8;

/// Bytes of data of a ping, as in the paper.
const PING_BYTES: usize = 56;

struct Pinger {
    target: IpAddr,
    sent: Instant,
    answered: Option<Duration>,
}

impl Program for Pinger {
    fn start(&mut self, host: &mut Host<'_>, now: Instant) {
        self.sent = now;
        host.ping(self.target, 1, 1, &[0; PING_BYTES]).expect("there is a route and memory");
    }

    fn on_completion(&mut self, completion: Completion, _host: &mut Host<'_>, now: Instant) {
        if let Completion::EchoReply { .. } = completion {
            self.answered = Some(now.since(self.sent));
        }
    }

    fn is_done(&self) -> bool {
        self.answered.is_some()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the distance in metres to the loopback site for a round-trip time in milliseconds.
pub fn metres(ping_ms: f64) -> f64 {
    METRES_PER_SECOND * ping_ms * 1e-3 / 4.0
}

/// Returns the paper's delay T = L/c + 8N/B in seconds.
pub fn delay(metres: f64, bytes: f64, bits_per_second: f64) -> f64 {
    metres / METRES_PER_SECOND + 8.0 * bytes / bits_per_second
}

/// Returns the round-trip time of a ping over a circuit that is looped back `metres` away; `None` if there is
/// no reply.
pub fn ping(metres: f64) -> Option<Duration> {
    // The switch between the boards is at the loopback site.
    let mut pair = Pair::new(&Plan { metres, ..Plan::with_window(65_536) });
    let target = Pair::address(1);
    let [board, _] = pair.boards;
    pair.world.run_program(board, Box::new(Pinger { target, sent: Instant::ZERO, answered: None }));
    pair.world.run(Instant::ZERO + Duration::from_secs(10));
    let programs = pair.world.take_programs(board);
    programs.first()?.as_any().downcast_ref::<Pinger>()?.answered
}
