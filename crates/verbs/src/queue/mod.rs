//! Queue pairs, shared receive queues, completion queues, and work that is posted.

pub(crate) mod cq;
pub(crate) mod post;
pub(crate) mod qp;
pub(crate) mod srq;
pub(crate) mod states;
pub(crate) mod wr;
