//! A VI NIC in real time: the same state machine that the simulator drives, with real links, threads and
//! sleeping.
//!
//! Purpose          provide the calls of the VI Architecture, including the blocking calls, to any thread.
//! Threading        the NIC has no thread of its own: every call that posts, polls or waits also moves
//!                  packets (`core.rs`). If no call has done so for a while, a helper thread does (`turn`).
//! Devices          `loopback` connects VIs in one process; `shm[:NAME]` connects processes of the same user
//!                  on the same host; `udp[:ADDRESS[:PORT]]` connects hosts; `board[:NAME]@ADDRESS[:PORT]`
//!                  connects hosts over the TCP of a running board.
//! Limits           there is one lock per NIC. Programs that drive many queues from many threads should open
//!                  one NIC per thread.
//! Not implemented  fork: a child must not use its parent's NIC.
//!
//! ```
//! use kiban_base::Region;
//! use kiban_vi::{DataSegment, MemoryAttributes, Reliability, ViAttributes};
//! use kiban_vi_runtime::{Device, Nic};
//!
//! // A NIC, 4 KiB of registered memory, and a VI with a descriptor for a message of up to 64 bytes.
//! let nic = Nic::open(&Device::Loopback)?;
//! let tag = nic.create_tag()?;
//! let attributes = MemoryAttributes { tag, rdma_write: false, rdma_read: false };
//! let handle = nic.register(Region::new(0, 4096), attributes)?;
//! let vi = nic.create_vi(
//!     ViAttributes {
//!         reliability: Reliability::Reception,
//!         transfer_bytes_max: 4096,
//!         qos: 0,
//!         tag,
//!         rdma_write: false,
//!         rdma_read: false,
//!     },
//!     None,
//!     None,
//! )?;
//! nic.post_receive(vi, 1, &[DataSegment { address: 0, handle, length: 64 }])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod attach;
mod attached;
mod carried;
mod device;
mod hosts;
mod linked_nic;
pub mod shm;

pub use device::{BOARD_PORT, Device, HostAddress, OpenError, UDP_PORT};

use self::linked_nic::LinkedNic;
use kiban_base::{Instant, Region, Report, Wait};
use kiban_os::turn::{HelperPolicy, Machine, Turn, WaitError};
use kiban_vi::{
    Completion, Config, ConnectError, DataSegment, Event, MemoryAttributes, PeerAttributes, RequestError,
    Status, ViAttributes, ViCounters, ViState, Work,
};
use std::fmt;
use std::io;
use std::time::Duration;

/// The address of an endpoint: a host, and a discriminator that selects an endpoint on it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// The host. The form of its address depends on the device.
    pub host: HostAddress,
    /// The discriminator.
    pub discriminator: Vec<u8>,
}

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The NIC rejected the call.
    Refused(RequestError),
    /// The timeout expired.
    Timeout,
    /// The connection could not be established.
    Connect(ConnectError),
    /// The queue's completions go to a completion queue. Wait for them there.
    OnCompletionQueue,
    /// The NIC has been closed.
    Closed,
    /// The board that the NIC uses has ended.
    Gone,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(refusal) => refusal.fmt(f),
            Failure::Timeout => f.write_str("timed out"),
            Failure::Connect(error) => error.fmt(f),
            Failure::OnCompletionQueue => {
                f.write_str("this work queue reports to a completion queue: wait on that instead")
            }
            Failure::Closed => f.write_str("the NIC has been closed: open another"),
            Failure::Gone => f.write_str("the board has exited: open another NIC when it is running again"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<WaitError> for Failure {
    fn from(ended: WaitError) -> Failure {
        match ended {
            WaitError::Timeout => Failure::Timeout,
            WaitError::Closed => Failure::Closed,
        }
    }
}

impl From<RequestError> for Failure {
    fn from(refusal: RequestError) -> Failure {
        Failure::Refused(refusal)
    }
}

/// An incoming connection request that awaits an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    number: u32,
    /// Address of the requesting endpoint.
    pub from: Address,
    /// Attributes of the requesting VI.
    pub remoteness: PeerAttributes,
}

/// A queue for which threads can wait. Each has its own wait policy and statistics.
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

/// A NIC. Clones refer to the same NIC, which closes when the last clone is dropped.
#[derive(Clone)]
pub struct Nic {
    turn: Turn<LinkedNic, Queue>,
}

impl Nic {
    /// Opens a NIC on a device.
    ///
    /// # Errors
    /// [`OpenError`] if the system rejects the device's name or address.
    pub fn open(device: &Device) -> Result<Nic, OpenError> {
        Nic::open_with(device, Config::default())
    }

    /// Opens a NIC with the given settings.
    ///
    /// # Errors
    /// Same as for [`Nic::open`].
    pub fn open_with(device: &Device, config: Config) -> Result<Nic, OpenError> {
        Ok(Nic {
            turn: Turn::new("kiban-vi", HelperPolicy::SELDOM, |epoll| {
                LinkedNic::open(device, config, epoll)
            })?,
        })
    }

    /// Returns the NIC's own address.
    pub fn address(&self) -> HostAddress {
        self.turn.read(|core| core.address().clone())
    }

    /// Closes the NIC for all its users: connections end, and blocked calls return [`Failure::Closed`].
    /// Memory stays registered until it is deregistered.
    pub fn close(&self) {
        self.turn.close(|core, _| core.nic.disconnect_all());
    }

    /// Returns the maximum length of packets to other NICs in bytes.
    pub fn packet_bytes(&self) -> usize {
        self.turn.read(LinkedNic::packet_bytes)
    }

    /// Returns the settings.
    pub fn config(&self) -> Config {
        self.turn.read(|core| core.nic.config().clone())
    }

    /// Returns the counters.
    pub fn counters(&self) -> ViCounters {
        self.turn.read(|core| *core.nic.counters())
    }

    /// Returns the current time of the NIC's clock.
    pub fn now(&self) -> Instant {
        self.turn.now()
    }

    // ---- memory, queues, VIs: `kiban_vi::Nic` documents each call

    /// Creates a protection tag.
    ///
    /// # Errors
    /// [`RequestError::TooMany`] if the NIC's limit is reached.
    pub fn create_tag(&self) -> Result<u32, RequestError> {
        self.turn.work(|core, _| core.nic.create_tag())
    }

    /// Destroys a protection tag.
    ///
    /// # Errors
    /// [`RequestError::UnknownTag`]; [`RequestError::InUse`] while a VI or registered memory has it.
    pub fn destroy_tag(&self, tag: u32) -> Result<(), RequestError> {
        self.turn.work(|core, _| core.nic.destroy_tag(tag))
    }

    /// Registers memory and returns its handle.
    ///
    /// # Errors
    /// [`RequestError::UnknownTag`]; [`RequestError::TooMany`].
    pub fn register(&self, region: Region, attributes: MemoryAttributes) -> Result<u32, RequestError> {
        self.turn.work(|core, _| core.nic.register(region, attributes))
    }

    /// Deregisters memory and returns the region. When this returns, the NIC no longer accesses the memory.
    ///
    /// # Errors
    /// [`RequestError::UnknownMemory`].
    pub fn deregister(&self, handle: u32) -> Result<Region, RequestError> {
        self.turn.work(|core, _| core.nic.deregister(handle))
    }

    /// Returns the attributes of registered memory.
    ///
    /// # Errors
    /// [`RequestError::UnknownMemory`].
    pub fn memory_attributes(&self, handle: u32) -> Result<MemoryAttributes, RequestError> {
        self.turn.work(|core, _| core.nic.memory_attributes(handle))
    }

    /// Changes the attributes of registered memory.
    ///
    /// # Errors
    /// [`RequestError::UnknownMemory`]; [`RequestError::UnknownTag`].
    pub fn set_memory_attributes(
        &self,
        handle: u32,
        attributes: MemoryAttributes,
    ) -> Result<(), RequestError> {
        self.turn.work(|core, _| core.nic.set_memory_attributes(handle, attributes))
    }

    /// Creates a completion queue for up to `entries` completions.
    ///
    /// # Errors
    /// [`RequestError::TooMany`] if the NIC's limit is reached.
    pub fn create_queue(&self, entries: usize) -> Result<u32, RequestError> {
        self.turn.work(|core, _| core.nic.create_queue(entries))
    }

    /// Changes the capacity of a completion queue.
    ///
    /// # Errors
    /// [`RequestError::UnknownQueue`]; [`RequestError::InUse`] if it holds more completions than `entries`.
    pub fn resize_queue(&self, queue: u32, entries: usize) -> Result<(), RequestError> {
        self.turn.work(|core, _| core.nic.resize_queue(queue, entries))
    }

    /// Destroys a completion queue.
    ///
    /// # Errors
    /// [`RequestError::UnknownQueue`]; [`RequestError::InUse`] while a VI uses it.
    pub fn destroy_queue(&self, queue: u32) -> Result<(), RequestError> {
        self.turn.work(|core, _| core.nic.destroy_queue(queue))
    }

    /// Creates an idle VI and returns its number.
    ///
    /// # Errors
    /// [`RequestError::RdmaRead`] or [`RequestError::TransferBytes`] for attributes that the NIC does not
    /// support; [`RequestError::UnknownQueue`]; [`RequestError::UnknownTag`]; [`RequestError::TooMany`].
    pub fn create_vi(
        &self,
        attributes: ViAttributes,
        send_queue: Option<u32>,
        receive_queue: Option<u32>,
    ) -> Result<u32, RequestError> {
        self.turn.work(|core, _| core.nic.create_vi(attributes, send_queue, receive_queue))
    }

    /// Destroys an idle VI.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`]; [`RequestError::BadState`] unless it is idle; [`RequestError::InUse`]
    /// unless its queues are empty.
    pub fn destroy_vi(&self, vi: u32) -> Result<(), RequestError> {
        self.turn.work(|core, _| core.nic.destroy_vi(vi))?;
        for queue in [Queue::Send(vi), Queue::Receive(vi)] {
            self.turn.forget_queue(queue);
        }
        Ok(())
    }

    /// Returns a VI's state, its attributes, and whether its send and receive queues are empty.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`].
    pub fn vi(&self, vi: u32) -> Result<(ViState, ViAttributes, bool, bool), RequestError> {
        self.turn.work(|core, now| {
            core.drive(now);
            core.nic.vi(vi)
        })
    }

    /// Changes the attributes of an idle VI.
    ///
    /// # Errors
    /// [`RequestError::RdmaRead`] or [`RequestError::TransferBytes`] for unsupported attributes;
    /// [`RequestError::UnknownVi`]; [`RequestError::UnknownTag`]; [`RequestError::BadState`] unless idle.
    pub fn set_vi(&self, vi: u32, attributes: ViAttributes) -> Result<(), RequestError> {
        self.turn.work(|core, _| core.nic.set_vi(vi, attributes))
    }

    // ---- work

    /// Posts a descriptor to a send queue.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`]; [`RequestError::BadState`] if the VI is idle or connecting;
    /// [`RequestError::TooMany`] if the queue is full.
    #[inline]
    pub fn post_send(&self, vi: u32, work: Work<'_>) -> Result<(), RequestError> {
        self.turn.work(|core, _| core.nic.post_send(vi, work))
    }

    /// Posts a descriptor to a receive queue.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`]; [`RequestError::TooMany`] if the queue is full.
    #[inline]
    pub fn post_receive(&self, vi: u32, cookie: u64, segments: &[DataSegment]) -> Result<(), RequestError> {
        self.turn.work(|core, _| core.nic.post_receive(vi, cookie, segments))
    }

    /// Posts a send descriptor in which an error has already been found: see `kiban_vi::Nic`.
    ///
    /// # Errors
    /// Same as for [`Nic::post_send`].
    pub fn post_judged_send(&self, vi: u32, work: Work<'_>, status: Status) -> Result<(), RequestError> {
        self.turn.work(|core, _| core.nic.post_failed_send(vi, work, status))
    }

    /// Posts a receive descriptor in which an error has already been found.
    ///
    /// # Errors
    /// Same as for [`Nic::post_receive`].
    pub fn post_judged_receive(
        &self,
        vi: u32,
        cookie: u64,
        segments: &[DataSegment],
        status: Status,
    ) -> Result<(), RequestError> {
        self.turn.work(|core, _| core.nic.post_failed_receive(vi, cookie, segments, status))
    }

    /// Dequeues the next completed descriptor from a send queue without waiting.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`].
    #[inline]
    pub fn send_done(&self, vi: u32) -> Result<Option<Completion>, RequestError> {
        self.turn.look(|core| core.nic.send_done(vi).transpose()).transpose()
    }

    /// Dequeues the next completed descriptor from a receive queue without waiting.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`].
    #[inline]
    pub fn receive_done(&self, vi: u32) -> Result<Option<Completion>, RequestError> {
        self.turn.look(|core| core.nic.receive_done(vi).transpose()).transpose()
    }

    /// Removes the next completion from a completion queue without waiting; returns the VI that has a
    /// completed descriptor, and whether it is on the receive queue.
    ///
    /// # Errors
    /// [`RequestError::UnknownQueue`].
    #[inline]
    pub fn queue_done(&self, queue: u32) -> Result<Option<(u32, bool)>, RequestError> {
        self.turn.look(|core| core.nic.queue_done(queue).transpose()).transpose()
    }

    /// Waits for a completed descriptor on a send queue.
    ///
    /// # Errors
    /// [`Failure`] if there is no such VI, its completions go to a completion queue, the timeout expires, or
    /// the NIC has been closed or its board has ended.
    pub fn send_wait(&self, vi: u32, timeout: Duration) -> Result<Completion, Failure> {
        if self.turn.work(|core, _| core.nic.queues_of(vi))?.0.is_some() {
            return Err(Failure::OnCompletionQueue);
        }
        self.wait(Queue::Send(vi), timeout, |core| core.nic.send_done(vi).transpose())?
            .map_err(Failure::Refused)
    }

    /// Waits for a completed descriptor on a receive queue.
    ///
    /// # Errors
    /// Same as for [`Nic::send_wait`].
    pub fn receive_wait(&self, vi: u32, timeout: Duration) -> Result<Completion, Failure> {
        self.receive_wait_by_policy(vi, None, timeout)
    }

    /// Like [`Nic::receive_wait`], with a wait policy for this call. With `Wait::Hybrid`, this is the
    /// receive call described by Murayama, Ochiai and Yamaguchi (2000). Calls with the same policy share
    /// their adaptation state, which is separate from the state of the queue's own policy.
    ///
    /// # Errors
    /// Same as for [`Nic::send_wait`].
    pub fn receive_wait_by(&self, vi: u32, wait: Wait, timeout: Duration) -> Result<Completion, Failure> {
        self.receive_wait_by_policy(vi, Some(wait), timeout)
    }

    fn receive_wait_by_policy(
        &self,
        vi: u32,
        once: Option<Wait>,
        timeout: Duration,
    ) -> Result<Completion, Failure> {
        if self.turn.read(|core| core.nic.queues_of(vi))?.1.is_some() {
            return Err(Failure::OnCompletionQueue);
        }
        let guard = |core: &LinkedNic| core.receive_guard(vi);
        let look = |core: &mut LinkedNic| core.nic.receive_done(vi).transpose();
        self.wait_by(Queue::Receive(vi), once, guard, timeout, look)?.map_err(Failure::Refused)
    }

    /// Waits for a completion in a completion queue.
    ///
    /// # Errors
    /// [`Failure`] if there is no such queue, the timeout expires, or the NIC has been closed or its board
    /// has ended.
    pub fn queue_wait(&self, queue: u32, timeout: Duration) -> Result<(u32, bool), Failure> {
        let guard = |core: &LinkedNic| core.queue_guard(queue);
        let look = |core: &mut LinkedNic| core.nic.queue_done(queue).transpose();
        self.wait_by(Queue::Completions(queue), None, guard, timeout, look)?.map_err(Failure::Refused)
    }

    /// Returns the next asynchronous event without waiting.
    pub fn event(&self) -> Option<Event> {
        self.turn.look(|core| core.event())
    }

    /// Waits for the next asynchronous event.
    ///
    /// # Errors
    /// [`Failure`] if the timeout expires, or the NIC has been closed or its board has ended.
    pub fn event_wait(&self, timeout: Duration) -> Result<Event, Failure> {
        self.wait(Queue::Control, timeout, |core| core.event())
    }

    // ---- connections

    /// Starts listening at a discriminator; requests wait until they are fetched.
    ///
    /// # Errors
    /// [`RequestError::BadAddress`] if the discriminator is too long; [`RequestError::TooMany`] if the NIC's
    /// limit is reached.
    pub fn listen(&self, discriminator: &[u8]) -> Result<(), RequestError> {
        self.turn.work(|core, _| core.nic.listen(discriminator))
    }

    /// Stops listening at a discriminator.
    pub fn unlisten(&self, discriminator: &[u8]) {
        self.turn.work(|core, _| core.nic.unlisten(discriminator));
    }

    /// Waits for a request at a discriminator, and listens there from now on.
    ///
    /// # Errors
    /// [`Failure`] if the discriminator is too long, the timeout expires, or the NIC has been closed or its
    /// board has ended.
    pub fn connect_wait(&self, discriminator: &[u8], timeout: Duration) -> Result<Request, Failure> {
        self.listen(discriminator)?;
        self.wait(Queue::Control, timeout, |core| {
            let request = core.nic.request_at(discriminator)?;
            let host = core.address_of(request.path);
            let from = Address { host, discriminator: request.source };
            Some(Request { number: request.number, from, remoteness: request.remoteness })
        })
    }

    /// Accepts a request with a VI that has the same attributes as the requesting VI.
    ///
    /// # Errors
    /// [`RequestError::UnknownRequest`]; [`RequestError::UnknownVi`]; [`RequestError::BadState`] unless the
    /// VI is idle; [`RequestError::Reliability`], [`RequestError::TransferBytes`] or [`RequestError::Qos`] if
    /// that attribute differs from the peer's; [`RequestError::UnknownPath`].
    pub fn accept(&self, request: &Request, vi: u32) -> Result<(), RequestError> {
        self.turn.work(|core, now| core.nic.accept(request.number, vi, now))
    }

    /// Rejects a request.
    ///
    /// # Errors
    /// [`RequestError::UnknownRequest`].
    pub fn reject(&self, request: &Request) -> Result<(), RequestError> {
        self.turn.work(|core, _| core.nic.reject(request.number))
    }

    /// Connects a VI to a listening endpoint; `local` is the discriminator of the local end.
    ///
    /// # Errors
    /// [`Failure`] if there is no listener, the attributes of the two ends differ, or the timeout
    /// expires.
    pub fn connect(
        &self,
        vi: u32,
        local: &[u8],
        remote: &Address,
        timeout: Duration,
    ) -> Result<PeerAttributes, Failure> {
        self.begin(vi, local, remote, false, timeout)?;
        self.peer_wait(vi, timeout)
    }

    /// Requests a connection that the peer must request as well. Fetch the result with [`Nic::peer_done`] or
    /// [`Nic::peer_wait`].
    ///
    /// # Errors
    /// [`Failure`] if the VI is not idle, or there is no path to that host.
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
                io::ErrorKind::InvalidInput => Failure::Refused(RequestError::BadAddress),
                // All of this NIC's streams on the board are in use.
                io::ErrorKind::OutOfMemory => Failure::Refused(RequestError::TooMany),
                _ => Failure::Connect(ConnectError::Unreachable),
            })?;
            let until = if timeout == Duration::MAX { Instant::NEVER } else { now + timeout };
            Ok(core.nic.request(vi, path, (local, &remote.discriminator), is_peer, now, until)?)
        })
    }

    /// Returns the result of a VI's request without waiting, if it is known.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`].
    pub fn peer_done(&self, vi: u32) -> Result<Option<Result<PeerAttributes, ConnectError>>, RequestError> {
        self.turn.look(|core| core.nic.outcome(vi).transpose()).transpose()
    }

    /// Waits for the result of a VI's request.
    ///
    /// # Errors
    /// [`Failure`] if the request failed or the timeout expired (after either, the VI is idle), or if there
    /// is no request.
    pub fn peer_wait(&self, vi: u32, timeout: Duration) -> Result<PeerAttributes, Failure> {
        let outcome = self.wait(Queue::Control, timeout, |core| match core.nic.outcome(vi) {
            // There is no request, so there will be no result.
            Ok(None) => match core.nic.vi(vi) {
                Ok((ViState::ConnectPending, ..)) => None,
                Ok((state, ..)) => Some(Err(RequestError::BadState(state))),
                Err(refusal) => Some(Err(refusal)),
            },
            outcome => outcome.transpose(),
        });
        match outcome {
            Ok(outcome) => outcome?.map_err(|error| match error {
                ConnectError::Timeout => Failure::Timeout,
                error => Failure::Connect(error),
            }),
            Err(failure) => {
                // Withdraw the request: its result is no longer awaited.
                let _ = self.disconnect(vi);
                Err(failure)
            }
        }
    }

    /// Ends a VI's connection, request or error state; the VI becomes idle.
    ///
    /// # Errors
    /// [`RequestError::UnknownVi`].
    pub fn disconnect(&self, vi: u32) -> Result<(), RequestError> {
        self.turn.work(|core, _| core.nic.disconnect(vi))
    }

    // ---- hosts of other processes

    /// Lets other processes of this user attach to this NIC under a name, through rings in shared memory
    /// ([`crate::attach`]).
    ///
    /// # Errors
    /// The name is in use by another process, or its length is invalid.
    pub fn serve(&self, name: &str) -> io::Result<()> {
        self.turn.work(|core, _| core.serve(name))
    }

    /// Returns the numbers of existing VIs, registered memory regions and attached hosts.
    pub fn in_use(&self) -> (usize, usize, usize) {
        self.turn.work(|core, now| {
            core.drive(now);
            let (vis, memories) = core.nic.in_use();
            (vis, memories, core.hosts.channels().count())
        })
    }

    // ---- waiting

    /// Sets the wait policy for queues that have no policy of their own.
    pub fn set_wait(&self, wait: Wait) {
        self.turn.set_wait(wait);
    }

    /// Sets the wait policy of one queue.
    pub fn set_queue_wait(&self, queue: Queue, wait: Wait) {
        self.turn.set_queue_wait(queue, wait);
    }

    /// Returns the wait statistics of a queue, or `None` before the first wait.
    pub fn wait_report(&self, queue: Queue) -> Option<Report> {
        self.turn.wait_report(queue)
    }

    /// Returns the wait policy of a queue.
    pub fn wait_policy(&self, queue: Queue) -> Wait {
        self.turn.wait_policy(queue)
    }

    fn wait<T>(
        &self,
        queue: Queue,
        timeout: Duration,
        look: impl FnMut(&mut LinkedNic) -> Option<T>,
    ) -> Result<T, Failure> {
        self.wait_by(queue, None, |_| Duration::ZERO, timeout, look)
    }

    fn wait_by<T>(
        &self,
        queue: Queue,
        once: Option<Wait>,
        guard: impl FnOnce(&LinkedNic) -> Duration,
        timeout: Duration,
        mut look: impl FnMut(&mut LinkedNic) -> Option<T>,
    ) -> Result<T, Failure> {
        // Deliver everything that is still available before reporting that the board has ended.
        self.turn.wait_guarded(queue, once, guard, timeout, |core| {
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
