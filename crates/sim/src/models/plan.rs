//! Plans for a pair of boards: the boards of paper \[1\], and modelled boards.

use crate::models::cost::{CostModel, FRAMES_MAX, PAYLOAD_BYTES};
use kiban_atm::OC3C_BITS_PER_SECOND;
use kiban_board::MemoryConfig;
use kiban_board::impairment::ImpairmentConfig;
use kiban_tcpip::tcp;

/// Number of cells in a segment of `PAYLOAD_BYTES` with all its headers (paper \[1\], table 2).
const PAYLOAD_CELLS: u64 = 172;

/// The largest window without scaling, rounded down to whole segments (RFC 9293 §3.1: 16 bits).
const UNSCALED_WINDOW_BYTES: u32 = 0xffff / PAYLOAD_BYTES * PAYLOAD_BYTES;

/// The set-up of two boards and their connection.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of all random numbers.
    pub seed: u64,
    /// TCP's settings on both boards.
    pub tcp: tcp::Config,
    /// Packet memory of each board.
    pub memory: MemoryConfig,
    /// Circuits between the boards. Each connects an address of one board to one of the other.
    pub circuits: usize,
    /// Length of either line.
    pub metres: f64,
    /// Impairments of both lines.
    pub impairment: ImpairmentConfig,
    /// Maximum number of cells that wait at an output port of the switch.
    pub switch_cells_max: usize,
    /// The cell rate of a board, bit/s.
    pub cell_bits_per_second: u64,
    /// Maximum number of frames that wait in a board for the line.
    pub frames_max: usize,
    /// The processor of both boards. With `None`, processing takes no time.
    pub processor: Option<CostModel>,
}

impl Plan {
    /// Returns the boards of paper \[1\] with a TCP window of `window_bytes`. They have payloads of 8192
    /// bytes, neither timestamps nor SACK, 8 MB of content memory in each direction, and short lines.
    pub fn with_window(window_bytes: u32) -> Plan {
        let tcp = tcp::Config {
            mss: 8192,
            segment_bytes_max: 8192,
            receive_buffer_bytes: window_bytes,
            send_buffer_bytes: 2 * window_bytes,
            timestamps: false,
            sack: false,
            ..tcp::Config::default()
        };
        Plan {
            seed: 1,
            tcp,
            memory: MemoryConfig::default(),
            circuits: 1,
            metres: 100.0,
            impairment: ImpairmentConfig::NONE,
            switch_cells_max: 16_384,
            cell_bits_per_second: OC3C_BITS_PER_SECOND,
            frames_max: 64,
            processor: None,
        }
    }
}

impl CostModel {
    /// Returns two such boards with TCP's `config` and windows of `window_bytes`, connected by a switch.
    pub fn plan(&self, config: &tcp::Config, window_bytes: u32) -> Plan {
        let window_bytes =
            if self.mechanisms.scaling { window_bytes } else { window_bytes.min(UNSCALED_WINDOW_BYTES) };
        let plan = Plan::with_window(window_bytes);
        // A page stands for one cluster and holds the payload of one PDU, so there are as many pages as
        // clusters.
        let pages = self.memory.clusters() as usize * PAYLOAD_BYTES as usize;
        Plan {
            tcp: tcp::Config {
                send_buffer_bytes: window_bytes,
                receive_buffer_bytes: window_bytes,
                mss: plan.tcp.mss,
                segment_bytes_max: plan.tcp.segment_bytes_max,
                memory_shares: false,
                sessions_max: self.memory.sessions_max(window_bytes),
                ..config.clone()
            },
            memory: MemoryConfig {
                page_bytes: PAYLOAD_BYTES as usize,
                transmit_bytes: pages,
                receive_bytes: pages,
                ..plan.memory
            },
            cell_bits_per_second: self.cell_bits_per_second(),
            frames_max: FRAMES_MAX,
            processor: Some(*self),
            ..plan
        }
    }

    /// Returns the rate of the segmentation chip in bit/s, with the pause between PDUs spread over their
    /// cells.
    fn cell_bits_per_second(&self) -> u64 {
        let cell_bits = 8 * kiban_atm::wire::atm::CELL_BYTES as u64;
        let nanos = PAYLOAD_CELLS * cell_bits * 1_000_000_000 / OC3C_BITS_PER_SECOND;
        (u128::from(OC3C_BITS_PER_SECOND) * u128::from(nanos)
            / (u128::from(nanos) + self.costs.gap.as_nanos())) as u64
    }
}
