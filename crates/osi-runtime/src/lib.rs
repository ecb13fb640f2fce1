//! FTAM on a host: a directory that serves as a filestore, its users, and associations over TCP with and
//! without TLS.
//!
//! ```text
//! disk             a directory as a disk; no name and no symbolic link leads out of it
//! users            users, their rights and hashed passwords
//! authentication   verifies passwords without blocking transfers
//! serve            the responder's side: thousands of associations
//! client           the initiator's side: one association, and jobs that run on it
//! unauthenticated  connections that have not authenticated yet
//! osi              sockets, TLS and the pump below the layers; associations for other users of ACSE; X.25 relay
//! timing           the time spent in each layer
//! ```

#![forbid(unsafe_code)]

pub mod authentication;
pub mod client;
pub mod disk;
mod end;
pub mod osi;
pub mod serve;
pub mod timing;
mod unauthenticated;
pub mod users;
