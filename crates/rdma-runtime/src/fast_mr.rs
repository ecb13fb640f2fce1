//! Registration by a work request: memory is attached to a key, and detached from it, in the order of the
//! send queue (paper \[3\] section 5.2.3; RDMA verbs' Fast-Register).
//!
//! Purpose  a storage server exposes other memory for each request without a call to the NIC, and the peer's
//!          access ends with the invalidation that the peer itself sends.
//! Key      its low eight bits are the program's: a new value for each registration makes the copies of the
//!          key that a peer kept useless.

use super::Error;
use super::memory::{Pd, Remote, Slice, deregister};
use kiban_rdma::rnic::Sge;

/// A key without memory. [`super::Wr::register`] attaches memory; [`super::Wr::local_invalidate`], or the
/// peer's [`super::Wr::send_with_invalidate`], detaches it.
#[derive(Debug)]
pub struct FastMr {
    pd: Pd,
    key: u32,
}

impl Pd {
    /// Allocates a key without memory, for at most `blocks_max` blocks of memory.
    ///
    /// # Errors
    /// There are too many keys, or `blocks_max` exceeds the NIC's limit; or the NIC is that of a
    /// running board, which accesses only memory that it shares ([`Pd::reg_mr`]).
    pub fn alloc_mr(&self, blocks_max: usize) -> Result<FastMr, Error> {
        self.needs_own_nic(
            "the NIC of a board registers no memory by work requests: allocate it with reg_mr",
        )?;
        let number = self.inner.number;
        let key = self.context().own(|core, _| core.nic.core.allocate(number, blocks_max))?;
        Ok(FastMr { pd: self.clone(), key })
    }
}

impl FastMr {
    /// Returns the key, for local work requests and for peers.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Changes the low eight bits of the key. Do this between an invalidation and the next registration.
    pub fn renew_key(&mut self) {
        self.key = self.key & !0xff | u32::from((self.key as u8).wrapping_add(1));
    }

    /// Returns `length` bytes from `address`, for local work requests.
    pub fn slice(&self, address: u64, length: u32) -> Slice {
        Slice(Sge { stag: self.key, address, length })
    }

    /// Returns the key and an address, to be sent to a peer.
    pub fn remote(&self, address: u64) -> Remote {
        Remote { rkey: self.key, address }
    }
}

impl Drop for FastMr {
    fn drop(&mut self) {
        let _ = deregister(self.pd.context(), self.key, true);
    }
}
