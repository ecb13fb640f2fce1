//! Two boards through an ATM switch: the set-up of paper \[1\], figure 5.
//!
//! ```text
//!   board 0 ── line ── switch ── line ── board 1
//!   10.0.0.1   OC-3c             OC-3c   10.0.0.2
//! ```
//!
//! Circuits  circuit n connects the addresses 10.0.0.(2n+1) and 10.0.0.(2n+2).

use crate::models::plan::Plan;
use crate::network::plug::{Attachment, BoardNumber, LineNumber, SwitchNumber};
use crate::world::World;
use kiban_atm::wire::atm::{Interface, Vc};
use kiban_atm::{ConnectionId, FABRIC_DELAY, Interval, OC3C_BITS_PER_SECOND, Route, Switch, SwitchPort};
use kiban_board::{AtmPortConfig, BoardConfig, CircuitConfig, PortAddress, PortConfig};
use std::net::{IpAddr, SocketAddr};

/// Two boards, a switch and four directions of line, in a world.
#[derive(Debug)]
pub struct Pair {
    /// The world.
    pub world: World,
    /// The boards.
    pub boards: [BoardNumber; 2],
    /// The switch.
    pub switch: SwitchNumber,
    /// Each board's line to the switch.
    pub sending: [LineNumber; 2],
    /// The switch's line to each board.
    pub receiving: [LineNumber; 2],
}

/// Returns a circuit's VPI and VCI at the boards.
fn circuit(number: usize) -> Vc {
    Vc { vpi: 0, vci: 100 + number as u16 }
}

impl Pair {
    /// Builds the world that `plan` describes.
    pub fn new(plan: &Plan) -> Pair {
        let mut world = World::new(plan.seed);
        let boards = [0, 1].map(|side| world.add_board(&Pair::board(plan, side)));
        if let Some(model) = plan.processor {
            boards.iter().for_each(|board| world.set_processor(*board, model, plan.tcp.mss));
        }
        let cell_time = Interval::of_line(OC3C_BITS_PER_SECOND);
        let port = SwitchPort {
            early_cells_max: plan.switch_cells_max * 3 / 4,
            ..SwitchPort::plain(cell_time, Interface::Uni, plan.switch_cells_max)
        };
        let mut switch = Switch::new(&[port; 2], FABRIC_DELAY);
        for side in 0..2 {
            for number in 0..plan.circuits {
                let name = ConnectionId::Circuit(circuit(number));
                let route = Route::plain(side, name, 1 - side, name, plan.switch_cells_max);
                switch.add(Route { frame_discard: true, ..route }).expect("each circuit is new");
            }
        }
        let switch = world.add_switch(switch);
        let lines = [0, 1].map(|side| {
            let ends = (Attachment::Board(boards[side], 0), Attachment::Switch(switch, side));
            world.connect(ends.0, ends.1, plan.metres, plan.impairment).expect("both are new")
        });
        Pair { world, boards, switch, sending: lines.map(|line| line.0), receiving: lines.map(|line| line.1) }
    }

    /// Returns the address of a side on the first circuit.
    pub fn address(side: usize) -> IpAddr {
        Pair::address_on(0, side)
    }

    /// Returns the address of a side on a circuit.
    ///
    /// # Panics
    /// The circuit's number is above 125: the prefix has no more addresses.
    pub fn address_on(circuit: usize, side: usize) -> IpAddr {
        let host = u8::try_from(2 * circuit + side + 1).ok().filter(|host| *host < 253);
        IpAddr::from([10, 0, 0, host.expect("at most 126 circuits")])
    }

    /// Returns a socket address of a side.
    pub fn socket(side: usize, port: u16) -> SocketAddr {
        SocketAddr::new(Pair::address(side), port)
    }

    fn board(plan: &Plan, side: usize) -> BoardConfig {
        let prefix = kiban_tcpip::ip::Prefix::new(Pair::address(0), 24);
        let mut port = AtmPortConfig::oc3c(Pair::address(side), prefix);
        port.line_bits_per_second = plan.cell_bits_per_second;
        port.circuits.extend((0..plan.circuits).map(|number| {
            let to = CircuitConfig::to(circuit(number), Pair::address_on(number, 1 - side));
            CircuitConfig { frames_max: plan.frames_max, ..to }
        }));
        let more = (1..plan.circuits).map(|number| Pair::address_on(number, side));
        BoardConfig {
            addresses: more.map(|address| PortAddress { port: 0, address, prefix }).collect(),
            memory: plan.memory,
            tcp: plan.tcp.clone(),
            ports: vec![PortConfig::Atm(port)],
            ..BoardConfig::default()
        }
    }
}
