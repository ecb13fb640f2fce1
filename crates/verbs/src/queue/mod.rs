//! Queue pairs, shared receive queues, completion queues, and posted work.

pub(crate) mod cq;
pub(crate) mod post;
pub(crate) mod qp;
pub(crate) mod srq;
pub(crate) mod states;
pub(crate) mod wr;
pub(crate) mod xrc;
