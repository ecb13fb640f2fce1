//! Restricts a confined program's access to the file system (landlock(7)).

use super::need::{Access, Need, What};
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, path_beneath_rules,
};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

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

/// The Landlock ABI that is requested. The landlock crate leaves out access rights that the kernel does not
/// support.
const LEVEL: ABI = ABI::V5;

/// The resolver's files, which are needed because a link that is reopened resolves its host name again.
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

/// The paths that stay accessible.
pub(super) struct Files {
    /// Canonical paths, each with its permitted access.
    open: Vec<(PathBuf, Access)>,
}

impl Files {
    /// Returns a Landlock ruleset that permits `needs`. Each thread still has to apply it.
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
                (file, real) => {
                    let why = file.err().map(|error| error.to_string());
                    let why = why.or(real.as_ref().err().map(ToString::to_string)).unwrap_or_default();
                    use std::io::ErrorKind as Kind;
                    let is_absent =
                        |kind| matches!(kind, Kind::NotFound | Kind::NotADirectory | Kind::PermissionDenied);
                    if !real.is_err_and(|error| is_absent(error.kind())) {
                        // The path exists, but could not be opened for lack of a resource. A ruleset that
                        // omits the path would deny access to it permanently.
                        return Err(why);
                    }
                    tracing::warn!(
                        path = %path.display(),
                        error = why,
                        "path does not exist; it stays inaccessible after start"
                    );
                }
            }
        }
        let file: Option<OwnedFd> = ruleset.into();
        let file =
            file.ok_or("the kernel does not support Landlock (needs Linux 5.13 and `lsm=landlock`)")?;
        Ok((Files { open }, file))
    }

    /// Returns whether this access to a path is permitted.
    pub(super) fn allow(&self, path: &Path, access: Access) -> bool {
        // For a file that does not exist yet, the rule for its directory applies.
        let Ok(real) = std::fs::canonicalize(path) else { return true };
        self.open
            .iter()
            .any(|(open, granted)| real.starts_with(open) && granted.rights().contains(access.rights()))
    }

    /// Returns the directories for which this access was requested.
    pub(super) fn named(&self, access: Access) -> Vec<String> {
        let open = self.open.iter().filter(|(_, granted)| granted.rights().contains(access.rights()));
        open.map(|(path, _)| path.display().to_string()).collect()
    }
}
