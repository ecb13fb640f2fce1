//! The process in the guest's namespaces: creates and configures the interface.

use super::options::{Options, RESOLVER, Target, host_name_servers};
use crate::output::note;
use kiban_link::frames::tun::{TunLink, TunMode};
use kiban_os::unix::names;
use kiban_os::{interface, namespace};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Enters the guest's namespaces, and creates its interface. Returns its open device.
///
/// # Errors
/// The system forbids it, and the message says which setting does; or the guest belongs to another user, or
/// there is none.
pub(super) fn create(options: &Options) -> Result<OwnedFd, String> {
    enter(options, || enter_new(options).map_err(|error| error.to_string()))?;
    configure(options)
}

/// Enters the guest's namespaces; `of_command` does so for a guest that is a command.
fn enter(options: &Options, of_command: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    match &options.target {
        Target::Command(..) => of_command(),
        Target::Process(process) => join_process(*process),
        Target::Namespace { user, net, .. } => join(user.as_deref(), net),
        Target::Machine { .. } => Err("a virtual machine has no namespace of this host".into()),
    }
}

/// Serves sockets of the guest's namespace to the other end of a socket, until it is closed. `command` is the
/// process of a guest that is a command.
///
/// # Errors
/// As for [`create`].
pub(super) fn serve(options: &Options, command: u32, socket: OwnedFd) -> Result<(), String> {
    enter(options, || join_process(command))?;
    let served = kiban_service::services::serve_namespace(socket.into());
    served.map_err(|error| format!("cannot drop privileges: {error}"))
}

/// Enters namespaces of the guest, whose programs must not trace this process: it still has this host's
/// files.
fn join_untraced(user: Option<&Path>, net: &Path) -> io::Result<()> {
    // Once in the guest's user namespace, this process could be traced by the guest's root. A change of
    // credentials may reset the attribute (prctl(2), PR_SET_DUMPABLE).
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    namespace::join(user, net)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

fn join(user: Option<&Path>, net: &Path) -> Result<(), String> {
    join_untraced(user, net).map_err(|error| error.to_string())
}

fn join_process(process: u32) -> Result<(), String> {
    let folder = format!("/proc/{process}/ns");
    let joined =
        join_untraced(Some(Path::new(&format!("{folder}/user"))), Path::new(&format!("{folder}/net")));
    joined.map_err(|error| format!("cannot use the network of process {process}: {error}"))
}

/// Enters new namespaces, in which the command's requests for names reach the board.
fn enter_new(options: &Options) -> io::Result<()> {
    // The directory is created before this process is root of a namespace.
    let folder = names::own_folder();
    namespace::enter_new()?;
    let Some(server) = options.dns.first().copied() else { return Ok(()) };
    if options.follows_resolver() && host_name_servers().is_empty() {
        note!("kiban: requests for names fail until this host's {RESOLVER} names a server");
    }
    if let Err(error) = folder.and_then(|folder| replace_resolver(&folder, server)) {
        note!("kiban: cannot replace {RESOLVER} for the command, which sees this host's: {error}");
    }
    Ok(())
}

/// Shows the command a `resolv.conf` with the board as its name server.
fn replace_resolver(folder: &Path, server: IpAddr) -> io::Result<()> {
    let file = folder.join(format!("net-{}.resolv", std::process::id()));
    let text = "# kiban net: the board passes requests on to this host's name servers.";
    std::fs::write(&file, format!("{text}\nnameserver {server}\n"))?;
    let shown = namespace::replace_file(&file, Path::new(RESOLVER));
    // The mount keeps the file.
    std::fs::remove_file(&file)?;
    shown
}

/// Creates the interface, with its addresses and routes.
fn configure(options: &Options) -> Result<OwnedFd, String> {
    let name = &options.interface;
    let work = || -> io::Result<OwnedFd> {
        let device = TunLink::open(name, TunMode::Frames, true)?;
        if !options.configures {
            return Ok(device.into_file());
        }
        // As pasta and slirp4netns do: nobody else does in a namespace that the engine has created.
        interface::set_up("lo")?;
        interface::set_mtu(name, options.mtu_bytes)?;
        // Where /proc is read-only, the addresses become usable a little later.
        let _ = namespace::skip_duplicate_detection(name);
        interface::set_up(name)?;
        for &(address, gateway) in &options.addresses {
            let set = interface::set_address(name, address.addr(), address.prefix_len())
                .and_then(|()| namespace::add_default_route(name, gateway));
            match (set, gateway) {
                (Err(error), IpAddr::V6(_)) => note!("kiban: the guest has no IPv6: {error}"),
                (set, _) => set?,
            }
        }
        Ok(device.into_file())
    };
    work().map_err(|error| error.to_string())
}
