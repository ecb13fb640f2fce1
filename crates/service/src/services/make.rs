//! Creates a service from its plan, for an undivided board or for the shards of a board.

use super::attach::{self, Attach, ClientBells, Tcp};
use super::forward::Forward;
use super::http::disk::Folder;
use super::http::{Http, HttpConfig};
use super::net::Net;
use super::osi::Osi;
use super::plain::{Plain, Role};
use super::rdma::Rdma;
use super::service::{Service, SessionLimits};
use super::shard_link::ShardLink;
use super::sockets::{self, Sockets};
use crate::config::{Endpoint, Kind, ServicePlan};
use kiban_board::Steering;
use kiban_os::Waker;
use std::io;
use std::sync::Arc;

/// Creates a service from its plan; `chime` holds the bells of the board's `Services`.
///
/// # Errors
/// If a directory does not exist, or the process has run out of descriptors.
pub fn make(plan: &ServicePlan, chime: &Arc<ClientBells>) -> io::Result<Box<dyn Service>> {
    make_with(plan, chime, None)
}

/// The link of a service's part on one shard to the others.
enum Link {
    Attach(ShardLink<attach::Handed>),
    Sockets(sockets::Link),
}

/// Creates a service, or with `link` its part on one shard.
fn make_with(
    plan: &ServicePlan,
    chime: &Arc<ClientBells>,
    link: Option<Link>,
) -> io::Result<Box<dyn Service>> {
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
            let link = match link {
                Some(Link::Attach(link)) => Some(link),
                _ => None,
            };
            Box::new(Attach::new(Tcp, path.clone(), bounds, chime.clone()).map_err(say)?.with_link(link))
        }
        Kind::Osi { path } => {
            Box::new(Attach::new(Osi::default(), path.clone(), bounds, chime.clone()).map_err(say)?)
        }
        Kind::Rdma { path } => Box::new(Rdma::new(path.clone(), bounds, chime.clone()).map_err(say)?),
        Kind::Net(config) => Box::new(Net::new(config.clone(), bounds).map_err(say)?),
        Kind::Sockets { path } => {
            let link = match link {
                Some(Link::Sockets(link)) => Some(link),
                _ => None,
            };
            Box::new(Sockets::new(path.clone(), bounds, link).map_err(say)?)
        }
        Kind::Forward { to } => Box::new(Forward::new(plan.listen, *to, bounds).map_err(say)?),
    })
}

/// Creates a service's part for one of the other shards, on that shard's thread.
pub(crate) type Maker = Box<dyn FnOnce(&Arc<ClientBells>) -> io::Result<Box<dyn Service>> + Send>;

/// Creates the parts of a service on the shards of a board: shard 0's, and what creates those of the others,
/// in their order; none if the service is on shard 0 only. `plan` is the share of one shard; `wakers` are
/// those of the shards' drivers.
///
/// # Errors
/// Same as for [`make`].
pub(crate) fn make_parts(
    plan: &ServicePlan,
    chime: &Arc<ClientBells>,
    steering: Steering,
    wakers: &[Waker],
) -> io::Result<(Box<dyn Service>, Vec<Maker>)> {
    let links: Vec<Option<Link>> = match plan.kind {
        Kind::Attach { .. } => {
            let links = ShardLink::between(steering, wakers).into_iter();
            links.map(|link| Some(Link::Attach(link))).collect()
        }
        Kind::Sockets { .. } => {
            let links = sockets::Link::between(steering, wakers).into_iter();
            links.map(|link| Some(Link::Sockets(link))).collect()
        }
        _ if runs_everywhere(plan) => wakers.iter().map(|_| None).collect(),
        _ => vec![None],
    };
    let mut links = links.into_iter();
    let first = make_with(plan, chime, links.next().flatten())?;
    let maker = |link| -> Maker {
        let plan = plan.clone();
        Box::new(move |chime| make_with(&plan, chime, link))
    };
    Ok((first, links.map(maker).collect()))
}

/// Returns whether a service runs on every shard. The others run on shard 0 only.
pub(crate) fn runs_everywhere(plan: &ServicePlan) -> bool {
    match &plan.kind {
        Kind::Echo | Kind::Discard | Kind::Source { .. } | Kind::Http { .. } => true,
        Kind::Attach { .. } | Kind::Sockets { .. } => true,
        Kind::Forward { .. } => matches!(plan.listen, Endpoint::Board(_)),
        Kind::Net(_) | Kind::Osi { .. } | Kind::Rdma { .. } => false,
    }
}
