//! Drives a board in real time: connects it to links at its ports, programs at its host edge, and the clock.
//!
//! ```text
//! links ─ receive ─► Board::handle ─► Board::poll ─┬─ completions ─► programs
//!   ▲                                              │
//!   └───────────────── send ◄──────────────────────┘
//! ```
//!
//! Turn             [`Driver::turn`] takes a burst from every link, lets the board work, calls the programs,
//!                  and sends the output. One thread drives; bursts are bounded, so that every link gets its
//!                  turn.
//! Cells            cells are sent in their slots: the driver fetches the cells of past slots and sleeps
//!                  until the end of the next frame, but at most for `CELLS_LATE_MAX`, so that shaped
//!                  circuits conform at a policer.
//! Back-pressure    if a link does not take all units, its port is put on hold ([`Board::hold`]), and the
//!                  port's queue holds back the senders.
//! Files            programs that also use file descriptors of the operating system ([`FdProgram`]) are
//!                  called when one of those is ready.
//! Sleep            the driver sleeps on all links at once, and watches them only while it sleeps, whatever
//!                  its waiting policy. [`Driver::waker`] wakes it from other threads.
//! Shards           the driver of a shard also carries parcels between its board and the rings to the other
//!                  shards ([`ShardRings`]).
//! Errors           a link that is gone is detached from its port and reported ([`Driver::take_lost_links`]);
//!                  the board continues.

use crate::fd_program::FdProgram;
use crate::shards::{RETRY, ShardRings};
use crate::{AnyLink, Link, LinkContext, LinkCounters, TX_QUEUE_BYTES};
use kiban_atm::TimedCell;
use kiban_base::{Instant, Pdu, Wait};
use kiban_board::{Board, Host, Input, Output, Program};
use kiban_os::WaitSet;
pub use kiban_os::Waker;
use kiban_os::clock::Clock;
use kiban_os::wait::Waiting;
use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Maximum lateness of a cell in a long frame. A frame on a slow circuit is sent in pieces.
const CELLS_LATE_MAX: Duration = Duration::from_millis(1);

/// The link attached to a port.
enum PortLink {
    Empty,
    Packets(Attachment<Pdu>),
    Cells(Attachment<TimedCell>),
}

/// A link attachment: a link, and the queues between it and the port.
struct Attachment<U> {
    link: Box<dyn Link<U>>,
    rx_queue: VecDeque<U>,
    tx_queue: VecDeque<U>,
    /// Bytes queued since units were last passed to the link.
    tx_bytes: usize,
    /// Whether the link did not take all units passed to it.
    held: bool,
    /// Number of cells that the link did not take.
    lost: u64,
}

impl<U> Attachment<U> {
    fn new(link: Box<dyn Link<U>>) -> Attachment<U> {
        Attachment {
            link,
            rx_queue: VecDeque::new(),
            tx_queue: VecDeque::new(),
            tx_bytes: 0,
            held: false,
            lost: 0,
        }
    }
}

/// A program at the host edge.
enum ProgramEntry {
    Pure(Box<dyn Program>),
    Fd(Box<dyn FdProgram>),
}

impl ProgramEntry {
    fn program(&self) -> &dyn Program {
        match self {
            ProgramEntry::Pure(program) => &**program,
            ProgramEntry::Fd(program) => &**program,
        }
    }

    fn program_mut(&mut self) -> &mut dyn Program {
        match self {
            ProgramEntry::Pure(program) => &mut **program,
            ProgramEntry::Fd(program) => &mut **program,
        }
    }
}

/// Drives a board in real time.
pub struct Driver {
    board: Board,
    ports: Vec<PortLink>,
    programs: Vec<ProgramEntry>,
    /// Number of programs that have not been started yet; they are at the end of the list.
    fresh: usize,
    clock: Clock,
    deadline: Instant,
    train: Vec<TimedCell>,
    gone: Vec<(usize, io::Error)>,
    wait_set: Arc<WaitSet>,
    /// The rings to the other shards of the board, if it is divided.
    rings: Option<Box<ShardRings>>,
}

impl Driver {
    /// Returns a driver for a board whose ports have no links yet. `clock` supplies the time.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new(board: Board, clock: Clock) -> io::Result<Driver> {
        Ok(Driver::with(board, clock, WaitSet::new()?, None))
    }

    /// Returns a driver for one shard of a board.
    pub fn of_shard(board: Board, clock: Clock, rings: ShardRings) -> Driver {
        Driver::with(board, clock, rings.wait_set.clone(), Some(Box::new(rings)))
    }

    fn with(board: Board, clock: Clock, wait_set: Arc<WaitSet>, rings: Option<Box<ShardRings>>) -> Driver {
        Driver {
            board,
            ports: Vec::new(),
            programs: Vec::new(),
            fresh: 0,
            clock,
            deadline: Instant::ZERO,
            train: Vec::new(),
            gone: Vec::new(),
            wait_set,
            rings,
        }
    }

    /// Returns the board, for changes.
    pub fn board(&mut self) -> &mut Board {
        &mut self.board
    }

    /// Returns the board, for reading.
    pub fn view(&self) -> &Board {
        &self.board
    }

    /// Returns a handle that wakes the driver from another thread.
    pub fn waker(&self) -> Waker {
        WaitSet::waker(&self.wait_set)
    }

    /// Attaches a link to a port of its kind: packets to an IP port, frames to an Ethernet port, cells to an
    /// ATM port.
    pub fn attach(&mut self, port: usize, link: AnyLink) {
        match link {
            AnyLink::Packets(link) | AnyLink::Frames(link) => self.attach_packets(port, link),
            AnyLink::Cells(link) => self.attach_cells(port, link),
        }
    }

    /// Attaches a link of packets or of frames to an IP or Ethernet port.
    pub fn attach_packets(&mut self, port: usize, link: Box<dyn Link<Pdu>>) {
        self.put(port, PortLink::Packets(Attachment::new(link)));
    }

    /// Attaches a link of cells to an ATM port.
    pub fn attach_cells(&mut self, port: usize, link: Box<dyn Link<TimedCell>>) {
        self.put(port, PortLink::Cells(Attachment::new(link)));
    }

    fn put(&mut self, port: usize, link: PortLink) {
        if self.ports.len() <= port {
            self.ports.resize_with(port + 1, || PortLink::Empty);
        }
        let file = match &link {
            PortLink::Empty => None,
            PortLink::Packets(attachment) => attachment.link.file(),
            PortLink::Cells(attachment) => attachment.link.file(),
        };
        self.wait_set.watch_link(port, file);
        self.ports[port] = link;
        self.board.hold(port, false);
        // The link is up, so the board works at once: the port verifies its addresses and announces itself.
        self.deadline = Instant::ZERO;
    }

    /// Detaches the link from a port. A loss of this link that has not been taken yet is forgotten.
    pub fn detach(&mut self, port: usize) {
        self.gone.retain(|(lost, _)| *lost != port);
        if let Some(link) = self.ports.get_mut(port) {
            self.wait_set.forget(port);
            *link = PortLink::Empty;
        }
    }

    /// Adds a program at the host edge, which is started in the next turn. Returns its number.
    pub fn add(&mut self, program: Box<dyn Program>) -> usize {
        self.put_program(ProgramEntry::Pure(program))
    }

    /// Adds a program that also uses file descriptors of the operating system, which is started in the next
    /// turn. Returns its number.
    pub fn add_fd_program(&mut self, program: Box<dyn FdProgram>) -> usize {
        self.wait_set.watch_program(program.file(), program.doorbell());
        self.put_program(ProgramEntry::Fd(program))
    }

    fn put_program(&mut self, program: ProgramEntry) -> usize {
        self.programs.push(program);
        self.fresh += 1;
        self.deadline = Instant::ZERO;
        self.programs.len() - 1
    }

    /// Returns a program, if the number is one of this type.
    pub fn program<P: Program>(&self, number: usize) -> Option<&P> {
        self.programs.get(number)?.program().as_any().downcast_ref()
    }

    /// Runs a program with the board now; returns `None` if the number is not one of this type.
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
        let result = work(program, &mut self.board.host_of(number), now);
        self.drain(now);
        Some(result)
    }

    /// Returns whether any link has been lost since [`Driver::take_lost_links`] was last called.
    pub fn has_lost_links(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Returns the links that have been lost since the last call: their ports, and the errors.
    pub fn take_lost_links(&mut self) -> Vec<(usize, io::Error)> {
        std::mem::take(&mut self.gone)
    }

    /// Returns the counters of a port's link; cells that the link did not take are counted as refused.
    pub fn link_counters(&self, port: usize) -> Option<LinkCounters> {
        match self.ports.get(port)? {
            PortLink::Empty => None,
            PortLink::Packets(attachment) => Some(attachment.link.counters()),
            PortLink::Cells(attachment) => {
                let counters = attachment.link.counters();
                Some(LinkCounters { send_errors: counters.send_errors + attachment.lost, ..counters })
            }
        }
    }

    /// Runs one turn. Returns whether there was anything to do.
    pub fn turn(&mut self) -> bool {
        let now = self.clock.now();
        let mut worked = self.wait_set.take_woken();
        // Start programs before anything arrives, so that listeners are in place.
        self.start(now);
        for port in 0..self.ports.len() {
            worked |= self.receive(port, now);
        }
        worked |= self.receive_parcels(now);
        worked |= self.poll_fd_programs(now);
        if now >= self.deadline.min(self.programs_deadline()) {
            self.board.handle(Input::Timeout, now);
            for (number, program) in self.programs.iter_mut().enumerate() {
                if program.program().deadline() <= now {
                    program.program_mut().on_timeout(&mut self.board.host_of(number), now);
                }
            }
            self.drain(now);
            worked = true;
        }
        for port in 0..self.ports.len() {
            worked |= self.send_cells(port, now);
        }
        worked
    }

    /// Passes the units that have arrived at a port to the board, and sends the resulting output.
    fn receive(&mut self, port: usize, now: Instant) -> bool {
        let Driver { board, ports, .. } = self;
        let lent = &mut LinkContext { now, memory: board.memory_mut() };
        let failed = match &mut ports[port] {
            PortLink::Empty => return false,
            PortLink::Packets(Attachment { link, rx_queue, tx_queue, held, .. }) => {
                let mut result = link.receive(lent, rx_queue);
                let mut freed = false;
                if *held && result.is_ok() {
                    result = link.send(tx_queue, lent);
                    freed = tx_queue.is_empty();
                    *held = !freed;
                }
                if freed {
                    self.wait_set.watch_room(port, false);
                    board.hold(port, false);
                    board.handle(Input::Room, now);
                }
                if result.is_ok() && !freed && rx_queue.is_empty() {
                    return false;
                }
                board.handle(Input::Packets { port, packets: rx_queue }, now);
                result
            }
            PortLink::Cells(Attachment { link, rx_queue, .. }) => {
                let result = link.receive(lent, rx_queue);
                if result.is_ok() && rx_queue.is_empty() {
                    return false;
                }
                board.handle(Input::Cells { port, cells: rx_queue.make_contiguous() }, now);
                rx_queue.clear();
                result
            }
        };
        if let Err(error) = failed {
            self.lose(port, error);
        }
        self.drain(now);
        true
    }

    /// Passes the parcels of other shards to the board.
    fn receive_parcels(&mut self, now: Instant) -> bool {
        let Driver { board, rings: Some(rings), .. } = self else { return false };
        if rings.has_waiting() {
            rings.wake();
        }
        let parcels = rings.take();
        if parcels.is_empty() {
            return false;
        }
        board.handle(Input::Parcels { parcels }, now);
        self.drain(now);
        true
    }

    /// Passes the board's parcels to other shards.
    fn pass_parcels(&mut self) {
        let Driver { board, rings: Some(rings), .. } = self else { return };
        let mut any = false;
        while let Some((to, parcel)) = board.parcel() {
            rings.pass(to, parcel);
            any = true;
        }
        if any {
            rings.wake();
        }
    }

    /// Returns the number of packets and messages for other shards that were dropped because a ring was full.
    pub fn dropped_parcels(&self) -> u64 {
        self.rings.as_ref().map_or(0, |rings| rings.dropped())
    }

    /// Calls the programs whose system files are ready.
    fn poll_fd_programs(&mut self, now: Instant) -> bool {
        let mut worked = false;
        for (number, worker) in self.programs.iter_mut().enumerate() {
            if let ProgramEntry::Fd(program) = worker
                && program.is_ready()
            {
                self.board.handle(Input::Timeout, now);
                program.on_file(&mut self.board.host_of(number), now);
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
        self.detach(port);
        self.gone.push((port, error));
    }

    /// Polls the board until it is idle, calls the programs, and sends the output.
    fn drain(&mut self, now: Instant) {
        loop {
            match self.board.poll() {
                Output::Completions => self.notify_programs(now),
                Output::Transmit { port, pdu } => match self.ports.get_mut(port) {
                    Some(PortLink::Packets(attachment)) => {
                        attachment.tx_bytes += pdu.len();
                        attachment.tx_queue.push_back(pdu);
                        if attachment.tx_bytes >= TX_QUEUE_BYTES {
                            self.send(now);
                        }
                    }
                    // Without a link, the packet is lost, as on a cut line.
                    _ => drop(pdu),
                },
                Output::Idle { deadline } => {
                    self.deadline = deadline;
                    self.pass_parcels();
                    return self.send(now);
                }
            }
        }
    }

    fn start(&mut self, now: Instant) {
        let first = self.programs.len() - std::mem::take(&mut self.fresh);
        for (number, program) in self.programs.iter_mut().enumerate().skip(first) {
            program.program_mut().start(&mut self.board.host_of(number), now);
        }
    }

    fn notify_programs(&mut self, now: Instant) {
        while let Some((consumer, completion)) = self.board.completion() {
            if let Some(program) = self.programs.get_mut(consumer.program as usize) {
                program.program_mut().on_completion(completion, &mut self.board.host_for(consumer), now);
            }
        }
    }

    /// Sends the units that wait for packet links.
    fn send(&mut self, now: Instant) {
        for port in 0..self.ports.len() {
            let Driver { board, ports, wait_set, .. } = self;
            let PortLink::Packets(attachment) = &mut ports[port] else { continue };
            let Attachment { link, tx_queue, tx_bytes, held, .. } = attachment;
            *tx_bytes = 0;
            if tx_queue.is_empty() || *held {
                continue;
            }
            let lent = &mut LinkContext { now, memory: board.memory_mut() };
            match link.send(tx_queue, lent) {
                Ok(()) if tx_queue.is_empty() => {}
                Ok(()) => {
                    *held = true;
                    board.hold(port, true);
                    wait_set.watch_room(port, true);
                }
                Err(error) => self.lose(port, error),
            }
        }
    }

    /// Sends the cells whose slots have passed.
    fn send_cells(&mut self, port: usize, now: Instant) -> bool {
        let Driver { board, ports, train, .. } = self;
        let PortLink::Cells(Attachment { link, tx_queue, lost, .. }) = &mut ports[port] else {
            return false;
        };
        board.cells(port, now, train);
        if train.is_empty() && tx_queue.is_empty() {
            return false;
        }
        tx_queue.extend(train.drain(..));
        let lent = &mut LinkContext { now, memory: board.memory_mut() };
        let sent = link.send(tx_queue, lent);
        // A line does not wait, so cells that the link cannot take are lost.
        *lost += tx_queue.len() as u64;
        tx_queue.clear();
        if let Err(error) = sent {
            self.lose(port, error);
        }
        if self.board.has_made_room(port, now) {
            self.board.handle(Input::Room, now);
            self.drain(now);
        }
        true
    }

    /// Returns when the driver must run the next turn, even if nothing happens.
    pub fn deadline(&self) -> Instant {
        let mut deadline = self.deadline.min(self.programs_deadline());
        if self.rings.as_ref().is_some_and(|rings| rings.has_waiting()) {
            deadline = deadline.min(self.clock.now() + RETRY);
        }
        for (port, link) in self.ports.iter().enumerate() {
            deadline = deadline.min(match link {
                PortLink::Empty => Instant::NEVER,
                PortLink::Packets(attachment) => attachment.link.deadline(),
                PortLink::Cells(attachment) => {
                    let line = self.board.next_cell_end(port).min(self.board.next_room(port));
                    let late = match line {
                        Instant::NEVER => Instant::NEVER,
                        _ => self.clock.now() + CELLS_LATE_MAX,
                    };
                    attachment.link.deadline().min(line.min(late))
                }
            });
        }
        deadline
    }

    /// Runs turns and sleeps until a deadline, or until `done`, which is called after every turn, returns
    /// true.
    pub fn run(&mut self, waiting: &mut Waiting, until: Instant, mut done: impl FnMut(&mut Driver) -> bool) {
        let wait_set = self.wait_set.clone();
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
            // A turn may have set an earlier deadline, for example for a delayed unit.
            let look = || (self.turn() || self.deadline() < deadline).then_some(());
            waiting.wait(&*wait_set, &*wait_set, deadline, look);
        }
    }

    /// Returns a waiter for [`Driver::run`].
    pub fn waiting(&self, wait: Wait) -> Waiting {
        match wait {
            Wait::Interrupt => Waiting::sleeping(self.clock),
            wait => Waiting::new(wait, self.clock),
        }
    }
}
