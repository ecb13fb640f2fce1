//! Checks the output of programs.

use crate::case::CaseOutput;

/// The required contents of the output.
#[derive(Clone)]
pub(crate) enum Proof {
    /// Words in the output of the client, or of the only process.
    Says(&'static [&'static str]),
    /// Words in the output of the server, and of the client.
    Both(&'static [&'static str], &'static [&'static str]),
    /// A row in perftest's output for each message size.
    Perftest { sizes: Vec<u64>, iterations: u64 },
    /// Another check.
    Check(fn(&CaseOutput) -> Result<(), String>),
    /// A function that counts the successes in the output, checks that they reach this minimum, and returns
    /// a remark for the page.
    Count(fn(&CaseOutput, usize) -> Result<String, String>, usize),
}

fn says(who: &str, output: &str, words: &[&str]) -> Result<(), String> {
    match words.iter().find(|word| !output.contains(**word)) {
        Some(word) => Err(format!("{who} does not say '{word}'")),
        None => Ok(()),
    }
}

impl Proof {
    pub(crate) fn check(&self, output: &CaseOutput) -> Result<String, String> {
        let checked = match self {
            Proof::Says(words) => says("it", &output.client, words),
            Proof::Both(server, client) => says("the server", &output.server, server)
                .and_then(|()| says("the client", &output.client, client)),
            Proof::Perftest { sizes, iterations } => perftest(&output.client, sizes, *iterations),
            Proof::Check(check) => check(output),
            Proof::Count(count, enough) => return count(output, *enough),
        };
        checked.map(|()| String::new())
    }
}

/// Returns the lines that consist of numbers only, with at least `at_least` numbers each.
pub(crate) fn figures(output: &str, at_least: usize) -> Vec<Vec<f64>> {
    output
        .lines()
        .filter_map(|line| {
            line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>()
        })
        .filter(|row| row.len() >= at_least)
        .collect()
}

/// Checks rows in perftest's output: bytes, iterations, and then at least three positive figures.
fn perftest(output: &str, sizes: &[u64], iterations: u64) -> Result<(), String> {
    let rows = figures(output, 5);
    let found: Vec<u64> = rows.iter().map(|row| row[0] as u64).collect();
    if found != sizes {
        return Err(format!("rows for sizes {found:?} and not {sizes:?}"));
    }
    for row in &rows {
        if row[1] as u64 != iterations {
            return Err(format!("{} iterations and not {iterations}", row[1]));
        }
        // Rates of small messages round to 0.00 MB/s, so check only the message rate, which has six decimals.
        let from = if row.len() == 5 && row[0] < 1024.0 { 4 } else { 2 };
        if row[from..5].iter().any(|figure| *figure <= 0.0) {
            return Err(format!("a figure is zero: {row:?}"));
        }
    }
    Ok(())
}

/// Checks two rows in perftest's output, because both ends write to the same output.
pub(crate) fn perftest_rows(output: &CaseOutput) -> Result<(), String> {
    let rows = figures(&output.client, 5);
    let are_right = rows.len() == 2 && rows.iter().all(|row| row[1] == 500.0 && row[3] > 0.0);
    if are_right { Ok(()) } else { Err(format!("the rows are {rows:?}")) }
}

/// Checks that a line such as `latency  =  12.3 us` has a positive number with this unit.
pub(crate) fn is_positive(output: &str, name: &str, unit: &str) -> Result<(), String> {
    let found = output.lines().find_map(|line| {
        let (left, right) = line.split_once('=')?;
        (left.trim() == name).then_some(right)
    });
    let Some(found) = found else { return Err(format!("no line '{name} = …'")) };
    let mut words = found.split_whitespace();
    let figure: f64 = words.next().and_then(|word| word.replace(',', "").parse().ok()).unwrap_or(0.0);
    if figure > 0.0 && words.next().is_some_and(|found| found.ends_with(unit)) {
        return Ok(());
    }
    Err(format!("'{name} ={found}' is not a positive number of {unit}"))
}

/// rping -v: one line of data per iteration.
pub(crate) fn rping(output: &CaseOutput) -> Result<(), String> {
    let lines = |output: &str, begin: &str| output.lines().filter(|line| line.starts_with(begin)).count();
    let (server, client) = (
        lines(&output.server, "server ping data: rdma-ping-"),
        lines(&output.client, "ping data: rdma-ping-"),
    );
    if (server, client) == (10, 10) {
        Ok(())
    } else {
        Err(format!("{server} and {client} lines of data, not 10 and 10"))
    }
}

/// The same check for an rping server that keeps running, whose own output is lost when it is killed.
pub(crate) fn rping_client(output: &CaseOutput) -> Result<(), String> {
    let count = output.client.lines().filter(|line| line.starts_with("ping data: rdma-ping-")).count();
    if count == 10 { Ok(()) } else { Err(format!("{count} lines of data, not 10")) }
}

/// rdma-core's pingpong programs print bytes, iterations and time.
pub(crate) fn pingpong(output: &CaseOutput) -> Result<(), String> {
    for (who, output) in [("server", &output.server), ("client", &output.client)] {
        let bytes = output.lines().find_map(|line| line.split_once(" bytes in ")?.0.parse::<u64>().ok());
        let times = output.lines().find_map(|line| line.split_once(" iters in ")?.0.parse::<u64>().ok());
        if bytes.is_none_or(|bytes| bytes == 0) || times.is_none_or(|times| times == 0) {
            return Err(format!("the {who} does not report bytes and iterations"));
        }
        if output.contains("invalid data") {
            return Err(format!("the {who} found wrong data"));
        }
    }
    Ok(())
}

/// fi_pingpong: rows `64  10  =10  1.2k  0.00s  12.3  10.4  0.1`.
pub(crate) fn fi_pingpong(output: &CaseOutput) -> Result<(), String> {
    for (who, output) in [("server", &output.server), ("client", &output.client)] {
        let mut rows = output.lines().skip_while(|line| !line.starts_with("bytes")).skip(1);
        let Some(row) = rows.next() else { return Err(format!("the {who} has no row")) };
        let words: Vec<&str> = row.split_whitespace().collect();
        let all_came = words.len() == 8 && words[2] == format!("={}", words[1]);
        if !all_came || words[6].parse::<f64>().is_ok_and(|figure| figure <= 0.0) {
            return Err(format!("the {who}'s row is '{row}'"));
        }
    }
    Ok(())
}

/// ucx_perftest: `Final:  1000  0.1  1.2  1.2  3.4  3.4  100  100`.
pub(crate) fn ucx_perftest(output: &CaseOutput) -> Result<(), String> {
    let Some(row) = output.client.lines().find_map(|line| line.strip_prefix("Final:")) else {
        return Err("no line 'Final:'".into());
    };
    let row: Option<Vec<f64>> = row.split_whitespace().map(|word| word.parse().ok()).collect();
    match row {
        Some(row) if row.len() >= 7 && row[0] > 0.0 && row[2] > 0.0 => Ok(()),
        _ => Err("the line 'Final:' has no figures".into()),
    }
}

/// rcopy: the copy has the same bytes.
pub(crate) fn copied(output: &CaseOutput) -> Result<(), String> {
    let read = |name| std::fs::read(output.folder.join(name)).unwrap_or_default();
    let (source, target) = (read("source"), read("target"));
    if !source.is_empty() && source == target {
        return Ok(());
    }
    Err(format!("copied {} bytes that differ from the {} of the source", target.len(), source.len()))
}

/// rstream and riostream: a row `custom  64k  20  20  50m  0.01s  30.00  15.00`.
pub(crate) fn rstream(output: &CaseOutput) -> Result<(), String> {
    let mut rows = output.client.lines().skip_while(|line| !line.starts_with("name ")).skip(1);
    let Some(row) = rows.next() else { return Err("no row".into()) };
    let words: Vec<&str> = row.split_whitespace().collect();
    let rate = words.get(6).and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
    if rate > 0.0 { Ok(()) } else { Err(format!("the row is '{row}'")) }
}

pub(crate) fn qperf_latency(output: &CaseOutput) -> Result<(), String> {
    is_positive(&output.client, "latency", "s")
}

pub(crate) fn qperf_bandwidth(output: &CaseOutput) -> Result<(), String> {
    is_positive(&output.client, "bw", "B/sec")
}

pub(crate) fn qperf_send_bandwidth(output: &CaseOutput) -> Result<(), String> {
    is_positive(&output.client, "send_bw", "B/sec")?;
    is_positive(&output.client, "recv_bw", "B/sec")
}

pub(crate) fn qperf_rate(output: &CaseOutput) -> Result<(), String> {
    is_positive(&output.client, "msg_rate", "/sec")
}
