//! `kiban lab`: parameter sweeps from a plan to a report, and measurements of real networks.

mod command;
mod explain;
mod interrupt;
mod live;
mod merge;
mod mix;
mod net;
mod output;
mod plan;
mod questions;
mod report;
mod rtp;
mod run;
mod script;
mod summary;

pub(crate) use command::Lab;
