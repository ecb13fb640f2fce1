//! A probe's short connection, on which TPKTs are exchanged until a deadline.

use super::Target;
use crate::socket;
use bytes::{Buf, BytesMut};
use kiban_base::Malformed;
use kiban_base::Rope;
use kiban_osi::transport::{DisconnectReason, Disconnected};
use kiban_osi::wire::cotp::{self, Tpdu};
use kiban_osi::wire::tpkt;
use std::future::Future;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Sleep, sleep};

/// Maximum length of an answer.
pub(super) const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Number of bytes to show if the data received is not a TPKT.
const SHOWN_BYTES_MAX: usize = 24;

trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// A connection with a deadline.
pub(super) struct Line {
    socket: Box<dyn Socket>,
    received: BytesMut,
    deadline: Pin<Box<Sleep>>,
}

/// The reason why no answer, or no further answer, was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NoAnswer {
    pub(super) words: String,
    /// The peer was silent: it neither sent data nor closed the connection.
    pub(super) silent: bool,
}

impl NoAnswer {
    fn new(words: impl Into<String>) -> NoAnswer {
        NoAnswer { words: words.into(), silent: false }
    }
}

impl Line {
    /// Connects over TCP, without TLS; [`Line::secure`] starts TLS.
    pub(super) async fn open(target: &Target) -> Result<Line, NoAnswer> {
        let mut deadline = Box::pin(sleep(target.timeout));
        let connects = socket::connect(&target.host, target.port);
        let socket = by(&mut deadline, connects).await?.map_err(|error| NoAnswer::new(error.to_string()))?;
        Ok(Line { socket: Box::new(socket), received: BytesMut::new(), deadline })
    }

    /// Starts TLS; returns a description of the negotiated session.
    pub(super) async fn secure(&mut self, target: &Target) -> Result<String, String> {
        let Some(tls) = &target.tls else { return Ok("not requested".into()) };
        let socket = std::mem::replace(&mut self.socket, Box::new(tokio::io::empty()));
        let handshake = tls.connector.connect(tls.name.clone(), socket);
        let socket = by(&mut self.deadline, handshake).await.map_err(|no_answer| no_answer.words)?;
        let socket = socket.map_err(|error| error.to_string())?;
        let (_, session) = socket.get_ref();
        let version = session.protocol_version().and_then(|version| version.as_str());
        let suite = session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
        let count = session.peer_certificates().map_or(0, <[_]>::len);
        let (version, suite) = (version.unwrap_or("TLS"), suite.unwrap_or("unnamed cipher suite"));
        self.socket = Box::new(socket);
        Ok(format!("{}, {suite}, {count} certificate(s)", version.replace("TLSv1_", "TLS 1.")))
    }

    /// Connects, with TLS if the target uses it.
    pub(super) async fn ready(target: &Target) -> Result<Line, NoAnswer> {
        let mut line = Line::open(target).await?;
        line.secure(target).await.map_err(NoAnswer::new)?;
        Ok(line)
    }

    /// Sends one TPKT.
    pub(super) async fn send(&mut self, unit: &[u8]) -> Result<(), NoAnswer> {
        let mut packet = vec![0; tpkt::HEADER_BYTES];
        let payload_bytes = unit.len().try_into().expect("the questions of the probe are short");
        tpkt::Header { payload_bytes }.write(&mut packet);
        packet.extend_from_slice(unit);
        let sent = async {
            self.socket.write_all(&packet).await?;
            self.socket.flush().await
        };
        by(&mut self.deadline, sent).await?.map_err(|error| NoAnswer::new(format!("cannot send: {error}")))
    }

    /// Sends one TPDU without user data.
    pub(super) async fn send_tpdu(&mut self, tpdu: &Tpdu) -> Result<(), NoAnswer> {
        let mut bytes = vec![0; tpdu.length()];
        tpdu.write(&mut bytes);
        self.send(&bytes).await
    }

    /// Sends one TSDU in data TPDUs of at most this many bytes.
    pub(super) async fn send_data(&mut self, tsdu: &[u8], tpdu_bytes_max: usize) -> Result<(), NoAnswer> {
        let mut parts = tsdu.chunks(tpdu_bytes_max - cotp::DATA_HEADER_BYTES).peekable();
        while let Some(part) = parts.next() {
            let header = cotp::data_header(parts.peek().is_none());
            self.send(&[&header[..], part].concat()).await?;
        }
        Ok(())
    }

    /// Receives the next TPKT's payload.
    pub(super) async fn receive(&mut self) -> Result<Vec<u8>, NoAnswer> {
        loop {
            match tpkt::Header::read(&self.received) {
                Ok((header, count)) if self.received.len() >= count + usize::from(header.payload_bytes) => {
                    self.received.advance(count);
                    return Ok(self.received.split_to(header.payload_bytes.into()).to_vec());
                }
                Ok(_) | Err(Malformed::Truncated) => {}
                Err(_) => {
                    let shown = &self.received[..self.received.len().min(SHOWN_BYTES_MAX)];
                    return Err(NoAnswer::new(format!("not a TPKT: \"{}\"", shown.escape_ascii())));
                }
            }
            let read = self.socket.read_buf(&mut self.received);
            match by(&mut self.deadline, read).await? {
                Ok(0) if self.received.is_empty() => return Err(NoAnswer::new("it closed the connection")),
                Ok(0) => return Err(NoAnswer::new("it closed the connection in the middle of a TPKT")),
                Ok(_) => {}
                Err(error) => return Err(NoAnswer::new(error.to_string())),
            }
        }
    }

    /// Receives data TPDUs, and returns the TSDU that they form.
    pub(super) async fn receive_data(&mut self) -> Result<Rope, NoAnswer> {
        let mut tsdu = Vec::new();
        loop {
            let unit = self.receive().await?;
            let (tpdu, count) =
                Tpdu::read(&unit).map_err(|rule| NoAnswer::new(format!("invalid TPDU: {rule:?}")))?;
            match tpdu {
                Tpdu::Data { end } => {
                    tsdu.extend_from_slice(&unit[count..]);
                    if tsdu.len() > ANSWER_BYTES_MAX {
                        return Err(NoAnswer::new("the answer is too long"));
                    }
                    if end {
                        return Ok(tsdu.into());
                    }
                }
                Tpdu::DisconnectRequest { reason, additional, .. } => {
                    let reason = DisconnectReason::of_code(reason);
                    let words = Disconnected { reason, additional };
                    return Err(NoAnswer::new(format!("its transport disconnected (DR): {words}")));
                }
                Tpdu::Error { cause, .. } => {
                    return Err(NoAnswer::new(format!("its transport reported an error (ER): {cause:?}")));
                }
                _ => return Err(NoAnswer::new("its transport sent an unexpected TPDU")),
            }
        }
    }
}

/// Waits for a future or the deadline, whichever comes first.
async fn by<T>(deadline: &mut Pin<Box<Sleep>>, what: impl Future<Output = T>) -> Result<T, NoAnswer> {
    tokio::select! {
        biased;
        outcome = what => Ok(outcome),
        () = deadline => Err(NoAnswer { words: "no answer".into(), silent: true }),
    }
}
