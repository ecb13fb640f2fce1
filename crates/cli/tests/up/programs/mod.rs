//! Programs that use the TCP or the OSI stack of a running board.

pub(crate) mod attach;
mod lab;
mod osi;
pub(crate) mod run;
pub(crate) mod sockets;
