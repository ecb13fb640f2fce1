//! The privileges and paths that a program still needs after it has started.

use kiban_link::Address;
use kiban_link::address::Transport;
use rustix::thread::CapabilitySet;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Binding a port below this one needs CAP_NET_BIND_SERVICE.
const PORTS_UNPRIVILEGED: u16 = 1024;

/// A privilege or a path that is needed after start, and its purpose.
#[derive(Clone, Debug)]
pub struct Need {
    /// The purpose, such as `opening tap:kiban0`.
    pub(super) why: String,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Capabilities(CapabilitySet),
    /// Signals to other processes.
    Signals,
    /// A file, or a directory and everything below it.
    Path(PathBuf, Access),
}

/// The permitted access to a path and everything below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Read files and list directories.
    Read,
    /// Create and write new files.
    Create,
    /// Everything except executing files and creating devices.
    Change,
    /// Read and write the device, and use its ioctls.
    Device,
}

impl Need {
    /// Returns the need to read a file, or all files below a directory.
    pub fn read(path: &Path) -> Need {
        Need::path("reading", path, Access::Read)
    }

    /// Returns the needs for rereading a file, even if another file has replaced it under the same name.
    pub fn read_again(file: &Path) -> Vec<Need> {
        // The file's mode decides whether it can be read. If it is a symlink, its target is in another
        // directory.
        let real = std::fs::canonicalize(file).ok();
        let beside = [Some(file), real.as_deref()].into_iter().flatten().map(folder_of);
        beside.map(|folder| Need::path("reading", &folder, Access::Read)).chain([Need::read(file)]).collect()
    }

    /// Returns the need to create a file.
    pub fn create(file: &Path) -> Need {
        Need { why: format!("writing {}", file.display()), ..Need::create_in(&folder_of(file)) }
    }

    /// Returns the need to create files in a directory.
    pub fn create_in(folder: &Path) -> Need {
        Need::path("writing", folder, Access::Create)
    }

    /// Returns the need to read, create, change and remove everything below a directory.
    pub fn change(folder: &Path) -> Need {
        Need::path("changing", folder, Access::Change)
    }

    /// Returns the need to send signals to other processes of the same user, by their file descriptors
    /// (pidfd_send_signal(2)).
    pub fn signals() -> Need {
        Need { why: "passing signals on".to_owned(), what: What::Signals }
    }

    /// Returns the need to bind a port on this host, if the port is privileged.
    pub fn port(at: SocketAddr) -> Option<Need> {
        let is_low = (1..PORTS_UNPRIVILEGED).contains(&at.port());
        is_low.then(|| Need {
            why: format!("listening at {at}"),
            what: What::Capabilities(CapabilitySet::NET_BIND_SERVICE),
        })
    }

    /// Returns the need for socket buffers larger than the system's limit (`net.core.wmem_max`), if the
    /// process may set such sizes.
    pub fn buffers() -> Need {
        let what = What::Capabilities(CapabilitySet::NET_ADMIN);
        Need { why: "setting socket buffers beyond the system's limit".to_owned(), what }
    }

    /// Returns the needs for opening a link, including reopening it later.
    pub fn link(address: &Address) -> Vec<Need> {
        use CapabilitySet as Set;
        let why = format!("opening {}", address.transport);
        let port = |at: SocketAddr| Need::port(at).map(|need| need.what);
        let device = || What::Path("/dev/net/tun".into(), Access::Device);
        let record = address.options.record.as_deref().map(Need::create);
        let whats = match &address.transport {
            Transport::Tun(_) | Transport::Tap(_) => vec![What::Capabilities(Set::NET_ADMIN), device()],
            // The device is open already. A socket at a path stays open; a link that connects to one needs no
            // right that Landlock knows.
            Transport::TapFile(_) | Transport::Unix(..) | Transport::UnixDatagrams(..) => Vec::new(),
            Transport::Packet(_) => vec![What::Capabilities(Set::NET_RAW)],
            // Without CAP_IPC_LOCK, memory shared with the kernel counts towards RLIMIT_MEMLOCK.
            Transport::Xdp(_) => {
                vec![What::Capabilities(Set::NET_ADMIN | Set::NET_RAW | Set::BPF | Set::IPC_LOCK)]
            }
            Transport::Udp(_, ends) | Transport::Pseudowire(ends) => port(ends.local).into_iter().collect(),
            Transport::Tcp(_, role, host) | Transport::AtmTcp(role, host) => {
                let listens = *role == kiban_link::Role::Listen;
                let at = SocketAddr::from(([0, 0, 0, 0], host.port));
                port(at).filter(|_| listens).into_iter().collect()
            }
            Transport::Pcap(file) => vec![What::Path(file.clone(), Access::Read)],
        };
        whats.into_iter().map(|what| Need { why: why.clone(), what }).chain(record).collect()
    }

    fn path(verb: &str, path: &Path, access: Access) -> Need {
        Need { why: format!("{verb} {}", path.display()), what: What::Path(path.to_owned(), access) }
    }

    pub(super) fn wants(&self, capability: CapabilitySet) -> bool {
        matches!(&self.what, What::Capabilities(wanted) if wanted.contains(capability))
    }

    /// Returns which of the `permitted` capabilities this need requires.
    pub(super) fn capabilities(&self, permitted: CapabilitySet) -> CapabilitySet {
        use CapabilitySet as Set;
        match &self.what {
            What::Capabilities(wanted) => *wanted,
            What::Signals => Set::empty(),
            What::Path(path, access) => {
                let wanted = match access {
                    _ if !is_closed_to_us(path, *access) => Set::empty(),
                    // If CAP_DAC_READ_SEARCH is permitted, it suffices for reading.
                    Access::Read if permitted.contains(Set::DAC_READ_SEARCH) => Set::DAC_READ_SEARCH,
                    _ => Set::DAC_OVERRIDE,
                };
                wanted & permitted
            }
        }
    }
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Returns whether users other than the owner are denied access by the mode of a path or of one of its parent
/// directories.
fn is_closed_to_us(path: &Path, access: Access) -> bool {
    let Ok(path) = std::fs::canonicalize(path) else { return false };
    let own = rustix::process::geteuid().as_raw();
    path.ancestors().enumerate().any(|(above, path)| {
        std::fs::metadata(path).is_ok_and(|about| {
            let wanted = match (above, access) {
                (1.., _) => 0o1,
                (0, Access::Read) if about.is_dir() => 0o5,
                (0, Access::Read) => 0o4,
                (0, Access::Create) => 0o3,
                (0, Access::Change) => 0o7,
                (0, Access::Device) => 0o6,
            };
            about.uid() != own && about.mode() & wanted != wanted
        })
    })
}
