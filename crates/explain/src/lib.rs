//! Explains TCP and RoCEv2 connections in packet captures: who waited for whom, and why.
//!
//! Purpose          a verdict for each connection of a pcap or pcapng file, with the packets that prove it.
//! Path             the file is read down to segments and packets (`read`), without copies (`copies`). `tcp`
//!                  and [`roce`] explain each connection, and `report` has the result.
//! Related work     T-RAT (Zhang et al., SIGCOMM 2002) and Siekkinen et al. (2005) classify the limits of
//!                  transfers; tcptrace and Wireshark mark single events. Here, as in Linux's TCP_INFO
//!                  (`tcpi_busy_time` and its companions), the time is accounted for.
//! Pure             the caller reads the file: this crate makes no system calls.
//! Limits           a file is analysed in memory, at most two million packets of it. Segments that the
//!                  network card cuts after a capture at the sender (segmentation offload) count as they were
//!                  captured.
//! Not implemented  Multipath TCP; QUIC.
//!
//! ```
//! let nothing = kiban_explain::explain(b"not a capture");
//! assert!(nothing.is_err());
//! ```
#![forbid(unsafe_code)]

mod cause;
mod copies;
mod excerpt;
mod figures;
mod finding;
mod place;
mod read;
mod report;
pub mod roce;
mod tcp;
mod waited;

pub use cause::Cause;
pub use excerpt::{Curves, Step};
pub use finding::{Evidence, Finding};
pub use place::Place;
pub use report::{Explained, Limit, Report, Summary};
pub use waited::Waited;

use kiban_base::Malformed;

/// Explains the connections of a capture file, given its contents.
///
/// # Errors
/// If it is neither pcap nor pcapng. A file that is damaged later, or too large, is explained up to there:
/// see [`Report::unread`].
pub fn explain(file: &[u8]) -> Result<Report, Malformed> {
    let mut contents = read::read(file, read::SEGMENTS_MAX)?;
    let duplicates = copies::remove(&mut contents.segments);
    let connections = tcp::connections(&contents.segments);
    let tcp = connections.iter().map(|one| (one.packets[0].number, tcp::explain(one)));
    let queue_pairs = roce::connections(&contents.roce);
    let roce = queue_pairs.iter().map(|one| (one.packets[0].number, roce::explain(one)));
    let mut connections: Vec<(u32, Explained)> = tcp.chain(roce).collect();
    connections.sort_by_key(|(first, _)| *first);
    for (number, (_, one)) in (1..).zip(&mut connections) {
        one.number = number;
    }
    let mut connections: Vec<Explained> = connections.into_iter().map(|(_, one)| one).collect();
    report::link(&mut connections);
    Ok(Report {
        packets: contents.packets,
        skipped: contents.skipped,
        other: contents.other.into_iter().map(|(other, count)| (other.to_string(), count)).collect(),
        duplicates,
        unsupported_link_type: contents.unsupported_link_type,
        unread: contents.unread.map(|unread| unread.to_string()),
        roce: contents.uncounted,
        connections,
    })
}
