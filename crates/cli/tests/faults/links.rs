//! Links other than packets in UDP: a board under faults at one end; at the other end a board without faults,
//! or this host's kernel.

use crate::board::{BYTES, Board, connect, echo, echoed, ports, served};
use crate::place::{Ended, Place, Running, noise, until};
use crate::serving::remember;
use crate::soak::{Seen, Soak, can_trace};
use kiban_fault::Plan;

/// Kinds of link, and whether the link carries AAL5 (as cells or as frames) on a circuit.
const KINDS: [(&str, bool); 5] = [
    ("udp-frames", false),
    ("udp-cells", true),
    ("tcp-packets", false),
    ("tcp-cells", true),
    ("atmtcp", true),
];

/// Returns the configuration of the ports at both ends of a link; the boards are at 10.9.0.`number`. On a TCP
/// link, the first listens.
fn wires((kind, is_atm): (&str, bool), numbers: [u8; 2]) -> [String; 2] {
    let [a, b] = ports();
    let ends = match kind.starts_with("udp") {
        true => [format!("127.0.0.1:{a}-127.0.0.1:{b}"), format!("127.0.0.1:{b}-127.0.0.1:{a}")],
        false => [format!("listen:127.0.0.1:{a}"), format!("127.0.0.1:{a}")],
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

/// Runs a board under a fault plan: it must continue, or exit with a reason, and reopen a lost link.
fn board_under(plan: Plan, seed: u64, seen: &mut Seen) -> Result<(), String> {
    let kind = KINDS[seed as usize % KINDS.len()];
    // Vary which end listens, and whether faults begin at the board's start, so that every kind of link gets
    // each combination.
    let (listens, at_once) = ((seed / 5).is_multiple_of(2), (seed / 10).is_multiple_of(3));
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
    let mut near = Board::start_as(&place, "lab", 2, &here, plan, at_once, |command| command);
    let is_ready = near.is_ready();
    if is_ready && listens {
        until(|| starts_far() || near.running.has_ended());
    }
    let outcome = match &far {
        Some(_) if is_ready => serves(
            &mut near,
            || Running::honest(connect(&other, "far"), &sent),
            |ended| echoed(ended, &sent, "a client"),
        ),
        None if !near.running.has_ended() => Err(format!("the other board does not start: {last}")),
        _ => Ok(()),
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

/// Runs a client while the board is under faults, and another after the faults, which must be served unless
/// the board has exited.
fn serves(
    board: &mut Board,
    client: impl Fn() -> Running,
    check: impl Fn(&Ended) -> Result<(), String>,
) -> Result<(), String> {
    board.running.traced.arm();
    if let Some(ended) = client().ended_beside(&mut board.running) {
        check(&ended)?;
    }
    board.running.traced.disarm();
    let mut last = Ok(());
    let is_served = until(|| {
        if board.running.has_ended() {
            return true;
        }
        // A link that was lost takes a while to be opened again.
        last = match client().ended_beside(&mut board.running) {
            Some(ended) => served(&ended, "the next client"),
            None => Ok(()),
        };
        last.is_ok()
    });
    board.running.signal("-TERM");
    if is_served { Ok(()) } else { last }
}

/// Like `board_under`, on a TAP device with this host's kernel as the other end.
fn tap_under(plan: Plan, seed: u64, seen: &mut Seen) -> Result<(), String> {
    let place = Place::new("tap");
    let port = "link = \"tap:kiban0\"\naddress = \"10.9.0.2/24\"\nhost_address = \"10.9.0.1/24\"\n";
    let at_once = seed.is_multiple_of(3);
    let mut board = Board::start_as(&place, "lab", 2, port, plan, at_once, |command| command);
    let outcome = match board.is_ready() {
        true => serves(&mut board, || Running::honest(echo(), &[]), |ended| ended.judge("a client")),
        false => Ok(()),
    };
    remember(&board.running, seen);
    outcome.map_err(|why| format!("{why}\n  board: {}", board.running.err()))?;
    board.running.ended().judge("the board")
}

#[test]
fn a_board_on_any_link_whose_calls_fail_serves_whoever_comes_next() {
    if can_trace() {
        Soak::new("links").run(board_under);
    }
}

#[test]
fn a_board_on_a_tap_device_whose_calls_fail_serves_whoever_comes_next() {
    if !can_trace() {
        return;
    }
    // The namespace is that of this thread, and of the threads and processes that it starts.
    match kiban_os::interface::enter_new_namespace() {
        Ok(()) => Soak::new("tap").run(tap_under),
        Err(error) => println!("SKIPPED: {error}"),
    }
}
