//! The record of a trial: one line of JSON.

use crate::engine::point::Point;
use crate::environment::Environment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One trial. The order of the fields is that of the JSON line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The key of the trial: the hash of question, version, point, seed and, in real time, repetition.
    pub key: String,
    /// The name of the question.
    pub question: String,
    /// The parameter values.
    pub point: Point,
    /// The number of the repetition, starting at 0.
    pub repetition: u32,
    /// The seed.
    pub seed: u64,
    /// The version of kiban that ran the trial.
    pub version: String,
    /// The machine of a real-time trial; `None` in virtual time, where results do not depend on the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
    /// When a real-time trial ended, in seconds since 1970-01-01 UTC; `None` in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_at: Option<u64>,
    /// The values of the metrics by name.
    pub metrics: BTreeMap<String, f64>,
    /// Data that explains the values.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub evidence: serde_json::Value,
    /// Foreign load in cores, if it exceeded the limit in every attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_cores: Option<f64>,
}
