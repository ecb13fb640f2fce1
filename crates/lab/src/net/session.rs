//! A session that connects on demand, and reconnects after its connection was lost.
//!
//! Path      after connecting, round trips of one byte without Nagle's algorithm measure the path's RTT and
//!           MSS, and a burst of 256 KiB measures its approximate rate. Trials are compared with these
//!           figures, and the boundary of slow cells is predicted from them.

use crate::engine::Failure;
use crate::net::trial::evidence::Pattern;
pub use crate::net::trial::path::Path;
use crate::net::trial::setup::Setup;
use crate::net::trial::transactions;
use crate::remote::admission::Token;
use crate::remote::client::Client;
use crate::remote::protocol::{Welcome, Work};
use kiban_os::Clock;
use kiban_os::lock;
use std::io::Write;
use std::net::Shutdown;
use std::sync::Mutex;
use std::time::Duration;

/// The number of round trips that measure the path.
const ROUND_TRIPS: u64 = 20;

/// The number of bytes that measure the rate.
const PROBE_BYTES: usize = 256 << 10;

/// A session with a host.
pub struct Session {
    host: String,
    port: u16,
    token: Token,
    clock: Clock,
    open: Mutex<Option<Open>>,
}

struct Open {
    client: Client,
    path: Path,
}

impl Session {
    /// Creates a session with a host, connected on demand.
    pub fn new(host: &str, port: u16, token: Token) -> Session {
        Session { host: host.into(), port, token, clock: Clock::new(), open: Mutex::new(None) }
    }

    /// Returns the host's name as the caller gave it.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the clock of its measurements.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the server's description of itself, and the path.
    ///
    /// # Errors
    /// Returns [`Failure`] if the server does not answer, or refuses.
    pub fn path(&self) -> Result<(Welcome, Path), Failure> {
        self.with(|client, path| Ok((client.welcome().clone(), *path)))
    }

    /// Calls `act` with the client, after connecting if necessary. Drops the client if its connection was
    /// lost.
    ///
    /// # Errors
    /// Returns the errors of `act`, or of [`Client::connect`].
    pub fn with<R>(&self, act: impl FnOnce(&mut Client, &Path) -> Result<R, Failure>) -> Result<R, Failure> {
        let mut open = lock(&self.open);
        // The client is taken out of `self`, so that it is not reused if `act` panics.
        let mut opened = match open.take() {
            Some(opened) => opened,
            None => {
                let mut client = Client::connect(&self.host, self.port, &self.token)?;
                let path = look(&mut client, self.clock)?;
                Open { client, path }
            }
        };
        let done = act(&mut opened.client, &opened.path);
        if !matches!(done, Err(Failure::Lost(_))) {
            *open = Some(opened);
        }
        done
    }
}

fn look(client: &mut Client, clock: Clock) -> Result<Path, Failure> {
    let setup = Setup {
        pattern: Pattern::WriteRead,
        message_bytes: 1,
        buffer_bytes: None,
        no_delay: true,
        mss_bytes: None,
        congestion: None,
        seconds: 0.01,
    };
    let work = Work::Reply { message_bytes: 1, reply_bytes: 1 };
    let data = client.begin(&setup.settings(), work, Duration::from_secs(5))?;
    let mut line = transactions::Line::new(&data.stream, &setup, 1);
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        times.push(line.exchange(clock)?.as_secs_f64() * 1e6);
    }
    let info = transactions::info(&data.stream)?;
    drop(data);
    client.end()?;
    // The first two round trips include wake-ups, so they are not counted.
    let round_trip_us = crate::stats::median(&times[2..]).expect("there are some");

    let mut data = client.begin(&setup.settings(), Work::Read, Duration::from_secs(5))?;
    data.stream.write_all(&[0x5a; PROBE_BYTES]).map_err(|error| transactions::broken(&error))?;
    data.stream.shutdown(Shutdown::Write).map_err(|error| transactions::broken(&error))?;
    let outcome = client.end()?;
    let rate_mbps = outcome.bytes as f64 * 8e-6 / outcome.seconds.max(1e-6);
    Ok(Path { round_trip_us, mss_bytes: info.snd_mss, rate_mbps })
}
