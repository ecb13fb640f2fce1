//! Programs that use the TCP, the UDP or the OSI stack of a running board.

pub(crate) mod attach;
mod datagrams;
mod lab;
mod osi;
pub(crate) mod run;
pub(crate) mod sockets;
