//! A VI NIC in real time: the same value that the simulator drives, with links, sleep and many threads.
//!
//! Goal      the calls of the VI Architecture, blocking ones among them, for any thread.
//! Turn      the NIC has no thread of its own: whoever posts, polls or waits moves what there is to move (`core.rs`), and
//!           a helper thread does when nobody has for a while (`turn`).
//! Devices   `loopback` joins VIs of one process; `shm[:NAME]` joins processes of one user on one host; `udp[:ADDRESS[:PORT]]`
//!           joins hosts; `board[:NAME]@ADDRESS[:PORT]` does so over the TCP of a running board.
//! Limits    one lock a NIC: programs that drive many queues from many threads open a NIC a thread.
//! Left out  fork: a child must not use its parent's NIC.

mod carried;
mod core;
mod desks;
mod device;

pub use device::{BOARD_PORT, Device, HostAddress, OpenError, UDP_PORT};

use self::core::Core;
use crate::turn::{Ended, Helping, Machine, Turn};
use kiban_ground::{Instant, Region, Report, Wait};
use kiban_stack::vi::{
    Config, ConnectError, Done, Event, MemoryAttributes, Refusal, Remoteness, Segment, Status, ViAttributes,
    ViCounters, ViState, Work,
};
use std::fmt;
use std::io;
use std::time::Duration;

/// An address of an endpoint: a host, and a discriminator that chooses among its endpoints.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// The host, as its device knows it.
    pub host: HostAddress,
    /// The endpoint.
    pub discriminator: Vec<u8>,
}

/// Why a blocking call came to nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The NIC refused.
    Refused(Refusal),
    /// The time is over.
    Timeout,
    /// The connection did not come to be.
    Connect(ConnectError),
    /// The queue's completions go to a completion queue: wait there.
    OnCompletionQueue,
    /// The NIC has been closed.
    Closed,
    /// The board on which the NIC is has gone.
    Gone,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(refusal) => refusal.fmt(f),
            Failure::Timeout => f.write_str("nothing came in time"),
            Failure::Connect(error) => error.fmt(f),
            Failure::OnCompletionQueue => {
                f.write_str("the queue's completions go to a completion queue: wait for that instead")
            }
            Failure::Closed => f.write_str("the NIC has been closed: open another"),
            Failure::Gone => f.write_str("the board has gone: open another NIC when it runs again"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Failure {
        match ended {
            Ended::Timeout => Failure::Timeout,
            Ended::Closed => Failure::Closed,
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Refused(refusal)
    }
}

/// A request to connect that waits for an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    number: u32,
    /// Who asks.
    pub from: Address,
    /// What it says of itself.
    pub remoteness: Remoteness,
}

/// What one waits for: each has a policy and learns for itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Queue {
    /// The send queue of a VI.
    Send(u32),
    /// The receive queue of a VI.
    Receive(u32),
    /// A completion queue.
    Completions(u32),
    /// Connections and events.
    Control,
}

/// A NIC. Clones are the same NIC; it closes with the last.
#[derive(Clone)]
pub struct Nic {
    turn: Turn<Core, Queue>,
}

impl Nic {
    /// Opens a NIC on a device.
    ///
    /// # Errors
    /// The device's word is not understood, or the system refuses its name or address.
    pub fn open(device: &Device) -> Result<Nic, OpenError> {
        Nic::open_with(device, Config::default())
    }

    /// The same with settings.
    ///
    /// # Errors
    /// As [`Nic::open`].
    pub fn open_with(device: &Device, config: Config) -> Result<Nic, OpenError> {
        Ok(Nic { turn: Turn::new("kiban-vi", Helping::SELDOM, |epoll| Core::open(device, config, epoll))? })
    }

    /// The NIC's own address, without discriminator.
    pub fn address(&self) -> HostAddress {
        self.turn.read(|core| core.address().clone())
    }

    /// Closes the NIC for everybody who holds it: connections end, and those who wait hear [`Failure::Closed`]. Memory
    /// stays registered until it is deregistered.
    pub fn close(&self) {
        self.turn.close(|core, _| core.nic.disconnect_all());
    }

    /// Bytes of the longest packet to other NICs.
    pub fn packet_bytes(&self) -> usize {
        self.turn.read(Core::packet_bytes)
    }

    /// The settings.
    pub fn config(&self) -> Config {
        self.turn.read(|core| core.nic.config().clone())
    }

    /// What has been counted.
    pub fn counters(&self) -> ViCounters {
        self.turn.read(|core| *core.nic.counters())
    }

    /// What time it is for this NIC.
    pub fn now(&self) -> Instant {
        self.turn.now()
    }

    // ---- memory, queues, VIs: see `kiban_stack::vi::Nic` for each

    /// A new protection tag.
    pub fn create_tag(&self) -> Result<u32, Refusal> {
        self.turn.work(|core, _| core.nic.create_tag())
    }

    /// Gives a tag back.
    pub fn destroy_tag(&self, tag: u32) -> Result<(), Refusal> {
        self.turn.work(|core, _| core.nic.destroy_tag(tag))
    }

    /// Registers memory: its handle.
    pub fn register(&self, region: Region, attributes: MemoryAttributes) -> Result<u32, Refusal> {
        self.turn.work(|core, _| core.nic.register(region, attributes))
    }

    /// Forgets a memory. When this returns, nobody touches it any more.
    pub fn deregister(&self, handle: u32) -> Result<Region, Refusal> {
        self.turn.work(|core, _| core.nic.deregister(handle))
    }

    /// What a memory allows.
    pub fn memory_attributes(&self, handle: u32) -> Result<MemoryAttributes, Refusal> {
        self.turn.work(|core, _| core.nic.memory_attributes(handle))
    }

    /// Changes what a memory allows.
    pub fn set_memory_attributes(&self, handle: u32, attributes: MemoryAttributes) -> Result<(), Refusal> {
        self.turn.work(|core, _| core.nic.set_memory_attributes(handle, attributes))
    }

    /// A completion queue.
    pub fn create_queue(&self, entries: usize) -> Result<u32, Refusal> {
        self.turn.work(|core, _| core.nic.create_queue(entries))
    }

    /// Changes the room of a completion queue.
    pub fn resize_queue(&self, queue: u32, entries: usize) -> Result<(), Refusal> {
        self.turn.work(|core, _| core.nic.resize_queue(queue, entries))
    }

    /// Gives a completion queue back.
    pub fn destroy_queue(&self, queue: u32) -> Result<(), Refusal> {
        self.turn.work(|core, _| core.nic.destroy_queue(queue))
    }

    /// A new VI.
    pub fn create_vi(
        &self,
        attributes: ViAttributes,
        send_queue: Option<u32>,
        receive_queue: Option<u32>,
    ) -> Result<u32, Refusal> {
        self.turn.work(|core, _| core.nic.create_vi(attributes, send_queue, receive_queue))
    }

    /// Destroys an idle VI.
    pub fn destroy_vi(&self, vi: u32) -> Result<(), Refusal> {
        self.turn.work(|core, _| core.nic.destroy_vi(vi))?;
        for queue in [Queue::Send(vi), Queue::Receive(vi)] {
            self.turn.forget_queue(queue);
        }
        Ok(())
    }

    /// Where a VI stands: its state, its attributes, whether its send and receive queues are empty.
    pub fn vi(&self, vi: u32) -> Result<(ViState, ViAttributes, bool, bool), Refusal> {
        self.turn.work(|core, now| {
            core.drive(now);
            core.nic.vi(vi)
        })
    }

    /// Changes what an idle VI is made with.
    pub fn set_vi(&self, vi: u32, attributes: ViAttributes) -> Result<(), Refusal> {
        self.turn.work(|core, _| core.nic.set_vi(vi, attributes))
    }

    // ---- work

    /// Posts a descriptor to a send queue.
    #[inline]
    pub fn post_send(&self, vi: u32, work: Work<'_>) -> Result<(), Refusal> {
        self.turn.work(|core, _| core.nic.post_send(vi, work))
    }

    /// Posts a descriptor to a receive queue.
    #[inline]
    pub fn post_receive(&self, vi: u32, cookie: u64, segments: &[Segment]) -> Result<(), Refusal> {
        self.turn.work(|core, _| core.nic.post_receive(vi, cookie, segments))
    }

    /// Posts a descriptor in which a fault was found already: see `kiban_stack::vi::Nic`.
    pub fn post_judged_send(&self, vi: u32, work: Work<'_>, status: Status) -> Result<(), Refusal> {
        self.turn.work(|core, _| core.nic.post_judged_send(vi, work, status))
    }

    /// The same to a receive queue.
    pub fn post_judged_receive(
        &self,
        vi: u32,
        cookie: u64,
        segments: &[Segment],
        status: Status,
    ) -> Result<(), Refusal> {
        self.turn.work(|core, _| core.nic.post_judged_receive(vi, cookie, segments, status))
    }

    /// The next descriptor of a send queue that is done; looks once.
    #[inline]
    pub fn send_done(&self, vi: u32) -> Result<Option<Done>, Refusal> {
        self.turn.look(|core| core.nic.send_done(vi).transpose()).transpose()
    }

    /// The next descriptor of a receive queue that is done; looks once.
    #[inline]
    pub fn receive_done(&self, vi: u32) -> Result<Option<Done>, Refusal> {
        self.turn.look(|core| core.nic.receive_done(vi).transpose()).transpose()
    }

    /// The next completion of a completion queue: which VI has a done descriptor, and whether on its receive queue.
    #[inline]
    pub fn queue_done(&self, queue: u32) -> Result<Option<(u32, bool)>, Refusal> {
        self.turn.look(|core| core.nic.queue_done(queue).transpose()).transpose()
    }

    /// Waits for a descriptor of a send queue.
    ///
    /// # Errors
    /// The VI is not there, its completions go to a completion queue, or the time is over.
    pub fn send_wait(&self, vi: u32, timeout: Duration) -> Result<Done, Failure> {
        if self.turn.work(|core, _| core.nic.queues_of(vi))?.0.is_some() {
            return Err(Failure::OnCompletionQueue);
        }
        self.wait(Queue::Send(vi), timeout, |core| core.nic.send_done(vi).transpose())?
            .map_err(Failure::Refused)
    }

    /// Waits for a descriptor of a receive queue.
    ///
    /// # Errors
    /// As [`Nic::send_wait`].
    pub fn receive_wait(&self, vi: u32, timeout: Duration) -> Result<Done, Failure> {
        if self.turn.work(|core, _| core.nic.queues_of(vi))?.1.is_some() {
            return Err(Failure::OnCompletionQueue);
        }
        self.wait(Queue::Receive(vi), timeout, |core| core.nic.receive_done(vi).transpose())?
            .map_err(Failure::Refused)
    }

    /// The same, waiting by a policy of this call: the paper's receive, if it is `Wait::Hybrid`. Calls of one policy in a
    /// row learn together, apart from the queue's own policy.
    ///
    /// # Errors
    /// As [`Nic::send_wait`].
    pub fn receive_wait_by(&self, vi: u32, wait: Wait, timeout: Duration) -> Result<Done, Failure> {
        if self.turn.work(|core, _| core.nic.queues_of(vi))?.1.is_some() {
            return Err(Failure::OnCompletionQueue);
        }
        self.wait_by(Queue::Receive(vi), Some(wait), timeout, |core| core.nic.receive_done(vi).transpose())?
            .map_err(Failure::Refused)
    }

    /// Waits for a completion of a completion queue.
    ///
    /// # Errors
    /// The queue is not there, or the time is over.
    pub fn queue_wait(&self, queue: u32, timeout: Duration) -> Result<(u32, bool), Failure> {
        let found =
            self.wait(Queue::Completions(queue), timeout, |core| core.nic.queue_done(queue).transpose());
        found?.map_err(Failure::Refused)
    }

    /// The next asynchronous event; looks once.
    pub fn event(&self) -> Option<Event> {
        self.turn.look(|core| core.event())
    }

    /// Waits for the next asynchronous event.
    ///
    /// # Errors
    /// The time is over.
    pub fn event_wait(&self, timeout: Duration) -> Result<Event, Failure> {
        self.wait(Queue::Control, timeout, |core| core.event())
    }

    // ---- connections

    /// Takes requests at a discriminator from now on; those that nobody asks for wait.
    pub fn listen(&self, discriminator: &[u8]) -> Result<(), Refusal> {
        self.turn.work(|core, _| core.nic.listen(discriminator))
    }

    /// Takes no more requests there.
    pub fn unlisten(&self, discriminator: &[u8]) {
        self.turn.work(|core, _| core.nic.unlisten(discriminator));
    }

    /// Waits for a request at a discriminator, and takes further ones from now on.
    ///
    /// # Errors
    /// The discriminator is too long, or the time is over.
    pub fn connect_wait(&self, discriminator: &[u8], timeout: Duration) -> Result<Request, Failure> {
        self.listen(discriminator)?;
        self.wait(Queue::Control, timeout, |core| {
            let request = core.nic.request_at(discriminator)?;
            let host = core.address_of(request.path);
            let from = Address { host, discriminator: request.source };
            Some(Request { number: request.number, from, remoteness: request.remoteness })
        })
    }

    /// Accepts a request with a VI that is like the one that asks.
    pub fn accept(&self, request: &Request, vi: u32) -> Result<(), Refusal> {
        self.turn.work(|core, now| core.nic.accept(request.number, vi, now))
    }

    /// Refuses a request.
    pub fn reject(&self, request: &Request) -> Result<(), Refusal> {
        self.turn.work(|core, _| core.nic.reject(request.number))
    }

    /// Connects a VI to an endpoint that waits; `local` is what ours is called.
    ///
    /// # Errors
    /// Nobody waits there, the ends are not alike, or the time is over.
    pub fn connect(
        &self,
        vi: u32,
        local: &[u8],
        remote: &Address,
        timeout: Duration,
    ) -> Result<Remoteness, Failure> {
        self.begin(vi, local, remote, false, timeout)?;
        self.peer_wait(vi, timeout)
    }

    /// Asks to connect with a peer that asks as well ([`Nic::peer_done`], [`Nic::peer_wait`]).
    ///
    /// # Errors
    /// The VI is not idle, or there is no way to that host.
    pub fn connect_peer(
        &self,
        vi: u32,
        local: &[u8],
        remote: &Address,
        timeout: Duration,
    ) -> Result<(), Failure> {
        self.begin(vi, local, remote, true, timeout)
    }

    fn begin(
        &self,
        vi: u32,
        local: &[u8],
        remote: &Address,
        is_peer: bool,
        timeout: Duration,
    ) -> Result<(), Failure> {
        self.turn.work(|core, now| {
            let path = core.path_to(&remote.host).map_err(|error| match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                    Failure::Connect(ConnectError::NoMatch)
                }
                io::ErrorKind::InvalidInput => Failure::Refused(Refusal::BadAddress),
                // Of the board's streams all that this NIC has are in use.
                io::ErrorKind::OutOfMemory => Failure::Refused(Refusal::TooMany),
                _ => Failure::Connect(ConnectError::Unreachable),
            })?;
            let until = if timeout == Duration::MAX { Instant::NEVER } else { now + timeout };
            Ok(core.nic.request(vi, path, (local, &remote.discriminator), is_peer, now, until)?)
        })
    }

    /// How a VI's request went, if that is known.
    pub fn peer_done(&self, vi: u32) -> Result<Option<Result<Remoteness, ConnectError>>, Refusal> {
        self.turn.look(|core| core.nic.outcome(vi).transpose()).transpose()
    }

    /// Waits until it is known how a VI's request went.
    ///
    /// # Errors
    /// It came to nothing, or the time is over: the VI is idle then. Or nothing is under way.
    pub fn peer_wait(&self, vi: u32, timeout: Duration) -> Result<Remoteness, Failure> {
        let asked = self.wait(Queue::Control, timeout, |core| match core.nic.outcome(vi) {
            // Nothing is under way: there will be no answer.
            Ok(None) => match core.nic.vi(vi) {
                Ok((ViState::ConnectPending, ..)) => None,
                Ok((state, ..)) => Some(Err(Refusal::BadState(state))),
                Err(refusal) => Some(Err(refusal)),
            },
            outcome => outcome.transpose(),
        });
        match asked {
            Ok(outcome) => outcome?.map_err(|error| match error {
                ConnectError::Timeout => Failure::Timeout,
                error => Failure::Connect(error),
            }),
            Err(failure) => {
                // Nobody waits for the answer any more.
                let _ = self.disconnect(vi);
                Err(failure)
            }
        }
    }

    /// Ends a connection, a request, or an error: the VI is idle.
    pub fn disconnect(&self, vi: u32) -> Result<(), Refusal> {
        self.turn.work(|core, _| core.nic.disconnect(vi))
    }

    // ---- hosts of other processes

    /// Lets other processes of this user use this NIC through rings in shared memory ([`crate::attach`]), by a name.
    ///
    /// # Errors
    /// Another process serves by that name, or it is too long.
    pub fn serve(&self, name: &str) -> io::Result<()> {
        self.turn.work(|core, _| core.serve(name))
    }

    /// VIs, memories and attached hosts that there are now.
    pub fn in_use(&self) -> (usize, usize, usize) {
        self.turn.work(|core, now| {
            core.drive(now);
            let (vis, memories) = core.nic.in_use();
            (vis, memories, core.desks.channels().count())
        })
    }

    // ---- waiting

    /// How queues wait that have no policy of their own.
    pub fn set_wait(&self, wait: Wait) {
        self.turn.set_wait(wait);
    }

    /// How one queue waits.
    pub fn set_queue_wait(&self, queue: Queue, wait: Wait) {
        self.turn.set_queue_wait(queue, wait);
    }

    /// What happened while a queue was waited for; nothing before the first wait.
    pub fn wait_report(&self, queue: Queue) -> Option<Report> {
        self.turn.wait_report(queue)
    }

    /// How a queue waits.
    pub fn wait_policy(&self, queue: Queue) -> Wait {
        self.turn.wait_policy(queue)
    }

    fn wait<T>(
        &self,
        queue: Queue,
        timeout: Duration,
        look: impl FnMut(&mut Core) -> Option<T>,
    ) -> Result<T, Failure> {
        self.wait_by(queue, None, timeout, look)
    }

    fn wait_by<T>(
        &self,
        queue: Queue,
        once: Option<Wait>,
        timeout: Duration,
        mut look: impl FnMut(&mut Core) -> Option<T>,
    ) -> Result<T, Failure> {
        // What there still is comes first; then nothing comes any more.
        self.turn.wait(queue, once, timeout, |core| {
            look(core).map(Ok).or_else(|| core.is_gone().then_some(Err(Failure::Gone)))
        })?
    }
}

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nic({})", self.address())
    }
}

#[cfg(test)]
mod tests;
