//! The questions that plans may ask, and those that a command of their own asks ([`Question::asked_by`]).

mod atm_board;
mod parameters;
mod wide_area;

use super::question::Question;
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
