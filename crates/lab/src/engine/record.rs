//! What is kept of a trial: one line of JSON.

use super::point::Point;
use crate::environment::Environment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One trial. The order of the fields is that of the line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The hash of question, version, point and seed, and in real time of the repetition: by it a trial is
    /// known.
    pub key: String,
    /// Which question.
    pub question: String,
    /// Of which point.
    pub point: Point,
    /// The how manieth time, from 0.
    pub repetition: u32,
    /// The seed.
    pub seed: u64,
    /// The version of kiban that made it.
    pub version: String,
    /// Where it was made; nothing in virtual time, which is the same everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
    /// What came out.
    pub metrics: BTreeMap<String, f64>,
    /// What explains it.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub evidence: serde_json::Value,
    /// Processors that others used meanwhile, if it was more than is allowed and every repeat was as bad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_cores: Option<f64>,
}
