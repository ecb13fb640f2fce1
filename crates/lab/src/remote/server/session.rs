//! A session with a client that has presented the token: its control connection, and the functions of the
//! server that all measurements need.

use super::budget::Rate;
use super::data_ports::DataPorts;
use super::limits::{LOOK, Limits};
use crate::remote::protocol::*;
use kiban_base::Instant;
use kiban_measure::pause::readable;
use kiban_os::Clock;
use serde::Serialize;
use std::io::{self, BufReader};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The state that all sessions of a server share.
pub(super) struct State {
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
    io::Error::new(io::ErrorKind::InvalidData, "a trial was requested during a trial")
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
    reader: Lines,
    writer: TcpStream,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        state: &'a State,
        rate: &'a Rate,
        stream: TcpStream,
        address: IpAddr,
    ) -> io::Result<Session<'a>> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(LINE_TIME))?;
        let local = stream.local_addr()?.ip();
        let end = state.clock.now() + Duration::from_secs(state.limits.session_seconds.into());
        let reader = BufReader::new(DeadlineReader::new(stream.try_clone()?, LINE_TIME));
        Ok(Session { state, rate, address, local, end, reader, writer: stream })
    }

    /// Describes the server to the client.
    pub(super) fn welcome(&mut self) -> io::Result<()> {
        let read = |name: &str| {
            std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default().trim().to_owned()
        };
        let congestion = read("net/ipv4/tcp_available_congestion_control");
        let limits = &self.state.limits;
        let welcome = Welcome {
            kiban: env!("CARGO_PKG_VERSION").into(),
            kernel: format!("{} {}", std::env::consts::OS, read("kernel/osrelease")),
            congestion: congestion.split_whitespace().map(str::to_owned).collect(),
            trial_seconds_max: limits.trial_seconds,
            buffer_bytes_max: limits.buffer_bytes,
            message_bytes_max: limits.message_bytes,
            bytes_per_second_max: limits.bytes_per_second,
        };
        self.send(&Greeting::Welcome(welcome))
    }

    /// Waits for a request; returns `None` if the client has closed the session.
    pub(super) fn next(&mut self) -> io::Result<Option<Request>> {
        let clock = self.state.clock;
        let idle = clock.now() + Duration::from_secs(self.state.limits.idle_seconds.into());
        // Requests and replies conform to the rate, too.
        let gives_up = |now| now >= self.end.min(idle) || self.state.check().is_err();
        for bucket in [&self.rate.received, &self.rate.sent] {
            bucket.pay(0, clock, gives_up);
        }
        while !self.has_request(LOOK)? {
            let now = self.state.clock.now();
            self.state.check()?;
            if now >= self.end {
                return Err(late("the session reached its maximum duration"));
            }
            if now >= idle {
                return Err(late("the client was silent for too long"));
            }
        }
        match self.read() {
            Ok(request) => Ok(Some(request)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether a request or the end of the connection arrives within `timeout`.
    pub(super) fn has_request(&self, timeout: Duration) -> io::Result<bool> {
        Ok(!self.reader.buffer().is_empty() || readable(self.reader.get_ref(), timeout)?)
    }

    /// Reads a request that has begun to arrive.
    pub(super) fn read(&mut self) -> io::Result<Request> {
        let request = read_message_until(&mut self.reader, LINE_BYTES_MAX, LINE_TIME);
        self.rate.received.charge(self.reader.get_mut().take_count(), self.state.clock.now());
        request
    }

    /// Sends a line, which delays the next request if it does not conform to the rate.
    pub(super) fn send(&mut self, line: &impl Serialize) -> io::Result<()> {
        let bytes = write_message(&mut self.writer, line)?;
        self.rate.sent.charge(bytes as u64, self.state.clock.now());
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
