//! Two stations, each with LAPB and an X.25 packet layer, joined by a line with a data rate, a delay and
//! random impairments.

use kiban_base::{Instant, Rope, SimRng};
use kiban_osi::lapb::{self, Link};
use kiban_osi::wire::lapb::{Modulo, line_bits};
use kiban_osi::x25::{Below, Config, Layer, Role, Sizes};
use std::collections::VecDeque;
use std::time::Duration;

/// Properties of the line.
#[derive(Clone, Copy)]
pub(crate) struct Quality {
    pub(crate) bits_per_second: u64,
    pub(crate) delay: Duration,
    /// Number of frames lost per thousand. As many are duplicated.
    pub(crate) impairment: u64,
}

pub(crate) struct Station {
    pub(crate) link: Link,
    pub(crate) layer: Layer,
    /// Frames in transit from this station, with their arrival times.
    flying: VecDeque<(Instant, Rope)>,
    free_at: Instant,
    chance: SimRng,
}

pub(crate) struct World {
    pub(crate) stations: [Station; 2],
    pub(crate) now: Instant,
    pub(crate) quality: Quality,
    /// If set, records every frame sent, with the number of the station that sent it.
    pub(crate) tape: Option<Vec<(usize, Vec<u8>)>>,
}

impl World {
    pub(crate) fn new(modulo: Modulo, sizes: Sizes, quality: Quality, seed: u64) -> World {
        let station = |role, seed| {
            let window = modulo.mask();
            let link = lapb::Config {
                modulo,
                window: window.min(32),
                reply_timeout: Duration::from_millis(300),
                attempts_max: 30,
                queue_frames_max: 32,
                ..lapb::Config::new(role)
            };
            let layer = Config { modulo, default: sizes, window_max: window, ..Config::new(role) };
            Station {
                link: Link::new(link),
                layer: Layer::new(layer),
                flying: VecDeque::new(),
                free_at: Instant::ZERO,
                chance: SimRng::from_seed(seed),
            }
        };
        let mut stations = [station(Role::Dte, seed * 2), station(Role::Dce, seed * 2 + 1)];
        stations[0].link.request(lapb::Request::Connect).expect("it is down");
        World { stations, now: Instant::ZERO, quality, tape: None }
    }

    /// Moves packets between the layers of each station and frames onto the line, then advances the time to
    /// the next event.
    pub(crate) fn step(&mut self) {
        let now = self.now;
        let mut next = now + Duration::from_secs(1);
        for (number, station) in self.stations.iter_mut().enumerate() {
            while let Some(indication) = station.link.poll_up() {
                let below = match indication {
                    lapb::Indication::Connected | lapb::Indication::Reset => Below::Up,
                    lapb::Indication::Data(packet) => Below::Data(packet),
                    lapb::Indication::Disconnected(_) => Below::Down,
                };
                station.layer.arrive(below, now);
            }
            loop {
                // At most one packet waits, so that its P(R) is current.
                while station.link.room() > 0
                    && station.link.unsent() == 0
                    && let Some(packet) = station.layer.poll_down()
                {
                    station.link.request(lapb::Request::Data(packet)).expect("there is room");
                }
                if station.free_at > now {
                    break;
                }
                let Some(frame) = station.link.poll_down(now) else { break };
                let bits = line_bits(frame.len()) as u64;
                station.free_at =
                    now + Duration::from_nanos(bits * 1_000_000_000 / self.quality.bits_per_second);
                if let Some(tape) = &mut self.tape {
                    tape.push((number, frame.to_vec()));
                }
                let there = station.free_at + self.quality.delay;
                let dice = station.chance.below(1000);
                if dice >= self.quality.impairment {
                    station.flying.push_back((there, frame.clone()));
                }
                if (self.quality.impairment..self.quality.impairment * 2).contains(&dice) {
                    station.flying.push_back((there, frame));
                }
            }
            let dues = [
                station.flying.front().map_or(Instant::NEVER, |(there, _)| *there),
                if station.free_at > now { station.free_at } else { Instant::NEVER },
                station.link.deadline(),
                station.layer.deadline(),
            ];
            next = dues.into_iter().fold(next, Instant::min);
        }
        self.now = next.max(now);
        for number in 0..2 {
            while let Some((there, _)) = self.stations[number].flying.front()
                && *there <= self.now
            {
                let (_, frame) = self.stations[number].flying.pop_front().expect("there is one");
                self.stations[1 - number].link.arrive(frame, self.now);
            }
        }
        for station in &mut self.stations {
            station.link.settle(self.now);
            station.layer.settle(self.now);
        }
    }
}
