//! The target of an extended reliable connection (IBTA volume 1, Annex A14): each request names the shared
//! receive queue whose receives, completion queue and protection domain it uses.

use super::super::super::control::qp::Qp;
use super::super::super::control::receive_queue::{SharedReceiveQueue, XrcQueue};
use super::super::super::control::roce::Receiving;
use crate::wire::roce::Packet;
use kiban_base::Slab;

/// Returns the shared receive queue that a request names, if it is in the domain.
fn named<'a>(
    domain: u32,
    srqs: &'a Slab<SharedReceiveQueue>,
    packet: &Packet,
) -> Option<(u32, &'a SharedReceiveQueue, XrcQueue)> {
    let number = srqs.number_ending_in(packet.xrc_srq?)?;
    let srq = srqs.get(number)?;
    srq.xrc.filter(|xrc| xrc.domain == domain).map(|xrc| (number, srq, xrc))
}

/// Returns the protection domain in which the keys of a request count.
pub(super) fn pd(qp: &Qp, srqs: &Slab<SharedReceiveQueue>, packet: &Packet) -> Option<u32> {
    match qp.xrc_domain {
        None => Some(qp.attributes.pd),
        Some(domain) => named(domain, srqs, packet).map(|(_, srq, _)| srq.pd),
    }
}

/// Makes a target use the queues of the expected request. Returns false if the request names no queue of the
/// domain, or another one than the message began with.
pub(super) fn select(qp: &mut Qp, srqs: &Slab<SharedReceiveQueue>, packet: &Packet) -> bool {
    let Some(domain) = qp.xrc_domain else { return true };
    let Some((number, srq, xrc)) = named(domain, srqs, packet) else { return false };
    let begins = qp.roce.as_ref().is_none_or(|roce| roce.responder.receiving == Receiving::Nothing);
    let attributes = &mut qp.attributes;
    if !begins && attributes.srq != Some(number) {
        return false;
    }
    (attributes.srq, attributes.pd, attributes.receive_cq) = (Some(number), srq.pd, xrc.cq);
    true
}
