//! The frame check sequence (FCS) of Ethernet frames that are carried over ATM with it (RFC 2684 §5.2).

use crate::bridge::FRAME_BYTES_MIN;
use kiban_base::crc::Crc32Ethernet;
use kiban_base::{Context, Pdu};

/// Bytes of a frame's check sequence.
pub(super) const FCS_BYTES: usize = 4;

/// Removes the FCS of a frame. Returns whether it was correct.
pub(super) fn take_fcs(pdu: &mut Pdu) -> bool {
    let Some(length) = pdu.len().checked_sub(FCS_BYTES) else { return false };
    let (mut crc, mut received_fcs, mut left) = (Crc32Ethernet::new(), [0; FCS_BYTES], length);
    for run in pdu.runs() {
        let (frame, fcs) = run.split_at(run.len().min(left));
        crc.update(frame);
        left -= frame.len();
        for byte in fcs {
            received_fcs.rotate_left(1);
            received_fcs[FCS_BYTES - 1] = *byte;
        }
    }
    pdu.truncate(length);
    crc.value().to_le_bytes() == received_fcs
}

/// Pads a frame to Ethernet's minimum length and appends its FCS, because a frame sent with its FCS must also
/// be padded (RFC 2684 §5.2). Returns false if there is no memory.
pub(super) fn put_fcs(pdu: &mut Pdu, cx: &mut Context<'_>) -> bool {
    let missing = FRAME_BYTES_MIN.saturating_sub(pdu.len());
    if missing > 0 {
        pdu.push_tail(missing);
    }
    let mut crc = Crc32Ethernet::new();
    pdu.runs().for_each(|run| crc.update(run));
    let fcs = pdu.push_tail(FCS_BYTES);
    let at = fcs.len() - FCS_BYTES;
    fcs[at..].copy_from_slice(&crc.value().to_le_bytes());
    // The tail is reserved for the AAL5 trailer, so move the FCS into the body.
    match pdu.freeze(&mut cx.memory.transmit) {
        Some(bytes) => {
            cx.copies.header_bytes += bytes as u64;
            true
        }
        None => false,
    }
}
