//! Output from message benchmarks: a progress bar while they run, and tables of results.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiban_lab::messages::{PingPong, Stream};
use kiban_lab::table::{Table, figure};

/// Returns a progress bar for `count` messages; it is shown on standard error if that is a terminal.
pub(crate) fn bar(count: u64, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} messages {per_sec}")
        .expect("the template is well formed");
    ProgressBar::with_draw_target(Some(count), target).with_style(style)
}

/// Returns a table of round-trip times, with one row per message size.
pub(crate) fn ping_pong_table(title: String, results: &[PingPong]) -> Table {
    let mut table = sizes(Table::new(title), results.len())
        .number_column("round trips")
        .number_column("min us")
        .number_column("p50 us")
        .number_column("p99 us")
        .number_column("p99.9 us")
        .number_column("max us")
        .number_column("CPU %");
    for result in results {
        let times = [result.min_us, result.p50_us, result.p99_us, result.p999_us, result.max_us];
        let cells = size(result.bytes, results.len())
            .chain([result.count.to_string()])
            .chain(times.map(|time| format!("{time:.2}")))
            .chain([format!("{:.0}", result.cpu_percent)]);
        table.row(cells);
    }
    table.remark(
        "CPU %: processor time of this process relative to wall time; two polling ends in one process use \
        200 %",
    );
    table
}

/// Returns a table of throughput, with one row per message size.
pub(crate) fn stream_table(title: String, results: &[Stream]) -> Table {
    let mut table = sizes(Table::new(title), results.len())
        .number_column("messages")
        .number_column("lost")
        .number_column("seconds")
        .number_column("MB/s")
        .number_column("messages/s")
        .number_column("CPU %");
    for result in results {
        table.row(size(result.bytes, results.len()).chain([
            result.count.to_string(),
            result.lost.to_string(),
            format!("{:.3}", result.seconds),
            figure(result.mbytes_per_second),
            figure(result.messages_per_second),
            format!("{:.0}", result.cpu_percent),
        ]));
    }
    table
}

/// Adds a column for the message size if there are several sizes; a single size is given in the title.
fn sizes(table: Table, rows: usize) -> Table {
    if rows > 1 { table.number_column("bytes") } else { table }
}

fn size(bytes: u32, rows: usize) -> impl Iterator<Item = String> {
    (rows > 1).then(|| bytes.to_string()).into_iter()
}
