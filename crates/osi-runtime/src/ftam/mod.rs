//! FTAM on a host: a directory that serves as a filestore, its users, a client and a server.

pub mod authentication;
pub mod client;
pub mod disk;
mod end;
mod layers;
pub mod serve;
pub mod timing;
mod unauthenticated;
pub mod users;
