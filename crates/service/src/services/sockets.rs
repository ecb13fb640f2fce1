//! The board's sockets for unmodified programs on this host (`kiban run`, preload/board/).
//!
//! Socket           `NAME.sockets`, in the same directory as the control socket: a SOCK_SEQPACKET socket that
//!                  takes one request per connection, in the protocol of [`kiban_board::streams`]. The answer
//!                  carries a descriptor, which replaces the program's socket.
//! Streams          the descriptor is one end of a pair of Unix sockets; a relay moves the bytes. Until the
//!                  stream is open, the program cannot write, just as on a TCP socket that is still
//!                  connecting: its send buffer is filled with bytes that the relay later skips.
//! Fast Open        a request may carry the first data, which leaves in the SYN if the board has the server's
//!                  cookie. Without data, the SYN then waits until the program writes.
//! Listeners        the descriptor is one end of a pair of SOCK_SEQPACKET sockets; each packet announces a
//!                  connection and carries the socket for its stream. Listeners of one user that all have
//!                  SO_REUSEPORT can share an address; a hash of the addresses of a connection selects its
//!                  listener. When a listener closes, connections that it has not accepted are reset.
//! End              if a stream cannot be opened, the address of the board's end holds the reason, apart from
//!                  the stream's data. A reset makes the program's socket report a hang-up, while a FIN ends
//!                  one direction. To a program that has already sent its own FIN, the two look the same, so
//!                  it queries the board ([`Request::QueryEnd`]).
//! Datagrams        the connection that carries the request becomes the program's socket
//!                  ([`super::datagrams`]).
//! Shards           on a divided board, each shard has a part of the service, with the relays of its own
//!                  streams. Shard 0 takes the requests and passes each on to the shard that it concerns
//!                  ([`ShardLink`]): those to connect in turn, those about a stream to the shard of its flow.
//!                  All shards listen; each sends the connections of its flows to the program itself.
//!                  Datagram sockets are on shard 0, and the other shards have copies.
//! Listen           a request passes through the shards in turn, and shard 0, which has checked it first, is
//!                  the last to listen: a handshake never begins on shard 0, for a shard that does not listen
//!                  yet, and ends on that shard.
//! Channels         a program that gives up root can no longer connect to the socket. It has opened a channel
//!                  before, on which it gets connections from the board ([`Request::Channel`]). At most
//!                  `CHANNEL_ASKERS_MAX` connections of a channel wait for their requests. Then it has to
//!                  wait until there is a request, or until one has been idle for `IDLE_TIME`, which is
//!                  disconnected. Connections over channels take no places of those by path.
//! Access           the user who runs the board, and root. Over a channel, a request names only sockets of
//!                  which the client has descriptors ([`tokens`]). The board accepts no descriptors from
//!                  programs. If a program sends any, another thread closes them ([`kiban_os::unix`]).

use super::clients::{Entrance, LISTENER, admit, process_of, user_of};
use super::counters::ServiceCounters;
use super::datagrams::{Change, Datagrams};
use super::options::StreamOptions;
use super::relay::{Begin, Relays, name_socket};
use super::service::{Service, SessionLimits};
use super::shard_link::{ITEMS_PER_TURN, ShardLink};
use super::tokens::{self, Access, Token};
use kiban_attach::{
    ENTRY_BYTES, EndReason, FAST_OPEN_BYTES_MAX, Indication, Request, SYN_WAITS, Sharing, StreamOption,
};
use kiban_base::Instant;
use kiban_board::{Completion, Host, Owner, Steering, StreamId};
use kiban_link::{EpollSet, Interest};
use kiban_os::Waker;
use kiban_os::limit;
use kiban_os::lines::ClientLog;
use kiban_os::unix::{Listener as UnixListener, Peer};
use kiban_tcpip::tcp::CongestionControl;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const RELAYS: u64 = 1 << 62;
/// The maximum number of concurrent requests by path, and of those over channels; and the timeout of each.
const ASKERS_MAX: usize = 256;
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum number of concurrent requests over one channel. If there are as many, one that has not been
/// sent within this time makes room.
const CHANNEL_ASKERS_MAX: usize = 16;
const IDLE_TIME: Duration = Duration::from_secs(1);
/// The maximum number of channels.
const CHANNELS_MAX: usize = 256;
/// Open files that are not sessions or listeners: links, requests and channels.
const OTHER_FILES: u64 = 512;
/// The number of sessions however few files the process may open.
const SESSIONS_MIN: usize = 16;
/// The maximum number of clients accepted in one call.
const CALLERS_MAX: usize = 64;
/// The maximum number of pending Fast Open connections of a listener (Linux: `net.core.somaxconn`).
const FAST_OPEN_PENDING_MAX: u32 = 4096;

/// The address of a listener. Those of one user that are equal, and shared, may have the same address.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ListenAt {
    local: SocketAddr,
    /// Whether `::` includes only IPv6.
    v6_only: bool,
    /// The user whose listeners may have the same address; `None` if it is not shared.
    shared_by: Option<u32>,
}

/// A program's listener.
struct ProgramListener {
    /// The number of the listener on the board.
    number: u32,
    place: ListenAt,
    token: Token,
    /// The options that its connections inherit.
    options: StreamOptions,
    /// The board's end of the pair; the program holds the other end. All shards send connections on it, and
    /// shard 0 watches for its end.
    socket: Arc<Peer>,
}

/// A client that has not sent its request.
struct Asker {
    socket: Peer,
    owner: Owner,
    until: Instant,
    /// The channel over which it has received its connection.
    channel: Option<u64>,
}

/// A connection on which clients get others.
struct Channel {
    socket: Arc<Peer>,
    owner: Owner,
    /// Whether it is not watched, because its clients have all places.
    is_paused: bool,
}

/// A client that has sent its request.
struct Caller {
    /// The number under which its connection was watched.
    number: u64,
    socket: Peer,
    owner: Owner,
}

/// A request to listen, on its way through the shards.
struct NewListener {
    caller: Caller,
    /// The listener's number on all shards.
    number: u64,
    place: ListenAt,
    token: Token,
    ours: Arc<Peer>,
    theirs: OwnedFd,
}

/// A new remote address of a datagram socket, on its way through the shards. Once all know it, the socket
/// receives from no other.
struct RemoteChange {
    /// The client, with the number of the socket.
    caller: Caller,
    /// The address from which the socket sends.
    local: SocketAddr,
    remote: Option<SocketAddr>,
}

/// What the parts of the service on the shards of a board pass to each other.
enum Handed {
    /// A request that concerns the shard; the data is that of TCP Fast Open, or the token of a socket.
    Request(Caller, Request, Vec<u8>),
    Listen(NewListener),
    /// A listener has been closed.
    Unlisten(u64),
    /// An option of the listeners at an address.
    SetOption(SocketAddr, StreamOption, u32),
    /// A change of shard 0's datagram sockets.
    Datagrams(Change),
    SetRemote(RemoteChange),
    /// For shard 0: another shard cannot take the datagrams of this socket.
    NotTaken(u64),
}

/// The link of the part of the service on one shard to the others.
pub(super) struct Link {
    link: ShardLink<Handed>,
    /// The hash that spreads datagrams over sockets is the same on all shards.
    hash: RandomState,
}

impl Link {
    /// Returns the links of all parts; `wakers` are those of the shards' drivers.
    pub(super) fn between(steering: Steering, wakers: &[Waker]) -> Vec<Link> {
        let hash = RandomState::new();
        let links = ShardLink::between(steering, wakers).into_iter();
        links.map(|link| Link { link, hash: hash.clone() }).collect()
    }
}

/// The service.
pub struct Sockets {
    path: PathBuf,
    bounds: SessionLimits,
    files: EpollSet,
    entrance: Entrance<UnixListener>,
    askers: BTreeMap<u64, Asker>,
    channels: BTreeMap<u64, Channel>,
    /// The parts on other shards, if the board is divided.
    link: Option<ShardLink<Handed>>,
    /// The shard to which the next stream is passed.
    next_shard: usize,
    is_closed: bool,
    listeners: BTreeMap<u64, ProgramListener>,
    relays: Relays,
    datagrams: Datagrams,
    /// Spreads connections over the listeners that share an address.
    hash: RandomState,
    next: u64,
    counters: ServiceCounters,
    lines: ClientLog,
    ready: Vec<u64>,
}

/// Returns the sessions of one of `parts` for which a process that may open `files` has room. There can be as
/// many listeners.
fn sessions_by_files(files: u64, parts: usize) -> usize {
    let rest = usize::try_from(files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
    (rest / 2 / parts).max(SESSIONS_MIN)
}

fn packets() -> SocketFlags {
    SocketFlags::CLOEXEC | SocketFlags::NONBLOCK
}

impl Sockets {
    /// Returns a service that will listen at `path`, or with `link` its part on one shard of a board. Of the
    /// parts, only shard 0's listens.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub(super) fn new(path: PathBuf, bounds: SessionLimits, link: Option<Link>) -> io::Result<Sockets> {
        let (link, hash) = link.map(|Link { link, hash }| (link, hash)).unzip();
        let hash = hash.unwrap_or_default();
        let shard = link.as_ref().map_or((0, 1), |link: &ShardLink<_>| (link.number(), link.parts()));
        let sessions_max = bounds.sessions_max.min(sessions_by_files(limit::current(), shard.1));
        if sessions_max < bounds.sessions_max {
            tracing::warn!(sessions_max, "fewer `sessions`: the process may open too few files (ulimit -Hn)");
        }
        let bounds = SessionLimits { sessions_max, ..bounds };
        Ok(Sockets {
            path,
            bounds,
            files: EpollSet::new()?,
            entrance: Entrance::default(),
            askers: BTreeMap::new(),
            channels: BTreeMap::new(),
            link,
            next_shard: 0,
            is_closed: false,
            listeners: BTreeMap::new(),
            relays: Relays::new(RELAYS, bounds.sessions_max),
            datagrams: Datagrams::new(shard, hash.clone()),
            hash,
            next: 0,
            counters: ServiceCounters::default(),
            lines: ClientLog::new("sockets"),
            ready: Vec::new(),
        })
    }

    fn is_first_shard(&self) -> bool {
        self.link.as_ref().is_none_or(|link| link.number() == 0)
    }

    fn on_door(&mut self, now: Instant) {
        for _ in 0..CALLERS_MAX {
            let Some(socket) = self.entrance.next(&self.files, UnixListener::accept) else { return };
            let owner = Owner::process(process_of(&socket));
            self.add_asker(socket, owner, None, now);
        }
    }

    /// Waits for the request of a client. Returns whether the client is admitted.
    fn add_asker(&mut self, socket: Peer, owner: Owner, channel: Option<u64>, now: Instant) -> bool {
        let number = self.next;
        self.next += 1;
        let watch = || self.files.watch(&socket, number, Interest::READ);
        let others = self.askers.values().filter(|asker| asker.channel.is_some() == channel.is_some());
        if let Err(why) = admit("requests", others.count(), ASKERS_MAX, watch) {
            self.lines.log_disconnect(socket.connected(), why);
            self.counters.refused += 1;
            return false;
        }
        self.askers.insert(number, Asker { socket, owner, until: now + PATIENCE, channel });
        true
    }

    /// Turns a client's connection into a channel.
    fn add_channel(&mut self, Caller { number, socket, owner }: Caller) {
        let watch = || self.files.watch(&socket, number, Interest::READ);
        match admit("channels", self.channels.len(), CHANNELS_MAX, watch) {
            Ok(()) => {
                let channel = Channel { socket: Arc::new(socket), owner, is_paused: false };
                self.channels.insert(number, channel);
            }
            Err(why) => {
                self.lines.log_disconnect(socket.connected(), why);
                self.counters.refused += 1;
            }
        }
    }

    /// Returns whether there is room for another connection over a channel. If necessary, disconnects one
    /// that has been idle.
    fn has_room_over(&mut self, channel: u64, now: Instant) -> bool {
        let mut counts = BTreeMap::<u64, usize>::new();
        for channel in self.askers.values().filter_map(|asker| asker.channel) {
            *counts.entry(channel).or_default() += 1;
        }
        let full = match counts.get(&channel) {
            Some(&own) if own >= CHANNEL_ASKERS_MAX => channel,
            _ if counts.values().sum::<usize>() < ASKERS_MAX => return true,
            _ => counts.iter().max_by_key(|(_, count)| **count).map_or(channel, |(&most, _)| most),
        };
        let oldest = self.askers.iter().find(|(_, asker)| asker.channel == Some(full));
        let idle = oldest.filter(|(_, asker)| asker.until <= now + (PATIENCE - IDLE_TIME));
        let Some((&idle, Asker { socket, .. })) = idle else { return false };
        let why = format!("no request within {} s, and others wait", IDLE_TIME.as_secs());
        self.lines.log_disconnect(socket.connected(), why);
        let _ = self.files.forget(socket);
        self.askers.remove(&idle);
        true
    }

    /// Watches channels again that had to wait for room.
    fn resume_channels(&mut self) {
        for (&number, channel) in self.channels.iter_mut().filter(|(_, channel)| channel.is_paused) {
            channel.is_paused = self.files.watch(&*channel.socket, number, Interest::READ).is_err();
        }
    }

    /// Handles a request for a connection on a channel, or the channel's end.
    fn on_channel(&mut self, number: u64, now: Instant) {
        let has_room = self.has_room_over(number, now);
        let Some(Channel { socket, owner, is_paused }) = self.channels.get_mut(&number) else { return };
        if !has_room {
            *is_paused = self.files.forget(&**socket).is_ok();
            return;
        }
        let (channel, owner) = (socket.clone(), *owner);
        let mut entry = [0; ENTRY_BYTES];
        let rule = match channel.receive(&mut entry) {
            Ok(ENTRY_BYTES) if Request::read(&entry) == Some(Request::Channel) => {
                let pair =
                    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, packets(), None);
                let made = pair.map_err(io::Error::from).and_then(|(ours, theirs)| {
                    let ours = Peer::over(channel.clone(), ours)?;
                    Ok(self.add_asker(ours, owner, Some(number), now).then_some(theirs))
                });
                let (reply, file) = match made.ok().flatten() {
                    Some(file) => (Indication::Option { value: 0 }, Some(file)),
                    None => (Indication::Ended { slot: 0, why: EndReason::TooMany }, None),
                };
                // If replies that no process has received fill the channel, the client receives one of those.
                let _ = send_indication(channel.as_fd(), reply, file.as_ref());
                return;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(0) => None,
            // It has ended with a reply that no process has received.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => None,
            Ok(_) => Some("invalid request".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(rule) = rule {
            self.lines.log_disconnect(&*channel, rule);
            self.counters.errors += 1;
        }
        let _ = self.files.forget(&*channel);
        self.channels.remove(&number);
    }

    /// Disconnects clients whose request is overdue; if `now` is `None`, disconnects all that have not sent
    /// one.
    fn remove_askers(&mut self, now: Option<Instant>) {
        let (files, lines) = (&self.files, &mut self.lines);
        self.askers.retain(|_, Asker { socket, until, .. }| {
            let stays = now.is_some_and(|now| *until > now);
            if !stays {
                if now.is_some() {
                    lines.log_disconnect(
                        socket.connected(),
                        format!("no request within {} s", PATIENCE.as_secs()),
                    );
                }
                let _ = files.forget(&*socket);
            }
            stays
        });
    }

    /// Handles a client that has sent its request or has disconnected.
    fn on_asker(&mut self, number: u64, host: &mut Host<'_>, now: Instant) {
        let Some(Asker { socket, owner, channel, .. }) = self.askers.remove(&number) else { return };
        if channel.is_some() {
            self.resume_channels();
        }
        // The socket may be closed later, by another thread, so stop watching it now.
        let _ = self.files.forget(&socket);
        let mut packet = [0; ENTRY_BYTES + FAST_OPEN_BYTES_MAX];
        let received = socket.receive(&mut packet);
        let (ask, data) = match packet[..*received.as_ref().unwrap_or(&0)].split_first_chunk() {
            Some((entry, data)) => {
                let may_follow = |ask: &Request| match ask {
                    _ if data.is_empty() => true,
                    Request::ConnectFast { .. } => true,
                    // The token of a socket.
                    Request::Bind { .. }
                    | Request::SetRemote { .. }
                    | Request::QueryRemote { .. }
                    | Request::Member { .. }
                    | Request::QueryEnd { .. }
                    | Request::SetOption { .. }
                    | Request::QueryOption { .. }
                    | Request::QueryInfo { .. } => data.len() == size_of::<Token>(),
                    _ => false,
                };
                (Request::read(entry).filter(may_follow), data)
            }
            None => (None, &[][..]),
        };
        let Some(ask) = ask else {
            match received {
                // A client that only checks whether the service exists disconnects without sending a request.
                Ok(0) => return,
                Ok(_) => self.lines.log_disconnect(socket.connected(), "invalid request"),
                Err(error) => self.lines.log_disconnect(socket.connected(), error),
            }
            self.counters.errors += 1;
            return;
        };
        let caller = Caller { number, socket, owner };
        let Some(shard) = self.shard_of(&ask, host) else { return self.answer(caller, ask, data, host, now) };
        match &self.link {
            Some(link) if link.has_room(shard) => {
                link.pass(shard, Handed::Request(caller, ask, data.to_vec()));
            }
            _ => {
                self.lines.log_disconnect(
                    caller.socket.connected(),
                    format!("too many requests wait for shard {shard}"),
                );
                self.counters.refused += 1;
            }
        }
    }

    /// Returns the other shard that a request concerns.
    fn shard_of(&mut self, ask: &Request, host: &Host<'_>) -> Option<usize> {
        let link = self.link.as_ref()?;
        let shard = match *ask {
            Request::Connect { local, remote, .. } | Request::ConnectFast { local, remote, .. } => {
                match local.filter(|local| local.port() != 0) {
                    // Without a route, shard 0 refuses the request.
                    Some(local) => host.other_shard_of(local, remote)?.into(),
                    None => {
                        self.next_shard = (self.next_shard + 1) % link.parts();
                        self.next_shard
                    }
                }
            }
            Request::QueryEnd { local, remote }
            | Request::QueryInfo { local, remote }
            | Request::SetOption { local, remote: Some(remote), .. }
            | Request::QueryOption { local, remote: Some(remote), .. } => {
                // Once shard 0 has used up its own ports to a destination, it opens streams from others.
                let ends = (local, remote);
                let is_here = self.relays.options(ends, Access::All).is_some()
                    || self.relays.fate(ends, Access::All) != EndReason::Closed;
                if is_here { 0 } else { link.steering().of_flow(local, remote) }
            }
            _ => 0,
        };
        (shard != link.number()).then_some(shard)
    }

    /// Carries out a client's request.
    fn answer(&mut self, caller: Caller, ask: Request, data: &[u8], host: &mut Host<'_>, now: Instant) {
        let Caller { number, socket, owner } = caller;
        let user = || user_of(socket.connected());
        let access = Access::of(&socket, data);
        let (indication, file) = match ask {
            Request::Connect { local, remote, traffic_class, .. } => {
                self.connect((owner, local, remote), traffic_class, None, host, now)
            }
            Request::ConnectFast { local, remote, traffic_class } => {
                self.connect((owner, local, remote), traffic_class, Some(data), host, now)
            }
            Request::Channel if !socket.is_over_another() => {
                return self.add_channel(Caller { number, socket, owner });
            }
            Request::Listen { local, shares, v6_only, .. } => {
                let shared_by = if shares { user() } else { None };
                let place = ListenAt { local, v6_only, shared_by };
                return self.begin_to_listen(Caller { number, socket, owner }, place, host);
            }
            Request::Bind { local, remote, shares } => {
                return self.bind((number, socket, tokens::read(data)), (local, remote, shares), host);
            }
            Request::SetRemote { local, tag, remote } => {
                match (self.datagrams.set_remote((local, tag), (user(), access), remote, host), &self.link) {
                    (Ok((number, local)), Some(_)) => {
                        self.pass_changes();
                        let caller = Caller { number, socket, owner };
                        return self.pass_remote(RemoteChange { caller, local, remote });
                    }
                    (Ok((_, local)), None) => (Indication::Opened { slot: 0, local }, None),
                    (Err(why), _) => (Indication::Ended { slot: 0, why }, None),
                }
            }
            Request::QueryRemote { local, tag } => {
                (self.datagrams.query_remote((local, tag), (user(), access)), None)
            }
            Request::Member { local, tag, group, joins } => {
                let member = (group.ip(), joins);
                (self.datagrams.set_member((local, tag), (user(), access), member, host), None)
            }
            Request::QueryEnd { local, remote } => {
                (Indication::Ended { slot: 0, why: self.relays.fate((local, remote), access) }, None)
            }
            Request::SetOption { local, remote, option, value } => {
                self.set_option((local, remote, access), (option, value), host, now);
                (Indication::Option { value }, None)
            }
            Request::QueryOption { option: StreamOption::Congestion, .. } => {
                let value = match host.congestion_control() {
                    CongestionControl::Cubic => 0,
                    CongestionControl::Reno => 1,
                };
                (Indication::Option { value }, None)
            }
            Request::QueryOption { local, remote, option } => {
                let options = match remote {
                    Some(remote) => self.relays.options((local, remote), access).map(|(_, options)| options),
                    None => self.listener_at(local, access).map(|listener| listener.options),
                };
                (Indication::Option { value: options.unwrap_or_default().value(option) }, None)
            }
            Request::QueryInfo { local, remote } => {
                let stream = self.relays.options((local, remote), access).map(|(stream, _)| stream);
                let info = stream
                    .and_then(|stream| host.info(stream).ok())
                    .map(|info| kiban_board::streams::tcp_info(&info, now));
                let entry = Indication::Option { value: 0 }.bytes();
                let reply = [&entry[..], info.as_ref().map_or(&[], |info| &info[..])].concat();
                let _ = rustix::net::send(&socket, &reply, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
                return;
            }
            _ => {
                self.lines.log_disconnect(socket.connected(), "invalid request");
                self.counters.errors += 1;
                return;
            }
        };
        // If the client has disconnected, the socket created for it is closed.
        let _ = send_indication(socket.as_fd(), indication, file.as_ref());
    }

    /// Turns a client's connection into a datagram socket.
    fn bind(
        &mut self,
        caller: (u64, Peer, Token),
        ends: (SocketAddr, Option<SocketAddr>, Sharing),
        host: &mut Host<'_>,
    ) {
        let bound = match self.sessions() < self.bounds.sessions_max {
            true => self.datagrams.bind(caller, ends, host, &self.files),
            false => Err((caller.1, EndReason::TooMany)),
        };
        match bound {
            Ok(()) => self.counters.accepted += 1,
            Err((socket, why)) => {
                self.counters.refused += u64::from(why == EndReason::TooMany);
                let refused = Indication::Listening { listener: 0, result: Err(why) };
                // If the client has disconnected, it needs no reply.
                let _ = send_indication(socket.as_fd(), refused, None);
            }
        }
    }

    /// Opens a stream, with TCP Fast Open if `fast` has a value, which is its first data. Returns the answer
    /// and the program's socket.
    fn connect(
        &mut self,
        ends: (Owner, Option<SocketAddr>, SocketAddr),
        traffic_class: u8,
        fast: Option<&[u8]>,
        host: &mut Host<'_>,
        now: Instant,
    ) -> (Indication, Option<OwnedFd>) {
        match self.open(ends, traffic_class, fast, host, now) {
            Ok((slot, local, file)) => (Indication::Opened { slot, local }, Some(file)),
            Err(why) => (Indication::Ended { slot: 0, why }, None),
        }
    }

    fn open(
        &mut self,
        (owner, local, remote): (Owner, Option<SocketAddr>, SocketAddr),
        traffic_class: u8,
        fast: Option<&[u8]>,
        host: &mut Host<'_>,
        now: Instant,
    ) -> Result<(u32, SocketAddr, OwnedFd), EndReason> {
        let slot = self.relays.take_slot(None, host, &mut self.counters, now).ok_or(EndReason::TooMany)?;
        let (stream, mut syn_waits) = match fast {
            None => (host.open_for(owner, local, remote)?, false),
            Some(_) => host.open_fast(owner, local, remote)?,
        };
        if traffic_class != 0 {
            // The SYN leaves after this call. The two low bits are ECN, which belongs to TCP.
            let _ = host.set_dscp(stream, traffic_class >> 2);
        }
        let mut taken = 0;
        if let Some(data) = fast.filter(|data| syn_waits && !data.is_empty()) {
            taken = host.write(stream, data).unwrap_or(0);
            self.counters.bytes_out += taken as u64;
            syn_waits = false;
        }
        let begun = pair().and_then(|(ours, theirs)| {
            // While the SYN waits, the program may write.
            let skips = if syn_waits { 0 } else { fill(theirs.as_fd())? };
            Ok((ours, skips, tokens::give(&theirs), theirs))
        });
        let (Ok(info), Ok((ours, skips, token, theirs))) = (host.info(stream), begun) else {
            let _ = host.abort(stream);
            return Err(EndReason::TooMany);
        };
        let ends = Some((info.local, remote));
        let begin = Begin {
            syn_waits,
            has_first: taken > 0,
            skips,
            tells_why: true,
            ends,
            token,
            ..Begin::plain(ours, true, false, slot)
        };
        self.relays.begin(stream, begin, &mut self.counters, now);
        self.relays.pump(stream, host, &self.files, &mut self.counters, now);
        Ok((if syn_waits { SYN_WAITS } else { taken as u32 }, info.local, theirs))
    }

    /// Handles a request to listen. Chooses the port, if it is 0.
    fn begin_to_listen(&mut self, caller: Caller, place: ListenAt, host: &mut Host<'_>) {
        let number = self.next;
        self.next += 1;
        let begun = self.address_for(caller.owner, place, host).and_then(|local| {
            let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, packets(), None);
            let (ours, theirs) = pair.map_err(|_| EndReason::TooMany)?;
            Ok((local, Peer::new(ours).map_err(|_| EndReason::TooMany)?, theirs))
        });
        match begun {
            Ok((local, ours, theirs)) => {
                name_socket(&ours, Indication::Listening { listener: 0, result: Ok(local) });
                let ours = Arc::new(ours);
                let place = ListenAt { local, ..place };
                let token = tokens::give(&theirs);
                let new = NewListener { caller, number, place, token, ours, theirs };
                match &self.link {
                    Some(link) => link.pass(1, Handed::Listen(new)),
                    None => self.listen(new, host),
                }
            }
            Err(why) => tell_listening(&caller, Err(why), None),
        }
    }

    /// Returns the address at which a program may listen.
    fn address_for(
        &self,
        owner: Owner,
        place: ListenAt,
        host: &mut Host<'_>,
    ) -> Result<SocketAddr, EndReason> {
        if self.listeners.len() >= self.bounds.sessions_max {
            return Err(EndReason::TooMany);
        }
        if self.sharing(place).is_some() {
            return Ok(place.local);
        }
        let (number, local) = kiban_board::streams::listen(host, owner, place.local, place.v6_only)?;
        let _ = host.unlisten(number);
        Ok(local)
    }

    /// Returns a listener that shares its address with others of this user.
    fn sharing(&self, place: ListenAt) -> Option<&ProgramListener> {
        self.listeners.values().find(|its| its.place == place).filter(|_| place.shared_by.is_some())
    }

    /// Listens on this shard, and passes the request on to the next one. The last one answers.
    fn listen(&mut self, new: NewListener, host: &mut Host<'_>) {
        if let Err(why) = self.add_listener(&new, host) {
            self.pass_to_all(|| Handed::Unlisten(new.number));
            return tell_listening(&new.caller, Err(why), None);
        }
        match &self.link {
            Some(link) if link.number() != 0 => {
                link.pass((link.number() + 1) % link.parts(), Handed::Listen(new));
            }
            _ => tell_listening(&new.caller, Ok(new.place.local), Some(&new.theirs)),
        }
    }

    fn add_listener(&mut self, new: &NewListener, host: &mut Host<'_>) -> Result<(), EndReason> {
        let &NewListener { number: own, place, token, ref ours, .. } = new;
        let (number, options) = match self.sharing(place) {
            Some(other) => (other.number, other.options),
            None => {
                let (number, _) =
                    kiban_board::streams::listen(host, new.caller.owner, place.local, place.v6_only)?;
                (number, StreamOptions::default())
            }
        };
        if self.is_first_shard() && self.files.watch(&**ours, own, Interest::READ).is_err() {
            self.unlisten(number, host);
            return Err(EndReason::TooMany);
        }
        let socket = ours.clone();
        self.listeners.insert(own, ProgramListener { number, place, token, options, socket });
        Ok(())
    }

    /// Stops listening on the board, unless another program's listener shares the board's.
    fn unlisten(&self, number: u32, host: &mut Host<'_>) {
        if !self.listeners.values().any(|other| other.number == number) {
            let _ = host.unlisten(number);
        }
    }

    /// Returns the program's listener for a connection to a listener of the board; `None` if it has been
    /// closed.
    fn listener_for(&self, number: u32, ends: (SocketAddr, SocketAddr)) -> Option<u64> {
        let those = || self.listeners.iter().filter(|(_, listener)| listener.number == number);
        let count = those().count().max(1) as u64;
        let at = self.hash.hash_one(ends) % count;
        those().nth(at as usize).map(|(own, _)| *own)
    }

    /// Handles a new connection to a program's listener.
    fn on_accepted(
        &mut self,
        stream: StreamId,
        listener: u64,
        remote: SocketAddr,
        host: &mut Host<'_>,
        now: Instant,
    ) {
        let port = self.listeners.get(&listener).map_or(0, |listener| listener.place.local.port());
        let (keeps, peer) = (self.relays.reserve_beside(port), Some(remote.ip()));
        let Some(slot) = self.relays.take_slot_beside(keeps, peer, host, &mut self.counters, now) else {
            let _ = host.abort(stream);
            return;
        };
        let mut give = || {
            let local = host.info(stream).ok()?.local;
            let (ours, theirs) = pair().ok()?;
            let token = tokens::give(&theirs);
            let indication = Indication::Accepted { listener: 0, slot: 0, local, remote };
            name_socket(&ours, indication);
            // If the program does not accept connections, they queue in its socket buffer, whose size limits
            // their number.
            send_indication(self.listeners.get(&listener)?.socket.as_fd(), indication, Some(&theirs)).ok()?;
            Some((ours, token, local))
        };
        let Some((socket, token, local)) = give() else {
            self.counters.refused += 1;
            let _ = host.abort(stream);
            return;
        };
        let ends = Some((local, remote));
        let mut options = self.listeners.get(&listener).map(|listener| listener.options).unwrap_or_default();
        options.apply_all(stream, host);
        // As in Linux, this is an option of listeners only.
        options.set(StreamOption::FastOpen, 0);
        let begin =
            Begin { waits_for_accept: true, ends, options, token, ..Begin::plain(socket, true, true, slot) };
        self.relays.begin(stream, begin, &mut self.counters, now);
        self.relays.pump(stream, host, &self.files, &mut self.counters, now);
    }

    fn listener_at(&self, local: SocketAddr, access: Access) -> Option<&ProgramListener> {
        let is_it = |its: &&ProgramListener| its.place.local == local && access.includes(its.token);
        self.listeners.values().find(is_it)
    }

    /// Sets an option of a stream or of a listener; ignored if it has ended, or if `access` does not include
    /// it.
    fn set_option(
        &mut self,
        (local, remote, access): (SocketAddr, Option<SocketAddr>, Access),
        (option, value): (StreamOption, u32),
        host: &mut Host<'_>,
        now: Instant,
    ) {
        if let Some(remote) = remote {
            let Sockets { relays, files, counters, .. } = self;
            let which = ((local, remote), access);
            relays.set_option(which, (option, value), host, files, counters, now);
        } else if self.listener_at(local, access).is_some() {
            self.set_listener_option(local, (option, value), host);
            self.pass_to_all(|| Handed::SetOption(local, option, value));
        }
    }

    /// Sets an option of the listeners at an address. Those that share one have common options, because
    /// requests name only the address.
    fn set_listener_option(
        &mut self,
        local: SocketAddr,
        (option, value): (StreamOption, u32),
        host: &mut Host<'_>,
    ) {
        for listener in self.listeners.values_mut().filter(|listener| listener.place.local == local) {
            listener.options.set(option, value);
            let _ = match option {
                StreamOption::FastOpen => {
                    host.set_fast_open(listener.number, value.min(FAST_OPEN_PENDING_MAX))
                }
                StreamOption::TrafficClass => host.set_listener_dscp(listener.number, (value >> 2) as u8),
                _ => Ok(()),
            };
        }
    }

    /// Handles the end of a program's listener; programs never send anything on it.
    fn on_listener(&mut self, number: u64, host: &mut Host<'_>) {
        self.remove_listener(number, host);
        self.pass_to_all(|| Handed::Unlisten(number));
    }

    fn remove_listener(&mut self, number: u64, host: &mut Host<'_>) {
        if let Some(listener) = self.listeners.remove(&number) {
            // Only shard 0 watches it.
            let _ = self.files.forget(&*listener.socket);
            self.unlisten(listener.number, host);
        }
    }

    fn pass_to_all(&self, make: impl Fn() -> Handed) {
        self.link.iter().for_each(|link| link.pass_to_all(&make));
    }

    /// Passes the remote address of a datagram socket on to the next shard. The last one answers.
    fn pass_remote(&self, change: RemoteChange) {
        match &self.link {
            Some(link) if link.number() + 1 < link.parts() => {
                link.pass(link.number() + 1, Handed::SetRemote(change));
            }
            _ => {
                let opened = Indication::Opened { slot: 0, local: change.local };
                // If the client has disconnected, it needs no answer.
                let _ = send_indication(change.caller.socket.as_fd(), opened, None);
            }
        }
    }

    /// Passes changes of datagram sockets to the other shards.
    fn pass_changes(&mut self) {
        let (changes, not_taken) = (self.datagrams.take_changes(), self.datagrams.take_not_taken());
        if self.is_first_shard() {
            changes.iter().for_each(|change| self.pass_to_all(|| Handed::Datagrams(change.clone())));
        }
        if let Some(link) = &self.link {
            not_taken.into_iter().for_each(|number| link.pass(0, Handed::NotTaken(number)));
        }
    }

    fn take_handed(&mut self, host: &mut Host<'_>, now: Instant) {
        for _ in 0..ITEMS_PER_TURN {
            let Some(handed) = self.link.as_ref().and_then(ShardLink::take) else { return };
            self.on_handed(handed, host, now);
        }
    }

    /// Handles what another shard has passed on. Once the service is closed, it takes no requests.
    fn on_handed(&mut self, handed: Handed, host: &mut Host<'_>, now: Instant) {
        match handed {
            Handed::Unlisten(number) => self.remove_listener(number, host),
            _ if self.is_closed => {}
            Handed::Request(caller, ask, data) => self.answer(caller, ask, &data, host, now),
            Handed::Listen(new) => self.listen(new, host),
            Handed::SetOption(local, option, value) => {
                self.set_listener_option(local, (option, value), host);
            }
            Handed::SetRemote(change) => {
                self.datagrams.copy_remote(change.caller.number, change.remote);
                self.pass_remote(change);
            }
            Handed::Datagrams(change) => self.datagrams.copy(change, host, &self.files),
            Handed::NotTaken(number) => self.datagrams.take_over(number, host, &self.files),
        }
    }
}

/// Creates a socket pair for a stream: the board's end and the program's end. The latter is blocking, like
/// any new socket.
fn pair() -> io::Result<(Peer, OwnedFd)> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    Ok((Peer::new(ours)?, theirs))
}

/// Writes until the buffer is full. Returns the number of bytes written.
fn fill(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let bytes = [0; 16 << 10];
    let mut count = 0;
    loop {
        let mut polled = [PollFd::new(&socket, PollFlags::OUT)];
        rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default()))?;
        if !polled[0].revents().contains(PollFlags::OUT) {
            return Ok(count);
        }
        count += rustix::net::send(socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    }
}

/// Answers a request to listen. If the client has disconnected, its listener ends.
fn tell_listening(caller: &Caller, result: Result<SocketAddr, EndReason>, file: Option<&OwnedFd>) {
    let _ = send_indication(caller.socket.as_fd(), Indication::Listening { listener: 0, result }, file);
}

fn send_indication(socket: BorrowedFd<'_>, indication: Indication, file: Option<&OwnedFd>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file.as_fd()]);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let bytes = indication.bytes();
    let parts = [io::IoSlice::new(&bytes)];
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

impl Service for Sockets {
    fn start(&mut self, _: &mut Host<'_>, _: Instant) -> Result<(), String> {
        if !self.is_first_shard() {
            return Ok(());
        }
        let listen = |path: &Path| UnixListener::open(path, SocketType::SEQPACKET);
        self.entrance.open_at(&self.path, &self.files, listen)
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        if let Completion::Accepted { stream, listener, remote } = completion {
            let local = host.info(stream).map(|info| info.local);
            match local.ok().and_then(|local| self.listener_for(listener, (local, remote))) {
                Some(own) => self.on_accepted(stream, own, remote, host, now),
                // The listener or the stream was closed after this connection had been established.
                None => drop(host.abort(stream)),
            }
            return;
        }
        if let Completion::Datagram { .. } | Completion::DatagramError { .. } = completion {
            // The sockets may have changed before the datagram was sent.
            self.take_handed(host, now);
            self.pass_changes();
        }
        let Sockets { relays, datagrams, files, counters, .. } = self;
        datagrams.on_completion(completion, host, files, counters);
        relays.on_completion(completion, host, files, counters, now);
    }

    fn look(&mut self, host: &mut Host<'_>, now: Instant) {
        self.entrance.look(&self.files);
        self.remove_askers(Some(now));
        self.resume_channels();
        self.relays.look(self.bounds.idle, host, &mut self.counters, now);
    }

    fn deadline(&self) -> Instant {
        self.relays.deadline()
    }

    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        self.relays.on_timeout(host, &self.files, &mut self.counters, now);
    }

    fn close(&mut self, host: &mut Host<'_>) {
        self.is_closed = true;
        self.entrance.close();
        self.remove_askers(None);
        for channel in std::mem::take(&mut self.channels).into_values() {
            let _ = self.files.forget(&*channel.socket);
        }
        for listener in std::mem::take(&mut self.listeners).into_values() {
            let _ = self.files.forget(&*listener.socket);
            let _ = host.unlisten(listener.number);
        }
        self.datagrams.close(host, &self.files);
    }

    fn cut(&mut self, host: &mut Host<'_>) {
        self.relays.cut(host, &mut self.counters);
    }

    fn sessions(&self) -> usize {
        self.relays.len() + self.datagrams.len()
    }

    fn counters(&self) -> ServiceCounters {
        self.counters
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.files.as_fd())
    }

    fn is_ready(&self) -> bool {
        self.link.as_ref().is_some_and(ShardLink::has_waiting)
    }

    fn on_file(&mut self, host: &mut Host<'_>, now: Instant) {
        self.take_handed(host, now);
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        self.files.ready(&mut ready);
        // Requests that have arrived make room for others on their channels.
        ready.sort_by_key(|number| self.channels.contains_key(number));
        for number in &ready {
            let Sockets { relays, datagrams, files, counters, .. } = self;
            match *number {
                LISTENER => self.on_door(now),
                number if datagrams.on_ready(number, host, files, counters) => {}
                number if relays.on_ready(number, host, files, counters, now) => {}
                number if self.listeners.contains_key(&number) => self.on_listener(number, host),
                number if self.channels.contains_key(&number) => self.on_channel(number, now),
                number => self.on_asker(number, host, now),
            }
        }
        self.ready = ready;
        self.pass_changes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_and_listeners_fit_into_the_open_files() {
        assert_eq!(sessions_by_files(1024, 1), 256);
        assert_eq!(sessions_by_files(4096, 2), 896);
        assert_eq!(sessions_by_files(40, 1), SESSIONS_MIN);
        assert!(sessions_by_files(u64::MAX, 1) > 65_536);
    }
}
