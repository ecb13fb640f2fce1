//! A toy question whose trials take no time, and plans for it.
#![allow(dead_code, reason = "each test file uses its part of it")]

use kiban_lab::engine::{
    Failure, Manifest, Metric, Metrics, Parameter, Plan, Point, Question, Run, Shard, Time, Value,
};
use kiban_lab::heat::Best;
use std::sync::Mutex;

/// A question that returns the sum of two parameters and the seed. A test can make its trials fail.
pub(crate) struct Toy {
    pub(crate) time: Time,
    pub(crate) parameters: Vec<Parameter>,
    /// The trials that were requested, in order.
    pub(crate) asked: Mutex<Vec<(Point, u64)>>,
    /// An amount that is added to every sum, to simulate another build of the same version.
    pub(crate) build: f64,
    /// The number of trials that fail with [`Failure::Lost`], at the start or after `spared` successes.
    pub(crate) lost: Mutex<u32>,
    /// The number of trials that succeed before the failures begin.
    pub(crate) spared: Mutex<u32>,
}

impl Toy {
    pub(crate) fn new(time: Time) -> Toy {
        let parameter = |name, default| Parameter { name, what: "for tests", default };
        let parameters = vec![
            parameter("across", Some(Value::Count(1))),
            parameter("down", Some(Value::Figure(0.5))),
            parameter("nodelay", Some(Value::Flag(false))),
            parameter("word", None),
        ];
        Toy {
            time,
            parameters,
            asked: Mutex::default(),
            build: 0.0,
            lost: Mutex::new(0),
            spared: Mutex::new(0),
        }
    }

    pub(crate) fn lose_after(&self, trials: u32) {
        *self.spared.lock().expect("no test panics in between") = trials;
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.lock().expect("no test panics in between").len()
    }

    pub(crate) fn plan(&self, text: &str) -> Plan {
        Plan::read(text, &[self]).expect("the plan is good")
    }

    /// Opens a run in a directory.
    pub(crate) fn open(&self, dir: &std::path::Path, text: &str, shard: Shard) -> Run {
        Run::open(dir, self.manifest(text, shard)).expect("the folder is free")
    }

    pub(crate) fn manifest(&self, text: &str, shard: Shard) -> Manifest {
        Manifest::new(self.time(), self.plan(text), shard)
    }
}

impl Question for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn what(&self) -> &'static str {
        "How much is it together?"
    }

    fn time(&self) -> Time {
        self.time
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn metrics(&self) -> &[Metric] {
        &[
            Metric { name: "sum", what: "all together", unit: "Mbit/s", best: Best::High },
            Metric { name: "half", what: "half of it", unit: "ms", best: Best::Low },
        ]
    }

    fn validate(&self, point: &Point) -> Result<(), Failure> {
        match point.count("across") {
            Some(13) => Err(Failure::Impossible("across is never 13: take 12".into())),
            _ => Ok(()),
        }
    }

    fn trial(&self, point: &Point, seed: u64) -> Result<Metrics, Failure> {
        self.asked.lock().expect("no test panics in between").push((point.clone(), seed));
        let mut lost = self.lost.lock().expect("no test panics in between");
        let mut spared = self.spared.lock().expect("no test panics in between");
        if *spared > 0 {
            *spared -= 1;
        } else if *lost > 0 {
            *lost -= 1;
            return Err(Failure::Lost("the peer has gone".into()));
        }
        let (across, down) = (point.figure("across"), point.figure("down"));
        let (across, down) = (across.expect("a plan has it"), down.expect("a plan has it"));
        if across == 99.0 {
            return Err(Failure::Impossible("99 was not foreseen".into()));
        }
        if across == 98.0 {
            return Ok(Metrics { figures: [("sum".to_owned(), f64::NAN)].into(), ..Metrics::default() });
        }
        let sum = across + down + seed as f64 / 3.0 + self.build;
        let figures = [("sum".to_owned(), sum), ("half".to_owned(), sum / 2.0)].into();
        Ok(Metrics { figures, evidence: serde_json::json!({ "seed": seed }) })
    }
}
