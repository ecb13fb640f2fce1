//! The board's streams for programs on this host, through rings in shared memory ([`kiban_board::streams`]).
//!
//! Edge             the protocol that a stream is connected to: the board's TCP ([`Tcp`]), or its OSI stack
//!                  ([`Osi`](super::osi::Osi)).
//! Socket           `NAME.streams` or `NAME.osi`, in the same directory as the control socket. Each client
//!                  gets shared memory and a context on the board.
//! Wake             if the board sleeps, a client wakes it by writing a byte to the client's socket. If the
//!                  board spins, no system call is needed, because the board polls the client's ring
//!                  ([`ClientBells`]).
//! Trust            the board accepts no descriptors from clients. If a client sends any, another thread
//!                  closes them ([`kiban_os::unix`]).
//! End              when a client exits or disconnects, its streams are closed. Data that it has already
//!                  written is still sent, as long as its peers read at `MINIMUM_RATE`, and unless TCP holds
//!                  data that it has not read (see `Provider::close`). A client that violates the protocol is
//!                  disconnected, and all its streams are reset.
//! Limits           `CLIENTS_MAX` clients, and `sessions` streams for all clients together. A client reserves
//!                  its streams when it attaches. Further clients are counted, and refused with the reason.

use super::clients::{Entrance, LISTENER, admit};
use super::counters::ServiceCounters;
use super::pace::Pace;
use super::service::{Service, SessionLimits};
use kiban_base::{Instant, Slice};
use kiban_board::streams::{Chunk, ClientStreams, Provider};
use kiban_board::{Completion, Host, StreamId};
use kiban_link::{EpollSet, Interest};
use kiban_os::channel::{Channel, ChannelListener, PendingChannel};
use kiban_os::clock::machine_nanos;
use kiban_os::lines::ClientLog;
use kiban_os::lock;
use kiban_os::wait::Doorbell;
use kiban_streams::parse_greeting;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Maximum time for which the remaining streams of a disconnected client may together be slower than
/// `MINIMUM_RATE`.
const LINGER: Duration = Duration::from_secs(60);
/// Limit of concurrent clients.
const CLIENTS_MAX: usize = 256;
/// Timeout of a client's greeting.
const GREETING: Duration = Duration::from_secs(10);
/// Limit on the memory shared with one client, in bytes.
const MEMORY_BYTES_MAX: usize = 8 << 30;

/// The bells of all clients; armed before the board's thread sleeps.
#[derive(Default)]
pub struct ClientBells(Mutex<Vec<Weak<Channel>>>);

impl ClientBells {
    pub(super) fn add(&self, channel: &Arc<Channel>) {
        let mut channels = lock(&self.0);
        channels.retain(|known| known.strong_count() > 0);
        channels.push(Arc::downgrade(channel));
    }

    fn each<T>(&self, see: impl Fn(&Channel) -> Option<T>) -> Vec<T> {
        let channels = lock(&self.0);
        channels.iter().filter_map(|channel| see(&*channel.upgrade()?)).collect()
    }
}

impl Doorbell for ClientBells {
    fn arm(&self) {
        self.each(|channel| {
            channel.own_bell().arm();
            None::<()>
        });
    }

    fn disarm(&self) -> Option<u64> {
        self.each(|channel| channel.own_bell().disarm()).into_iter().min()
    }
}

/// The protocol of the board that the streams of a service's clients are connected to.
pub trait Edge {
    /// The service's name in log lines.
    const NAME: &'static str;
    /// Received bytes.
    type Chunk: Chunk;
    /// The provider of a client's streams.
    type View<'a>: Provider<Chunk = Self::Chunk>
    where
        Self: 'a;

    /// Returns the provider of a client's streams, for one call.
    fn view<'a>(&'a mut self, host: Host<'a>) -> Self::View<'a>;

    /// Handles a completion, before the client's streams do.
    fn on_completion(&mut self, _completion: Completion, _host: &mut Host<'_>) {}

    /// Returns the streams whose timers have expired, with their clients. Each then gets a completion, as if
    /// data had arrived.
    fn due(&self, _now: Instant) -> Vec<(u32, StreamId)> {
        Vec::new()
    }

    /// Returns whether streams have stopped taking their client's bytes so that other work has a turn.
    fn has_spent(&self) -> bool {
        false
    }

    /// Returns these streams, with their clients, and lets them take bytes again. Each then gets a
    /// completion, as if it had room again.
    fn begin_turn(&mut self) -> Vec<(u32, StreamId)> {
        Vec::new()
    }

    /// Returns whether the client that was just served has broken a rule, and clears the flag.
    fn take_fault(&mut self) -> bool {
        false
    }
}

/// The board's TCP.
#[derive(Debug)]
pub struct Tcp;

impl Edge for Tcp {
    const NAME: &'static str = "attach";
    type Chunk = Slice;
    type View<'a> = Host<'a>;

    fn view<'a>(&'a mut self, host: Host<'a>) -> Host<'a> {
        host
    }
}

/// State of a client.
enum Client<C> {
    /// The client has connected, but its greeting has not arrived. The instant is the deadline for the
    /// greeting.
    Caller(PendingChannel, Instant),
    Attached(ClientStreams<C>, Arc<Channel>),
    /// The client has disconnected, but its remaining data is still being sent. The pace checks how fast
    /// peers read the data.
    Gone(ClientStreams<C>, Pace),
}

impl<C> Client<C> {
    /// Stops watching its socket.
    fn forget_at(&self, files: &EpollSet) {
        // This call fails if the socket is not being watched.
        let _ = match self {
            Client::Caller(half, _) => files.forget(half),
            Client::Attached(_, channel) => files.forget(channel.socket()),
            Client::Gone(..) => Ok(()),
        };
    }
}

/// The service.
pub struct Attach<E: Edge = Tcp> {
    edge: E,
    path: PathBuf,
    bounds: SessionLimits,
    chime: Arc<ClientBells>,
    files: EpollSet,
    entrance: Entrance<ChannelListener>,
    clients: BTreeMap<u64, Client<E::Chunk>>,
    next: u32,
    /// The summed counters of clients that have disconnected.
    past: ServiceCounters,
    lines: ClientLog,
    ready: Vec<u64>,
}

impl<E: Edge> Attach<E> {
    /// Returns a service that will listen at `path`.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn new(
        edge: E,
        path: PathBuf,
        bounds: SessionLimits,
        chime: Arc<ClientBells>,
    ) -> io::Result<Attach<E>> {
        let (files, past) = (EpollSet::new()?, ServiceCounters::default());
        let (clients, lines, ready) = (BTreeMap::new(), ClientLog::new(E::NAME), Vec::new());
        Ok(Attach {
            edge,
            path,
            bounds,
            chime,
            files,
            entrance: Entrance::default(),
            clients,
            next: 0,
            past,
            lines,
            ready,
        })
    }

    fn on_callers(&mut self, now: Instant) {
        while let Some(half) = self.entrance.next(&self.files, ChannelListener::accept) {
            while self.clients.contains_key(&u64::from(self.next)) {
                self.next = self.next.wrapping_add(1);
            }
            let number = u64::from(self.next);
            self.next = self.next.wrapping_add(1);
            let here = self.clients.values().filter(|client| !matches!(client, Client::Gone(..))).count();
            let watch = || self.files.watch(&half, number, Interest::READ);
            match admit("clients", here, CLIENTS_MAX, watch) {
                Ok(()) => drop(self.clients.insert(number, Client::Caller(half, now + GREETING))),
                Err(why) => {
                    half.refuse(&why);
                    self.lines.log_disconnect(&half, why);
                    self.past.refused += 1;
                }
            }
        }
    }

    /// Removes a client and stops watching its socket. The socket may be closed later, by another thread.
    fn remove(&mut self, number: u64) -> Option<Client<E::Chunk>> {
        let client = self.clients.remove(&number)?;
        client.forget_at(&self.files);
        Some(client)
    }

    /// Handles a readable client socket: a greeting, a wake-up, or a disconnect.
    fn on_client(&mut self, number: u64, host: &mut Host<'_>, now: Instant) {
        let free = self.bounds.sessions_max.saturating_sub(self.slots());
        match self.clients.get_mut(&number) {
            Some(Client::Caller(half, _)) => match attached(half, free) {
                Ok(None) => return,
                Ok(Some((streams, channel))) => {
                    self.chime.add(&channel);
                    self.clients.insert(number, Client::Attached(streams, channel));
                }
                Err(NotTaken::AsksFor { streams }) => {
                    self.lines.log_disconnect(
                        &*half,
                        format!("too many streams: {streams} requested, {free} free: raise `sessions`"),
                    );
                    self.past.refused += 1;
                    self.remove(number);
                    return;
                }
                Err(NotTaken::Misunderstood(error)) => {
                    // A client that only checks whether the service exists disconnects without sending a
                    // greeting.
                    if error.kind() != io::ErrorKind::ConnectionReset {
                        self.lines.log_disconnect(&*half, format!("invalid greeting: {error}"));
                    }
                    self.past.errors += 1;
                    self.remove(number);
                    return;
                }
            },
            Some(Client::Attached(_, channel)) if channel.is_gone() => {
                return self.on_gone(number, host, now);
            }
            Some(Client::Attached(..) | Client::Gone(..)) | None => {}
        }
        self.work(number, host);
    }

    /// Disconnects clients whose greeting is overdue; if `now` is `None`, disconnects all that have not sent
    /// one.
    fn remove_callers(&mut self, now: Option<Instant>) {
        let (files, lines) = (&self.files, &mut self.lines);
        self.clients.retain(|_, client| match client {
            Client::Caller(half, until) if now.is_none_or(|now| *until <= now) => {
                if now.is_some() {
                    lines.log_disconnect(&*half, format!("no greeting within {} s", GREETING.as_secs()));
                }
                client.forget_at(files);
                false
            }
            _ => true,
        });
    }

    /// Returns the number of streams reserved by clients.
    fn slots(&self) -> usize {
        let slots = |client: &Client<E::Chunk>| match client {
            Client::Caller(..) => 0,
            Client::Attached(streams, _) => streams.slots(),
            Client::Gone(streams, ..) => streams.streams(),
        };
        self.clients.values().map(slots).sum()
    }

    /// Handles a client's requests.
    fn work(&mut self, number: u64, host: &mut Host<'_>) {
        let Some(Client::Attached(streams, channel)) = self.clients.get_mut(&number) else { return };
        let result = streams.process_requests(&mut self.edge.view(host.for_client(number as u32)));
        match result {
            Ok(true) => channel.ring(machine_nanos),
            Ok(false) => {}
            Err(_) => return self.cut_off(number, host),
        }
        if self.edge.take_fault() {
            self.cut_off(number, host);
        }
    }

    /// Handles a client's disconnect. Requests that it sent earlier are still handled.
    fn on_gone(&mut self, number: u64, host: &mut Host<'_>, now: Instant) {
        let Some(Client::Attached(mut streams, _)) = self.remove(number) else { return };
        let mut view = self.edge.view(host.for_client(number as u32));
        if streams.process_requests(&mut view).is_err() {
            streams.disconnect(&mut view);
        }
        streams.detach(&mut view);
        drop(view);
        if self.edge.take_fault() {
            return self.end(number, streams, host);
        }
        let pace = Pace::new(streams.counters().bytes_out, now);
        self.clients.insert(number, Client::Gone(streams, pace));
        self.forget();
    }

    /// Disconnects a client that has violated the protocol.
    fn cut_off(&mut self, number: u64, host: &mut Host<'_>) {
        let streams = match self.remove(number) {
            Some(Client::Attached(streams, channel)) => {
                self.lines.log_disconnect(channel.socket(), "protocol error in the shared memory");
                streams
            }
            Some(Client::Gone(streams, ..)) => streams,
            _ => return,
        };
        self.past.errors += 1;
        self.end(number, streams, host);
    }

    fn end(&mut self, number: u64, mut streams: ClientStreams<E::Chunk>, host: &mut Host<'_>) {
        streams.disconnect(&mut self.edge.view(host.for_client(number as u32)));
        // The client is gone, so discard its fault.
        self.edge.take_fault();
        add(&mut self.past, &streams);
    }

    /// Passes a completion to the streams of a client.
    fn complete(&mut self, client: u32, completion: Completion, host: &mut Host<'_>) {
        let number = u64::from(client);
        self.edge.on_completion(completion, host);
        let mut view = self.edge.view(host.for_client(client));
        let result = match self.clients.get_mut(&number) {
            Some(Client::Attached(streams, channel)) => streams
                .on_completion(completion, &mut view)
                .and_then(|known| Ok((known, streams.flush_indications()?)))
                .map(|(known, notified)| {
                    if notified {
                        channel.ring(machine_nanos);
                    }
                    known
                }),
            Some(Client::Gone(streams, ..)) => streams.on_completion(completion, &mut view),
            Some(Client::Caller(..)) | None => Ok(false),
        };
        // The listener was closed after this connection had been established, so nobody will close it.
        if let (Ok(false), Completion::Accepted { stream, .. }) = (&result, completion) {
            view.abort(stream);
        }
        drop(view);
        if self.edge.take_fault() || result.is_err() {
            self.cut_off(number, host);
        }
    }

    /// Removes clients that have disconnected and have no streams left.
    fn forget(&mut self) {
        let past = &mut self.past;
        self.clients.retain(|_, client| match client {
            Client::Gone(streams, ..) if streams.is_finished() => {
                add(past, streams);
                false
            }
            _ => true,
        });
    }
}

/// A client's streams, and its channel.
type AttachedClient<C> = (ClientStreams<C>, Arc<Channel>);

/// Why a client is not admitted.
enum NotTaken {
    /// The client requested more streams than are free.
    AsksFor {
        streams: usize,
    },
    Misunderstood(io::Error),
}

/// Completes a client's greeting if it has arrived; otherwise returns `None`. `free` is the number of streams
/// that can still be reserved.
fn attached<C: Chunk>(half: &mut PendingChannel, free: usize) -> Result<Option<AttachedClient<C>>, NotTaken> {
    let (mut asked, mut layout) = (0, None);
    let accepted = half.complete_if(0..=MEMORY_BYTES_MAX, |hello, bytes| {
        let its = parse_greeting(hello).map_err(|error| error.to_string())?;
        if bytes < its.bytes() {
            return Err("the requested memory is too small for the requested streams".into());
        }
        asked = its.slots();
        if asked > free {
            return Err(format!("too many streams: {asked} requested, {free} free: raise `sessions`"));
        }
        layout = Some(its);
        Ok(())
    });
    match (accepted, layout) {
        (Ok(Some(channel)), Some(layout)) => {
            Ok(Some((ClientStreams::new(channel.region(), layout), Arc::new(channel))))
        }
        (Ok(_), _) => Ok(None),
        (Err(_), _) if asked > free => Err(NotTaken::AsksFor { streams: asked }),
        (Err(error), _) => Err(NotTaken::Misunderstood(error)),
    }
}

/// Adds a client's counters.
fn add<C: Chunk>(counters: &mut ServiceCounters, streams: &ClientStreams<C>) {
    let own = streams.counters();
    counters.accepted += own.opened + own.accepted;
    counters.refused += own.refused;
    counters.ended += own.ended;
    counters.aborted += own.reset;
    counters.bytes_in += own.bytes_in;
    counters.bytes_out += own.bytes_out;
    counters.errors += own.invalid_requests;
}

impl<E: Edge> Service for Attach<E> {
    fn start(&mut self, _: &mut Host<'_>, _: Instant) -> Result<(), String> {
        self.entrance.open_at(&self.path, &self.files, ChannelListener::open_at)
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        self.complete(host.consumer().client, completion, host);
        if matches!(completion, Completion::Writable { .. } | Completion::Ended { .. }) {
            self.forget();
        }
    }

    fn look(&mut self, host: &mut Host<'_>, now: Instant) {
        self.entrance.look(&self.files);
        for (number, client) in &mut self.clients {
            let Client::Gone(streams, pace) = client else { continue };
            if pace.is_slow(streams.counters().bytes_out, LINGER, now) {
                streams.disconnect(&mut self.edge.view(host.for_client(*number as u32)));
            }
        }
        for (client, stream) in self.edge.due(now) {
            self.complete(client, Completion::Readable { stream }, host);
        }
        self.remove_callers(Some(now));
        self.forget();
    }

    fn close(&mut self, _: &mut Host<'_>) {
        self.entrance.close();
        self.remove_callers(None);
    }

    fn cut(&mut self, host: &mut Host<'_>) {
        for (number, client) in std::mem::take(&mut self.clients) {
            client.forget_at(&self.files);
            if let Client::Attached(streams, _) | Client::Gone(streams, ..) = client {
                self.end(number, streams, host);
            }
        }
    }

    fn sessions(&self) -> usize {
        let streams = |client: &Client<E::Chunk>| match client {
            Client::Caller(..) => 0,
            Client::Attached(streams, _) | Client::Gone(streams, ..) => streams.streams(),
        };
        self.clients.values().map(streams).sum()
    }

    fn counters(&self) -> ServiceCounters {
        let mut counters = self.past;
        for client in self.clients.values() {
            if let Client::Attached(streams, _) | Client::Gone(streams, ..) = client {
                add(&mut counters, streams);
            }
        }
        counters
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.files.as_fd())
    }

    fn is_ready(&self) -> bool {
        let asks =
            |client: &Client<E::Chunk>| matches!(client, Client::Attached(streams, _) if streams.is_ready());
        self.edge.has_spent() || self.clients.values().any(asks)
    }

    fn on_file(&mut self, host: &mut Host<'_>, now: Instant) {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        self.files.ready(&mut ready);
        for number in &ready {
            match *number {
                LISTENER => self.on_callers(now),
                number => self.on_client(number, host, now),
            }
        }
        self.ready = ready;
        let asks =
            |client: &Client<E::Chunk>| matches!(client, Client::Attached(streams, _) if streams.is_ready());
        let asking: Vec<u64> =
            self.clients.iter().filter(|(_, client)| asks(client)).map(|(number, _)| *number).collect();
        asking.into_iter().for_each(|number| self.work(number, host));
        if self.edge.has_spent() {
            for (client, stream) in self.edge.begin_turn() {
                self.complete(client, Completion::Writable { stream }, host);
            }
            self.forget();
        }
    }
}
