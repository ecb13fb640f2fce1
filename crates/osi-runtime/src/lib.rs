//! The OSI stack on a host: associations over TCP, with and without TLS, and FTAM.
//!
//! ```text
//! association           associations for users of ACSE
//! pump                  moves bytes between a socket and the layers
//! socket, secure        connects and listens; TLS
//! echo, probe           tests a peer's layers
//! relay                 relays between XOT (X.25 over TCP) and TPKT
//! x25                   X.25 on serial lines and network devices, and a switch
//! ftam/disk             a directory as a disk; no name and no symbolic link leads out of it
//! ftam/users            users, their rights and hashed passwords
//! ftam/authentication   verifies passwords without blocking transfers
//! ftam/serve            the responder's side: thousands of associations
//! ftam/client           the initiator's side: one association, and jobs that run on it
//! ftam/layers           the protocol machines: in this process, or on a running board
//! ftam/unauthenticated  connections that have not authenticated yet
//! ftam/timing           the time spent in each layer
//! ```

#![forbid(unsafe_code)]

pub mod association;
mod buffers;
pub mod echo;
pub mod ftam;
pub mod probe;
pub mod pump;
pub mod relay;
mod ropes;
pub mod runtimes;
pub mod secure;
pub mod socket;
pub mod x25;
