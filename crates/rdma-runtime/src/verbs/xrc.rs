//! Extended reliable connections: XRC domains, and handles of targets.
//!
//! Files      a domain that is opened with a file is the one that the process has already opened with it
//!            (ibv_open_xrcd(3)). The other processes of the host do not share it: each has its own NIC.
//! Handles    a target has further handles if it is opened again (ibv_open_qp(3)). It lasts as long as one of
//!            them.

use super::engine::Engine;
use super::pairs::Service;
use kiban_rdma::rnic::{RequestError, Rnic};
use std::collections::HashMap;
use std::net::IpAddr;

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
    /// How often it is open.
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

impl Engine {
    /// Opens an XRC domain: the one that is open with this file, or a new one.
    ///
    /// # Errors
    /// [`RequestError::UnknownXrcDomain`] if there is none and none may be created; [`RequestError::InUse`] if
    /// there must not be one; [`RequestError::TooMany`].
    pub fn open_xrc_domain(&self, file: Option<FileId>, creation: Creation) -> Result<u32, RequestError> {
        self.turn.work(|board, _| {
            let open = board.xrc.domains.iter_mut().find(|(_, domain)| file.is_some() && domain.file == file);
            match (open, creation) {
                (Some(_), Creation::Always) => Err(RequestError::InUse),
                (Some((&number, domain)), _) => {
                    domain.users += 1;
                    Ok(number)
                }
                (None, Creation::Never) => Err(RequestError::UnknownXrcDomain),
                (None, _) => {
                    let number = board.core.nic.core.open_xrc_domain()?;
                    board.xrc.domains.insert(number, Domain { file, users: 1 });
                    Ok(number)
                }
            }
        })
    }

    /// Closes an XRC domain once.
    ///
    /// # Errors
    /// The domain is unknown, or targets or queues use it and it is open only once.
    pub fn close_xrc_domain(&self, number: u32) -> Result<(), RequestError> {
        self.turn.work(|board, _| {
            let domain = board.xrc.domains.get_mut(&number).ok_or(RequestError::UnknownXrcDomain)?;
            if domain.users == 1 {
                board.core.nic.core.close_xrc_domain(number)?;
                board.xrc.domains.remove(&number);
            } else {
                domain.users -= 1;
            }
            Ok(())
        })
    }

    /// Opens another handle of a target in an XRC domain: [`Engine::destroy_qp`] releases one. Returns the
    /// queue pair's number for use in calls.
    ///
    /// # Errors
    /// There is no such target in the domain.
    pub fn open_target(&self, address: IpAddr, qpn: u32, domain: u32) -> Result<u32, RequestError> {
        self.turn.work(|board, _| {
            let qp = board.qps.named(address, qpn).ok_or(RequestError::UnknownQp)?;
            match board.qps.get(qp) {
                Some(entry) if entry.service == Service::XrcTarget(domain) => {}
                _ => return Err(RequestError::UnknownQp),
            }
            *board.xrc.handles.entry(qp).or_insert(0) += 1;
            Ok(qp)
        })
    }

    /// Returns the number by which peers name a shared receive queue.
    pub const fn srq_number(srq: u32) -> u32 {
        Rnic::xrc_srq_number(srq)
    }
}
