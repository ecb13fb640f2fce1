//! Creates a service from its plan.

use super::attach::{Attach, ClientBells, Tcp};
use super::forward::Forward;
use super::http::disk::Folder;
use super::http::{Http, HttpConfig};
use super::net::Net;
use super::osi::Osi;
use super::plain::{Plain, Role};
use super::rdma::Rdma;
use super::service::{Service, SessionLimits};
use super::sockets::Sockets;
use crate::config::{Endpoint, Kind, ServicePlan};
use std::io;
use std::sync::Arc;

/// Creates a service from its plan; `chime` holds the bells of the board's `Services`.
///
/// # Errors
/// If a directory does not exist, or the process has run out of descriptors.
pub fn make(plan: &ServicePlan, chime: &Arc<ClientBells>) -> io::Result<Box<dyn Service>> {
    let say = |error: io::Error| io::Error::new(error.kind(), format!("service {}: {error}", plan.name));
    let bounds = SessionLimits { sessions_max: plan.sessions_max, idle: plan.idle };
    let on_board = || match plan.listen {
        Endpoint::Board(address) => Ok(address),
        _ => Err(io::Error::other(format!("service {} must listen on the board", plan.name))),
    };
    Ok(match &plan.kind {
        Kind::Echo => Box::new(Plain::new(on_board()?, Role::Echo, bounds)),
        Kind::Discard => Box::new(Plain::new(on_board()?, Role::Discard, bounds)),
        Kind::Source { bytes } => Box::new(Plain::new(on_board()?, Role::Source { bytes: *bytes }, bounds)),
        Kind::Http { root, list, head_time, .. } => {
            let folder = Folder::open(root)
                .map_err(|error| say(io::Error::new(error.kind(), format!("{}: {error}", root.display()))))?;
            let config = HttpConfig { list: *list, head_time: *head_time, bounds };
            Box::new(Http::new(on_board()?, Box::new(folder), config))
        }
        Kind::Attach { path } => {
            Box::new(Attach::new(Tcp, path.clone(), bounds, chime.clone()).map_err(say)?)
        }
        Kind::Osi { path } => {
            Box::new(Attach::new(Osi::default(), path.clone(), bounds, chime.clone()).map_err(say)?)
        }
        Kind::Rdma { path } => Box::new(Rdma::new(path.clone(), bounds, chime.clone()).map_err(say)?),
        Kind::Net(config) => Box::new(Net::new(config.clone(), bounds).map_err(say)?),
        Kind::Sockets { path } => Box::new(Sockets::new(path.clone(), bounds).map_err(say)?),
        Kind::Forward { to } => Box::new(Forward::new(plan.listen, *to, bounds).map_err(say)?),
    })
}
