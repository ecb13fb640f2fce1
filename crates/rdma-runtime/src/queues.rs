//! Completion queues, queue pairs, shared receive queues, work requests.

use super::device::Device;
use super::linked_nic::LinkedNic;
use super::memory::{Pd, Remote};
use super::{Completion, Context, Error, Notify, QpState, Queue, RequestError, Slice};
use kiban_base::{Region, Wait};
use kiban_rdma::hif::{Answer, CompletionRing, Request};
use kiban_rdma::rnic::{Data, Operation, QpAttributes, ReceiveWork, SendWork, TaggedAddress};
use kiban_rdma::wire::rdmap::Atomic;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Maximum capacity of a completion queue of a board's NIC, as of a NIC by default.
const CQ_ENTRIES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct CqInner {
    pub(super) context: Context,
    pub(super) number: u32,
}

impl Drop for CqInner {
    fn drop(&mut self) {
        // This cannot fail: queue pairs hold a reference to their completion queue, so no queue pair uses it
        // any more.
        let cq = self.number;
        let _ = self.context.control(
            |core, _| core.nic.core.destroy_cq(cq).map(|()| 0),
            || Request::DestroyCq { cq },
            |nic, _| nic.remove_cq(cq),
        );
        self.context.turn.forget_queue(Queue::Completions(self.number));
    }
}

/// A completion queue. Clones share it.
#[derive(Clone, Debug)]
pub struct Cq {
    pub(super) inner: Arc<CqInner>,
}

impl Cq {
    pub(super) fn new(context: &Context, entries: usize) -> Result<Cq, Error> {
        // The board's NIC puts completions into a ring in memory that it shares with this program.
        let ring = match context.door() {
            Some(door) if entries <= CQ_ENTRIES_MAX => {
                Some(door.share(CompletionRing::new(entries).bytes())?)
            }
            Some(_) => return Err(RequestError::TooMany.into()),
            None => None,
        };
        let memory = ring.as_ref().map_or(0, |(memory, _)| *memory);
        let number = context.control(
            |core, _| core.nic.core.create_cq(entries),
            || Request::CreateCq { memory, entries: entries as u32 },
            |nic, cq| ring.into_iter().for_each(|(_, memory)| nic.add_cq(cq, memory, entries)),
        )?;
        Ok(Cq { inner: Arc::new(CqInner { context: context.clone(), number }) })
    }

    /// Returns the queue's number, as reported by [`Context::cq_event`].
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Returns the next completion, if there is one. Makes progress once, without waiting.
    #[inline]
    pub fn poll(&self) -> Option<Completion> {
        let number = self.inner.number;
        self.inner.context.turn.look(|device| device.poll(number))
    }

    /// Appends up to `most` available completions to `done`. Returns how many were appended.
    pub fn poll_into(&self, done: &mut Vec<Completion>, most: usize) -> usize {
        let (number, before) = (self.inner.number, done.len());
        self.inner.context.turn.look(|device| {
            while done.len() - before < most
                && let Some(completion) = device.poll(number)
            {
                done.push(completion);
            }
            (done.len() > before).then_some(())
        });
        done.len() - before
    }

    /// Waits for the next completion, following the queue's wait policy.
    ///
    /// # Errors
    /// The timeout expired.
    #[inline]
    pub fn wait(&self, timeout: Duration) -> Result<Completion, Error> {
        let number = self.inner.number;
        let look = |device: &mut Device| device.poll(number);
        Ok(self.inner.context.turn.wait(Queue::Completions(number), None, timeout, look)?)
    }

    /// Sets the wait policy of this queue.
    pub fn set_wait(&self, wait: Wait) {
        self.inner.context.set_queue_wait(Queue::Completions(self.inner.number), wait);
    }

    /// Requests one notification, through [`Context::cq_event`], for the next completion. Poll once more
    /// after this call.
    pub fn notify(&self, what: Notify) {
        let cq = self.inner.number;
        self.inner.context.turn.work(|device, _| match device {
            // This cannot fail: the queue exists as long as this value.
            Device::Own(core) => drop(core.nic.core.arm(cq, what).is_ok()),
            Device::Board(nic) => nic.arm_cq(cq),
        });
    }

    /// Changes the capacity in completions.
    ///
    /// # Errors
    /// The queue already holds more completions.
    pub fn resize(&self, entries: usize) -> Result<(), Error> {
        let cq = self.inner.number;
        self.inner.context.control(
            |core, _| core.nic.core.resize_cq(cq, entries).map(|()| 0),
            || Request::ResizeCq { cq, entries: entries.try_into().unwrap_or(u32::MAX) },
            |_, _| {},
        )?;
        Ok(())
    }
}

#[derive(Debug)]
struct SrqInner {
    pd: Pd,
    number: u32,
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        let srq = self.number;
        let _ = self.pd.context().control(
            |core, _| core.nic.core.destroy_srq(srq).map(|()| 0),
            || Request::DestroySrq { srq },
            |nic, _| nic.remove_srq(srq),
        );
    }
}

/// A shared receive queue. Clones share it.
#[derive(Clone, Debug)]
pub struct Srq {
    inner: Arc<SrqInner>,
}

impl Srq {
    /// Posts a receive that any of its queue pairs may consume.
    ///
    /// # Errors
    /// The queue is full, or the receive has more elements than the queue allows.
    pub fn post_recv(&self, id: u64, slices: &[Slice]) -> Result<(), Error> {
        let work = receive_work(id, slices);
        let turn = &self.inner.pd.context().turn;
        turn.work(|device, _| device.post_srq_receive(self.inner.number, work))
    }

    /// Sets the limit: one [`super::Event::SrqLimit`] is raised when fewer receives than the limit are left.
    pub fn set_limit(&self, limit: usize) {
        // This cannot fail: the queue exists as long as this value.
        let srq = self.inner.number;
        let _ = self.inner.pd.context().control(
            |core, _| core.nic.core.set_srq_limit(srq, limit).map(|()| 0),
            || Request::SetSrqLimit { srq, limit: limit.try_into().unwrap_or(u32::MAX) },
            |_, _| {},
        );
    }
}

fn receive_work(id: u64, slices: &[Slice]) -> ReceiveWork {
    ReceiveWork { id, sges: slices.iter().map(|slice| slice.0).collect() }
}

/// Options of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpOptions {
    /// Maximum number of incomplete sends.
    pub max_send_wr: usize,
    /// Maximum number of incomplete receives.
    pub max_recv_wr: usize,
    /// Maximum number of elements in a work request.
    pub max_sge: usize,
    /// Maximum number of bytes of inline data.
    pub max_inline_data: usize,
    /// Whether every send generates a completion.
    pub sq_sig_all: bool,
    /// Whether a message that finds no posted receive waits for one, instead of ending the connection as the
    /// standard requires.
    pub waits_for_receives: bool,
}

impl Default for QpOptions {
    fn default() -> QpOptions {
        QpOptions {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_sge: 8,
            max_inline_data: 256,
            sq_sig_all: false,
            waits_for_receives: false,
        }
    }
}

impl From<Remote> for TaggedAddress {
    fn from(remote: Remote) -> TaggedAddress {
        TaggedAddress { stag: remote.rkey, offset: remote.address }
    }
}

/// A work request for a send queue. The constructors here make signalled requests without fences.
#[derive(Clone, Debug)]
pub struct Wr(SendWork);

impl Wr {
    fn of(id: u64, operation: Operation, slices: &[Slice]) -> Wr {
        let sges = slices.iter().map(|slice| slice.0).collect();
        Wr(SendWork::new(id, operation, Data::Elements(sges)))
    }

    /// Returns a Send.
    pub fn send(id: u64, slice: Slice) -> Wr {
        Wr::of(id, Operation::SEND, &[slice])
    }

    /// Returns a Send whose data is in several parts.
    pub fn send_all(id: u64, slices: &[Slice]) -> Wr {
        Wr::of(id, Operation::SEND, slices)
    }

    /// Returns a Send of inline data.
    pub fn send_inline(id: u64, bytes: &[u8]) -> Wr {
        Wr(SendWork::new(id, Operation::SEND, Data::Inline(SmallVec::from_slice(bytes))))
    }

    /// Returns a Send that invalidates a key of the peer.
    pub fn send_with_invalidate(id: u64, slice: Slice, rkey: u32) -> Wr {
        Wr::of(id, Operation::Send { invalidate: Some(rkey) }, &[slice])
    }

    /// Returns a message of eight octets of immediate data; both ends must support RFC 7306
    /// ([`super::Connect::extensions`]).
    pub fn immediate(id: u64, data: u64) -> Wr {
        Wr::of(id, Operation::Immediate { data }, &[])
    }

    /// Returns a Write to the peer's memory.
    pub fn write(id: u64, slice: Slice, remote: Remote) -> Wr {
        Wr::of(id, Operation::write(remote.into()), &[slice])
    }

    /// Returns a Write of several parts.
    pub fn write_all(id: u64, slices: &[Slice], remote: Remote) -> Wr {
        Wr::of(id, Operation::write(remote.into()), slices)
    }

    /// Returns a Write of inline data.
    pub fn write_inline(id: u64, bytes: &[u8], remote: Remote) -> Wr {
        Wr(SendWork::new(id, Operation::write(remote.into()), Data::Inline(SmallVec::from_slice(bytes))))
    }

    /// Returns a Write after which immediate data is delivered to the peer's receive queue; both ends must
    /// support RFC 7306.
    pub fn write_with_immediate(id: u64, slice: Slice, remote: Remote, data: u64) -> Wr {
        Wr::of(id, Operation::Write { remote: remote.into(), immediate: Some(data) }, &[slice])
    }

    /// Returns a Read from the peer's memory.
    pub fn read(id: u64, slice: Slice, remote: Remote) -> Wr {
        Wr::of(id, Operation::read(remote.into()), &[slice])
    }

    /// Returns a Read into several parts.
    pub fn read_all(id: u64, slices: &[Slice], remote: Remote) -> Wr {
        Wr::of(id, Operation::read(remote.into()), slices)
    }

    /// Returns an atomic addition to eight bytes of the peer's memory. Their previous value is stored in the
    /// slice. Both ends must support RFC 7306.
    pub fn fetch_add(id: u64, slice: Slice, remote: Remote, add: u64) -> Wr {
        Wr::of(
            id,
            Operation::Atomic { remote: remote.into(), atomic: Atomic::FetchAdd { add, mask: 0 } },
            &[slice],
        )
    }

    /// Returns an atomic compare and swap on eight bytes of the peer's memory: it stores `swap` if the value
    /// is `compare`. The previous value is stored in the slice. Both ends must support RFC 7306.
    pub fn compare_swap(id: u64, slice: Slice, remote: Remote, compare: u64, swap: u64) -> Wr {
        let atomic = Atomic::CompareSwap { swap, swap_mask: u64::MAX, compare, compare_mask: u64::MAX };
        Wr::of(id, Operation::Atomic { remote: remote.into(), atomic }, &[slice])
    }

    /// Returns an invalidation of a local key.
    pub fn local_invalidate(id: u64, key: u32) -> Wr {
        Wr::of(id, Operation::LocalInvalidate { stag: key }, &[])
    }

    /// Returns a binding of a window to a part of a region ([`super::Mr::binding`]); `None` unbinds the
    /// window.
    pub fn bind(id: u64, window: &super::Mw, binding: Option<kiban_rdma::rnic::Binding>) -> Wr {
        Wr::of(id, Operation::Bind { window: window.rkey(), binding }, &[])
    }

    /// Returns a registration: the blocks, in this order, become one range that begins at `address`. It fails
    /// if the key has memory, or allows fewer blocks.
    pub fn register(
        id: u64,
        key: &super::FastMr,
        address: u64,
        blocks: Vec<Region>,
        access: super::Access,
    ) -> Wr {
        Wr::of(id, Operation::Register { stag: key.key(), address, blocks, access }, &[])
    }

    /// Makes success generate no completion.
    #[must_use]
    pub fn unsignalled(mut self) -> Wr {
        self.0.signalled = false;
        self
    }

    /// Requests a solicited event at the peer.
    #[must_use]
    pub fn solicited(mut self) -> Wr {
        self.0.solicited = true;
        self
    }

    /// Delays the start until all earlier reads and atomics are done.
    #[must_use]
    pub fn fenced(mut self) -> Wr {
        self.0.fence = true;
        self
    }
}

#[derive(Debug)]
pub(super) struct QpInner {
    pub(super) pd: Pd,
    pub(super) number: u32,
    _send_cq: Cq,
    _recv_cq: Cq,
    _srq: Option<Srq>,
}

impl Drop for QpInner {
    fn drop(&mut self) {
        let qp = self.number;
        let own = |core: &mut LinkedNic, now| {
            if let Some(end) = core.nic.end_of(qp) {
                core.forget(end, now);
            }
            core.nic.core.destroy_qp(qp).map(|()| 0)
        };
        // This cannot fail: the queue pair has not been destroyed before.
        let request = || Request::DestroyQp { qp };
        let _ = self.pd.context().control(own, request, |nic, _| nic.remove_qp(qp));
    }
}

/// A queue pair. Clones share it.
#[derive(Clone)]
pub struct Qp {
    pub(super) inner: Arc<QpInner>,
}

impl Pd {
    /// Creates a queue pair.
    ///
    /// # Errors
    /// There are too many, or the options exceed the NIC's limits.
    pub fn create_qp(&self, send_cq: &Cq, recv_cq: &Cq, options: QpOptions) -> Result<Qp, Error> {
        self.make_qp(send_cq, recv_cq, None, options)
    }

    /// Creates a queue pair that uses a shared receive queue.
    ///
    /// # Errors
    /// As for [`Pd::create_qp`].
    pub fn create_qp_with_srq(
        &self,
        send_cq: &Cq,
        recv_cq: &Cq,
        srq: &Srq,
        options: QpOptions,
    ) -> Result<Qp, Error> {
        self.make_qp(send_cq, recv_cq, Some(srq), options)
    }

    fn make_qp(&self, send: &Cq, recv: &Cq, srq: Option<&Srq>, options: QpOptions) -> Result<Qp, Error> {
        let attributes = QpAttributes {
            pd: self.inner.number,
            send_cq: send.number(),
            receive_cq: recv.number(),
            srq: srq.map(|srq| srq.inner.number),
            send_work_max: options.max_send_wr,
            receive_work_max: options.max_recv_wr,
            send_sges_max: options.max_sge,
            receive_sges_max: options.max_sge,
            inline_bytes_max: options.max_inline_data,
            signal_all: options.sq_sig_all,
            waits_for_receives: options.waits_for_receives,
        };
        let number = self.context().control(
            |core, _| core.nic.core.create_qp(attributes),
            || Request::CreateQp { attributes },
            |nic, qp| nic.add_qp(qp, attributes),
        )?;
        let inner = QpInner {
            pd: self.clone(),
            number,
            _send_cq: send.clone(),
            _recv_cq: recv.clone(),
            _srq: srq.cloned(),
        };
        Ok(Qp { inner: Arc::new(inner) })
    }

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// There are too many queues, or `max_wr` is too large.
    pub fn create_srq(&self, max_wr: usize) -> Result<Srq, Error> {
        let pd = self.inner.number;
        let number = self.context().control(
            |core, _| core.nic.core.create_srq(pd, max_wr, 0),
            || Request::CreateSrq { pd, work_max: max_wr.try_into().unwrap_or(u32::MAX) },
            |nic, srq| nic.add_srq(srq, max_wr),
        )?;
        Ok(Srq { inner: Arc::new(SrqInner { pd: self.clone(), number }) })
    }
}

impl Qp {
    /// Returns its number.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Returns the context that it belongs to.
    pub fn context(&self) -> &Context {
        self.inner.pd.context()
    }

    /// Posts a work request, and immediately sends everything that can be sent.
    ///
    /// # Errors
    /// The queue is full, the queue pair is not connected, or the operation was not agreed on with the peer.
    #[inline]
    pub fn post_send(&self, wr: Wr) -> Result<(), Error> {
        self.context().turn.work(|device, _| device.post_send(self.inner.number, wr.0))
    }

    /// Posts several work requests, which are sent together: many short ones fit into one packet. Returns
    /// how many were accepted before the first error.
    ///
    /// # Errors
    /// The first request was refused, for the reason returned.
    pub fn post_send_all(&self, wrs: impl IntoIterator<Item = Wr>) -> Result<usize, Error> {
        // Collect the requests before the lock is taken, because the iterator may use this context.
        let wrs: SmallVec<[Wr; 8]> = wrs.into_iter().collect();
        let (taken, refusal) = self.context().turn.work(|device, _| {
            let mut taken = 0;
            for wr in wrs {
                match device.post_send(self.inner.number, wr.0) {
                    Ok(()) => taken += 1,
                    Err(refusal) => return (taken, Some(refusal)),
                }
            }
            (taken, None)
        });
        match refusal {
            Some(refusal) if taken == 0 => Err(refusal),
            _ => Ok(taken),
        }
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The queue is full, or the receive has more elements than the queue allows.
    #[inline]
    pub fn post_recv(&self, id: u64, slices: &[Slice]) -> Result<(), Error> {
        let work = receive_work(id, slices);
        self.context().turn.work(|device, _| device.post_receive(self.inner.number, work))
    }

    /// Returns the state, and the agreed maximum numbers of reads and support of RFC 7306.
    fn query(&self) -> Result<(QpState, (u16, u16, bool)), Error> {
        let qp = self.inner.number;
        if self.context().door().is_some() {
            return match self.context().ask(&Request::QueryQp { qp })? {
                Answer::Qp { state, ird, ord, extensions } => Ok((state, (ird, ord, extensions))),
                _ => Err(RequestError::OtherKind.into()),
            };
        }
        let (_, state, traits) = self.context().turn.read(|device| match device {
            Device::Own(core) => core.nic.core.query_qp(qp),
            Device::Board(_) => Err(RequestError::OtherKind),
        })?;
        Ok((state, (traits.ird, traits.ord, traits.extensions)))
    }

    /// Returns the state.
    pub fn state(&self) -> QpState {
        self.query().map_or(QpState::Error, |(state, _)| state)
    }

    /// Returns the agreed traits: the maximum numbers of outstanding reads from the peer and to the peer, and
    /// whether both ends support RFC 7306.
    ///
    /// # Errors
    /// The queue pair is not connected.
    pub fn agreed(&self) -> Result<(u16, u16, bool), Error> {
        match self.query()? {
            (state @ QpState::Idle, _) => Err(RequestError::BadState(state).into()),
            (_, agreed) => Ok(agreed),
        }
    }

    /// Aborts the connection: work is flushed and the connection is cut, as after an error.
    pub fn abort(&self) {
        let qp = self.inner.number;
        // This cannot fail: the queue pair exists as long as this value.
        let _ = self.context().control(
            |core, _| core.nic.core.abort(qp).map(|()| 0),
            || Request::AbortQp { qp },
            |_, _| {},
        );
    }

    /// Returns a queue pair whose connection has ended to its initial state.
    ///
    /// # Errors
    /// The queue pair is connected.
    pub fn reset(&self) -> Result<(), Error> {
        let qp = self.inner.number;
        self.context().control(
            |core, _| core.nic.reset(qp).map(|()| 0),
            || Request::ResetQp { qp },
            |nic, _| nic.reset_qp(qp),
        )?;
        Ok(())
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qp({:#x})", self.inner.number)
    }
}
