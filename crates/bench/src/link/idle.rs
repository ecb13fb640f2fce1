//! Memory use of idle sessions: how much this process grows while its board holds [`SESSIONS`] connections to
//! this host's kernel.
//!
//! Counted   resident memory, from before the board is built until all sessions are open and a hundred of
//!           them, spread evenly, have echoed. The kernel's ends of the sessions use kernel memory; in this
//!           process, each of them uses only a descriptor number.

use super::device::{BEHIND, Device, SINK, in_a_namespace, open};
use super::{board, peer};
use kiban_base::{Instant, Wait};
use kiban_board::{Board, Completion, Host, Program};
use kiban_link::Driver;
use kiban_os::Clock;
use kiban_os::random;
use std::any::Any;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) const SESSIONS: usize = 10_000;
/// The distance between two sessions that echo data, counted in sessions.
const SAMPLE_EVERY: usize = 100;

struct Echo {
    buffer: Vec<u8>,
}

impl Program for Echo {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        host.listen(SocketAddr::from((BEHIND, SINK))).expect("the port is free");
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        match completion {
            Completion::Readable { stream } => {
                while let Ok(count @ 1..) = host.read(stream, &mut self.buffer) {
                    host.write(stream, &self.buffer[..count]).expect("there is room");
                }
            }
            Completion::PeerFinished { stream } | Completion::Ended { stream, .. } => {
                let _ = host.close(stream);
            }
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns how many files this process may open.
pub(super) fn files_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("/proc is mounted");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("it has this one");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(usize::MAX)
}

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: usize = pages.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number of pages");
    pages * 4096
}

/// Returns the megabytes that idle sessions use.
pub(super) fn run() -> f64 {
    let done = in_a_namespace(|| {
        let device = Device { mtu_bytes: 1500, whole: true };
        let link = open(device).map_err(|error| error.to_string())?;
        let clock = Clock::new();
        let before = resident_bytes();
        let mut driver = Driver::new(
            Board::new(&board::config(device), random::key().expect("the system has random numbers")),
            clock,
        )
        .expect("files can be opened");
        driver.attach_packets(0, Box::new(link));
        driver.add(Box::new(Echo { buffer: vec![0; 4096] }));
        let (all_there, seen) = (AtomicBool::new(false), AtomicBool::new(false));
        let grown = std::thread::scope(|scope| {
            let kernel = scope.spawn(|| {
                let to = SocketAddr::from((BEHIND, SINK));
                let sockets: Vec<_> = (0..SESSIONS).map(|_| peer::connect(to)).collect();
                for (number, mut socket) in sockets.iter().enumerate().step_by(SAMPLE_EVERY) {
                    let (said, mut heard) = ([number as u8; 64], [0; 64]);
                    socket.write_all(&said).expect("the session lives");
                    socket.read_exact(&mut heard).expect("the board answers");
                    assert_eq!(said, heard, "session {number} echoes");
                }
                all_there.store(true, Ordering::Release);
                while !seen.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            });
            let mut waiting = driver.waiting(Wait::Adaptive);
            while !all_there.load(Ordering::Acquire) && !kernel.is_finished() {
                let soon = clock.now() + Duration::from_millis(5);
                driver.run(&mut waiting, soon, |_| all_there.load(Ordering::Acquire));
            }
            let (grown, sessions) = (resident_bytes().saturating_sub(before), driver.view().sessions());
            seen.store(true, Ordering::Release);
            kernel.join().expect("the kernel's side succeeds");
            assert_eq!(sessions, SESSIONS, "all of them are alive");
            grown
        });
        Ok(grown as f64 / 1e6)
    });
    done.expect("it worked before")
}
