//! All kinds of link except packets over UDP. At one end is a board under faults; at the other end is a board
//! without faults, or this host's kernel.

use crate::board::{BYTES, Board, connect, echo, echoed, ports, served};
use crate::memory;
use crate::place::{Ended, Place, Running, noise, until};
use crate::serving::remember;
use crate::soak::{Seen, Soak, can_trace};
use kiban_fault::Plan;
use kiban_os::interface;
use std::process::Command;

/// The kinds of link between two boards, and whether the link carries AAL5 on a circuit (as cells or as
/// frames).
const KINDS: [(&str, bool); 6] = [
    ("udp-frames", false),
    ("udp-cells", true),
    ("tcp-packets", false),
    ("tcp-cells", true),
    ("atmtcp", true),
    ("pseudowire", true),
];

/// Links to this host's kernel: devices that the board creates, or one end of a veth pair.
const KERNEL: [&str; 4] = ["tap:kiban0", "tun:kiban0", "packet:lab0", "xdp:lab0"];

/// Returns the configurations of the ports at both ends of a link; the boards are at 10.9.0.`number`. On a
/// TCP link, the first one listens.
fn wires((kind, is_atm): (&str, bool), numbers: [u8; 2]) -> [String; 2] {
    let [a, b] = ports();
    let datagrams = [format!("127.0.0.1:{a}-127.0.0.1:{b}"), format!("127.0.0.1:{b}-127.0.0.1:{a}")];
    let ends = match kind {
        "udp-frames" | "udp-cells" => datagrams,
        "pseudowire" => datagrams.map(|ends| format!("{ends},label=1000")),
        _ => [format!("listen:127.0.0.1:{a}"), format!("127.0.0.1:{a}")],
    };
    let [first, second] = numbers;
    [(&ends[0], first, second), (&ends[1], second, first)].map(|(end, own, other)| {
        let circuit = match is_atm {
            true => format!("[[port.pvc]]\nvc = \"0.100\"\npeer = \"10.9.0.{other}\"\n"),
            false => String::new(),
        };
        format!("link = \"{kind}:{end}\"\naddress = \"10.9.0.{own}/24\"\n{circuit}")
    })
}

/// What fails in a run: the board's system calls, or one of its allocations.
struct Faults<'a> {
    plan: Plan,
    allocations: Option<&'a memory::Allocations>,
}

impl Faults<'_> {
    /// Starts a board at 10.9.0.2 with the given port configuration.
    fn start(&self, place: &Place, port: &str, at_once: bool) -> Board {
        let change = |command| match self.allocations {
            Some(allocations) => allocations.of(command),
            None => command,
        };
        Board::start_as(place, "lab", 2, port, self.plan, at_once, change)
    }

    /// Returns whether nothing fails, so that every client must be served.
    fn are_none(&self) -> bool {
        self.plan == Plan::Watch && self.allocations.is_none_or(memory::Allocations::all_succeed)
    }

    /// Checks that the board is ready, unless something fails.
    fn may_end(&self, board: &Board) -> Result<(), String> {
        match self.are_none() {
            true => Err(format!("the board does not start: {}", board.running.err())),
            false => Ok(()),
        }
    }
}

/// Runs a board under faults. The board must continue, or exit with a reason, and must reopen a lost link.
/// The number selects the kind of link.
fn board_under(faults: &Faults<'_>, number: u64, seen: &mut Seen) -> Result<(), String> {
    let kinds = KINDS.len() as u64;
    let (kind, rest) = (KINDS[(number % kinds) as usize], number / kinds);
    // Vary which end listens, and whether faults begin when the board starts.
    let (listens, at_once) = (rest.is_multiple_of(2), (rest / 2).is_multiple_of(3));
    let (place, other, sent) = (Place::new("link"), Place::new("link-far"), noise(BYTES));
    let [here, there] = match listens {
        true => wires(kind, [2, 3]),
        false => {
            let [there, here] = wires(kind, [3, 2]);
            [here, there]
        }
    };
    let (mut far, mut last) = (None, String::new());
    let mut starts_far = || {
        let mut board = Board::start_as(&other, "far", 3, &there, Plan::Watch, false, |command| command);
        let is_ready = board.is_ready();
        last = board.running.err();
        far = Some(board).filter(|_| is_ready);
        is_ready
    };
    // Start the listening end first.
    if !listens && !starts_far() {
        return Err(format!("the other board does not start: {last}"));
    }
    let mut near = faults.start(&place, &here, at_once);
    let is_ready = near.is_ready();
    if is_ready && listens {
        until(|| starts_far() || near.running.has_ended());
    }
    let outcome = match &far {
        Some(_) if is_ready => serves(
            &mut near,
            faults.are_none(),
            || Running::honest(connect(&other, "far"), &sent),
            |ended| echoed(ended, &sent, "a client"),
        ),
        None if !near.running.has_ended() => Err(format!("the other board does not start: {last}")),
        _ => faults.may_end(&near),
    };
    remember(&near.running, seen);
    let told = |near: &Board, far: &Option<Board>| {
        let far = far.as_ref().map_or(String::new(), |far| far.running.err());
        format!("  {}\n  board: {}\n  the other: {far}", kind.0, near.running.err())
    };
    outcome.map_err(|why: String| format!("{why}\n{}", told(&near, &far)))?;
    near.running.ended().judge("the board")?;
    match far.as_mut().is_some_and(|far| far.running.has_ended()) {
        true => Err(format!("the other board has ended\n{}", told(&near, &far))),
        false => Ok(()),
    }
}

/// Runs one client while the board is under faults, and another one after the faults. The second must be
/// served unless the board has exited. If nothing fails (`is_whole`), the first must be served as well.
fn serves(
    board: &mut Board,
    is_whole: bool,
    client: impl Fn() -> Running,
    check: impl Fn(&Ended) -> Result<(), String>,
) -> Result<(), String> {
    board.running.traced.arm();
    if let Some(ended) = client().ended_beside(&mut board.running) {
        check(&ended)?;
        if is_whole {
            served(&ended, "a client")?;
        }
    } else if is_whole {
        return Err("the board has ended".into());
    }
    board.running.traced.disarm();
    let mut last = Ok(());
    let is_served = until(|| {
        if board.running.has_ended() {
            return true;
        }
        // Reopening a lost link takes a while.
        last = match client().ended_beside(&mut board.running) {
            Some(ended) => served(&ended, "the next client"),
            None => Ok(()),
        };
        last.is_ok()
    });
    board.running.signal("-TERM");
    if is_served { Ok(()) } else { last }
}

/// Returns the configuration of a port whose link leads to this host's kernel, which has the address
/// 10.9.0.1.
fn kernel_port(link: &str) -> String {
    // An earlier run may have left a veth pair with the same addresses behind.
    let _ = ip("link del lab0");
    let host = match link.ends_with(":lab0") {
        true => {
            ip("link add lab0 type veth peer name lab1").expect("a veth pair: the namespace is ours");
            let address = "10.9.0.1".parse().expect("an address");
            interface::set_address("lab1", address, 24).expect("the interface was created");
            interface::set_up("lab0").expect("the interface was created");
            interface::set_up("lab1").expect("the interface was created");
            ""
        }
        false => "host_address = \"10.9.0.1/24\"\n",
    };
    format!("link = \"{link}\"\naddress = \"10.9.0.2/24\"\n{host}")
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Like `board_under`, but with this host's kernel at the other end.
fn kernel_under(faults: &Faults<'_>, number: u64, seen: &mut Seen) -> Result<(), String> {
    let place = Place::new("kernel");
    let kinds = KERNEL.len() as u64;
    let (link, rest) = (KERNEL[(number % kinds) as usize], number / kinds);
    let mut board = faults.start(&place, &kernel_port(link), rest.is_multiple_of(3));
    let outcome = match board.is_ready() {
        true => serves(
            &mut board,
            faults.are_none(),
            || Running::honest(echo(), &[]),
            |ended| ended.judge("a client"),
        ),
        false => faults.may_end(&board),
    };
    remember(&board.running, seen);
    outcome.map_err(|why| format!("{why}\n  {link}\n  board: {}", board.running.err()))?;
    board.running.ended().judge("the board")
}

/// Returns whether this thread, and the threads and processes that it starts, have their own network
/// namespace; prints the reason if not.
fn has_namespace() -> bool {
    let entered = interface::enter_new_namespace();
    if let Err(error) = &entered {
        println!("SKIPPED: {error}");
    }
    entered.is_ok()
}

#[test]
fn a_board_on_any_link_whose_calls_fail_serves_whoever_comes_next() {
    if can_trace() {
        Soak::of_kinds("links", KINDS.len())
            .run(|plan, number, seen| board_under(&Faults { plan, allocations: None }, number, seen));
    }
}

#[test]
fn a_board_on_a_link_to_the_kernel_whose_calls_fail_serves_whoever_comes_next() {
    if can_trace() && has_namespace() {
        Soak::of_kinds("kernel links", KERNEL.len())
            .run(|plan, number, seen| kernel_under(&Faults { plan, allocations: None }, number, seen));
    }
}

#[test]
fn a_board_on_any_link_whose_nth_allocation_fails_leaves_its_clients_whole() {
    if !can_trace() {
        return;
    }
    for (number, (name, _)) in KINDS.iter().enumerate() {
        memory::each_in_parallel(name, KINDS.len(), |allocations| {
            let faults = Faults { plan: Plan::Watch, allocations: Some(allocations) };
            board_under(&faults, number as u64, &mut Seen::default())
        });
    }
}

#[test]
fn a_board_on_a_link_to_the_kernel_whose_nth_allocation_fails_leaves_its_clients_whole() {
    if !can_trace() || !has_namespace() {
        return;
    }
    for (number, link) in KERNEL.iter().enumerate() {
        // Run one at a time, because they use the same interfaces.
        memory::each_kind(link, KERNEL.len(), |allocations| {
            let faults = Faults { plan: Plan::Watch, allocations: Some(allocations) };
            kernel_under(&faults, number as u64, &mut Seen::default())
        });
    }
}
