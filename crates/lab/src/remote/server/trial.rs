//! The server's part of a trial: one TCP connection, on which the server reads, replies, writes, or waits for
//! replies.
//!
//! Port      accepts one connection, which must come from the session's address and send the greeting; its
//!           data is read and discarded.
//! Limits    duration, size of buffers and messages, bytes per second in each direction (above that rate, the
//!           server pauses reading or writing, and reports this with the outcome).

use super::budget::{Bucket, Payment};
use super::data_ports::DataPort;
use super::limits::{GRACE, LOOK, Limits, check_limits};
use super::session::{Session, late, overlapping};
use crate::remote::exchanges::{Asked, EXCHANGES_MIN, Exchanges, WARM_UP};
use crate::remote::protocol::*;
use crate::remote::tcp::Stream;
use crate::remote::windows::{WindowSampler, Windows};
use kiban_base::Instant;
use kiban_measure::{Counters, Settings};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

/// How long the data connection may take to arrive and send its greeting.
const DATA_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a trial; returns whether it took place.
///
/// # Errors
/// The client is gone, or the server is shutting down.
pub(super) fn serve(
    session: &mut Session<'_>,
    nonce: Nonce,
    settings: &Settings,
    work: Work,
    length: Duration,
) -> io::Result<bool> {
    if let Err(why) = validate(&session.state.limits, settings, work, length) {
        return session.send(&Reply::Impossible(why)).map(|()| false);
    }
    let listener = match session.open(|at| session.state.tcp.listen(settings, at)) {
        Ok(listener) => listener,
        Err(reply) => return session.send(&reply).map(|()| false),
    };
    let streams = listener.local_addr()?.port();
    let before = session.state.tcp.counters();
    session.send(&Reply::Ready { streams, datagrams: 0 })?;
    let deadline = session.state.clock.now() + length + GRACE;
    let mut port = DataPort::new(listener, session.address, vec![nonce.greeting()]);
    let made = accept(session, &mut port).and_then(|stream| {
        let mut trial = Trial::new(session, stream, settings)?;
        match work {
            Work::Write { message_bytes } => trial.write(message_bytes, length)?,
            Work::Ask { first_bytes, rest_bytes, reply_bytes, needed_us } => {
                trial.ask([first_bytes, rest_bytes], reply_bytes, needed_us, length)?;
            }
            Work::Read | Work::Reply { .. } => trial.read(work, deadline)?,
        }
        let outcome = trial.outcome(&before)?;
        if let Work::Write { .. } | Work::Ask { .. } = work {
            trial.close()?;
        }
        Ok(outcome)
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
        Work::Ask { first_bytes, rest_bytes, reply_bytes, .. } => {
            (if first_bytes == 0 { 0 } else { first_bytes.saturating_add(rest_bytes) }, reply_bytes)
        }
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

/// Waits for the data connection.
fn accept(session: &Session<'_>, port: &mut DataPort) -> io::Result<Stream> {
    let clock = session.state.clock;
    let deadline = clock.now() + DATA_TIMEOUT;
    while clock.now() < deadline && session.check().is_ok() {
        if let Some((_, stream)) = port.turn(|| clock.now(), LOOK)?.pop() {
            return Ok(stream);
        }
    }
    Err(late("no data connection arrived; is there a firewall in between?"))
}

struct Trial<'a> {
    session: &'a Session<'a>,
    stream: Stream,
    begin: Instant,
    /// When the last byte was read or written.
    last: Instant,
    /// Bytes read or, if the server sends, written.
    bytes: u64,
    rate_limited: bool,
    asked: Option<Asked>,
    windows: Option<Windows>,
}

impl<'a> Trial<'a> {
    fn new(session: &'a Session<'a>, stream: Stream, settings: &Settings) -> io::Result<Trial<'a>> {
        stream.set_nodelay(settings.no_delay)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        let begin = session.state.clock.now();
        Ok(Trial {
            session,
            stream,
            begin,
            last: begin,
            bytes: 0,
            rate_limited: false,
            asked: None,
            windows: None,
        })
    }

    fn now(&self) -> Instant {
        self.session.state.clock.now()
    }

    /// Returns the outcome so far.
    fn outcome(&self, before: &Counters) -> io::Result<Outcome> {
        Ok(Outcome {
            bytes: self.bytes,
            seconds: self.last.since(self.begin).as_secs_f64(),
            rate_limited: self.rate_limited,
            info: self.stream.info()?,
            given: self.stream.given()?,
            counters: self.session.state.tcp.counters().since(before),
            asked: self.asked.clone(),
            windows: self.windows,
        })
    }

    /// Charges bytes, and waits until they conform to the rate; returns whether they do before `deadline`.
    fn pay(&mut self, bucket: &Bucket, bytes: usize, deadline: Instant) -> io::Result<bool> {
        let gives_up = |now| now >= deadline || self.session.check().is_err();
        let payment = bucket.pay(bytes as u64, self.session.state.clock, gives_up);
        self.session.check()?;
        self.rate_limited |= payment != Payment::Immediate;
        Ok(payment != Payment::Abandoned)
    }

    /// Writes `bytes` in slices, each as soon as it conforms to the rate; returns how many were written until
    /// the next slice would have to wait beyond `until`. A peer cannot extend `deadline` by reading slowly.
    fn put(&mut self, bytes: &[u8], until: Instant, deadline: Instant) -> io::Result<usize> {
        let bucket = &self.session.rate.sent;
        let mut written = 0;
        for mut slice in bytes.chunks(bucket.slice_bytes()) {
            if !self.pay(bucket, slice.len(), until)? {
                break;
            }
            written += slice.len();
            while !slice.is_empty() {
                self.session.check()?;
                if self.now() >= deadline {
                    return Err(late("the client did not read what was sent"));
                }
                match self.stream.write(slice) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(taken) => slice = &slice[taken..],
                    Err(error) if is_timeout(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(written)
    }

    /// Writes messages for the announced time. Only the rate limit interrupts the last one.
    fn write(&mut self, message_bytes: u32, length: Duration) -> io::Result<()> {
        let message = filled(message_bytes)?;
        let until = self.begin + length;
        let mut sampler = WindowSampler::new(self.begin, length);
        while self.last < until {
            self.bytes += self.put(&message, until, until + GRACE)? as u64;
            self.last = self.now();
            sampler.sample(self.last, &self.stream);
        }
        self.windows = sampler.windows();
        Ok(())
    }

    /// Writes messages, each in up to two pieces, and waits for the reply to each; times the exchanges after
    /// the warm-up. All of it takes the announced time, or longer if there are few exchanges.
    fn ask(
        &mut self,
        pieces: [u32; 2],
        reply_bytes: u32,
        needed_us: u64,
        length: Duration,
    ) -> io::Result<()> {
        let pieces = [filled(pieces[0])?, filled(pieces[1])?];
        let mut reply = filled(reply_bytes)?;
        let warm = self.begin + WARM_UP.0.min(length);
        let (until, deadline) = (self.begin + length, self.begin + length + GRACE);
        let mut warm_up = 0;
        while warm_up < WARM_UP.1 && self.now() < warm && self.exchange(&pieces, &mut reply, deadline)? {
            warm_up += 1;
        }
        let (info_before, begin) = (self.stream.info()?, self.now());
        let mut times_us = Vec::new();
        while self.now() < until || (times_us.len() as u64) < EXCHANGES_MIN {
            let before = self.now();
            if !self.exchange(&pieces, &mut reply, deadline)? {
                break;
            }
            times_us.push(self.now().since(before).as_secs_f64() * 1e6);
        }
        let seconds = self.now().since(begin).as_secs_f64();
        let exchanges = Exchanges::of(&times_us, warm_up, needed_us as f64);
        self.asked = Some(Asked { info_before, seconds, exchanges });
        Ok(())
    }

    /// Sends a message and receives the reply; returns false if the rate limit does not allow the message.
    fn exchange(&mut self, pieces: &[Vec<u8>], reply: &mut [u8], deadline: Instant) -> io::Result<bool> {
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            let written = self.put(piece, deadline, deadline)?;
            self.bytes += written as u64;
            if written < piece.len() {
                return Ok(false);
            }
        }
        let mut count = 0;
        while count < reply.len() {
            match self.stream.read(&mut reply[count..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    count += length;
                    self.pay(&self.session.rate.received, length, deadline)?;
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
            self.session.check()?;
            if self.now() >= deadline {
                return Err(late("the client did not reply in time"));
            }
        }
        self.last = self.now();
        Ok(true)
    }

    /// Ends the server's side, and waits until the client has closed the connection, so that data in flight
    /// arrives.
    fn close(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        let deadline = self.now() + GRACE;
        loop {
            match self.stream.read(&mut [0; 1]) {
                Ok(0) => return Ok(()),
                Ok(length) => {
                    self.pay(&self.session.rate.received, length, deadline)?;
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
            if self.session.check().is_err() || self.now() >= deadline {
                return Err(late("the client did not read what was sent"));
            }
        }
    }

    /// Reads until the client has closed the connection; replies to each message if the client requested
    /// replies.
    fn read(&mut self, work: Work, deadline: Instant) -> io::Result<()> {
        let bucket = &self.session.rate.received;
        let (message, reply) = match work {
            Work::Read | Work::Write { .. } | Work::Ask { .. } => (usize::MAX, Vec::new()),
            Work::Reply { message_bytes, reply_bytes } => (message_bytes as usize, filled(reply_bytes)?),
        };
        let mut room = vec![0; bucket.slice_bytes().min(message)];
        let mut missing = message;
        loop {
            let part = missing.min(room.len());
            match self.stream.read(&mut room[..part]) {
                Ok(0) => return Ok(()),
                Ok(length) => {
                    self.last = self.now();
                    self.bytes += length as u64;
                    // After the deadline, the check below ends the trial.
                    self.pay(bucket, length, deadline)?;
                    missing -= if message == usize::MAX { 0 } else { length };
                    if missing == 0 {
                        self.put(&reply, deadline, deadline)?;
                        missing = message;
                    }
                }
                // The client has lost the connection, but nothing has arrived that would end it here.
                Err(error) if is_timeout(&error) && !reply.is_empty() && self.session.has_request()? => {
                    return Ok(());
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
            self.session.check()?;
            if self.now() >= deadline {
                return match work {
                    // Do not wait for data in flight, because the rate is already known.
                    Work::Read | Work::Write { .. } | Work::Ask { .. } => Ok(()),
                    Work::Reply { .. } => Err(late("the trial took longer than announced")),
                };
            }
        }
    }
}

pub(super) fn is_timeout(error: &io::Error) -> bool {
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
