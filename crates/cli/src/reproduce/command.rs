//! The arguments of `kiban reproduce`, and its subcommands.

use super::{all, atm_board, osi_board, rdma_nic, via_library, wide_area};
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Reproduce the published results of the five papers.
///
/// Prints the verdict on every table and figure: exact (derived), met (the value was not used to fit
/// anything), fitted (a constant was fitted to it), MISSED, doubtful, conflict. With --full, prints each
/// published value beside the value measured here.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban reproduce all             every table and figure, and an HTML report\
        \n  kiban reproduce rdma-nic        one paper: the verdicts\
        \n  kiban reproduce rdma-nic --full every value of it\
        \n\nExit status: 0; with --strict, 1 if a value was missed; 2 for invalid arguments.")]
pub(crate) struct Reproduce {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Subcommand)]
enum Paper {
    AtmBoard(atm_board::AtmBoard),
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
