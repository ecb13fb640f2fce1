//! The other shards of a board: shard 0 is driven by the thread of [`Running`](super::board::Running), and
//! each of the others by a thread of its own.
//!
//! Configuration    one plan for all: limits and packet memory are divided evenly.
//! Services         most run on every shard ([`runs_everywhere`]). The others run on shard 0, which gets the
//!                  packets that no other shard expects.
//! Commands         shard 0 passes closures to the others, which run them between two turns of the driver,
//!                  and waits for the results. Nothing else is shared, and the packet path takes no lock.
//! End              a shard whose thread has panicked ends the board: its sessions are lost.

use super::part::{Part, is_quiet, part_of};
use crate::config::{Plan, ServicePlan};
use crate::services::{self, ClientBells, Maker, Service, Services, runs_everywhere};
use kiban_base::{Instant, Wait};
use kiban_board::{Board, BoardConfig, Host, ShardConfig, Steering};
use kiban_link::{AnyLink, Driver, LinkCounters, ShardRings};
use kiban_os::thread::STACK_BYTES;
use kiban_os::{Clock, Flag, Waker, thread};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// One of the other shards, as its own thread has it.
pub(super) struct Shard {
    pub(super) driver: Driver,
    services: usize,
}

type Command = Box<dyn FnOnce(&mut Shard) + Send>;
/// The counters of a shard's links, and the links that it has lost.
type LinkStates = (Vec<LinkCounters>, Vec<(usize, io::Error)>);

/// A shard's thread, as shard 0 has it.
struct ShardThread {
    /// `None` once the thread is to end.
    commands: Option<Sender<Command>>,
    /// Whether there is a command.
    has_command: Arc<Flag>,
    waker: Waker,
    /// Disconnected once the thread has ended.
    ended: Receiver<()>,
}

/// The other shards of a board; none if it is not divided.
#[derive(Default)]
pub(super) struct Shards {
    threads: Vec<ShardThread>,
    /// How flows find their shards, if the board is divided; and what wakes the drivers of all shards.
    division: Option<(Steering, Vec<Waker>)>,
}

impl Shards {
    /// Starts the threads of the shards. The first board is shard 1's; `first` wakes the driver of shard 0.
    pub(super) fn start(
        boards: Vec<(Board, ShardRings)>,
        (steering, first): (Steering, Waker),
        clock: Clock,
        wait: Wait,
    ) -> Result<Shards, String> {
        let wakers = std::iter::once(first).chain(boards.iter().map(|(_, rings)| rings.waker())).collect();
        let mut shards = Shards { threads: Vec::new(), division: Some((steering, wakers)) };
        for (board, rings) in boards {
            let (commands, received) = channel();
            let (end, ended) = channel();
            let has_command = Arc::new(Flag::default());
            let (waker, its) = (rings.waker(), has_command.clone());
            let run = move || {
                let _end: Sender<()> = end;
                let shard = Shard { driver: Driver::of_shard(board, clock, rings), services: 0 };
                run(shard, wait, &received, &its);
            };
            thread::spawn(c"kiban-shard", STACK_BYTES, run)
                .map_err(|error| format!("cannot start a thread for a shard: {error}"))?;
            shards.threads.push(ShardThread { commands: Some(commands), has_command, waker, ended });
        }
        let started = shards.each(|shard| {
            let services = Services::new()?;
            shard.services = shard.driver.add_fd_program(Box::new(services));
            io::Result::Ok(())
        });
        let started: io::Result<()> = started.into_iter().collect();
        started.map_err(|error| format!("cannot set up event polling for a shard: {error}"))?;
        Ok(shards)
    }

    /// Returns whether the board is divided.
    pub(super) fn are_there(&self) -> bool {
        self.division.is_some()
    }

    /// Runs `work` on each of the other shards, and returns the results in the order of the shards.
    ///
    /// # Panics
    /// If the thread of a shard has panicked.
    pub(super) fn each<T: Send + 'static>(
        &self,
        work: impl Fn(&mut Shard) -> T + Send + Sync + 'static,
    ) -> Vec<T> {
        let work = Arc::new(work);
        self.each_its_own(self.threads.iter().map(|_| {
            let work = work.clone();
            move |shard: &mut Shard| work(shard)
        }))
    }

    /// Like [`Shards::each`], with work of its own for each shard.
    fn each_its_own<T: Send + 'static, W: FnOnce(&mut Shard) -> T + Send + 'static>(
        &self,
        works: impl IntoIterator<Item = W>,
    ) -> Vec<T> {
        let ask = |(thread, work): (&ShardThread, W)| {
            let (tell, told) = channel();
            // Shard 0 waits for the result below.
            thread.command(Box::new(move |shard| drop(tell.send(work(shard)))));
            told
        };
        let asked: Vec<Receiver<T>> = self.threads.iter().zip(works).map(ask).collect();
        asked.into_iter().map(|told| told.recv().expect("the shard's thread runs")).collect()
    }

    /// Attaches one link of a port to each of the shards.
    pub(super) fn attach(&self, port: usize, links: impl IntoIterator<Item = AnyLink>) {
        for (thread, link) in self.threads.iter().zip(links) {
            thread.command(Box::new(move |shard| shard.driver.attach(port, link)));
        }
    }

    /// Detaches the links of a port.
    pub(super) fn detach(&self, port: usize) {
        self.each(move |shard| shard.driver.detach(port));
    }

    /// Creates a service: returns shard 0's part, and what creates those of the other shards.
    ///
    /// # Errors
    /// If a directory does not exist, or the process has run out of descriptors.
    pub(super) fn make_service(
        &self,
        plan: &ServicePlan,
        chime: &Arc<ClientBells>,
    ) -> io::Result<(Box<dyn Service>, Vec<Maker>)> {
        match &self.division {
            Some((steering, wakers)) => services::make_parts(plan, chime, *steering, wakers),
            None => Ok((services::make(plan, chime)?, Vec::new())),
        }
    }

    /// Creates a service's parts on the other shards, and starts them.
    ///
    /// # Errors
    /// If it cannot start on one of the shards.
    pub(super) fn add_service(&self, plan: &ServicePlan, parts: Vec<Maker>) -> Result<(), String> {
        let added = self.each_its_own(parts.into_iter().map(|make| {
            let plan = plan.clone();
            move |shard: &mut Shard| {
                shard.with_services(|services, host, now| {
                    let service = make(services.chime()).map_err(|error| error.to_string())?;
                    services.add(plan, service, host, now)
                })
            }
        }));
        added.into_iter().collect()
    }

    /// Closes the services that `stays` does not contain.
    pub(super) fn close_services(&self, stays: Vec<ServicePlan>) {
        let shards = self.threads.len() + 1;
        let stays: Vec<ServicePlan> = stays.iter().map(|plan| share_of(plan, shards)).collect();
        self.each(move |shard| {
            shard.with_services(|services, host, _| services.close(host, |old| !stays.contains(old)));
        });
    }

    /// Resets the sessions of services that have stopped listening. Returns their number.
    pub(super) fn cut(&self) -> usize {
        let cut = self.each(|shard| {
            let left = shard.with_services(|services, host, _| {
                let left = services.sessions();
                services.cut(host);
                left
            });
            shard.driver.turn();
            left
        });
        cut.into_iter().sum()
    }

    /// Returns whether all sessions have ended (TIME-WAIT excepted).
    pub(super) fn are_quiet(&self) -> bool {
        self.each(|shard| is_quiet(&shard.driver, shard.services)).into_iter().all(|quiet| quiet)
    }

    /// Returns the counters of each shard's links, and the links that it has lost.
    pub(super) fn link_states(&self, links: usize) -> Vec<LinkStates> {
        self.each(move |shard| {
            let counters = (0..links).map(|link| shard.driver.link_counters(link).unwrap_or_default());
            (counters.collect(), shard.driver.take_lost_links())
        })
    }

    /// Returns each shard's part of the status, for this number of links.
    pub(super) fn parts(&self, links: usize) -> Vec<Part> {
        self.each(move |shard| part_of(&mut shard.driver, shard.services, links))
    }
}

impl ShardThread {
    fn command(&self, command: Command) {
        let commands = self.commands.as_ref().expect("the shard has not been ended");
        commands.send(command).expect("the shard's thread runs");
        self.has_command.set(true);
        self.waker.wake();
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        for thread in &mut self.threads {
            thread.commands = None;
            thread.has_command.set(true);
            thread.waker.wake();
        }
        for thread in &self.threads {
            // The thread sends nothing; it drops its end.
            let _ = thread.ended.recv();
        }
    }
}

impl Shard {
    fn with_services<T>(&mut self, work: impl FnOnce(&mut Services, &mut Host<'_>, Instant) -> T) -> T {
        self.driver.with_program(self.services, work).expect("the services are the driver's program")
    }
}

/// Drives a shard until its commands end.
fn run(mut shard: Shard, wait: Wait, commands: &Receiver<Command>, has_command: &Flag) {
    let mut waiting = shard.driver.waiting(wait);
    loop {
        shard.driver.run(&mut waiting, Instant::NEVER, |_| has_command.get());
        has_command.set(false);
        loop {
            match commands.try_recv() {
                Ok(command) => command(&mut shard),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
    }
}

/// Returns a service's plan for one of several shards.
pub(super) fn share_of(plan: &ServicePlan, shards: usize) -> ServicePlan {
    let sessions_max =
        if runs_everywhere(plan) { plan.sessions_max.div_ceil(shards) } else { plan.sessions_max };
    ServicePlan { sessions_max, ..plan.clone() }
}

/// Returns the configuration of one of several shards: an even part of the board's memory and sessions.
pub(super) fn config_of(board: &BoardConfig, plan: &Plan, shard: ShardConfig) -> BoardConfig {
    let mut config = board.clone();
    config.memory.transmit_bytes /= plan.shards;
    config.memory.receive_bytes /= plan.shards;
    config.memory.pdus /= plan.shards;
    config.tcp.sessions_max = config.tcp.sessions_max.div_ceil(plan.shards);
    if shard.number != 0 {
        config.rdma = None;
    }
    config.shard = Some(shard);
    config
}
