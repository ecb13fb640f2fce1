//! Protection domains, regions and windows.

use super::{Access, Context, Error, Refusal, Remote};
use kiban_ground::{Region, SharedBytes};
use kiban_stack::iwarp::rnic::{Binding, Sge};
use std::fmt;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct PdInner {
    pub(super) context: Context,
    pub(super) number: u32,
}

impl Drop for PdInner {
    fn drop(&mut self) {
        // All that was in it has gone before: each holds it.
        let _ = self.context.turn.work(|core, _| core.nic.core.destroy_pd(self.number));
    }
}

/// A protection domain: queue pairs reach the memory of their own. Clones are the same.
#[derive(Clone, Debug)]
pub struct Pd {
    pub(super) inner: Arc<PdInner>,
}

impl Pd {
    pub(super) fn new(context: &Context) -> Result<Pd, Error> {
        let number = context.turn.work(|core, _| core.nic.core.create_pd())?;
        Ok(Pd { inner: Arc::new(PdInner { context: context.clone(), number }) })
    }

    /// The context that it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Registers so many bytes of memory of the region's own, all zero.
    ///
    /// # Errors
    /// There are too many regions, or the rights do not go together.
    pub fn reg_mr(&self, bytes: usize, access: Access) -> Result<Mr, Error> {
        // Called by where it is, as programs of other hosts expect.
        let region = Region::new(0, bytes);
        let address = region.raw().0.as_ptr() as u64;
        self.reg_region(region.called(address), access)
    }

    /// Registers memory that the caller vouches for ([`Region::foreign`]), under the address by which it is called.
    ///
    /// # Errors
    /// As [`Pd::reg_mr`].
    pub fn reg_region(&self, region: Region, access: Access) -> Result<Mr, Error> {
        let number = self.inner.number;
        let stag =
            self.context().turn.work(|core, _| core.nic.core.register(number, region.clone(), access))?;
        Ok(Mr { pd: self.clone(), region, stag })
    }

    /// A memory window, bound to nothing; type 2 belongs to the queue pair that binds it.
    ///
    /// # Errors
    /// There are too many.
    pub fn alloc_mw(&self, type_2: bool) -> Result<Mw, Error> {
        let number = self.inner.number;
        let stag = self.context().turn.work(|core, _| core.nic.core.allocate_window(number, type_2))?;
        Ok(Mw { pd: self.clone(), stag })
    }
}

/// A memory region. Its memory lives as long as it does, and no longer is touched when it is dropped.
pub struct Mr {
    pd: Pd,
    region: Region,
    stag: u32,
}

/// A part of a region: what work requests name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice(pub(super) Sge);

impl Mr {
    /// The key for work requests of this host.
    pub fn lkey(&self) -> u32 {
        self.stag
    }

    /// The key for peers.
    pub fn rkey(&self) -> u32 {
        self.stag
    }

    /// The address of the first byte, as peers call it.
    pub fn address(&self) -> u64 {
        self.region.address()
    }

    /// Where it is for a peer, from its first byte: what a program tells its peer, and what the peer's work names.
    pub fn remote(&self) -> Remote {
        Remote { rkey: self.rkey(), address: self.address() }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// A part, by where it begins. What is not within is refused when the work is done, not here.
    ///
    /// # Panics
    /// When it is longer than one message can be: 4 GiB less one byte.
    pub fn slice(&self, at: usize, length: usize) -> Slice {
        let address = self.region.address().wrapping_add(at as u64);
        let length = u32::try_from(length).expect("a slice is shorter than 4 GiB: move more in several");
        Slice(Sge { stag: self.stag, address, length })
    }

    /// All of it.
    pub fn all(&self) -> Slice {
        self.slice(0, self.len())
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let address = self.region.address().wrapping_add(at as u64);
        self.region.write(address, SharedBytes::from(bytes)).expect("the bytes fit into the region");
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// When they are not all within.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        let address = self.region.address().wrapping_add(at as u64);
        let source = self.region.bytes(address, bytes.len()).expect("the bytes lie within the region");
        source.copy_to(0, bytes);
    }

    /// Copies bytes out into a vector.
    ///
    /// # Panics
    /// When they are not all within.
    pub fn to_vec(&self, at: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read(at, &mut bytes);
        bytes
    }

    /// What a window shows of it.
    pub fn binding(&self, at: usize, length: usize, access: Access) -> Binding {
        let address = self.region.address().wrapping_add(at as u64);
        Binding { region: self.stag, address, length: length as u64, access }
    }

    /// Takes the memory back, and says if that cannot be: windows look at it. Dropping takes it from them as well.
    ///
    /// # Errors
    /// The region, and why.
    pub fn deregister(self) -> Result<(), (Mr, Refusal)> {
        match self.pd.context().turn.work(|core, _| core.nic.deregister(self.stag)) {
            Err(refusal @ Refusal::InUse) => Err((self, refusal)),
            _ => Ok(()),
        }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // Windows that are bound to it show nothing any more. After `deregister` the key names nothing already.
        let _ = self.pd.context().turn.work(|core, _| core.nic.withdraw(self.stag));
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mr({} bytes)", self.len())
    }
}

/// A memory window.
#[derive(Debug)]
pub struct Mw {
    pd: Pd,
    stag: u32,
}

impl Mw {
    /// The key for peers, once it is bound.
    pub fn rkey(&self) -> u32 {
        self.stag
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        let _ = self.pd.context().turn.work(|core, _| core.nic.deregister(self.stag));
    }
}
