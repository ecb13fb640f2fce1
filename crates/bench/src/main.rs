//! The benchmarks: kiban's performance claims, each compared with something that readers know.
//!
//! The file of each family says what is compared and why that is fair. Tables, targets and records use the
//! code of the laboratory ([`kiban_lab`]); results in virtual time are exact and need no repeats.
#![forbid(unsafe_code)]

mod line;
mod link;
mod memory;
mod net;
mod noise;
mod osi;
mod rdma;
mod roce;
mod rows;
mod sar;
mod shards;
mod sim;
mod sum;
mod tcp;
mod vi;
mod wait;
mod worlds;

use clap::Parser;
use kiban_lab::Options;
use std::process::ExitCode;

/// A family of benchmarks.
struct Family {
    name: &'static str,
    about: &'static str,
    run: fn(&Options),
}

const FAMILIES: [Family; 14] = [
    Family { name: "sum", about: "copying with the Internet checksum against memcpy", run: sum::run },
    Family { name: "memory", about: "pages and PDUs against a cyclic ring and Vec", run: memory::run },
    Family { name: "sar", about: "AAL5 segmentation and reassembly with all checks", run: sar::run },
    Family { name: "tcp", about: "TCP between two boards in memory against smoltcp", run: tcp::run },
    Family {
        name: "shards",
        about: "boards divided into shards: in memory, against the kernel, and modelled",
        run: shards::run,
    },
    Family {
        name: "link",
        about: "TCP with the kernel through TUN against a stub and two kernels",
        run: link::run,
    },
    Family { name: "vi", about: "VI through shared memory against a bare ring and memcpy", run: vi::run },
    Family {
        name: "rdma",
        about: "RDMA over TCP sockets against raw TCP and other libraries",
        run: rdma::run,
    },
    Family {
        name: "roce",
        about: "RoCEv2 and EFE over UDP sockets against bare UDP, beside iWARP and raw TCP",
        run: roce::run,
    },
    Family { name: "net", about: "kiban net against pasta, slirp4netns, veth and loopback", run: net::run },
    Family { name: "osi", about: "files by FTAM over TCP sockets against a raw stream", run: osi::run },
    Family { name: "sim", about: "an OC-3c line in virtual time against real time", run: sim::run },
    Family { name: "line", about: "TCP against the limit of an OC-3c line, exact", run: line::run },
    Family { name: "wait", about: "ways to wait, from polling to adaptive, in real time", run: wait::run },
];

/// Measure kiban against its targets. Records are written to target/bench, or to KIBAN_BENCH_DIR.
#[derive(Parser)]
struct Arguments {
    /// Benchmarks to run [default: all].
    #[arg(value_name = "NAME", value_parser = FAMILIES.map(|family| family.name))]
    names: Vec<String>,
    /// List the benchmarks and exit.
    #[arg(long)]
    list: bool,
    /// Only check that the benchmarks work, in less than a minute (also: KIBAN_BENCH_QUICK=1).
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    // This process may have been started as the other end of a benchmark between two processes.
    if std::env::var_os(rdma::ROLE).is_some() {
        rdma::serve(roce::serve);
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(net::ROLE).is_some() {
        net::run_client();
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(shards::ROLE).is_some() {
        shards::serve();
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::parse();
    if arguments.list {
        FAMILIES.iter().for_each(|family| println!("{:8}{}", family.name, family.about));
        return ExitCode::SUCCESS;
    }
    let mut options = Options::from_env();
    if arguments.quick {
        options = Options { dir: options.dir, ..Options::quick() };
    }
    for family in &FAMILIES {
        if arguments.names.is_empty() || arguments.names.iter().any(|name| name == family.name) {
            (family.run)(&options);
        }
    }
    // A missed target is printed and recorded; it is not a failure of the program.
    ExitCode::SUCCESS
}
