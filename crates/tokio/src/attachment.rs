//! An attachment to a board. It passes the board's indications to its streams.
//!
//! Indications      are read by a background task that waits on the channel's socket, or by a task that spins
//!                  for its stream.
//! Spinning         a reader without data spins for a while ([`Settings::spin`]) before it sleeps, so that a
//!                  quick response needs no wake-up.
//! Locking          all streams of an attachment share one lock, or one for each shard of the board, which is
//!                  held while bytes are copied. A program with several busy threads should attach once per
//!                  thread.

use super::attached::Attached;
use super::stream::{Listener, Stream, poll_until};
use super::unix::register_file;
use kiban_os::unix::names::folders_of_boards;
use kiban_os::wait::YieldLimiter;
use kiban_streams::ClientService;
use kiban_streams::call::{
    ATTACH_TIMEOUT, Attaching, Settings, is_no_listener, named, no_answer_error, no_listener_error,
};
use kiban_streams::known::Accepted;
use kiban_streams::shards::{ShardListener, Shards};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Poll, Waker};
use tokio::io::unix::AsyncFd;

/// An attachment to a board of another process.
#[derive(Clone)]
pub struct Attachment(Arc<Attached>);

impl std::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Attachment")
    }
}

impl Attachment {
    /// Attaches to a board by its name or, if no name is given, to the only running board.
    ///
    /// # Errors
    /// If no board of that name accepts clients, or if it belongs to another user.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub async fn attach(board: Option<&str>) -> io::Result<Attachment> {
        Attachment::attach_with(board, Settings::default()).await
    }

    /// Attaches with the given settings.
    ///
    /// # Errors
    /// Same as for [`Attachment::attach`]; also if the settings are invalid.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub async fn attach_with(board: Option<&str>, settings: Settings) -> io::Result<Attachment> {
        Attachment::attach_to_service(ClientService::Streams, board, settings).await
    }

    /// Attaches to one of a board's services. Each stream of the OSI service carries the service primitives
    /// of one association.
    ///
    /// # Errors
    /// Same as for [`Attachment::attach_with`].
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub async fn attach_to_service(
        service: ClientService,
        board: Option<&str>,
        settings: Settings,
    ) -> io::Result<Attachment> {
        let board = named(service, board)?;
        let mut why = no_listener_error(service, &board);
        for folder in folders_of_boards() {
            let called = settings.call_board(&service.path(&folder, &board));
            let attached = match called {
                Ok(attaching) => Attachment::attach_to(attaching, settings).await,
                Err(error) => Err(error),
            };
            match attached {
                Err(error) if is_no_listener(&error) => {}
                Err(error) => why = io::Error::new(error.kind(), format!("board {board}: {error}")),
                attached => return attached,
            }
        }
        Err(why)
    }

    /// Attaches to the board whose socket has this path, for example a socket that is mounted in a container.
    ///
    /// # Errors
    /// Same as for [`Attachment::attach_with`].
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub async fn attach_at(door: &Path, settings: Settings) -> io::Result<Attachment> {
        Attachment::attach_to(settings.call(door)?, settings).await
    }

    async fn attach_to(attaching: Attaching, settings: Settings) -> io::Result<Attachment> {
        let shards = match tokio::time::timeout(ATTACH_TIMEOUT, complete(attaching)).await {
            Ok(shards) => Arc::new(shards?),
            Err(_) => return Err(no_answer_error()),
        };
        let (file, task) = (register(shards.file())?, OnceLock::new());
        let attached =
            Arc::new(Attached { shards, spin: settings.spin, offers: YieldLimiter::default(), task });
        let task = tokio::spawn(listen(Arc::downgrade(&attached), file));
        attached.task.get_or_init(|| task.abort_handle());
        Ok(Attachment(attached))
    }

    /// Connects; the board's route determines the local address.
    ///
    /// # Errors
    /// If there is no listener, or no route; the error contains [`super::EndReason`].
    pub async fn connect(&self, remote: SocketAddr) -> io::Result<Stream> {
        self.connect_from(None, remote).await
    }

    /// Connects from a local address and port of the board; port 0 lets the board choose.
    ///
    /// # Errors
    /// Same as for [`Attachment::connect`]; also if the address does not belong to the board, or the port is
    /// in use.
    pub async fn connect_from(&self, local: Option<SocketAddr>, remote: SocketAddr) -> io::Result<Stream> {
        let mut shard = None;
        loop {
            let claim = || self.0.shards.connect(shard, local, remote);
            let register = |waker: &Waker| {
                for shared in self.0.shards.channels() {
                    shared.with(|core| core.slot_waiters.push(waker.clone()));
                }
            };
            let (shared, slot) = poll_until(claim, register).await?;
            // From this point on, dropping the stream returns the slot.
            let at = Accepted { slot, local: remote, remote };
            let mut stream = Stream::new(self.0.clone(), shared.clone(), at);
            let opened = poll_until(
                || shared.with(|core| core.opened(slot)),
                |waker| shared.with(|core| core.slots[slot as usize].reader = Some(waker.clone())),
            );
            match opened.await {
                Ok(local) => {
                    stream.set_local(local);
                    return Ok(stream);
                }
                Err(error) => {
                    shard = Some(shared.with(|core| core.slots[slot as usize].other_shard).ok_or(error)?);
                }
            }
        }
    }

    /// Listens on an address of the board; the unspecified address means all of them. If the port is 0, the
    /// board chooses one, which [`Listener::local_addr`] returns.
    ///
    /// # Errors
    /// If the address is in use or does not belong to the board.
    pub async fn listen(&self, local: SocketAddr) -> io::Result<Listener> {
        let mut parts = ShardListener::start(self.0.shards.clone(), local)?;
        let listening = poll_fn(|cx| {
            let found = parts.listening().or_else(|| {
                parts.register(cx.waker());
                parts.listening()
            });
            found.map_or(Poll::Pending, Poll::Ready)
        });
        listening.await?;
        Ok(Listener::new(self.0.clone(), parts))
    }
}

/// Registers a duplicate of a file with the runtime.
fn register(file: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    register_file(file.try_clone_to_owned()?)
}

/// Waits for the board's answers.
async fn complete(mut attaching: Attaching) -> io::Result<Shards> {
    loop {
        if let Some(shards) = attaching.complete()? {
            return Ok(shards);
        }
        // Each answer arrives at another file.
        register(attaching.file())?.readable().await?.retain_ready();
    }
}

/// Processes indications whenever the board rings.
async fn listen(attached: Weak<Attached>, file: AsyncFd<OwnedFd>) {
    loop {
        {
            // The attachment and all its streams have been dropped.
            let Some(attached) = attached.upgrade() else { return };
            attached.shards.arm();
            // Process the indications that arrived before the bells were armed.
            attached.shards.process_indications();
        }
        // An error means that the runtime is shutting down.
        let woken = file.readable().await;
        let Some(attached) = attached.upgrade() else { return };
        attached.shards.disarm();
        // Draining the file comes last, so that what arrives later is noticed.
        let is_lost = woken.map(|mut ready| ready.clear_ready()).is_err();
        if attached.shards.is_gone() || is_lost {
            return attached.shards.end();
        }
    }
}
