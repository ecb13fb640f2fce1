//! The list of all questions, and look-up by name.

use super::super::question::Question;
use super::atm_board;
use super::osi_board;
use super::wide_area;
use std::sync::LazyLock;

static QUESTIONS: LazyLock<Vec<Box<dyn Question + Send>>> = LazyLock::new(|| {
    vec![
        Box::new(wide_area::WideArea::new()),
        Box::new(atm_board::AtmBoard::new()),
        Box::new(osi_board::OsiBoard::new()),
        Box::new(crate::mix::Policing),
        Box::new(crate::net::Network::DESCRIPTION),
    ]
});

/// Returns all questions.
pub fn all() -> Vec<&'static dyn Question> {
    QUESTIONS.iter().map(|question| &**question as &dyn Question).collect()
}

/// Returns the question with this name.
pub fn find(name: &str) -> Option<&'static dyn Question> {
    all().into_iter().find(|question| question.name() == name)
}

/// Returns a hint for an unknown question name.
pub fn suggest(name: &str) -> String {
    let questions = all();
    let names: Vec<&str> = questions.iter().map(|question| question.name()).collect();
    crate::nearest::suggest(name, &names)
}
