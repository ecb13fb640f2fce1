//! The `kiban` program, with one module per subcommand.
#![forbid(unsafe_code)]
// `eprintln!` panics if standard error is closed: `output::note!` does not.
#![deny(clippy::print_stderr)]

mod atm;
mod board;
mod completions;
mod ftam;
mod lab;
mod log;
mod man;
mod net;
mod nic;
mod osi;
mod output;
mod reproduce;
mod talk;
mod tour;
mod x25;

use crate::output::note;
use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Communications boards in software.
///
/// A communications board runs whole protocol stacks beside the host, in its own packet memory; the
/// host exchanges requests and data with it through queues. kiban does this in software: as a service on this
/// host (`kiban up`), as an RDMA or VI NIC, for FTAM and OSI, and in a simulator that runs the same code.
#[derive(Parser)]
#[command(name = "kiban", version, arg_required_else_help = true, max_term_width = 100)]
struct Kiban {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Tour(tour::Tour),
    Up(board::up::Up),
    Status(board::control::Show),
    Reload(board::control::Reload),
    Down(board::control::Down),
    Capture(board::control::Capture),
    Ping(board::ping::Ping),
    Connect(board::connect::Connect),
    Run(board::run::Run),
    Net(Box<net::Net>),
    Top(board::top::Top),
    Atm(Box<atm::Atm>),
    Talk(talk::Talk),
    Vi(nic::vi::Vi),
    Rdma(nic::rdma::Rdma),
    Verbs(nic::verbs::Verbs),
    Ftam(Box<ftam::Ftam>),
    Osi(osi::command::Osi),
    X25(x25::X25),
    Xot(osi::xot::Xot),
    Lab(Box<lab::Lab>),
    Reproduce(reproduce::Reproduce),
    Completions(completions::Completions),
    Man(man::Man),
}

fn main() -> ExitCode {
    conclude(net::run_by_name().unwrap_or_else(run))
}

fn run() -> Result<ExitCode, String> {
    match Kiban::parse().verb {
        Verb::Tour(tour) => tour.run(),
        Verb::Up(up) => up.run(),
        Verb::Status(show) => show.run(),
        Verb::Reload(reload) => reload.run(),
        Verb::Down(down) => down.run(),
        Verb::Capture(capture) => capture.run(),
        Verb::Ping(ping) => Ok(ping.run()),
        Verb::Connect(connect) => connect.run(),
        Verb::Run(run) => run.run(),
        Verb::Net(net) => net.run(),
        Verb::Top(top) => top.run(),
        Verb::Atm(atm) => atm.run(),
        Verb::Talk(talk) => talk.run(),
        Verb::Vi(vi) => vi.run(),
        Verb::Rdma(rdma) => rdma.run(),
        Verb::Verbs(verbs) => verbs.run(),
        Verb::Ftam(ftam) => ftam.run(),
        Verb::Osi(osi) => osi.run(),
        Verb::X25(x25) => x25.run(),
        Verb::Xot(xot) => xot.run(),
        Verb::Reproduce(reproduce) => reproduce.run(),
        Verb::Lab(lab) => lab.run(),
        Verb::Completions(completions) => completions.run(&mut Kiban::command()),
        Verb::Man(man) => man.run(Kiban::command()),
    }
}

fn conclude(outcome: Result<ExitCode, String>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(message) => {
            note!("kiban: {message}");
            ExitCode::FAILURE
        }
    }
}
