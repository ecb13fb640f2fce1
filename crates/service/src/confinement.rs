//! The privileges that a board keeps after start, and whether a reload needs more.
//!
//! Kept             the privileges needed to reopen a lost link, and access to the configuration file, served
//!                  directories, the control socket's directory, and directories for captures.
//! Reload           before it changes anything, a reload checks that the new plan needs no privilege that was
//!                  dropped.

use crate::config::{Endpoint, Kind, Plan, PortPlan, ServicePlan};
use kiban_link::Address;
use kiban_os::unix::names;
use kiban_sandbox::{Need, Sandbox};
use std::path::Path;

/// Advice on how to regain a privilege that was dropped.
const REMEDY: &str = "restart the board to apply this (kiban down, then kiban up)";

/// Returns the privileges needed to open the links with these addresses.
pub(crate) fn of_links<'a>(links: impl Iterator<Item = &'a str>) -> Vec<Need> {
    // The plan is valid, so every address parses.
    links.filter_map(|link| link.parse::<Address>().ok()).flat_map(|address| Need::link(&address)).collect()
}

/// Returns the privileges that a board needs after it has started.
pub(crate) fn of_plan(plan: &Plan, file: Option<&Path>) -> Vec<Need> {
    let mut needs = of_links(plan.ports.iter().flat_map(links));
    needs.extend(file.into_iter().flat_map(Need::read_again));
    needs.extend(plan.services.iter().filter_map(root));
    needs.extend(plan.sandbox.read.iter().map(|path| Need::read(path)));
    // Services for attached programs create and remove their sockets in this directory.
    needs.push(Need::change(&names::own_path()));
    let usual = [std::env::temp_dir(), "/var/tmp".into()];
    let records = usual.iter().filter(|folder| folder.is_dir()).chain(&plan.sandbox.write);
    needs.extend(records.map(|folder| Need::create_in(folder)));
    needs
}

fn links(port: &PortPlan) -> impl Iterator<Item = &str> {
    [Some(&port.link), port.host.as_ref()].into_iter().flatten().map(String::as_str)
}

fn root(service: &ServicePlan) -> Option<Need> {
    match &service.kind {
        Kind::Http { root, .. } => Some(Need::read(root)),
        _ => None,
    }
}

/// Returns the reason why a confined board cannot apply another plan; `None` if it can.
pub(crate) fn refuses(sandbox: &Sandbox, old: &Plan, new: &Plan) -> Option<String> {
    let links = new.ports.iter().zip(&old.ports).filter(|(new, old)| new.link != old.link);
    let links = links.flat_map(|(port, _)| {
        let needs = of_links([port.link.as_str()].into_iter());
        needs.into_iter().map(move |need| (format!("port {}", port.name), need))
    });
    let services = new.services.iter().filter(|service| !old.services.contains(service));
    let services = services.flat_map(|service| {
        let port = match service.listen {
            Endpoint::Kernel(at) => Need::port(at),
            _ => None,
        };
        let needs = [port, root(service)].into_iter().flatten();
        needs.map(move |need| (format!("service {}", service.name), need))
    });
    let metrics = new.metrics.filter(|_| new.metrics != old.metrics).and_then(Need::port);
    let metrics = metrics.map(|need| ("metrics".to_owned(), need));
    let mut all = links.chain(services).chain(metrics);
    all.find_map(|(who, need)| Some(format!("{who}: {}: {REMEDY}", sandbox.refuses(&need)?)))
}

/// Returns the reason why a confined board cannot create a file; `None` if it can.
pub(crate) fn refuses_file(sandbox: &Sandbox, file: &Path) -> Option<String> {
    let why = sandbox.refuses(&Need::create(file))?;
    // Write the path as a TOML string; `{:?}` adds quotes and escapes.
    let folder = file.parent().unwrap_or(file).display().to_string();
    Some(format!(
        "{why}: name a file there, or add the directory to `write` in [sandbox], for example write = {folder:?}, \
         and restart the board"
    ))
}
