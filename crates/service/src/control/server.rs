//! The control thread: signals, the control socket, Prometheus, and notifications to the service manager.
//!
//! Clients          at most eight at a time; a ninth displaces an idle one. Clients with a running capture do
//!                  not count; there is at most one capture per port.
//! Limits           a request line has at most [`LINE_BYTES_MAX`](super::LINE_BYTES_MAX) bytes. A client has
//!                  a few seconds to send its first request, and may then be idle for half a minute. The same
//!                  limits apply to clients that read the metrics.
//! Watchdog         the service manager's watchdog is notified only while the board's own thread answers.

use super::admission::{Admission, Admitted};
use super::messages::{LINE_BYTES_MAX, Question, Reply};
use super::scrape::{self, MetricsListener};
use crate::config::PORTS_MAX;
use crate::notify;
use crate::requests::{ANSWER, Answer, Request, RequestQueue, RunningCapture};
use kiban_os::lines::ClientLog;
use kiban_os::lock;
use kiban_os::unix::{Listener, names};
use kiban_tokio::unix::{AsyncListener, AsyncPeer};
use rustix::net::SocketType;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::timeout;

/// Limit of concurrent clients.
const CALLERS_MAX: usize = 8;
/// Limit of clients being served plus captures. Each port, and the kernel's side of each port, may have one
/// capture.
const BUSY_MAX: usize = CALLERS_MAX + 2 * PORTS_MAX;
/// Idle time limits: before the first request, and between requests.
const FIRST: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_secs(30);

/// Time limit for sending pending answers after the board has stopped.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The control thread; dropping it removes the socket.
pub struct ControlServer {
    metrics: watch::Sender<Option<SocketAddr>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Opens a board's control socket and starts the thread.
    ///
    /// # Errors
    /// If another board with this name is running, or the socket cannot be created.
    pub fn open(
        name: &str,
        figures: MetricsListener,
        requests: Arc<RequestQueue>,
    ) -> Result<ControlServer, String> {
        let runtime = kiban_tokio::runtime::build(tokio::runtime::Builder::new_current_thread().enable_all());
        let runtime = runtime.map_err(|error| format!("cannot start the control thread: {error}"))?;
        let entered = runtime.enter();
        let listener = listen(name)?;
        let metrics = figures.address();
        let scraped = figures.listen()?;
        let signals = Signals::new().map_err(|error| error.to_string())?;
        drop(entered);
        let (stop, stopped) = oneshot::channel();
        let (sender, wanted) = watch::channel(metrics);
        let busy = Arc::new(Semaphore::new(BUSY_MAX));
        let work = move || {
            runtime.block_on(async move {
                tokio::select! {
                    // The board has stopped, or the sender was dropped. Pending answers are still sent.
                    _ = stopped => {
                        let _ = timeout(LAST_WORDS, busy.acquire_many(BUSY_MAX as u32)).await;
                    }
                    () = callers(listener, requests.clone(), busy.clone()) => {}
                    () = scrape::serve(scraped, wanted, requests.clone()) => {}
                    () = signals.run(requests.clone()) => {}
                    () = watch_over(requests) => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("control".into()).spawn(work);
        let thread = thread.map_err(|error| format!("cannot start the control thread: {error}"))?;
        Ok(ControlServer { metrics: sender, stop: Some(stop), thread: Some(thread) })
    }

    /// Notifies the service manager that the board is ready.
    pub fn ready(&self) {
        notify::notify("READY=1");
    }

    /// Returns a sender that changes the metrics address.
    pub fn metrics(&self) -> watch::Sender<Option<SocketAddr>> {
        self.metrics.clone()
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens the control socket.
fn listen(name: &str) -> Result<AsyncListener, String> {
    let folder = names::own_folder().map_err(|error| format!("cannot create the control socket: {error}"))?;
    let path = folder.join(format!("{name}.sock"));
    let say = |error: io::Error| format!("cannot create the control socket {}: {error}", path.display());
    // Clients should not send descriptors. If any arrive, the listener reports this and closes them on
    // another thread.
    let listener = Listener::open(&path, SocketType::STREAM);
    let listener = listener.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("a board {name} is already running ({}): give one of them another `name`", path.display())
        }
        _ => say(error),
    })?;
    AsyncListener::new(listener).map_err(say)
}

async fn callers(listener: AsyncListener, requests: Arc<RequestQueue>, busy: Arc<Semaphore>) {
    let admission = Admission::new(CALLERS_MAX);
    let lines = Arc::new(Mutex::new(ClientLog::new("control")));
    // An error means that the runtime is shutting down.
    while let Ok(caller) = listener.accept().await {
        if let Some(admitted) = admission.take() {
            let (requests, busy, lines) = (requests.clone(), busy.clone(), lines.clone());
            tokio::spawn(async move {
                let mut caller = BufReader::new(caller);
                // A client that disconnects is not an error.
                let Err(error) = attend(&mut caller, admitted, &requests, &busy).await else { return };
                if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::TimedOut) {
                    lock(&lines).log_disconnect(caller.get_ref(), error);
                }
            });
        } else {
            let rule = format!("too many clients: the limit is {CALLERS_MAX}");
            lock(&lines).log_disconnect(&caller, rule);
        }
    }
}

async fn attend(
    stream: &mut BufReader<AsyncPeer>,
    mut admitted: Admitted,
    requests: &RequestQueue,
    busy: &Semaphore,
) -> io::Result<()> {
    let mut has_asked = false;
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut *stream).take(LINE_BYTES_MAX as u64);
        let patience = if has_asked { SILENCE } else { FIRST };
        let waited = admitted.wait_for(patience, bounded.read_until(b'\n', &mut line)).await;
        match waited {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // `kiban down` keeps its connection open without further requests until the board exits.
            Err(error) if error.kind() == io::ErrorKind::TimedOut && has_asked => return Ok(()),
            Err(error) => return Err(error),
        }
        has_asked = true;
        let _busy = busy.acquire().await.map_err(io::Error::other)?;
        let answer = match serde_json::from_slice::<Question>(&line) {
            Ok(question) => match Request::try_from(question) {
                Ok(request) => requests.answer(request).await,
                Err(why) => Answer::Refused(why),
            },
            Err(error) => Answer::Refused(format!("invalid request: {error}")),
        };
        let capturing = match answer {
            Answer::Capturing(capturing) => capturing,
            answer => {
                admitted.wait_for(SILENCE, send_reply(stream, &Reply::from(answer))).await?;
                if line.ends_with(b"\n") {
                    continue;
                }
                if line.len() < LINE_BYTES_MAX {
                    return Ok(());
                }
                let message = format!("the request is longer than {LINE_BYTES_MAX} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        };
        drop(admitted);
        let begun = Reply::Done("capture started".into());
        timeout(SILENCE, send_reply(stream, &begun)).await.map_err(io::Error::other)??;
        let reply = record(stream, capturing, requests).await;
        return timeout(SILENCE, send_reply(stream, &reply)).await.map_err(io::Error::other)?;
    }
}

async fn send_reply(stream: &mut BufReader<AsyncPeer>, reply: &Reply) -> io::Result<()> {
    let mut text = serde_json::to_string(reply).map_err(io::Error::other)?;
    text.push('\n');
    stream.get_mut().write_all(text.as_bytes()).await
}

/// Waits for a capture to end. The client ends it by sending more data or by disconnecting.
async fn record(
    stream: &mut BufReader<AsyncPeer>,
    mut capturing: RunningCapture,
    requests: &RequestQueue,
) -> Reply {
    let has_ended = tokio::select! {
        _ = stream.fill_buf() => None,
        ended = &mut capturing.ended => Some(ended),
    };
    let ended = match has_ended {
        Some(ended) => Ok(ended),
        None => {
            // Only the client that started the capture gets its result.
            let _ = requests.answer(Request::EndCapture(capturing.number)).await;
            timeout(ANSWER, capturing.ended).await
        }
    };
    match ended {
        Ok(Ok(Ok(captured))) => Reply::Captured(captured),
        Ok(Ok(Err(why))) => Reply::Refused(why),
        Ok(Err(_)) | Err(_) => {
            Reply::Refused("the board did not end the capture: the file may be incomplete".into())
        }
    }
}

/// The signals that are handled.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn run(mut self, requests: Arc<RequestQueue>) {
        loop {
            let request = tokio::select! {
                _ = self.interrupt.recv() => Request::Down,
                _ = self.terminate.recv() => Request::Down,
                _ = self.hangup.recv() => Request::Reload,
            };
            let reloads = request == Request::Reload;
            notify::notify(if reloads { "RELOADING=1" } else { "STOPPING=1" });
            // The result is logged.
            let _ = requests.answer(request).await;
            if reloads {
                notify::notify("READY=1");
            }
        }
    }
}

/// Sends watchdog notifications as long as the board's thread keeps answering.
async fn watch_over(requests: Arc<RequestQueue>) {
    let Some(every) = notify::watchdog() else { return std::future::pending().await };
    let mut beat = tokio::time::interval(every);
    loop {
        beat.tick().await;
        if matches!(requests.answer(Request::Status).await, Answer::Status(_)) {
            notify::notify("WATCHDOG=1");
        }
    }
}
