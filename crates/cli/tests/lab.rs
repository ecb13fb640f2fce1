//! `kiban lab` as a user runs it: interrupted and resumed, in shards, on a full disk, and under job systems
//! (Slurm, HyperQueue, Kubernetes).

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const KIBAN: &str = env!("CARGO_BIN_EXE_kiban");

fn kiban(arguments: &[&str]) -> Output {
    Command::new(KIBAN).arg("lab").args(arguments).stdin(Stdio::null()).output().expect("the program starts")
}

/// Runs a command, which must succeed; returns its output.
fn good(arguments: &[&str]) -> String {
    let output = kiban(arguments);
    assert!(output.status.success(), "{arguments:?} {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("one JSON value")
}

/// Creates an empty directory with a plan in it.
fn folder(name: &str, plan: &str) -> (PathBuf, String) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lab").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("it can be created");
    let path = folder.join("plan.toml");
    fs::write(&path, plan).expect("it can be written");
    (folder, text(&path))
}

fn text(path: &Path) -> String {
    path.to_str().expect("a plain name").to_owned()
}

fn records(dir: &Path) -> Vec<u8> {
    fs::read(dir.join("records.jsonl")).unwrap_or_default()
}

fn lines(dir: &Path) -> usize {
    records(dir).iter().filter(|byte| **byte == b'\n').count()
}

/// A plan with sixty cells, each of which takes a few milliseconds.
const MAP: &str = "question = \"wide-area-atm\"\n[parameters]\nmilliseconds = 200\n\
                   message_bytes = { from = 500, to = 6000, step = 500 }\nbuffer_bytes = [2000, 4000, 8000, 12000, 16000]\n";
const CELLS: usize = 60;

/// Starts a run, kills it after it has recorded a few more lines, and returns the number of lines.
fn kill(arguments: &[&str], dir: &Path, more: usize) -> usize {
    let before = lines(dir);
    let mut child = Command::new(KIBAN)
        .arg("lab")
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    while lines(dir) < before + more {
        assert!(child.try_wait().expect("it is ours").is_none(), "it has ended before it could be killed");
        std::thread::yield_now();
    }
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    lines(dir)
}

#[test]
fn a_run_that_is_killed_loses_nothing_and_repeats_nothing() {
    let (place, plan) = folder("killed", MAP);
    let whole = place.join("whole");
    let output = kiban(&["run", &plan, "--out", &text(&whole)]);
    let next = format!("records in {0}; next: kiban lab report {0}\n", text(&whole));
    assert!(String::from_utf8_lossy(&output.stderr).ends_with(&next), "{output:?}");
    let out = place.join("out");
    let arguments = ["run", &plan, "--out", &text(&out), "--jobs", "1", "--json"];
    for _ in 0..4 {
        let begun = records(&out);
        let kept = kill(&arguments, &out, 3);
        assert!(kept < CELLS, "it was killed in the middle");
        let now = records(&out);
        assert!(now.starts_with(&begun), "what was recorded stays as it was");
    }
    let kept = lines(&out);
    let outcome = json(&good(&arguments));
    // A kill may truncate the last line; the trial of that line is then repeated.
    let made = outcome["made"].as_u64().expect("a count") as usize;
    assert!((CELLS - kept..=CELLS - kept + 4).contains(&made), "{kept} were kept, {outcome}");
    assert_eq!(outcome["found"].as_u64().expect("a count") as usize + made, CELLS);
    for (from, to) in [(&whole, "merged-whole"), (&out, "merged-out")] {
        good(&["merge", &text(&place.join(to)), &text(from)]);
    }
    let merged = records(&place.join("merged-out"));
    assert_eq!(merged, records(&place.join("merged-whole")), "the same bytes as without a kill");
    assert_eq!(merged.iter().filter(|byte| **byte == b'\n').count(), CELLS);
}

#[test]
fn any_number_of_shards_merges_into_the_same_bytes_even_if_one_was_killed() {
    let (place, plan) = folder("shards", MAP);
    let mut results = BTreeSet::new();
    for count in [1, 2, 7] {
        let dirs: Vec<String> = (1..=count)
            .map(|number| {
                let dir = place.join(format!("{number}-of-{count}"));
                let (out, shard) = (text(&dir), format!("{number}/{count}"));
                let arguments = ["run", &plan, "--out", &out, "--shard", &shard];
                if number == 2 {
                    kill(&[&arguments[..], &["--jobs", "1"]].concat(), &dir, 2);
                }
                good(&arguments);
                out
            })
            .collect();
        let merged = text(&place.join(format!("merged-{count}")));
        let arguments: Vec<&str> =
            ["merge", &merged].into_iter().chain(dirs.iter().map(String::as_str)).collect();
        good(&arguments);
        results.insert((records(Path::new(&merged)), good(&["summary", &merged])));
    }
    assert_eq!(results.len(), 1);
    // Merging only one shard gives an incomplete result, and the error says so.
    let part = kiban(&["merge", &text(&place.join("part")), &text(&place.join("3-of-7"))]);
    assert_eq!(part.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&part.stdout).contains("of 60 trials have a record"), "{part:?}");
}

#[test]
fn a_truncated_line_is_reported_by_its_number() {
    let (place, plan) = folder("cut", MAP);
    let out = text(&place.join("out"));
    good(&["run", &plan, "--out", &out]);
    let path = place.join("out/records.jsonl");
    let bytes = fs::read(&path).expect("there are records");
    fs::write(&path, &bytes[..bytes.len() - 30]).expect("it can be cut");
    let summary = kiban(&["summary", &out]);
    assert_eq!(summary.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&summary.stderr).contains("line 60: truncated"), "{summary:?}");
    let again = kiban(&["run", &plan, "--out", &out]);
    assert!(again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("line 60 was skipped: truncated"), "{again:?}");
    assert!(
        String::from_utf8_lossy(&again.stdout).contains("60 trials: 1 run, 59 already recorded"),
        "{again:?}"
    );
}

/// Run in a mount namespace with a file system of 16 KiB.
#[test]
fn a_full_disk_is_reported_and_records_are_kept() {
    let (place, plan) = folder("full", MAP);
    let script = r#"
        set -eu
        mount -t tmpfs -o size=16k none "$2"
        status=0
        "$1" lab run "$3" --out "$2/out" || status=$?
        echo "status $status"
        cp -r "$2/out" "$4"
    "#;
    let (small, kept) = (place.join("small"), place.join("kept"));
    fs::create_dir(&small).expect("it can be created");
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", KIBAN]);
        command.args([&small, Path::new(&plan), &kept]).output().expect("util-linux is there")
    };
    if !unshare("mount -t tmpfs none \"$2\"").status.success() {
        println!("skipped: no file system can be mounted in a namespace here");
        return;
    }
    let output = unshare(script);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("status 1"), "{output:?}");
    assert!(err.contains("the disk is full; the records so far are kept: free some space"), "{err}");
    let count = lines(&kept);
    assert!((10..CELLS).contains(&count), "{count}");
    assert!(records(&kept).ends_with(b"\n"), "no line is cut");
    let outcome = json(&good(&["run", &plan, "--out", &text(&kept), "--json"]));
    assert_eq!(outcome["found"], count);
    assert_eq!(outcome["made"], CELLS - count);
}

#[test]
fn many_trials_need_confirmation() {
    let plan = "question = \"wide-area-atm\"\n[parameters]\nmilliseconds = 1\n\
                message_bytes = { from = 1, to = 50000, step = 1 }\nbuffer_bytes = [2000, 4000, 8000]\n";
    let (place, plan) = folder("many", plan);
    let out = text(&place.join("out"));
    let refused = kiban(&["run", &plan, "--out", &out]);
    assert_eq!(refused.status.code(), Some(1));
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("150000 trials") && words.contains("use --yes"), "{words}");
    assert!(!place.join("out").exists());
    // A shard that is small enough needs no confirmation.
    good(&["run", &plan, "--out", &out, "--shard", "7/75000"]);
    assert_eq!(lines(Path::new(&out)), 2);
    // On a terminal the command asks for confirmation.
    for (answer, expected) in [("n\n", "cancelled"), ("\n", "cancelled")] {
        let command = format!("{KIBAN} lab run {plan} --out {out}-asked");
        let mut child = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("util-linux is there");
        child.stdin.take().expect("it is piped").write_all(answer.as_bytes()).expect("it listens");
        let output = child.wait_with_output().expect("it ends");
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(words.contains("150000 trials") && words.contains(expected), "{words}");
    }
    assert!(!place.join("out-asked").exists());
}

#[test]
fn a_plan_error_is_reported_with_its_line_before_anything_runs() {
    for (plan, expected) in [
        (
            "question = \"wide-area-atm\"\n[parameters]\nmesage_bytes = 5\n",
            "line 3: unknown wide-area-atm parameter 'mesage_bytes'; did you mean 'message_bytes'?",
        ),
        (
            "question = \"wide-area-atm\"\n[parameters]\nmtu_bytes = [9180, 100]\n",
            "1 of 2 points are impossible:",
        ),
        ("question = \n", "line 1: "),
        ("seconds = 2\n[[host]]\nssh = \"node1\"\n", "names hosts: run `kiban lab hosts "),
    ] {
        let (place, plan) = folder("mistake", plan);
        let output = kiban(&["run", &plan, "--out", &text(&place.join("out"))]);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected), "{output:?}");
        assert!(!place.join("out").exists());
    }
    for arguments in
        [&["run", "plan.toml", "--shard", "8/7"][..], &["script", "pbs", "plan.toml", "--shards", "2"]]
    {
        assert_eq!(kiban(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let output = kiban(&["questions", "wide-area"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean 'wide-area-atm'?"), "{output:?}");
}

#[test]
fn a_folder_of_another_plan_is_refused() {
    let (place, plan) = folder("another", MAP);
    let out = text(&place.join("out"));
    good(&["run", &plan, "--out", &out, "--shard", "1/20"]);
    let output = kiban(&["run", &plan, "--out", &out]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("contains shard 1/20, not 1/1"), "{output:?}");
    fs::write(&plan, MAP.replace("milliseconds = 200", "milliseconds = 201")).expect("it can be changed");
    let output = kiban(&["run", &plan, "--out", &out, "--shard", "1/20"]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("the parameter milliseconds differs; use another folder (--out)"), "{words}");
}

#[test]
fn a_question_prints_a_plan_that_runs_and_is_reported() {
    let list = json(&good(&["questions", "--json"]));
    let names: Vec<&str> =
        list.as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(names.contains(&"atm-board") && names.contains(&"wide-area-atm"), "{names:?}");
    let page = good(&["questions", "wide-area-atm"]);
    let (_, plan) = page.split_once("An example plan:\n\n").expect("there is one");
    let plan = plan
        .replace("= 4000", "= [1000, 4000]")
        .replace("= 8000", "= [8000, 12000]")
        .replace("= 2000", "= 200");
    let (place, plan) = folder("report", &plan);
    let out = text(&place.join("out"));
    let cache = text(&place.join("cache"));
    good(&["run", &plan, "--out", &out, "--cache", &cache]);
    let summary = json(&good(&["summary", &out, "--json"]));
    assert_eq!(summary["rows"].as_array().map(Vec::len), Some(4));
    let parquet = text(&place.join("map.parquet"));
    // It replaces an earlier one.
    for _ in 0..2 {
        assert_eq!(good(&["summary", &out, "--parquet", &parquet]), "");
    }
    let bytes = fs::read(&parquet).expect("it was written");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let before = records(Path::new(&out));
    for (file, expected) in [
        ("-", "cannot be written to standard output: name a file"),
        (&text(&place.join("out/records.jsonl")), "exists and is not a Parquet file: choose another name"),
        ("/dev/null", "exists and is not a Parquet file: choose another name"),
        (&out, "exists and is not a Parquet file: choose another name"),
        (&text(&place.join("none/map.parquet")), "there is no directory "),
        (&format!("{parquet}/map"), "there is no directory "),
    ] {
        let refused = kiban(&["summary", &out, "--parquet", file]);
        assert_eq!((refused.status.code(), &refused.stdout[..]), (Some(1), &[][..]), "{file}: {refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(expected), "{file}: {refused:?}");
    }
    assert_eq!(records(Path::new(&out)), before);
    let slow = summary["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .find(|row| row["point"]["buffer_bytes"] == 8000 && row["point"]["message_bytes"] == 4000);
    let mbps = slow.expect("the cell")["metrics"]["mbps"]["median"].as_f64().expect("a rate");
    assert!(mbps < 10.0, "the cell lies in the region that collapses: {mbps}");
    let shown = good(&["report", &out]);
    assert!(shown.contains("rows: buffer, bytes; columns: message, bytes"), "{shown}");
    for file in ["report.md", "summary.json", "mbps.svg", "waits_per_second.svg"] {
        let text = fs::read_to_string(place.join("out/report").join(file));
        assert!(!text.expect("it was written").is_empty(), "{file}");
    }
    let page = fs::read_to_string(place.join("out/report.html")).expect("it was written");
    assert_eq!((page.matches("<figure ").count(), page.matches("class=\"cell v ").count()), (2, 2 * 4));
    assert!(page.contains("4 of 4 trials have a record"), "{page}");
    let turned =
        good(&["report", &out, "--axes", "buffer_bytes,message_bytes", "--html", &text(&place.join("p"))]);
    assert!(
        turned.contains("rows: message, bytes; columns: buffer, bytes") && place.join("p").exists(),
        "{turned}"
    );
    for (axes, expected) in [
        ("mesage_bytes,buffer_bytes", "did you mean 'message_bytes'?"),
        ("profile,buffer_bytes", "'profile' is not a numeric parameter that varies in this run"),
        ("buffer_bytes,buffer_bytes", "cannot be used for both axes"),
        ("buffer_bytes", "--axes ACROSS,DOWN"),
    ] {
        let output = kiban(&["report", &out, "--axes", axes]);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected), "{axes}: {output:?}");
    }
    // A run in another directory finds all records in the cache.
    let outcome =
        json(&good(&["run", &plan, "--out", &text(&place.join("two")), "--cache", &cache, "--json"]));
    assert_eq!((&outcome["cached"], &outcome["made"]), (&Value::from(4), &Value::from(0)));
    let nothing = kiban(&["report", &text(&place)]);
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("kiban lab run PLAN --out"), "{nothing:?}");
}

/// Runs a script written by `kiban lab script` with a shell.
fn shell(script: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new("sh");
    command.arg(script).env("KIBAN", KIBAN).envs(variables.iter().copied());
    command.stdin(Stdio::null()).output().expect("there is a shell")
}

fn script(place: &Path, scheduler: &str, plan: &str, out: &Path) -> PathBuf {
    let path = place.join(format!("{scheduler}.sh"));
    let script = good(&["script", scheduler, plan, "--shards", "3", "--out", &text(out)]);
    fs::write(&path, script).expect("it can be written");
    path
}

#[test]
fn gnu_parallel_runs_the_shards_and_merges_them() {
    // Use a directory name that must be quoted in shell commands.
    let (place, plan) = folder("parallel it's here", MAP);
    let there = Command::new("parallel").arg("--version").output();
    if !there.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("GNU parallel")) {
        println!("skipped: GNU parallel is not installed");
        return;
    }
    let out = place.join("out");
    let output = shell(&script(&place, "parallel", &plan, &out), &[]);
    assert!(output.status.success(), "{output:?}");
    let whole = place.join("whole");
    good(&["run", &plan, "--out", &text(&whole), "--jobs", "1"]);
    good(&["merge", &text(&place.join("merged")), &text(&whole)]);
    assert_eq!(records(&out.join("merged")), records(&place.join("merged")));
}

#[test]
fn a_slurm_job_array_runs_one_shard_per_job() {
    let (place, plan) = folder("slurm", MAP);
    let out = place.join("out");
    let path = script(&place, "slurm", &plan, &out);
    let words = fs::read_to_string(&path).expect("it was written");
    assert!(words.starts_with("#!/bin/sh\n") && words.contains("\n#SBATCH --array=1-3\n"), "{words}");
    // Job systems read directives only if they precede the first command.
    let first = words.lines().position(|line| !line.starts_with('#')).expect("it does something");
    assert!(words.lines().skip(first).all(|line| !line.starts_with("#SBATCH")), "{words}");
    for number in ["1", "2", "3"] {
        let output = shell(&path, &[("SLURM_ARRAY_TASK_ID", number)]);
        assert!(output.status.success(), "{output:?}");
    }
    let shards: Vec<String> = (1..=3).map(|number| text(&out.join(format!("shard-{number}")))).collect();
    let merged = text(&out.join("merged"));
    good(&["merge", &merged, &shards[0], &shards[1], &shards[2]]);
    assert_eq!(lines(Path::new(&merged)), CELLS);
}

/// Uses a fake `hq` that behaves like `hq submit --array`: it runs the command once per number, which it
/// passes in HQ_TASK_ID.
#[test]
fn a_hyperqueue_task_array_submits_itself_and_merges() {
    let (place, plan) = folder("hyperqueue", MAP);
    let stand_in = "#!/bin/sh\nset -eu\n[ \"$1 $2 $3\" = 'submit --array 1-3' ]\nwhile [ \"$1\" != -- ]; do shift; done\n\
                    shift\nfor HQ_TASK_ID in 1 2 3; do export HQ_TASK_ID; \"$@\"; done\n";
    fs::write(place.join("hq.sh"), stand_in).expect("it can be written");
    // Let another process write the file. If this process wrote it, a child forked in the meantime could
    // inherit the descriptor that is open for writing, and executing the file would fail (ETXTBSY).
    let mut install = Command::new("install");
    let copied = install.args(["-m", "755"]).args([place.join("hq.sh"), place.join("hq")]).status();
    assert!(copied.is_ok_and(|status| status.success()), "it can be written");
    let path = format!("{}:{}", place.display(), std::env::var("PATH").expect("there is one"));
    let out = place.join("out");
    let output = shell(&script(&place, "hyperqueue", &plan, &out), &[("PATH", &path)]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lines(&out.join("merged")), CELLS);
}

#[test]
fn an_indexed_kubernetes_job_contains_the_plan_and_one_index_per_shard() {
    let (_, plan) = folder("kubernetes", MAP);
    let words =
        good(&["script", "kubernetes", &plan, "--shards", "3", "--image", "registry.example/kiban:1"]);
    for line in [
        "kind: ConfigMap",
        "  plan.toml: |2",
        "    question = \"wide-area-atm\"",
        "kind: Job",
        "  completionMode: Indexed",
        "  completions: 3",
        "          image: \"registry.example/kiban:1\"",
        "          imagePullPolicy: IfNotPresent",
    ] {
        assert!(words.lines().any(|one| one == line), "{line}\n{words}");
    }
    // Run the manifest's command with indexes from 0, as set by Kubernetes.
    let command = words.lines().find_map(|line| line.trim().strip_prefix("command: "));
    let command: Vec<String> =
        serde_json::from_str(command.expect("there is one")).expect("a list, as in JSON");
    let shard = command[2].replace("exec kiban", "echo").replace("--out", "");
    let output =
        Command::new("sh").args(["-c", &shard]).env("JOB_COMPLETION_INDEX", "2").output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("/records/kiban-plan/shard-3 --shard 3/3 "), "{said}");
}

/// Returns the path of a capture of the kernel's TCP.
fn capture(name: &str) -> String {
    format!("{}/../explain/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_capture_is_explained_as_a_table_as_json_and_as_a_page() {
    let (folder, _) = folder("explain", MAP);
    let (slow, healthy) = (capture("nagle.pcapng"), capture("healthy.pcap"));
    let page = folder.join("page.html");
    let shown = good(&["explain", &slow, "--html", &text(&page)]);
    assert!(shown.contains("verdict: Nagle and delayed ACKs") && shown.contains("TCP_NODELAY"), "{shown}");
    let html = fs::read_to_string(&page).expect("it was written");
    assert!(html.contains("Connection 1: Nagle and delayed ACKs") && html.contains("<svg"), "{html}");
    let shown = good(&["explain", &healthy]);
    assert!(shown.contains("verdict: healthy\n"), "{shown}");
    let all = json(&good(&["explain", &slow, &healthy, "--json"]));
    assert_eq!(all[0]["connections"][0]["verdict"]["cause"], "nagle_delayed_ack");
    assert_eq!(
        (&all[1]["file"], &all[1]["connections"][0]["verdict"]),
        (&Value::from(healthy), &Value::Null)
    );
}

#[test]
fn a_file_that_cannot_be_explained_is_refused_with_what_to_do() {
    let (folder, plan) = folder("explain-refused", MAP);
    let [empty, packed, slow] =
        [text(&folder.join("empty.pcap")), text(&folder.join("p.gz")), capture("nagle.pcapng")];
    fs::write(&empty, b"").expect("it can be written");
    fs::write(&packed, b"\x1f\x8b\x08").expect("it can be written");
    for (arguments, error) in [
        (&["explain", &plan][..], "neither a pcap nor a pcapng file, or its header is damaged: convert it"),
        (&["explain", &empty], "is empty: end the capture"),
        (&["explain", &packed], "is compressed: unpack it first (gunzip)"),
        (&["explain", &text(&folder)], "cannot read"),
        (&["explain", &slow, "--connection", "2"], "has no connection 2; it has 1"),
        (&["explain", &slow, &slow, "--html", "x"], "give one FILE"),
        (&["explain", "/nowhere.pcap"], "cannot read /nowhere.pcap"),
    ] {
        let output = kiban(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(error), "{arguments:?}: {said}");
    }
}

#[test]
fn the_readable_part_of_a_damaged_capture_is_explained() {
    let (folder, _) = folder("explain-damaged", MAP);
    let whole = fs::read(capture("nagle.pcapng")).expect("it exists");
    let damaged = text(&folder.join("damaged.pcapng"));
    fs::write(&damaged, &whole[..whole.len() - 7]).expect("it can be written");
    let output = kiban(&["explain", &damaged]);
    let (shown, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && shown.contains("verdict: Nagle and delayed ACKs"), "{shown}");
    assert!(said.contains("only the first 119 packets were read: it is damaged or cut off there"), "{said}");
}
