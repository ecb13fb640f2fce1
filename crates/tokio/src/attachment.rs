//! An attachment to a board. It passes the board's indications to its streams.
//!
//! Indications      are read by a background task that waits on the channel's socket, or by a task that spins
//!                  for its stream.
//! Spinning         a reader without data spins for a while ([`Settings::spin`]) before it sleeps, so that a
//!                  quick response needs no wake-up.
//! Locking          all streams of an attachment share one lock, which is held while bytes are copied. A
//!                  program with several busy threads should attach once per thread.

use super::attached::Attached;
use super::stream::{Listener, Stream};
use kiban_attach::Layout;
use kiban_os::channel::{Channel, PendingChannel};
use kiban_os::unix::names::folders_of_boards;
use kiban_os::wait::YieldLimiter;
use kiban_streams::ClientService;
use kiban_streams::call::{
    ATTACH_TIMEOUT, Settings, is_no_listener, memory_bytes, named, no_answer_error, no_listener_error,
};
use kiban_streams::known::{Accepted, Core, Shared};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::net::UnixStream;

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
                Ok((half, layout)) => Attachment::attach_to(half, layout, settings).await,
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
        let (half, layout) = settings.call(door)?;
        Attachment::attach_to(half, layout, settings).await
    }

    async fn attach_to(half: PendingChannel, layout: Layout, settings: Settings) -> io::Result<Attachment> {
        let channel = match tokio::time::timeout(ATTACH_TIMEOUT, complete(half, memory_bytes(layout))).await {
            Ok(channel) => channel?,
            Err(_) => return Err(no_answer_error()),
        };
        let socket = register_socket(channel.socket())?;
        let (shared, task) = (Shared::new(channel, layout), OnceLock::new());
        let attached =
            Arc::new(Attached { shared, spin: settings.spin, offers: YieldLimiter::default(), task });
        let task = tokio::spawn(listen(Arc::downgrade(&attached), socket));
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
        let claim = |cx: &mut Context<'_>| {
            self.0.with(|core| match core.connect(local, remote) {
                Some(slot) => Poll::Ready(slot),
                None => {
                    core.slot_waiters.push(cx.waker().clone());
                    Poll::Pending
                }
            })
        };
        let slot = poll_fn(claim).await?;
        // From this point on, dropping the stream returns the slot.
        let mut stream = Stream::new(self.0.clone(), Accepted { slot, local: remote, remote });
        let opened = |cx: &mut Context<'_>| {
            self.0.with(|core| match core.opened(slot) {
                Some(local) => Poll::Ready(local),
                None => {
                    core.slots[slot as usize].reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            })
        };
        stream.set_local(poll_fn(opened).await?);
        Ok(stream)
    }

    /// Listens on an address of the board; the unspecified address means all of them. If the port is 0, the
    /// board chooses one, which [`Listener::local_addr`] returns.
    ///
    /// # Errors
    /// If the address is in use or does not belong to the board.
    pub async fn listen(&self, local: SocketAddr) -> io::Result<Listener> {
        let number = self.0.with(|core| core.listen(local))?;
        let mut listener = Listener::new(self.0.clone(), number, local);
        listener.set_local(listener.wait(|core| core.listening(number)).await?);
        Ok(listener)
    }
}

/// Registers a duplicate of a socket with the runtime.
fn register_socket(socket: BorrowedFd<'_>) -> io::Result<UnixStream> {
    UnixStream::from_std(socket.try_clone_to_owned()?.into())
}

/// Waits for the board's answer.
async fn complete(mut half: PendingChannel, bytes: usize) -> io::Result<Channel> {
    let socket = register_socket(half.as_fd())?;
    loop {
        if let Some(channel) = half.complete(bytes..=bytes)? {
            return Ok(channel);
        }
        socket.readable().await?;
        // `PendingChannel` has read the answer itself, so clear the runtime's readiness.
        let _ = socket.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }
}

/// Processes indications whenever the board rings.
async fn listen(attached: Weak<Attached>, socket: UnixStream) {
    loop {
        {
            // The attachment and all its streams have been dropped.
            let Some(attached) = attached.upgrade() else { return };
            attached.shared.channel.own_bell().arm();
            // Process the indications that arrived before the bell was armed.
            attached.with(Core::process_indications);
        }
        // An error means that the runtime is shutting down.
        let woken = socket.readable().await;
        let Some(attached) = attached.upgrade() else { return };
        attached.shared.channel.own_bell().disarm();
        // The channel drains the bytes. Clear the runtime's readiness first, so that a byte that arrives
        // later is noticed.
        let _ = socket.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        if woken.is_err() || attached.shared.channel.is_gone() {
            return attached.with(|core| {
                core.process_indications();
                core.end();
            });
        }
    }
}
