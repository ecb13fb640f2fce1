//! Prometheus metrics over HTTP: `GET /metrics`, and nothing else.

use super::admission::{Admission, Admitted};
use crate::metrics;
use crate::requests::{Answer, Request, RequestQueue};
use kiban_os::interface::bind_remedy;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Limits on the number of clients, the length of a request, and the time for receiving a request and sending
/// the answer.
const CALLERS_MAX: usize = 8;
const HEAD_BYTES_MAX: usize = 8 << 10;
const TIME: Duration = Duration::from_secs(10);

/// The metrics listener. Its address is bound before anything else changes.
#[derive(Debug, Default)]
pub struct MetricsListener(Option<StdListener>);

impl MetricsListener {
    /// Binds an address, if one is given.
    ///
    /// # Errors
    /// The address cannot be bound; the message says what to do.
    pub fn bind(address: Option<SocketAddr>) -> Result<MetricsListener, String> {
        let Some(address) = address else { return Ok(MetricsListener(None)) };
        let listener = StdListener::bind(address);
        let listener = listener.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        listener.map(Some).map(MetricsListener).map_err(|error| {
            format!("metrics.listen: cannot listen on {address}: {error}{}", bind_remedy(address, &error))
        })
    }

    /// Returns the bound address.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.0.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Converts the listener to one that belongs to the current Tokio runtime.
    pub(super) fn listen(self) -> Result<Option<TcpListener>, String> {
        let listener = self.0.map(TcpListener::from_std).transpose();
        listener.map_err(|error| format!("metrics.listen: {error}"))
    }
}

/// Serves metrics, and rebinds the socket when the address changes.
pub(super) async fn serve(
    mut listener: Option<TcpListener>,
    mut wanted: watch::Receiver<Option<SocketAddr>>,
    requests: Arc<RequestQueue>,
) {
    let admission = Admission::new(CALLERS_MAX);
    loop {
        tokio::select! {
            stream = accept(listener.as_ref()) => {
                let Ok(stream) = stream else { continue };
                let Some(admitted) = admission.take() else { continue };
                let requests = requests.clone();
                tokio::spawn(async move {
                    // A client that disconnects is not an error.
                    let _ = attend(stream, admitted, &requests).await;
                });
            }
            changed = wanted.changed() => {
                if changed.is_err() {
                    return std::future::pending().await;
                }
                let address = *wanted.borrow_and_update();
                let now = listener.as_ref().and_then(|listener| listener.local_addr().ok());
                if address != now {
                    listener = None;
                    match MetricsListener::bind(address).and_then(MetricsListener::listen) {
                        Ok(new) => listener = new,
                        Err(error) => tracing::error!("{error}"),
                    }
                }
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        None => std::future::pending().await,
        Some(listener) => match listener.accept().await {
            Ok((stream, _)) => Ok(stream),
            Err(error) => {
                // The process has run out of descriptors, which is temporary: retry.
                tokio::time::sleep(Duration::from_millis(100)).await;
                Err(error)
            }
        },
    }
}

/// Reads a request head; returns `None` if it is incomplete.
async fn head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() >= HEAD_BYTES_MAX || stream.read_buf(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(head))
}

async fn attend(mut stream: TcpStream, mut admitted: Admitted, requests: &RequestQueue) -> io::Result<()> {
    let Some(head) = admitted.wait_for(TIME, head(&mut stream)).await? else { return Ok(()) };
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let (status, text) = match words[..] {
        [b"GET" | b"HEAD", b"/metrics", _] => match requests.answer(Request::Status).await {
            Answer::Status(status) => ("200 OK", metrics::text(&status)),
            Answer::Loopback(_) | Answer::Echo(_) | Answer::Capturing(_) => {
                ("503 Service Unavailable", "unexpected answer from the board\n".into())
            }
            Answer::Done(why) | Answer::Refused(why) => ("503 Service Unavailable", why + "\n"),
        },
        [b"GET" | b"HEAD", _, _] => ("404 Not Found", "metrics are at /metrics\n".into()),
        _ => ("405 Method Not Allowed", "GET /metrics\n".into()),
    };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        metrics::CONTENT_TYPE,
        text.len()
    );
    if words.first() != Some(&&b"HEAD"[..]) {
        answer += &text;
    }
    let reply = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    };
    admitted.wait_for(TIME, reply).await
}
