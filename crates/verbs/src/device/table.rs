//! The function tables through which `verbs.h` calls.
//!
//! Not implemented flows, work queues, counters, rate limits and moderation: their
//!                 entries stay null, so `verbs.h` returns EOPNOTSUPP.

use crate::abi::*;
use crate::device::query;
use crate::device_memory;
use crate::memory;
use crate::queue::{cq, post, qp, srq, xrc};

/// Fills in the tables of a new context.
pub(crate) fn fill(context: &mut verbs_context) {
    let ops = &mut context.context.ops;
    ops.alloc_mw = Some(memory::alloc_mw);
    ops.bind_mw = Some(post::bind_mw);
    ops.dealloc_mw = Some(memory::dealloc_mw);
    ops.poll_cq = Some(cq::poll_cq);
    ops.req_notify_cq = Some(cq::req_notify_cq);
    ops.post_srq_recv = Some(srq::post_srq_recv);
    ops.post_send = Some(post::post_send);
    ops.post_recv = Some(post::post_recv);
    context.query_port = Some(query::query_port);
    context.advise_mr = Some(memory::advise_mr);
    context.alloc_parent_domain = Some(memory::alloc_parent_domain);
    context.alloc_td = Some(memory::alloc_td);
    context.alloc_dm = Some(device_memory::alloc_dm);
    context.free_dm = Some(device_memory::free_dm);
    context.reg_dm_mr = Some(device_memory::reg_dm_mr);
    context.dealloc_td = Some(memory::dealloc_td);
    context.query_rt_values = Some(query::query_rt_values);
    context.create_cq_ex = Some(cq::create_cq_ex);
    context.query_device_ex = Some(query::query_device_ex);
    context.create_qp_ex = Some(qp::create_qp_ex);
    context.get_srq_num = Some(srq::get_srq_num);
    context.create_srq_ex = Some(srq::create_srq_ex);
    context.open_xrcd = Some(xrc::open_xrcd);
    context.close_xrcd = Some(xrc::close_xrcd);
    context.open_qp = Some(xrc::open_qp);
}
