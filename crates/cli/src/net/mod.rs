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
//!             then it becomes the command, or exits if the network is for another process. If ports are
//!             forwarded, a third one stays in the guest's network namespace, and creates sockets there for
//!             the board (`guest::serve`). The first process also follows this host's name servers
//!             (`names`). For a network in the background, a process before these
//!             (`launch`) returns once the network works.
//! Machines    the guest may also be a virtual machine. Then the board's link is a Unix socket, there is no
//!             guest's namespace, and the command runs in this host's.
//! Names       under the names of programs that container engines start, it has their options: `pasta` and
//!             `slirp4netns`. All become the same [`Options`].
//! End         when the command, or the other process, has ended, or the file of the namespace is removed,
//!             the board gets time to deliver what the guest has sent. The exit status is the command's.
//! Privileges  all processes drop them before the guest runs, except the one that becomes the command
//!             (docs/operations.md). What the first one keeps is in `needs`.
//! Signals     a terminal sends SIGINT and SIGQUIT to the command, too, which decides; SIGTERM is passed on.

mod arguments;
mod board;
mod guest;
mod names;
mod options;
mod pasta;
mod slirp4netns;

pub(crate) use arguments::Net;

use crate::nic::verbs::become_program;
use crate::output::note;
use clap::Parser;
use kiban_link::address::Transport;
use kiban_os::unix::{close_inherited_files, inherited_file, receive_file, remove_abandoned, send_file};
use kiban_sandbox::{Need, OnRefusal, Sandbox};
use options::{Options, RESOLVER, Target};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;
use rustix::io::{Errno, FdFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::{self, Read, Write, stdin};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use tokio::signal::unix::{SignalKind, signal};

/// Environment variable that gives a child process its role: `board`, `keeper` (the first process of a
/// network in the background), `sockets-NUMBER` (the one that creates sockets for the board, in the namespace
/// of the guest with that number), or for the guest the number of its socket.
const PART: &str = "KIBAN_NET_PART";

impl Net {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        run(&self.options()?)
    }
}

/// Runs the program whose name this one was started by, if it is one of those above.
pub(crate) fn run_by_name() -> Option<Result<ExitCode, String>> {
    let started_as = PathBuf::from(std::env::args_os().next()?);
    let options = match started_as.file_name()?.to_str()? {
        "pasta" => pasta::Pasta::parse().options(),
        "slirp4netns" => slirp4netns::Slirp4netns::parse().options(),
        _ => return None,
    };
    Some(options.and_then(|options| run(&options)))
}

fn run(options: &Options) -> Result<ExitCode, String> {
    let say = |error: io::Error| error.to_string();
    options.check_ports()?;
    match std::env::var(PART).as_deref() {
        Ok("board") => {
            let socket = detach().map_err(say)?;
            let device = match options.target {
                Target::Machine { .. } => None,
                _ => receive_file(&socket).map_err(say)?,
            };
            // Without a file that should arrive, the other processes have ended.
            let receive = |is_sent| match is_sent {
                true => receive_file(&socket).map(|file| file.map(Some)),
                false => Ok(Some(None)),
            };
            let names = receive(options.follows_resolver()).map_err(say)?;
            let namespace = receive(options.uses_namespace()).map_err(say)?;
            let (Some(names), Some(namespace)) = (names, namespace) else { return Ok(ExitCode::FAILURE) };
            board::run(options, device, (namespace, names), socket)
        }
        Ok("keeper") => {
            let ready = detach().map_err(say)?;
            start(options, Some(ready))
        }
        Ok(part) => match part.strip_prefix("sockets-").and_then(|guest| guest.parse().ok()) {
            Some(guest) => {
                let socket = detach().map_err(say)?;
                guest::serve(options, guest, socket).map(|()| ExitCode::SUCCESS)
            }
            None => become_guest(options, part),
        },
        Err(_) if options.background => launch(),
        Err(_) => {
            let ready = options.ready_fd.map(inherited_file).transpose();
            start(options, ready.map_err(|error| format!("--ready-fd: {error}"))?)
        }
    }
}

/// Separates this process from the one that started it. Returns its standard input, a socket.
fn detach() -> io::Result<OwnedFd> {
    // It must hold nothing that somebody waits for, such as a lock or the end of a pipe.
    close_inherited_files();
    // A signal from the command's terminal must not end its network.
    rustix::process::setsid()?;
    stdin().as_fd().try_clone_to_owned()
}

/// Starts the first process in the background, and waits until the network works. Prints what it says until
/// then.
fn launch() -> Result<ExitCode, String> {
    let say = |error: io::Error| error.to_string();
    let (mut ready, of_keeper) = UnixStream::pair().map_err(say)?;
    let mut keeper = part("keeper", |command| {
        command.stdin(OwnedFd::from(of_keeper)).stdout(Stdio::null()).stderr(Stdio::piped())
    })?;
    let errors = keeper.stderr.take();
    // The pipe is closed only when all processes have ended.
    let copy = move || errors.map(|mut errors| io::copy(&mut errors, &mut io::stderr()));
    let copying = std::thread::Builder::new().spawn(copy).map_err(say)?;
    if ready.read_exact(&mut [0]).is_ok() {
        return Ok(ExitCode::SUCCESS);
    }
    let status = keeper.wait().map_err(say)?;
    // Print all of the error.
    let _ = copying.join();
    Ok(if status.success() { ExitCode::FAILURE } else { code_of(status) })
}

/// The process in the guest's namespaces, or the one that becomes a virtual machine, whose socket has a
/// number.
fn become_guest(options: &Options, socket: &str) -> Result<ExitCode, String> {
    let say = |error: io::Error| error.to_string();
    let socket = socket.parse().map_err(|_| format!("{PART} is for kiban's own processes"))?;
    let mut socket = UnixStream::from(inherited_file(socket).map_err(say)?);
    if !matches!(options.target, Target::Machine { .. }) {
        let device = guest::create(options)?;
        send_file(&socket, device.as_fd()).map_err(say)?;
    }
    let (Target::Command(program, arguments) | Target::Machine { command: Some((program, arguments)), .. }) =
        &options.target
    else {
        return Ok(ExitCode::SUCCESS);
    };
    // If the board cannot start, it prints the error and ends.
    if socket.read_exact(&mut [0]).is_err() {
        return Ok(ExitCode::FAILURE);
    }
    let mut command = Command::new(program);
    command.args(arguments).env_remove(PART);
    Ok(become_program(command))
}

/// The first process: starts the others, and waits for them. A byte is written to `ready` once the network
/// works.
fn start(options: &Options, ready: Option<OwnedFd>) -> Result<ExitCode, String> {
    let say = |error: io::Error| error.to_string();
    let exit = options.exit_fd.map(inherited_file).transpose();
    let exit = exit.map_err(|error| format!("--exit-fd: {error}"))?;
    // If the process ends or the file is removed from here on, `End::wait` returns at once.
    let end = End::watch(&options.target)?;
    let (to_board, of_board) = UnixStream::pair().map_err(say)?;
    let (mut to_guest, of_guest) = UnixStream::pair().map_err(say)?;
    let mut board = part("board", |command| command.stdin(OwnedFd::from(of_board)).stdout(Stdio::null()))?;
    // The command gets this process's standard streams, so the socket has another number.
    rustix::io::fcntl_setfd(&of_guest, FdFlags::empty()).map_err(|error| say(error.into()))?;
    let mut guest = match &options.target {
        Target::Machine { command: None, .. } => None,
        _ => Some(part(&of_guest.as_raw_fd().to_string(), |command| command)?),
    };
    drop(of_guest);
    if let (End::OfCommand, Some(guest)) = (&end, &guest) {
        let command = open_process(guest.id()).map_err(say)?;
        std::thread::Builder::new().spawn(move || pass_on_signals(&command)).map_err(say)?;
    }
    let mut sockets = None;
    // A process that fails prints why, and its exit status is returned below.
    let mut connect = || -> io::Result<()> {
        if !matches!(options.target, Target::Machine { .. }) {
            let Some(device) = receive_file(&to_guest)? else {
                return Err(io::ErrorKind::NotConnected.into());
            };
            send_file(&to_board, device.as_fd())?;
        }
        if options.follows_resolver() {
            send_file(&to_board, names::follow()?.as_fd())?;
        }
        if let (true, Some(guest)) = (options.uses_namespace(), &guest) {
            let (mut of_board, of_sockets) = UnixStream::pair()?;
            let name = format!("sockets-{}", guest.id());
            let started =
                part(&name, |command| command.stdin(OwnedFd::from(of_sockets)).stdout(Stdio::null()));
            let started = started.map_err(|error| {
                note!("kiban: {error}");
                io::Error::other(error)
            })?;
            sockets = Some((open_process(started.id())?, started));
            // The command must not run before: it could trace this process, or leave the namespaces.
            of_board.read_exact(&mut [0])?;
            send_file(&to_board, of_board.as_fd())?;
        }
        // The board has started.
        (&to_board).read_exact(&mut [0])
    };
    let is_connected = connect().is_ok();
    if is_connected {
        if let Some(path) = &options.pid_file {
            let written = std::fs::write(path, format!("{}\n", std::process::id()));
            written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        Sandbox::enter(&needs(options, &end), OnRefusal::Error)
            .map_err(|error| format!("cannot drop privileges: {error}"))?;
        // Only a command waits for it, and it may have ended.
        let _ = to_guest.write_all(&[1]);
        let _ = ready.as_ref().map(|ready| rustix::io::write(ready, b"1"));
    }
    drop((to_guest, ready));
    let status = match &mut guest {
        Some(guest) => guest.wait().map_err(say)?,
        None => {
            if is_connected {
                note!("kiban: ready for a virtual machine; Ctrl-C ends its network");
                wait_for_signal(&to_board).map_err(|error| format!("cannot handle signals: {error}"))?;
            }
            ExitStatus::default()
        }
    };
    if is_connected && status.success() {
        end.wait(exit.as_ref()).map_err(say)?;
    }
    // The end of the socket tells the board to finish.
    drop(to_board);
    let ended = board.wait().map_err(say)?;
    if let Some((process, mut sockets)) = sockets {
        // It ends with the board, unless a program of the guest has stopped it.
        let _ = pidfd_send_signal(process, Signal::KILL);
        sockets.wait().map_err(say)?;
    }
    if is_connected && let Target::Machine { link, .. } = &options.target {
        remove_socket(link);
    }
    Ok(code_of(if status.success() { ended } else { status }))
}

/// Returns what the first process still does once the network works: it passes signals on, reads the list of
/// name servers, looks whether the file of the namespace exists, and removes the socket of a virtual machine.
fn needs(options: &Options, end: &End) -> Vec<Need> {
    let mut needs = vec![Need::signals()];
    if options.follows_resolver() {
        needs.extend(Need::read_again(Path::new(RESOLVER)));
        // The file may become a link to one that another program writes, such as NetworkManager.
        needs.push(Need::read(Path::new("/run")));
    }
    if let End::OfFile(_, path) = end {
        needs.extend(Need::read_again(path));
    }
    if let Target::Machine { link: Transport::Unix(_, path) | Transport::UnixDatagrams(path, _), .. } =
        &options.target
    {
        needs.push(Need::change(
            path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new(".")),
        ));
    }
    needs
}

/// The end of a guest.
enum End {
    /// The process in the guest's namespaces has become the command, or a signal ends the network.
    OfCommand,
    /// The file becomes readable when the process ends.
    OfProcess(OwnedFd),
    /// The file becomes readable when something in the directory is removed, perhaps the file at the path.
    OfFile(OwnedFd, PathBuf),
    /// The guest's end is not watched.
    Never,
}

impl End {
    fn watch(target: &Target) -> Result<End, String> {
        match target {
            Target::Command(..) | Target::Machine { .. } => Ok(End::OfCommand),
            Target::Process(number) => {
                let found = check_namespace(*number).and_then(|()| open_process(*number));
                found
                    .map(End::OfProcess)
                    .map_err(|error| format!("cannot use the network of process {number}: {error}"))
            }
            Target::Namespace { net, ends: true, .. } => {
                let watch = || -> io::Result<End> {
                    if let Some(process) = process_of(net) {
                        return open_process(process).map(End::OfProcess);
                    }
                    let events =
                        inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
                    let folder = net.parent().filter(|folder| !folder.as_os_str().is_empty());
                    inotify::add_watch(
                        &events,
                        folder.unwrap_or(Path::new(".")),
                        inotify::WatchFlags::DELETE | inotify::WatchFlags::MOVED_FROM,
                    )?;
                    std::fs::metadata(net)?;
                    Ok(End::OfFile(events, net.clone()))
                };
                watch().map_err(|error| format!("{}: {error}", net.display()))
            }
            Target::Namespace { ends: false, .. } => Ok(End::Never),
        }
    }

    /// Waits for the end of the guest, or until the other end of the file `exit` is closed.
    fn wait(&self, exit: Option<&OwnedFd>) -> io::Result<()> {
        loop {
            let guest = match self {
                End::OfCommand => return Ok(()),
                End::OfProcess(file) | End::OfFile(file, _) => Some(file),
                End::Never => None,
            };
            let files = guest.iter().map(|file| PollFd::new(*file, PollFlags::IN));
            let mut files: Vec<PollFd<'_>> =
                files.chain(exit.map(|exit| PollFd::new(exit, PollFlags::IN))).collect();
            match poll(&mut files, None) {
                Err(Errno::INTR) => continue,
                polled => polled?,
            };
            let is_ready = |at: usize| files.get(at).is_some_and(|file| !file.revents().is_empty());
            let has_ended = match self {
                End::OfFile(events, path) if is_ready(0) => {
                    // What was removed does not matter; if nothing can be read, poll waits.
                    let _ = rustix::io::read(events, &mut [0; 4096]);
                    !path.exists()
                }
                _ => is_ready(0),
            };
            if has_ended || is_ready(usize::from(guest.is_some())) {
                return Ok(());
            }
        }
    }
}

/// Starts this program again, under the same name and with the same arguments, for one of the parts.
fn part(name: &str, set_up: impl FnOnce(&mut Command) -> &mut Command) -> Result<Child, String> {
    let own =
        std::env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let mut command = Command::new(own);
    let mut arguments = std::env::args_os();
    command.arg0(arguments.next().unwrap_or_default());
    let command = set_up(command.args(arguments).env(PART, name));
    command.spawn().map_err(|error| format!("cannot start another process: {error}"))
}

/// Returns a process that is not confused with a later one of the same number.
fn open_process(number: u32) -> io::Result<OwnedFd> {
    let number = i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(rustix::io::Errno::SRCH)?;
    Ok(pidfd_open(number, PidfdFlags::empty())?)
}

/// Returns the process whose network namespace a path names, as those of Buildah do. inotify does not report
/// that the files of a process disappear.
fn process_of(net: &Path) -> Option<u32> {
    net.to_str()?.strip_prefix("/proc/")?.strip_suffix("/ns/net")?.parse().ok()
}

/// Checks that a process has a network namespace of its own, which this user may enter.
fn check_namespace(process: u32) -> io::Result<()> {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
    let advice = |kind, text: &str| Err(io::Error::new(kind, text));
    match of(&process.to_string()) {
        Ok(namespace) if namespace == of("self")? => advice(
            io::ErrorKind::InvalidInput,
            "it is in this host's network namespace; start it with unshare --user --map-root-user --net",
        ),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            advice(error.kind(), "only the user who created the namespace, and root, can do this")
        }
        // If there is no such process, opening it says so.
        _ => Ok(()),
    }
}

/// Removes the board's socket, which the sandbox does not let the board do.
fn remove_socket(link: &Transport) {
    let (Transport::Unix(_, path) | Transport::UnixDatagrams(path, _)) = link else { return };
    // The board has removed it if its sandbox is off, and another process may have the path now.
    let _ = remove_abandoned(path);
}

/// Waits for a signal that ends programs, or for the end of the board, which closes its socket.
fn wait_for_signal(board: &UnixStream) -> io::Result<()> {
    let board = board.try_clone()?;
    board.set_nonblocking(true)?;
    let runtime = kiban_tokio::runtime::build(tokio::runtime::Builder::new_current_thread().enable_all())?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let board = tokio::net::UnixStream::from_std(board)?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            ended = board.readable() => ended?,
        }
        Ok(())
    })
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
