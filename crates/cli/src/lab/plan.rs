//! Reads plans from files.

use kiban_lab::engine::{Plan, Question, questions as known};
use std::path::{Path, PathBuf};

/// Reads a plan and validates its points.
pub(super) fn plan(path: &Path) -> Result<(Plan, &'static dyn Question), String> {
    let (plan, question) = parse_plan(path)?;
    validate(path, &plan, question)?;
    Ok((plan, question))
}

/// Checks that every point of a plan is possible. It examines each point, so a plan with millions of points
/// takes some time.
pub(super) fn validate(path: &Path, plan: &Plan, question: &dyn Question) -> Result<(), String> {
    plan.validate(question).map_err(|what| format!("the plan {}: {what}", path.display()))
}

/// Reads a plan without validating its points.
pub(super) fn parse_plan(path: &Path) -> Result<(Plan, &'static dyn Question), String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the plan {}: {error}", path.display()))?;
    let plan = Plan::read(&text, &known::all()).map_err(|errors| {
        if let Some(hint) = super::net::hosts_hint(path, &text) {
            return hint;
        }
        let lines: Vec<String> = errors.iter().map(|error| format!("  {error}")).collect();
        format!("the plan {} is invalid:\n{}", path.display(), lines.join("\n"))
    })?;
    let question = known::find(&plan.question).expect("a plan is read for a known question");
    if let Some(command) = question.own_command() {
        return Err(format!("the plan {}: {} can only be run by '{command}'", path.display(), plan.question));
    }
    Ok((plan, question))
}

/// Returns the plan's name with another suffix, as a path in the working directory.
pub(super) fn folder(plan: &Path, ending: &str) -> PathBuf {
    let stem = plan.file_stem().map_or("plan".into(), |stem| stem.to_string_lossy().into_owned());
    PathBuf::from(stem + ending)
}
