//! Sandbox: a program that has started drops the privileges that it no longer needs.
//!
//! Purpose          limit the damage that a flaw in the parsing of external input can do.
//! Capabilities     are dropped from every set of every thread, except those needed to reopen a lost link. If
//!                  a seccomp filter that this process inherited denies capset(2), the capabilities remain,
//!                  and are reported as kept.
//! Files            Landlock: the program can read and write only the paths that it named, and cannot execute
//!                  any file.
//! System calls     seccomp: a deny-list (`calls`). A denied call fails with EPERM or, if so configured,
//!                  kills the process with SIGSYS.
//! no_new_privs     is set on every thread, so that no executed program could gain privileges.
//! Threads          the restrictions apply to all threads, including those that are already running
//!                  (`threads`); new threads inherit them.
//! Limits           Landlock requires Linux 5.13; seccomp requires x86-64, aarch64 or riscv64. If the system
//!                  lacks a feature, this is reported ([`Sandbox::report`]), and the program continues. Open
//!                  files and sockets stay open. A process can enter the sandbox only once.
//! Not implemented  rules for TCP ports, because a reload may add services on other ports, and links reopen
//!                  sockets.
//!
//! ```no_run
//! use kiban_sandbox::{Need, OnRefusal, Sandbox};
//! use std::path::Path;
//!
//! // After start: the program will read one directory and nothing else.
//! let sandbox = Sandbox::enter(&[Need::read(Path::new("/srv/files"))], OnRefusal::Error)?;
//! assert!(std::fs::read("/etc/passwd").is_err());
//! println!("{:?}", sandbox.report());
//! # Ok::<(), std::io::Error>(())
//! ```

mod calls;
mod files;
mod io_uring;
mod need;
mod threads;

pub use calls::OnRefusal;
pub use io_uring::refuse_io_uring;
pub use need::Need;

use calls::Allowed;
use files::Files;
use need::What;
use rustix::thread::CapabilitySet;
use std::io;

/// The restrictions that apply to this process.
pub struct Sandbox {
    /// The permitted capabilities before the sandbox was entered.
    before: CapabilitySet,
    kept: CapabilitySet,
    files: Result<Files, String>,
    calls: Result<(), String>,
}

/// The restrictions that apply, in text form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Capabilities that are kept, such as `CAP_NET_ADMIN`.
    pub capabilities: Vec<String>,
    /// `on`, or `off` and the reason.
    pub landlock: String,
    /// `on`, or `off` and the reason.
    pub seccomp: String,
}

impl Sandbox {
    /// Drops everything but `needs`, on every thread of this process, and logs the restrictions. Call it
    /// once, after links are open and services are listening.
    ///
    /// # Errors
    /// Fails if a thread could not be restricted, or this process is already in a sandbox. The program should
    /// then exit.
    pub fn enter(needs: &[Need], on_refusal: OnRefusal) -> io::Result<Sandbox> {
        let sets = rustix::thread::capabilities(None)?;
        let before = sets.permitted;
        let wanted = needs.iter().fold(CapabilitySet::empty(), |all, need| all | need.capabilities(before));
        let kept = before & wanted;
        let allowed = Allowed {
            signals: needs.iter().any(|need| matches!(need.what, What::Signals)),
            packet: needs.iter().any(|need| need.wants(CapabilitySet::NET_RAW)),
            xdp: needs.iter().any(|need| need.wants(CapabilitySet::BPF)),
        };
        let (files, ruleset) = match Files::new(needs) {
            Ok((files, ruleset)) => (Ok(files), Some(ruleset)),
            Err(why) => (Err(why), None),
        };
        threads::restrict_all(threads::Job { kept, sets, ruleset })?;
        let kept = rustix::thread::capabilities(None)?.permitted;
        let calls = calls::filter(allowed, on_refusal);
        let sandbox = Sandbox { before, kept, files, calls };
        let Report { capabilities, landlock, seccomp } = sandbox.report();
        let kept = if capabilities.is_empty() { "none".to_owned() } else { capabilities.join(" ") };
        tracing::info!(capabilities = kept, no_new_privs = true, landlock, seccomp, "privileges dropped");
        Ok(sandbox)
    }

    /// Returns the reason why a new need cannot be met, or `None` if the sandbox permits it.
    pub fn refuses(&self, need: &Need) -> Option<String> {
        match &need.what {
            What::Signals => None,
            What::Capabilities(wanted) => {
                let dropped = *wanted & self.before & !self.kept;
                let names = names(dropped).join(" and ");
                (!dropped.is_empty())
                    .then(|| format!("{} needs {names}, which kiban dropped after start", need.why))
            }
            What::Path(path, access) => {
                let files = self.files.as_ref().ok()?;
                (!files.allow(path, *access)).then(|| {
                    let open = files.named(*access).join(", ");
                    format!(
                        "{} is outside the directories that kiban kept open after start ({open})",
                        need.why
                    )
                })
            }
        }
    }

    /// Returns the restrictions that apply.
    pub fn report(&self) -> Report {
        let word = |reason: Option<&String>| reason.map_or("on".to_owned(), |why| format!("off: {why}"));
        Report {
            capabilities: names(self.kept),
            landlock: word(self.files.as_ref().err()),
            seccomp: word(self.calls.as_ref().err()),
        }
    }
}

/// Returns a hint to append to an error message if the sandbox may have caused the error, otherwise an empty
/// string.
pub fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; kiban dropped privileges after start: it can open only files that its user may access, in the \
             directories that existed at start; if the file belongs to another user now, or its directory was \
             replaced, or a link leads elsewhere, put it back, or restart kiban"
        }
        _ => "",
    }
}

fn names(capabilities: CapabilitySet) -> Vec<String> {
    capabilities.iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}
