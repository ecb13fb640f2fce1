//! One connection and its requests, timed step by step.

use super::http::Response;
use super::names::Query;
use super::target::{RequestOptions, Target};
use crate::engine::Failure;
use kiban_measure::TcpInfo;
use kiban_measure::socket::acknowledge_at_once;
use kiban_os::Clock;
use kiban_os::clock::thread_cpu_nanos;
use rustls::{ClientConnection, ProtocolVersion};
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;

/// The parts of a request, ms.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Parts {
    /// Look-up of the name.
    pub(super) dns: f64,
    /// TCP handshake.
    pub(super) connect: f64,
    /// TLS handshake.
    pub(super) tls: f64,
    /// From the request to the first byte of the response.
    pub(super) first_byte: f64,
    /// From the first byte to the last.
    pub(super) transfer: f64,
}

impl Parts {
    pub(super) fn list(&self) -> [f64; 5] {
        [self.dns, self.connect, self.tls, self.first_byte, self.transfer]
    }
}

/// An attempt to connect that failed.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct FailedConnect {
    pub(super) address: SocketAddr,
    pub(super) ms: f64,
    pub(super) error: String,
}

/// A request.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Sample {
    pub(super) parts: Parts,
    pub(super) queries: Vec<Query>,
    pub(super) failed_connects: Vec<FailedConnect>,
    /// The RTT of the TCP handshake, ms; `None` if the kernel has none, because the SYN was retransmitted.
    pub(super) rtt_ms: Option<f64>,
    /// The RTT that the kernel has measured until the end of the request, ms.
    pub(super) late_rtt_ms: Option<f64>,
    /// Segments that this host retransmitted in the TCP handshake, and until the end of the request.
    pub(super) retransmits: [u32; 2],
    /// How often the TLS handshake waited for the server, and how long, ms.
    pub(super) tls_waits: (u32, f64),
    /// The time of this host's processor in the TLS handshake, ms.
    pub(super) tls_cpu_ms: f64,
    pub(super) tls_version: Option<&'static str>,
    pub(super) status: u16,
    pub(super) bytes: u64,
    pub(super) address: Option<SocketAddr>,
    /// The transfer of the same response to a host that acknowledges at once, ms; `None` if that was not
    /// tried.
    pub(super) quick_ack_ms: Option<f64>,
}

/// An open connection.
pub(super) struct Connection {
    stream: TcpStream,
    tls: Option<ClientConnection>,
    is_kept: bool,
    /// Whether the beginning of a response is acknowledged at once (TCP_QUICKACK).
    pub(super) is_quick: bool,
}

fn lost(step: &str, error: impl Display) -> Failure {
    Failure::Lost(format!("{step} failed: {error}"))
}

impl Connection {
    /// Looks up the name, connects, and makes the TLS handshake.
    pub(super) fn open(
        clock: Clock,
        target: &Target,
        options: &RequestOptions,
    ) -> Result<(Connection, Sample), Failure> {
        let since = |begin| clock.now().since(begin).as_secs_f64() * 1e3;
        let mut sample = Sample::default();
        let begin = clock.now();
        let lookup = options.resolver.look_up(clock, &target.host).map_err(Failure::Lost)?;
        if !lookup.queries.is_empty() {
            sample.parts.dns = since(begin);
        }
        sample.queries = lookup.queries;
        let begin = clock.now();
        let mut open = None;
        for address in lookup.addresses {
            let address = SocketAddr::new(address, target.port);
            let tried = clock.now();
            match TcpStream::connect_timeout(&address, options.timeout) {
                Ok(stream) => {
                    open = Some((stream, address));
                    break;
                }
                Err(error) => {
                    let (ms, error) = (since(tried), error.to_string());
                    sample.failed_connects.push(FailedConnect { address, ms, error });
                }
            }
        }
        sample.parts.connect = since(begin);
        let Some((mut stream, address)) = open else {
            let tries = sample.failed_connects.iter().map(|one| format!("{}: {}", one.address, one.error));
            return Err(lost("connecting", tries.collect::<Vec<_>>().join("; ")));
        };
        sample.address = Some(address);
        let prepared = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(options.timeout)))
            .and_then(|()| stream.set_write_timeout(Some(options.timeout)));
        prepared.map_err(|error| lost("connecting", error))?;
        let info = TcpInfo::of(&stream).map_err(|error| lost("connecting", error))?;
        sample.rtt_ms = (info.rtt_us > 0 && info.total_retrans == 0).then(|| f64::from(info.rtt_us) * 1e-3);
        sample.retransmits[0] = info.total_retrans;
        let mut tls = None;
        if let Some((config, name)) = &target.tls {
            let begin = clock.now();
            let cpu = thread_cpu_nanos();
            let mut session = ClientConnection::new(Arc::clone(config), name.clone())
                .map_err(|error| lost("the TLS handshake", error))?;
            handshake(clock, &mut session, &mut stream, &mut sample)
                .map_err(|error| lost("the TLS handshake", error))?;
            sample.tls_cpu_ms = thread_cpu_nanos().saturating_sub(cpu) as f64 * 1e-6;
            sample.parts.tls = since(begin);
            sample.tls_version = session.protocol_version().map(|version| match version {
                ProtocolVersion::TLSv1_2 => "TLS 1.2",
                _ => "TLS 1.3",
            });
            tls = Some(session);
        }
        Ok((Connection { stream, tls, is_kept: false, is_quick: false }, sample))
    }

    /// Sends a request and receives the response.
    pub(super) fn request(
        &mut self,
        clock: Clock,
        target: &Target,
        sample: &mut Sample,
    ) -> Result<(), Failure> {
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: kiban/{}\r\nAccept: */*\r\n\r\n",
            target.path,
            target.authority,
            env!("CARGO_PKG_VERSION")
        );
        let begin = clock.now();
        let mut first = None;
        let mut response = Response::default();
        self.write(request.as_bytes()).map_err(|error| lost("the request", no_answer(&error, None)))?;
        let mut room = vec![0; READ_BYTES];
        while !response.is_complete {
            let count = self
                .read(&mut room)
                .map_err(|error| lost("the request", no_answer(&error, first.map(|_| response.bytes))))?;
            first.get_or_insert_with(|| clock.now());
            let taken = if count == 0 { response.end() } else { response.take(&room[..count]) };
            taken.map_err(|why| lost("the request", why))?;
            if self.is_quick && !response.is_complete {
                acknowledge_at_once(&self.stream).map_err(|error| lost("the request", error))?;
            }
        }
        let (first, end) = (first.unwrap_or(begin), clock.now());
        sample.parts.first_byte = first.since(begin).as_secs_f64() * 1e3;
        sample.parts.transfer = end.since(first).as_secs_f64() * 1e3;
        if let Ok(info) = TcpInfo::of(&self.stream) {
            sample.retransmits[1] = info.total_retrans;
            sample.late_rtt_ms = (info.rtt_us > 0).then(|| f64::from(info.rtt_us) * 1e-3);
        }
        (sample.status, sample.bytes) = (response.status, response.bytes);
        self.is_kept = response.is_kept;
        Ok(())
    }

    /// Returns whether the server keeps the connection open.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    fn write(&mut self, octets: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            None => self.stream.write_all(octets),
            Some(session) => {
                let mut stream = rustls::Stream::new(session, &mut self.stream);
                stream.write_all(octets).and_then(|()| stream.flush())
            }
        }
    }

    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            let result = match &mut self.tls {
                None => self.stream.read(room),
                Some(session) => rustls::Stream::new(session, &mut self.stream).read(room),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Many servers end the connection without TLS's close_notify.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
        }
    }
}

/// Describes an error while a response is awaited, of which `bytes` of the body have arrived; `None` if
/// nothing has.
fn no_answer(error: &io::Error, bytes: Option<u64>) -> String {
    let what = match (error.kind(), bytes) {
        (io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut, None) => {
            "TCP connected, but no byte of the response arrived".to_owned()
        }
        (io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut, Some(bytes)) => {
            format!("the response stopped after {bytes} bytes of the body")
        }
        _ => return error.to_string(),
    };
    format!(
        "{what}: the server waits, or the path drops long packets (`kiban lab check HOST` tells, if `kiban lab \
         serve` runs there)"
    )
}

/// Makes the TLS handshake. A wait begins when everything that this end has to say is sent.
fn handshake(
    clock: Clock,
    session: &mut ClientConnection,
    stream: &mut TcpStream,
    sample: &mut Sample,
) -> Result<(), String> {
    let mut has_sent = false;
    loop {
        while session.wants_write() {
            session.write_tls(stream).map_err(|error| error.to_string())?;
            has_sent = true;
        }
        if !session.is_handshaking() {
            return Ok(());
        }
        let begin = clock.now();
        let count = session.read_tls(stream).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "the server does not answer".to_owned(),
            _ => error.to_string(),
        })?;
        if count == 0 {
            return Err("the server closed the connection".to_owned());
        }
        sample.tls_waits.0 += u32::from(has_sent);
        sample.tls_waits.1 += clock.now().since(begin).as_secs_f64() * 1e3;
        has_sent = false;
        if let Err(error) = session.process_new_packets() {
            // The alert tells the server why.
            let _ = session.write_tls(stream);
            return Err(error.to_string());
        }
    }
}
