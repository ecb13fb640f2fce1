//! The driver of a board in real time: links at its ports, programs at its host edge, the clock.
//!
//! ```text
//! links ─ receive ─► Board::handle ─► Board::poll ─┬─ completions ─► programs
//!   ▲                                              │
//!   └───────────────── send ◄──────────────────────┘
//! ```
//!
//! Turn      [`Driver::turn`] takes a burst from every link, lets the board work, tells the programs, sends what is to leave. One
//!           thread drives; a burst is bounded, so that every link has its turn.
//! Cells     leave when their slots come: the driver asks for those of the past and sleeps until the next frame has left, or
//!           `CELLS_LATE_MAX` where a frame takes longer: whoever polices a shaped circuit sees it shaped.
//! Back      what a link does not take holds its port ([`Board::hold`]), and the port's queue holds back who sends.
//! Outward   programs that have files of the system, too ([`Outward`]), are asked when one of those is ready.
//! Sleep     on all links at once, watched only meanwhile, by any policy of waiting; [`Driver::waker`] wakes it from other threads.
//! Fault     a link that is gone is taken off its port and told ([`Driver::gone`]); the board goes on.

use crate::clock::Clock;
use crate::doors::Doors;
pub use crate::doors::Waker;
use crate::link::{AnyLink, Lent, Link, LinkCounters};
use crate::outward::Outward;
use crate::wait::Waiting;
use kiban_board::{Board, Host, Input, Output, Program};
use kiban_ground::{Instant, Pdu, Wait};
use kiban_stack::atm::TimedCell;
use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// With so many bytes for a link it is asked to take them: if it does not, the rest waits at the port, where it holds back who
/// sends, not here.
const OUTWARD_BYTES: usize = 256 << 10;
/// How late a cell may leave whose frame is long under way: a frame of a slow circuit leaves piece by piece.
const CELLS_LATE_MAX: Duration = Duration::from_millis(1);

/// What is at a port.
enum Place {
    Empty,
    Packets(Joint<Pdu>),
    Cells(Joint<TimedCell>),
}

/// A link, and what is between it and the port.
struct Joint<U> {
    link: Box<dyn Link<U>>,
    inward: VecDeque<U>,
    outward: VecDeque<U>,
    /// Their bytes, since something was last given to the link.
    outward_bytes: usize,
    /// Whether the link did not take all it was given.
    held: bool,
    /// Cells that the link did not take.
    lost: u64,
}

impl<U> Joint<U> {
    fn new(link: Box<dyn Link<U>>) -> Joint<U> {
        Joint {
            link,
            inward: VecDeque::new(),
            outward: VecDeque::new(),
            outward_bytes: 0,
            held: false,
            lost: 0,
        }
    }
}

/// A program at the host edge.
enum Worker {
    Pure(Box<dyn Program>),
    Outward(Box<dyn Outward>),
}

impl Worker {
    fn program(&self) -> &dyn Program {
        match self {
            Worker::Pure(program) => &**program,
            Worker::Outward(program) => &**program,
        }
    }

    fn program_mut(&mut self) -> &mut dyn Program {
        match self {
            Worker::Pure(program) => &mut **program,
            Worker::Outward(program) => &mut **program,
        }
    }
}

/// A board in real time.
pub struct Driver {
    board: Board,
    places: Vec<Place>,
    programs: Vec<Worker>,
    /// Programs that have not been started: the last so many.
    fresh: usize,
    clock: Clock,
    deadline: Instant,
    train: Vec<TimedCell>,
    gone: Vec<(usize, io::Error)>,
    doors: Arc<Doors>,
}

impl Driver {
    /// Drives a board; its ports have no links yet. Moments are those of `clock`.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new(board: Board, clock: Clock) -> io::Result<Driver> {
        Ok(Driver {
            board,
            places: Vec::new(),
            programs: Vec::new(),
            fresh: 0,
            clock,
            deadline: Instant::ZERO,
            train: Vec::new(),
            gone: Vec::new(),
            doors: Doors::new()?,
        })
    }

    /// The board.
    pub fn board(&mut self) -> &mut Board {
        &mut self.board
    }

    /// The board, to look at.
    pub fn view(&self) -> &Board {
        &self.board
    }

    /// Wakes it.
    pub fn waker(&self) -> Waker {
        Doors::waker(&self.doors)
    }

    /// Joins a link to a port of its kind: packets to an IP port, frames to an Ethernet port, cells to an ATM port.
    ///
    /// # Errors
    /// The system cannot watch the link's file (Linux can watch any).
    pub fn join(&mut self, port: usize, link: AnyLink) -> io::Result<()> {
        match link {
            AnyLink::Packets(link) | AnyLink::Frames(link) => self.join_packets(port, link),
            AnyLink::Cells(link) => self.join_cells(port, link),
        }
    }

    /// Joins a link of packets, or of frames, to an IP or Ethernet port.
    ///
    /// # Errors
    /// The system cannot watch the link's file (Linux can watch any).
    pub fn join_packets(&mut self, port: usize, link: Box<dyn Link<Pdu>>) -> io::Result<()> {
        self.put(port, Place::Packets(Joint::new(link)));
        Ok(())
    }

    /// Joins a link of cells to an ATM port.
    ///
    /// # Errors
    /// The system cannot watch the link's file (Linux can watch any).
    pub fn join_cells(&mut self, port: usize, link: Box<dyn Link<TimedCell>>) -> io::Result<()> {
        self.put(port, Place::Cells(Joint::new(link)));
        Ok(())
    }

    fn put(&mut self, port: usize, place: Place) {
        if self.places.len() <= port {
            self.places.resize_with(port + 1, || Place::Empty);
        }
        let file = match &place {
            Place::Empty => None,
            Place::Packets(joint) => joint.link.file(),
            Place::Cells(joint) => joint.link.file(),
        };
        self.doors.watch_link(port, file);
        self.places[port] = place;
        self.board.hold(port, false);
        // The link is up: the port looks for its addresses and announces itself.
        self.deadline = Instant::ZERO;
    }

    /// Takes the link off a port.
    pub fn part(&mut self, port: usize) {
        if let Some(place) = self.places.get_mut(port) {
            self.doors.forget(port);
            *place = Place::Empty;
        }
    }

    /// A program at the host edge; it is started in the next turn.
    pub fn add(&mut self, program: Box<dyn Program>) -> usize {
        self.put_program(Worker::Pure(program))
    }

    /// A program that has files of the system, too; it is started in the next turn.
    ///
    /// # Errors
    /// The system cannot watch its file (Linux can watch any).
    pub fn add_outward(&mut self, program: Box<dyn Outward>) -> io::Result<usize> {
        self.doors.watch_program(program.file(), program.doorbell());
        Ok(self.put_program(Worker::Outward(program)))
    }

    fn put_program(&mut self, program: Worker) -> usize {
        self.programs.push(program);
        self.fresh += 1;
        self.deadline = Instant::ZERO;
        self.programs.len() - 1
    }

    /// A program, to ask it.
    pub fn program<P: Program>(&self, number: usize) -> Option<&P> {
        self.programs.get(number)?.program().as_any().downcast_ref()
    }

    /// Lets a program work with the board now; nothing if it is another's number.
    pub fn with_program<P: Program, T>(
        &mut self,
        number: usize,
        work: impl FnOnce(&mut P, &mut Host<'_>, Instant) -> T,
    ) -> Option<T> {
        let now = self.clock.now();
        self.start(now);
        let program: &mut dyn Any = self.programs.get_mut(number)?.program_mut();
        let program = program.downcast_mut::<P>()?;
        self.board.handle(Input::Timeout, now);
        let result = work(program, &mut self.board.host(), now);
        self.drain(now);
        Some(result)
    }

    /// Whether links have gone.
    pub fn has_lost(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Links that have gone since it was last asked: their ports, and why.
    pub fn gone(&mut self) -> Vec<(usize, io::Error)> {
        std::mem::take(&mut self.gone)
    }

    /// What has happened on the link of a port; cells for which it had no room are refused as well.
    pub fn link_counters(&self, port: usize) -> Option<LinkCounters> {
        match self.places.get(port)? {
            Place::Empty => None,
            Place::Packets(joint) => Some(joint.link.counters()),
            Place::Cells(joint) => {
                let counters = joint.link.counters();
                Some(LinkCounters { refused: counters.refused + joint.lost, ..counters })
            }
        }
    }

    /// One turn. Whether there was anything to do.
    pub fn turn(&mut self) -> bool {
        let now = self.clock.now();
        let mut worked = self.doors.take_woken();
        // Before anything arrives: whoever listens does so from the beginning.
        self.start(now);
        for port in 0..self.places.len() {
            worked |= self.receive(port, now);
        }
        worked |= self.look_outward(now);
        if now >= self.deadline.min(self.programs_deadline()) {
            self.board.handle(Input::Timeout, now);
            for program in &mut self.programs {
                if program.program().deadline() <= now {
                    program.program_mut().on_timeout(&mut self.board.host(), now);
                }
            }
            self.drain(now);
            worked = true;
        }
        for port in 0..self.places.len() {
            worked |= self.send_cells(port, now);
        }
        worked
    }

    /// What has arrived at a port goes in, and what that makes leave goes out.
    fn receive(&mut self, port: usize, now: Instant) -> bool {
        let Driver { board, places, .. } = self;
        let lent = &mut Lent { now, memory: board.memory_mut() };
        let failed = match &mut places[port] {
            Place::Empty => return false,
            Place::Packets(Joint { link, inward, outward, held, .. }) => {
                let mut result = link.receive(lent, inward);
                let mut freed = false;
                if *held && result.is_ok() {
                    result = link.send(outward, lent);
                    freed = outward.is_empty();
                    *held = !freed;
                }
                if freed {
                    self.doors.watch_room(port, false);
                    board.hold(port, false);
                    board.handle(Input::Room, now);
                }
                if result.is_ok() && !freed && inward.is_empty() {
                    return false;
                }
                board.handle(Input::Packets { port, packets: inward }, now);
                result
            }
            Place::Cells(Joint { link, inward, .. }) => {
                let result = link.receive(lent, inward);
                if result.is_ok() && inward.is_empty() {
                    return false;
                }
                board.handle(Input::Cells { port, cells: inward.make_contiguous() }, now);
                inward.clear();
                result
            }
        };
        if let Err(error) = failed {
            self.lose(port, error);
        }
        self.drain(now);
        true
    }

    /// Programs with files of the system look at them.
    fn look_outward(&mut self, now: Instant) -> bool {
        let mut worked = false;
        for worker in &mut self.programs {
            if let Worker::Outward(program) = worker
                && program.is_ready()
            {
                self.board.handle(Input::Timeout, now);
                program.on_file(&mut self.board.host(), now);
                worked = true;
            }
        }
        if worked {
            self.drain(now);
        }
        worked
    }

    fn programs_deadline(&self) -> Instant {
        self.programs.iter().map(|worker| worker.program().deadline()).min().unwrap_or(Instant::NEVER)
    }

    fn lose(&mut self, port: usize, error: io::Error) {
        self.gone.push((port, error));
        self.part(port);
    }

    /// The board works until it is idle; programs are told; what leaves is sent.
    fn drain(&mut self, now: Instant) {
        loop {
            match self.board.poll() {
                Output::Completions => self.tell(now),
                Output::Transmit { port, pdu } => match self.places.get_mut(port) {
                    Some(Place::Packets(joint)) => {
                        joint.outward_bytes += pdu.len();
                        joint.outward.push_back(pdu);
                        if joint.outward_bytes >= OUTWARD_BYTES {
                            self.send(now);
                        }
                    }
                    // No link is there: as if the line were cut.
                    _ => drop(pdu),
                },
                Output::Idle { deadline } => {
                    self.deadline = deadline;
                    return self.send(now);
                }
            }
        }
    }

    fn start(&mut self, now: Instant) {
        let first = self.programs.len() - std::mem::take(&mut self.fresh);
        for program in &mut self.programs[first..] {
            program.program_mut().start(&mut self.board.host(), now);
        }
    }

    fn tell(&mut self, now: Instant) {
        let mut host = self.board.host();
        while let Some(completion) = host.completion() {
            for program in &mut self.programs {
                program.program_mut().on_completion(completion, &mut host, now);
            }
        }
    }

    /// What waits for links of packets leaves.
    fn send(&mut self, now: Instant) {
        for port in 0..self.places.len() {
            let Driver { board, places, doors, .. } = self;
            let Place::Packets(joint) = &mut places[port] else { continue };
            let Joint { link, outward, outward_bytes, held, .. } = joint;
            *outward_bytes = 0;
            if outward.is_empty() || *held {
                continue;
            }
            let lent = &mut Lent { now, memory: board.memory_mut() };
            match link.send(outward, lent) {
                Ok(()) if outward.is_empty() => {}
                Ok(()) => {
                    *held = true;
                    board.hold(port, true);
                    doors.watch_room(port, true);
                }
                Err(error) => self.lose(port, error),
            }
        }
    }

    /// Cells whose slots have come leave.
    fn send_cells(&mut self, port: usize, now: Instant) -> bool {
        let Driver { board, places, train, .. } = self;
        let Place::Cells(Joint { link, outward, lost, .. }) = &mut places[port] else { return false };
        board.cells(port, now, train);
        if train.is_empty() && outward.is_empty() {
            return false;
        }
        outward.extend(train.drain(..));
        let lent = &mut Lent { now, memory: board.memory_mut() };
        let sent = link.send(outward, lent);
        // A line does not wait: what the link cannot take is lost on it.
        *lost += outward.len() as u64;
        outward.clear();
        if let Err(error) = sent {
            self.lose(port, error);
        }
        if self.board.next_room(port) <= now {
            self.board.handle(Input::Room, now);
            self.drain(now);
        }
        true
    }

    /// When it has to look again, whatever happens.
    pub fn deadline(&self) -> Instant {
        let mut deadline = self.deadline.min(self.programs_deadline());
        for (port, place) in self.places.iter().enumerate() {
            deadline = deadline.min(match place {
                Place::Empty => Instant::NEVER,
                Place::Packets(joint) => joint.link.deadline(),
                Place::Cells(joint) => {
                    let line = self.board.next_cell_end(port).min(self.board.next_room(port));
                    let late = match line {
                        Instant::NEVER => Instant::NEVER,
                        _ => self.clock.now() + CELLS_LATE_MAX,
                    };
                    joint.link.deadline().min(line.min(late))
                }
            });
        }
        deadline
    }

    /// Works and waits until a deadline, or until `done` says so, which is asked after every turn.
    pub fn run(&mut self, waiting: &mut Waiting, until: Instant, mut done: impl FnMut(&mut Driver) -> bool) {
        let doors = self.doors.clone();
        loop {
            while self.turn() {
                if done(self) {
                    return;
                }
            }
            if done(self) || self.clock.now() >= until {
                return;
            }
            let deadline = self.deadline().min(until);
            // What has come may be under way for a while: then there is an earlier moment to look.
            let look = || (self.turn() || self.deadline() < deadline).then_some(());
            waiting.wait(&*doors, &*doors, deadline, look);
        }
    }

    /// A waiting place for it.
    pub fn waiting(&self, wait: Wait) -> Waiting {
        Waiting::new(wait, self.clock)
    }
}
