//! The server's part of a trial: one TCP connection, on which the server reads, replies or writes.
//!
//! Port      accepts one connection, which must come from the session's address and send the nonce; its data
//!           is read and discarded.
//! Limits    duration, size of buffers and messages, bytes per second (above that rate, the server pauses
//!           reading or writing, and reports this with the outcome).

use super::budget::Budget;
use super::data_ports::DataPort;
use super::limits::{GRACE, LOOK, Limits, check_limits};
use super::session::{Session, State, late, overlapping};
use crate::remote::admission::hex;
use crate::remote::protocol::*;
use kiban_base::Instant;
use kiban_measure::socket::given;
use kiban_measure::{Counters, Settings, TcpInfo};
use kiban_os::random;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// How long the data connection may take to arrive and send its nonce.
const DATA_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes read from a stream at a time.
const READ_BYTES: usize = 256 << 10;

/// Runs a trial; returns whether it took place.
///
/// # Errors
/// The client is gone, or the server is shutting down.
pub(super) fn serve(
    session: &mut Session<'_>,
    settings: &Settings,
    work: Work,
    length: Duration,
) -> io::Result<bool> {
    if let Err(why) = validate(&session.state.limits, settings, work, length) {
        return session.send(&Reply::Impossible(why)).map(|()| false);
    }
    let listener = match session.open(|at| settings.listen(at)) {
        Ok(listener) => listener,
        Err(reply) => return session.send(&reply).map(|()| false),
    };
    let nonce = random::bytes::<NONCE_BYTES>()?;
    let streams = listener.local_addr()?.port();
    let trial = Trial { state: session.state, settings, before: Counters::read().unwrap_or_default() };
    session.send(&Reply::Ready { streams, datagrams: 0, nonce: hex(&nonce) })?;
    let deadline = trial.state.clock.now() + length + GRACE;
    let mut port = DataPort::new(listener, session.address, vec![nonce.to_vec()]);
    let made = trial.accept(&mut port).and_then(|stream| match work {
        Work::Write { message_bytes } => trial.write(stream, message_bytes, length),
        Work::Read | Work::Reply { .. } => trial.read(stream, work, deadline),
    });
    // Free the port before the client is notified that the trial is over.
    drop(port);
    match session.next()? {
        Some(Request::Ended(_)) => {}
        Some(_) => return Err(overlapping()),
        None => return Ok(false),
    }
    session.send(&match made {
        Ok(outcome) => Reply::Outcome(Box::new(outcome)),
        Err(error) => Reply::Lost(format!("at the server: {error}")),
    })?;
    Ok(true)
}

/// Checks a trial against the limits.
fn validate(limits: &Limits, settings: &Settings, work: Work, length: Duration) -> Result<(), String> {
    let (message, reply) = match work {
        Work::Read => (1, 1),
        Work::Reply { message_bytes, reply_bytes } => (message_bytes, reply_bytes),
        Work::Write { message_bytes } => (message_bytes, 1),
    };
    if message == 0 || reply == 0 {
        return Err("a message and a reply need at least 1 byte".into());
    }
    let buffer = settings.send_bytes.max(settings.receive_bytes).unwrap_or(0);
    check_limits(&[
        ("milliseconds in a trial", length.as_millis() as u64, u64::from(limits.trial_seconds) * 1000),
        ("bytes in a socket buffer", buffer.into(), limits.buffer_bytes.into()),
        ("bytes in a message", message.max(reply).into(), limits.message_bytes.into()),
    ])
}

struct Trial<'a> {
    state: &'a State,
    settings: &'a Settings,
    /// The host's counters at the start.
    before: Counters,
}

impl Trial<'_> {
    fn accept(&self, port: &mut DataPort) -> io::Result<TcpStream> {
        let deadline = self.state.clock.now() + DATA_TIMEOUT;
        while self.state.clock.now() < deadline && self.state.check().is_ok() {
            if let Some((_, stream)) = port.turn(|| self.state.clock.now(), LOOK)?.pop() {
                return Ok(stream);
            }
        }
        Err(late("no data connection arrived; is there a firewall in between?"))
    }

    /// Returns the outcome of a trial whose last byte was read or written at `last`.
    fn outcome(&self, stream: &TcpStream, budget: &Budget, last: Instant) -> io::Result<Outcome> {
        Ok(Outcome {
            bytes: budget.bytes(),
            seconds: last.since(budget.begin()).as_secs_f64(),
            rate_limited: budget.was_limited(),
            info: TcpInfo::of(stream)?,
            given: given(stream)?,
            counters: Counters::read().unwrap_or_default().since(&self.before),
        })
    }

    /// Writes all of `bytes` before a deadline. A peer cannot extend the deadline by reading slowly.
    fn put(&self, stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.state.check()?;
            if self.state.clock.now() >= deadline {
                return Err(late("the client did not read what was sent"));
            }
            match stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => bytes = &bytes[taken..],
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes messages for the announced time, then waits until the client has closed the connection.
    fn write(&self, mut stream: TcpStream, message_bytes: u32, length: Duration) -> io::Result<Outcome> {
        stream.set_nodelay(self.settings.no_delay)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        let begin = self.state.clock.now();
        let budget = Budget::new(self.state.limits.bytes_per_second, begin);
        let message = filled(message_bytes)?;
        let mut now = begin;
        while now.since(begin) < length {
            self.put(&mut stream, &message, begin + length + GRACE)?;
            now = self.state.clock.now();
            budget.spend(message.len() as u64, now, GRACE);
        }
        let outcome = self.outcome(&stream, &budget, now)?;
        stream.shutdown(Shutdown::Write)?;
        // Wait until the client closes, so that data in flight arrives.
        let deadline = self.state.clock.now() + GRACE;
        loop {
            match stream.read(&mut [0; 1]) {
                Ok(0) => return Ok(outcome),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
            if self.state.check().is_err() || self.state.clock.now() >= deadline {
                return Err(late("the client did not read what was sent"));
            }
        }
    }

    /// Reads until the client has closed the connection; replies to each message if the client requested
    /// replies.
    fn read(&self, mut stream: TcpStream, work: Work, deadline: Instant) -> io::Result<Outcome> {
        stream.set_nodelay(self.settings.no_delay)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        let begin = self.state.clock.now();
        let budget = Budget::new(self.state.limits.bytes_per_second, begin);
        let mut last = begin;
        let (message, reply) = match work {
            Work::Read | Work::Write { .. } => (usize::MAX, Vec::new()),
            Work::Reply { message_bytes, reply_bytes } => (message_bytes as usize, filled(reply_bytes)?),
        };
        let mut room = vec![0; READ_BYTES.min(message)];
        let mut missing = message;
        loop {
            let part = missing.min(room.len());
            match stream.read(&mut room[..part]) {
                Ok(0) => break,
                Ok(length) => {
                    last = self.state.clock.now();
                    budget.spend(length as u64, last, GRACE);
                    missing -= if message == usize::MAX { 0 } else { length };
                    if missing == 0 {
                        self.put(&mut stream, &reply, deadline)?;
                        missing = message;
                    }
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
            self.state.check()?;
            if self.state.clock.now() >= deadline {
                match work {
                    // Do not wait for data in flight, because the rate is already known.
                    Work::Read | Work::Write { .. } => break,
                    Work::Reply { .. } => return Err(late("the trial took longer than announced")),
                }
            }
        }
        self.outcome(&stream, &budget, last)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Allocates a message of the length that a client has requested. If there is not enough memory, only that
/// client's trial fails.
fn filled(bytes: u32) -> io::Result<Vec<u8>> {
    let (mut message, bytes) = (Vec::new(), bytes as usize);
    message.try_reserve_exact(bytes)?;
    message.resize(bytes, 0x5a);
    Ok(message)
}
