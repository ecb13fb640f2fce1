//! `kiban ftam`: an FTAM initiator (client) and responder (server).

mod address;
mod arguments;
mod attributes;
mod command;
mod jobs;
mod link;
mod options;
mod serve;

pub(crate) use command::Ftam;
