//! The host's TCP counters: `/proc/net/netstat` and `/proc/net/snmp`, as `nstat` shows them.
//!
//! Format           the files consist of pairs of lines, `TcpExt: name name …` and `TcpExt: 1 2 …`. The
//!                  counters include all connections in a network namespace, so a difference describes a
//!                  single connection only if there are no others.
//! Selection        only the counters that explain stalls ([`NAMES`]); a counter that the kernel does not
//!                  have is absent.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::{fs, io};

/// The selected counters.
pub const NAMES: [&str; 16] = [
    "DelayedACKs",
    "DelayedACKLocked",
    "DelayedACKLost",
    "OutRsts",
    "OutSegs",
    "RetransSegs",
    "TCPAutoCorking",
    "TCPDSACKRecv",
    "TCPFromZeroWindowAdv",
    "TCPLossProbes",
    "TCPRcvQDrop",
    "TCPTimeouts",
    "TCPToZeroWindowAdv",
    "TCPWantZeroWindowAdv",
    "PruneCalled",
    "TCPRcvCollapsed",
];

/// Counters by name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counters(pub BTreeMap<String, u64>);

impl Counters {
    /// Reads the counters of this thread's network namespace.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn read() -> io::Result<Counters> {
        let mut counters = Counters::default();
        for file in ["/proc/thread-self/net/snmp", "/proc/thread-self/net/netstat"] {
            counters.add(&fs::read_to_string(file)?);
        }
        Ok(counters)
    }

    fn add(&mut self, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.chunks_exact(2) {
            let [names, counts] = pair else { continue };
            if !names.starts_with("Tcp") {
                continue;
            }
            let counts = counts.split_whitespace().skip(1).map(|count| count.parse::<u64>().ok());
            for (name, count) in names.split_whitespace().skip(1).zip(counts) {
                if let Some(count) = count.filter(|_| NAMES.contains(&name)) {
                    self.0.insert(name.to_owned(), count);
                }
            }
        }
    }

    /// Returns the increments since an earlier reading; counters that did not change are omitted.
    pub fn since(&self, earlier: &Counters) -> Counters {
        let grown = self.0.iter().filter_map(|(name, count)| {
            let more = count.saturating_sub(earlier.get(name));
            (more > 0).then(|| (name.clone(), more))
        });
        Counters(grown.collect())
    }

    /// Returns one counter; zero if it is absent.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_pairs_are_parsed_and_unknown_counters_ignored() {
        let mut counters = Counters::default();
        counters.add(
            "Ip: InReceives\nIp: 5\nTcp: MaxConn OutSegs RetransSegs\nTcp: -1 40 2\nTcpExt: DelayedACKs Strange\nTcpExt: 7 9\n",
        );
        assert_eq!((counters.get("OutSegs"), counters.get("RetransSegs")), (40, 2));
        assert_eq!(
            (counters.get("DelayedACKs"), counters.get("Strange"), counters.get("MaxConn")),
            (7, 0, 0)
        );
        let mut later = counters.clone();
        later.0.insert("DelayedACKs".into(), 10);
        assert_eq!(later.since(&counters), Counters([("DelayedACKs".to_owned(), 3)].into()));
    }

    #[test]
    fn the_host_s_counters_can_be_read() {
        let counters = Counters::read().expect("Linux has /proc");
        assert!(counters.0.contains_key("DelayedACKs") && counters.0.contains_key("OutSegs"), "{counters:?}");
    }
}
