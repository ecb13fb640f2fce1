//! The client of a measurement server: a control connection, and data connections for each measurement.
//!
//! Loss      if the peer or the network fails, the result is [`Failure::Lost`]. The control connection is
//!           then closed; [`Client::connect`] opens a new one.
//! Bounds    every wait has a timeout, so that a peer that falls silent is noticed.

use super::admission::Token;
use super::probes::ProbeOutcome;
use super::protocol::*;
use super::tcp::{Stream, TcpStack};
use crate::engine::Failure;
use kiban_measure::{Capture, Counters, Settings};
use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// How long connecting, or waiting for a reply, may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);

/// How long a trial's data connection may be silent before it counts as lost.
pub const SILENCE: Duration = Duration::from_secs(10);

/// A session with a server.
pub struct Client {
    tcp: TcpStack,
    reader: Lines,
    writer: Stream,
    peer: SocketAddr,
    welcome: Welcome,
}

/// The server is ready for a measurement.
pub(crate) struct Ready {
    /// The port for TCP; 0 if there is none.
    pub(crate) streams: u16,
    /// The port for UDP; 0 if there is none.
    pub(crate) datagrams: u16,
    /// The nonce of the request.
    pub(crate) nonce: Nonce,
}

/// A trial's data connection.
pub struct Data {
    /// The connection; the greeting has been sent.
    pub stream: Stream,
    /// The counters of this end's TCP when the connection was opened.
    pub before: Counters,
    /// The capture of the connection from its first packet on, if it was requested and is permitted.
    pub(crate) capture: Option<Capture>,
}

impl Client {
    /// Connects to a server over this TCP. `host` is a name or an address.
    ///
    /// # Errors
    /// Returns [`Failure::Lost`] if the server does not answer, and [`Failure::Impossible`], with the reason,
    /// if it refuses.
    pub fn connect(tcp: &TcpStack, host: &str, port: u16, token: &Token) -> Result<Client, Failure> {
        let lost = |error: io::Error| {
            let hint = match error.kind() {
                io::ErrorKind::ConnectionRefused => "; is `kiban lab serve` running there?",
                io::ErrorKind::TimedOut => "; is there a firewall in between?",
                _ => "",
            };
            Failure::Lost(format!("cannot connect to {host} port {port}: {error}{hint}"))
        };
        let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let addresses = (host, port).to_socket_addrs().map_err(lost)?;
        for peer in addresses {
            match tcp.connect(&Settings::default(), peer, TIMEOUT) {
                Ok(stream) => return Client::greet(tcp, stream, peer, token),
                Err(other) => error = other,
            }
        }
        Err(lost(error))
    }

    fn greet(tcp: &TcpStack, stream: Stream, peer: SocketAddr, token: &Token) -> Result<Client, Failure> {
        let greet = || -> io::Result<(Greeting, Lines, Stream)> {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            let mut reader = BufReader::new(DeadlineReader::new(stream.try_clone()?, TIMEOUT));
            let mut writer = stream;
            let said =
                write_message(&mut writer, &Hello { version: VERSION, token: token.reveal().to_owned() });
            // If the server closed the connection before it received our message, it may have sent the
            // reason.
            let heard = read_message_until(&mut reader, LINE_BYTES_MAX, TIMEOUT);
            heard.map_err(|error| said.err().unwrap_or(error)).map(|heard| (heard, reader, writer))
        };
        match greet() {
            Ok((Greeting::Welcome(mut welcome), reader, writer)) => {
                let words = [&mut welcome.kernel, &mut welcome.kiban].into_iter().chain(&mut welcome.board);
                for word in words {
                    *word = plain(word);
                }
                Ok(Client { tcp: tcp.clone(), reader, writer, peer, welcome })
            }
            Ok((Greeting::Refused(why), _, _)) => {
                Err(Failure::Impossible(format!("the server at {peer} refused the session: {}", plain(&why))))
            }
            Err(error) if is_closed(&error) => Err(Failure::Lost(format!(
                "the server at {peer} closed the connection: does its --allow exclude this host?"
            ))),
            Err(error) => Err(Failure::Lost(format!("{peer} does not speak kiban's protocol: {error}"))),
        }
    }

    /// Returns the server's description of itself.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Returns the TCP of this end.
    pub fn tcp(&self) -> &TcpStack {
        &self.tcp
    }

    /// Returns the server's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the control connection, for a mix.
    pub(crate) fn lines(&mut self) -> (&mut Lines, &mut Stream) {
        (&mut self.reader, &mut self.writer)
    }

    /// Requests a measurement with a new nonce.
    ///
    /// # Errors
    /// Returns [`Failure::Impossible`] if the server does not allow the measurement.
    pub(crate) fn request(&mut self, request: impl FnOnce(Nonce) -> Request) -> Result<Ready, Failure> {
        let nonce = Nonce::random()
            .map_err(|error| Failure::Lost(format!("this host has no random numbers: {error}")))?;
        match self.ask(&request(nonce))? {
            Reply::Ready { streams, datagrams } => Ok(Ready { streams, datagrams, nonce }),
            Reply::Impossible(why) => Err(Failure::Impossible(why)),
            other => Err(unexpected(&other)),
        }
    }

    /// Opens a data connection to a port of the server, and sends `greeting` first.
    ///
    /// # Errors
    /// Returns [`Failure::Impossible`] if this host does not allow the settings.
    pub(crate) fn connect_data(
        &self,
        settings: &Settings,
        port: u16,
        greeting: &[u8],
    ) -> Result<Stream, Failure> {
        self.connect_by(port, greeting, |to| Ok((self.tcp.connect(settings, to, TIMEOUT)?, None)))
            .map(|(stream, _)| stream)
    }

    /// Opens a data connection with `connect`, and sends `greeting` first.
    fn connect_by(
        &self,
        port: u16,
        greeting: &[u8],
        connect: impl FnOnce(SocketAddr) -> io::Result<(Stream, Option<Capture>)>,
    ) -> Result<(Stream, Option<Capture>), Failure> {
        let address = SocketAddr::new(self.peer.ip(), port);
        let connected = connect(address).and_then(|(mut stream, capture)| {
            stream.set_read_timeout(Some(SILENCE))?;
            stream.set_write_timeout(Some(SILENCE))?;
            stream.write_all(greeting)?;
            Ok((stream, capture))
        });
        connected.map_err(|error| match error.kind() {
            // The kernel of this host, or the board, rejects the MSS or the congestion control.
            io::ErrorKind::InvalidInput | io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                Failure::Impossible(format!("this end rejects a socket option: {error}"))
            }
            _ => Failure::Lost(format!("the data connection to {address} failed: {error}")),
        })
    }

    /// Starts a trial.
    ///
    /// # Errors
    /// Returns [`Failure::Impossible`] if the server or this host does not allow the trial.
    pub fn begin(&mut self, settings: &Settings, work: Work, length: Duration) -> Result<Data, Failure> {
        self.begin_captured(settings, work, length, false)
    }

    /// Like [`Client::begin`], with a capture of the data connection if `captured`.
    pub(crate) fn begin_captured(
        &mut self,
        settings: &Settings,
        work: Work,
        length: Duration,
        captured: bool,
    ) -> Result<Data, Failure> {
        let millis = u32::try_from(length.as_millis()).unwrap_or(u32::MAX);
        let ready =
            self.request(|nonce| Request::Trial { nonce, settings: settings.clone(), work, millis })?;
        let before = self.tcp.counters();
        let connected = self.connect_by(ready.streams, &ready.nonce.greeting(), |to| match captured {
            true => self.tcp.connect_captured(settings, to, TIMEOUT),
            false => Ok((self.tcp.connect(settings, to, TIMEOUT)?, None)),
        });
        match connected {
            Ok((stream, capture)) => Ok(Data { stream, before, capture }),
            Err(failure) => {
                // Release the server from waiting for the connection; its reply is not needed.
                let _ = self.ask(&Request::Ended(Vec::new()));
                Err(failure)
            }
        }
    }

    /// Ends a trial. The caller must already have closed the data connection or its sending side.
    ///
    /// # Errors
    /// Returns [`Failure::Lost`] if the data connection failed at the server.
    pub fn end(&mut self) -> Result<Outcome, Failure> {
        match self.ask(&Request::Ended(Vec::new()))? {
            Reply::Outcome(mut outcome) => {
                outcome.given.congestion = plain(&outcome.given.congestion);
                Ok(*outcome)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Ends the measurement of probes.
    ///
    /// # Errors
    /// Returns [`Failure::Lost`] if the server is gone.
    pub(crate) fn end_probes(&mut self) -> Result<ProbeOutcome, Failure> {
        match self.ask(&Request::Ended(Vec::new()))? {
            Reply::Probed(mut outcome) => {
                outcome.down_congestion = outcome.down_congestion.as_deref().map(plain);
                Ok(*outcome)
            }
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&mut self, ask: &Request) -> Result<Reply, Failure> {
        let result = write_message(&mut self.writer, ask)
            .and_then(|_| read_message_until(&mut self.reader, REPLY_BYTES_MAX, TIMEOUT));
        let result = result.map(|answer| match answer {
            Reply::Impossible(why) => Reply::Impossible(plain(&why)),
            Reply::Lost(why) => Reply::Lost(plain(&why)),
            other => other,
        });
        result.map_err(|error| {
            Failure::Lost(match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    format!("the server at {} did not answer for {} s", self.peer, TIMEOUT.as_secs())
                }
                _ => format!("the server at {} is gone: {error}", self.peer),
            })
        })
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// Returns the failure for a reply other than the one that the client expected.
fn unexpected(reply: &Reply) -> Failure {
    let what = match reply {
        Reply::Lost(why) => return Failure::Lost(plain(why)),
        Reply::Impossible(why) => &plain(why),
        Reply::Ready { .. } => "ready",
        Reply::Outcome(_) => "an outcome",
        Reply::Heard(_) => "a cookie",
        Reply::Sample(_) => "a sample",
        Reply::Total(_) => "totals",
        Reply::Probed(_) => "an outcome of probes",
    };
    Failure::Lost(format!("unexpected reply from the server: {what}"))
}
