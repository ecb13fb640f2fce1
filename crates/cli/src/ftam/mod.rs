//! `kiban ftam`: an FTAM initiator (client) and responder (server).

mod address;
mod arguments;
mod attributes;
mod collect;
mod collection;
mod command;
mod glob;
mod hosts;
mod jobs;
mod journal;
mod kinds;
mod link;
mod listing;
mod local;
mod mirror;
mod options;
mod report;
mod serve;
mod shell;
mod task;
mod transfers;

pub(crate) use command::Ftam;
