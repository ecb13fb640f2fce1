//! `kiban verbs`: runs programs written for RDMA hardware with kiban's libraries.
//!
//! Purpose   make a program load kiban's `libibverbs.so.1` and `librdmacm.so.1` instead of the system's,
//!           without any other change to its environment.
//! Method    puts kiban's library directory first in LD_LIBRARY_PATH. LD_PRELOAD holds the bare file names of
//!           libraries in that directory: one that emulates the files of devices, for which some programs
//!           look (preload/paths.c), and libibverbs.so.1. Then replaces this process with the program
//!           (execve(2)).
//! Bundled   auditwheel puts a copy of libibverbs.so.1 under another name into a Python wheel, and a program
//!           may have an RPATH, which ld.so searches first. The symbols of a preloaded library come before
//!           those of such a copy. A program that uses no verbs pays less than 1 ms for this.
//! Limits    ld.so(8) ignores these variables for programs that have more privileges than their user
//!           (set-user-ID, capabilities). A program that is linked statically with rdma-core uses that;
//!           so does one that has its own copy of librdmacm.so.1.

use crate::output::note;
use clap::{Args, ValueEnum};
use std::env::{current_exe, var_os};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const LIBRARIES: [&str; 3] = ["libibverbs.so.1", "librdmacm.so.1", "libkiban_paths.so"];
/// The preloaded libraries. librdmacm.so.1 is not one of them, because it has names such as `rread` and
/// `rpoll` that another library may use for functions of its own.
const PRELOADED: &str = "libkiban_paths.so:libibverbs.so.1";
pub(crate) const FOLDER: &str = "KIBAN_VERBS_LIB";
const PATH: &str = "LD_LIBRARY_PATH";
pub(crate) const PRELOAD: &str = "LD_PRELOAD";
const TRANSPORT: &str = "KIBAN_TRANSPORT";
const BOARD: &str = "KIBAN_BOARD";

/// Run an RDMA program without RDMA hardware.
///
/// The program loads kiban's libibverbs.so.1 and librdmacm.so.1 instead of the system's. They provide a
/// software NIC for every address of this host. No privileges, kernel modules or changes to the program
/// are needed.
#[derive(Args)]
#[command(
    override_usage = "kiban verbs [OPTIONS] -- PROGRAM [ARGUMENT]...\n       kiban verbs [OPTIONS] --env"
)]
#[command(after_help = "Examples:\
        \n  kiban verbs -- ibv_devinfo\
        \n  kiban verbs -- rping -s -a 127.0.0.1 &\
        \n  kiban verbs -- rping -c -a 127.0.0.1 -C 10\
        \n  kiban verbs --transport iwarp -- fi_info -p verbs    as an iWARP NIC\
        \n  kiban verbs --transport efe -- ibv_devinfo -v        over the EFE-like transport\
        \n  eval \"$(kiban verbs --env)\"                          for all programs in this shell\
        \n  kiban verbs --board lab -- ib_write_bw -R             the NIC of the board `lab` (`kiban up`)\
        \n  kiban verbs --board lab --transport efe -- rping -s -a 10.9.0.2\
        \n                                                       the same, over the EFE-like transport\
        \n  kiban verbs -- env LD_PRELOAD=librspreload.so iperf3 -s    sockets over RDMA\
        \n\nVariables:\
        \n  KIBAN_TRANSPORT=ib|roce|efe|iwarp  the same as --transport, which takes precedence\
        \n  KIBAN_BOARD=NAME                   the same as --board, which takes precedence\
        \n  KIBAN_DEVICES=all                  list a device for every address, also IPv6 beside IPv4 and loopback\
        \n  KIBAN_SHARED_MEMORY=0              use TCP (roce, and always efe: UDP) even between processes on one host\
        \n  KIBAN_VERBS_LIB=FOLDER             the directory of kiban's libraries, if they are not next to this program\
        \n\nExit status: that of the program; 126 or 127 if it cannot be started, 1 if kiban's libraries are missing, 2 for invalid arguments.")]
pub(crate) struct Verbs {
    /// Print the environment as shell commands instead of running a program.
    #[arg(long, conflicts_with = "program")]
    env: bool,
    /// Transport of the NIC [default: KIBAN_TRANSPORT, else ib].
    #[arg(long, value_enum)]
    transport: Option<Transport>,
    /// Use the NIC of the running board NAME, whose configuration has a service of kind `rdma`, instead of
    /// one in the program's process [default: KIBAN_BOARD].
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
    /// The program and its arguments.
    #[arg(required_unless_present = "env", trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// What the emulated devices report, and speak on the wire.
#[derive(Clone, Copy, ValueEnum)]
enum Transport {
    /// An iWARP NIC, which matches the wire protocol: for peers with siw or an iWARP card.
    Iwarp,
    /// An InfiniBand adapter on Ethernet, as most programs expect.
    Ib,
    /// The same adapter, but RoCEv2 on the wire: for peers with rdma_rxe or a RoCE card.
    Roce,
    /// A NIC of unspecified transport: iWARP's messages over the EFE-like transport, for peers on kiban.
    Efe,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Transport::Iwarp => "iwarp",
            Transport::Ib => "ib",
            Transport::Roce => "roce",
            Transport::Efe => "efe",
        }
    }
}

impl Verbs {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let folder = library_dir(&LIBRARIES)?;
        let Some((program, arguments)) = self.program.split_first() else {
            return crate::output::print(&commands(&folder, self.transport, self.board.as_deref())?)
                .map(|()| ExitCode::SUCCESS);
        };
        let mut command = Command::new(program);
        command.args(arguments).env(PATH, prepend(folder.as_os_str(), var_os(PATH)));
        command.env(PRELOAD, prepend(PRELOADED.as_ref(), var_os(PRELOAD)));
        if let Some(transport) = self.transport {
            command.env(TRANSPORT, transport.name());
        }
        if let Some(board) = &self.board {
            command.env(BOARD, board);
        }
        Ok(become_program(command))
    }
}

/// Replaces this process with a program. If the program cannot be started, returns the same exit status as
/// shells: 127 if the program does not exist, otherwise 126.
pub(crate) fn become_program(mut command: Command) -> ExitCode {
    let error = command.exec();
    let missing = error.kind() == ErrorKind::NotFound;
    let remedy = if missing { "; is it installed?" } else { "" };
    note!("kiban: cannot start {}: {error}{remedy}", command.get_program().display());
    ExitCode::from(if missing { 127 } else { 126 })
}

/// Returns the directory that contains kiban's libraries.
///
/// # Errors
/// If any of `libraries` is missing from it.
pub(crate) fn library_dir(libraries: &[&str]) -> Result<PathBuf, String> {
    let program = current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
    find(var_os(FOLDER), &program, libraries)
}

/// Looks for `libraries` in the directory `named` if it is given, otherwise in directories relative to
/// `program`.
fn find(named: Option<OsString>, program: &Path, libraries: &[&str]) -> Result<PathBuf, String> {
    let named = named.filter(|folder| !folder.is_empty());
    let beside = program.parent().unwrap_or(Path::new("/"));
    let places = match &named {
        Some(folder) => vec![PathBuf::from(folder)],
        None => vec![beside.join("verbs"), beside.join("../lib/kiban")],
    };
    let has_both = |place: &&PathBuf| libraries.iter().all(|library| place.join(library).is_file());
    let Some(found) = places.iter().find(has_both) else {
        let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        let remedy = match named {
            Some(_) => format!("correct {FOLDER}, or unset it"),
            None => format!(
                "run 'make verbs' or 'make install' in kiban's source tree, or set {FOLDER} to their \
                directory"
            ),
        };
        return Err(format!("{} not found in {}: {remedy}", libraries.join(", "), looked.join(" or in ")));
    };
    let found = found.canonicalize().map_err(|error| format!("{}: {error}", found.display()))?;
    // LD_LIBRARY_PATH has no escape for its separators (ld.so(8)).
    if found.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b':' | b';')) {
        return Err(format!(
            "{PATH} cannot contain {}: move it to a path without ':' and ';'",
            found.display()
        ));
    }
    Ok(found)
}

/// Prepends an entry to a colon-separated list.
pub(crate) fn prepend(ours: &OsStr, before: Option<OsString>) -> OsString {
    let mut all = ours.to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        all.push(":");
        all.push(before);
    }
    all
}

fn commands(folder: &Path, transport: Option<Transport>, board: Option<&str>) -> Result<String, String> {
    let folder = quoted(folder.as_os_str())?;
    let mut text = format!("export {PATH}={folder}\"${{{PATH}:+:${PATH}}}\"\n");
    text += &format!("export {PRELOAD}={PRELOADED}\"${{{PRELOAD}:+:${PRELOAD}}}\"\n");
    if let Some(transport) = transport {
        text += &format!("export {TRANSPORT}={}\n", transport.name());
    }
    if let Some(board) = board {
        text += &format!("export {BOARD}={}\n", quoted(board.as_ref())?);
    }
    Ok(text)
}

/// Quotes a text for sh(1).
pub(crate) fn quoted(text: &OsStr) -> Result<String, String> {
    let valid = text.to_str();
    let valid =
        valid.ok_or_else(|| format!("{} is not valid UTF-8 and cannot be printed", text.display()))?;
    Ok(crate::output::quoted(valid))
}
