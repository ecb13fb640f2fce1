//! The theoretical limit of TCP over an OC-3c line, as in table 2 of paper \[1\], but for any payload and any
//! TCP options.
//!
//! ```text
//! OC-3c 155.520 Mbit/s ── 9 of 270 columns, section and line overhead ──► 150.336
//!                      ── 1 more, path overhead ──► 149.760 ── 48 of 53 bytes ──► 135.632
//!                      ── payload of (LLC/SNAP 8 + IP 20 + TCP 20 + options + payload + AAL5) ──► the limit
//! ```

use kiban_atm::OC3C_BITS_PER_SECOND;
use kiban_atm::wire::atm::{CELL_BYTES, CELL_PAYLOAD_BYTES};
use kiban_atm::wire::{aal5, llc_snap};
use kiban_base::ethernet;
use kiban_rdma::wire::roce::{BTH_BYTES, ICRC_BYTES};
use kiban_sim::ETHERNET_FRAMING_BYTES;
use kiban_tcpip::wire::{ipv4, tcp, udp};

/// The shortest Ethernet frame, without its FCS (IEEE 802.3 §3.2.8).
const FRAME_BYTES_MIN: usize = 60;

/// An OC-3c line, bit/s (T1.105, G.707: 9 rows of 270 columns, 8000 times a second).
pub const OC3C_LINE_BITS_PER_SECOND: u64 = 9 * 270 * 8 * 8000;

/// Returns the rate of cell payloads on an OC-3c line, Mbit/s.
pub fn oc3c_cell_payload_mbps() -> f64 {
    OC3C_BITS_PER_SECOND as f64 * CELL_PAYLOAD_BYTES as f64 / CELL_BYTES as f64 / 1e6
}

/// Returns the number of cells of a TCP segment over IPv4, LLC/SNAP and AAL5.
pub fn segment_cells(payload_bytes: usize, option_bytes: usize) -> usize {
    let headers = llc_snap::ROUTED_BYTES + ipv4::HEADER_BYTES + tcp::HEADER_BYTES;
    aal5::cells(headers + option_bytes + payload_bytes)
}

/// Returns the highest TCP payload rate over an OC-3c line in segments of `payload_bytes`, Mbit/s.
pub fn oc3c_mbps(payload_bytes: usize, option_bytes: usize) -> f64 {
    let cells = segment_cells(payload_bytes, option_bytes);
    let cells_per_second = OC3C_BITS_PER_SECOND as f64 / (8 * CELL_BYTES) as f64;
    payload_bytes as f64 * 8.0 * cells_per_second / cells as f64 / 1e6
}

/// Returns the bytes that a RoCEv2 packet over IPv4 takes on an Ethernet line, without extended headers.
pub fn roce_frame_bytes(payload_bytes: usize) -> usize {
    let headers = ethernet::HEADER_BYTES + ipv4::HEADER_BYTES + udp::HEADER_BYTES + BTH_BYTES + ICRC_BYTES;
    (payload_bytes + headers).max(FRAME_BYTES_MIN) + ETHERNET_FRAMING_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_match_table_2_of_paper_1() {
        assert_eq!(OC3C_LINE_BITS_PER_SECOND, 155_520_000);
        assert_eq!(OC3C_BITS_PER_SECOND, OC3C_LINE_BITS_PER_SECOND / 270 * 260);
        assert!((oc3c_cell_payload_mbps() - 135.631_698).abs() < 1e-6);
        // Columns: payload bytes, option bytes, cells, Mbit/s.
        for (payload, options, cells, mbps) in [
            (8192, 0, 172, 134.5803),
            (8192, 12, 173, 133.8024),
            (9140, 0, 192, 134.5132),
            (9128, 12, 192, 134.3366),
            (1460, 0, 32, 128.9208),
            (1448, 12, 32, 127.8611),
            (512, 0, 12, 120.5615),
            (65_480, 0, 1366, 135.4497),
        ] {
            assert_eq!(segment_cells(payload, options), cells);
            assert!((oc3c_mbps(payload, options) - mbps).abs() < 5e-5, "{payload} {options}");
        }
    }
}
