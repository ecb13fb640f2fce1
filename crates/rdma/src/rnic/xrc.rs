//! Extended reliable connections (XRC, IBTA volume 1, Annex A14): a host needs one connection per peer, and
//! not one per pair of processes or threads, because each request names the receives that it is for.
//!
//! Initiator  sends: a queue pair without receives. Its work names the peer's shared receive queue
//!            ([`SendWork::xrc_srq`](super::SendWork::xrc_srq)).
//! Target     receives: it has neither queues nor a protection domain, only an XRC domain.
//! Queue      an XRC shared receive queue has a completion queue. Its protection domain is the one in which
//!            the keys of the requests that name it count.
//! Domain     a target's peer may name the queues in its domain, and no others.

use super::control::qp::Qp;
use super::control::receive_queue::{XrcDomain, XrcQueue};
use super::control::state::QpAttributes;
use super::device::Rnic;
use super::error::RequestError;
use crate::wire::roce::QPN_MASK;

impl Rnic {
    /// Opens an XRC domain.
    ///
    /// # Errors
    /// [`RequestError::TooMany`] if as many are open as there may be protection domains.
    pub fn open_xrc_domain(&mut self) -> Result<u32, RequestError> {
        self.xrc_domains.insert(XrcDomain::default()).ok_or(RequestError::TooMany)
    }

    /// Closes an XRC domain.
    ///
    /// # Errors
    /// [`RequestError::UnknownXrcDomain`]; [`RequestError::InUse`] while it has targets or queues.
    pub fn close_xrc_domain(&mut self, domain: u32) -> Result<(), RequestError> {
        match self.xrc_domains.get(domain) {
            None => Err(RequestError::UnknownXrcDomain),
            Some(found) if found.users > 0 => Err(RequestError::InUse),
            Some(_) => {
                self.xrc_domains.remove(domain);
                Ok(())
            }
        }
    }

    /// Creates a shared receive queue for the peers of a domain's targets. Its receives complete in `cq`.
    ///
    /// # Errors
    /// As for [`Rnic::create_srq`]; also [`RequestError::UnknownXrcDomain`] and [`RequestError::UnknownCq`].
    pub fn create_xrc_srq(
        &mut self,
        pd: u32,
        (domain, cq): (u32, u32),
        work_max: usize,
        limit: usize,
    ) -> Result<u32, RequestError> {
        if self.xrc_domains.get(domain).is_none() {
            return Err(RequestError::UnknownXrcDomain);
        }
        if self.outputs.cqs.get(cq).is_none() {
            return Err(RequestError::UnknownCq);
        }
        let number = self.create_srq(pd, work_max, limit)?;
        if let (Some(srq), Some(cq_entry), Some(entry)) =
            (self.srqs.get_mut(number), self.outputs.cqs.get_mut(cq), self.xrc_domains.get_mut(domain))
        {
            srq.xrc = Some(XrcQueue { domain, cq });
            cq_entry.users += 1;
            entry.users += 1;
        }
        Ok(number)
    }

    /// Returns the number by which peers name a shared receive queue, 24 bits.
    pub const fn xrc_srq_number(srq: u32) -> u32 {
        srq & QPN_MASK
    }

    /// Creates the target of an extended reliable connection.
    ///
    /// # Errors
    /// [`RequestError::UnknownXrcDomain`]; [`RequestError::TooMany`].
    pub fn create_xrc_target(&mut self, domain: u32) -> Result<u32, RequestError> {
        if self.xrc_domains.get(domain).is_none() {
            return Err(RequestError::UnknownXrcDomain);
        }
        let number = self.add_qp(Qp { xrc_domain: Some(domain), ..Qp::new(0, QpAttributes::TARGET) })?;
        if let Some(entry) = self.xrc_domains.get_mut(domain) {
            entry.users += 1;
        }
        Ok(number)
    }

    /// Releases the references of a shared receive queue that is destroyed.
    pub(super) fn release_xrc(&mut self, xrc: Option<XrcQueue>) {
        let Some(XrcQueue { domain, cq }) = xrc else { return };
        if let Some(cq) = self.outputs.cqs.get_mut(cq) {
            cq.users -= 1;
        }
        if let Some(domain) = self.xrc_domains.get_mut(domain) {
            domain.users -= 1;
        }
    }
}
