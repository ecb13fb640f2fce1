//! The arguments of `kiban lab`, and its subcommands.

use super::{explain, live, merge, mix, net, questions, report, rtp, run, script, summary};
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Measure networks and models; find throughput collapses and their causes.
///
/// Networks: run 'serve' on one host, and 'sweep', 'delay', 'latency', 'udp', 'check' or 'trace' on the
/// other. 'hosts' compares several hosts, and starts the servers over ssh. 'request' splits requests to any
/// web server into their parts.
///
/// Traffic: 'mix' sends several kinds of flows at once over a network with policing; 'rtp' sends and receives
/// streams with RTCP reports.
///
/// Captures: 'explain' says why the TCP and RoCEv2 connections of a packet capture are slow.
///
/// Plans: a plan names a question and the values of its parameters. 'run' runs one trial for each combination
/// and records it as a line of JSON; an interrupted run can be resumed. Shards of a plan can run on different
/// machines; 'merge' combines them. 'summary' and 'report' need only the records.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab serve                             on one host; prints a token\
        \n  KIBAN_LAB_TOKEN=... kiban lab sweep HOST    on the other: slow regions, causes, remedies\
        \n  kiban lab latency HOST                      round trips under load, and their grade\
        \n  kiban lab hosts plan.toml --together        several hosts side by side; starts them over ssh\
        \n  kiban lab request https://www.example.org/  the shares of DNS, TCP, TLS and the server\
        \n  kiban lab explain slow.pcapng               why the connections of a capture are slow\
        \n  kiban lab questions wide-area-atm           parameters, metrics and an example plan\
        \n  kiban lab run map.toml --out map            run it; repeat the command to resume\
        \n  kiban lab report map                        a page with maps and curves, map/report.html\
        \n  kiban lab script slurm map.toml --shards 8  a job array\
        \n\nExit status: 0 if every trial has a record, 1 if not or on an error, 2 for invalid arguments.")]
pub(crate) struct Lab {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[command(flatten)]
    Net(net::Net),
    Mix(mix::Mix),
    Rtp(rtp::Rtp),
    Explain(explain::Explain),
    Questions(questions::Questions),
    Run(run::Run),
    Live(live::Live),
    Merge(merge::Merge),
    Summary(summary::Summary),
    Report(report::Report),
    Script(script::Script),
}

impl Lab {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        match self.verb {
            Verb::Net(net) => net.run(),
            Verb::Mix(mix) => mix.run(),
            Verb::Rtp(rtp) => rtp.run(),
            Verb::Explain(explain) => explain.run(),
            Verb::Questions(questions) => questions.run(),
            Verb::Run(run) => run.run(),
            Verb::Live(live) => live.run(),
            Verb::Merge(merge) => merge.run(),
            Verb::Summary(summary) => summary.run(),
            Verb::Report(report) => report.run(),
            Verb::Script(script) => script.run(),
        }
    }
}
