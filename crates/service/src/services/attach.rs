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
//! Shards           on a divided board, each shard has a part of the service. A client has a channel to each,
//!                  which its part serves alone. Shard 0 takes the greetings, and passes the further channels
//!                  of a client on ([`ShardLink`]): those whose greeting has the token that it has given the
//!                  client with the first. A client that violates the protocol on one channel loses all.
//! End              when a client exits or disconnects, its streams are closed. Data that it has already
//!                  written is still sent, as long as its peers read at `MINIMUM_RATE`, and unless TCP holds
//!                  data that it has not read (see `Provider::close`). A client that violates the protocol is
//!                  disconnected, and all its streams are reset.
//! Limits           `CLIENTS_MAX` clients, and `sessions` streams for all clients together, of which each
//!                  shard has an even part. A client reserves its streams when it attaches: on each shard
//!                  those of its channel ([`Greeting::layout`]). Further clients are counted, and refused
//!                  with the reason. A client gets one channel to each shard.

use super::clients::{Entrance, LISTENER, admit};
use super::counters::ServiceCounters;
use super::pace::Pace;
use super::service::{Service, SessionLimits};
use super::shard_link::{ITEMS_PER_TURN, ShardLink};
use kiban_base::{Instant, Slice};
use kiban_board::streams::{Chunk, ClientStreams, Provider};
use kiban_board::{Completion, Host, StreamId};
use kiban_link::{EpollSet, Interest};
use kiban_os::channel::{Channel, ChannelListener, PendingChannel};
use kiban_os::clock::machine_nanos;
use kiban_os::lines::ClientLog;
use kiban_os::lock;
use kiban_os::random;
use kiban_os::wait::Doorbell;
use kiban_streams::call::memory_bytes;
use kiban_streams::{Answer, Greeting, TOKEN_BYTES};
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
/// Limit on the memory shared with one client, in bytes. Further channels have only what they use.
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

/// What the parts of the service on the shards of a board pass to each other.
pub(super) enum Handed {
    /// A further channel of a client of shard 0. Its greeting has arrived.
    Channel(u64, PendingChannel),
    /// A client has violated the protocol. Other shards inform shard 0, which informs all of them, after it
    /// has passed them the client's channels.
    CutOff(u64),
}

/// The further channels of a client.
struct FurtherChannels {
    token: [u8; TOKEN_BYTES],
    /// Whether each shard has its channel.
    given: Vec<bool>,
}

/// The service.
pub struct Attach<E: Edge = Tcp> {
    edge: E,
    path: PathBuf,
    bounds: SessionLimits,
    chime: Arc<ClientBells>,
    files: EpollSet,
    entrance: Entrance<ChannelListener>,
    /// The parts on other shards, if the board is divided.
    link: Option<ShardLink<Handed>>,
    is_closed: bool,
    clients: BTreeMap<u64, Client<E::Chunk>>,
    /// On shard 0 of a divided board, the further channels of attached clients.
    further: BTreeMap<u64, FurtherChannels>,
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
            link: None,
            is_closed: false,
            clients,
            further: BTreeMap::new(),
            next: 0,
            past,
            lines,
            ready,
        })
    }

    /// Makes this the part of the service on one shard of a board. Of the parts, only shard 0's listens.
    #[must_use]
    pub(super) fn with_link(self, link: Option<ShardLink<Handed>>) -> Attach<E> {
        Attach { link, ..self }
    }

    fn is_first_shard(&self) -> bool {
        self.link.as_ref().is_none_or(|link| link.number() == 0)
    }

    /// Returns the number of clients that have not disconnected.
    fn clients_here(&self) -> usize {
        self.clients.values().filter(|client| !matches!(client, Client::Gone(..))).count()
    }

    fn on_callers(&mut self, now: Instant) {
        while let Some(half) = self.entrance.next(&self.files, ChannelListener::accept) {
            while self.clients.contains_key(&u64::from(self.next)) {
                self.next = self.next.wrapping_add(1);
            }
            let number = u64::from(self.next);
            self.next = self.next.wrapping_add(1);
            match self.watch_caller(number, &half) {
                Ok(()) => drop(self.clients.insert(number, Client::Caller(half, now + GREETING))),
                Err(why) => self.refuse(&half, &why),
            }
        }
    }

    fn watch_caller(&self, number: u64, half: &PendingChannel) -> Result<(), String> {
        let watch = || self.files.watch(half, number, Interest::READ);
        admit("clients", self.clients_here(), CLIENTS_MAX, watch)
    }

    fn refuse(&mut self, half: &PendingChannel, why: &str) {
        half.refuse(why);
        self.lines.log_disconnect(half, why);
        self.past.refused += 1;
    }

    /// Removes a client and stops watching its socket. The socket may be closed later, by another thread.
    fn remove(&mut self, number: u64) -> Option<Client<E::Chunk>> {
        let client = self.clients.remove(&number)?;
        self.further.remove(&number);
        client.forget_at(&self.files);
        Some(client)
    }

    /// Handles a readable client socket: a greeting, a wake-up, or a disconnect.
    fn on_client(&mut self, number: u64, host: &mut Host<'_>, now: Instant) {
        match self.clients.get_mut(&number) {
            Some(Client::Caller(half, _)) => {
                let greeting = match half.caller().map(|hello| hello.map(Greeting::from_bytes)) {
                    Ok(None) => return,
                    Ok(Some(greeting)) => greeting.inspect_err(|error| half.refuse(&error.to_string())),
                    Err(error) => Err(error),
                };
                let Some(Client::Caller(half, _)) = self.clients.remove(&number) else { return };
                self.on_greeting(number, half, greeting);
            }
            Some(Client::Attached(_, channel)) if channel.is_gone() => {
                return self.on_gone(number, host, now);
            }
            Some(Client::Attached(..) | Client::Gone(..)) | None => {}
        }
        self.work(number, host);
    }

    fn on_greeting(&mut self, number: u64, half: PendingChannel, greeting: io::Result<Greeting>) {
        match greeting {
            Ok(greeting @ Greeting { further: None, .. }) => return self.attach(number, half, &greeting),
            Ok(Greeting { further: Some((shard, token)), .. }) => {
                let _ = self.files.forget(&half);
                return self.pass_on(half, shard.into(), token);
            }
            // A client that only checks whether the service exists disconnects without sending a greeting.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => self.lines.log_disconnect(&half, format!("invalid greeting: {error}")),
        }
        let _ = self.files.forget(&half);
        self.past.errors += 1;
    }

    /// Attaches a client whose greeting has arrived and whose socket is watched under its number.
    fn attach(&mut self, number: u64, mut half: PendingChannel, greeting: &Greeting) {
        let shards = self.link.as_ref().map_or(1, ShardLink::parts);
        let free = self.bounds.sessions_max.saturating_sub(self.slots());
        let layout = greeting.layout(shards).expect("the greeting is valid");
        let mut token = greeting.further.map(|(_, token)| token);
        let mut is_full = false;
        let bytes_max = greeting.further.map_or(MEMORY_BYTES_MAX, |_| memory_bytes(layout));
        let accepted = half.complete_if(0..=bytes_max, |_, bytes| {
            if bytes < layout.bytes() {
                return Err("the requested memory is too small for the requested streams".into());
            }
            let streams = layout.slots();
            is_full = streams > free;
            if is_full {
                return Err(format!("too many streams: {streams} requested, {free} free: raise `sessions`"));
            }
            if shards > 1 && token.is_none() {
                token = Some(random::bytes().map_err(|error| error.to_string())?);
            }
            Ok(token.map_or_else(Vec::new, |token| Answer { shards: shards as u16, token }.to_bytes()))
        });
        match accepted {
            Ok(Some(channel)) => {
                let channel = Arc::new(channel);
                self.chime.add(&channel);
                let streams = ClientStreams::new(channel.region(), layout);
                self.clients.insert(number, Client::Attached(streams, channel));
                if let (Some(token), None) = (token, greeting.further) {
                    let given = (0..shards).map(|shard| shard == 0).collect();
                    self.further.insert(number, FurtherChannels { token, given });
                }
            }
            // Its message has arrived, so this does not happen.
            Ok(None) => {}
            Err(error) => {
                let _ = self.files.forget(&half);
                if is_full {
                    self.lines.log_disconnect(&half, error);
                    self.past.refused += 1;
                } else {
                    self.lines.log_disconnect(&half, format!("invalid greeting: {error}"));
                    self.past.errors += 1;
                }
            }
        }
    }

    /// Passes a further channel of a client on to its shard.
    fn pass_on(&mut self, half: PendingChannel, shard: usize, token: [u8; TOKEN_BYTES]) {
        let client = self.further.iter_mut().find(|(_, further)| further.token == token);
        let why = match (client, &self.link) {
            (Some((number, further)), Some(link)) if further.given.get(shard) == Some(&false) => {
                if link.has_room(shard) {
                    further.given[shard] = true;
                    return link.pass(shard, Handed::Channel(*number, half));
                }
                "too many clients wait for this shard"
            }
            _ => "invalid greeting: there is no such channel, or it exists already",
        };
        self.refuse(&half, why);
    }

    fn take_handed(&mut self, host: &mut Host<'_>) {
        for _ in 0..ITEMS_PER_TURN {
            match self.link.as_ref().and_then(ShardLink::take) {
                None => return,
                Some(Handed::Channel(number, half)) => {
                    self.on_channel(number, half);
                    self.work(number, host);
                }
                Some(Handed::CutOff(number)) => {
                    self.end_client(number, host);
                    if self.is_first_shard() {
                        self.pass_cut_off(number);
                    }
                }
            }
        }
    }

    /// Handles a further channel of a client of shard 0.
    fn on_channel(&mut self, number: u64, mut half: PendingChannel) {
        let Ok(Some(Ok(greeting))) = half.caller().map(|hello| hello.map(Greeting::from_bytes)) else {
            return;
        };
        let watched = match self.is_closed || self.clients.contains_key(&number) {
            true => Err("the service is closed".into()),
            false => self.watch_caller(number, &half),
        };
        match watched {
            Ok(()) => self.attach(number, half, &greeting),
            Err(why) => self.refuse(&half, &why),
        }
    }

    /// Informs the other shards that a client has violated the protocol.
    fn pass_cut_off(&self, number: u64) {
        match &self.link {
            Some(link) if link.number() == 0 => link.pass_to_all(|| Handed::CutOff(number)),
            Some(link) => link.pass(0, Handed::CutOff(number)),
            None => {}
        }
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
        match self.clients.get(&number) {
            Some(Client::Attached(_, channel)) => {
                self.lines.log_disconnect(channel.socket(), "protocol error in the shared memory");
            }
            Some(Client::Gone(..)) => {}
            _ => return,
        }
        self.past.errors += 1;
        self.end_client(number, host);
        self.pass_cut_off(number);
    }

    /// Resets all streams of a client.
    fn end_client(&mut self, number: u64, host: &mut Host<'_>) {
        if let Some(Client::Attached(streams, _) | Client::Gone(streams, ..)) = self.remove(number) {
            self.end(number, streams, host);
        }
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
        if !self.is_first_shard() {
            return Ok(());
        }
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
        self.is_closed = true;
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
        let has_handed = self.link.as_ref().is_some_and(ShardLink::has_waiting);
        has_handed || self.edge.has_spent() || self.clients.values().any(asks)
    }

    fn on_file(&mut self, host: &mut Host<'_>, now: Instant) {
        self.take_handed(host);
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
