//! Two stations, two cables, applications that communicate, and checkers that see only what applications see.
//!
//! Checkers  streams are intact, no station is idle while there is work to do, and the number of frames is
//!           bounded. Every session ends for the expected reason. At the end, tables are empty and all memory
//!           is free.

use super::cable::{Cable, Nature};
use super::station::{Frame, SERVER_PORT, Sizes, Station, frames_of};
use core::net::SocketAddr;
use core::time::Duration;
use kiban_base::{Instant, Page, SimRng, Slice};
use kiban_tcpip::tcp::{Config, Indication, Reason, SessionId};
use std::collections::VecDeque;

/// When an application finishes sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finish {
    /// Finish as soon as all data has been written.
    Written,
    /// Finish only after the peer has finished too.
    AfterPeer,
}

/// The behaviour of the application at one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Role {
    pub(crate) bytes: usize,
    /// Maximum length of a write; the actual lengths vary.
    pub(crate) write_max: usize,
    /// Interval between writes. With zero, the application writes whenever there is room.
    pub(crate) write_every: Duration,
    /// Maximum number of bytes read at once.
    pub(crate) read_max: usize,
    /// Interval between reads. With zero, the application reads at once.
    pub(crate) read_every: Duration,
    /// After `stop_reading_at` bytes, nothing is read until `read_again_at`.
    pub(crate) stop_reading_at: usize,
    pub(crate) read_again_at: Instant,
    pub(crate) finish: Finish,
}

impl Role {
    /// Writes `bytes` as fast as it may and reads everything at once.
    pub(crate) fn eager(bytes: usize) -> Role {
        Role {
            bytes,
            write_max: usize::MAX,
            write_every: Duration::ZERO,
            read_max: usize::MAX,
            read_every: Duration::ZERO,
            stop_reading_at: usize::MAX,
            read_again_at: Instant::ZERO,
            finish: Finish::Written,
        }
    }

    pub(crate) fn after_peer(self) -> Role {
        Role { finish: Finish::AfterPeer, ..self }
    }
}

pub(crate) struct App {
    pub(crate) role: Role,
    pub(crate) session: Option<SessionId>,
    pub(crate) opened: bool,
    page: Option<Page>,
    stream: Vec<u8>,
    pub(crate) written: usize,
    pub(crate) acknowledged: usize,
    finished: bool,
    pub(crate) got: Vec<u8>,
    /// Received data that a slow reader has not read yet. It holds pages, but no PDU blocks.
    waiting: VecDeque<Slice>,
    /// Number of bytes that have been read from the first slice in `waiting`.
    taken: usize,
    pub(crate) peer_finished: bool,
    pub(crate) gone: Option<Reason>,
    write_at: Instant,
    read_at: Instant,
    /// The time at which the peer's whole stream had arrived.
    pub(crate) complete_at: Option<Instant>,
}

impl App {
    fn new(role: Role, chance: &mut SimRng) -> App {
        let mut stream = Vec::with_capacity(role.bytes + 8);
        while stream.len() < role.bytes {
            stream.extend_from_slice(&chance.draw().to_le_bytes());
        }
        stream.truncate(role.bytes);
        App {
            role,
            session: None,
            opened: false,
            page: None,
            stream,
            written: 0,
            acknowledged: 0,
            finished: false,
            got: Vec::new(),
            waiting: VecDeque::new(),
            taken: 0,
            peer_finished: false,
            gone: None,
            write_at: Instant::ZERO,
            read_at: Instant::ZERO,
            complete_at: None,
        }
    }
}

/// Called for every frame, with its time and the station that sent it.
pub(crate) type Watch = Box<dyn FnMut(Instant, usize, &Frame)>;

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) stations: [Station; 2],
    /// `cables[n]` carries the frames that station n sends.
    pub(crate) cables: [Cable; 2],
    /// `apps[conversation][station]`.
    pub(crate) apps: Vec<[App; 2]>,
    pub(crate) frames_max: u64,
    /// Sessions whose indications an application "loses"; used only by the canary.
    pub(crate) forgetful: bool,
    pub(crate) log: bool,
    pub(crate) watch: Option<Watch>,
    /// The listeners of the accepted sessions, in order.
    pub(crate) accepted_by: Vec<u32>,
    /// The stations that gave negative advice about the other one.
    pub(crate) advice: Vec<usize>,
    pub(crate) ends_as: Reason,
    pub(crate) until: Instant,
    chance: SimRng,
}

const FIRST_PORT: u16 = 20_000;

impl World {
    pub(crate) fn new(configs: [Config; 2], natures: [Nature; 2], sizes: [Sizes; 2], seed: u64) -> World {
        let chance = SimRng::from_seed(seed);
        let [left, right] = configs;
        let mut stations = [Station::new(1, left, sizes[0], seed), Station::new(2, right, sizes[1], seed)];
        let server = SocketAddr::new(stations[1].address, SERVER_PORT);
        stations[1].tcp.listen(server).expect("nobody listens yet");
        World {
            now: Instant::ZERO,
            stations,
            cables: [Cable::new(natures[0], chance.fork(10)), Cable::new(natures[1], chance.fork(11))],
            apps: Vec::new(),
            frames_max: 0,
            forgetful: false,
            log: false,
            watch: None,
            accepted_by: Vec::new(),
            advice: Vec::new(),
            ends_as: Reason::Closed,
            until: Instant::from_nanos(100_000 * 1_000_000_000),
            chance,
        }
    }

    pub(crate) fn plain(nature: Nature, seed: u64) -> World {
        let (config, sizes) = (Config::default(), Sizes::default());
        World::new([config.clone(), config], [nature; 2], [sizes; 2], seed)
    }

    /// Opens a connection from the left station to the right one, which listens.
    pub(crate) fn converse(&mut self, left: Role, right: Role) -> usize {
        let number = self.add(left, right);
        let (local, remote) = self.names(number);
        let remote = SocketAddr::new(remote.ip(), SERVER_PORT);
        self.open(0, number, local, remote);
        number
    }

    /// Both stations open the same connection at the same time.
    pub(crate) fn converse_from_both(&mut self, left: Role, right: Role) -> usize {
        let number = self.add(left, right);
        let (local, remote) = self.names(number);
        self.open(0, number, local, remote);
        self.open(1, number, remote, local);
        number
    }

    fn add(&mut self, left: Role, right: Role) -> usize {
        let apps = [App::new(left, &mut self.chance), App::new(right, &mut self.chance)];
        self.frames_max += 2_000 + [left, right].iter().map(|role| role.bytes as u64 / 20).sum::<u64>();
        self.apps.push(apps);
        self.apps.len() - 1
    }

    fn names(&self, number: usize) -> (SocketAddr, SocketAddr) {
        let port = FIRST_PORT + number as u16;
        (SocketAddr::new(self.stations[0].address, port), SocketAddr::new(self.stations[1].address, port))
    }

    fn open(&mut self, side: usize, number: usize, local: SocketAddr, remote: SocketAddr) {
        let now = self.now;
        let session = self.stations[side].with(now, |tcp, cx, _| tcp.open(local, remote, 0, cx));
        self.apps[number][side].session = Some(session.expect("the name is free"));
    }

    /// Runs until nothing more happens, then runs the checks.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        while self.step()? {}
        self.check_end()
    }

    /// Runs everything that happens at one instant, then advances the time to the next. Returns false if
    /// nothing more will happen.
    pub(crate) fn step(&mut self) -> Result<bool, String> {
        for side in 0..2 {
            while let Some(frame) = self.cables[1 - side].arrived(self.now) {
                self.stations[side].arrive(&frame, self.now);
            }
            let mut rounds = 0;
            while self.round(side)? {
                rounds += 1;
                if rounds > 10_000 {
                    return Err(format!("{:?}: station {side} never comes to rest", self.now));
                }
            }
        }
        let frames = self.cables[0].frames + self.cables[1].frames;
        if frames > self.frames_max {
            return Err(format!("{:?}: a storm: {frames} frames", self.now));
        }
        let next = self.next_moment()?;
        if next == Instant::NEVER {
            return Ok(false);
        }
        if next > self.until {
            return Err(format!("{:?}: it takes too long: {}", self.now, self.describe()));
        }
        self.now = next;
        Ok(true)
    }

    /// Runs until `done`.
    pub(crate) fn run_until(&mut self, done: impl Fn(&World) -> bool) {
        while !done(self) {
            assert!(self.step().unwrap(), "something more happens");
        }
    }

    fn next_moment(&mut self) -> Result<Instant, String> {
        let mut next = Instant::NEVER;
        for side in 0..2 {
            let mut deadline = self.stations[side].tcp.deadline();
            if deadline <= self.now {
                // A deadline may be early, or even in the past, if the timer wheel has not been advanced for
                // a long time, but only once.
                let (now, room) = (self.now, self.cables[side].room(self.now));
                self.stations[side].settle(room, now);
                deadline = self.stations[side].tcp.deadline();
                let quiet = self.stations[side].out.up.is_empty() && self.stations[side].out.down.is_empty();
                if deadline <= self.now || !quiet {
                    return Err(format!("{:?}: station {side} leaves a deadline at {deadline:?}", self.now));
                }
            }
            next = next.min(deadline).min(self.cables[side].next_arrival());
            if self.stations[side].tcp.has_work(0) {
                if self.cables[side].room(self.now) == 0 {
                    next = next.min(self.cables[side].room_at());
                } else if deadline == Instant::NEVER {
                    return Err(format!("{:?}: station {side} leaves a session in line", self.now));
                }
            }
            for conversation in &self.apps {
                let app = &conversation[side];
                for moment in [app.write_at, app.read_at, app.role.read_again_at] {
                    if moment > self.now && app.gone.is_none_or(|_| !app.waiting.is_empty()) {
                        next = next.min(moment);
                    }
                }
            }
        }
        Ok(next)
    }

    /// Delivers indications, runs the applications, settles, and sends frames. Returns whether anything
    /// happened.
    fn round(&mut self, side: usize) -> Result<bool, String> {
        let mut moved = false;
        while let Some(indication) = self.stations[side].out.up.pop_front() {
            moved = true;
            self.on_indication(side, indication)?;
        }
        for number in 0..self.apps.len() {
            moved |= self.act(side, number)?;
        }
        let (now, room) = (self.now, self.cables[side].room(self.now));
        // Resets for unmatched segments do not wait for a settle.
        let before = self.stations[side].out.down.len();
        self.stations[side].settle(room, now);
        let sent = self.stations[side].out.down.len() - before;
        // Settling may report something without sending anything.
        moved |= !self.stations[side].out.up.is_empty();
        if sent > room {
            return Err(format!("{now:?}: {sent} segments went where there was room for {room}"));
        }
        while let Some(segment) = self.stations[side].out.down.pop_front() {
            moved = true;
            for frame in frames_of(segment) {
                if frame.target != self.stations[1 - side].address {
                    // The answer to a host of which only the address exists.
                    continue;
                }
                if self.log {
                    println!("{now:?} {side}> {:?} {}", frame.header().0, frame.header().1.len());
                }
                if let Some(watch) = &mut self.watch {
                    watch(now, side, &frame);
                }
                self.cables[side].send(frame, now);
            }
        }
        Ok(moved)
    }

    fn app_of(&mut self, side: usize, session: SessionId) -> Result<usize, String> {
        let found = self.apps.iter().position(|apps| apps[side].session == Some(session));
        found.ok_or_else(|| format!("station {side} speaks of {session:?}, which no application has"))
    }

    fn on_indication(&mut self, side: usize, indication: Indication) -> Result<(), String> {
        let now = self.now;
        match indication {
            Indication::Opened { session, .. } => {
                let number = self.app_of(side, session)?;
                self.apps[number][side].opened = true;
            }
            Indication::Accepted { session, listener, remote, .. } => {
                self.accepted_by.push(listener);
                if self.forgetful {
                    return Ok(());
                }
                let number = usize::from(remote.port() - FIRST_PORT);
                let app = &mut self.apps[number][side];
                if app.session.is_some() {
                    return Err(format!("{now:?}: conversation {number} is accepted twice"));
                }
                (app.session, app.opened) = (Some(session), true);
            }
            Indication::Requested { .. } => return Err(format!("{now:?}: nothing is intercepted")),
            Indication::Data { session, mut pdu } => {
                for slice in pdu.drain_body() {
                    self.on_bytes(side, session, slice)?;
                }
            }
            Indication::Piece { session, slice } => self.on_bytes(side, session, slice)?,
            Indication::Sent { session, bytes, .. } => {
                let number = self.app_of(side, session)?;
                let app = &mut self.apps[number][side];
                app.acknowledged += bytes as usize;
                if app.acknowledged > app.written {
                    return Err(format!("{now:?}: more is acknowledged than was written"));
                }
            }
            Indication::NegativeAdvice { target, .. } => {
                if target != self.stations[1 - side].address {
                    return Err(format!("{now:?}: negative advice about {target}"));
                }
                self.advice.push(side);
            }
            Indication::Writable { .. } | Indication::Starved { .. } | Indication::Urgent { .. } => {}
            Indication::Finished { session } => {
                let number = self.app_of(side, session)?;
                let app = &mut self.apps[number][side];
                if app.peer_finished {
                    return Err(format!("{now:?}: the peer finishes twice"));
                }
                app.peer_finished = true;
            }
            Indication::Gone { session, reason } => {
                let number = self.app_of(side, session)?;
                let app = &mut self.apps[number][side];
                if app.gone.is_some() {
                    return Err(format!("{now:?}: a session goes twice"));
                }
                app.gone = Some(reason);
                app.page = None;
            }
        }
        Ok(())
    }

    fn on_bytes(&mut self, side: usize, session: SessionId, slice: Slice) -> Result<(), String> {
        let number = self.app_of(side, session)?;
        let app = &mut self.apps[number][side];
        if app.peer_finished || app.gone.is_some() {
            return Err(format!("{:?}: bytes come after the end", self.now));
        }
        if slice.is_empty() {
            return Err(format!("{:?}: an indication of no bytes", self.now));
        }
        app.waiting.push_back(slice);
        Ok(())
    }

    /// Runs an application. Returns whether it did anything.
    fn act(&mut self, side: usize, number: usize) -> Result<bool, String> {
        let now = self.now;
        let read = self.read(side, number)?;
        let station = &mut self.stations[side];
        let app = &mut self.apps[number][side];
        let Some(session) = app.session else { return Ok(read) };
        let mut moved = read;
        if app.gone.is_some() {
            return Ok(moved);
        }
        while app.opened && app.written < app.role.bytes && app.write_at <= now {
            let most = (app.role.bytes - app.written).min(app.role.write_max);
            let wish = if app.role.write_max == usize::MAX {
                most
            } else {
                1 + self.chance.below(most as u64) as usize
            };
            let piece = &app.stream[app.written..app.written + wish];
            let count = station
                .write(session, &mut app.page, piece)
                .map_err(|refusal| format!("{now:?}: a write within room is refused: {refusal}"))?;
            if count == 0 {
                // `Sent` reports room, but no event reports a free page, so the application retries.
                if station.tcp.room(session) > 0 {
                    app.write_at = now + Duration::from_millis(1);
                }
                break;
            }
            moved = true;
            app.written += count;
            app.write_at = now + app.role.write_every;
        }
        let may_finish = app.written == app.role.bytes
            && (app.role.finish == Finish::Written || app.peer_finished)
            && app.opened;
        if may_finish && !app.finished {
            app.finished = true;
            app.page = None;
            station.tcp.finish(session).map_err(|refusal| format!("{now:?}: finish: {refusal}"))?;
            moved = true;
        }
        Ok(moved)
    }

    /// Reads received data, as fast as the role allows.
    fn read(&mut self, side: usize, number: usize) -> Result<bool, String> {
        let now = self.now;
        let app = &self.apps[number][side];
        let stopped = app.got.len() >= app.role.stop_reading_at && now < app.role.read_again_at;
        if app.waiting.is_empty() || app.read_at > now || stopped {
            return Ok(false);
        }
        let app = &mut self.apps[number][side];
        let mut left = app.role.read_max.min(match app.role.stop_reading_at {
            stop if now < app.role.read_again_at => stop - app.got.len(),
            _ => usize::MAX,
        });
        let mut count = 0;
        while left > 0
            && let Some(slice) = app.waiting.front()
        {
            let bytes = slice.bytes();
            let part = (bytes.len() - app.taken).min(left);
            app.got.extend_from_slice(&bytes[app.taken..app.taken + part]);
            (app.taken, left, count) = (app.taken + part, left - part, count + part);
            if app.taken == slice.len() {
                app.taken = 0;
                app.waiting.pop_front();
            }
        }
        app.read_at = now + app.role.read_every;
        let (from, to) = (app.got.len() - count, app.got.len());
        let session = app.session.expect("bytes came for a session");
        let gone = app.gone.is_some();
        let sent = &self.apps[number][1 - side].stream;
        let got = &self.apps[number][side].got;
        if sent.get(from..to) != Some(&got[from..to]) {
            return Err(format!("{now:?}: conversation {number}: the stream is damaged in {from}..{to}"));
        }
        if to == sent.len() {
            self.apps[number][side].complete_at = Some(now);
        }
        if !gone {
            let station = &mut self.stations[side];
            station.with(now, |tcp, cx, out| tcp.consume(session, count as u32, cx, out));
        }
        Ok(true)
    }

    /// Checks, once nothing more happens, that all work is done.
    fn check_end(&mut self) -> Result<(), String> {
        for (number, apps) in self.apps.iter().enumerate() {
            for (side, app) in apps.iter().enumerate() {
                if app.gone != Some(self.ends_as) {
                    return Err(format!(
                        "{:?}: idle while work waits: conversation {number}, station {side}, gone {:?}, peer {:?}, \
                         wrote {} of {}, got {}: {}",
                        self.now,
                        app.gone,
                        apps[1 - side].gone,
                        app.written,
                        app.role.bytes,
                        app.got.len(),
                        self.describe()
                    ));
                }
                if self.ends_as == Reason::Closed && app.got != apps[1 - side].stream {
                    return Err(format!("conversation {number}, station {side}: the stream is not whole"));
                }
            }
        }
        for side in 0..2 {
            let station = &mut self.stations[side];
            if station.tcp.sessions() > 0 {
                return Err(format!("station {side} still has {} sessions", station.tcp.sessions()));
            }
            if !station.memory.is_all_free() {
                return Err(format!("station {side}: memory has not come home"));
            }
        }
        Ok(())
    }

    pub(crate) fn describe(&self) -> String {
        let infos: Vec<_> =
            self.stations.iter().map(|station| station.tcp.infos().collect::<Vec<_>>()).collect();
        format!("{infos:?}")
    }
}
