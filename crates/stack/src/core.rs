//! The board, its device and the table of waiting tasks, under one lock.
//!
//! ```text
//! task       turn: device ─► Board::handle ─► Board::poll ─┬─ completions ─► table ─► wakers
//!              ▲                                           └─ packets ─► device
//! program    call: read, write, accept … ─► Board::poll (as above)
//! ```
//!
//! Lock             is held for one burst, or for one call. Tasks are woken after it has been released.
//! Device's waker   the device wakes the stack's task, also for packets that a program's call has sent.
//! Deadlines        a call may set an earlier deadline than the one for which the task sleeps; then it wakes
//!                  the task.
//! Clock            tokio's, so that stacks can be tested with a paused clock.

use crate::device::Port;
use crate::table::Table;
use kiban_base::{Instant, Pdu};
use kiban_board::{Board, Host, Input, Output};
use kiban_link::{LinkContext, TX_QUEUE_BYTES};
use kiban_os::lock;
use kiban_tcpip::tcp::State;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What the stack's task does next.
pub(crate) enum Turn {
    /// Take another turn; other tasks come first.
    Again,
    /// Sleep until a time, unless the device or a call wakes the task.
    Sleep(tokio::time::Instant),
    /// End, because everything of the stack has been dropped, or the device has failed.
    End,
}

pub(crate) struct Core {
    board: Board,
    port: Box<dyn Port>,
    rx_queue: VecDeque<Pdu>,
    tx_queue: VecDeque<Pdu>,
    /// Bytes queued since packets were last passed to the device.
    tx_bytes: usize,
    /// Whether the device did not take all packets passed to it.
    is_held: bool,
    table: Table,
    origin: tokio::time::Instant,
    /// When the board must act.
    deadline: Instant,
    /// When the task acts.
    sleeps_until: Instant,
    task: Waker,
    linger: Duration,
    /// When the task ends; set once everything of the stack has been dropped.
    ends_at: Option<Instant>,
}

impl Core {
    pub(crate) fn new(board: Board, port: Box<dyn Port>, table: Table, linger: Duration) -> Core {
        Core {
            board,
            port,
            rx_queue: VecDeque::new(),
            tx_queue: VecDeque::new(),
            tx_bytes: 0,
            is_held: false,
            table,
            origin: tokio::time::Instant::now(),
            deadline: Instant::ZERO,
            sleeps_until: Instant::ZERO,
            task: Waker::noop().clone(),
            linger,
            ends_at: None,
        }
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed()
    }

    /// Takes a burst from the device, and does what is due.
    fn turn(&mut self, task: &Waker) -> Turn {
        if !self.task.will_wake(task) {
            self.task = task.clone();
        }
        if self.table.is_gone() {
            return Turn::End;
        }
        let now = self.now();
        let mut has_worked = match self.receive(now) {
            Ok(has_worked) => has_worked,
            Err(error) => {
                self.table.fail(&error);
                return Turn::End;
            }
        };
        if now >= self.deadline.min(self.table.deadline()) {
            self.board.handle(Input::Timeout, now);
            self.table.on_timeout(&mut self.board.host(), now);
            has_worked = true;
        }
        if has_worked {
            self.drain(now);
            self.sleeps_until = Instant::ZERO;
            return Turn::Again;
        }
        let mut until = self.deadline.min(self.table.deadline());
        if let Some(end) = self.ends_at {
            // TIME-WAIT has nothing left to deliver.
            if now >= end || self.board.infos().all(|info| info.state == State::TimeWait) {
                return Turn::End;
            }
            until = until.min(end);
        }
        self.sleeps_until = until;
        // The runtime's timers do not take times in the far future.
        Turn::Sleep(self.origin + until.since(Instant::ZERO).min(now.since(Instant::ZERO) + FAR))
    }

    /// Passes the packets that have arrived to the board, and retries packets that the device did not take.
    /// Returns whether there was anything to do.
    fn receive(&mut self, now: Instant) -> io::Result<bool> {
        let Core { board, port, rx_queue, tx_queue, is_held, task, .. } = self;
        let cx = &mut Context::from_waker(task);
        let lent = &mut LinkContext { now, memory: board.memory_mut() };
        let mut has_worked = match port.poll_receive(cx, lent, rx_queue) {
            Poll::Ready(received) => received.map(|()| true)?,
            Poll::Pending => !rx_queue.is_empty(),
        };
        if *is_held && let Poll::Ready(sent) = port.poll_send(cx, tx_queue, lent) {
            sent?;
            *is_held = false;
            board.hold(0, false);
            board.handle(Input::Room, now);
            has_worked = true;
        }
        if !rx_queue.is_empty() {
            board.handle(Input::Packets { port: 0, packets: rx_queue }, now);
        }
        Ok(has_worked)
    }

    /// Polls the board until it is idle, and sends its packets.
    fn drain(&mut self, now: Instant) {
        loop {
            match self.board.poll() {
                Output::Completions => {
                    while let Some((_, completion)) = self.board.completion() {
                        self.table.on_completion(completion, &mut self.board.host());
                    }
                }
                Output::Transmit { pdu, .. } => {
                    self.tx_bytes += pdu.len();
                    self.tx_queue.push_back(pdu);
                    if self.tx_bytes >= TX_QUEUE_BYTES {
                        self.send(now);
                    }
                }
                Output::Idle { deadline } => {
                    self.deadline = deadline;
                    return self.send(now);
                }
            }
        }
    }

    /// Sends the packets that wait for the device.
    fn send(&mut self, now: Instant) {
        let Core { board, port, tx_queue, is_held, task, table, .. } = self;
        self.tx_bytes = 0;
        if tx_queue.is_empty() || *is_held || table.is_gone() {
            return;
        }
        let lent = &mut LinkContext { now, memory: board.memory_mut() };
        match port.poll_send(&mut Context::from_waker(task), tx_queue, lent) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => table.fail(&error),
            Poll::Pending => {
                *is_held = true;
                board.hold(0, true);
            }
        }
    }

    fn call<T>(&mut self, work: impl FnOnce(&mut Table, &mut Host<'_>) -> T) -> T {
        let now = self.now();
        self.board.handle(Input::Timeout, now);
        let result = work(&mut self.table, &mut self.board.host());
        self.drain(now);
        if self.deadline.min(self.table.deadline()) < self.sleeps_until {
            // One wake-up is enough.
            self.sleeps_until = Instant::ZERO;
            self.table.woken.push(self.task.clone());
        }
        result
    }
}

/// The longest sleep of the task.
const FAR: Duration = Duration::from_secs(3600);

/// What the task and the handles share.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Core>>);

impl Shared {
    pub(crate) fn new(core: Core) -> Shared {
        Shared(Arc::new(Mutex::new(core)))
    }

    /// Runs `work`, and wakes the tasks that wait for its effects once the lock is released.
    fn with<T>(&self, work: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = lock(&self.0);
        let result = work(&mut core);
        let woken = std::mem::take(&mut core.table.woken);
        drop(core);
        woken.into_iter().for_each(Waker::wake);
        result
    }

    pub(crate) fn turn(&self, task: &Waker) -> Turn {
        self.with(|core| core.turn(task))
    }

    /// Ends the stack because its runtime has ended.
    pub(crate) fn fail(&self, why: &str) {
        self.with(|core| core.table.fail(&io::Error::other(why)));
    }
}

/// A program's share in a stack: the stack itself, its streams, listeners and sockets have one each.
pub(crate) struct Handle(Shared);

impl Handle {
    pub(crate) fn new(shared: Shared) -> Arc<Handle> {
        Arc::new(Handle(shared))
    }

    /// Runs `work` with the board, and sends what results from it.
    pub(crate) fn call<T>(&self, work: impl FnOnce(&mut Table, &mut Host<'_>) -> T) -> T {
        self.0.with(|core| core.call(work))
    }

    /// Runs `work` with the table alone: it neither needs the board nor gives it anything to do.
    pub(crate) fn look<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        self.0.with(|core| work(&mut core.table))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.with(|core| {
            core.ends_at = Some(core.now() + core.linger);
            core.table.woken.push(core.task.clone());
        });
    }
}
