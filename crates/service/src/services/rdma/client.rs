//! A program that uses the NIC: its rings, its shared memory, and the objects that it has created.

use crate::services::clients::process_of;
use crate::services::counters::{ProgramCounters, ProgramView};
use kiban_base::Region;
use kiban_base::ring::{Consumer, Poisoned, Producer};
use kiban_board::Host;
use kiban_os::channel::{Channel, FRONT_BYTES};
use kiban_rdma::hif::{
    CompletionRing, Layout, MEMORY_AT, Notice, Piece, Request, Transport, completion_to_bytes,
};
use kiban_rdma::rnic::Notify;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Limit of a program's shared memories. The system limits the mappings of a process (65,530 by default).
const MAPPINGS_MAX: usize = 4096;
/// Limit of the memory shared with one program, in bytes.
pub(super) const MEMORY_BYTES_MAX: usize = 8 << 30;
/// Limits of a program's objects, so that one program leaves room for others: at most an eighth of the NIC's
/// protection domains and shared receive queues, and a sixteenth of its keys.
pub(super) const PDS_MAX: usize = 512;
pub(super) const SRQS_MAX: usize = 512;
pub(super) const KEYS_MAX: usize = 1 << 16;
/// Limits of its listeners, and of its connections, including those that have ended until it releases them.
pub(super) const LISTENERS_MAX: usize = 1024;
pub(super) const ENDS_MAX: usize = 4096;
/// Maximum number of notices that wait for room in the ring. A program that does not read more is
/// disconnected.
const NOTICES_MAX: usize = 16 << 10;

/// The client has broken a rule of the shared memory.
#[derive(Debug)]
pub(super) struct Fault;

impl From<Poisoned> for Fault {
    fn from(_: Poisoned) -> Fault {
        Fault
    }
}

/// A completion queue's ring.
pub(super) struct CqRing {
    ring: Producer,
    memory: Region,
}

/// Shared memory for registrations.
struct SharedMemory {
    region: Region,
    /// Number of registered pieces.
    users: usize,
    /// Whether the program registers no more of it.
    is_unshared: bool,
}

/// A program.
pub(super) struct Client {
    pub(super) channel: Arc<Channel>,
    pub(super) key: [u8; 16],
    work: Consumer,
    notices: Producer,
    waiting: VecDeque<Vec<u8>>,
    /// Whether something new is in a ring.
    pub(super) ring_pending: bool,
    /// Shared memory, except that of completion queues.
    memories: BTreeMap<u32, SharedMemory>,
    mappings: usize,
    mapped_bytes: usize,
    pub(super) pds: BTreeSet<u32>,
    /// The steering tags of regions and windows, with the shared memories of each region.
    pub(super) keys: BTreeMap<u32, Vec<u32>>,
    pub(super) cqs: BTreeMap<u32, CqRing>,
    pub(super) srqs: BTreeSet<u32>,
    pub(super) qps: BTreeSet<u32>,
    pub(super) ends: BTreeSet<u32>,
    pub(super) listeners: BTreeSet<(Transport, u32)>,
    pub(super) counters: ProgramCounters,
}

impl Client {
    pub(super) fn new(channel: Arc<Channel>, key: [u8; 16]) -> Client {
        let (memory, layout) = (channel.region().clone(), Layout::new(FRONT_BYTES));
        Client {
            work: Consumer::new(&memory, layout.work_at(), layout.work()),
            notices: Producer::new(&memory, layout.notices_at(), layout.notices()),
            channel,
            key,
            waiting: VecDeque::new(),
            ring_pending: false,
            memories: BTreeMap::new(),
            mappings: 0,
            mapped_bytes: 0,
            pds: BTreeSet::new(),
            keys: BTreeMap::new(),
            cqs: BTreeMap::new(),
            srqs: BTreeSet::new(),
            qps: BTreeSet::new(),
            ends: BTreeSet::new(),
            listeners: BTreeSet::new(),
            counters: ProgramCounters::default(),
        }
    }

    /// Returns whether there are requests; this costs one load.
    pub(super) fn is_ready(&self) -> bool {
        self.work.is_ready()
    }

    /// Returns the next request and its number.
    pub(super) fn next_request(&mut self) -> Result<Option<(u32, Request)>, Fault> {
        let mut entry = [0; kiban_rdma::hif::ENTRY_BYTES];
        let Some(bytes) = self.work.peek()? else { return Ok(None) };
        // Decode a copy, because the program may change the entry at any time.
        let length = bytes.copy_to(0, &mut entry);
        self.work.release();
        Request::from_bytes(&entry[..length]).map(Some).ok_or(Fault)
    }

    /// Returns what `kiban status` shows of the program.
    pub(super) fn view(&self, number: u64) -> ProgramView {
        ProgramView {
            client: number,
            pid: process_of(self.channel.socket()),
            queue_pairs: self.qps.len(),
            completion_queues: self.cqs.len(),
            keys: self.keys.len(),
            shared_bytes: self.mapped_bytes,
            notices: self.waiting.len(),
            counters: self.counters,
        }
    }

    /// Queues a notice; [`Client::flush`] sends it.
    pub(super) fn notify(&mut self, notice: &Notice) {
        self.waiting.push_back(notice.to_bytes());
    }

    /// Moves waiting notices to the ring, as far as there is room.
    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        while let Some(notice) = self.waiting.front() {
            if !self.notices.push(notice)? {
                break;
            }
            self.waiting.pop_front();
            self.ring_pending = true;
        }
        if self.waiting.len() > NOTICES_MAX { Err(Fault) } else { Ok(()) }
    }

    // ---- shared memory

    pub(super) fn validate_memory(&self, number: u32, bytes: usize) -> Result<(), String> {
        if self.memories.contains_key(&number) {
            return Err("the number of the memory is in use".into());
        }
        if self.mappings >= MAPPINGS_MAX {
            return Err(format!("too many regions and queues: the limit is {MAPPINGS_MAX}"));
        }
        match self.mapped_bytes.checked_add(bytes) {
            Some(all) if all <= MEMORY_BYTES_MAX => Ok(()),
            _ => Err(format!("too much memory: the limit is {} MiB", MEMORY_BYTES_MAX >> 20)),
        }
    }

    pub(super) fn add_memory(&mut self, number: u32, memory: Region) {
        self.mappings += 1;
        self.mapped_bytes += memory.len();
        let region = memory.with_address(0);
        self.memories.insert(number, SharedMemory { region, users: 0, is_unshared: false });
    }

    /// Takes shared memory, for a completion queue. Returns `None` if there is none with this number, or it
    /// is registered.
    pub(super) fn take_memory(&mut self, number: u32) -> Option<Region> {
        self.memories.get(&number).filter(|memory| memory.users == 0)?;
        self.memories.remove(&number).map(|memory| memory.region)
    }

    /// Returns the parts of shared memory that are to be registered, or `None` if one does not exist.
    pub(super) fn registered_parts(&self, pieces: &[Piece]) -> Option<Vec<Region>> {
        let part = |piece: &Piece| {
            let memory = self.memories.get(&piece.memory).filter(|memory| !memory.is_unshared)?;
            let at = (MEMORY_AT as u64).checked_add(piece.offset)?;
            memory.region.part(at, usize::try_from(piece.length).ok()?)
        };
        pieces.iter().map(part).collect()
    }

    /// Records the steering tag of registered pieces.
    pub(super) fn add_key(&mut self, key: u32, pieces: &[Piece]) {
        let memories: Vec<u32> = pieces.iter().map(|piece| piece.memory).collect();
        for number in &memories {
            if let Some(memory) = self.memories.get_mut(number) {
                memory.users += 1;
            }
        }
        self.keys.insert(key, memories);
    }

    /// Removes a steering tag, and releases memory that has no other use.
    pub(super) fn remove_key(&mut self, key: u32) {
        for number in self.keys.remove(&key).unwrap_or_default() {
            if let Some(memory) = self.memories.get_mut(&number) {
                memory.users -= 1;
                self.release_unused(number);
            }
        }
    }

    /// Ends the use of shared memory for new registrations.
    pub(super) fn unshare(&mut self, number: u32) -> Result<(), Fault> {
        self.memories.get_mut(&number).ok_or(Fault)?.is_unshared = true;
        self.release_unused(number);
        Ok(())
    }

    fn release_unused(&mut self, number: u32) {
        let is_unused = |memory: &SharedMemory| memory.is_unshared && memory.users == 0;
        if self.memories.get(&number).is_some_and(is_unused)
            && let Some(memory) = self.memories.remove(&number)
        {
            self.release_memory(memory.region.len());
        }
    }

    /// Records that shared memory of this many bytes is no longer used.
    pub(super) fn release_memory(&mut self, bytes: usize) {
        self.mappings = self.mappings.saturating_sub(1);
        self.mapped_bytes = self.mapped_bytes.saturating_sub(bytes);
    }

    // ---- completions

    /// Adds a completion queue whose ring is in `memory`. Returns false if the ring does not fit there.
    pub(super) fn add_cq(&mut self, cq: u32, entries: usize, memory: Region) -> bool {
        let layout = CompletionRing::new(entries);
        if memory.len() < layout.bytes() {
            return false;
        }
        let ring = Producer::new(&memory, CompletionRing::AT, layout.shape());
        self.cqs.insert(cq, CqRing { ring, memory });
        true
    }

    /// Removes a completion queue.
    pub(super) fn remove_cq(&mut self, cq: u32) {
        if let Some(its) = self.cqs.remove(&cq) {
            self.release_memory(its.memory.len());
        }
    }

    /// Moves completions from the NIC's queue to the program's ring, and requests a notification of the next.
    /// If the ring is full, they wait until the program rings the ring's bell.
    pub(super) fn pass_completions(&mut self, cq: u32, host: &mut Host<'_>) -> Result<(), Fault> {
        let Some(CqRing { ring, memory }) = self.cqs.get_mut(&cq) else { return Ok(()) };
        let Some(mut rdma) = host.rdma() else { return Ok(()) };
        let core = &mut rdma.nic().core;
        loop {
            if ring.room()?.is_none() {
                let bell = memory.bell(0).expect("the memory begins with a bell");
                bell.arm();
                if ring.free()? == 0 {
                    self.counters.full_rings += 1;
                    return Ok(());
                }
                bell.disarm();
            }
            match core.poll(cq) {
                Ok(Some(completion)) => {
                    ring.push(&completion_to_bytes(&completion))?;
                    self.counters.completions += 1;
                    self.ring_pending = true;
                }
                Ok(None) | Err(_) => break,
            }
        }
        // This cannot fail: the queue exists.
        let _ = core.arm(cq, Notify::Any);
        Ok(())
    }

    // ---- end

    /// Destroys everything that the program has created.
    pub(super) fn destroy(self, host: &mut Host<'_>) {
        let Some(mut rdma) = host.rdma() else { return };
        self.listeners.iter().for_each(|&(transport, listener)| rdma.unlisten(transport, listener));
        self.ends.iter().for_each(|&end| rdma.forget(end));
        for &qp in &self.qps {
            destroy_qp(&mut rdma, qp);
        }
        let nic = rdma.nic();
        // These cannot fail: what used the objects has been destroyed before.
        for &srq in &self.srqs {
            let _ = nic.core.destroy_srq(srq);
        }
        for &key in self.keys.keys() {
            // A work request may have changed the key.
            let _ = nic.deregister_with_windows(nic.core.current_stag(key).unwrap_or(key));
        }
        for &cq in self.cqs.keys() {
            let _ = nic.core.destroy_cq(cq);
        }
        for &pd in &self.pds {
            let _ = nic.core.destroy_pd(pd);
        }
    }
}

/// Destroys a queue pair, and aborts its connection.
pub(super) fn destroy_qp(rdma: &mut kiban_board::RdmaHost<'_>, qp: u32) {
    if let Some(end) = rdma.nic().end_of(qp) {
        rdma.forget(end);
    }
    // This cannot fail: the queue pair exists.
    let _ = rdma.nic().core.destroy_qp(qp);
}
