//! Sandbox: a program drops the privileges that it no longer needs once it has started.
//!
//! Purpose          a flaw in the code that reads input from outside gains as little as possible.
//! Capabilities     dropped from every set of every thread, except those that a lost link needs to be opened again.
//! Files            Landlock: only the paths that the program named can be read or written; nothing can be executed.
//! System calls     seccomp: a deny-list (`calls`), refused with EPERM, or ended with SIGSYS where that is asked for.
//! no_new_privs     set on every thread, so that no program that is executed could gain privileges.
//! Threads          all of them, those that run already included (`threads`); later ones inherit.
//!                  A filter around this process that refuses capset(2) leaves the capabilities: they are reported as kept.
//! Limits           Landlock since Linux 5.13, seccomp on x86-64, aarch64 and riscv64: what a system lacks is reported
//!                  ([`Sandbox::report`]) and the program goes on. Files and sockets that are open stay open. Once per process.
//! Not implemented  rules for TCP ports: a reload may add services at other ports, and links need sockets again.

mod calls;
mod files;
mod need;
mod threads;

pub use calls::OnRefusal;
pub use need::Need;

use files::Files;
use need::What;
use rustix::thread::CapabilitySet;
use std::io;

/// What is in force in this process.
pub struct Sandbox {
    /// Permitted before the sandbox.
    before: CapabilitySet,
    kept: CapabilitySet,
    files: Result<Files, String>,
    calls: Result<(), String>,
}

/// What is in force, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Capabilities that are kept, as `CAP_NET_ADMIN`.
    pub capabilities: Vec<String>,
    /// `on`, or why Landlock is not.
    pub landlock: String,
    /// `on`, or why seccomp is not.
    pub seccomp: String,
}

impl Sandbox {
    /// Drops everything but `needs`, on every thread of this process, and logs what is in force. Called once, when links are open and
    /// services listen.
    ///
    /// # Errors
    /// A thread could not be restricted, or this process is confined already. The program should end then.
    pub fn enter(needs: &[Need], on_refusal: OnRefusal) -> io::Result<Sandbox> {
        let sets = rustix::thread::capabilities(None)?;
        let before = sets.permitted;
        let wanted = needs.iter().fold(CapabilitySet::empty(), |all, need| all | need.capabilities(before));
        let kept = before & wanted;
        let sockets = Sockets {
            packet: needs.iter().any(|need| need.wants(CapabilitySet::NET_RAW)),
            xdp: needs.iter().any(|need| need.wants(CapabilitySet::BPF)),
        };
        let (files, ruleset) = match Files::new(needs) {
            Ok((files, ruleset)) => (Ok(files), Some(ruleset)),
            Err(why) => (Err(why), None),
        };
        threads::restrict_all(threads::Job { kept, sets, ruleset })?;
        let kept = rustix::thread::capabilities(None)?.permitted;
        let calls = calls::filter(sockets, on_refusal);
        let sandbox = Sandbox { before, kept, files, calls };
        let Report { capabilities, landlock, seccomp } = sandbox.report();
        let kept = if capabilities.is_empty() { "none".to_owned() } else { capabilities.join(" ") };
        tracing::info!(capabilities = kept, no_new_privs = true, landlock, seccomp, "privileges dropped");
        Ok(sandbox)
    }

    /// Why something that was not needed before cannot be done any more; none: the sandbox does not forbid it.
    pub fn refuses(&self, need: &Need) -> Option<String> {
        match &need.what {
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

    /// What is in force.
    pub fn report(&self) -> Report {
        let word = |reason: Option<&String>| reason.map_or("on".to_owned(), |why| format!("off: {why}"));
        Report {
            capabilities: names(self.kept),
            landlock: word(self.files.as_ref().err()),
            seccomp: word(self.calls.as_ref().err()),
        }
    }
}

/// Families of sockets beyond those of IP and Unix that stay possible.
#[derive(Clone, Copy)]
struct Sockets {
    packet: bool,
    xdp: bool,
}

fn names(capabilities: CapabilitySet) -> Vec<String> {
    capabilities.iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}
