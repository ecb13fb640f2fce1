//! What a port has lost, by cause.
//!
//! Goal      one sum that leaves nothing out which should have come or gone and did not, and says where each part of it is counted.
//! Names     `FAMILY_NAME` of the counter, so that a cause is found again among the figures.
//! Units     what is lost where it is lost: packets, frames or cells; of cells that were lost before they came here, the frames that are
//!           not whole.
//! Left out  what others sent that is not for this port (strangers, circuits that are not open, protocols that are not known), and what
//!           is counted elsewhere once more: cells of frames that were given up.

use crate::status::{Counters, named};
use kiban_real::link::LinkCounters;
use std::collections::BTreeMap;

/// Counters of a link that are losses.
const OF_LINK: [&str; 6] = ["starved", "malformed", "overrun", "refused", "harm_lost", "harm_queue_full"];

/// Counters of a port that are losses, by family.
const OF_PORT: [(&str, &[&str]); 5] = [
    ("port", &["queue_full", "no_circuit", "starved", "fcs_wrong"]),
    ("ethernet", &["malformed", "waiting_dropped", "starved"]),
    ("bridge", &["malformed", "too_long", "starved"]),
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

/// What a link has lost.
pub(crate) fn of_link(counters: &LinkCounters) -> Counters {
    let all = named(|see| counters.each(see));
    pick("link", &OF_LINK, &all).collect()
}

/// What a port and its link have lost.
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
    use kiban_board::{
        AtmPortConfig, Board, BoardConfig, BridgePortConfig, BridgedCircuit, CircuitConfig,
        EthernetPortConfig, PortConfig,
    };
    use kiban_stack::ethernet::LinkConfig;
    use kiban_stack::ip::Prefix;
    use kiban_wire::atm::Vc;
    use kiban_wire::ethernet::Mac;

    #[test]
    fn every_cause_is_a_counter_that_there_is() {
        let nowhere = std::net::IpAddr::from([0; 4]);
        let circuit =
            CircuitConfig { vc: Vc::new(0, 100), peer: None, llc_snap: true, contract: None, frames_max: 64 };
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
        let board = Board::new(&config, kiban_real::random::key().expect("a key"));
        let mut families: BTreeMap<String, Counters> = BTreeMap::new();
        for port in 0..config.ports.len() {
            board.port_counters(port, &mut |family, name, value| {
                families.entry(family.into()).or_default().insert(name.into(), value);
            });
        }
        let all = of_port(&LinkCounters::default(), &families);
        let wanted = OF_LINK.len() + OF_PORT.iter().map(|(_, names)| names.len()).sum::<usize>();
        assert_eq!(all.len(), wanted, "{all:?}");
    }
}
