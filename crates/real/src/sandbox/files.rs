//! The file system of a confined program (landlock(7)).

use super::Need;
use super::need::What;
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, path_beneath_rules,
};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What may be done with a path and what is below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Files are read, directories are listed.
    Read,
    /// New files are made and written.
    Create,
    /// All but executing, and making devices.
    Change,
    /// Read and written, with its controls (ioctl).
    Device,
}

impl Access {
    fn rights(self) -> BitFlags<AccessFs> {
        match self {
            Access::Read => AccessFs::ReadFile | AccessFs::ReadDir,
            Access::Create => AccessFs::MakeReg | AccessFs::WriteFile | AccessFs::Truncate,
            Access::Change => {
                let no = AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
                AccessFs::from_all(LEVEL) & !no
            }
            Access::Device => AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
        }
    }
}

/// The rights that are asked for; those that a kernel does not know yet are left out by the crate.
const LEVEL: ABI = ABI::V5;

/// Names are resolved again when a link is opened again; the resolver's modules are libraries.
const RESOLVER: [&str; 11] = [
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ld.so.cache",
    "/run/systemd/resolve",
    "/usr/lib",
    "/lib",
    "/lib64",
];

/// What stays open.
pub(super) struct Files {
    /// Real paths, and what may be done with them.
    open: Vec<(PathBuf, Access)>,
}

impl Files {
    /// Rules for what is needed, which the threads still have to take upon themselves.
    pub(super) fn new(needs: &[Need]) -> Result<(Files, OwnedFd), String> {
        let say = |error: landlock::RulesetError| error.to_string();
        let ruleset = Ruleset::default().handle_access(AccessFs::from_all(LEVEL)).map_err(say)?;
        let resolver = path_beneath_rules(RESOLVER, Access::Read.rights());
        let mut ruleset: RulesetCreated =
            ruleset.create().and_then(|ruleset| ruleset.add_rules(resolver)).map_err(say)?;
        let mut open = Vec::new();
        for need in needs {
            let What::Path(path, access) = &need.what else { continue };
            match (PathFd::new(path), std::fs::canonicalize(path)) {
                (Ok(file), Ok(real)) => {
                    let rights = match real.is_dir() {
                        true => access.rights(),
                        false => access.rights() & AccessFs::from_file(LEVEL),
                    };
                    ruleset = ruleset.add_rule(PathBeneath::new(file, rights)).map_err(say)?;
                    open.push((real, *access));
                }
                (file, _) => {
                    let error = file.err().map(|error| error.to_string()).unwrap_or_default();
                    tracing::warn!(path = %path.display(), error, "not there: it cannot be reached later either");
                }
            }
        }
        let file: Option<OwnedFd> = ruleset.into();
        let file = file.ok_or("this kernel has no Landlock (Linux 5.13 and later, `lsm=landlock`)")?;
        Ok((Files { open }, file))
    }

    /// Whether that may be done with a path.
    pub(super) fn allow(&self, path: &Path, access: Access) -> bool {
        // What is not there yet is made where its directory is.
        let Ok(real) = std::fs::canonicalize(path) else { return true };
        self.open
            .iter()
            .any(|(open, granted)| real.starts_with(open) && granted.rights().contains(access.rights()))
    }

    /// The directories with which that may be done.
    pub(super) fn named(&self, access: Access) -> Vec<String> {
        let open = self.open.iter().filter(|(_, granted)| granted.rights().contains(access.rights()));
        open.map(|(path, _)| path.display().to_string()).collect()
    }
}
