//! Completion queues, queue pairs, shared receive queues, work requests.

use super::memory::Pd;
use super::{Completion, Context, Error, Notify, QpState, Queue, Refusal, Slice};
use kiban_ground::Wait;
use kiban_stack::iwarp::rnic::{Data, Operation, Place, QpAttributes, ReceiveWork, SendWork};
use kiban_wire::rdmap::Atomic;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct CqInner {
    pub(super) context: Context,
    pub(super) number: u32,
}

impl Drop for CqInner {
    fn drop(&mut self) {
        // Its users hold it, so there are none.
        let _ = self.context.turn.work(|core, _| core.nic.core.destroy_cq(self.number));
        self.context.turn.forget_queue(Queue::Completions(self.number));
    }
}

/// A completion queue. Clones are the same.
#[derive(Clone, Debug)]
pub struct Cq {
    pub(super) inner: Arc<CqInner>,
}

impl Cq {
    pub(super) fn new(context: &Context, entries: usize) -> Result<Cq, Error> {
        let number = context.turn.work(|core, _| core.nic.core.create_cq(entries))?;
        Ok(Cq { inner: Arc::new(CqInner { context: context.clone(), number }) })
    }

    /// Its number: what [`Context::cq_event`] names.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// The next completion; looks once, and moves what there is to move.
    #[inline]
    pub fn poll(&self) -> Option<Completion> {
        let number = self.inner.number;
        self.inner.context.turn.look(|core| core.nic.core.poll(number).ok().flatten())
    }

    /// Appends up to `most` completions that are here: how many.
    pub fn poll_into(&self, done: &mut Vec<Completion>, most: usize) -> usize {
        let (number, before) = (self.inner.number, done.len());
        self.inner.context.turn.look(|core| {
            while done.len() - before < most
                && let Ok(Some(completion)) = core.nic.core.poll(number)
            {
                done.push(completion);
            }
            (done.len() > before).then_some(())
        });
        done.len() - before
    }

    /// Waits for the next completion, by the queue's policy.
    ///
    /// # Errors
    /// The time is over.
    #[inline]
    pub fn wait(&self, timeout: Duration) -> Result<Completion, Error> {
        let number = self.inner.number;
        let look = |core: &mut super::Core| core.nic.core.poll(number).ok().flatten();
        Ok(self.inner.context.turn.wait(Queue::Completions(number), None, timeout, look)?)
    }

    /// How waits for this queue wait.
    pub fn set_wait(&self, wait: Wait) {
        self.inner.context.set_queue_wait(Queue::Completions(self.inner.number), wait);
    }

    /// Asks to be told once of the next completion, by [`Context::cq_event`]; look again after asking.
    pub fn notify(&self, what: Notify) {
        // The queue is there as long as this value.
        let _ = self.inner.context.turn.work(|core, _| core.nic.core.arm(self.inner.number, what));
    }

    /// Changes how many completions it holds.
    ///
    /// # Errors
    /// More wait already.
    pub fn resize(&self, entries: usize) -> Result<(), Error> {
        Ok(self.inner.context.turn.work(|core, _| core.nic.core.resize_cq(self.inner.number, entries))?)
    }
}

#[derive(Debug)]
struct SrqInner {
    pd: Pd,
    number: u32,
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        let _ = self.pd.context().turn.work(|core, _| core.nic.core.destroy_srq(self.number));
    }
}

/// A shared receive queue. Clones are the same.
#[derive(Clone, Debug)]
pub struct Srq {
    inner: Arc<SrqInner>,
}

impl Srq {
    /// Posts a receive that any of its queue pairs may take.
    ///
    /// # Errors
    /// It is full, or takes fewer elements.
    pub fn post_recv(&self, id: u64, slices: &[Slice]) -> Result<(), Error> {
        let work = receive_work(id, slices);
        let turn = &self.inner.pd.context().turn;
        Ok(turn.work(|core, _| core.nic.core.post_srq_receive(self.inner.number, work))?)
    }

    /// The host is told once ([`super::Event::SrqLimit`]) when fewer receives are left.
    pub fn set_limit(&self, limit: usize) {
        // It is there as long as this value.
        let turn = &self.inner.pd.context().turn;
        let _ = turn.work(|core, _| core.nic.core.set_srq_limit(self.inner.number, limit));
    }
}

fn receive_work(id: u64, slices: &[Slice]) -> ReceiveWork {
    ReceiveWork { id, sges: slices.iter().map(|slice| slice.0).collect() }
}

/// What a queue pair is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpOptions {
    /// Sends that are not complete, at most.
    pub max_send_wr: usize,
    /// Receives that are not complete, at most.
    pub max_recv_wr: usize,
    /// Elements of a work request, at most.
    pub max_sge: usize,
    /// Bytes of inline data, at most.
    pub max_inline_data: usize,
    /// Whether every send is signalled.
    pub sq_sig_all: bool,
    /// Whether a message for which no receive is posted waits, instead of ending the connection as the standard has it.
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

/// Memory of a peer's, as the peer has told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remote {
    /// The key.
    pub rkey: u32,
    /// The address.
    pub address: u64,
}

impl Remote {
    /// Bytes that [`Remote::to_bytes`] makes.
    pub const BYTES: usize = 12;

    /// So many bytes further on.
    #[must_use]
    pub fn at(self, bytes: u64) -> Remote {
        Remote { address: self.address.wrapping_add(bytes), ..self }
    }

    /// Key and address in network byte order: a form in which programs may tell each other, for example as private data.
    pub fn to_bytes(self) -> [u8; Remote::BYTES] {
        let mut bytes = [0; Remote::BYTES];
        bytes[..4].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[4..].copy_from_slice(&self.address.to_be_bytes());
        bytes
    }

    /// What [`Remote::to_bytes`] made, at the beginning of `bytes`; none if they are too few.
    pub fn from_bytes(bytes: &[u8]) -> Option<Remote> {
        let (rkey, rest) = bytes.split_first_chunk()?;
        let (address, _) = rest.split_first_chunk()?;
        Some(Remote { rkey: u32::from_be_bytes(*rkey), address: u64::from_be_bytes(*address) })
    }
}

impl From<Remote> for Place {
    fn from(remote: Remote) -> Place {
        Place { stag: remote.rkey, offset: remote.address }
    }
}

/// A work request for a send queue. Those made by the functions here are signalled and have no fence.
#[derive(Clone, Debug)]
pub struct Wr(SendWork);

impl Wr {
    fn of(id: u64, operation: Operation, slices: &[Slice]) -> Wr {
        let sges = slices.iter().map(|slice| slice.0).collect();
        Wr(SendWork::new(id, operation, Data::Elements(sges)))
    }

    /// A message to the peer's receive queue.
    pub fn send(id: u64, slice: Slice) -> Wr {
        Wr::of(id, Operation::SEND, &[slice])
    }

    /// The same of several parts.
    pub fn send_all(id: u64, slices: &[Slice]) -> Wr {
        Wr::of(id, Operation::SEND, slices)
    }

    /// A message of bytes that stand in the work request itself.
    pub fn send_inline(id: u64, bytes: &[u8]) -> Wr {
        Wr(SendWork::new(id, Operation::SEND, Data::Inline(SmallVec::from_slice(bytes))))
    }

    /// A message that invalidates a key of the peer's.
    pub fn send_with_invalidate(id: u64, slice: Slice, rkey: u32) -> Wr {
        Wr::of(id, Operation::Send { invalidate: Some(rkey) }, &[slice])
    }

    /// Eight octets to the peer's receive queue; both ends must know RFC 7306 ([`super::Connect::extensions`]).
    pub fn immediate(id: u64, data: u64) -> Wr {
        Wr::of(id, Operation::Immediate { data }, &[])
    }

    /// Writes to the peer's memory.
    pub fn write(id: u64, slice: Slice, remote: Remote) -> Wr {
        Wr::of(id, Operation::write(remote.into()), &[slice])
    }

    /// The same of several parts.
    pub fn write_all(id: u64, slices: &[Slice], remote: Remote) -> Wr {
        Wr::of(id, Operation::write(remote.into()), slices)
    }

    /// The same of bytes that stand in the work request itself.
    pub fn write_inline(id: u64, bytes: &[u8], remote: Remote) -> Wr {
        Wr(SendWork::new(id, Operation::write(remote.into()), Data::Inline(SmallVec::from_slice(bytes))))
    }

    /// Writes, and tells the peer's receive queue when all is there; both ends must know RFC 7306.
    pub fn write_with_immediate(id: u64, slice: Slice, remote: Remote, data: u64) -> Wr {
        Wr::of(id, Operation::Write { remote: remote.into(), immediate: Some(data) }, &[slice])
    }

    /// Reads the peer's memory.
    pub fn read(id: u64, slice: Slice, remote: Remote) -> Wr {
        Wr::of(id, Operation::read(remote.into()), &[slice])
    }

    /// The same into several parts.
    pub fn read_all(id: u64, slices: &[Slice], remote: Remote) -> Wr {
        Wr::of(id, Operation::read(remote.into()), slices)
    }

    /// Adds to eight bytes of the peer's memory; what they were comes to the slice. Both ends must know RFC 7306.
    pub fn fetch_add(id: u64, slice: Slice, remote: Remote, add: u64) -> Wr {
        Wr::of(
            id,
            Operation::Atomic { remote: remote.into(), atomic: Atomic::FetchAdd { add, mask: 0 } },
            &[slice],
        )
    }

    /// Puts `swap` where `compare` is; what was there comes to the slice. Both ends must know RFC 7306.
    pub fn compare_swap(id: u64, slice: Slice, remote: Remote, compare: u64, swap: u64) -> Wr {
        let atomic = Atomic::CompareSwap { swap, swap_mask: u64::MAX, compare, compare_mask: u64::MAX };
        Wr::of(id, Operation::Atomic { remote: remote.into(), atomic }, &[slice])
    }

    /// A key of this host's names nothing from then on.
    pub fn local_invalidate(id: u64, key: u32) -> Wr {
        Wr::of(id, Operation::LocalInvalidate { stag: key }, &[])
    }

    /// A window shows a part of a region from then on ([`super::Mr::binding`]); without, nothing.
    pub fn bind(id: u64, window: &super::Mw, binding: Option<kiban_stack::iwarp::rnic::Binding>) -> Wr {
        Wr::of(id, Operation::Bind { window: window.rkey(), binding }, &[])
    }

    /// Its success is not told.
    #[must_use]
    pub fn unsignalled(mut self) -> Wr {
        self.0.signalled = false;
        self
    }

    /// The peer's solicited event is raised.
    #[must_use]
    pub fn solicited(mut self) -> Wr {
        self.0.solicited = true;
        self
    }

    /// It starts when all reads and atomics before it are done.
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
        self.pd.context().turn.work(|core, now| {
            if let Some(end) = core.nic.end_of(self.number) {
                core.forget(end, now);
            }
            // It is there until now.
            let _ = core.nic.core.destroy_qp(self.number);
        });
    }
}

/// A queue pair. Clones are the same.
#[derive(Clone)]
pub struct Qp {
    pub(super) inner: Arc<QpInner>,
}

impl Pd {
    /// A queue pair.
    ///
    /// # Errors
    /// There are too many, or it asks for more than there may be.
    pub fn create_qp(&self, send_cq: &Cq, recv_cq: &Cq, options: QpOptions) -> Result<Qp, Error> {
        self.make_qp(send_cq, recv_cq, None, options)
    }

    /// A queue pair that takes its receives from a shared queue.
    ///
    /// # Errors
    /// As [`Pd::create_qp`].
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
        let number = self.context().turn.work(|core, _| core.nic.core.create_qp(attributes))?;
        let inner = QpInner {
            pd: self.clone(),
            number,
            _send_cq: send.clone(),
            _recv_cq: recv.clone(),
            _srq: srq.cloned(),
        };
        Ok(Qp { inner: Arc::new(inner) })
    }

    /// A shared receive queue.
    ///
    /// # Errors
    /// There are too many, or too many entries.
    pub fn create_srq(&self, max_wr: usize) -> Result<Srq, Error> {
        let pd = self.inner.number;
        let number = self.context().turn.work(|core, _| core.nic.core.create_srq(pd, max_wr, 0))?;
        Ok(Srq { inner: Arc::new(SrqInner { pd: self.clone(), number }) })
    }
}

impl Qp {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// The context that it belongs to.
    pub fn context(&self) -> &Context {
        self.inner.pd.context()
    }

    /// Posts a work request; what can leave leaves at once.
    ///
    /// # Errors
    /// The queue is full, the queue pair is not connected, or the work asks for more than was agreed.
    #[inline]
    pub fn post_send(&self, wr: Wr) -> Result<(), Error> {
        Ok(self.context().turn.work(|core, _| core.nic.core.post_send(self.inner.number, wr.0))?)
    }

    /// Posts several, which leave together: many short ones in one packet. How many were taken before the first refusal.
    ///
    /// # Errors
    /// None was taken, and why.
    pub fn post_send_all(&self, wrs: impl IntoIterator<Item = Wr>) -> Result<usize, Error> {
        // Before the lock is taken: it may use this context.
        let wrs: SmallVec<[Wr; 8]> = wrs.into_iter().collect();
        let (taken, refusal) = self.context().turn.work(|core, _| {
            let mut taken = 0;
            for wr in wrs {
                match core.nic.core.post_send(self.inner.number, wr.0) {
                    Ok(()) => taken += 1,
                    Err(refusal) => return (taken, Some(refusal)),
                }
            }
            (taken, None)
        });
        match refusal {
            Some(refusal) if taken == 0 => Err(refusal.into()),
            _ => Ok(taken),
        }
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The queue is full, or takes fewer elements.
    #[inline]
    pub fn post_recv(&self, id: u64, slices: &[Slice]) -> Result<(), Error> {
        let work = receive_work(id, slices);
        Ok(self.context().turn.work(|core, _| core.nic.core.post_receive(self.inner.number, work))?)
    }

    /// Where it stands.
    pub fn state(&self) -> QpState {
        let found = self.context().turn.read(|core| core.nic.core.query_qp(self.inner.number));
        found.map_or(QpState::Error, |(_, state, _)| state)
    }

    /// What was agreed with the peer: reads of the peer's and of ours under way at most, and whether both know RFC 7306.
    ///
    /// # Errors
    /// It is not connected.
    pub fn agreed(&self) -> Result<(u16, u16, bool), Error> {
        let (_, state, traits) =
            self.context().turn.read(|core| core.nic.core.query_qp(self.inner.number))?;
        match state {
            QpState::Idle => Err(Refusal::BadState(state).into()),
            _ => Ok((traits.ird, traits.ord, traits.extensions)),
        }
    }

    /// Everything ends now, as after an error: work is flushed, the connection is cut.
    pub fn abort(&self) {
        // It is there as long as this value.
        let _ = self.context().turn.work(|core, _| core.nic.core.abort(self.inner.number));
    }

    /// A queue pair that is over is as new again.
    ///
    /// # Errors
    /// It is connected.
    pub fn reset(&self) -> Result<(), Error> {
        Ok(self.context().turn.work(|core, _| core.nic.reset(self.inner.number))?)
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qp({:#x})", self.inner.number)
    }
}
