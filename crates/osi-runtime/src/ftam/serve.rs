//! An FTAM server: serves a filestore to thousands of associations on a few threads, over the system's TCP or
//! with the protocol machines on a running board.
//!
//! Purpose    all associations see the same files under the same locks; no association and no unauthenticated
//!            connection can keep others out.
//! Threads    each association runs on one runtime of the [`RuntimePool`], which its number determines.
//! Files      are read and written on the association's thread; the operations that may block are listed in
//!            [`super::disk`].
//! Admission  the number of unauthenticated connections is limited; at the limit, a connection of the
//!            provider, site and origin that have the most of them is closed ([`origin`](kiban_os::origin)).
//!            The deadlines of the layers also apply to unauthenticated connections, and they may use only
//!            little memory ([`UNAUTHENTICATED_BYTES_MAX`]).
//! Idle       an association that has selected a file but transfers nothing for too long is disconnected, so
//!            that others can use the file. This counts as a lost connection, so the transfer can be resumed.
//! Log        one line for each refusal and each failure, up to a rate limit ([`LogLimiter`]).
//! End        however an association ends, transfers that can be recovered are kept, and all other unfinished
//!            work is undone.
//! Limits     see [`ServiceConfig`].

use super::authentication::{AuthService, PasswordAuthenticator};
use super::client::board_settings;
use super::disk::{DirectoryDisk, Protected, Settings, Syncs};
use super::end::{FileEnd, User};
use super::layers::{Layers, machine, machine_of_user, user_side};
use super::timing::Stopwatch;
use super::unauthenticated::Unauthenticated;
use super::users::Users;
use crate::pump::pump;
use crate::runtimes::{RuntimePool, into_runtime};
use crate::socket;
use kiban_os::Clock;
use kiban_os::lines::LogLimiter;
use kiban_os::lock;
use kiban_osi::ftam::filestore::{Concurrency, Control, Hold, LockError, Locks, Path};
use kiban_osi::ftam::responder::{self, FailureReport, Responder, Store};
use kiban_osi::ftam::{Machine, Role, State};
use kiban_osi::stack::end::End;
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::wire::ftam::{ErrorIdentifier, Kind as FpduKind};
use kiban_tokio::{Attachment, ClientService};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// Maximum TSDU length before authentication. It is enough for a CONNECT with all parameters, and for one
/// segment of user data that did not fit into the CONNECT.
pub const UNAUTHENTICATED_BYTES_MAX: usize = 128 << 10;

/// Maximum number of associations of a server on a board. Memory for all of them is reserved when the server
/// starts.
pub const BOARD_ASSOCIATIONS_MAX: usize = 256;

/// Where a server accepts associations.
#[derive(Debug)]
pub enum Source {
    /// A TCP socket of the system; the protocol machines run in this process.
    Tcp(TcpListener),
    /// A running board, whose OSI service runs the protocol machines.
    Board(kiban_tokio::Listener),
}

impl From<TcpListener> for Source {
    fn from(listener: TcpListener) -> Source {
        Source::Tcp(listener)
    }
}

impl Source {
    /// Listens on an address of a running board, which needs a service of kind `osi`. The unspecified address
    /// stands for all addresses of the board.
    ///
    /// # Errors
    /// There is no such board or service, or the address is in use or does not belong to the board.
    pub async fn on_board(board: &str, local: SocketAddr, associations_max: usize) -> io::Result<Source> {
        let streams = associations_max.min(BOARD_ASSOCIATIONS_MAX);
        let settings = kiban_tokio::Settings { room_bytes: 256 << 10, ..board_settings(streams) };
        let board = Attachment::attach_to_service(ClientService::Osi, Some(board), settings).await?;
        Ok(Source::Board(board.listen(local).await?))
    }

    /// Returns the address on which it listens.
    ///
    /// # Errors
    /// The system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Source::Tcp(listener) => listener.local_addr(),
            Source::Board(listener) => Ok(listener.local_addr()),
        }
    }

    async fn accept(&self) -> io::Result<(Connection, SocketAddr)> {
        match self {
            Source::Tcp(listener) => {
                socket::accept(listener).await.map(|(socket, peer)| (Connection::Tcp(socket), peer))
            }
            Source::Board(listener) => {
                listener.accept().await.map(|(stream, peer)| (Connection::Board(stream), peer))
            }
        }
    }
}

/// An accepted connection.
enum Connection {
    Tcp(TcpStream),
    Board(kiban_tokio::Stream),
}

/// Settings of a served filestore.
#[derive(Clone)]
pub struct ServiceConfig {
    /// The directory to serve.
    pub root: PathBuf,
    /// Settings of the disk in that directory.
    pub disk: Settings,
    /// How files and directories are synced: together for the associations that wait.
    pub syncs: Syncs,
    /// Files that no peer can access.
    pub protected: Protected,
    /// The responder's settings, such as the services that it offers.
    pub responder: responder::Config,
    /// Settings for the layers below FTAM.
    pub stack: StackConfig,
    /// The TLS acceptor; `None` accepts connections without TLS.
    pub tls: Option<TlsAcceptor>,
    /// Maximum number of connections.
    pub associations_max: usize,
    /// Maximum number of connections that have not yet authenticated.
    pub unauthenticated_max: usize,
    /// How long an association may be without progress while a file is selected.
    pub idle_timeout: Duration,
    /// The time limit for the TLS handshake.
    pub tls_timeout: Duration,
    /// How long associations may continue after the service begins to stop.
    pub grace: Duration,
}

impl ServiceConfig {
    /// Returns the default settings for this directory.
    pub fn new(root: PathBuf) -> ServiceConfig {
        let mut stack = StackConfig::default();
        // No FTAM PDU except data is longer. A peer can send PDUs of this length before it is authenticated.
        stack.session.user_data_bytes_max = UNAUTHENTICATED_BYTES_MAX;
        ServiceConfig {
            root,
            disk: Settings::default(),
            syncs: Syncs::default(),
            protected: Protected::default(),
            responder: responder::Config::default(),
            stack,
            tls: None,
            associations_max: 4096,
            unauthenticated_max: 1024,
            idle_timeout: Duration::from_secs(15 * 60),
            tls_timeout: Duration::from_secs(10),
            grace: Duration::from_secs(10),
        }
    }
}

/// A filestore that is being served.
pub struct Service {
    config: ServiceConfig,
    auth: Arc<AuthService>,
    locks: Arc<Mutex<Locks>>,
    unauthenticated: Arc<Mutex<Unauthenticated<AbortHandle>>>,
    /// Rate limit for log lines about unauthenticated connections.
    lines: Arc<Mutex<LogLimiter>>,
    runtimes: RuntimePool,
    clock: Clock,
}

impl Service {
    /// Creates a service that authenticates users with `auth`.
    ///
    /// # Errors
    /// The directory cannot be opened, or the system cannot create threads.
    pub fn new(config: ServiceConfig, auth: Arc<AuthService>) -> io::Result<Service> {
        DirectoryDisk::open(&config.root, config.disk)?;
        let locks = Arc::new(Mutex::new(Locks::new(config.associations_max)));
        let (runtimes, clock) = (RuntimePool::new()?, Clock::new());
        let lines = Arc::new(Mutex::new(LogLimiter::new(clock.now())));
        Ok(Service { config, auth, locks, unauthenticated: Arc::default(), lines, runtimes, clock })
    }

    /// Logs a warning for each user whose home directory cannot be opened: the user could log in, but every
    /// request would be refused.
    pub fn check_homes(&self, users: &Users) {
        let disk = match DirectoryDisk::open(&self.config.root, self.config.disk) {
            Ok(disk) => disk,
            Err(error) => return tracing::warn!(%error, "cannot check the home directories"),
        };
        for (user, home) in users.homes() {
            if let Err(error) = disk.below(home) {
                tracing::warn!(user, %home, %error, "home directory not usable: create it below the root");
            }
        }
    }

    /// Serves connections until `stop` is ready; then waits for the associations to end.
    ///
    /// # Errors
    /// The board on which it listened has exited.
    pub async fn serve(&self, source: impl Into<Source>, stop: impl Future<Output = ()>) -> io::Result<()> {
        let source = source.into();
        let mut tasks = JoinSet::new();
        let mut next = 0;
        let mut stop = std::pin::pin!(stop);
        let outcome = loop {
            tokio::select! {
                accepted = source.accept() => match accepted {
                    Ok((connection, peer)) => {
                        next += 1;
                        self.admit(next, connection, peer, &mut tasks);
                    }
                    Err(error) if matches!(source, Source::Board(_)) => break Err(error),
                    Err(error) => {
                        // Usually, there are no descriptors left, so close an unauthenticated connection.
                        if let Some(untold) = lock(&self.lines).try_take(self.clock.now()) {
                            tracing::warn!(%error, untold, "cannot accept a connection");
                        }
                        self.evict();
                        tokio::time::sleep(socket::ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
                () = &mut stop => break Ok(()),
            }
        };
        drop(source);
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(self.config.grace, all).await.is_err() {
            tracing::warn!(associations = tasks.len(), "aborting associations: the service is stopping");
            tasks.shutdown().await;
        }
        outcome
    }

    fn admit(&self, number: u64, connection: Connection, peer: SocketAddr, tasks: &mut JoinSet<()>) {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        // Authenticated associations are kept; an unauthenticated connection is closed to make room.
        if tasks.len() >= self.config.associations_max && !self.evict() {
            if let Some(untold) = lock(&self.lines).try_take(self.clock.now()) {
                tracing::warn!(%peer, untold, "too many associations: connection refused");
            }
            return;
        }
        let runtime = self.runtimes.of(number);
        let connection = match connection {
            Connection::Tcp(socket) => into_runtime(socket, runtime).map(Connection::Tcp),
            stream @ Connection::Board(_) => Ok(stream),
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => return tracing::error!(%peer, %error, "cannot register the connection"),
        };
        let served = match self.served(number, peer) {
            Ok(served) => served,
            Err(error) => {
                tracing::error!(%error, root = %self.config.root.display(), "cannot open the filestore");
                return;
            }
        };
        let (tls, tls_timeout, clock) = (self.config.tls.clone(), self.config.tls_timeout, self.clock);
        let lines = self.lines.clone();
        let driven = async move {
            let socket = match connection {
                Connection::Tcp(socket) => socket,
                Connection::Board(stream) => {
                    let side = user_side(machine_of_user(Role::Responder), Role::Responder, &served.stack);
                    return drive(side, served, stream, peer, clock).await;
                }
            };
            let mut end = End::new(machine(Role::Responder), &served.stack);
            match tls {
                None => {
                    end.connected(clock.now(), &mut ());
                    drive(end, served, socket, peer, clock).await;
                }
                Some(tls) => match tokio::time::timeout(tls_timeout, tls.accept(socket)).await {
                    Ok(Ok(socket)) => {
                        end.connected(clock.now(), &mut ());
                        drive(end, served, socket, peer, clock).await;
                    }
                    failed => {
                        let error = failed.map_or("timed out".into(), |failed| {
                            failed.err().map_or_else(String::new, |error| error.to_string())
                        });
                        if let Some(untold) = lock(&lines).try_take(clock.now()) {
                            tracing::warn!(%peer, error, untold, "TLS handshake failed");
                        }
                    }
                },
            }
        };
        // The lock is held until the connection is inserted, so that a connection that ends immediately is
        // removed after its insertion, not before.
        let mut unauthenticated = lock(&self.unauthenticated);
        let task = tasks.spawn_on(driven, runtime);
        unauthenticated.add(number, peer.ip(), task);
        let too_many = unauthenticated.len() > self.config.unauthenticated_max;
        drop(unauthenticated);
        if too_many {
            self.evict();
        }
    }

    /// Closes the unauthenticated connection that is first in the order of eviction. Returns false if there
    /// is none.
    fn evict(&self) -> bool {
        let evicted = lock(&self.unauthenticated).evict();
        let Some((origin, oldest)) = evicted else { return false };
        oldest.abort();
        if let Some(untold) = lock(&self.lines).try_take(self.clock.now()) {
            tracing::warn!(%origin, untold, "too many unauthenticated connections: the oldest was closed");
        }
        true
    }

    fn served(&self, number: u64, peer: SocketAddr) -> io::Result<Served> {
        let bell = Arc::new(Notify::new());
        let mut stack = self.config.stack.clone();
        stack.transport.tsdu_bytes_max = stack.transport.tsdu_bytes_max.min(UNAUTHENTICATED_BYTES_MAX);
        Ok(Served {
            responder: Responder::new(self.config.responder.clone(), &peer.ip().to_string()),
            disk: DirectoryDisk::open(&self.config.root, self.config.disk)?
                .protecting(self.config.protected.clone())
                .sharing(self.config.syncs.clone()),
            locks: SharedLocks(self.locks.clone()),
            authenticator: PasswordAuthenticator::new(self.auth.clone(), bell.clone()),
            stack,
            tsdu_bytes_max: self.config.stack.transport.tsdu_bytes_max,
            silence_max: self.config.idle_timeout,
            unauthenticated: self.unauthenticated.clone(),
            unauthenticated_lines: self.lines.clone(),
            lines: LogLimiter::new(self.clock.now()),
            clock: self.clock,
            peer,
            number,
            bell,
            is_authenticated: false,
        })
    }
}

/// Drives one association until it ends.
async fn drive(
    end: impl Layers,
    served: Served,
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    clock: Clock,
) {
    let bell = served.bell.clone();
    let silence_max = served.silence_max;
    let mut end = FileEnd::new(end, served, Stopwatch::off(), silence_max);
    tracing::debug!(%peer, "connected");
    let outcome = pump(&mut end, &mut socket, &bell, &clock).await;
    let counters = *end.user.responder.counters();
    let broken = end.end.broken();
    // The end of an unauthenticated connection is not logged, because there may be thousands.
    let untold = match end.user.is_authenticated {
        true => Some(0),
        false => lock(&end.user.unauthenticated_lines).try_take(clock.now()),
    };
    let Some(untold) = untold else { return };
    tracing::info!(
        %peer,
        files = counters.selected,
        transfers = counters.transfers,
        failed = counters.transfers_failed,
        bytes_in = counters.bytes_in,
        bytes_out = counters.bytes_out,
        broken,
        untold = (untold > 0).then_some(untold),
        error = outcome.err().map(|error| error.to_string()),
        "ended"
    );
}

/// The user of the file service on one association.
struct Served {
    responder: Responder,
    disk: DirectoryDisk,
    locks: SharedLocks,
    authenticator: PasswordAuthenticator,
    /// The settings of the layers that apply before authentication.
    stack: StackConfig,
    /// Maximum TSDU length once authenticated.
    tsdu_bytes_max: usize,
    silence_max: Duration,
    unauthenticated: Arc<Mutex<Unauthenticated<AbortHandle>>>,
    unauthenticated_lines: Arc<Mutex<LogLimiter>>,
    /// Rate limit for log lines about this association.
    lines: LogLimiter,
    clock: Clock,
    peer: SocketAddr,
    number: u64,
    bell: Arc<Notify>,
    is_authenticated: bool,
}

impl User for Served {
    fn work(&mut self, machine: &mut Machine, room_bytes: usize) {
        let mut store =
            Store { disk: &mut self.disk, locks: &mut self.locks, authenticator: &mut self.authenticator };
        self.responder.work(machine, &mut store, room_bytes);
        self.disk.write_out();
        if !self.is_authenticated && machine.state() == State::Initialized {
            self.is_authenticated = true;
            lock(&self.unauthenticated).remove(self.number);
        }
        self.log_failures();
    }

    fn tsdu_bytes_max(&self) -> Option<usize> {
        self.is_authenticated.then_some(self.tsdu_bytes_max)
    }

    fn on_idle_timeout(&mut self, _: Duration) {
        let (user, file) = (self.responder.user(), self.responder.file());
        tracing::warn!(peer = %self.peer, user, file, "idle for too long: disconnected");
    }

    fn ended(&mut self) {
        let mut store =
            Store { disk: &mut self.disk, locks: &mut self.locks, authenticator: &mut self.authenticator };
        self.responder.end(&mut store);
    }
}

impl Served {
    fn log_failures(&mut self) {
        while let Some(FailureReport { kind, file, item }) = self.responder.next_failure() {
            // The authentication service has already logged the refused logins.
            let at_door = [
                ErrorIdentifier::USER_NOT_ALLOWED,
                ErrorIdentifier::FILESTORE_PASSWORD,
                ErrorIdentifier::ASSOCIATION_BAD_ACCOUNT,
            ];
            if at_door.contains(&item.error()) {
                continue;
            }
            let Some(untold) = self.lines.try_take(self.clock.now()) else { continue };
            let aborts = matches!(kind, FpduKind::UserAbort | FpduKind::ProviderAbort);
            // The macro needs a constant level.
            macro_rules! log {
                ($level:expr) => {
                    tracing::event!(
                        $level,
                        peer = %self.peer,
                        user = self.responder.user(),
                        file,
                        said = kind.words(),
                        diagnostic = item.error_identifier,
                        words = item.words(),
                        untold = (untold > 0).then_some(untold),
                        "{}",
                        if aborts { "aborted" } else { "refused" }
                    )
                };
            }
            // ISODE's client selects a file before it creates it, to learn whether it exists.
            match kind == FpduKind::SelectResponse && item.error() == ErrorIdentifier::FILE_NON_EXISTENT {
                true => log!(tracing::Level::INFO),
                false => log!(tracing::Level::WARN),
            }
        }
    }
}

/// Removes the connection from the unauthenticated ones, however it ends.
impl Drop for Served {
    fn drop(&mut self) {
        lock(&self.unauthenticated).remove(self.number);
    }
}

/// Locks shared by all associations.
struct SharedLocks(Arc<Mutex<Locks>>);

impl Concurrency for SharedLocks {
    fn take(&mut self, path: &Path, control: Control) -> Result<Hold, LockError> {
        lock(&self.0).take(path, control)
    }

    fn change(&mut self, hold: &Hold, control: Control) -> Result<(), LockError> {
        lock(&self.0).change(hold, control)
    }

    fn give(&mut self, hold: Hold) {
        lock(&self.0).give(hold);
    }
}
