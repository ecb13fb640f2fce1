//! `kiban lab questions`: lists and describes questions.

use clap::Args;
use kiban_lab::Table;
use kiban_lab::engine::{Question, Time, Value, questions};
use serde_json::json;
use std::process::ExitCode;

/// List the questions available to plans, or describe one.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab questions                 list all\
        \n  kiban lab questions wide-area-atm   parameters, metrics and an example plan")]
pub(super) struct Questions {
    /// Name of the question.
    name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Questions {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let all = questions::all();
        let chosen: Vec<&dyn Question> = match &self.name {
            None => all,
            Some(name) => vec![
                questions::find(name)
                    .ok_or_else(|| format!("unknown question '{name}'; {}", questions::suggest(name)))?,
            ],
        };
        if self.json {
            let objects: Vec<serde_json::Value> = chosen.iter().map(|question| object(*question)).collect();
            super::output::json(&objects)?;
        } else if self.name.is_some() {
            chosen.iter().try_for_each(|question| crate::output::print(&page(*question)))?;
        } else {
            let mut table = Table::new("").text_column("question").text_column("time").text_column("what");
            for question in chosen {
                table.row([question.name(), time(question), question.what()]);
            }
            crate::output::print(&table.to_string())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn time(question: &dyn Question) -> &'static str {
    match question.time() {
        Time::Virtual => "virtual",
        Time::Real => "real",
    }
}

fn page(question: &dyn Question) -> String {
    let title = format!("{}: {} ({} time)", question.name(), question.what(), time(question));
    let mut parameters =
        Table::new(title).text_column("parameter").text_column("default").text_column("what");
    for parameter in question.parameters() {
        let default = parameter.default.as_ref().map_or("required".to_owned(), Value::to_string);
        parameters.row([parameter.name, &default, parameter.what]);
    }
    let mut metrics = Table::new("").text_column("metric").text_column("unit").text_column("what");
    for metric in question.metrics() {
        metrics.row([metric.name, metric.unit, metric.what]);
    }
    let how = match question.own_command() {
        Some(command) => format!("It is run by '{command}'.\n"),
        None => format!("An example plan:\n\n{}", example_plan(question)),
    };
    format!("{parameters}\n{metrics}\n{how}")
}

/// Returns an example plan with all defaults.
fn example_plan(question: &dyn Question) -> String {
    let line = |parameter: &kiban_lab::engine::Parameter| {
        let value = match &parameter.default {
            Some(Value::Word(word)) => format!("\"{word}\""),
            Some(value) => value.to_string(),
            None => "\"\"".to_owned(),
        };
        format!("{} = {value}\n", parameter.name)
    };
    let parameters: String = question.parameters().iter().map(line).collect();
    format!("question = \"{}\"\n\n[parameters]\n{parameters}", question.name())
}

fn object(question: &dyn Question) -> serde_json::Value {
    let parameters = question.parameters().iter().map(
        |parameter| json!({ "name": parameter.name, "what": parameter.what, "default": parameter.default }),
    );
    let metrics = question
        .metrics()
        .iter()
        .map(|metric| json!({ "name": metric.name, "what": metric.what, "unit": metric.unit }));
    json!({
        "name": question.name(),
        "what": question.what(),
        "time": time(question),
        "asked_by": question.own_command(),
        "parameters": parameters.collect::<Vec<_>>(),
        "metrics": metrics.collect::<Vec<_>>(),
    })
}
