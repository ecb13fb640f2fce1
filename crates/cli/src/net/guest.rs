//! The process in the guest's namespaces: creates and configures the interface.

use super::arguments::Options;
use crate::output::note;
use kiban_link::frames::tun::{TunLink, TunMode};
use kiban_os::unix::names;
use kiban_os::{interface, namespace};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

const RESOLVER: &str = "/etc/resolv.conf";

/// Enters new namespaces with an interface. Returns its open device.
///
/// # Errors
/// The system forbids it; the message says which setting does.
pub(super) fn create(options: &Options) -> Result<OwnedFd, String> {
    // The directory is created before this process is root of a namespace.
    let folder = names::own_folder();
    namespace::enter_new().map_err(|error| error.to_string())?;
    if options.name_server.is_none() {
        note!(
            "kiban: this host names no name server in {RESOLVER}, so the command has none: --dns names one"
        );
    } else if let Err(error) = folder.and_then(|folder| replace_resolver(&folder, options)) {
        note!("kiban: cannot replace {RESOLVER} for the command, which sees this host's: {error}");
    }
    configure(options)
}

/// Enters the namespaces of a process, and gives them an interface. Returns its open device.
///
/// # Errors
/// There is no such process, or it belongs to another user.
pub(super) fn join(process: u32, options: &Options) -> Result<OwnedFd, String> {
    namespace::join(process).map_err(|error| error.to_string())?;
    configure(options)
}

/// Shows the command a `resolv.conf` with the board as its name server.
fn replace_resolver(folder: &Path, options: &Options) -> io::Result<()> {
    let file = folder.join(format!("net-{}.resolv", std::process::id()));
    std::fs::write(&file, resolver(options))?;
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
        interface::set_mtu(name, options.mtu_bytes)?;
        // Where /proc is read-only, the addresses become usable a little later.
        let _ = namespace::skip_duplicate_detection(name);
        interface::set_up(name)?;
        for (address, gateway) in options.addresses() {
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

/// Returns a `resolv.conf` with the board as the only name server.
fn resolver(options: &Options) -> String {
    let server = options.gateway;
    format!("# kiban net: the board passes requests on to this host's name server.\nnameserver {server}\n")
}
