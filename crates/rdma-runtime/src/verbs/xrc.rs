//! Extended reliable connections: XRC domains, and handles of targets.
//!
//! Files      a domain that is opened with a file is the one that the process has already opened with it
//!            (ibv_open_xrcd(3)). The other processes of the host do not share it: each has its own NIC.
//! Handles    a target has further handles if it is opened again (ibv_open_qp(3)). It lasts as long as one of
//!            them.

use kiban_rdma::rnic::{RequestError, Rnic};
use std::collections::HashMap;

/// A file: its device and its inode.
pub type FileId = (u64, u64);

/// Whether a domain is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Creation {
    /// The domain must exist.
    Never,
    /// It is created if it does not exist.
    IfMissing,
    /// It must not exist.
    Always,
}

/// An XRC domain of the process.
struct Domain {
    file: Option<FileId>,
    /// Number of times that it is open.
    users: usize,
}

/// The domains of the process, and its targets with more than one handle.
#[derive(Default)]
pub(super) struct Xrc {
    domains: HashMap<u32, Domain>,
    /// The number of further handles per target.
    handles: HashMap<u32, usize>,
}

impl Xrc {
    /// Opens a domain ([`super::Engine::open_xrc_domain`]).
    pub(super) fn open(
        &mut self,
        core: &mut Rnic,
        file: Option<FileId>,
        creation: Creation,
    ) -> Result<u32, RequestError> {
        let open = self.domains.iter_mut().find(|(_, domain)| file.is_some() && domain.file == file);
        match (open, creation) {
            (Some(_), Creation::Always) => Err(RequestError::InUse),
            (Some((&number, domain)), _) => {
                domain.users += 1;
                Ok(number)
            }
            (None, Creation::Never) => Err(RequestError::UnknownXrcDomain),
            (None, _) => {
                let number = core.open_xrc_domain()?;
                self.domains.insert(number, Domain { file, users: 1 });
                Ok(number)
            }
        }
    }

    /// Closes a domain once.
    pub(super) fn close(&mut self, core: &mut Rnic, number: u32) -> Result<(), RequestError> {
        let domain = self.domains.get_mut(&number).ok_or(RequestError::UnknownXrcDomain)?;
        if domain.users == 1 {
            core.close_xrc_domain(number)?;
            self.domains.remove(&number);
        } else {
            domain.users -= 1;
        }
        Ok(())
    }

    /// Adds a handle of a target.
    pub(super) fn hold_target(&mut self, qp: u32) {
        *self.handles.entry(qp).or_insert(0) += 1;
    }

    /// Releases a handle of a queue pair. Returns whether it was the last one.
    pub(super) fn release_target(&mut self, qp: u32) -> bool {
        let Some(more) = self.handles.get_mut(&qp) else { return true };
        *more -= 1;
        if *more == 0 {
            self.handles.remove(&qp);
        }
        false
    }
}
