//! An initiator in real time: an association with a responder, and jobs on it.
//!
//! Goal      files of others with a call each; what a lost association cut short can be gone on with over the next.
//! How       the association is driven by a task of its own; jobs go to it and what became of them comes back.
//! Limits    one job at a time; [`ClientConfig`] has the timeouts.

use super::disk::{DirectoryDisk, Settings};
use super::end::{FileEnd, User};
use super::timing::Stopwatch;
use crate::Clock;
use crate::osi::pump::pump;
use crate::osi::secure::{self, TlsError};
use crate::osi::socket;
use crate::streams::{Attachment, Stream};
use kiban_board::osi::end::End;
use kiban_board::osi::tower::TowerConfig;
use kiban_stack::osi::ftam::filestore::Disk;
use kiban_stack::osi::ftam::initiator::{self, Event, Failure, Initiator, Job, Outcome};
use kiban_stack::osi::ftam::{self, Machine, Role};
use kiban_stack::osi::transport::Disconnected;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// With whom, as whom, and how.
#[derive(Clone)]
pub struct ClientConfig {
    /// Host name or address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The directory of local files; notes of interrupted transfers are kept below it.
    pub local: PathBuf,
    /// How that directory is kept.
    pub disk: Settings,
    /// What is proposed, and as whom.
    pub initiator: initiator::Config,
    /// How the layers below are set.
    pub tower: TowerConfig,
    /// The running board whose TCP is used ([`crate::streams`]); the system's otherwise.
    pub board: Option<String>,
    /// TLS, if it is to be spoken.
    pub tls: Option<TlsConnector>,
    /// Within this time the association must be made.
    pub timeout: Duration,
    /// Whether the time of each layer is measured.
    pub timing: bool,
}

/// A stream of a running board's; of several addresses of a host, the first to which it has a way.
async fn on_board(board: &str, config: &ClientConfig) -> io::Result<Stream> {
    let board = Attachment::attach(Some(board)).await?;
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

/// Why there is no association.
#[derive(Debug)]
pub enum ConnectError {
    /// The local directory.
    Local(PathBuf, io::Error),
    /// TCP, or TLS.
    Socket(io::Error),
    /// The host's name is none that a certificate can have.
    Tls(TlsError),
    /// The responder says no.
    Refused(Failure),
    /// Transport refused its connection, and said why.
    Disconnected(Disconnected),
    /// The peer ended the connection before it answered.
    Lost,
    /// It did not answer in time.
    Timeout(Duration),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Local(path, error) => write!(f, "{} cannot be opened: {error}", path.display()),
            ConnectError::Socket(error) => write!(f, "it cannot be connected to: {error}"),
            ConnectError::Tls(error) => error.fmt(f),
            ConnectError::Refused(failure) => write!(f, "it refused: {}", Said(failure)),
            ConnectError::Disconnected(why) => write!(f, "its transport refused: {why}"),
            ConnectError::Lost => f.write_str("it closed the connection before it answered"),
            ConnectError::Timeout(timeout) => write!(f, "it did not answer within {timeout:?}"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// A failure in the standard's words, on one line.
pub struct Said<'a>(pub &'a Failure);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { diagnostics, local, cancelled, misuse, .. } = self.0;
        let mut words: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
        words.extend(local.map(|trouble| format!("here: {trouble}")));
        words.extend(misuse.map(|misuse| misuse.to_string()));
        if *cancelled {
            words.push("cancelled".into());
        }
        if words.is_empty() {
            words.push("no reason was given".into());
        }
        f.write_str(&words.join("; "))
    }
}

enum Command {
    /// With the number of its activity, if it may be gone on with.
    Start(Box<Job>, Option<i64>),
    Recover(String),
    Cancel,
    Terminate,
}

/// An association.
pub struct Client {
    commands: mpsc::UnboundedSender<Command>,
    events: mpsc::UnboundedReceiver<Event>,
    progress: watch::Receiver<(u64, Option<u64>)>,
    disconnected: Arc<OnceLock<Disconnected>>,
    bell: Arc<Notify>,
    task: JoinHandle<Stopwatch>,
}

impl Client {
    /// Makes an association.
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
            Some(board) => {
                let stream = on_board(board, config).await;
                Client::speak(config, disk, stream.map_err(ConnectError::Socket)?).await?
            }
        };
        match client.events.recv().await {
            Some(Event::Connected) => Ok(client),
            Some(Event::Refused(failure)) => Err(ConnectError::Refused(failure)),
            _ => {
                Err(client.disconnected.get().cloned().map_or(ConnectError::Lost, ConnectError::Disconnected))
            }
        }
    }

    /// With TLS, or without.
    async fn speak<S>(config: &ClientConfig, disk: DirectoryDisk, socket: S) -> Result<Client, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(tls) = &config.tls else { return Ok(Client::begin(config, disk, socket)) };
        let name = secure::server_name(&config.host).map_err(ConnectError::Tls)?;
        let socket = tls.connect(name, socket).await.map_err(ConnectError::Socket)?;
        Ok(Client::begin(config, disk, socket))
    }

    fn begin<S>(config: &ClientConfig, disk: DirectoryDisk, mut socket: S) -> Client
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (commands, commanded) = mpsc::unbounded_channel();
        let (tell, events) = mpsc::unbounded_channel();
        let (advance, progress) = watch::channel((0, None));
        let bell = Arc::new(Notify::new());
        let mut machine = Machine::new(ftam::Config {
            role: Role::Initiator,
            abstract_syntaxes: ftam::ABSTRACT_SYNTAXES.to_vec(),
        });
        let mut initiator = Initiator::new(config.initiator.clone());
        if initiator.connect(&mut machine).is_err() {
            // A value that no protocol carries, a name of a thousand octets perhaps.
            let _ = tell.send(Event::Lost);
        }
        let disconnected = Arc::default();
        let user =
            Asking { initiator, disk, commanded, tell, advance, disconnected: Arc::clone(&disconnected) };
        let mut tower = config.tower.clone();
        tower.session.transport_called = config.initiator.called.transport.clone();
        tower.session.transport_calling = config.initiator.calling.transport.clone();
        let stopwatch = if config.timing { Stopwatch::on() } else { Stopwatch::off() };
        let ring = bell.clone();
        let task = tokio::spawn(async move {
            let mut end = FileEnd::new(End::new(machine, &tower), user, stopwatch);
            // The user has been told of whatever went wrong.
            let _ = pump(&mut end, &mut socket, &ring, &Clock::new()).await;
            end.finish()
        });
        Client { commands, events, progress, disconnected, bell, task }
    }

    /// Does a job. A transfer's `activity` names it at both ends: [`docket_of`](initiator::docket_of) says what to go on by.
    ///
    /// # Errors
    /// Why it failed, and by what it can be recovered, if it can.
    pub async fn run(&mut self, job: Job, activity: Option<i64>) -> Result<Outcome, Failure> {
        self.command(Command::Start(Box::new(job), activity)).await
    }

    /// Goes on with a job that was cut short.
    ///
    /// # Errors
    /// Why it failed, and by what it can be recovered, if it still can.
    pub async fn recover(&mut self, docket: String) -> Result<Outcome, Failure> {
        self.command(Command::Recover(docket)).await
    }

    /// How many bytes of contents the job has moved, and of how many, if that is known.
    pub fn progress(&self) -> watch::Receiver<(u64, Option<u64>)> {
        self.progress.clone()
    }

    /// What makes the job that is under way give up, from anywhere.
    pub fn canceller(&self) -> impl Fn() + Send + Sync + 'static {
        let (commands, bell) = (self.commands.clone(), self.bell.clone());
        move || {
            let _ = commands.send(Command::Cancel);
            bell.notify_one();
        }
    }

    /// Ends the association in order. Gives what each layer took, if that was to be measured.
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

/// The initiator as its association uses it.
struct Asking {
    initiator: Initiator,
    disk: DirectoryDisk,
    commanded: mpsc::UnboundedReceiver<Command>,
    tell: mpsc::UnboundedSender<Event>,
    advance: watch::Sender<(u64, Option<u64>)>,
    disconnected: Arc<OnceLock<Disconnected>>,
}

impl User for Asking {
    fn work(&mut self, machine: &mut Machine, room_bytes: usize) {
        while let Ok(command) = self.commanded.try_recv() {
            let began = match command {
                Command::Start(job, activity) => {
                    if let Some(activity) = activity {
                        self.initiator.set_activity(activity);
                    }
                    self.initiator.start(*job, machine, &mut self.disk)
                }
                Command::Recover(docket) => self.initiator.recover(&docket, machine, &mut self.disk),
                Command::Cancel => {
                    // Too late, or nothing to cancel.
                    let _ = self.initiator.cancel(machine, &mut self.disk);
                    continue;
                }
                Command::Terminate => {
                    // Without an association there is nothing to end.
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

    fn ended(&mut self) {
        self.initiator.lost(&mut self.disk);
        self.pass_on();
    }
}

impl Asking {
    fn pass_on(&mut self) {
        while let Some(event) = self.initiator.event() {
            // Whoever asked may be gone.
            let _ = self.tell.send(event);
        }
    }
}

/// Whether a local directory keeps a note by which this transfer can be gone on with.
///
/// # Errors
/// The directory cannot be opened.
pub fn has_docket(local: &std::path::Path, docket: &str) -> io::Result<bool> {
    Ok(DirectoryDisk::open(local, Settings::default())?.fetch(docket).is_ok())
}
