//! `kiban lab explain`: explains the TCP and RoCEv2 connections of packet captures.

use crate::output::{note, print};
use clap::Args;
use kiban_explain::{Explained, Report};
use kiban_lab::engine::store::write_atomically;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Maximum number of bytes that are read of a file, because it is analysed in memory.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Explain why the TCP and RoCEv2 connections of a packet capture are slow.
///
/// Prints a line for each connection, the verdict first: who waited for whom, and how much time was lost.
/// With --connection, also the packets that prove it, and what to do. Reads pcap and pcapng files, captured
/// at the client, at the server or between them; headers suffice (tcpdump -s 128). A RoCEv2 connection is a
/// pair of queue pairs (RC or XRC). Reads at most 1 GiB of a file, and two million TCP segments and RoCEv2
/// packets; a message says if the file has more.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  tcpdump -i eth0 -s 128 -w slow.pcap tcp port 443     make a capture\
        \n  tcpdump -i eth0 -s 128 -w rdma.pcap udp port 4791    the same for RoCEv2\
        \n  kiban lab explain slow.pcap                          a table of verdicts\
        \n  kiban lab explain slow.pcap --connection 3           evidence and advice for one connection\
        \n  kiban lab explain slow.pcap --html slow.html         a page with pictures\
        \n  kiban lab explain slow.pcap --json | jq '.[].connections[].verdict.cause'\
        \n  xz -dc slow.pcap.xz | kiban lab explain -            from standard input\
        \n\nExit status: 0 if the files could be read, 1 if one could not, 2 for invalid arguments.")]
pub(super) struct Explain {
    /// Capture files, pcap or pcapng; - is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Show the evidence for this connection, by its number in the table.
    #[arg(long, value_name = "N")]
    connection: Option<usize>,
    /// Print everything as JSON: a list with an entry for each file.
    #[arg(long)]
    json: bool,
    /// HTML file to write; requires a single capture file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(serde::Serialize)]
struct Entry<'a> {
    file: &'a Path,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum Outcome {
    Explained(Report),
    Unreadable { error: String },
}

impl Explain {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        if self.html.is_some() && self.files.len() > 1 {
            return Err("--html writes the page of one capture: give one FILE".to_owned());
        }
        let mut entries = Vec::new();
        let mut exit = ExitCode::SUCCESS;
        for file in &self.files {
            let mut report = match read(file) {
                Ok(report) => report,
                // The other files are explained all the same.
                Err(error) if self.files.len() > 1 || self.json => {
                    note!("kiban: {error}");
                    exit = ExitCode::FAILURE;
                    entries.push(Entry { file, outcome: Outcome::Unreadable { error } });
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Some(number) = self.connection {
                let count = report.connections.len();
                report.connections.retain(|one| one.number == number);
                if report.connections.is_empty() {
                    let name = file.display();
                    return Err(format!("{name} has no connection {number}; it has {count}: see the table"));
                }
            }
            entries.push(Entry { file, outcome: Outcome::Explained(report) });
        }
        if let (Some(page), [Entry { file, outcome: Outcome::Explained(report) }]) =
            (&self.html, &entries[..])
        {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let command = format!("kiban lab explain {} --html {}", file.display(), page.display());
            let html = kiban_lab::explain::html(report, &name, &command);
            write_atomically(page, html.as_bytes()).map_err(|error| error.to_string())?;
        }
        if self.json {
            super::output::json(&entries)?;
            return Ok(exit);
        }
        for Entry { file, outcome } in &entries {
            let Outcome::Explained(report) = outcome else { continue };
            if entries.len() > 1 {
                print(&format!("{}:\n", file.display()))?;
            }
            match &report.connections[..] {
                [] => print(&format!("no TCP or RoCEv2 connections; {}\n", report.contents()))?,
                [one] => print(&one.to_string())?,
                _ => print(&report.to_string())?,
            }
            if self.connection.is_none() && report.connections.len() > 1 {
                let slow = report.connections.iter().filter(|one| one.is_slow());
                // The largest transfer; a control connection or a refused one may have lost more time.
                if let Some(largest) = slow.max_by_key(|one| bytes(one)) {
                    note!("next: kiban lab explain {} --connection {}", file.display(), largest.number);
                }
            }
        }
        if let Some(page) = &self.html {
            note!("wrote {}", page.display());
        }
        Ok(exit)
    }
}

/// Returns the bytes of both directions of a connection.
fn bytes(one: &Explained) -> u64 {
    one.directions.iter().map(|direction| direction.bytes).sum()
}

/// Reads and explains a file, and notes what of it was not read.
fn read(file: &Path) -> Result<Report, String> {
    let name = file.display();
    let failed = |error: std::io::Error| format!("cannot read {name}: {error}");
    let mut bytes = Vec::new();
    let opened: Box<dyn Read> = if file == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(file).map_err(failed)?)
    };
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    let is_large = bytes.len() as u64 > FILE_BYTES_MAX;
    bytes.truncate(FILE_BYTES_MAX as usize);
    let mut report =
        kiban_explain::explain(&bytes).map_err(|_| format!("{name} {}", not_a_capture(&bytes)))?;
    if is_large {
        report.unread = Some("it is larger than 1 GiB".to_owned());
    }
    if let Some(why) = &report.unread {
        note!("kiban: {name}: only the first {} packets were read: {why}", report.packets);
    }
    if is_large {
        note!("kiban: headers suffice: tcpdump -r {name} -s 128 -w smaller.pcap tcp or udp port 4791");
    }
    if let Some(link_type) = report.unsupported_link_type {
        note!(
            "kiban: {name}: packets of link type {link_type} were skipped; Ethernet, raw IP, BSD loopback and \
             Linux cooked are supported"
        );
    }
    if report.roce.sum() > 0 {
        note!("kiban: {name}: {}", report.roce);
    }
    if report.skipped > 0 {
        note!(
            "kiban: {name}: {} packets were skipped: malformed, or cut off inside their headers (capture at \
             least 128 bytes: tcpdump -s 128)",
            report.skipped
        );
    }
    if report.duplicates > 0 {
        note!(
            "kiban: {name}: {} copies of packets were left out: the file has packets twice, as after tcpdump \
             -i any on a bridge",
            report.duplicates
        );
    }
    Ok(report)
}

/// Returns why a file is no capture, and what to do.
fn not_a_capture(bytes: &[u8]) -> &'static str {
    match bytes {
        [] => "is empty: end the capture, so that it is written (or use tcpdump -U)",
        [0x1f, 0x8b, ..] => "is compressed: unpack it first (gunzip)",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "is compressed: unpack it first (unzstd)",
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "is compressed: unpack it first (unxz)",
        [b'B', b'Z', b'h', ..] => "is compressed: unpack it first (bunzip2)",
        [0x04, 0x22, 0x4d, 0x18, ..] => "is compressed: unpack it first (unlz4)",
        _ => {
            "is neither a pcap nor a pcapng file, or its header is damaged: convert it (editcap -F pcapng IN OUT)"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_an_entry_for_a_file_that_cannot_be_read() {
        let outcome = Outcome::Unreadable { error: "it is empty".to_owned() };
        let entry = serde_json::to_value(Entry { file: Path::new("a.pcap"), outcome }).expect("plain values");
        assert_eq!(entry, serde_json::json!({ "file": "a.pcap", "error": "it is empty" }));
    }

    #[test]
    fn a_compressed_file_is_answered_by_the_program_that_unpacks_it() {
        for (head, program) in [
            (&[0x1f, 0x8b, 8][..], "gunzip"),
            (&[0x28, 0xb5, 0x2f, 0xfd, 0], "unzstd"),
            (&[0xfd, b'7', b'z', b'X', b'Z', 0], "unxz"),
            (b"BZh91AY", "bunzip2"),
            (&[0x04, 0x22, 0x4d, 0x18, 0], "unlz4"),
            (b"plain text", "editcap"),
        ] {
            assert!(not_a_capture(head).contains(program), "{head:?}");
        }
    }
}
