//! The client's side of one board: what it is told is passed on to its streams.
//!
//! Told      by a task of the runtime, which sleeps on the channel's socket; or by whoever spins for a stream.
//! Spin      who finds nothing to read looks on for a while ([`Settings::spin`]) before it waits: an answer that comes soon costs
//!           no wake-up.
//! Locks     one, for all streams of an attachment: bytes are copied under it. Attach once more for another thread that is busy.

use super::call::{PATIENCE, Settings, is_nobody, memory_bytes, named, nobody, silent};
use super::known::{Accepted, Core, Shared};
use super::stream::{Listener, Stream};
use super::{door, folders};
use crate::clock::machine_nanos;
use crate::link::channel::{Channel, Half};
use crate::wait::{LONG, Offers};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// What streams, listeners and the task share.
pub(super) struct Attached {
    shared: Shared,
    spin: Duration,
    offers: Offers,
    task: OnceLock<tokio::task::AbortHandle>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        // The board sees the end when the task has let go of the socket.
        self.task.get().into_iter().for_each(tokio::task::AbortHandle::abort);
    }
}

impl Attached {
    /// Works with the board's memory.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Core) -> T) -> T {
        self.shared.with(work)
    }

    /// Whether who has found nothing since `began`, in nanoseconds of the machine, is to look on before it waits.
    pub(super) fn looks_on(&self, began: u64) -> bool {
        let spun = Duration::from_nanos(machine_nanos() - began);
        if spun >= self.spin {
            return false;
        }
        if spun >= LONG {
            self.offers.offer();
        }
        std::hint::spin_loop();
        true
    }
}

/// A board of another process, whose streams are used from here.
#[derive(Clone)]
pub struct Attachment(Arc<Attached>);

impl std::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Attachment")
    }
}

impl Attachment {
    /// Attaches to a board by its name; without a name to the only one that runs.
    ///
    /// # Errors
    /// No board of that name takes clients, or it is another user's.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn attach(board: Option<&str>) -> io::Result<Attachment> {
        Attachment::attach_with(board, Settings::default()).await
    }

    /// The same with settings of one's own.
    ///
    /// # Errors
    /// As [`Attachment::attach`]; settings that no board takes.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn attach_with(board: Option<&str>, settings: Settings) -> io::Result<Attachment> {
        let board = named(board)?;
        let mut why = nobody(&board);
        for folder in folders() {
            match Attachment::attach_at(&door(&folder, &board), settings).await {
                Err(error) if is_nobody(&error) => {}
                Err(error) => why = io::Error::new(error.kind(), format!("board {board}: {error}")),
                attached => return attached,
            }
        }
        Err(why)
    }

    /// The same by the path of the board's door, for example one that a container has been given.
    ///
    /// # Errors
    /// As [`Attachment::attach_with`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn attach_at(door: &Path, settings: Settings) -> io::Result<Attachment> {
        let (half, layout) = settings.call(door)?;
        let channel = match tokio::time::timeout(PATIENCE, complete(half, memory_bytes(layout))).await {
            Ok(channel) => channel?,
            Err(_) => return Err(silent()),
        };
        let socket = hear_of(channel.socket())?;
        let (shared, task) = (Shared::new(channel, layout), OnceLock::new());
        let attached = Arc::new(Attached { shared, spin: settings.spin, offers: Offers::default(), task });
        let task = tokio::spawn(listen(Arc::downgrade(&attached), socket));
        attached.task.get_or_init(|| task.abort_handle());
        Ok(Attachment(attached))
    }

    /// Connects, from whichever address of the board's leads there.
    ///
    /// # Errors
    /// Nobody listens there, or there is no way; [`super::Why`] stands in the error.
    pub async fn connect(&self, remote: SocketAddr) -> io::Result<Stream> {
        self.connect_from(None, remote).await
    }

    /// Connects from an address and port of the board's; port 0: one is chosen.
    ///
    /// # Errors
    /// As [`Attachment::connect`]; the address is not the board's, or the port is taken.
    pub async fn connect_from(&self, local: Option<SocketAddr>, remote: SocketAddr) -> io::Result<Stream> {
        let claim = |cx: &mut Context<'_>| {
            self.0.with(|core| match core.connect(local, remote) {
                Some(slot) => Poll::Ready(slot),
                None => {
                    core.claimers.push(cx.waker().clone());
                    Poll::Pending
                }
            })
        };
        let slot = poll_fn(claim).await?;
        // From here on the slot is given back, whatever happens.
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

    /// Listens on an address of the board's; an unspecified one stands for all. Port 0: the board chooses one, which
    /// [`Listener::local_addr`] says.
    ///
    /// # Errors
    /// It is taken, or not the board's.
    pub async fn listen(&self, local: SocketAddr) -> io::Result<Listener> {
        let number = self.0.with(|core| core.listen(local))?;
        let mut listener = Listener::new(self.0.clone(), number, local);
        listener.set_local(listener.wait(|core| core.listening(number)).await?);
        Ok(listener)
    }
}

/// A socket of which the runtime hears.
fn hear_of(socket: BorrowedFd<'_>) -> io::Result<UnixStream> {
    UnixStream::from_std(socket.try_clone_to_owned()?.into())
}

/// Waits for the board's word.
async fn complete(mut half: Half, bytes: usize) -> io::Result<Channel> {
    let socket = hear_of(half.as_fd())?;
    loop {
        if let Some(channel) = half.complete(bytes..=bytes)? {
            return Ok(channel);
        }
        socket.readable().await?;
        // The word is read by the half: the runtime is to look anew.
        let _ = socket.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }
}

/// Hears the board whenever it rings.
async fn listen(attached: Weak<Attached>, socket: UnixStream) {
    loop {
        {
            // The last of its streams has gone.
            let Some(attached) = attached.upgrade() else { return };
            attached.shared.channel.own_bell().arm();
            // What came before it was armed is heard now.
            attached.with(Core::hear);
        }
        // An error is the runtime's end.
        let woken = socket.readable().await;
        let Some(attached) = attached.upgrade() else { return };
        attached.shared.channel.own_bell().disarm();
        // The bytes are taken by the channel: the runtime is to look anew, from before they are taken.
        let _ = socket.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        if woken.is_err() || attached.shared.channel.is_gone() {
            return attached.with(|core| {
                core.hear();
                core.end();
            });
        }
    }
}
