//! Programs that use the TCP of a running board.

pub(crate) mod attach;
pub(crate) mod run;
pub(crate) mod sockets;
