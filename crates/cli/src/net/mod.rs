//! `kiban net`: a board as the network of a container or a program.
//!
//! ```text
//!   guest's namespaces                    this host's
//!   ┌──────────────────────┐   TAP with   ┌─────────────────────────┐
//!   │ COMMAND ── interface ├──────────────┤ board ── service `net` ─┼── sockets, by destination
//!   └──────────────────────┘ virtio-net   └─────────────────────────┘
//! ```
//!
//! Processes   the first one starts two others, each with a socket, and waits for them. One runs the board,
//!             in the namespaces in which kiban was started (`board`). The other enters the guest's
//!             namespaces, creates and configures the interface, and passes on the open device (`guest`);
//!             then it becomes the command, or exits if the network is for another process.
//! End         when the command, or the other process, has ended, the board gets time to deliver what the
//!             guest has sent. The exit status is the command's.
//! Signals     a terminal sends SIGINT and SIGQUIT to the command, too, which decides; SIGTERM is passed on.

mod arguments;
mod board;
mod guest;

pub(crate) use arguments::Net;

use crate::nic::verbs::become_program;
use crate::output::note;
use arguments::Target;
use kiban_os::unix::{close_inherited_files, inherited_file, receive_file, send_file};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, FdFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::{self, Read, Write, stdin};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use tokio::signal::unix::{SignalKind, signal};

/// Environment variable that gives a child process its role: `board`, or for the guest the number of its
/// socket.
const PART: &str = "KIBAN_NET_PART";

impl Net {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let say = |error: io::Error| error.to_string();
        match std::env::var(PART).as_deref() {
            Ok("board") => {
                // It must hold nothing that somebody waits for, such as a lock or the end of a pipe.
                close_inherited_files();
                // A signal from the command's terminal must not end its network.
                rustix::process::setsid().map_err(|error| say(error.into()))?;
                let options = self.options()?;
                let socket = stdin().as_fd().try_clone_to_owned().map_err(say)?;
                let Some(device) = receive_file(&socket).map_err(say)? else { return Ok(ExitCode::FAILURE) };
                board::run(&options, device, socket)
            }
            Ok(number) => self.become_guest(number),
            Err(_) => self.start(),
        }
    }

    /// The process in the guest's namespaces, whose socket has a number.
    fn become_guest(&self, socket: &str) -> Result<ExitCode, String> {
        let say = |error: io::Error| error.to_string();
        let socket = socket.parse().map_err(|_| format!("{PART} is for kiban's own processes"))?;
        let mut socket = UnixStream::from(inherited_file(socket).map_err(say)?);
        let options = self.options()?;
        let target = self.target()?;
        let device = match target {
            Target::Command(..) => guest::create(&options)?,
            Target::Process(process) => guest::join(process, &options)?,
        };
        send_file(&socket, device.as_fd()).map_err(say)?;
        drop(device);
        let Target::Command(program, arguments) = target else { return Ok(ExitCode::SUCCESS) };
        // If the board cannot start, it prints the error and ends.
        if socket.read_exact(&mut [0]).is_err() {
            return Ok(ExitCode::FAILURE);
        }
        let mut command = Command::new(program);
        command.args(arguments).env_remove(PART);
        Ok(become_program(command))
    }

    /// The first process: starts the others, and waits for them.
    fn start(&self) -> Result<ExitCode, String> {
        let say = |error: io::Error| error.to_string();
        // Check the options before anything starts.
        self.options()?;
        // From here on, the number cannot mean another process.
        let process = match self.target()? {
            Target::Command(..) => None,
            Target::Process(number) => {
                let found = open_process(number);
                Some(found.map_err(|error| format!("cannot use the network of process {number}: {error}"))?)
            }
        };
        let (to_board, of_board) = UnixStream::pair().map_err(say)?;
        let (mut to_guest, of_guest) = UnixStream::pair().map_err(say)?;
        let mut board =
            part("board", |command| command.stdin(OwnedFd::from(of_board)).stdout(Stdio::null()))?;
        // The command gets this process's standard streams, so the socket has another number.
        rustix::io::fcntl_setfd(&of_guest, FdFlags::empty()).map_err(|error| say(error.into()))?;
        let mut guest = part(&of_guest.as_raw_fd().to_string(), |command| command)?;
        drop(of_guest);
        if process.is_none() {
            let command = open_process(guest.id()).map_err(say)?;
            std::thread::Builder::new().spawn(move || pass_on_signals(&command)).map_err(say)?;
        }
        let mut connect = || -> io::Result<()> {
            let Some(device) = receive_file(&to_guest)? else { return Ok(()) };
            send_file(&to_board, device.as_fd())?;
            // The board has started.
            (&to_board).read_exact(&mut [0])?;
            to_guest.write_all(&[1])
        };
        // A process that fails prints why, and its exit status is returned below.
        let _ = connect();
        drop(to_guest);
        let status = guest.wait().map_err(say)?;
        if let Some(process) = process.filter(|_| status.success()) {
            let mut ended = [PollFd::new(&process, PollFlags::IN)];
            while poll(&mut ended, None) == Err(Errno::INTR) {}
        }
        // The end of the socket tells the board to finish.
        drop(to_board);
        let ended = board.wait().map_err(say)?;
        Ok(code_of(if status.success() { ended } else { status }))
    }
}

/// Starts this program again, with the same arguments, for one of the parts.
fn part(name: &str, set_up: impl FnOnce(&mut Command) -> &mut Command) -> Result<Child, String> {
    let own =
        std::env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let mut command = Command::new(own);
    let command = set_up(command.args(std::env::args_os().skip(1)).env(PART, name));
    command.spawn().map_err(|error| format!("cannot start another process: {error}"))
}

/// Returns a process that is not confused with a later one of the same number.
fn open_process(number: u32) -> io::Result<OwnedFd> {
    let number = i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(number, PidfdFlags::empty())?)
}

/// Keeps SIGINT and SIGQUIT from ending this process, and passes SIGTERM on to the command.
fn pass_on_signals(command: &OwnedFd) {
    let watch = async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut quit = signal(SignalKind::quit())?;
        let mut terminate = signal(SignalKind::terminate())?;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = quit.recv() => {}
                // The command may have ended just now.
                _ = terminate.recv() => drop(pidfd_send_signal(command, Signal::TERM)),
            }
        }
    };
    let runtime = kiban_tokio::runtime::build(tokio::runtime::Builder::new_current_thread().enable_all());
    let failed: io::Result<()> = runtime.and_then(|runtime| runtime.block_on(watch));
    if let Err(error) = failed {
        note!("kiban: cannot handle signals: {error}");
    }
}

/// Returns the exit status of a program as shells do: 128 and the number of the signal that killed it.
fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(code as u8)
}
