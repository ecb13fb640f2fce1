//! `kiban run`: runs an unmodified program on the TCP of a running board.
//!
//! Method    sets LD_PRELOAD to the library (preload/board/) and KIBAN_SOCKETS to the path of the board's
//!           socket. Then execve(2) replaces this process twice: first with `kiban run` again, now with the
//!           library loaded, then with the program. So the library checks whether the program can use the
//!           board, as it checks all programs that the program starts.
//! Names     if the board has leased its address by DHCP, the programs use the leased name servers, which are
//!           passed in KIBAN_NAME_SERVERS. A later change of the lease does not reach programs that run.
//! Limits    the library cannot be loaded into programs that are statically linked or have more privileges
//!           than their user, and has no effect on Go programs. These are not started
//!           (preload/board/exec.c), unless `--allow-host-network` is given.

use crate::board::control::{query_status, unavailable_reason};
use crate::nic::verbs::{PRELOAD, become_program, library_dir, prepend, quoted};
use crate::output::note;
use clap::Args;
use kiban_os::unix::names::folders_of_boards;
use kiban_service::control::ControlClient;
use kiban_streams::{boards, has_listener, run_socket_path};
use std::env::{args_os, current_exe, var_os};
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const LIBRARY: &str = "libkiban_sockets.so";
const SOCKETS_VARIABLE: &str = "KIBAN_SOCKETS";
/// The addresses of name servers, separated by spaces; they replace those of /etc/resolv.conf.
const NAME_SERVERS_VARIABLE: &str = "KIBAN_NAME_SERVERS";
/// Maximum number of name servers that libc's resolver uses (MAXNS in resolv.h).
const NAME_SERVERS_MAX: usize = 3;
/// `host` starts programs that cannot use the board, on the host's network.
const UNSERVED_VARIABLE: &str = "KIBAN_SOCKETS_UNSERVED";

/// A shell that evaluates the output of `--env` has not loaded the library, which would check the programs
/// that it starts.
const SHELL_IS_UNCHECKED: &str = "kiban run: this shell also starts programs that cannot use the board \
     (statically linked, Go, set-user-ID), on the host's network; `kiban run -- sh` is a shell that does not";

/// Run a program on the TCP and UDP of a running board.
///
/// The program's TCP connections and UDP datagrams go through the board if the board has a route to the
/// destination, and its listeners and UDP sockets at the board's addresses or the wildcard address are opened
/// on the board. The host's network handles everything else. The program needs no changes: descriptor
/// numbers, poll, epoll, threads and child processes work as usual. The board must run as the same user (root
/// may use any user's board), with a service of kind "sockets" in its configuration.
///
/// Programs that cannot use the board (statically linked, written in Go, set-user-ID) are not started,
/// because they would use the host's network. A shell that evaluates the output of --env starts them without
/// a check; a shell under `kiban run` refuses them.
#[derive(Args)]
#[command(override_usage = "kiban run [OPTIONS] -- PROGRAM [ARGUMENT]...\n       kiban run [OPTIONS] --env")]
#[command(after_help = "Examples:\
        \n  kiban run -- curl http://10.9.0.1/\
        \n  kiban run -- iperf3 -c 10.9.0.1\
        \n  kiban run --board lab -- python3 -m http.server --bind 10.9.0.2 8000\
        \n  kiban run -- bash                                  a shell, for all programs started from it\
        \n  eval \"$(kiban run --env)\"                          for all programs in this shell, without a check\
        \n\nVariables:\
        \n  KIBAN_SOCKETS=PATH          the board's socket, as printed by --env\
        \n  KIBAN_NAME_SERVERS=ADDRESS… name servers instead of those that the board has leased by DHCP, or of\
        \n                              those in /etc/resolv.conf; separated by spaces\
        \n  KIBAN_VERBS_LIB=DIR         the directory of kiban's libraries, if it is not one of the usual two\
        \n\nExit status: that of the program; 126 or 127 if it cannot be started, 1 if no board offers sockets, 2 for invalid arguments.")]
pub(crate) struct Run {
    /// Name of the board; needed only if several are running.
    #[arg(long)]
    board: Option<String>,
    /// Also start programs that cannot use the board; they use the host's network.
    #[arg(long)]
    allow_host_network: bool,
    /// Print the environment as shell commands instead of running a program.
    #[arg(long, conflicts_with = "program")]
    env: bool,
    /// The program and its arguments.
    #[arg(required_unless_present = "env", trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Run {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let (board, door) = door(self.board.as_deref())?;
        let library = library_dir(&[LIBRARY])?.join(LIBRARY);
        // LD_PRELOAD has no escape for its separators (ld.so(8)).
        if library.to_str().is_none_or(|path| path.contains([' ', ':'])) {
            let path = library.display();
            return Err(format!(
                "{PRELOAD} cannot contain {path}: move the library to a path without ' ' and ':'"
            ));
        }
        let Some((program, arguments)) = self.program.split_first() else {
            let name_servers = name_servers(&board);
            let (library, door) = (quoted(library.as_os_str())?, quoted(door.as_os_str())?);
            let mut text = format!(
                "export {PRELOAD}={library}\"${{{PRELOAD}:+:${PRELOAD}}}\"\nexport {SOCKETS_VARIABLE}={door}\n"
            );
            if let Some(servers) = name_servers {
                text += &format!("export {NAME_SERVERS_VARIABLE}='{servers}'\n");
            }
            if self.allow_host_network {
                text += &format!("export {UNSERVED_VARIABLE}=host\n");
            } else {
                note!("{SHELL_IS_UNCHECKED}");
            }
            return crate::output::print(&text).map(|()| ExitCode::SUCCESS);
        };
        let preloaded = var_os(PRELOAD).unwrap_or_default();
        let has_library = preloaded
            .as_bytes()
            .split(|byte| b" :".contains(byte))
            .any(|path| path == library.as_os_str().as_bytes());
        if has_library && var_os(SOCKETS_VARIABLE).is_some_and(|path| path == door) {
            // The library does not see the sockets that a program opens through io_uring.
            if !self.allow_host_network
                && let Err(error) = kiban_sandbox::refuse_io_uring()
            {
                return Err(format!(
                    "cannot refuse io_uring, which would use the host's network ({error}): \
                     --allow-host-network starts the program all the same"
                ));
            }
            let mut command = Command::new(program);
            command.args(arguments);
            return Ok(become_program(command));
        }
        let own = current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
        let mut command = Command::new(own);
        command
            .args(args_os().skip(1))
            .env(PRELOAD, prepend(library.as_os_str(), var_os(PRELOAD)))
            .env(SOCKETS_VARIABLE, door);
        if let Some(servers) = name_servers(&board) {
            command.env(NAME_SERVERS_VARIABLE, servers);
        }
        if self.allow_host_network {
            command.env(UNSERVED_VARIABLE, "host");
        }
        Ok(become_program(command))
    }
}

/// Returns the name servers that the board has leased, unless the user has chosen others.
fn name_servers(board: &str) -> Option<String> {
    if var_os(NAME_SERVERS_VARIABLE).is_some() {
        return None;
    }
    // A board that does not answer is no reason not to start the program, which may need no names.
    let status = ControlClient::call(Some(board)).and_then(|mut client| query_status(&mut client)).ok()?;
    let leases = status.ports.iter().filter_map(|port| port.dhcp.as_ref()?.lease.as_ref());
    // The board may be another user's, so its answer may contain anything.
    let servers: Vec<String> = leases
        .flat_map(|lease| &lease.name_servers)
        .filter_map(|server| Some(server.parse::<Ipv4Addr>().ok()?.to_string()))
        .take(NAME_SERVERS_MAX)
        .collect();
    (!servers.is_empty()).then(|| servers.join(" "))
}

/// Returns the name of a board and the path of its socket for unmodified programs; without a name, those of
/// the only board that has such a socket.
fn door(board: Option<&str>) -> Result<(String, PathBuf), String> {
    let why = || {
        unavailable_reason(
            board,
            "sockets",
            "the board's socket for programs is closed: the board may be stopping",
        )
    };
    let name = match board {
        Some(board) => board.to_owned(),
        None => match &boards("sockets")[..] {
            [one] => one.clone(),
            [] => return Err(why()),
            many => {
                return Err(format!(
                    "several boards offer sockets, choose one with --board: {}",
                    many.join(", ")
                ));
            }
        },
    };
    for folder in folders_of_boards() {
        let door = run_socket_path(&folder, &name);
        if has_listener(&door).map_err(|error| format!("board {name}: {error}"))? {
            return Ok((name, door));
        }
    }
    Err(why())
}
