//! `kiban tour`: transfers a file in every way that kiban supports.

use crate::output::note;
use clap::Args;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiban_lab::tour::{self, Captures, Payload, Row, TRANSFERS};
use std::path::PathBuf;
use std::process::ExitCode;

/// Transfer a real file between two boards in every supported way, and show the cost of each.
///
/// Two simulated boards are connected by OC-3c lines through an ATM switch. The file is sent in both
/// directions over one TCP session, then over sixty at once; then through the VI board over a cLAN-like link;
/// then by RDMA Write and Read over this machine's TCP in real time, over the board's own TCP, over EFE and
/// over RoCEv2; then by FTAM through all seven OSI layers, over X.25 at 2 Mbit/s, over the board's own TCP
/// and in internal loopback. SHA-256 verifies every copy. Nothing leaves this machine.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban tour                         a generated file of 64 MiB\
        \n  kiban tour holiday.jpg             your own file\
        \n  kiban tour --json | jq '.rows[0]'  for scripts\
        \n  kiban tour --pcap /tmp/tour        captures of the first four rows for Wireshark\
        \n\n  dd if=/dev/urandom bs=1M count=8 | kiban tour /dev/stdin\
        \n\nExit status: 0 if every file arrived intact, 1 otherwise, 2 for invalid arguments.")]
pub(crate) struct Tour {
    /// The file to transfer [default: a generated one of 64 MiB].
    file: Option<PathBuf>,
    /// Print one JSON object {"rows": [...]} instead of the table.
    #[arg(long)]
    json: bool,
    /// Write captures of what each board receives in the transfers over ATM into this directory; together
    /// about four times the file's size. The other transfers are not captured.
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// End each capture file at this size; later packets are left out.
    #[arg(long, value_name = "BYTES", requires = "pcap")]
    pcap_max: Option<u64>,
    /// Do not show a progress bar.
    #[arg(long, short)]
    quiet: bool,
}

impl Tour {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let cargo = match &self.file {
            None => Payload::generated(tour::GENERATED_BYTES),
            Some(path) => {
                Payload::open(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?
            }
        };
        let file_bytes_max = self.pcap_max.unwrap_or(u64::MAX);
        let mut captures = self.pcap.clone().map(|folder| Captures {
            folder,
            file_bytes_max,
            files: 0,
            files_cut: 0,
            bytes: 0,
        });
        let bar = self.bar(cargo.len());
        let mut rows = Vec::new();
        for (done, leg) in TRANSFERS.into_iter().enumerate() {
            let before = done as u64 * cargo.len();
            bar.set_message(match leg.sessions {
                1 => format!("board {} to {}, one session", leg.sender, 1 - leg.sender),
                many => format!("board {} to {}, {many} sessions", leg.sender, 1 - leg.sender),
            });
            let row =
                tour::run(leg, &cargo, captures.as_mut(), &mut |bytes| bar.set_position(before + bytes));
            rows.push(row.map_err(|failure| failure.to_string())?);
        }
        bar.set_message("VI over a cLAN-like link");
        let before = TRANSFERS.len() as u64 * cargo.len();
        let row = tour::vi::run(&cargo, &mut |bytes| bar.set_position(before + bytes));
        rows.push(row.map_err(|failure| failure.to_string())?);
        for (done, (by, over)) in tour::rdma::TRANSFERS.into_iter().enumerate() {
            bar.set_message(tour::rdma::name(by, over));
            let before = (TRANSFERS.len() + 1 + done) as u64 * cargo.len();
            let row = tour::rdma::run(by, over, &cargo, &mut |bytes| bar.set_position(before + bytes));
            rows.push(row.map_err(|failure| failure.to_string())?);
        }
        for (done, over) in tour::osi::TRANSFERS.into_iter().enumerate() {
            bar.set_message(tour::osi::name(over));
            let before = (TRANSFERS.len() + 1 + tour::rdma::TRANSFERS.len() + done) as u64 * cargo.len();
            let row = tour::osi::run(over, &cargo, &mut |bytes| bar.set_position(before + bytes));
            rows.push(row.map_err(|failure| failure.to_string())?);
        }
        bar.finish_and_clear();
        crate::output::print(&if self.json { json(&rows)? } else { tour::table(&rows).to_string() })?;
        if let Some(Captures { folder, file_bytes_max, files, files_cut, bytes }) = &captures {
            let (count, size) = (TRANSFERS.len(), HumanBytes(*bytes));
            let cut = match files_cut {
                0 => String::new(),
                cut => format!(", {cut} of them cut at {file_bytes_max} bytes"),
            };
            note!("captures of the first {count} rows: {}: {size} in {files} files{cut}", folder.display());
        }
        Ok(if rows.iter().all(|row| row.sha256_equal) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Returns a progress bar on standard error; it is hidden if standard error is not a terminal.
    fn bar(&self, bytes: u64) -> ProgressBar {
        let target = if self.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let style =
            ProgressStyle::with_template("{msg:32} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec}")
                .expect("the template is well formed");
        ProgressBar::with_draw_target(
            Some(
                bytes
                    * (TRANSFERS.len() + 1 + tour::rdma::TRANSFERS.len() + tour::osi::TRANSFERS.len()) as u64,
            ),
            target,
        )
        .with_style(style)
    }
}

fn json(rows: &[Row]) -> Result<String, String> {
    crate::output::json(&serde_json::json!({ "rows": rows }))
}
