//! The losses of a port, by cause.
//!
//! Purpose          report a single total of the units that should have been received or sent but were lost,
//!                  and list the counters that contribute to it.
//! Names            a cause is called `FAMILY_NAME` like its counter, so that it can be found among the
//!                  counters.
//! Units            packets, frames or cells, depending on where the loss was counted. Cells that were lost
//!                  before they reached this host appear as incomplete frames.
//! Not counted      traffic that is not for this port (unmatched packets, closed circuits, unknown
//!                  protocols), what is sent before a link has a peer (`no_peer`), and losses that another
//!                  counter includes (cells of frames that were discarded).

use crate::status::{Counters, named};
use kiban_link::LinkCounters;
use std::collections::BTreeMap;

/// Link counters that count losses.
const OF_LINK: [&str; 6] =
    ["no_memory", "malformed", "overrun", "send_errors", "impair_lost", "impair_queue_full"];

/// Port counters that count losses, by family.
const OF_PORT: [(&str, &[&str]); 5] = [
    ("port", &["queue_full", "no_circuit", "no_memory", "fcs_errors"]),
    ("ethernet", &["malformed", "unresolved_discards", "no_memory"]),
    ("bridge", &["malformed", "too_long", "no_memory"]),
    ("encapsulation", &["frames_truncated"]),
    (
        "reassembly",
        &[
            "frames_crc_wrong",
            "frames_length_wrong",
            "frames_indicator_wrong",
            "frames_oversized",
            "frames_out_of_pages",
            "frames_out_of_blocks",
            "frames_out_of_slices",
        ],
    ),
];

/// Returns the losses of a link.
pub(crate) fn of_link(counters: &LinkCounters) -> Counters {
    let all = named(|see| counters.each(see));
    pick("link", &OF_LINK, &all).collect()
}

/// Returns the losses of a port and its link.
pub(crate) fn of_port(link: &LinkCounters, port: &BTreeMap<String, Counters>) -> Counters {
    let at_port = OF_PORT
        .iter()
        .filter_map(|(family, names)| Some((family, names, port.get(*family)?)))
        .flat_map(|(family, names, counters)| pick(family, names, counters));
    of_link(link).into_iter().chain(at_port).collect()
}

fn pick<'a>(
    family: &'a str,
    names: &'a [&str],
    counters: &'a Counters,
) -> impl Iterator<Item = (String, u64)> + 'a {
    names.iter().filter_map(move |name| Some((format!("{family}_{name}"), *counters.get(*name)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_atm::wire::atm::Vc;
    use kiban_base::ethernet::Mac;
    use kiban_board::{
        AtmPortConfig, Board, BoardConfig, BridgePortConfig, BridgedCircuit, CircuitConfig,
        EthernetPortConfig, PortConfig,
    };
    use kiban_tcpip::ethernet::LinkConfig;
    use kiban_tcpip::ip::Prefix;

    #[test]
    fn every_cause_of_loss_names_an_existing_counter() {
        let nowhere = std::net::IpAddr::from([0; 4]);
        let circuit = CircuitConfig {
            vc: Vc::new(0, 100),
            peer: None,
            llc_snap: true,
            contract: None,
            service: kiban_atm::Service::UBR,
            frames_max: 64,
        };
        let atm = AtmPortConfig {
            circuits: vec![circuit],
            ..AtmPortConfig::oc3c(nowhere, Prefix::new(nowhere, 32))
        };
        let circuits = vec![BridgedCircuit { port: 0, circuit: 0, with_fcs: false }];
        let mut config = BoardConfig::default();
        config.ports.push(PortConfig::Atm(atm));
        config.ports.push(PortConfig::Bridge(BridgePortConfig { circuits, packets_max: 64 }));
        let link = LinkConfig::new(Mac([2, 0, 0, 0, 0, 1]));
        config.ports.push(PortConfig::Ethernet(EthernetPortConfig::on(link)));
        let board = Board::new(&config, kiban_os::random::key().expect("a key"));
        let mut families: BTreeMap<String, Counters> = BTreeMap::new();
        for port in 0..config.ports.len() {
            board.port_counters(port, &mut |family, name, value| {
                families.entry(family.into()).or_default().insert(name.into(), value);
            });
        }
        let all = of_port(&LinkCounters::default(), &families);
        let wanted = OF_LINK.len() + OF_PORT.iter().map(|(_, names)| names.len()).sum::<usize>();
        assert_eq!(all.len(), wanted, "{all:?}");
        assert!(!all.contains_key("link_no_peer"), "a peer that has not connected yet loses nothing");
    }
}
