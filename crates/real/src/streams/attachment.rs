//! The client's side of one board: what it is told is passed on to its streams.
//!
//! Told      by a task of the runtime, which sleeps on the channel's socket; or by whoever spins for a stream.
//! Spin      who finds nothing to read looks on for a while ([`Settings::spin`]) before it waits: an answer that comes soon costs
//!           no wake-up.
//! Locks     one, for all streams of an attachment: bytes are copied under it. Attach once more for another thread that is busy.

use super::stream::{Accepted, Listener, Stream};
use super::{boards, door, error, folders, gone, greeting};
use crate::clock::machine_nanos;
use crate::link::channel::{Channel, FRONT_BYTES, Half};
use kiban_board::streams::{Ask, Client, LISTENERS_MAX, Layout, Told, Why};
use kiban_ground::ring::Condemned;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// How long a board may take to answer who calls.
const PATIENCE: Duration = Duration::from_secs(10);
/// Slots that a listener offers beforehand.
const OFFERED: usize = 16;

/// What an attachment is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Streams at once.
    pub streams: usize,
    /// Bytes that each direction of a stream holds between client and board: a power of two.
    pub room_bytes: usize,
    /// How long who finds nothing looks on before it waits.
    pub spin: Duration,
}

impl Default for Settings {
    /// 64 streams of 256 KiB each way, and 20 us of looking on.
    fn default() -> Settings {
        Settings { streams: 64, room_bytes: 256 << 10, spin: Duration::from_micros(20) }
    }
}

/// What is known of a slot.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) is_open: bool,
    pub(super) local: Option<SocketAddr>,
    pub(super) ended: Option<Why>,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

impl Slot {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

/// A listener's.
#[derive(Default)]
pub(super) struct Waiting {
    /// Whether the board listens; none: it has not said.
    result: Option<Result<(), Why>>,
    offered: usize,
    pub(super) arrived: VecDeque<Accepted>,
    pub(super) waker: Option<Waker>,
}

/// What is behind the lock.
pub(super) struct Core {
    pub(super) client: Client,
    pub(super) slots: Vec<Slot>,
    pub(super) listeners: BTreeMap<u16, Waiting>,
    pub(super) is_gone: bool,
    /// Who waits for a free slot.
    claimers: Vec<Waker>,
    /// The number of the next listener: one that has gone may still be told of.
    next: u16,
}

impl Core {
    /// Passes on what the board has told.
    fn hear(&mut self) {
        loop {
            match self.client.told() {
                Ok(Some(told)) => self.on_told(told),
                Ok(None) => break,
                Err(Condemned) => return self.end(),
            }
        }
    }

    fn on_told(&mut self, told: Told) {
        match told {
            Told::Listening { listener, result } => {
                if let Some(waiting) = self.listeners.get_mut(&listener) {
                    waiting.result = Some(result);
                    waiting.waker.take().into_iter().for_each(Waker::wake);
                }
            }
            Told::Accepted { listener, slot, local, remote } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    *state = Slot { is_open: true, local: Some(local), ..Slot::default() };
                }
                match self.listeners.get_mut(&listener) {
                    Some(waiting) => {
                        waiting.offered = waiting.offered.saturating_sub(1);
                        waiting.arrived.push_back(Accepted { slot, local, remote });
                        waiting.waker.take().into_iter().for_each(Waker::wake);
                    }
                    // Its listener has gone meanwhile.
                    None => self.give_up(slot),
                }
                self.offer();
            }
            Told::Opened { slot, local } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    (state.is_open, state.local) = (true, Some(local));
                    state.wake();
                }
            }
            Told::Look { slot } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    state.wake();
                }
            }
            Told::Ended { slot, why } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    state.ended = Some(why);
                    state.wake();
                }
            }
            Told::Free { slot } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    *state = Slot::default();
                }
                self.claimers.drain(..).for_each(Waker::wake);
                self.offer();
            }
        }
    }

    /// Free slots for those who will call.
    pub(super) fn offer(&mut self) {
        for (&listener, waiting) in &mut self.listeners {
            while waiting.result == Some(Ok(())) && waiting.offered + waiting.arrived.len() < OFFERED {
                let Some(slot) = self.client.claim() else { return };
                if self.client.ask(Ask::Offer { listener, slot }).is_err() {
                    return;
                }
                waiting.offered += 1;
            }
        }
    }

    /// What is found; or that the board has gone.
    pub(super) fn find<T>(
        &mut self,
        look: &mut impl FnMut(&mut Core) -> Option<io::Result<T>>,
    ) -> Option<io::Result<T>> {
        look(self).or_else(|| self.is_gone.then(|| Err(gone())))
    }

    /// Asks; a board that has gone hears nothing, and whoever waits for it learns of that.
    pub(super) fn ask(&mut self, ask: Ask) {
        if self.client.ask(ask).is_err() {
            self.end();
        }
    }

    /// A stream that nobody reads any more.
    pub(super) fn give_up(&mut self, slot: u32) {
        self.ask(Ask::Close { slot });
    }

    /// The board has gone.
    pub(super) fn end(&mut self) {
        self.is_gone = true;
        self.slots.iter_mut().for_each(Slot::wake);
        self.listeners.values_mut().for_each(|waiting| {
            waiting.waker.take().into_iter().for_each(Waker::wake);
        });
        self.claimers.drain(..).for_each(Waker::wake);
    }
}

/// What streams, listeners and the task share.
pub(super) struct Shared {
    core: Mutex<Core>,
    channel: Channel,
    spin: Duration,
    task: OnceLock<tokio::task::AbortHandle>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The board sees the end when the task has let go of the socket.
        self.task.get().into_iter().for_each(tokio::task::AbortHandle::abort);
    }
}

impl Shared {
    /// Works with the board's memory; then the board is told if there is anything for it.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.lock();
        if core.client.has_news() {
            core.hear();
        }
        let result = work(&mut core);
        let rings = core.client.take_ring();
        drop(core);
        if rings {
            self.channel.ring(machine_nanos);
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // Nobody panics in the midst of a change.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long to look on before waiting, from now: the moment of its end, nanoseconds of the machine.
    pub(super) fn spins_until(&self) -> u64 {
        machine_nanos() + self.spin.as_nanos() as u64
    }
}

/// A board of another process, whose streams are used from here.
#[derive(Clone)]
pub struct Attachment(Arc<Shared>);

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
        let board = match board {
            Some(board) => board.to_owned(),
            None => only_board()?,
        };
        let mut why = io::Error::new(
            io::ErrorKind::NotFound,
            format!("no board {board} takes clients: add a service of kind \"attach\" to its configuration"),
        );
        for folder in folders() {
            match Attachment::attach_at(&door(&folder, &board), settings).await {
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                }
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
        let Settings { streams, room_bytes, spin } = settings;
        let layout = Layout::new(FRONT_BYTES, streams, room_bytes).ok_or_else(|| {
            let message = "an attachment has 1 to 16384 streams of 4 KiB to 16 MiB, a power of two, each way";
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        let bytes = layout.bytes().next_multiple_of(4096);
        let half = Half::call_at(door, &greeting(streams, room_bytes), bytes)?;
        let channel = match tokio::time::timeout(PATIENCE, complete(half, bytes)).await {
            Ok(channel) => channel?,
            Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the board does not answer")),
        };
        let socket = hear_of(channel.socket())?;
        let core = Core {
            client: Client::new(channel.region(), layout),
            slots: (0..streams).map(|_| Slot::default()).collect(),
            listeners: BTreeMap::new(),
            is_gone: false,
            claimers: Vec::new(),
            next: 0,
        };
        let shared = Arc::new(Shared { core: Mutex::new(core), channel, spin, task: OnceLock::new() });
        let task = tokio::spawn(listen(Arc::downgrade(&shared), socket));
        shared.task.get_or_init(|| task.abort_handle());
        Ok(Attachment(shared))
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
            self.0.with(|core| {
                if core.is_gone {
                    return Poll::Ready(Err(gone()));
                }
                match core.client.claim() {
                    Some(slot) => {
                        core.ask(Ask::Connect { slot, local, remote });
                        Poll::Ready(Ok(slot))
                    }
                    None => {
                        core.claimers.push(cx.waker().clone());
                        Poll::Pending
                    }
                }
            })
        };
        let slot = poll_fn(claim).await?;
        // From here on the slot is given back, whatever happens.
        let mut stream = Stream::new(self.0.clone(), Accepted { slot, local: remote, remote });
        let opened = |cx: &mut Context<'_>| {
            self.0.with(|core| {
                let state = &mut core.slots[slot as usize];
                match (state.local.filter(|_| state.is_open), state.ended) {
                    (Some(local), _) => Poll::Ready(Ok(local)),
                    (None, Some(why)) => Poll::Ready(Err(error(why))),
                    (None, None) if core.is_gone => Poll::Ready(Err(gone())),
                    (None, None) => {
                        state.reader = Some(cx.waker().clone());
                        Poll::Pending
                    }
                }
            })
        };
        stream.set_local(poll_fn(opened).await?);
        Ok(stream)
    }

    /// Listens on an address of the board's; an unspecified one stands for all.
    ///
    /// # Errors
    /// It is taken, or not the board's.
    pub async fn listen(&self, local: SocketAddr) -> io::Result<Listener> {
        let number = self.0.with(|core| {
            let number = core.next;
            core.next = core.next.wrapping_add(1);
            if core.listeners.len() >= LISTENERS_MAX || core.listeners.contains_key(&number) {
                return Err(error(Why::TooMany));
            }
            core.listeners.insert(number, Waiting::default());
            core.ask(Ask::Listen { listener: number, local });
            Ok(number)
        })?;
        let listener = Listener::new(self.0.clone(), number, local);
        let listening = |cx: &mut Context<'_>| {
            self.0.with(|core| {
                let Some(waiting) = core.listeners.get_mut(&number) else { return Poll::Ready(Err(gone())) };
                match waiting.result {
                    Some(result) => {
                        core.offer();
                        Poll::Ready(result.map_err(error))
                    }
                    None if core.is_gone => Poll::Ready(Err(gone())),
                    None => {
                        waiting.waker = Some(cx.waker().clone());
                        Poll::Pending
                    }
                }
            })
        };
        poll_fn(listening).await?;
        Ok(listener)
    }
}

/// The name of the only board that takes clients.
fn only_board() -> io::Result<String> {
    match &boards("streams")[..] {
        [one] => Ok(one.clone()),
        [] => {
            let message = "no board takes clients: give one a service of kind \"attach\"";
            Err(io::Error::new(io::ErrorKind::NotFound, message))
        }
        many => {
            let message = format!("several boards take clients, name one: {}", many.join(", "));
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
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
async fn listen(shared: Weak<Shared>, socket: UnixStream) {
    loop {
        {
            // The last of its streams has gone.
            let Some(shared) = shared.upgrade() else { return };
            shared.channel.own_bell().arm();
            // What came before it was armed is heard now.
            shared.with(Core::hear);
        }
        // An error is the runtime's end.
        let woken = socket.readable().await;
        let Some(shared) = shared.upgrade() else { return };
        shared.channel.own_bell().disarm();
        if woken.is_err() || has_hung_up(&socket) {
            return shared.with(|core| {
                core.hear();
                core.end();
            });
        }
    }
}

/// Takes the bytes that woke us, a bounded number of them. Whether the board has gone.
fn has_hung_up(socket: &UnixStream) -> bool {
    let mut bytes = [0; 4096];
    for _ in 0..4 {
        match socket.try_read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
    false
}
