//! An FTAM initiator in real time: one association with a responder, and the jobs that run on it.
//!
//! Purpose    one call transfers or manages a file at the responder; a job that was cut short by a lost
//!            association can be resumed over the next one.
//! Operation  a separate task drives the association; it receives jobs and returns their outcomes over
//!            channels.
//! Limits     one job at a time; the timeouts are in [`ClientConfig`].

use super::disk::{DirectoryDisk, Settings};
use super::end::{FileEnd, User};
use super::layers::{Layers, machine, machine_of_user, user_side};
use super::timing::Stopwatch;
use crate::pump::pump;
use crate::secure::{self, TlsError};
use crate::socket;
use kiban_os::{Clock, lock};
use kiban_osi::ftam::filestore::Disk;
use kiban_osi::ftam::initiator::{self, Event, Failure, Initiator, Job, Outcome};
use kiban_osi::ftam::{Machine, Role};
use kiban_osi::presentation::Refuser;
use kiban_osi::stack::end::End;
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::transport::Disconnected;
use kiban_osi::wire::ftam::{DiagnosticItem, ErrorIdentifier};
use kiban_osi::wire::session::RefuseReason;
use kiban_tokio::{Attachment, ClientService, Stream};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// The responder to connect to, the identity to use and the settings of the layers.
#[derive(Clone)]
pub struct ClientConfig {
    /// Host name or address of the responder to connect to.
    pub host: String,
    /// TCP port of the responder.
    pub port: u16,
    /// The directory of local files; recovery dockets of interrupted transfers are kept below it.
    pub local: PathBuf,
    /// Settings of the disk in that directory.
    pub disk: Settings,
    /// The proposed FTAM parameters and the initiator's identity.
    pub initiator: initiator::Config,
    /// Settings for the layers below FTAM.
    pub stack: StackConfig,
    /// The running board to use; `None` runs the layers in this process, over the system's TCP.
    pub board: Option<BoardUse>,
    /// The TLS connector; `None` connects without TLS.
    pub tls: Option<TlsConnector>,
    /// The time limit for establishing the association.
    pub timeout: Duration,
    /// How long no data may move while the association is in use; it is then aborted.
    pub idle_timeout: Duration,
    /// Whether to measure the time spent in each layer.
    pub timing: bool,
}

/// The running board that an association uses, and what for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BoardUse {
    /// The protocol machines of all layers run on the board with this name; it needs a service of kind `osi`.
    Layers(String),
    /// The protocol machines run in this process, over the TCP of the board with this name; it needs a
    /// service of kind `attach`.
    Tcp(String),
}

/// Opens a stream of a running board's service, to the first of the host's addresses to which the board has a
/// route.
async fn on_board(service: ClientService, board: &str, config: &ClientConfig) -> io::Result<Stream> {
    let settings = board_settings(1);
    let board = Attachment::attach_to_service(service, Some(board), settings).await?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in tokio::net::lookup_host((config.host.as_str(), config.port)).await? {
        match board.connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the settings of an attachment with this many streams. They disable spinning, which would use the
/// processor time that the board saves.
pub(super) fn board_settings(streams: usize) -> kiban_tokio::Settings {
    kiban_tokio::Settings { streams, room_bytes: 1 << 20, spin: Duration::ZERO }
}

/// The reason why no association was established.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The local directory could not be opened.
    Local(PathBuf, io::Error),
    /// TCP or TLS failed.
    Socket(io::Error),
    /// The host name is not valid in a certificate.
    Tls(TlsError),
    /// The responder refused the association.
    Refused(Failure),
    /// The transport layer refused the connection, and gave the reason.
    Disconnected(Disconnected),
    /// A layer of the peer below FTAM refused the association.
    RefusedBy(Refuser),
    /// The peer closed the connection before it answered.
    Lost,
    /// The peer did not answer within this time.
    Timeout(Duration),
    /// TLS was requested, but the layers are on a board, which has no TLS.
    TlsOnBoard,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Local(path, error) => write!(f, "cannot open {}: {error}", path.display()),
            ConnectError::Socket(error) => write!(f, "cannot connect: {error}"),
            ConnectError::Tls(error) => error.fmt(f),
            ConnectError::Refused(failure) => write!(f, "it refused: {}", FailureLine(failure)),
            ConnectError::Disconnected(why) => write!(f, "its transport refused: {why}"),
            ConnectError::RefusedBy(Refuser::Session(RefuseReason::Version)) => {
                f.write_str("its session layer does not support the versions that were proposed: try --session-version 2, or 1")
            }
            ConnectError::RefusedBy(by) => by.fmt(f),
            ConnectError::Lost => f.write_str("it closed the connection before it answered"),
            ConnectError::TlsOnBoard => {
                f.write_str("a board's OSI service has no TLS: use the board's TCP, with --board-tcp")
            }
            ConnectError::Timeout(timeout) => write!(f, "it did not answer within {timeout:?}"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// Formats a failure on one line, in the standard's words.
pub struct FailureLine<'a>(pub &'a Failure);

impl fmt::Display for FailureLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { diagnostics, local, cancelled, misuse, .. } = self.0;
        // These two say only that an earlier step failed, whose diagnostic is the cause.
        let follows = |item: &&DiagnosticItem| {
            [ErrorIdentifier::SUBSEQUENT_ERROR, ErrorIdentifier::GROUPING_THRESHOLD].contains(&item.error())
        };
        let causes = diagnostics.iter().filter(|item| !follows(item));
        let mut words: Vec<String> = causes.map(ToString::to_string).collect();
        if words.is_empty() {
            words = diagnostics.iter().map(ToString::to_string).collect();
        }
        words.extend(local.map(|error| format!("here: {error}")));
        words.extend(misuse.map(|misuse| misuse.to_string()));
        if *cancelled {
            words.push("cancelled".into());
        }
        if words.is_empty() {
            words.push("no reason given".into());
        }
        f.write_str(&words.join("; "))
    }
}

enum Command {
    /// Starts a job. The number is the transfer's activity identifier, present if the transfer may be resumed
    /// later.
    Start(Box<Job>, Option<i64>),
    /// Starts a job that keeps no docket.
    StartUnrecorded(Box<Job>),
    Recover(String),
    Cancel,
    Terminate,
}

/// An initiator's association.
pub struct Client {
    commands: mpsc::UnboundedSender<Command>,
    events: mpsc::UnboundedReceiver<Event>,
    progress: watch::Receiver<(u64, Option<u64>)>,
    disconnected: Arc<OnceLock<Disconnected>>,
    refused: Arc<OnceLock<Refuser>>,
    /// The socket's error.
    broken: Arc<Mutex<Option<io::Error>>>,
    bell: Arc<Notify>,
    task: JoinHandle<Stopwatch>,
}

impl Client {
    /// Connects to the responder and establishes an association.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(config: &ClientConfig) -> Result<Client, ConnectError> {
        let timeout = config.timeout;
        tokio::time::timeout(timeout, Client::connect_patiently(config))
            .await
            .unwrap_or(Err(ConnectError::Timeout(timeout)))
    }

    async fn connect_patiently(config: &ClientConfig) -> Result<Client, ConnectError> {
        let disk = DirectoryDisk::open(&config.local, config.disk)
            .map_err(|error| ConnectError::Local(config.local.clone(), error))?;
        let mut client = match &config.board {
            None => {
                let socket = socket::connect(&config.host, config.port).await;
                Client::speak(config, disk, socket.map_err(ConnectError::Socket)?).await?
            }
            Some(BoardUse::Tcp(board)) => {
                let stream = on_board(ClientService::Streams, board, config).await;
                Client::speak(config, disk, stream.map_err(ConnectError::Socket)?).await?
            }
            Some(BoardUse::Layers(_)) if config.tls.is_some() => return Err(ConnectError::TlsOnBoard),
            Some(BoardUse::Layers(board)) => {
                let stream = on_board(ClientService::Osi, board, config).await;
                let (user, machine, stack, client) = Client::parts(config, disk, machine_of_user);
                let end = user_side(machine, Role::Initiator, &stack);
                client.begin(end, user, config, stream.map_err(ConnectError::Socket)?)
            }
        };
        match client.events.recv().await {
            Some(Event::Connected) => Ok(client),
            Some(Event::Refused(failure)) => Err(ConnectError::Refused(failure)),
            // With TLS 1.3, the peer's refusal of this end's certificate arrives after the handshake.
            _ => Err(match (client.refused.get(), client.disconnected.get(), lock(&client.broken).take()) {
                (Some(by), ..) => ConnectError::RefusedBy(*by),
                (_, _, Some(error)) => ConnectError::Socket(error),
                (None, Some(why), None) => ConnectError::Disconnected(why.clone()),
                (None, None, None) => ConnectError::Lost,
            }),
        }
    }

    /// Establishes the association on a connected socket, which may carry TLS.
    async fn speak<S>(config: &ClientConfig, disk: DirectoryDisk, socket: S) -> Result<Client, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (user, machine, stack, client) = Client::parts(config, disk, machine);
        let end = End::new(machine, &stack);
        let Some(tls) = &config.tls else { return Ok(client.begin(end, user, config, socket)) };
        let name = secure::server_name(&config.host).map_err(ConnectError::Tls)?;
        let socket = tls.connect(name, socket).await.map_err(ConnectError::Socket)?;
        Ok(client.begin(end, user, config, socket))
    }

    /// Returns the user of an association with its machine, which has requested the association; the settings
    /// of the layers; and the client, whose task has not begun.
    fn parts(
        config: &ClientConfig,
        disk: DirectoryDisk,
        machine: fn(Role) -> Machine,
    ) -> (InitiatorUser, Machine, StackConfig, ClientParts) {
        let (commands, commanded) = mpsc::unbounded_channel();
        let (tell, events) = mpsc::unbounded_channel();
        let (advance, progress) = watch::channel((0, None));
        let mut machine = machine(Role::Initiator);
        let mut initiator = Initiator::new(config.initiator.clone());
        if initiator.connect(&mut machine).is_err() {
            // The job contains a value that the protocol cannot encode, such as a file name of 1000 octets.
            let _ = tell.send(Event::Lost);
        }
        let (disconnected, refused, broken) = (Arc::default(), Arc::default(), Arc::default());
        let user = InitiatorUser {
            initiator,
            disk,
            commanded,
            tell,
            advance,
            disconnected: Arc::clone(&disconnected),
            refused: Arc::clone(&refused),
            broken: Arc::clone(&broken),
        };
        let mut stack = config.stack.clone();
        stack.session.transport_called = config.initiator.called.transport.clone();
        stack.session.transport_calling = config.initiator.calling.transport.clone();
        (user, machine, stack, ClientParts { commands, events, progress, disconnected, refused, broken })
    }

    /// Runs a job. `activity` identifies a transfer to both initiator and responder;
    /// [`docket_of`](initiator::docket_of) returns the key of the docket with which it can be resumed.
    ///
    /// # Errors
    /// Returns the failure and, if the job can be resumed, the docket needed for that.
    pub async fn run(&mut self, job: Job, activity: Option<i64>) -> Result<Outcome, Failure> {
        self.command(Command::Start(Box::new(job), activity)).await
    }

    /// Runs a job without a docket at either end: a transfer that is cut short has to be repeated from its
    /// beginning. This saves time for files that are too short for a checkpoint.
    ///
    /// # Errors
    /// Returns the failure.
    pub async fn run_unrecorded(&mut self, job: Job) -> Result<Outcome, Failure> {
        self.command(Command::StartUnrecorded(Box::new(job))).await
    }

    /// Resumes a job that was cut short.
    ///
    /// # Errors
    /// Returns the failure and, if the job can still be resumed, the docket needed for that.
    pub async fn recover(&mut self, docket: String) -> Result<Outcome, Failure> {
        self.command(Command::Recover(docket)).await
    }

    /// Returns a channel that reports the job's progress: the bytes of contents transferred, and the total if
    /// it is known.
    pub fn progress(&self) -> watch::Receiver<(u64, Option<u64>)> {
        self.progress.clone()
    }

    /// Returns a closure that cancels the job in progress; any thread may call it.
    pub fn canceller(&self) -> impl Fn() + Send + Sync + 'static {
        let (commands, bell) = (self.commands.clone(), self.bell.clone());
        move || {
            let _ = commands.send(Command::Cancel);
            bell.notify_one();
        }
    }

    /// Returns the error for which the association was given up, if the connection had one. It is returned
    /// once.
    pub fn take_error(&self) -> Option<io::Error> {
        lock(&self.broken).take()
    }

    /// Returns whether the association has ended.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Releases the association in an orderly way. Returns the time spent in each layer, if it was measured.
    pub async fn close(mut self) -> Stopwatch {
        let _ = self.commands.send(Command::Terminate);
        self.bell.notify_one();
        while self.events.recv().await.is_some() {}
        self.task.await.unwrap_or_else(|_| Stopwatch::off())
    }

    async fn command(&mut self, command: Command) -> Result<Outcome, Failure> {
        let _ = self.commands.send(command);
        self.bell.notify_one();
        while let Some(event) = self.events.recv().await {
            if let Event::Ended(outcome) = event {
                return outcome;
            }
        }
        Err(Failure::default())
    }
}

/// A client whose association is not driven yet.
struct ClientParts {
    commands: mpsc::UnboundedSender<Command>,
    events: mpsc::UnboundedReceiver<Event>,
    progress: watch::Receiver<(u64, Option<u64>)>,
    disconnected: Arc<OnceLock<Disconnected>>,
    refused: Arc<OnceLock<Refuser>>,
    broken: Arc<Mutex<Option<io::Error>>>,
}

impl ClientParts {
    /// Starts the task that drives the association.
    fn begin<L, S>(self, end: L, user: InitiatorUser, config: &ClientConfig, mut socket: S) -> Client
    where
        L: Layers + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let ClientParts { commands, events, progress, disconnected, refused, broken } = self;
        let stopwatch = if config.timing { Stopwatch::on() } else { Stopwatch::off() };
        let bell = Arc::new(Notify::new());
        let ring = bell.clone();
        let mut end = FileEnd::new(end, user, stopwatch, config.idle_timeout);
        let task = tokio::spawn(async move {
            // Errors have already been reported to the user by callbacks.
            let _ = pump(&mut end, &mut socket, &ring, &Clock::new()).await;
            end.finish()
        });
        Client { commands, events, progress, disconnected, refused, broken, bell, task }
    }
}

/// The initiator, as the user of the association's file service.
struct InitiatorUser {
    initiator: Initiator,
    disk: DirectoryDisk,
    commanded: mpsc::UnboundedReceiver<Command>,
    tell: mpsc::UnboundedSender<Event>,
    advance: watch::Sender<(u64, Option<u64>)>,
    disconnected: Arc<OnceLock<Disconnected>>,
    refused: Arc<OnceLock<Refuser>>,
    /// The socket's error.
    broken: Arc<Mutex<Option<io::Error>>>,
}

impl User for InitiatorUser {
    fn work(&mut self, machine: &mut Machine, room_bytes: usize) {
        while let Ok(command) = self.commanded.try_recv() {
            let began = match command {
                Command::Start(job, activity) => {
                    if let Some(activity) = activity {
                        self.initiator.set_activity(activity);
                    }
                    self.initiator.start(*job, machine, &mut self.disk)
                }
                Command::StartUnrecorded(job) => {
                    self.initiator.start_unrecorded(*job, machine, &mut self.disk)
                }
                Command::Recover(docket) => self.initiator.recover(&docket, machine, &mut self.disk),
                Command::Cancel => {
                    // The job may already have ended.
                    let _ = self.initiator.cancel(machine, &mut self.disk);
                    continue;
                }
                Command::Terminate => {
                    // Without an association, there is nothing to terminate.
                    let _ = self.initiator.terminate(machine);
                    continue;
                }
            };
            if let Err(misuse) = began {
                let failure = Failure { misuse: Some(misuse), ..Failure::default() };
                let _ = self.tell.send(Event::Ended(Err(failure)));
            }
        }
        self.initiator.work(machine, &mut self.disk, room_bytes);
        self.disk.write_out();
        let progress = self.initiator.progress();
        self.advance.send_if_modified(|known| std::mem::replace(known, progress) != progress);
        self.pass_on();
    }

    fn disconnected(&mut self, why: &Disconnected) {
        self.disconnected.get_or_init(|| why.clone());
    }

    fn refused(&mut self, by: Refuser) {
        self.refused.get_or_init(|| by);
    }

    fn broken(&mut self, error: io::Error) {
        *lock(&self.broken) = Some(error);
    }

    fn on_idle_timeout(&mut self, silence: Duration) {
        let error = io::Error::new(io::ErrorKind::TimedOut, format!("no data moved for {silence:?}"));
        self.broken(error);
    }

    fn ended(&mut self) {
        self.initiator.lost(&mut self.disk);
        self.pass_on();
    }
}

impl InitiatorUser {
    fn pass_on(&mut self) {
        while let Some(event) = self.initiator.event() {
            // The receiver may have been dropped.
            let _ = self.tell.send(event);
        }
    }
}

/// Returns whether the local directory holds a docket with which this transfer can be resumed.
///
/// # Errors
/// The directory cannot be opened.
pub fn has_docket(local: &std::path::Path, docket: &str) -> io::Result<bool> {
    Ok(DirectoryDisk::open(local, Settings::default())?.fetch(docket).is_ok())
}
