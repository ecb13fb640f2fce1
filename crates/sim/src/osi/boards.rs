//! OSI boards, their medium, and the processors that do their work.

use super::costs::{Account, Costs, Direction, Mechanism};
use super::serial::Serial;
use super::user::User;
use kiban_base::{Instant, Rope, SimRng};
use kiban_board::impairment::ImpairmentConfig;
use kiban_osi::ftam::filestore::memory::MemoryDisk;
use kiban_osi::ftam::initiator::{Failure, Job, Outcome};
use kiban_osi::lapb::{self, Role};
use kiban_osi::network::{Indication, Request};
use kiban_osi::stack::below::NetworkService;
use kiban_osi::stack::end::{End, OUTGOING_BYTES_MAX};
use kiban_osi::stack::files::Files;
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::stack::line::{Line, LineConfig};
use kiban_osi::stack::loopback::Loop;
use kiban_osi::stack::meter::{Meter, Task};
use kiban_osi::transport;
use kiban_osi::x25::{self, Sizes};
use std::time::Duration;

/// A peer that is silent for this long is considered lost.
const PATIENCE: Duration = Duration::from_secs(7 * 24 * 3600);

/// How the two systems are connected.
#[derive(Clone, Copy, Debug)]
pub enum Medium {
    /// Two boards on a line.
    Line {
        /// The rate, in each direction.
        bits_per_second: u64,
        /// The propagation delay.
        delay: Duration,
        /// Impairments of frames: loss, bit errors and stalls.
        impairment: ImpairmentConfig,
    },
    /// Both sides on one board, joined below transport.
    Loopback,
}

impl Medium {
    /// Returns a line without delay and impairments.
    pub fn line(bits_per_second: u64) -> Medium {
        Medium::Line { bits_per_second, delay: Duration::ZERO, impairment: ImpairmentConfig::NONE }
    }
}

/// The parameters of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How the systems are connected.
    pub join: Medium,
    /// Length of a data element in bytes, in both directions.
    pub fdata_bytes: usize,
    /// The largest TPDU: up to 2048 on a line, up to 65531 in loopback.
    pub tpdu_bytes: usize,
    /// Octets in a packet on a line: a power of two from 16 to 4096.
    pub packet_bytes: u16,
    /// The window of a call on a line, in packets: 1 to 127. Above 7, packets are numbered modulo 128.
    pub window_packets: u8,
    /// LAPB's k: the window on a line, in frames: 1 to 127. Above 7, frames are numbered modulo 128.
    pub window_frames: u8,
    /// The costs of processing. With `None`, processing takes no time.
    pub costs: Option<Costs>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// A clock that measures the tasks on the real machine.
    pub ticks: Option<fn() -> u64>,
    /// The mechanism of the paper whose absence is emulated on the real machine: every task makes the copies
    /// that it would make without the mechanism.
    pub copies: Option<Mechanism>,
}

impl Setup {
    /// Returns the set-up of paper \[5\] without modelled processors: F-DATA of 8000 bytes, TPDUs
    /// and packets of 2048, windows of 7.
    pub fn new(join: Medium) -> Setup {
        Setup {
            join,
            fdata_bytes: 8000,
            tpdu_bytes: 2048,
            packet_bytes: 2048,
            window_packets: 7,
            window_frames: 7,
            costs: None,
            seed: 1,
            ticks: None,
            copies: None,
        }
    }
}

/// The layers below the OSI stack of a side.
#[derive(Debug)]
enum Lower {
    Line(Box<Line>),
    Loop(Loop),
}

macro_rules! either {
    ($lower:expr, $below:ident => $do:expr) => {
        match $lower {
            Lower::Line($below) => $do,
            Lower::Loop($below) => $do,
        }
    };
}

impl NetworkService for Lower {
    fn request(&mut self, request: Request, now: Instant) {
        either!(self, below => below.request(request, now));
    }

    fn poll(&mut self, now: Instant) -> Option<Indication> {
        either!(self, below => below.poll(now))
    }

    fn push(&mut self, now: Instant) -> bool {
        either!(self, below => below.push(now))
    }

    fn waiting_bytes(&self) -> usize {
        either!(self, below => below.waiting_bytes())
    }

    fn deadline(&self) -> Instant {
        either!(self, below => below.deadline())
    }

    fn settle(&mut self, now: Instant) {
        either!(self, below => below.settle(now));
    }
}

/// A lower module's processor.
#[derive(Debug, Default)]
struct Module {
    free_at: Instant,
    /// The frame that is being received.
    frame: Option<Vec<u8>>,
}

/// One side of the association, with its user.
struct Side {
    end: End<Lower>,
    user: User,
    /// Whether the user has more to send.
    has_more: bool,
    module: Module,
    account: Account,
}

/// Two OSI stacks, and their connection.
pub struct Boards {
    sides: [Side; 2],
    /// The line from side 0 and the line from side 1; `None` in loopback.
    lines: Option<[Serial; 2]>,
    /// When each board's upper processor is free; in loopback there is only one.
    free_at: [Instant; 2],
    upper_bytes: usize,
    fdata_bytes: usize,
    costs: Option<Costs>,
    now: Instant,
    next: usize,
}

impl Boards {
    /// Creates boards without an association; the initiator is side 0.
    pub fn new(setup: &Setup) -> Boards {
        let lines = match setup.join {
            Medium::Loopback => None,
            Medium::Line { bits_per_second, delay, impairment } => Some([1, 2].map(|way| {
                Serial::new(
                    bits_per_second,
                    delay,
                    impairment,
                    SimRng::from_seed(setup.seed.wrapping_mul(4) + way),
                )
            })),
        };
        let side = |number: usize| {
            let (user, machine) = User::new(number == 0, setup.fdata_bytes);
            let (lower, network) = match setup.join {
                Medium::Loopback if setup.tpdu_bytes > transport::TPDU_BYTES_MAX_X25 => {
                    (Lower::Loop(Loop::new()), transport::Network::Tpkt)
                }
                Medium::Loopback => (Lower::Loop(Loop::new()), transport::Network::X25),
                Medium::Line { bits_per_second, .. } => {
                    let line = Line::new(line_config(number, bits_per_second, setup));
                    (Lower::Line(Box::new(line)), transport::Network::X25)
                }
            };
            let transport = transport::Config {
                network,
                tpdu_bytes_max: setup.tpdu_bytes,
                ..transport::Config::default()
            };
            let stack = StackConfig { transport, ..StackConfig::default() };
            Side {
                end: End::over(lower, machine, &stack),
                user,
                has_more: false,
                module: Module::default(),
                account: Account::new(setup.costs, setup.ticks, setup.copies),
            }
        };
        Boards {
            sides: [side(0), side(1)],
            lines,
            free_at: [Instant::ZERO; 2],
            upper_bytes: setup.costs.map_or(OUTGOING_BYTES_MAX, |costs| costs.upper_bytes),
            fdata_bytes: setup.fdata_bytes,
            costs: setup.costs,
            now: Instant::ZERO,
            next: 0,
        }
    }

    /// Returns the disk of a side's host.
    pub fn disk(&mut self, side: usize) -> &mut MemoryDisk {
        &mut self.sides[side].user.disk
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns one direction of the line, from a side.
    pub fn line(&self, from: usize) -> Option<&Serial> {
        Some(&self.lines.as_ref()?[from])
    }

    /// Returns a side's lower module.
    pub fn module(&self, side: usize) -> Option<&Line> {
        if let Lower::Line(line) = self.sides[side].end.below() { Some(line) } else { None }
    }

    /// Returns a side's upper layers.
    pub fn files(&self, side: usize) -> &Files {
        self.sides[side].end.files()
    }

    /// Returns how long each task of a side has worked according to the model, in the order of [`Task::ALL`].
    pub fn spent(&self, side: usize) -> [Duration; Task::ALL.len()] {
        self.sides[side].account.spent
    }

    /// Returns the same times, as measured by the tick source that was set, in its ticks.
    pub fn spent_ticks(&self, side: usize) -> [u64; Task::ALL.len()] {
        self.sides[side].account.spent_ticks
    }

    /// Establishes the association.
    ///
    /// # Errors
    /// The failure that the initiator reported, or that the connect did not complete.
    pub fn connect(&mut self) -> Result<(), Failure> {
        self.sides[0].user.connect(self.sides[0].end.machine());
        self.begin();
        self.run(User::take_connected)
    }

    /// Performs one job.
    ///
    /// # Errors
    /// The failure that the initiator reported, or that the job did not complete.
    pub fn job(&mut self, job: Job) -> Result<Outcome, Failure> {
        let Side { end, user, .. } = &mut self.sides[0];
        user.start(job, end.machine());
        self.begin();
        self.run(User::take_ended)
    }

    /// Releases the association.
    ///
    /// # Errors
    /// The release did not complete.
    pub fn close(&mut self) -> Result<(), Failure> {
        let Side { end, user, .. } = &mut self.sides[0];
        user.terminate(end.machine());
        self.begin();
        self.run(User::take_closed)
    }

    /// Sends the initiator's requests.
    fn begin(&mut self) {
        let Side { end, account, .. } = &mut self.sides[0];
        end.settle(self.now, account);
        account.rest();
        self.join();
        self.pay(0);
    }

    fn run<T>(&mut self, until: fn(&mut User) -> Option<Result<T, Failure>>) -> Result<T, Failure> {
        let give_up_at = self.now + PATIENCE;
        loop {
            if let Some(result) = until(&mut self.sides[0].user) {
                return result;
            }
            let next = self.next;
            self.next = 1 - next;
            if self.turn(next) | self.turn(1 - next) {
                continue;
            }
            match self.next_moment() {
                Some(at) if at < give_up_at => self.now = at,
                _ => return Err(Failure::default()),
            }
        }
    }

    /// Returns the index of a side's upper processor.
    fn processor(&self, side: usize) -> usize {
        if self.lines.is_some() { side } else { 0 }
    }

    /// Does everything that a side can do now. Returns whether there was anything to do.
    fn turn(&mut self, side: usize) -> bool {
        let mut moved = false;
        if self.sides[side].end.deadline() <= self.now {
            let Side { end, account, .. } = &mut self.sides[side];
            end.settle(self.now, account);
            moved = true;
        }
        moved |= self.receive_frame(side) | self.send_frame(side);
        let processor = self.processor(side);
        if self.free_at[processor] <= self.now && self.step(side) {
            self.pay(side);
            moved = true;
        }
        moved
    }

    fn pay(&mut self, side: usize) {
        let processor = self.processor(side);
        let debt = self.sides[side].account.take_debt();
        self.free_at[processor] = self.free_at[processor].max(self.now) + debt;
    }

    /// Performs one step of the upper processor.
    fn step(&mut self, side: usize) -> bool {
        let (now, costs) = (self.now, self.costs);
        let Side { end, user, has_more, account, .. } = &mut self.sides[side];
        account.direction = Direction::Up;
        let mut moved = end.step_up(now, account);
        account.direction = Direction::Down;
        let may_send = *has_more && end.below().waiting_bytes() < self.upper_bytes;
        if moved || may_send {
            let room = if moved { 0 } else { self.fdata_bytes };
            let before = user.moved_bytes();
            *has_more = user.work(end.machine(), room);
            let bytes = user.moved_bytes() - before;
            account.turn_to(Task::Host, bytes as usize);
            end.settle(now, account);
            moved = true;
        } else if end.below_mut().push(now) {
            moved = true;
        } else if let Some(costs) = costs
            && end.below().waiting_bytes() > 0
            && self.lines.is_some()
        {
            // There is nothing else to do, and the lower module has no room: poll it.
            account.charge(Task::Lower, costs.poll);
            moved = true;
        }
        account.rest();
        self.join();
        moved
    }

    /// In loopback, carries data between the two sides.
    fn join(&mut self) {
        let [one, other] = &mut self.sides;
        if let (Lower::Loop(one), Lower::Loop(other)) = (one.end.below_mut(), other.end.below_mut()) {
            Loop::join(one, other);
        }
    }

    /// Lets the lower module receive a frame from the line.
    fn receive_frame(&mut self, side: usize) -> bool {
        let Some(lines) = &mut self.lines else { return false };
        let Side { end, module, account, .. } = &mut self.sides[side];
        let Lower::Line(line) = end.below_mut() else { return false };
        if module.free_at > self.now {
            return false;
        }
        if let Some(frame) = module.frame.take() {
            account.turn_to(Task::Lower, 0);
            line.arrive(Rope::from(frame), self.now);
            account.rest();
            return true;
        }
        let Some(frame) = lines[1 - side].receive(self.now) else { return false };
        module.free_at = self.now + self.costs.map_or(Duration::ZERO, |costs| costs.of_frame(frame.len()));
        module.frame = Some(frame);
        true
    }

    /// Lets the lower module make a frame for the line.
    fn send_frame(&mut self, side: usize) -> bool {
        let Some(lines) = &mut self.lines else { return false };
        let Side { end, module, account, .. } = &mut self.sides[side];
        let Lower::Line(line) = end.below_mut() else { return false };
        if module.free_at > self.now || module.frame.is_some() || lines[side].takes_at() > self.now {
            return false;
        }
        account.turn_to(Task::Lower, 0);
        let frame = line.poll_frame(self.now);
        account.rest();
        let Some(frame) = frame else { return false };
        let frame = frame.to_vec();
        module.free_at = self.now + self.costs.map_or(Duration::ZERO, |costs| costs.of_frame(frame.len()));
        lines[side].send(frame, module.free_at);
        true
    }

    /// Returns when there may be something to do next.
    fn next_moment(&self) -> Option<Instant> {
        let sides = self.sides.iter().flat_map(|side| [side.module.free_at, side.end.deadline()]);
        let lines = self.lines.iter().flatten();
        let lines = lines.flat_map(|line| [line.takes_at(), line.arrives_at().unwrap_or(Instant::NEVER)]);
        let processors = self.free_at.iter().copied();
        let next = sides.chain(lines).chain(processors).filter(|at| *at > self.now).min();
        next.filter(|at| *at != Instant::NEVER)
    }
}

/// Returns the line of a set-up, with timers suited to its rate.
fn line_config(side: usize, bits_per_second: u64, setup: &Setup) -> LineConfig {
    let Setup { packet_bytes, window_packets, window_frames, costs, .. } = *setup;
    let mut config = LineConfig::new(if side == 0 { Role::Dte } else { Role::Dce });
    config.layer.default = Sizes::same(packet_bytes, window_packets);
    config.layer.outgoing_bytes_max = usize::from(packet_bytes) * usize::from(window_packets);
    config.link.window = window_frames;
    if window_packets > 7 {
        config.layer.modulo = x25::Modulo::OneTwentyEight;
        config.layer.window_max = window_packets;
    }
    if window_frames > 7 {
        config.link.modulo = lapb::Modulo::OneTwentyEight;
    }
    if let Some(costs) = costs {
        config.layer.outgoing_bytes_max = costs.module_bytes;
    }
    config.layer.outgoing_bytes_max = config.layer.outgoing_bytes_max.max(transport::TPDU_BYTES_MAX_X25);
    // While a window of frames in each direction is on the line or in the modules, the sender must not poll
    // the peer (timer recovery).
    let frames = u64::from(window_frames) * 2;
    let bits = frames * 8 * (u64::from(packet_bytes) + 16);
    let on_line = Duration::from_nanos(bits * 1_000_000_000 / bits_per_second.max(1));
    let in_modules = costs.map_or(Duration::ZERO, |costs| costs.block * frames as u32);
    let window = on_line + in_modules;
    config.link.reply_timeout = config.link.reply_timeout.max(2 * window);
    config.link.idle_timeout = config.link.idle_timeout.max(4 * window);
    config
}
