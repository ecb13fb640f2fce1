//! Work executor: the send module and the receive module (paper \[3\] §5.2.3).

pub(super) mod datagram;
pub(super) mod receive;
pub(super) mod roce;
pub(super) mod send;
