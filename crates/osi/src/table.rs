//! State tables in the form in which the standards print them, for the tests that check every cell.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The contents of a cell, given the predicates: outgoing events and actions in order, then the next state.
pub(super) type Outcome = Option<(Vec<String>, String)>;

/// Evaluates a cell. Branches are separated by `;`. Each branch has the form `predicates : actions state`,
/// where predicates are joined by `&` and negated by `!`. The first branch whose predicates hold is returned;
/// the test must check that no two different branches hold.
pub(super) fn evaluate(cell: &str, holds: &mut dyn FnMut(&str) -> bool) -> Outcome {
    let mut found: Outcome = None;
    for branch in cell.split(';').map(str::trim).filter(|branch| !branch.is_empty()) {
        let (condition, list) = branch.split_once(':').unwrap_or(("", branch));
        let mut true_for_all = true;
        for predicate in condition.split('&').map(str::trim).filter(|predicate| !predicate.is_empty()) {
            true_for_all &= match predicate.strip_prefix('!') {
                Some(negated) => !holds(negated),
                None => holds(predicate),
            };
        }
        if true_for_all {
            let mut words: Vec<String> = list.split_whitespace().map(str::to_string).collect();
            let state = words.pop().expect("a branch ends with a state");
            assert!(found.is_none(), "two branches hold in {cell}");
            found = Some((words, state));
        }
    }
    found
}
