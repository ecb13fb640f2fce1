//! The questions that plans may ask, and those that a command of their own asks ([`Question::asked_by`]).

mod atm_board;
mod wide_area;

use super::Value;
use super::point::Point;
use super::question::{Failure, Parameter, Question};
use std::sync::LazyLock;

static QUESTIONS: LazyLock<Vec<Box<dyn Question + Send>>> = LazyLock::new(|| {
    vec![
        Box::new(wide_area::WideArea::new()),
        Box::new(atm_board::AtmBoard::new()),
        Box::new(crate::mix::Policing),
        Box::new(crate::net::Network::DESCRIPTION),
    ]
});

/// All of them.
pub fn all() -> Vec<&'static dyn Question> {
    QUESTIONS.iter().map(|question| &**question as &dyn Question).collect()
}

/// The one of a name.
pub fn find(name: &str) -> Option<&'static dyn Question> {
    all().into_iter().find(|question| question.name() == name)
}

/// What to say of a name that none has.
pub fn nearest(name: &str) -> String {
    let questions = all();
    let names: Vec<&str> = questions.iter().map(|question| question.name()).collect();
    crate::nearest::nearest(name, &names)
}

fn parameter(name: &'static str, what: &'static str, default: Value) -> Parameter {
    Parameter { name, what, default: Some(default) }
}

/// A count between two others.
fn within(point: &Point, name: &str, least: u64, most: u64) -> Result<u64, Failure> {
    let count = point.count(name).filter(|count| (least..=most).contains(count));
    count.ok_or_else(|| Failure::Impossible(format!("{name} has to lie between {least} and {most}")))
}

/// A word that is one of some.
fn one_of<'a>(point: &'a Point, name: &str, words: &[&str]) -> Result<&'a str, Failure> {
    let word = point.word(name).filter(|word| words.contains(word));
    word.ok_or_else(|| Failure::Impossible(format!("{name} is one of {}", words.join(", "))))
}
