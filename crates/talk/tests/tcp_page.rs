//! Checks `docs/tcp.md`, the list of TCP's requirements. Everything mentioned there must exist, and no
//! requirement of RFC 9293 may be missing.

use kiban_tcpip::tcp::{Config, PROFILES};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn page() -> String {
    fs::read_to_string(root().join("docs/tcp.md")).expect("docs/tcp.md")
}

/// Returns the texts between backticks in the page's tables.
fn named(page: &str) -> Vec<&str> {
    page.lines()
        .filter(|line| line.starts_with("| ") || line.contains("/`"))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

/// Returns the text of every Rust file under `crates`, by path.
fn sources() -> BTreeMap<String, String> {
    fn search(folder: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                search(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                found.insert(path.to_str().expect("a path in UTF-8").into(), text);
            }
        }
    }
    let mut found = BTreeMap::new();
    search(&root().join("crates"), &mut found);
    found
}

/// Returns whether a text contains a function of that name.
fn has_function(text: &str, name: &str) -> bool {
    text.contains(&format!("fn {name}(")) || text.contains(&format!("fn {name}<"))
}

#[test]
fn every_script_test_function_and_setting_on_the_page_exists() {
    let (root, page, sources) = (root(), page(), sources());
    let mut settings = Vec::new();
    Config::default().each(&mut |name, _, _| settings.push(name));
    // The page refers to files by the ends of their paths, without `.rs`; a module with submodules is a
    // `mod.rs`.
    let ends_with = |end: &str| {
        let ends = [format!("/{end}.rs"), format!("/{end}/mod.rs")];
        let is_it = move |path: &str| ends.iter().any(|end| path.ends_with(end));
        sources.iter().filter(move |(path, _)| is_it(path)).collect::<Vec<_>>()
    };
    let is_word =
        |word: &str| !word.is_empty() && word.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-'));
    let mut kinds = [0; 4];
    let mut missing = Vec::new();
    for name in named(&page) {
        let (kind, is_there) = if let Some(setting) = name.strip_prefix("tcp.") {
            (0, settings.contains(&setting))
        } else if let Some((module, function)) =
            name.split_once("::").filter(|(module, name)| is_word(module) && is_word(name))
        {
            let found = ends_with(module);
            (1, found.iter().any(|(_, text)| has_function(text, function)))
        } else if let Some((file, function)) = name.split_once(".rs") {
            // For TCP's own files, the page omits the directory.
            let whole = ends_with(&format!("crates/{file}"));
            let of_tcp = ends_with(file).into_iter().filter(|(path, _)| path.contains("tcpip/src/tcp/"));
            let found: Vec<_> = whole.into_iter().chain(of_tcp).collect();
            let function = function.trim_start_matches(':');
            let is_there =
                |(_, text): &(&String, &String)| function.is_empty() || has_function(text, function);
            (2, found.iter().any(is_there))
        } else if let Some((folder, script)) = name.split_once('/').filter(|(folder, _)| is_word(folder)) {
            let path = root.join("talks").join(folder);
            (3, if script.is_empty() { path.is_dir() } else { path.join(format!("{script}.talk")).is_file() })
        } else {
            continue;
        };
        kinds[kind] += 1;
        if !is_there {
            missing.push(name);
        }
    }
    assert!(missing.is_empty(), "docs/tcp.md names things that do not exist: {missing:?}");
    assert!(kinds.iter().all(|count| *count > 20), "the format of the page has changed: {kinds:?}");
}

#[test]
fn every_number_of_rfc_9293_has_one_row() {
    let page = page();
    for (kind, last) in [("MUST", 69), ("SHLD", 31), ("MAY", 18), ("REC", 1)] {
        for number in 1..=last {
            let rows = page.lines().filter(|line| line.starts_with(&format!("| {kind}-{number} | "))).count();
            assert_eq!(rows, 1, "{kind}-{number}");
        }
    }
    // For a requirement that is marked as met, the page must list the code and the test.
    for row in page
        .lines()
        .filter(|line| ["| MUST-", "| SHLD-", "| MAY-"].iter().any(|begin| line.starts_with(begin)))
    {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, number, _, state, place, shown, _] = cells[..] else { panic!("{row}: five cells") };
        if state.starts_with("yes") && number != "SHLD-20" && number != "MAY-17" {
            assert!(
                !place.is_empty() && !shown.is_empty(),
                "{number} is met, but the row names no code or no test"
            );
        }
    }
}

/// Requirements that are not met must be listed first, in the order of their numbers.
#[test]
fn requirements_not_met_are_listed_first() {
    let page = page();
    for (word, begin) in [("partly", "\nPartly met: "), ("no", "\nNot met: ")] {
        let mut wanted = Vec::new();
        for kind in ["MUST", "SHLD", "MAY"] {
            for number in 1..=69 {
                let row = page.lines().find(|line| line.starts_with(&format!("| {kind}-{number} | ")));
                let state = row.and_then(|row| row.split(" | ").nth(2)).unwrap_or("");
                let state = state.trim_start_matches("IP: ");
                if state == word
                    || [": ", ";", ","].iter().any(|end| state.starts_with(&format!("{word}{end}")))
                {
                    wanted.push(format!("{kind}-{number}"));
                }
            }
        }
        let said = page.split_once(begin).and_then(|(_, rest)| rest.split_once('.')).expect("the list").0;
        assert_eq!(said.split_whitespace().collect::<Vec<_>>().join(" "), wanted.join(", "));
    }
}

#[test]
fn every_directory_of_scripts_is_named() {
    let page = page();
    for entry in fs::read_dir(root().join("talks")).expect("the folder talks") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            let folder = path.file_name().and_then(|name| name.to_str()).expect("a name");
            assert!(page.contains(&format!("`{folder}/")), "docs/tcp.md does not name talks/{folder}");
        }
    }
}

/// The page's two tables of settings must match the code; `KIBAN_KEEP_SNAPSHOTS=1` rewrites them.
#[test]
fn the_tables_of_settings_match_the_code() {
    let mut settings = String::from("| setting | default | meaning and rationale |\n|---|---|---|\n");
    Config::default().each(&mut |name, value, about| {
        let about =
            about.trim().replace("[`", "`").replace("`]", "`").replace("\\[", "[").replace("\\]", "]");
        let others: Vec<&str> = Config::choices(name).iter().copied().filter(|word| *word != value).collect();
        let others = if others.is_empty() { String::new() } else { format!(" (or {})", others.join(", ")) };
        settings += &format!("| `tcp.{name}` | {value}{others} | {about} |\n");
    });
    // List only settings in which the profiles differ.
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    for profile in PROFILES {
        let mut at = 0;
        Config::profile(profile).expect("it has a name").each(&mut |name, value, _| {
            if rows.len() == at {
                rows.push((name, Vec::new()));
            }
            rows[at].1.push(value.into());
            at += 1;
        });
    }
    rows.retain(|(_, values)| values.iter().any(|value| *value != values[0]));
    let mut profiles =
        format!("| setting | {} |\n|---{}|\n", PROFILES.join(" | "), "|---".repeat(PROFILES.len()));
    for (name, values) in rows {
        profiles += &format!("| `tcp.{name}` | {} |\n", values.join(" | "));
    }
    let mut page = page();
    for table in [settings, profiles] {
        let head = table.lines().next().expect("a head");
        let begin = page.find(head).unwrap_or_else(|| panic!("docs/tcp.md has no table that begins {head}"));
        let end = page[begin..].find("\n\n").map_or(page.len(), |length| begin + length + 1);
        if std::env::var_os("KIBAN_KEEP_SNAPSHOTS").is_some() {
            page.replace_range(begin..end, &table);
            fs::write(root().join("docs/tcp.md"), &page).expect("docs/tcp.md");
        }
        assert!(
            page.contains(&table),
            "the table of settings in docs/tcp.md is out of date: KIBAN_KEEP_SNAPSHOTS=1 writes it:\n\n{table}"
        );
    }
}
