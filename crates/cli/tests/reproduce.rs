//! `kiban reproduce` as a user runs it. The tests of `lab` check the tables themselves.

use serde_json::Value;
use std::process::{Command, Output};

fn kiban(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kiban")).args(arguments).output().expect("the program starts")
}

#[test]
fn a_report_has_rows_constants_and_figures() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("figures");
    let _ = std::fs::remove_dir_all(&folder);
    let output = kiban(&[
        "reproduce",
        "atm-board",
        "--quick",
        "--json",
        "--svg",
        folder.to_str().expect("a plain name"),
    ]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let rows = report["rows"].as_array().expect("rows");
    let verdicts: Vec<&str> = rows.iter().filter_map(|row| row["verdict"].as_str()).collect();
    assert_eq!(verdicts.iter().filter(|verdict| **verdict == "exact").count(), 4);
    assert!(verdicts.contains(&"fitted") && verdicts.contains(&"met") && verdicts.contains(&"conflict"));
    assert!(report["constants"].as_array().expect("constants").iter().any(|one| one["origin"] == "fitted"));
    for figure in report["figures"].as_array().expect("figures") {
        let path = folder.join(format!("atm-board-{}.svg", figure["name"].as_str().expect("a name")));
        let text = std::fs::read_to_string(&path).expect("the figure was drawn");
        assert!(text.starts_with("<svg") && text.contains("<polyline"), "{}", path.display());
    }
}

#[test]
fn a_mechanism_is_compared_modelled_and_measured() {
    let output = kiban(&["reproduce", "atm-board", "--quick", "--json", "--without", "sum"]);
    assert!(output.status.success(), "{output:?}");
    let value: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let modelled = value["modelled"].as_array().expect("modelled");
    assert_eq!((modelled.len(), &modelled[1]["without"]), (2, &Value::from("sum")));
    let mbps = |row: &Value| row["points"][0]["mbps"].as_f64().expect("a rate");
    assert!(mbps(&modelled[1]) < mbps(&modelled[0]));
    let measured = &value["measured"][0];
    assert!(measured["with_ns"].as_f64().expect("a time") > 0.0);
    assert!(measured["ratio"].as_f64().expect("a ratio") > 0.0);
}

#[test]
fn a_mechanism_of_the_osi_board_is_compared_modelled_and_if_it_avoids_copies_measured() {
    let output = kiban(&["reproduce", "osi-board", "--quick", "--json", "--without", "all"]);
    assert!(output.status.success(), "{output:?}");
    let value: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let modelled = value["modelled"].as_array().expect("modelled");
    let names: Vec<_> = modelled.iter().map(|row| row["without"].as_str().unwrap_or("nothing")).collect();
    assert_eq!(names, ["nothing", "no-copy", "primitives", "shared-buffers"]);
    let mbps = |row: &Value, point: usize| row["points"][point]["mbps"].as_f64().expect("a rate");
    for (row, point) in modelled[1..].iter().flat_map(|row| (0..4).map(move |point| (row, point))) {
        assert!(mbps(row, point) <= mbps(&modelled[0], point), "{row} {point}");
    }
    let measured = value["measured"].as_array().expect("measured");
    let names: Vec<_> = measured.iter().filter_map(|row| row["mechanism"].as_str()).collect();
    assert_eq!(names, ["no-copy", "shared-buffers"]);
    assert!(measured.iter().all(|row| row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0)));
    let table = kiban(&["reproduce", "osi-board", "--without", "primitives"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("primitives") && !table.contains("measured on this machine"), "{table}");
}

#[test]
fn maps_are_printed_as_rows_cells_and_pictures() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("maps");
    let _ = std::fs::remove_dir_all(&folder);
    let svg = folder.to_str().expect("a plain name");
    let output = kiban(&["reproduce", "wide-area-atm", "--quick", "--json", "--svg", svg]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let made: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let rows = made["rows"].as_array().expect("rows");
    let of = |verdict| rows.iter().filter(|row| row["verdict"] == verdict).count();
    assert_eq!((of("missed"), of("conflict")), (0, 7));
    assert_eq!(made["sequences"].as_array().expect("sequences").len(), 3);
    for map in made["maps"].as_array().expect("maps") {
        let name = map["name"].as_str().expect("a name");
        let text =
            std::fs::read_to_string(folder.join(format!("wide-area-atm-{name}.svg"))).expect("it was drawn");
        assert_eq!(text.matches("<rect").count(), 117, "{name}");
    }
    let output = kiban(&["reproduce", "wide-area-atm", "--quick", "--csv"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let tables: Vec<(&str, Vec<&str>)> = text
        .split("# ")
        .skip(1)
        .filter_map(|table| table.split_once('\n').map(|(name, rest)| (name, rest.lines().collect())))
        .collect();
    assert_eq!((tables[0].0, tables[0].1.len()), ("maps", 1 + 2 * 117));
    // One minute of the lecture's traffic, in samples of two seconds, for each direction: four kinds of flow
    // and their sum.
    for (name, curves) in [("traffic-to-musashino", ["mpeg2", "sum"]), ("traffic-to-waseda", ["jpeg", "sum"])]
    {
        let (_, lines) = tables.iter().find(|(other, _)| *other == name).expect("the series is a table");
        assert_eq!(lines[0], "curve,seconds,Mbit/s");
        for curve in curves {
            let points = lines.iter().filter(|line| line.starts_with(&format!("{curve},"))).count();
            assert_eq!(points, 30, "{name} {curve}: {lines:?}");
        }
    }
    let figures = made["figures"].as_array().expect("figures").len();
    assert_eq!(tables.len(), 1 + figures);
}

#[test]
fn the_figures_of_the_rdma_nic_are_drawn() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("rdma");
    let _ = std::fs::remove_dir_all(&folder);
    let svg = folder.to_str().expect("a plain name");
    let output = kiban(&["reproduce", "rdma-nic", "--json", "--svg", svg]);
    assert!(output.status.success(), "{output:?}");
    let made: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let rows = made["rows"].as_array().expect("rows");
    let of = |verdict| rows.iter().filter(|row| row["verdict"] == verdict).count();
    assert_eq!((of("missed"), of("conflict"), of("fitted")), (0, 0, 3));
    assert_eq!(made["table_2"].as_array().expect("steps").len(), 16);
    for end in ["send", "receive"] {
        let path = folder.join(format!("rdma-nic-figure-10-{end}.svg"));
        let text = std::fs::read_to_string(path).expect("it was drawn");
        assert_eq!(text.matches("<polyline").count(), 3);
    }
    let output = kiban(&["reproduce", "rdma-nic", "--csv"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2 * (2 + 3 * 17));
}

#[test]
fn the_osi_board_has_figures_tasks_and_this_machine() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("osi");
    let _ = std::fs::remove_dir_all(&folder);
    let svg = folder.to_str().expect("a plain name");
    let output = kiban(&["reproduce", "osi-board", "--quick", "--json", "--svg", svg]);
    assert!(output.status.success(), "{output:?}");
    let made: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let rows = made["rows"].as_array().expect("rows");
    let of = |verdict| rows.iter().filter(|row| row["verdict"] == verdict).count();
    assert_eq!((of("missed"), of("conflict"), of("fitted"), of("met")), (0, 1, 5, 7));
    let constants = made["constants"].as_array().expect("constants");
    assert_eq!(constants.iter().filter(|one| one["origin"] == "fitted").count(), 3);
    assert_eq!(made["figure_3"].as_array().expect("bars").len(), 4);
    let measured = made["measured"].as_array().expect("settings");
    assert!(measured.iter().all(|one| one["mb_per_second"].as_f64() > Some(1.0)), "{measured:?}");
    for figure in ["2a", "2b"] {
        let text = std::fs::read_to_string(folder.join(format!("osi-board-figure-{figure}.svg")));
        assert_eq!(text.expect("it was drawn").matches("<polyline").count(), 2);
    }
    let output = kiban(&["reproduce", "osi-board", "--quick", "--csv"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2 * 2 + 2 * 4 + 2 * 5);
}

#[test]
fn polling_and_interrupts_are_measured_on_this_machine() {
    let output = kiban(&["reproduce", "via-library", "--measure", "--quick", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let made: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let rows = made["rows"].as_array().expect("rows");
    let waits: Vec<_> = rows.iter().filter_map(|row| row["wait"].as_str()).collect();
    let policies = ["poll", "interrupt", "hybrid:100us", "adaptive"];
    assert_eq!(waits, [policies, policies].concat());
    for row in rows {
        let (sent, lost) = (row["sent"].as_u64().expect("a number"), row["lost"].as_u64().expect("a number"));
        assert!(lost < sent && row["p50_us"].as_f64().expect("a time") > 0.0, "{row}");
    }
    assert!(made["environment"]["arch"].is_string());
}

#[test]
fn the_verdicts_are_printed_and_the_values_on_request() {
    let said = |more: &[&str]| {
        let output = kiban(&[&["reproduce", "rdma-nic"], more].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let (verdicts, values) = (said(&["--strict"]), said(&["--full"]));
    assert!(verdicts.contains("rdma-nic  Table 2") && !verdicts.contains("constants"), "{verdicts}");
    assert!(
        values.contains("constants") && values.lines().count() > 2 * verdicts.lines().count(),
        "{values}"
    );
}

#[test]
fn usage_errors_are_reported() {
    for (arguments, word) in [
        (&["reproduce", "atm-board", "--without", "magic"][..], "magic"),
        (&["reproduce", "atm-bored"], "atm-bored"),
        (&["reproduce", "osi-board", "--without", "sum"], "sum"),
        (&["reproduce", "atm-board", "--json", "--csv"], "--csv"),
        (&["reproduce", "atm-board", "--full", "--csv"], "--csv"),
        (&["reproduce", "via-library", "--measure", "--csv"], "--csv"),
    ] {
        let output = kiban(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(word), "{arguments:?}");
    }
}
