//! A session with a client that has presented the token: its control connection, and the functions of the
//! server that all measurements need.

use super::budget::Rate;
use super::data_ports::DataPorts;
use super::limits::{LOOK, Limits};
use crate::remote::protocol::*;
use crate::remote::tcp::{Stream, TcpStack};
use kiban_base::Instant;
use kiban_measure::pause::pace;
use kiban_os::Clock;
use serde::Serialize;
use std::io::{self, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The state that all sessions of a server share.
pub(super) struct State {
    pub(super) tcp: TcpStack,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    pub(super) ports: DataPorts,
    /// Set when the server is shutting down.
    pub(super) ends: AtomicBool,
}

impl State {
    /// Returns an error if the server is shutting down.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.ends.load(Ordering::Acquire) { Err(late("the server is shutting down")) } else { Ok(()) }
    }
}

/// Returns the error for an expired time limit.
pub(super) fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

/// Returns the error for a request that is not valid while a measurement runs.
pub(super) fn overlapping() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "unexpected request during a measurement")
}

/// A session.
pub(super) struct Session<'a> {
    pub(super) state: &'a State,
    pub(super) rate: &'a Rate,
    /// The client's address.
    pub(super) address: IpAddr,
    /// The server's address, as the client sees it.
    local: IpAddr,
    end: Instant,
    /// When the lines so far conform to the rate, so that the next one may be read.
    conforms_at: Instant,
    reader: Lines,
    writer: Stream,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        state: &'a State,
        rate: &'a Rate,
        stream: Stream,
        address: IpAddr,
    ) -> io::Result<Session<'a>> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(LINE_TIME))?;
        let local = stream.local_addr()?.ip();
        let end = state.clock.now() + Duration::from_secs(state.limits.session_seconds.into());
        let reader = BufReader::new(DeadlineReader::new(stream.try_clone()?, LINE_TIME));
        Ok(Session { state, rate, address, local, end, conforms_at: Instant::ZERO, reader, writer: stream })
    }

    /// Describes the server to the client.
    pub(super) fn welcome(&mut self) -> io::Result<()> {
        let read = |name: &str| {
            std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default().trim().to_owned()
        };
        let board = self.state.tcp.board().map(str::to_owned);
        let congestion = match &board {
            Some(_) => String::new(),
            None => read("net/ipv4/tcp_available_congestion_control"),
        };
        let limits = &self.state.limits;
        let welcome = Welcome {
            kiban: env!("CARGO_PKG_VERSION").into(),
            kernel: format!("{} {}", std::env::consts::OS, read("kernel/osrelease")),
            board,
            congestion: congestion.split_whitespace().map(str::to_owned).collect(),
            trial_seconds_max: limits.trial_seconds,
            buffer_bytes_max: limits.buffer_bytes,
            message_bytes_max: limits.message_bytes,
            bytes_per_second_max: limits.bytes_per_second,
        };
        self.send(&Greeting::Welcome(welcome))
    }

    /// Returns an error if the session is over or the server is shutting down.
    pub(super) fn check(&self) -> io::Result<()> {
        self.state.check()?;
        if self.state.clock.now() >= self.end {
            return Err(late("the session reached its maximum duration"));
        }
        Ok(())
    }

    /// Waits for a request; returns `None` if the client has closed the session.
    pub(super) fn next(&mut self) -> io::Result<Option<Request>> {
        let clock = self.state.clock;
        let idle = clock.now() + Duration::from_secs(self.state.limits.idle_seconds.into());
        // The data of a measurement is paid for before the next request, too.
        self.conforms_at = self.rate.conforms_at(clock.now());
        loop {
            match self.poll(LOOK) {
                Ok(None) if clock.now() >= idle => return Err(late("the client was silent for too long")),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                done => return done,
            }
        }
    }

    /// Returns whether a request is waiting to be read.
    pub(super) fn has_request(&self) -> io::Result<bool> {
        Ok(!self.reader.buffer().is_empty() || self.reader.get_ref().readable(Duration::ZERO)?)
    }

    /// Waits for a request for at most `timeout`. Requests are not read before earlier lines conform to the
    /// rate.
    ///
    /// # Errors
    /// The session is over, the server is shutting down, or the client is gone (`UnexpectedEof`).
    pub(super) fn poll(&mut self, timeout: Duration) -> io::Result<Option<Request>> {
        self.check()?;
        let wait = self.conforms_at.since(self.state.clock.now());
        if !wait.is_zero() {
            pace(wait.min(timeout));
            return Ok(None);
        }
        if self.reader.buffer().is_empty() && !self.reader.get_ref().readable(timeout)? {
            return Ok(None);
        }
        let request = read_message_until(&mut self.reader, LINE_BYTES_MAX, LINE_TIME);
        let bytes = self.reader.get_mut().take_count();
        self.conforms_at = self.conforms_at.max(self.rate.received.charge(bytes, self.state.clock.now()));
        request.map(Some)
    }

    /// Sends a line, which delays the next request if it does not conform to the rate.
    pub(super) fn send(&mut self, line: &impl Serialize) -> io::Result<()> {
        let bytes = write_message(&mut self.writer, line)?;
        self.conforms_at = self.conforms_at.max(self.rate.sent.charge(bytes as u64, self.state.clock.now()));
        Ok(())
    }

    /// Sends a line with results of a mix, which the rate does not limit.
    pub(super) fn report(&mut self, line: &Reply) -> io::Result<()> {
        write_message(&mut self.writer, line).map(drop)
    }

    /// Opens a socket on a data port; the error is the reply to the client.
    pub(super) fn open<T>(&self, mut make: impl FnMut(SocketAddr) -> io::Result<T>) -> Result<T, Reply> {
        let opened = self.state.ports.take(|port| make(SocketAddr::new(self.local, port)));
        opened.map_err(|error| match error.kind() {
            // Ports become free when other measurements end.
            io::ErrorKind::AddrInUse => Reply::Lost(
                "all data ports of the server are in use: start it with a larger range (--data-ports), or try \
                 again later"
                    .into(),
            ),
            _ => Reply::Impossible(format!("the server's socket failed: {error}")),
        })
    }
}
