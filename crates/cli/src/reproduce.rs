//! `kiban reproduce`: what papers published, made again.

mod all;
mod osi_board;
mod output;
mod rdma_nic;
mod via_library;
mod wide_area;

use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiban_lab::Options;
use kiban_lab::reproduce::atm_board::{self, Effort};
use kiban_lab::reproduce::mechanisms;
use kiban_sim::cost::Mechanism;
use output::Output;
use std::process::ExitCode;

/// Make published results again, and say what came out.
///
/// Every row shows a published value, what comes out here, and a verdict: exact (derived), met (no fit has used the
/// value), fitted (a constant was chosen so that it comes out), MISSED, doubtful, conflict.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban reproduce all             every table and figure, and a page for the browser\n  kiban reproduce rdma-nic        one paper\n\nExit status: 0 when no value was missed, 1 otherwise, 2 for a mistake in the arguments."
)]
pub(crate) struct Reproduce {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Subcommand)]
enum Paper {
    AtmBoard(AtmBoard),
    #[command(name = "wide-area-atm")]
    WideArea(wide_area::WideArea),
    ViaLibrary(via_library::ViaLibrary),
    RdmaNic(rdma_nic::RdmaNic),
    OsiBoard(osi_board::OsiBoard),
    All(all::All),
}

impl Reproduce {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        match self.paper {
            Paper::AtmBoard(atm_board) => atm_board.run(),
            Paper::WideArea(wide_area) => wide_area.run(),
            Paper::ViaLibrary(via_library) => via_library.run(),
            Paper::RdmaNic(rdma_nic) => rdma_nic.run(),
            Paper::OsiBoard(osi_board) => osi_board.run(),
            Paper::All(all) => all.run(),
        }
    }
}

/// The ATM board of 1995: its table 2, figure 6 and figure 7.
///
/// The board that kiban ships runs under a modelled processor and memory of 1995, with one set of constants for all
/// points, and beside it as it is today. Nothing leaves this machine.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban reproduce atm-board                   the tables\n  kiban reproduce atm-board --csv > fig.csv   the figures' points\n  kiban reproduce atm-board --svg /tmp/figs   the figures\n  kiban reproduce atm-board --without sum     what one of the paper's mechanisms was worth, and is here"
)]
struct AtmBoard {
    #[command(flatten)]
    output: Output,
    /// Shorter runs and fewer points.
    #[arg(long)]
    quick: bool,
    /// Compare with and without a mechanism of the paper, modelled and as measured now on this machine, in place of the figures;
    /// there are no points to write then, so it goes with --json and --quick, but neither with --csv nor with --svg.
    #[arg(long, value_name = "MECHANISM", conflicts_with_all = ["csv", "svg"])]
    without: Option<Without>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Without {
    /// Headers and contents in memories of their own.
    Separation,
    /// The checksum formed while data move.
    Sum,
    /// Window scaling.
    Scaling,
    /// What arrives is handled between two PDUs.
    Deferral,
    /// Transfers in chains.
    Chaining,
    /// Each of the five.
    All,
}

impl AtmBoard {
    fn run(self) -> Result<ExitCode, String> {
        let effort = if self.quick { Effort::QUICK } else { Effort::FULL };
        if let Some(without) = self.without {
            return self.compare(without, effort);
        }
        let bar = bar(effort.points());
        let report = atm_board::report(effort, &mut || bar.inc(1));
        bar.finish_and_clear();
        self.output.put(&report)
    }

    fn compare(&self, without: Without, effort: Effort) -> Result<ExitCode, String> {
        let chosen = match without {
            Without::Separation => vec![Mechanism::Separation],
            Without::Sum => vec![Mechanism::Sum],
            Without::Scaling => vec![Mechanism::Scaling],
            Without::Deferral => vec![Mechanism::Deferral],
            Without::Chaining => vec![Mechanism::Chaining],
            Without::All => Mechanism::ALL.to_vec(),
        };
        let options = if self.quick { Options::quick() } else { Options::full() };
        let modelled = mechanisms::modelled(&chosen, effort.interval);
        let measured = mechanisms::measured(&chosen, Options { dir: None, ..options });
        let object = serde_json::json!({ "modelled": modelled, "measured": measured });
        self.output.print(&object, || {
            format!("{}\n{}", mechanisms::modelled_table(&modelled), mechanisms::measured_table(&measured))
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A bar on standard error, if somebody watches.
fn bar(points: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{wide_bar} {pos}/{len} points").expect("the template is well formed");
    ProgressBar::with_draw_target(Some(points), ProgressDrawTarget::stderr()).with_style(style)
}
