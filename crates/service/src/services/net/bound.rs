//! The ports that the programs of a network namespace have open, from the tables of its sockets
//! (proc_pid_net(5)).
//!
//! Limits  of each table, the first [`TABLE_BYTES_MAX`] are read. TCP lists its listeners first, so other
//!         connections hide none.

use super::namespace::Protocol;
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;

/// About 1700 sockets of TCP, and 2000 of UDP.
const TABLE_BYTES_MAX: u64 = 256 << 10;
/// The states of a listener, and of a UDP socket that is not connected (`TCP_LISTEN`, `TCP_CLOSE`).
const LISTENS: &str = "0A";
const IS_UNCONNECTED: &str = "07";

/// Returns the ports at which TCP listens, or at which unconnected UDP sockets receive; `clients` are those
/// of UDP that the system gives to clients.
pub(super) fn bound(tables: &[File], protocol: Protocol, clients: &RangeInclusive<u16>) -> BTreeSet<u16> {
    let mut ports = BTreeSet::new();
    let mut text = Vec::new();
    for table in tables {
        text.clear();
        read(table, &mut text);
        ports.extend(listed(&String::from_utf8_lossy(&text), protocol));
    }
    if protocol == Protocol::Udp {
        // Clients have these ports, each for a short time.
        ports.retain(|port| !clients.contains(port));
    }
    ports
}

/// Reads the beginning of a table, which is made anew when it is read from the start.
fn read(table: &File, text: &mut Vec<u8>) {
    let mut piece = [0; 16 << 10];
    while let Ok(count @ 1..) = table.read_at(&mut piece, text.len() as u64) {
        text.extend_from_slice(&piece[..count]);
        if text.len() as u64 >= TABLE_BYTES_MAX {
            break;
        }
    }
}

fn listed(text: &str, protocol: Protocol) -> impl Iterator<Item = u16> {
    let wanted = match protocol {
        Protocol::Tcp => LISTENS,
        Protocol::Udp => IS_UNCONNECTED,
    };
    // `sl: local_address rem_address st ...`, with numbers in hexadecimal.
    text.lines().filter_map(move |line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, _, state) = (words.next()?, words.next()?, words.next()?);
        let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        (state == wanted).then_some(port)
    })
}

/// Returns the ports that the system gives to clients (ip_local_port_range in ip(7)). The board's sandbox
/// forbids the file, so this is called only at the start.
pub(super) fn ephemeral() -> RangeInclusive<u16> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(last))) => first..=last,
        _ => 32_768..=60_999,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_found_in_tables_of_both_families() {
        let tcp =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:1F91 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 20 4 30 10 -1
   2: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000
   3: 0100";
        let udp = "   0: 00000000:0035 00000000:0000 07 00000000:00000000
   1: 0100007F:0036 0100007F:C350 01 00000000:00000000
";
        assert_eq!(listed(tcp, Protocol::Tcp).collect::<Vec<_>>(), [8080, 80]);
        assert_eq!(listed(udp, Protocol::Udp).collect::<Vec<_>>(), [53]);
    }
}
