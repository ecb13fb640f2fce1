//! A board and the programs attached to it, with faults in the board, in `kiban connect`, and in `kiban run`.

use crate::memory;
use crate::place::{Ended, Place, Running, compile, noise, until};
use crate::preload;
use crate::serving::remember;
use crate::soak::{Seen, Soak, can_trace};
use kiban_fault::Plan;
use serde_json::Value;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) const BYTES: usize = 100_000;

/// The directory that contains `libkiban_sockets.so` and an ordinary program that does not use kiban's API.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = preload::built("faults-sockets", "board");
    compile("tests/faults/echo.c", &folder.join("echo"), &[]);
    folder
});

/// Returns two ports that are free for both UDP and TCP. The ports are below the ephemeral range
/// (ip_local_port_range), so that the kernel does not assign them to another program.
pub(crate) fn ports() -> [u16; 2] {
    static STEPS: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() * 64;
    let mut ports =
        std::iter::repeat_with(|| 12_000 + ((first + STEPS.fetch_add(1, Ordering::Relaxed)) % 20_000) as u16);
    let is_free = |port: &u16| {
        UdpSocket::bind(("127.0.0.1", *port)).is_ok() && TcpListener::bind(("127.0.0.1", *port)).is_ok()
    };
    [(); 2].map(|()| ports.find(is_free).expect("a port is free"))
}

/// Returns the configuration lines for a port at 10.9.0.`number`. Its link carries packets over UDP between
/// two UDP ports on this host.
fn wire(number: u8, ports: [u16; 2]) -> String {
    format!(
        "link = \"udp-packets:127.0.0.1:{}-127.0.0.1:{}\"\naddress = \"10.9.0.{number}/24\"\n",
        ports[0], ports[1]
    )
}

pub(crate) struct Board {
    pub(crate) running: Running,
    notify: UnixDatagram,
}

impl Board {
    /// Starts a board at 10.9.0.`number`, with a link to the board at the other UDP port.
    fn start(place: &Place, name: &str, number: u8, ports: [u16; 2], plan: Plan, at_once: bool) -> Board {
        Board::start_as(place, name, number, &wire(number, ports), plan, at_once, |command| command)
    }

    /// Starts a board at 10.9.0.`number` with the given port configuration; `change` can modify the board's
    /// command.
    pub(crate) fn start_as(
        place: &Place,
        name: &str,
        number: u8,
        port: &str,
        plan: Plan,
        at_once: bool,
        change: impl FnOnce(Command) -> Command,
    ) -> Board {
        let config = format!(
            "name = \"{name}\"\ndrain = \"1s\"\n[memory]\ntransmit = \"8MiB\"\nreceive = \"8MiB\"\npdus = 4096\n\
             [[service]]\nkind = \"echo\"\nlisten = \"10.9.0.{number}:7\"\n\
             [[service]]\nkind = \"attach\"\n[[service]]\nkind = \"sockets\"\n\
             [[port]]\nname = \"wire\"\n{port}"
        );
        let file = place.write(&format!("{name}.toml"), config);
        let path = place.0.join(format!("{name}.notify"));
        let _ = std::fs::remove_file(&path);
        let notify = UnixDatagram::bind(&path).expect("a socket");
        notify.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
        let mut command = place.kiban(&["up", &file.display().to_string()]);
        command.env("NOTIFY_SOCKET", &path);
        Board { running: Running::start(change(command), plan, at_once, &[]), notify }
    }

    /// Waits until the board is ready; returns false if it exited before that.
    pub(crate) fn is_ready(&mut self) -> bool {
        let mut bytes = [0; 64];
        until(|| {
            let heard = self.notify.recv(&mut bytes).is_ok_and(|count| &bytes[..count] == b"READY=1");
            heard || self.running.has_ended()
        });
        !self.running.has_ended()
    }

    /// Returns whether sessions, memory and descriptors return to the values they had before the first
    /// client.
    fn comes_to_rest(&self, place: &Place, name: &str, before: (&Value, usize)) -> Result<(), String> {
        let mut last = String::new();
        let is_clean = until(|| {
            let Some(status) = status(place, name) else { return false };
            let descriptors = self.running.descriptors();
            let is_clean = rests(&status) == rests(before.0) && descriptors <= before.1;
            last = format!(
                "{} and {descriptors} descriptors\n  {}\n  {}",
                rests(&status),
                self.running.listed(),
                self.running.err()
            );
            is_clean
        });
        match is_clean {
            true => Ok(()),
            false => Err(format!("a leak: {} and {} descriptors became {last}", rests(before.0), before.1)),
        }
    }
}

fn status(place: &Place, name: &str) -> Option<Value> {
    let output = place.kiban(&["status", name, "--json"]).output().expect("it was built");
    serde_json::from_slice(&output.stdout).ok()
}

/// Returns those status fields that must be the same whenever there are no clients.
fn rests(status: &Value) -> String {
    let services = status["services"].as_array().into_iter().flatten();
    let sessions: Vec<_> = services.map(|service| service["sessions"].as_u64()).collect();
    let memory = &status["memory"];
    format!(
        "sessions {sessions:?}, transmit {}, PDUs {}",
        memory["transmit_bytes"]["used"], memory["pdus"]["used"]
    )
}

pub(crate) fn connect(place: &Place, board: &str) -> Command {
    place.kiban(&["connect", "10.9.0.2:7", "--board", board])
}

/// Returns the command for a client that connects to the board at 10.9.0.2 through this host's kernel.
pub(crate) fn echo() -> Command {
    let mut command = Command::new(LIBRARY.join("echo"));
    command.args(["10.9.0.2", "7", &BYTES.to_string()]);
    command
}

fn preloaded(place: &Place) -> Command {
    let mut command = place.kiban(&["run", "--board", "lab", "--"]);
    command.arg(echo().get_program()).args(echo().get_args()).env("KIBAN_VERBS_LIB", &*LIBRARY);
    command
}

/// Checks the echoed data: a client that exits successfully must have received all of it; any other client
/// must have received a prefix.
pub(crate) fn echoed(ended: &Ended, sent: &[u8], who: &str) -> Result<(), String> {
    ended.judge(who)?;
    if !sent.starts_with(&ended.out) || (ended.is_well() && ended.out != sent) {
        return Err(format!(
            "{who} has {} of {} bytes, {:?}: {}",
            ended.out.len(),
            sent.len(),
            ended.end,
            ended.err
        ));
    }
    Ok(())
}

pub(crate) fn served(ended: &Ended, who: &str) -> Result<(), String> {
    match ended.is_well() {
        true => Ok(()),
        false => Err(format!("{who} is not served: {:?}: {}", ended.end, ended.err)),
    }
}

/// Checks that one client of each kind is served without faults.
fn serves(place: &Place, sent: &[u8]) -> Result<(), String> {
    let ended = Running::honest(connect(place, "lab"), sent).ended();
    served(&ended, "an attached client")?;
    echoed(&ended, sent, "an attached client")?;
    served(&Running::honest(preloaded(place), &[]).ended(), "a preloaded client")
}

/// Runs a board under a fault plan, which begins either when the board starts or when it is ready.
fn board_under(
    plan: Plan,
    at_once: bool,
    far: &Place,
    ports: [u16; 2],
    seen: &mut Seen,
) -> Result<(), String> {
    let place = Place::new("board");
    let sent = noise(BYTES);
    let mut board = Board::start(&place, "lab", 2, ports, plan, at_once);
    let mut outcome = || -> Result<(), String> {
        if !board.is_ready() {
            return Ok(());
        }
        let before = match at_once {
            false => status(&place, "lab").map(|status| (status, board.running.descriptors())),
            true => None,
        };
        board.running.traced.arm();
        let ended = Running::honest(connect(&place, "lab"), &sent).ended();
        echoed(&ended, &sent, "an attached client")?;
        Running::honest(preloaded(&place), &[]).ended().judge("a preloaded client")?;
        if !board.running.has_ended() {
            let mut client = Running::honest(connect(far, "far"), &sent);
            if let Some(ended) = client.ended_beside(&mut board.running) {
                echoed(&ended, &sent, "a client of the other board")?;
            }
        }
        board.running.traced.disarm();
        if board.running.has_ended() {
            return Ok(());
        }
        serves(&place, &sent)?;
        served(&Running::honest(connect(far, "far"), &sent).ended(), "a client of the other board")?;
        if let Some((status, descriptors)) = &before {
            board.comes_to_rest(&place, "lab", (status, *descriptors))?;
        }
        board.running.signal("-TERM");
        Ok(())
    };
    let outcome = outcome();
    remember(&board.running, seen);
    outcome.map_err(|why: String| format!("{why}\n  board: {}", board.running.err()))?;
    let ended = board.running.ended();
    remember(&board.running, seen);
    ended.judge("the board")
}

fn boards(name: &'static str, at_once: bool) {
    if !can_trace() {
        return;
    }
    let [here, there] = ports();
    let other = Place::new("far");
    let mut far = Board::start(&other, "far", 3, [there, here], Plan::Watch, false);
    assert!(far.is_ready(), "{}", far.running.err());
    Soak::new(name).run(|plan, _, seen| board_under(plan, at_once, &other, [here, there], seen));
}

#[test]
fn a_board_whose_calls_fail_while_it_runs_serves_whoever_comes_next() {
    boards("board", false);
}

#[test]
fn a_board_whose_calls_fail_while_it_starts_runs_or_says_why_not() {
    boards("start", true);
}

fn clients(name: &'static str, command: impl Fn(&Place) -> Command, input: &[u8]) {
    if !can_trace() {
        return;
    }
    let (place, sent) = (Place::new("client"), noise(BYTES));
    let mut board = Board::start(&place, "lab", 2, ports(), Plan::Watch, false);
    assert!(board.is_ready(), "{}", board.running.err());
    serves(&place, &sent).expect("no fault was injected");
    let before = (status(&place, "lab").expect("it runs"), board.running.descriptors());
    Soak::new(name).run(|plan, seed, seen| {
        let mut client = Running::start(command(&place), plan, true, input);
        let ended = client.ended();
        remember(&client, seen);
        if input.is_empty() {
            ended.judge("the client")?
        } else {
            echoed(&ended, input, "the client")?
        }
        if plan == Plan::Watch {
            served(&ended, "the client")?;
        }
        if board.running.has_ended() {
            return Err(format!("the board has ended: {}", board.running.err()));
        }
        board.comes_to_rest(&place, "lab", (&before.0, before.1))?;
        // Do this only after every seventh run, because a board that becomes idle is already good evidence.
        if seed.is_multiple_of(7) { serves(&place, &sent) } else { Ok(()) }
    });
}

#[test]
fn an_attached_client_that_fails_or_dies_at_any_call_leaves_a_board_as_it_was() {
    clients("attached", |place| connect(place, "lab"), &noise(BYTES));
}

#[test]
fn a_preloaded_client_that_fails_or_dies_at_any_call_leaves_a_board_as_it_was() {
    clients("preloaded", preloaded, &[]);
}

/// Runs a client repeatedly, each time making another of its allocations fail. The board must be unaffected.
fn refused_clients(name: &str, command: impl Fn(&Place) -> Command + Sync, input: &[u8]) {
    if !can_trace() {
        return;
    }
    let (place, sent) = (Place::new("client"), noise(BYTES));
    let mut board = Board::start(&place, "lab", 2, ports(), Plan::Watch, false);
    assert!(board.is_ready(), "{}", board.running.err());
    serves(&place, &sent).expect("nothing was refused");
    let before = (status(&place, "lab").expect("it runs"), board.running.descriptors());
    memory::each(name, |allocations| {
        let ended = Running::honest(allocations.of(command(&place)), input).ended();
        if allocations.all_succeed() {
            served(&ended, "the client")?;
        }
        if input.is_empty() {
            ended.judge("the client")?
        } else {
            echoed(&ended, input, "the client")?
        }
        if board.running.has_ended() {
            return Err(format!("the board has ended: {}", board.running.err()));
        }
        board.comes_to_rest(&place, "lab", (&before.0, before.1))
    });
    serves(&place, &sent).expect("it was left as it was");
}

#[test]
fn an_attached_client_whose_nth_allocation_fails_leaves_a_board_as_it_was() {
    refused_clients("attached client", |place| connect(place, "lab"), &noise(BYTES));
}

#[test]
fn a_preloaded_client_whose_nth_allocation_fails_leaves_a_board_as_it_was() {
    refused_clients("preloaded client", preloaded, &[]);
}

#[test]
fn a_board_whose_nth_allocation_fails_leaves_its_clients_whole() {
    if !can_trace() {
        return;
    }
    let sent = noise(BYTES);
    memory::each_in_parallel("board", 1, |allocations| {
        let place = Place::new("board");
        let refuse = |command| allocations.of(command);
        let mut board = Board::start_as(&place, "lab", 2, &wire(2, ports()), Plan::Watch, false, refuse);
        if board.is_ready() {
            let ended = Running::honest(connect(&place, "lab"), &sent).ended();
            echoed(&ended, &sent, "the client")?;
            if allocations.all_succeed() {
                served(&ended, "the client")?;
            }
            board.running.signal("-TERM");
        }
        board.running.ended().judge("the board")?;
        // The socket files left behind by the old board do not prevent a new board from using its name.
        let mut next = Board::start(&place, "lab", 2, ports(), Plan::Watch, false);
        match next.is_ready() {
            true => Ok(()),
            false => Err(format!("the next board does not start: {}", next.running.err())),
        }
    });
}
