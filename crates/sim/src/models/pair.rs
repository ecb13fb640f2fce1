//! Two boards through an ATM switch: the set-up of paper \[1\], figure 5.
//!
//! ```text
//!   board 0 ── line ── switch ── line ── board 1
//!   10.0.0.1   OC-3c             OC-3c   10.0.0.2
//! ```

use crate::models::plan::Plan;
use crate::network::plug::{Attachment, BoardNumber, LineNumber, SwitchNumber};
use crate::world::World;
use kiban_atm::wire::atm::{Interface, Vc};
use kiban_atm::{ConnectionId, FABRIC_DELAY, Interval, OC3C_BITS_PER_SECOND, Route, Switch, SwitchPort};
use kiban_board::{AtmPortConfig, BoardConfig, CircuitConfig, PortConfig};
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

/// The circuit's VPI and VCI at the boards.
const CIRCUIT: Vc = Vc { vpi: 0, vci: 100 };

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
            let name = ConnectionId::Circuit(CIRCUIT);
            let route = Route::plain(side, name, 1 - side, name, plan.switch_cells_max);
            switch.add(Route { frame_discard: true, ..route }).expect("the table is empty");
        }
        let switch = world.add_switch(switch);
        let lines = [0, 1].map(|side| {
            let ends = (Attachment::Board(boards[side], 0), Attachment::Switch(switch, side));
            world.connect(ends.0, ends.1, plan.metres, plan.impairment).expect("both are new")
        });
        Pair { world, boards, switch, sending: lines.map(|line| line.0), receiving: lines.map(|line| line.1) }
    }

    /// Returns the address of a side.
    pub fn address(side: usize) -> IpAddr {
        IpAddr::from([10, 0, 0, 1 + side as u8])
    }

    /// Returns a socket address of a side.
    pub fn socket(side: usize, port: u16) -> SocketAddr {
        SocketAddr::new(Pair::address(side), port)
    }

    fn board(plan: &Plan, side: usize) -> BoardConfig {
        let prefix = kiban_tcpip::ip::Prefix::new(Pair::address(0), 24);
        let mut port = AtmPortConfig::oc3c(Pair::address(side), prefix);
        port.line_bits_per_second = plan.cell_bits_per_second;
        let circuit = CircuitConfig::to(CIRCUIT, Pair::address(1 - side));
        port.circuits.push(CircuitConfig { frames_max: plan.frames_max, ..circuit });
        BoardConfig {
            memory: plan.memory,
            tcp: plan.tcp.clone(),
            ports: vec![PortConfig::Atm(port)],
            ..BoardConfig::default()
        }
    }
}
