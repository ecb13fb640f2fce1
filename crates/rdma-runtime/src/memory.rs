//! Protection domains, regions and windows.

use super::board_nic::Door;
use super::linked_nic::LinkedNic;
use super::{Access, Context, Error, RequestError};
use kiban_base::{Region, SharedBytes};
use kiban_rdma::hif::{MEMORY_AT, Piece, Request};
use kiban_rdma::rnic::{Binding, Sge};
use std::fmt;
use std::io;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct PdInner {
    pub(super) context: Context,
    pub(super) number: u32,
}

impl Drop for PdInner {
    fn drop(&mut self) {
        // This cannot fail: everything in the domain held a reference to it, so has already been dropped.
        let pd = self.number;
        let _ = self.context.control(
            |core, _| core.nic.core.destroy_pd(pd).map(|()| 0),
            || Request::DestroyPd { pd },
            |_, _| {},
        );
    }
}

/// A protection domain: queue pairs can access the memory of their own domain only. Clones share it.
#[derive(Clone, Debug)]
pub struct Pd {
    pub(super) inner: Arc<PdInner>,
}

impl Pd {
    pub(super) fn new(context: &Context) -> Result<Pd, Error> {
        let number = context.control(|core, _| core.nic.core.create_pd(), || Request::CreatePd, |_, _| {})?;
        Ok(Pd { inner: Arc::new(PdInner { context: context.clone(), number }) })
    }

    /// Returns the context that it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Allocates and registers `bytes` zeroed bytes of memory. The NIC of a running board shares this memory
    /// with the program.
    ///
    /// # Errors
    /// There are too many regions, or the access rights are inconsistent.
    pub fn reg_mr(&self, bytes: usize, access: Access) -> Result<Mr, Error> {
        if let Some(door) = self.context().door() {
            return self.share_mr(door, bytes, access);
        }
        // Register the memory at its real address, because programs on other hosts expect that.
        let region = Region::new(0, bytes);
        let address = region.raw().0.as_ptr() as u64;
        self.reg_region(region.with_address(address), access)
    }

    fn share_mr(&self, door: &Door, bytes: usize, access: Access) -> Result<Mr, Error> {
        let all = bytes.checked_add(MEMORY_AT).ok_or(RequestError::BadAddress)?;
        let (memory, shared) = door.share(all)?;
        let address = shared.address() + MEMORY_AT as u64;
        let region = shared.part(address, bytes).expect("the memory is as long as requested");
        let pieces = vec![Piece { memory, offset: 0, length: bytes as u64 }];
        let request = Request::Register { pd: self.inner.number, pieces, address, access };
        let no_board = |_: &mut LinkedNic, _| Err(RequestError::OtherKind);
        let registered = self.context().control(no_board, || request, |nic, key| nic.add_key(key));
        // The board keeps the memory until it is deregistered.
        self.context().with_board(|nic| nic.tell(&Request::Unshare { memory }));
        let stag = registered?;
        Ok(Mr { pd: self.clone(), region, stag })
    }

    /// Registers memory that the caller guarantees to be valid ([`Region::foreign`]), at the region's own
    /// address.
    ///
    /// # Errors
    /// As for [`Pd::reg_mr`]; also if the NIC is that of a running board, which accesses only memory that it
    /// shares ([`Pd::reg_mr`]).
    pub fn reg_region(&self, region: Region, access: Access) -> Result<Mr, Error> {
        self.needs_own_nic(
            "the NIC of a board accesses only memory that it shares: allocate it with reg_mr",
        )?;
        let number = self.inner.number;
        let stag = self.context().own(|core, _| core.nic.core.register(number, region.clone(), access))?;
        Ok(Mr { pd: self.clone(), region, stag })
    }

    /// Returns an error, with the reason, if the NIC is that of a running board.
    pub(super) fn needs_own_nic(&self, why: &'static str) -> Result<(), Error> {
        match self.context().door() {
            Some(_) => Err(io::Error::new(io::ErrorKind::Unsupported, why).into()),
            None => Ok(()),
        }
    }

    /// Allocates an unbound memory window. A type 2 window belongs to the queue pair that binds it.
    ///
    /// # Errors
    /// There are too many.
    pub fn alloc_mw(&self, type_2: bool) -> Result<Mw, Error> {
        let number = self.inner.number;
        let stag = self.context().control(
            |core, _| core.nic.core.allocate_window(number, type_2),
            || Request::AllocateWindow { pd: number, type_2 },
            |nic, key| nic.add_key(key),
        )?;
        Ok(Mw { pd: self.clone(), stag })
    }
}

/// A memory region. It owns its memory; after it has been dropped, the NIC no longer accesses the memory.
pub struct Mr {
    pd: Pd,
    region: Region,
    stag: u32,
}

/// A part of a region, for use in work requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice(pub(super) Sge);

impl Mr {
    /// Returns the key for local work requests.
    pub fn lkey(&self) -> u32 {
        self.stag
    }

    /// Returns the key for peers.
    pub fn rkey(&self) -> u32 {
        self.stag
    }

    /// Returns the address of the first byte, as used by peers.
    pub fn address(&self) -> u64 {
        self.region.address()
    }

    /// Returns the key and address of the first byte, to be sent to a peer for its work requests.
    pub fn remote(&self) -> Remote {
        Remote { rkey: self.rkey(), address: self.address() }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// Returns the part of the region that begins at offset `at` and has `length` bytes. Bounds are checked
    /// when the work request is executed, not here.
    ///
    /// # Panics
    /// If `length` exceeds the maximum message length of 4 GiB less one byte.
    pub fn slice(&self, at: usize, length: usize) -> Slice {
        let address = self.region.address().wrapping_add(at as u64);
        let length = u32::try_from(length).expect("a slice is shorter than 4 GiB: move more in several");
        Slice(Sge { stag: self.stag, address, length })
    }

    /// Returns the whole region as a slice.
    pub fn all(&self) -> Slice {
        self.slice(0, self.len())
    }

    /// Copies bytes into the region at offset `at`.
    ///
    /// # Panics
    /// If they exceed the region.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let address = self.region.address().wrapping_add(at as u64);
        self.region.write(address, SharedBytes::from(bytes)).expect("the bytes fit into the region");
    }

    /// Copies bytes out of the region from offset `at`.
    ///
    /// # Panics
    /// If they exceed the region.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        let address = self.region.address().wrapping_add(at as u64);
        let source = self.region.bytes(address, bytes.len()).expect("the bytes lie within the region");
        source.copy_to(0, bytes);
    }

    /// Copies bytes out into a vector.
    ///
    /// # Panics
    /// If they exceed the region.
    pub fn to_vec(&self, at: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read(at, &mut bytes);
        bytes
    }

    /// Returns a binding of a window to this part of the region.
    pub fn binding(&self, at: usize, length: usize, access: Access) -> Binding {
        let address = self.region.address().wrapping_add(at as u64);
        Binding { region: self.stag, address, length: length as u64, access }
    }

    /// Deregisters the memory, unless windows are bound to it. Dropping the region unbinds them instead.
    ///
    /// # Errors
    /// Returns the region, and the reason.
    pub fn deregister(self) -> Result<(), (Mr, RequestError)> {
        match deregister(self.pd.context(), self.stag, false) {
            Err(Error::Refused(refusal @ RequestError::InUse)) => Err((self, refusal)),
            _ => Ok(()),
        }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // Unbinds windows. After `deregister`, the key is already invalid and this does nothing.
        let _ = deregister(self.pd.context(), self.stag, true);
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mr({} bytes)", self.len())
    }
}

/// Deregisters a region or a window; `unbinds` says whether to unbind the region's windows first.
pub(super) fn deregister(context: &Context, stag: u32, unbinds: bool) -> Result<u32, Error> {
    context.control(
        |core, _| {
            let memory = match unbinds {
                true => core.nic.deregister_with_windows(stag),
                false => core.nic.deregister(stag),
            };
            memory.map(|_| 0)
        },
        || Request::Deregister { stag, unbinds },
        |nic, _| nic.remove_key(stag),
    )
}

/// A memory window.
#[derive(Debug)]
pub struct Mw {
    pd: Pd,
    stag: u32,
}

impl Mw {
    /// Returns the key for peers, valid once the window is bound.
    pub fn rkey(&self) -> u32 {
        self.stag
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        let _ = deregister(self.pd.context(), self.stag, false);
    }
}

/// Memory of a peer, as described by the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remote {
    /// The key.
    pub rkey: u32,
    /// The address.
    pub address: u64,
}

impl Remote {
    /// Length of the encoding by [`Remote::to_bytes`].
    pub const BYTES: usize = 12;

    /// Returns this address advanced by `bytes` bytes.
    #[must_use]
    pub fn at(self, bytes: u64) -> Remote {
        Remote { address: self.address.wrapping_add(bytes), ..self }
    }

    /// Encodes the key and the address in network byte order, so that programs can exchange them, for
    /// example as private data.
    pub fn to_bytes(self) -> [u8; Remote::BYTES] {
        let mut bytes = [0; Remote::BYTES];
        bytes[..4].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[4..].copy_from_slice(&self.address.to_be_bytes());
        bytes
    }

    /// Decodes the beginning of `bytes`, as encoded by [`Remote::to_bytes`]. Returns `None` if `bytes` is
    /// too short.
    pub fn from_bytes(bytes: &[u8]) -> Option<Remote> {
        let (rkey, rest) = bytes.split_first_chunk()?;
        let (address, _) = rest.split_first_chunk()?;
        Some(Remote { rkey: u32::from_be_bytes(*rkey), address: u64::from_be_bytes(*address) })
    }
}
