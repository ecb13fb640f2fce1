//! A session that connects on demand, and reconnects after its connection was lost.
//!
//! Path      after connecting, round trips of one byte without Nagle's algorithm measure the path's RTT and
//!           MSS. The second half of a burst of 256 KiB measures its approximate rate; the first half empties
//!           the token bucket of a rate limiter, which passes at the rate of the underlying link. Trials are
//!           compared with these figures, and the boundary of slow cells is predicted from them.

use crate::engine::Failure;
use crate::net::trial::evidence::Pattern;
pub use crate::net::trial::path::Path;
use crate::net::trial::setup::Setup;
use crate::net::trial::{task, transactions};
use crate::remote::admission::Token;
use crate::remote::client::Client;
use crate::remote::protocol::{Welcome, Work};
use crate::remote::tcp::TcpStack;
use kiban_base::Instant;
use kiban_os::Clock;
use kiban_os::lock;
use std::io::{self, Read, Write};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

/// The number of round trips that measure the path.
const ROUND_TRIPS: u64 = 20;

/// The burst that measures the rate: bytes of a message, and the number of messages, each of which the server
/// acknowledges with a reply.
const PROBE: (u32, usize) = (32 << 10, 8);

/// How long further clients are kept without being used.
const OTHERS_IDLE: Duration = Duration::from_secs(30);

/// A session with a host.
pub struct Session {
    tcp: TcpStack,
    host: String,
    label: String,
    port: u16,
    token: Token,
    clock: Clock,
    open: Mutex<Option<Open>>,
}

struct Open {
    client: Client,
    path: Path,
    /// Further clients, for trials of several connections, and when they were last used.
    others: (Vec<Client>, Instant),
}

impl Session {
    /// Creates a session with a host over this TCP, connected on demand.
    pub fn new(tcp: TcpStack, host: &str, port: u16, token: Token) -> Session {
        // Points of one run have one host, so a run never mixes measurements over different TCPs.
        let label = match tcp.board() {
            None => host.to_owned(),
            Some(board) => format!("{host} over board {board}"),
        };
        Session { tcp, host: host.into(), label, port, token, clock: Clock::new(), open: Mutex::new(None) }
    }

    /// Returns the host's name as the caller gave it and, if there is one, the board over which it is
    /// reached.
    pub fn label(&self) -> &str {
        &self.label
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
        self.with_others(0, |client, _, path| act(client, path))
    }

    /// Like [`Session::with`], with this many further clients, each of which has a session with the server.
    ///
    /// # Errors
    /// See [`Session::with`].
    pub fn with_others<R>(
        &self,
        others: u32,
        act: impl FnOnce(&mut Client, &mut [Client], &Path) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut open = lock(&self.open);
        // The client is taken out of `self`, so that it is not reused if `act` panics.
        let mut opened = match open.take() {
            Some(opened) => opened,
            None => {
                let mut client = self.connect()?;
                let path = self.advised(look(&mut client, self.clock))?;
                Open { client, path, others: (Vec::new(), self.clock.now()) }
            }
        };
        let Open { client, path, others: (further, used) } = &mut opened;
        // The server ends sessions that are idle for too long.
        if self.clock.now().since(*used) > OTHERS_IDLE {
            further.clear();
        }
        let mut done = Ok(());
        while done.is_ok() && further.len() < others as usize {
            done = self.connect().map(|client| further.push(client)).map_err(|failure| match failure {
                Failure::Impossible(why) => Failure::Impossible(format!(
                    "{} connections at once need as many sessions with the server: {why}",
                    others + 1
                )),
                lost => lost,
            });
        }
        let done = done.and_then(|()| act(client, &mut further[..others as usize], path));
        if others > 0 {
            *used = self.clock.now();
        }
        if !matches!(done, Err(Failure::Lost(_))) {
            *open = Some(opened);
        }
        self.advised(done)
    }

    fn connect(&self) -> Result<Client, Failure> {
        Client::connect(&self.tcp, &self.host, self.port, &self.token)
    }

    /// Adds what to do to the failure of a connection on which no data moved.
    fn advised<R>(&self, done: Result<R, Failure>) -> Result<R, Failure> {
        done.map_err(|failure| match failure {
            Failure::Lost(why) if why.starts_with(task::NO_DATA) && self.tcp.board().is_none() => {
                Failure::Lost(format!(
                    "{why}: try `kiban lab check {}`, which finds a path that drops long packets",
                    self.host
                ))
            }
            other => other,
        })
    }
}

fn look(client: &mut Client, clock: Clock) -> Result<Path, Failure> {
    let setup = Setup { no_delay: true, ..Setup::new(Pattern::WriteRead, 1) };
    let work = Work::Reply { message_bytes: 1, reply_bytes: 1 };
    let data = client.begin(&setup.settings(), work, Duration::from_secs(5))?;
    let mut line = transactions::Line::new(&data.stream, &setup, 1);
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        times.push(line.exchange(clock)?.as_secs_f64() * 1e6);
    }
    let info = task::info(&data)?;
    drop(data);
    client.end()?;
    // The first two round trips include wake-ups, so they are not counted.
    let round_trip_us = crate::stats::median(&times[2..]).expect("there are some");

    let rate_mbps = rate_mbps(&burst(client, &setup, clock)?);
    Ok(Path { round_trip_us, mss_bytes: info.snd_mss, rate_mbps })
}

/// Sends the messages of [`PROBE`] back to back, and returns after how many seconds each reply arrived.
fn burst(client: &mut Client, setup: &Setup, clock: Clock) -> Result<Vec<f64>, Failure> {
    let (message_bytes, messages) = PROBE;
    let longest = Duration::from_secs(client.welcome().trial_seconds_max.into());
    let work = Work::Reply { message_bytes, reply_bytes: 1 };
    let data = client.begin(&setup.settings(), work, longest)?;
    let mut stream = &data.stream;
    let begin = clock.now();
    // Replies must be read as they arrive, but writing waits for room in the socket's buffer.
    let replies: io::Result<Vec<f64>> = thread::scope(|scope| {
        let write = move || stream.write_all(&vec![0x5a; message_bytes as usize * messages]);
        let writer = thread::Builder::new().spawn_scoped(scope, write)?;
        let mut replies = Vec::new();
        while replies.len() < messages {
            stream.read_exact(&mut [0])?;
            replies.push(clock.now().since(begin).as_secs_f64());
        }
        writer.join().expect("writing does not panic")?;
        Ok(replies)
    });
    let replies = replies.map_err(|error| task::broken(&error))?;
    drop(data);
    client.end()?;
    Ok(replies)
}

/// Returns the rate in Mbit/s from the times of the replies to a burst.
///
/// A reply that this host notices late would make the rest of the burst look fast. Therefore the rate is the
/// lowest of those from several replies of the second half to the last one. It is at most twice the average
/// rate, in case all replies were noticed at the same time.
fn rate_mbps(replies: &[f64]) -> f64 {
    let (message_bytes, messages) = PROBE;
    let rate =
        |count: usize, seconds: f64| count as f64 * f64::from(message_bytes) * 8e-6 / seconds.max(1e-6);
    let last = replies[messages - 1];
    let later = (messages / 2..messages - 1).map(|count| rate(messages - count, last - replies[count - 1]));
    later.fold(2.0 * rate(messages, last), f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_silent_connection_leads_to_a_check_of_the_path() {
        let token = Token::random().expect("random");
        let session = Session::new(TcpStack::Host, "far", 4195, token);
        for (kind, expected) in [(io::ErrorKind::TimedOut, true), (io::ErrorKind::ConnectionReset, false)] {
            let failure = session.advised::<()>(Err(task::broken(&kind.into()))).expect_err("it failed");
            assert_eq!(failure.to_string().contains("`kiban lab check far`"), expected, "{failure}");
        }
    }

    #[test]
    fn the_rate_excludes_the_bucket_of_a_rate_limiter() {
        // A bucket of 32 KiB passes at once; the rest follows at 135 Mbit/s.
        let reply = |number: usize| (number as f64 * 262_144.0 / 135e6).max(1e-5);
        let replies: Vec<f64> = (0..PROBE.1).map(reply).collect();
        assert!((rate_mbps(&replies) - 135.0).abs() < 0.1, "{}", rate_mbps(&replies));
        // One reply was noticed 3 ms late.
        let mut late = replies.clone();
        late[3] += 3e-3;
        assert!((rate_mbps(&late) - 135.0).abs() < 0.1, "{}", rate_mbps(&late));
        // All replies were noticed together.
        let together = vec![replies[7]; 8];
        assert!(rate_mbps(&together) < 2.0 * 160.0, "{}", rate_mbps(&together));
    }
}
