//! FTAM on a host: a directory as filestore, its users, and associations over TCP with and without TLS.
//!
//! ```text
//! disk      a directory, out of which no name and no link leads
//! users     who may do what, and his hashed password
//! door      judges who comes, where that disturbs nobody
//! serve     the responder's side: thousands of associations
//! client    the initiator's side: one association, and jobs on it
//! strangers who has not said yet who he is
//! lines     how many log lines somebody may cause
//! timing    how long each layer works
//! ```

pub mod client;
pub mod disk;
pub mod door;
mod end;
mod lines;
pub mod serve;
mod strangers;
pub mod timing;
pub mod users;
