//! Summaries, figures and reports, computed from records alone.

mod engine_common;

use engine_common::Toy;
use kiban_lab::engine::{Options, Question, Report, Shard, Time, Value, sweep};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::record::Field;
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::{TempDir, tempdir};

fn made(toy: &Toy, plan: &str) -> TempDir {
    let dir = tempdir().expect("a folder");
    let run = toy.open(dir.path(), plan, Shard::ALL);
    let options = Options { retries_max: 0, ..Options::default() };
    sweep(toy, &run, None, &options, &|_| {}).expect("it can be created");
    dir
}

fn report(dir: &Path) -> Report {
    let toy = Toy::new(Time::Virtual);
    Report::of(dir, toy.metrics()).expect("it can be read").expect("there are records")
}

fn plan(parameters: &str) -> String {
    format!("question = \"toy\"\nseeds = [1, 2, 3, 4, 5, 6]\n[parameters]\n{parameters}")
}

#[test]
fn a_point_has_the_median_of_its_seeds_and_a_confidence_interval() {
    let dir = made(&Toy::new(Time::Virtual), &plan("word = \"a\"\nacross = [10, 2]"));
    let report = report(dir.path());
    let summary = &report.summary;
    assert_eq!((summary.rows.len(), summary.disturbed(), report.trials, report.records), (2, 0, 12, 12));
    // The values are in ascending order, not in the order of the plan.
    assert_eq!(summary.varying["across"], [Value::Count(2), Value::Count(10)]);
    assert_eq!(summary.fixed.to_string(), "down=0.5 nodelay=false word=a");
    let spread = &summary.rows[0].metrics["sum"];
    let sum = |seed: f64| 2.0 + 0.5 + seed / 3.0;
    assert_eq!((spread.count, spread.min, spread.max), (6, sum(1.0), sum(6.0)));
    assert!((spread.median - sum(3.5)).abs() < 1e-12);
    let interval = spread.interval.expect("six are enough");
    assert_eq!((interval.low, interval.high, interval.confidence), (sum(1.0), sum(6.0), 0.96875));
    let table = summary.table().to_string();
    assert!(
        table.contains("constant: down: 0.5; nodelay: false; word: a") && table.contains("3.67 "),
        "{table}"
    );
}

#[test]
fn a_summary_in_comma_separated_values_has_all_parameters_and_statistics() {
    let dir = made(&Toy::new(Time::Virtual), &plan("word = \"a,b\"\nacross = [10, 2]"));
    let text = report(dir.path()).summary.csv(Toy::new(Time::Virtual).metrics());
    let lines: Vec<&str> = text.lines().collect();
    // Two points with two metrics.
    assert_eq!(lines.len(), 5, "{text}");
    assert_eq!(
        lines[0],
        "across,down,nodelay,word,metric,unit,count,disturbed,min,lower_quartile,median,upper_quartile,max,\
         interval_low,interval_high,confidence"
    );
    let sum = lines.iter().find(|line| line.starts_with("2,0.5,false,\"a,b\",sum,Mbit/s,6,0,")).expect(&text);
    assert!(sum.ends_with(",0.96875"), "{sum}");
    let median: f64 = sum.split(',').nth(11).expect("a median").parse().expect("a number");
    assert!((median - (2.5 + 3.5 / 3.0)).abs() < 1e-10 && sum.contains(",3.66666666667,"), "{sum}");
}

#[test]
fn a_summary_in_parquet_has_the_columns_of_the_csv_with_types() {
    let parameters = "word = \"a\"\nacross = [10, 2]\ndown = [0.5, 100]\nnodelay = [false, true]";
    let dir = made(&Toy::new(Time::Virtual), &plan(parameters));
    let (report, toy) = (report(dir.path()), Toy::new(Time::Virtual));
    let path = dir.path().join("summary.parquet");
    std::fs::write(&path, report.summary.parquet(toy.metrics())).expect("there is disk space");
    let reader = SerializedFileReader::try_from(path.as_path()).expect("a Parquet file");
    let (mut names, mut cells, mut kinds) = (Vec::new(), Vec::new(), BTreeMap::new());
    for row in reader.into_iter().map(|row| row.expect("a row")) {
        let (row_names, row_cells): (Vec<_>, Vec<_>) = row
            .get_column_iter()
            .map(|(name, cell)| {
                let (kind, text) = match cell {
                    Field::Bool(flag) => ("bool", flag.to_string()),
                    Field::Long(count) => ("long", count.to_string()),
                    Field::Double(figure) => ("double", figure.to_string()),
                    Field::Str(word) => ("text", word.clone()),
                    other => panic!("{name}: {other:?}"),
                };
                kinds.insert(name.clone(), kind);
                (name.clone(), text)
            })
            .unzip();
        names = row_names;
        cells.push(row_cells.join(","));
    }
    let csv = report.summary.csv(toy.metrics());
    assert_eq!(names.join(",") + "\n" + &cells.join("\n") + "\n", csv);
    for (name, expected) in
        [("across", "long"), ("down", "double"), ("nodelay", "bool"), ("word", "text"), ("unit", "text")]
    {
        assert_eq!(kinds[name], expected, "{name}");
    }
    assert_eq!((kinds["count"], kinds["median"], kinds["confidence"]), ("long", "double", "double"));
    // One trial has no interval.
    let dir = made(&Toy::new(Time::Virtual), "question = \"toy\"\n[parameters]\nword = \"a\"\nacross = 2");
    let path = dir.path().join("summary.parquet");
    std::fs::write(&path, self::report(dir.path()).summary.parquet(&[])).expect("there is disk space");
    let reader = SerializedFileReader::try_from(path.as_path()).expect("a Parquet file");
    let row = reader.into_iter().next().expect("a row").expect("it is whole");
    let missing = row.get_column_iter().filter(|(_, cell)| **cell == Field::Null);
    assert_eq!(
        missing.map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["interval_low", "interval_high", "confidence"]
    );
}

#[test]
fn two_varying_numbers_give_a_map_per_metric() {
    let dir = made(&Toy::new(Time::Virtual), &plan("word = \"a\"\nacross = [1, 2, 10]\ndown = [0.5, 100]"));
    let report = report(dir.path());
    let names: Vec<&str> = report.figures.pictures.iter().map(|picture| picture.name.as_str()).collect();
    assert_eq!(names, ["sum", "half"], "the question's first metric comes first");
    let picture = &report.figures.pictures[0];
    assert_eq!(picture.title, "All together, Mbit/s");
    assert!(
        picture.text.starts_with("All together, Mbit/s\nrows: across; columns: down\n"),
        "{}",
        picture.text
    );
    assert_eq!(picture.svg().matches("<rect").count(), 6);
    // The values are medians over six seeds: 1 + 0.5 + 3.5 / 3 = 2.7 has the lowest shade, 1 + 100 + 3.5 / 3
    // = 102.2 the highest.
    assert!(picture.text.contains(" 1  ·  2.7  █102.2\n"), "{}", picture.text);
    assert!(picture.text.contains("10  · 11.7  █111.2\n"), "{}", picture.text);
}

#[test]
fn varying_words_give_one_map_each() {
    let dir = made(
        &Toy::new(Time::Virtual),
        &plan("word = [\"b\", \"a\"]\nnodelay = [true, false]\nacross = [1, 2]\ndown = [0.5, 1]"),
    );
    let report = report(dir.path());
    let titles: Vec<&str> = report.figures.pictures.iter().map(|picture| picture.title.as_str()).collect();
    assert_eq!(titles.len(), 8);
    assert_eq!(titles[0], "All together, Mbit/s (nodelay: false; word: a)");
    assert!(titles[3].ends_with("(nodelay: true; word: b)"), "{titles:?}");
    assert!(report.figures.pictures[0].text.ends_with("one scale for all 4 maps of this measure\n"));
    assert_eq!(report.figures.pictures[3].name, "sum-04");
}

#[test]
fn one_varying_number_gives_curves() {
    let dir = made(&Toy::new(Time::Virtual), &plan("word = [\"a\", \"b\"]\nacross = [1, 2, 400]"));
    let report = report(dir.path());
    let picture = &report.figures.pictures[0];
    assert_eq!(
        (picture.title.as_str(), report.figures.pictures.len()),
        ("All together, Mbit/s, by across", 2)
    );
    assert_eq!(picture.svg().matches("<polyline").count(), 2);
    assert!(
        picture.svg().contains(">word: b</text>") && picture.svg().contains(">100</text>"),
        "decades across"
    );
    assert!(picture.text.contains("   400      402      402"), "{}", picture.text);
}

#[test]
fn words_alone_or_a_single_point_give_no_figure() {
    for parameters in ["word = [\"a\", \"b\"]", "word = \"a\""] {
        let dir = made(&Toy::new(Time::Virtual), &plan(parameters));
        assert!(report(dir.path()).figures.pictures.is_empty(), "{parameters}");
    }
}

#[test]
fn a_report_is_reproducible() {
    let dir = made(&Toy::new(Time::Virtual), &plan("word = \"a\"\nacross = [1, 2]\ndown = [1, 2]"));
    let to = dir.path().join("report");
    let files = report(dir.path()).write(&to).expect("it can be written");
    let read =
        || files.iter().map(|file| std::fs::read_to_string(file).expect("it is there")).collect::<Vec<_>>();
    let first = read();
    report(dir.path()).write(&to).expect("it can be written again");
    assert_eq!(read(), first);
    let names: Vec<_> = files.iter().filter_map(|file| file.file_name()?.to_str()).collect();
    assert_eq!(names, ["report.md", "summary.json", "sum.svg", "half.svg"]);
    assert!(
        first[0].contains("virtual time, exact, 24 trials") && first[0].contains("](half.svg)"),
        "{}",
        first[0]
    );
    let summary: serde_json::Value = serde_json::from_str(&first[1]).expect("JSON");
    assert_eq!(summary["rows"].as_array().map(Vec::len), Some(4));
    assert_eq!(summary["rows"][0]["metrics"]["sum"]["interval"]["confidence"], 0.96875);
    // No temporary files are left.
    assert_eq!(std::fs::read_dir(&to).expect("a folder").count(), 4);
}

#[test]
fn a_report_says_what_is_missing_and_what_was_skipped() {
    let dir = made(&Toy::new(Time::Virtual), &plan("word = \"a\"\nacross = [1, 2]"));
    let path = dir.path().join("records.jsonl");
    let text = std::fs::read_to_string(&path).expect("there are records");
    std::fs::write(&path, &text[..text.len() - 20]).expect("it can be cut");
    let report = report(dir.path());
    let warnings = report.warnings();
    assert_eq!(warnings[0], "11 of 12 trials have a record: the run is incomplete");
    assert_eq!(warnings[1], "1 line skipped: line 12: truncated");
    assert!(report.markdown().contains("**11 of 12 trials"));
    std::fs::write(&path, "").expect("it can be emptied");
    let toy = Toy::new(Time::Virtual);
    assert!(Report::of(dir.path(), toy.metrics()).expect("it can be read").is_none());
}
