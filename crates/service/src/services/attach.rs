//! Programs of this host that use the board's TCP: through rings in shared memory ([`kiban_board::streams`]).
//!
//! Door      `NAME.streams` beside the control socket; a client hands over memory of its making, and has a desk.
//! Wake      a client that finds the board asleep writes a byte into its socket; one that spins is seen in its ring ([`Chime`]).
//! Trust     a client's descriptors but its memory are never taken, and never closed on this thread ([`kiban_real::unix`]).
//! End       a client that has gone, by whatever cause, is one that has closed everything: what it had put in still leaves, as long as
//!           anything does within a minute. One that breaks a rule is cut, with all that is its own.
//! Bound     `CLIENTS_MAX` clients, and `sessions` streams of all together, by what they ask for when they come; who comes beyond
//!           is told why it is not taken, and counted.

use super::{Bounds, Service, ServiceCounters};
use kiban_board::streams::Desk;
use kiban_board::{Completion, Host};
use kiban_ground::Instant;
use kiban_real::clock::machine_nanos;
use kiban_real::link::channel::{Channel, Door, Half};
use kiban_real::streams::understand;
use kiban_real::wait::Doorbell;
use kiban_real::{Files, Interest};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How long the streams of a client that has gone may make no progress.
const LINGER: Duration = Duration::from_secs(60);
/// Clients at once.
const CLIENTS_MAX: usize = 256;
/// How long a client may take to say what it wants.
const GREETING: Duration = Duration::from_secs(10);
/// Bytes of memory that a client may have.
const MEMORY_BYTES_MAX: usize = 8 << 30;
/// The number of the door among files.
const DOOR: u64 = u64::MAX;

/// The bells of all clients: armed before the board's thread sleeps.
#[derive(Default)]
pub struct Chime(Mutex<Vec<Weak<Channel>>>);

impl Chime {
    fn add(&self, channel: &Arc<Channel>) {
        let mut channels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        channels.retain(|known| known.strong_count() > 0);
        channels.push(Arc::downgrade(channel));
    }

    fn each<T>(&self, see: impl Fn(&Channel) -> Option<T>) -> Vec<T> {
        let channels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        channels.iter().filter_map(|channel| see(&*channel.upgrade()?)).collect()
    }
}

impl Doorbell for Chime {
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

/// Who has called.
enum Client {
    /// It has not said what it wants, and has until then.
    Caller(Half, Instant),
    Attached(Desk, Arc<Channel>),
    /// It has gone; what it left behind still leaves: so many bytes had by then.
    Gone(Desk, u64, Instant),
}

impl Client {
    /// Its socket is not watched any more.
    fn forget_at(&self, files: &Files) {
        // One that cannot be forgotten was not watched.
        let _ = match self {
            Client::Caller(half, _) => files.forget(half),
            Client::Attached(_, channel) => files.forget(channel.socket()),
            Client::Gone(..) => Ok(()),
        };
    }
}

/// The service.
pub struct Attach {
    path: PathBuf,
    bounds: Bounds,
    chime: Arc<Chime>,
    files: Files,
    door: Option<Door>,
    /// Whether nobody looks at the door for a while.
    rests: bool,
    clients: BTreeMap<u64, Client>,
    next: u64,
    /// Of clients that have gone.
    past: ServiceCounters,
    ready: Vec<u64>,
}

impl Attach {
    /// A service whose door will be at `path`.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new(path: PathBuf, bounds: Bounds, chime: Arc<Chime>) -> io::Result<Attach> {
        let (files, past) = (Files::new()?, ServiceCounters::default());
        let (clients, ready) = (BTreeMap::new(), Vec::new());
        Ok(Attach { path, bounds, chime, files, door: None, rests: false, clients, next: 0, past, ready })
    }

    fn on_callers(&mut self, now: Instant) {
        while let Some(door) = &self.door {
            let half = match door.next_caller() {
                Ok(Some(half)) => half,
                Ok(None) => return,
                // The system has no file for it: it is asked again in a while, and not all the time.
                Err(_) => {
                    self.rests = self.files.forget(door).is_ok();
                    return;
                }
            };
            let number = self.next;
            self.next += 1;
            let here = self.clients.values().filter(|client| !matches!(client, Client::Gone(..))).count();
            if here < CLIENTS_MAX && self.files.watch(&half, number, Interest::READ).is_ok() {
                self.clients.insert(number, Client::Caller(half, now + GREETING));
            } else {
                half.refuse("the board has no place for another client: one has to go first");
                self.past.refused += 1;
            }
        }
    }

    /// Takes a client out. Its socket is no longer watched: a thread may have to close it, and that may take a while.
    fn remove(&mut self, number: u64) -> Option<Client> {
        let client = self.clients.remove(&number)?;
        client.forget_at(&self.files);
        Some(client)
    }

    /// A client's socket can be read: it greets, rings, or has gone.
    fn on_client(&mut self, number: u64, host: &mut Host<'_>, now: Instant) {
        let free = self.bounds.sessions_max.saturating_sub(self.slots());
        match self.clients.get_mut(&number) {
            Some(Client::Caller(half, _)) => match attached(half, free) {
                Ok(None) => return,
                Ok(Some((desk, channel))) => {
                    self.chime.add(&channel);
                    self.clients.insert(number, Client::Attached(desk, channel));
                }
                Err(NotTaken::AsksFor { streams }) => {
                    tracing::warn!(
                        streams,
                        free,
                        "a client asks for more streams than there are: raise `sessions`"
                    );
                    self.past.refused += 1;
                    self.remove(number);
                    return;
                }
                Err(NotTaken::Misunderstood(error)) => {
                    tracing::debug!(%error, "a client was not understood");
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

    /// Hangs up on those who have not said what they want, by the time that they had for it.
    fn remove_callers(&mut self, is_over: impl Fn(Instant) -> bool) {
        let files = &self.files;
        self.clients.retain(|_, client| match client {
            Client::Caller(_, until) if is_over(*until) => {
                client.forget_at(files);
                false
            }
            _ => true,
        });
    }

    /// Streams that clients may have.
    fn slots(&self) -> usize {
        let slots = |client: &Client| match client {
            Client::Caller(..) => 0,
            Client::Attached(desk, _) => desk.slots(),
            Client::Gone(desk, ..) => desk.streams(),
        };
        self.clients.values().map(slots).sum()
    }

    /// Does what a client has asked.
    fn work(&mut self, number: u64, host: &mut Host<'_>) {
        let Some(Client::Attached(desk, channel)) = self.clients.get_mut(&number) else { return };
        match desk.work(host) {
            Ok(true) => channel.ring(machine_nanos),
            Ok(false) => {}
            Err(_) => self.cut_off(number, host),
        }
    }

    /// A client has gone; what it asked before is still done.
    fn on_gone(&mut self, number: u64, host: &mut Host<'_>, now: Instant) {
        let Some(Client::Attached(mut desk, _)) = self.remove(number) else { return };
        if desk.work(host).is_err() {
            desk.break_off(host);
        }
        desk.leave(host);
        let sent = desk.counters().bytes_out;
        self.clients.insert(number, Client::Gone(desk, sent, now));
        self.forget();
    }

    /// A client has broken a rule.
    fn cut_off(&mut self, number: u64, host: &mut Host<'_>) {
        let desk = match self.remove(number) {
            Some(Client::Attached(desk, _) | Client::Gone(desk, ..)) => desk,
            _ => return,
        };
        tracing::warn!("a client has broken the memory that it shares with the board: it is cut off");
        self.past.errors += 1;
        self.end(desk, host);
    }

    fn end(&mut self, mut desk: Desk, host: &mut Host<'_>) {
        desk.break_off(host);
        add(&mut self.past, &desk);
    }

    /// Clients that have gone, and left nothing behind, are forgotten.
    fn forget(&mut self) {
        let past = &mut self.past;
        self.clients.retain(|_, client| match client {
            Client::Gone(desk, ..) if desk.is_over() => {
                add(past, desk);
                false
            }
            _ => true,
        });
    }
}

/// Why a caller is no client.
enum NotTaken {
    /// It wants more streams than are left.
    AsksFor {
        streams: usize,
    },
    Misunderstood(io::Error),
}

/// What a caller has, once it has said what it wants, where so many streams are free.
fn attached(half: &mut Half, free: usize) -> Result<Option<(Desk, Arc<Channel>)>, NotTaken> {
    let (mut asked, mut layout) = (0, None);
    let judged = half.complete_if(0..=MEMORY_BYTES_MAX, |hello, memory| {
        let its = understand(hello).map_err(|error| error.to_string())?;
        if memory.len() < its.bytes() {
            return Err("memory that is too short".into());
        }
        asked = its.slots();
        if asked > free {
            return Err(format!("{free} streams are free, {asked} asked: raise `sessions`"));
        }
        layout = Some(its);
        Ok(())
    });
    match (judged, layout) {
        (Ok(Some(channel)), Some(layout)) => {
            Ok(Some((Desk::new(channel.region(), layout), Arc::new(channel))))
        }
        (Ok(_), _) => Ok(None),
        (Err(_), _) if asked > free => Err(NotTaken::AsksFor { streams: asked }),
        (Err(error), _) => Err(NotTaken::Misunderstood(error)),
    }
}

/// Adds what a client has done.
fn add(counters: &mut ServiceCounters, desk: &Desk) {
    let own = desk.counters();
    counters.accepted += own.opened + own.accepted;
    counters.refused += own.refused;
    counters.ended += own.ended;
    counters.cut += own.cut;
    counters.bytes_in += own.bytes_in;
    counters.bytes_out += own.bytes_out;
    counters.errors += own.misuse;
}

impl Service for Attach {
    fn start(&mut self, _: &mut Host<'_>, _: Instant) -> Result<(), String> {
        let say = |error: io::Error| format!("{}: {error}", self.path.display());
        super::make_folder(&self.path).map_err(say)?;
        let door = Door::open_at(&self.path).map_err(say)?;
        self.files.watch(&door, DOOR, Interest::READ).map_err(say)?;
        self.door = Some(door);
        Ok(())
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        let mut broken = None;
        for (number, client) in &mut self.clients {
            let known = match client {
                Client::Caller(..) => continue,
                Client::Attached(desk, channel) => match desk.on_completion(completion, host) {
                    Ok(known) => desk.tell().map(|told| {
                        if told {
                            channel.ring(machine_nanos);
                        }
                        known
                    }),
                    error => error,
                },
                Client::Gone(desk, ..) => desk.on_completion(completion, host),
            };
            match known {
                Ok(false) => {}
                Ok(true) => break,
                Err(_) => {
                    broken = Some(*number);
                    break;
                }
            }
        }
        if let Some(number) = broken {
            self.cut_off(number, host);
        }
        if matches!(completion, Completion::Writable { .. } | Completion::Ended { .. }) {
            self.forget();
        }
    }

    fn look(&mut self, host: &mut Host<'_>, now: Instant) {
        if let (true, Some(door)) = (self.rests, &self.door) {
            self.rests = self.files.watch(door, DOOR, Interest::READ).is_err();
        }
        for client in self.clients.values_mut() {
            let Client::Gone(desk, sent, moved_at) = client else { continue };
            let now_sent = desk.counters().bytes_out;
            if *sent != now_sent {
                (*sent, *moved_at) = (now_sent, now);
            } else if *moved_at + LINGER <= now {
                desk.break_off(host);
            }
        }
        self.remove_callers(|until| until <= now);
        self.forget();
    }

    fn close(&mut self, _: &mut Host<'_>) {
        self.door = None;
        self.remove_callers(|_| true);
    }

    fn cut(&mut self, host: &mut Host<'_>) {
        for client in std::mem::take(&mut self.clients).into_values() {
            client.forget_at(&self.files);
            if let Client::Attached(desk, _) | Client::Gone(desk, ..) = client {
                self.end(desk, host);
            }
        }
    }

    fn sessions(&self) -> usize {
        let streams = |client: &Client| match client {
            Client::Caller(..) => 0,
            Client::Attached(desk, _) | Client::Gone(desk, ..) => desk.streams(),
        };
        self.clients.values().map(streams).sum()
    }

    fn counters(&self) -> ServiceCounters {
        let mut counters = self.past;
        for client in self.clients.values() {
            if let Client::Attached(desk, _) | Client::Gone(desk, ..) = client {
                add(&mut counters, desk);
            }
        }
        counters
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.files.as_fd())
    }

    fn is_ready(&self) -> bool {
        self.clients.values().any(|client| matches!(client, Client::Attached(desk, _) if desk.is_ready()))
    }

    fn on_file(&mut self, host: &mut Host<'_>, now: Instant) {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        self.files.ready(&mut ready);
        for number in &ready {
            match *number {
                DOOR => self.on_callers(now),
                number => self.on_client(number, host, now),
            }
        }
        self.ready = ready;
        let asks = |client: &Client| matches!(client, Client::Attached(desk, _) if desk.is_ready());
        let asking: Vec<u64> =
            self.clients.iter().filter(|(_, client)| asks(client)).map(|(number, _)| *number).collect();
        asking.into_iter().for_each(|number| self.work(number, host));
    }
}
