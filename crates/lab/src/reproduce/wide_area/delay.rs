//! Delay over distance: table 1 of paper \[2\].
//!
//! Two workstations in one place, joined by a circuit that is folded back at a distant site: a ping crosses
//! the distance four times. Distances are not published: those here are what the pings would need if light in
//! fibre were all.

use kiban_base::Instant;
use kiban_board::{Completion, Host};
use kiban_sim::{Pair, Plan, Program};
use std::any::Any;
use std::net::IpAddr;
use std::time::Duration;

/// Light in fibre, metres a second (the paper, §2.1).
pub const METRES_PER_SECOND: f64 = 2.1e8;

/// A ping as the paper's workstations sent them: 56 bytes.
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

/// The distance to the site where the circuit is folded back, if a ping takes so long.
pub fn metres(ping_ms: f64) -> f64 {
    METRES_PER_SECOND * ping_ms * 1e-3 / 4.0
}

/// T = L/c + 8N/B of the paper, seconds.
pub fn delay(metres: f64, bytes: f64, bits_per_second: f64) -> f64 {
    metres / METRES_PER_SECOND + 8.0 * bytes / bits_per_second
}

/// Pings over a circuit that is folded back so many metres away.
pub fn ping(metres: f64) -> Option<Duration> {
    // The switch between the boards stands where the circuit is folded back.
    let mut pair = Pair::new(&Plan { metres, ..Plan::with_window(65_536) });
    let target = Pair::address(1);
    let [board, _] = pair.boards;
    pair.world.run_program(board, Box::new(Pinger { target, sent: Instant::ZERO, answered: None }));
    pair.world.run(Instant::ZERO + Duration::from_secs(10));
    let programs = pair.world.take_programs(board);
    programs.first()?.as_any().downcast_ref::<Pinger>()?.answered
}
