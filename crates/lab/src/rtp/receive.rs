//! An RTP receiver on the UDP of the host or of a running board.
//!
//! Arrival   the kernel's timestamps, or the board's, so that this program's own delay is no jitter.
//! Reports   go to the addresses from which RTCP has come, at most 64 of them, at RTCP's low rate: a
//!           forged address receives a report every few seconds, shorter than what was sent to cause it.
//! End       after the given time, or when all sources have said goodbye.

use super::measured::{Received, Transits};
use super::send::{draw, ntp_at_zero, unit};
use super::socket::Socket;
use super::stream::Stream;
use kiban_base::Instant;
use kiban_measure::pause::readable_among;
use kiban_measure::{Came, Datagrams};
use kiban_os::Clock;
use kiban_tcpip::rtp::{Config, Session};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The maximum number of addresses to which reports are sent.
const REPORTS_MAX: usize = 64;
/// The socket's receive buffer, bytes.
const BUFFER_BYTES: u32 = 4 << 20;
/// The longest datagram, bytes.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;
/// How long to wait at a time.
const TURN: Duration = Duration::from_millis(200);

/// An RTP receiver.
#[derive(Debug)]
pub struct Receiver {
    data: Data,
    control: Socket,
    at: SocketAddr,
}

/// The socket for RTP.
#[derive(Debug)]
enum Data {
    Host(Datagrams),
    Board(Socket),
}

impl Data {
    /// Receives the next datagram.
    fn take(&self, room: &mut [u8]) -> io::Result<Option<Came>> {
        match self {
            Data::Host(socket) => Ok(socket.take(room)),
            Data::Board(socket) => socket.receive(room),
        }
    }
}

impl AsFd for Data {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Data::Host(socket) => socket.as_fd(),
            Data::Board(socket) => socket.as_fd(),
        }
    }
}

impl Receiver {
    /// Binds the port for RTP, and the next one for RTCP, on the host or on the running board with this name.
    ///
    /// # Errors
    /// A port is in use, or the last port was given, which has no next one.
    pub fn bind(board: Option<&str>, at: SocketAddr) -> io::Result<Receiver> {
        let next = at.port().checked_add(1).filter(|_| at.port() > 0);
        let next = next.ok_or_else(|| {
            let why = "RTP needs a port from 1 to 65534, because RTCP uses the next one";
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })?;
        let data = match board {
            Some(_) => Data::Board(Socket::bind(board, at)?),
            None => Data::Host(Datagrams::bind(at, BUFFER_BYTES)?),
        };
        let control = Socket::bind(board, SocketAddr::new(at.ip(), next))?;
        Ok(Receiver { data, control, at })
    }

    /// Returns the address of RTP.
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// Receives for at most `length`, or until all sources have said goodbye. The timestamps of all streams
    /// have the frequency `clock_hz`.
    ///
    /// # Errors
    /// A system call failed.
    pub fn run(&self, clock_hz: u32, length: Option<Duration>, cname: &str) -> io::Result<Received> {
        let clock = Clock::new();
        let begin = clock.now();
        let end = length.map_or(Instant::NEVER, |length| begin + length);
        let at_zero = ntp_at_zero(clock);
        let config = Config {
            ssrc: (draw()? >> 32) as u32,
            cname: cname.as_bytes().to_vec(),
            clock_hz,
            rtcp_bandwidth: Stream::default().rtcp_bandwidth(1),
            ntp_at_zero: at_zero,
            ..Config::default()
        };
        let mut session = Session::new(config, draw()? as u16, unit(), begin);
        let (mut transits, mut reporters) = (Transits::default(), BTreeSet::new());
        let (mut malformed, mut is_same_host) = (0, true);
        let mut room = vec![0; DATAGRAM_BYTES_MAX];
        while clock.now() < end {
            let wait = end.min(session.deadline()).since(clock.now()).min(TURN);
            readable_among(&[self.data.as_fd(), self.control.as_fd()], wait)?;
            // Read RTP first: a goodbye follows the stream's last packets.
            while let Some(came) = self.data.take(&mut room)? {
                is_same_host &= came.from.ip().to_canonical().is_loopback();
                match session.on_rtp(&room[..came.octets], clock.at(came.nanos)) {
                    Ok(arrival) => {
                        let (ssrc, verdict) = (arrival.header.ssrc, arrival.verdict);
                        transits.on_packet(&session, ssrc, verdict, clock_hz);
                    }
                    Err(_) => malformed += 1,
                }
            }
            while let Some(Came { octets, from, .. }) = self.control.receive(&mut room)? {
                let is_valid = session.on_rtcp(&room[..octets], clock.now()).is_ok();
                if is_valid && reporters.len() < REPORTS_MAX {
                    reporters.insert(from);
                }
            }
            if let Some(report) = session.poll(unit, clock.now()) {
                self.send(&report, &reporters);
            }
            let mut sources = session.sources().peekable();
            if sources.peek().is_some() && sources.all(|view| view.has_left) {
                break;
            }
        }
        if let Some(goodbye) = session.leave(unit(), clock.now()) {
            self.send(&goodbye, &reporters);
        }
        // Only a sender on this host, reached over the loopback, certainly has the same clock.
        let mut received = Received::of(&session, &transits, clock_hz, is_same_host.then_some(at_zero));
        received.malformed += malformed;
        received.dropped_here = match &self.data {
            Data::Host(socket) => socket.drops(),
            Data::Board(_) => None,
        };
        Ok(received)
    }

    fn send(&self, packet: &[u8], to: &BTreeSet<SocketAddr>) {
        for address in to {
            // A sender may be gone already, and lost reports are normal.
            let _ = self.control.send_to(packet, *address);
        }
    }
}
