//! The thread beside the board's: signals, the control socket, Prometheus, the service manager.
//!
//! Bound     eight callers at a time, a line of [`LINE_BYTES_MAX`](super::LINE_BYTES_MAX), a few seconds until the first question, half a
//!           minute of silence later; likewise for those who want figures. Who says nothing makes way for a ninth. Who has a record made
//!           is none of the eight: there is one a port.
//! Watchdog  the manager is told that the board works only when its own thread has answered.

use super::scrape::Figures;
use super::seats::{Place, Seats};
use super::{LINE_BYTES_MAX, Question, Reply, folders, scrape};
use crate::config::PORTS_MAX;
use crate::notify;
use crate::orders::{Answer, Capturing, Order, Orders};
use kiban_real::unix::{Caller, Callers, Listener};
use rustix::net::SocketType;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::timeout;

/// Callers at a time.
const CALLERS_MAX: usize = 8;
/// Callers that are being answered, and records, of which every port and its host's side may have one.
const BUSY_MAX: usize = CALLERS_MAX + 2 * PORTS_MAX;
/// How long one may say nothing at first, and later.
const FIRST: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_secs(30);
/// How long the board may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// How long answers may take to leave when the board has stopped.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The desk; its socket goes with it.
pub struct Desk {
    metrics: watch::Sender<Option<SocketAddr>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Desk {
    /// Opens the desk of a board.
    ///
    /// # Errors
    /// Another board of that name runs; the socket cannot be made.
    pub fn open(name: &str, figures: Figures, orders: Arc<Orders>) -> Result<Desk, String> {
        let runtime = kiban_real::runtime::build(tokio::runtime::Builder::new_current_thread().enable_all());
        let runtime = runtime.map_err(|error| format!("control cannot begin: {error}"))?;
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
                    // Said, or nobody is there to say it. Whoever asked still gets the answer.
                    _ = stopped => {
                        let _ = timeout(LAST_WORDS, busy.acquire_many(BUSY_MAX as u32)).await;
                    }
                    () = callers(listener, orders.clone(), busy.clone()) => {}
                    () = scrape::serve(scraped, wanted, orders.clone()) => {}
                    () = signals.hear(orders.clone()) => {}
                    () = watch_over(orders) => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("control".into()).spawn(work);
        let thread = thread.map_err(|error| format!("control cannot begin: {error}"))?;
        Ok(Desk { metrics: sender, stop: Some(stop), thread: Some(thread) })
    }

    /// Tells the service manager that the board is ready.
    pub fn ready(&self) {
        notify::tell("READY=1");
    }

    /// A handle by which the place for figures is changed.
    pub fn metrics(&self) -> watch::Sender<Option<SocketAddr>> {
        self.metrics.clone()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The control socket, in the first folder where it can be.
fn listen(name: &str) -> Result<Callers, String> {
    let folder = folders().remove(0);
    let say = |path: &std::path::Path, error: io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; set XDG_RUNTIME_DIR to a directory of yours"
            }
            _ => "",
        };
        format!("the control socket {} cannot be made: {error}{remedy}", path.display())
    };
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&folder).map_err(|error| say(&folder, error))?;
    let path = folder.join(format!("{name}.sock"));
    // Nobody sends descriptors to it: what they do is seen, and closed elsewhere.
    let listener = Listener::open(&path, SocketType::STREAM, false);
    let listener = listener.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("a board {name} runs already ({}): give one of them another `name`", path.display())
        }
        _ => say(&path, error),
    })?;
    Callers::new(listener).map_err(|error| say(&path, error))
}

async fn callers(listener: Callers, orders: Arc<Orders>, busy: Arc<Semaphore>) {
    let seats = Seats::new(CALLERS_MAX);
    // An error is the runtime's end.
    while let Ok(caller) = listener.accept().await {
        if let Some(place) = seats.take() {
            let (orders, busy) = (orders.clone(), busy.clone());
            tokio::spawn(async move {
                // Who goes away is nobody's fault.
                let _ = attend(caller, place, &orders, &busy).await;
            });
        }
    }
}

async fn attend(stream: Caller, mut place: Place, orders: &Orders, busy: &Semaphore) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut patience = FIRST;
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut stream).take(LINE_BYTES_MAX as u64);
        if place.wait_for(patience, bounded.read_until(b'\n', &mut line)).await? == 0 {
            return Ok(());
        }
        patience = SILENCE;
        let _busy = busy.acquire().await.map_err(io::Error::other)?;
        let answer = match serde_json::from_slice::<Question>(&line) {
            Ok(question) => match Order::try_from(question) {
                Ok(order) => ask(orders, order).await,
                Err(why) => Answer::Refused(why),
            },
            Err(error) => Answer::Refused(format!("that is no question: {error}")),
        };
        let capturing = match answer {
            Answer::Capturing(capturing) => capturing,
            answer => {
                place.wait_for(SILENCE, say(&mut stream, &Reply::from(answer))).await?;
                match line.ends_with(b"\n") {
                    true => continue,
                    false => return Ok(()),
                }
            }
        };
        drop(place);
        let begun = Reply::Done("it is being recorded".into());
        timeout(SILENCE, say(&mut stream, &begun)).await.map_err(io::Error::other)??;
        let reply = record(&mut stream, capturing, orders).await;
        return timeout(SILENCE, say(&mut stream, &reply)).await.map_err(io::Error::other)?;
    }
}

async fn say(stream: &mut BufReader<Caller>, reply: &Reply) -> io::Result<()> {
    let mut text = serde_json::to_string(reply).map_err(io::Error::other)?;
    text.push('\n');
    stream.get_mut().write_all(text.as_bytes()).await
}

/// Waits for the end of a record; a caller that says something, has no more to say, or has gone ends it.
async fn record(stream: &mut BufReader<Caller>, mut capturing: Capturing, orders: &Orders) -> Reply {
    let has_ended = tokio::select! {
        _ = stream.fill_buf() => None,
        ended = &mut capturing.ended => Some(ended),
    };
    let ended = match has_ended {
        Some(ended) => Ok(ended),
        None => {
            // What comes of it is told to who waits for the record.
            let _ = ask(orders, Order::EndCapture(capturing.number)).await;
            timeout(ANSWER, capturing.ended).await
        }
    };
    match ended {
        Ok(Ok(Ok(captured))) => Reply::Captured(captured),
        Ok(Ok(Err(why))) => Reply::Refused(why),
        Ok(Err(_)) | Err(_) => {
            Reply::Refused("the board has not ended the record: it may not be whole".into())
        }
    }
}

/// Asks the board, which may be busy.
pub(super) async fn ask(orders: &Orders, order: Order) -> Answer {
    match timeout(ANSWER, orders.ask(order)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Answer::Refused("the board stops".into()),
        Err(_) => Answer::Refused(format!("the board has not answered for {} s", ANSWER.as_secs())),
    }
}

/// Signals that mean something.
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

    async fn hear(mut self, orders: Arc<Orders>) {
        loop {
            let order = tokio::select! {
                _ = self.interrupt.recv() => Order::Down,
                _ = self.terminate.recv() => Order::Down,
                _ = self.hangup.recv() => Order::Reload,
            };
            let reloads = order == Order::Reload;
            notify::tell(if reloads { "RELOADING=1" } else { "STOPPING=1" });
            // What comes of it stands in the log.
            let _ = ask(&orders, order).await;
            if reloads {
                notify::tell("READY=1");
            }
        }
    }
}

/// Tells the service manager that the board's thread answers.
async fn watch_over(orders: Arc<Orders>) {
    let Some(every) = notify::watchdog() else { return std::future::pending().await };
    let mut beat = tokio::time::interval(every);
    loop {
        beat.tick().await;
        if matches!(ask(&orders, Order::Status).await, Answer::Status(_)) {
            notify::tell("WATCHDOG=1");
        }
    }
}
