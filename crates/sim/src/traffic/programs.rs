//! Traffic programs: when a source has data to send, and how much.
//!
//! Pictures  Motion-JPEG: one picture per 1/fps, each coded independently. A scene lasts 0.5 to 1.5 times
//!           `scene`, and its rate is drawn uniformly from one of the ranges. The pictures of a scene differ
//!           from this rate by up to `spread`; half of a picture's difference carries over to the next one.
//!           Ranges are rates on the line, as paper \[2\] gives them, including cell headers.
//! Composed  a conference server shows the pictures of several sources side by side, each reduced to its
//!           share of the area, and so of the octets. It uses the newest picture that has arrived from each
//!           source. A lost picture is not missed: the sizes are those that the sources sent.
//! Assumed   all of this except the ranges, because no traces of the lecture were published.
//! Exact     no maths library functions are called, so that a seed gives the same traffic on every machine.

use kiban_atm::wire::aal5;
use kiban_atm::wire::atm::CELL_BYTES;
use kiban_base::{Instant, SimRng};
use std::time::Duration;

/// An amount of data to be sent at a given time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// The time at which the data is passed to the sender.
    pub at: Instant,
    /// Its octets.
    pub octets: usize,
}

/// Returns how many octets can be sent as frames of at most `frame_octets_max` if their cells take about
/// `bits` on the line.
pub fn line_octets(bits: f64, frame_octets_max: usize) -> usize {
    let frame_cells = aal5::cells(frame_octets_max);
    let cells = (bits / (CELL_BYTES * 8) as f64).round().max(1.0) as usize;
    let (whole, rest) = (cells / frame_cells, cells % frame_cells);
    whole * frame_octets_max + (rest * 48).saturating_sub(aal5::TRAILER_BYTES)
}

/// A source of equal amounts of data at equal intervals, such as audio without silence suppression.
#[derive(Clone, Debug)]
pub struct Periodic {
    next: Instant,
    period: Duration,
    octets: usize,
}

impl Periodic {
    /// Creates a source of `octets` octets per period, which first sends at a random time within the first
    /// period.
    pub fn new(period: Duration, octets: usize, rng: &mut SimRng) -> Periodic {
        Periodic { next: Instant::ZERO + phase(period, rng), period, octets }
    }
}

impl Iterator for Periodic {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        let at = self.next;
        self.next += self.period;
        Some(Unit { at, octets: self.octets })
    }
}

/// Occasional data of varying length: a lecture's control data.
#[derive(Clone, Debug)]
pub struct Sporadic {
    next: Instant,
    mean: Duration,
    octets: usize,
    rng: SimRng,
}

impl Sporadic {
    /// Creates a source of up to twice `octets`, at intervals of up to twice `mean`.
    pub fn new(mean: Duration, octets: usize, mut rng: SimRng) -> Sporadic {
        Sporadic { next: Instant::ZERO + phase(mean, &mut rng), mean, octets, rng }
    }
}

impl Iterator for Sporadic {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        let at = self.next;
        self.next += phase(2 * self.mean, &mut self.rng);
        let octets = 1 + self.rng.below(2 * self.octets as u64) as usize;
        Some(Unit { at, octets })
    }
}

/// Motion-JPEG.
#[derive(Clone, Debug)]
pub struct JpegConfig {
    /// Pictures per second.
    pub pictures_per_second: u32,
    /// Ranges for the rates of scenes, bit/s on the line. The rate of each scene lies in one of them.
    pub ranges: Vec<(f64, f64)>,
    /// The average length of a scene.
    pub scene: Duration,
    /// Maximum difference of a picture from the average of its scene, as a fraction.
    pub spread: f64,
    /// Maximum number of octets in a frame.
    pub frame_octets_max: usize,
}

/// Motion-JPEG pictures.
#[derive(Clone, Debug)]
pub struct Jpeg {
    config: JpegConfig,
    rng: SimRng,
    begin: Instant,
    picture: u64,
    range: (f64, f64),
    level: f64,
    scene_until: Instant,
    drift: f64,
    /// The sources whose pictures a server composes, and whether it does so in this scene.
    parts: Vec<Part>,
    composes: bool,
}

/// A source of a server's composed pictures.
#[derive(Clone, Debug)]
struct Part {
    pictures: Jpeg,
    /// How long its pictures take to the server.
    delay: Duration,
    /// Octets of the picture that has arrived last.
    newest: usize,
    /// The picture after that.
    next: Option<Unit>,
}

impl Part {
    /// Returns the octets of the picture that has arrived last at a time.
    fn octets(&mut self, at: Instant) -> usize {
        loop {
            let next = self.next.take().or_else(|| self.pictures.next());
            match next {
                Some(unit) if unit.at + self.delay <= at => self.newest = unit.octets,
                later => {
                    self.next = later;
                    return self.newest;
                }
            }
        }
    }
}

impl Jpeg {
    /// Creates a source of pictures, the first at a random time within the first period.
    ///
    /// # Panics
    /// If there is no range, or `fps` is zero.
    pub fn new(config: JpegConfig, rng: SimRng) -> Jpeg {
        Jpeg::server(config, Vec::new(), rng)
    }

    /// Creates the pictures of a server: in some scenes a picture of its own, with a rate from the ranges, in
    /// the others one that is composed of the pictures of `parts`, which take the given time to the server.
    ///
    /// # Panics
    /// If there are neither ranges nor parts, or `fps` is zero.
    pub fn server(config: JpegConfig, parts: Vec<(Jpeg, Duration)>, mut rng: SimRng) -> Jpeg {
        let has_pictures = !config.ranges.is_empty() || !parts.is_empty();
        assert!(has_pictures && config.pictures_per_second > 0, "pictures, and a rate for them");
        let begin = Instant::ZERO + phase(Duration::from_secs(1) / config.pictures_per_second, &mut rng);
        let range = config.ranges.first().copied().unwrap_or_default();
        let scene_until = Instant::ZERO;
        let part = |(pictures, delay)| Part { pictures, delay, newest: 0, next: None };
        let parts = parts.into_iter().map(part).collect();
        let (level, drift, composes) = (0.0, 0.0, false);
        Jpeg { config, rng, begin, picture: 0, range, level, scene_until, drift, parts, composes }
    }

    fn change_scene(&mut self, at: Instant) {
        let ranges = &self.config.ranges;
        let kinds = ranges.len() + usize::from(!self.parts.is_empty());
        let kind = self.rng.below(kinds as u64) as usize;
        self.composes = kind == ranges.len();
        self.range = ranges.get(kind).copied().unwrap_or_default();
        self.level = self.range.0 + self.rng.unit() * (self.range.1 - self.range.0);
        let part = 0.5 + self.rng.unit();
        self.scene_until = at + self.config.scene.mul_f64(part);
    }
}

impl Iterator for Jpeg {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        let rate = u64::from(self.config.pictures_per_second);
        let at = self.begin + Duration::from_nanos(self.picture * 1_000_000_000 / rate);
        self.picture += 1;
        if at >= self.scene_until {
            self.change_scene(at);
        }
        let fresh = (2.0 * self.rng.unit() - 1.0) * self.config.spread;
        self.drift = (self.drift + fresh) / 2.0;
        let level = (self.level * (1.0 + self.drift)).clamp(self.range.0, self.range.1);
        let composed = self.parts.iter_mut().map(|part| part.octets(at)).sum::<usize>();
        let octets = match self.composes {
            true => (composed / self.parts.len()).max(1),
            false => line_octets(level / rate as f64, self.config.frame_octets_max),
        };
        Some(Unit { at, octets })
    }
}

/// Returns a random time within a period.
fn phase(period: Duration, rng: &mut SimRng) -> Duration {
    Duration::from_nanos(rng.below(period.as_nanos() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_sizes_stay_in_range_and_scenes_differ() {
        let config = JpegConfig {
            pictures_per_second: 30,
            ranges: vec![(2.1e6, 5.5e6), (0.4e6, 1.7e6)],
            scene: Duration::from_secs(5),
            spread: 0.2,
            frame_octets_max: 9180,
        };
        let units: Vec<Unit> = Jpeg::new(config.clone(), SimRng::from_seed(2)).take(30 * 200).collect();
        let rate = |unit: &Unit| {
            let frames = unit.octets / 9180;
            let cells = frames * aal5::cells(9180) + aal5::cells(unit.octets % 9180);
            (cells * 424) as f64 * 30.0
        };
        let rates: Vec<f64> = units.iter().map(rate).collect();
        // Each rate is rounded to whole cells; at 30 pictures per second, one more cell per picture is 12,720
        // bit/s.
        assert!(rates.iter().all(|rate| (0.38e6..5.52e6).contains(rate)));
        let seconds: Vec<f64> = rates.chunks(30).map(|second| second.iter().sum::<f64>() / 30.0).collect();
        assert!(seconds.iter().any(|rate| *rate > 4.5e6) && seconds.iter().any(|rate| *rate < 0.8e6));
        assert!(units.windows(2).all(|pair| pair[0].at < pair[1].at));
        assert_eq!(units[0].at + Duration::from_secs(1), units[30].at);
        let again: Vec<Unit> = Jpeg::new(config, SimRng::from_seed(2)).take(30 * 200).collect();
        assert_eq!(units, again);
    }

    #[test]
    fn a_server_composes_the_newest_pictures_that_have_arrived() {
        let config = |low: f64, high: f64| JpegConfig {
            pictures_per_second: 30,
            ranges: vec![(low, high)],
            scene: Duration::from_secs(5),
            spread: 0.0,
            frame_octets_max: 9180,
        };
        let sources: Vec<Jpeg> =
            (1..=4).map(|number| Jpeg::new(config(0.1e6, 2.0e6), SimRng::from_seed(number))).collect();
        let late = Duration::from_millis(40);
        let parts = sources.iter().map(|source| (source.clone(), late)).collect();
        let server = JpegConfig { ranges: Vec::new(), ..config(0.0, 0.0) };
        let composed: Vec<Unit> = Jpeg::server(server, parts, SimRng::from_seed(9)).take(300).collect();
        for unit in &composed[3..] {
            let newest = |source: &Jpeg| {
                let arrived = source.clone().take_while(|sent| sent.at + late <= unit.at);
                arrived.last().expect("pictures have arrived").octets
            };
            assert_eq!(unit.octets, sources.iter().map(newest).sum::<usize>() / 4);
        }
        // With ranges, only some of the scenes are composed.
        let parts = sources.into_iter().map(|source| (source, late)).collect();
        let rates = Jpeg::server(config(5e6, 5.5e6), parts, SimRng::from_seed(9)).take(1000);
        let (own, composed): (Vec<Unit>, Vec<Unit>) = rates.partition(|unit| unit.octets > 15_000);
        assert!(own.len() > 100 && composed.len() > 100, "{} {}", own.len(), composed.len());
    }

    #[test]
    fn octets_for_a_rate_fill_its_cells() {
        for (bits, expected) in [(424.0, 1), (424.0 * 14.0, 14), (424.0 * 192.0, 192), (424.0 * 500.0, 500)] {
            let octets = line_octets(bits, 9180);
            let cells = octets / 9180 * aal5::cells(9180)
                + octets.checked_rem(9180).filter(|rest| *rest > 0).map_or(0, aal5::cells);
            assert_eq!(cells, expected, "{octets}");
        }
    }
}
