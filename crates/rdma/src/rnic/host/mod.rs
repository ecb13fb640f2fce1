//! Host interface: tables that the host fills, and access to its memory (paper \[3\] §5.2.1).

pub(super) mod cmt;
pub(super) mod dmac;
pub(super) mod pblmt;
pub(super) mod smt;
