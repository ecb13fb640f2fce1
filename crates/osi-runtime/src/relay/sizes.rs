//! Makes the default TPDU size explicit where a connection crosses from one network to the other.
//!
//! A CR or CC without a size means 65531 octets over RFC 1006 (§6), but 128 over X.25 (X.224 §6.5.4). If it
//! were relayed unchanged, the two ends would assume different sizes. So the relay adds the default of the
//! sender's network to a CR or CC that lacks the parameter. If the TPDU comes from TCP, the relay also limits
//! the size to the 2048 octets that class 0 allows over X.25 (X.224 §13.3.4).

use kiban_base::Rope;
use kiban_osi::wire::cotp::{Connect, HEADER_BYTES_MAX, Tpdu};

/// The code for a TPDU size of 128 octets.
const CODE_MIN: u8 = 7;
/// The code for a TPDU size of 2048 octets.
const CODE_MAX: u8 = 11;
/// The parameter code of the TPDU size.
const TPDU_SIZE: u8 = 0xc0;
/// Offset of the variable part, which follows the length, the TPDU code, two references and the class.
const PARAMETERS_AT: usize = 7;

/// The TPDU sizes of one circuit.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// The size that the CR proposed.
    proposed: Option<u8>,
    to_tcp: bool,
    to_x25: bool,
}

impl Sizes {
    /// Adjusts a unit from X.25 for TCP.
    pub(super) fn for_tcp(&mut self, unit: Rope) -> Rope {
        if std::mem::replace(&mut self.to_tcp, true) { unit } else { self.settle(unit, CODE_MIN, u8::MAX) }
    }

    /// Adjusts a unit from TCP for X.25.
    pub(super) fn for_x25(&mut self, unit: Rope) -> Rope {
        if std::mem::replace(&mut self.to_x25, true) { unit } else { self.settle(unit, CODE_MAX, CODE_MAX) }
    }

    /// Adjusts the first TPDU: an absent size becomes `silent`, and a size above `most` becomes `most`.
    fn settle(&mut self, unit: Rope, silent: u8, most: u8) -> Rope {
        let mut header = [0; HEADER_BYTES_MAX];
        let there = unit.copy_to(0, &mut header);
        match Tpdu::read(&header[..there]) {
            Ok((Tpdu::ConnectRequest(connect), used)) => {
                let code = connect.tpdu_size.unwrap_or(silent).min(most);
                self.proposed = Some(code);
                with(unit, &header[..used], &connect, code)
            }
            // If the CC has the preferred TPDU size parameter, that parameter applies instead.
            Ok((Tpdu::ConnectConfirm(connect), used)) if connect.preferred.is_none() => {
                // A CC from TCP without a size accepts the proposal.
                let silent = if silent == CODE_MAX { self.proposed.unwrap_or(silent) } else { silent };
                let code = connect.tpdu_size.unwrap_or(silent).min(most);
                with(unit, &header[..used], &connect, code)
            }
            _ => unit,
        }
    }
}

/// Returns the TPDU with this size. It is unchanged if it already has that size or has no room for the
/// parameter.
fn with(mut unit: Rope, header: &[u8], connect: &Connect, code: u8) -> Rope {
    if connect.tpdu_size == Some(code) {
        return unit;
    }
    let mut changed = header.to_vec();
    match connect.tpdu_size {
        None => {
            if header.len() + 3 >= HEADER_BYTES_MAX {
                return unit;
            }
            changed.extend_from_slice(&[TPDU_SIZE, 1, code]);
            changed[0] += 3;
        }
        Some(_) => {
            let mut at = PARAMETERS_AT;
            while let Some(&[name, length]) = header.get(at..at + 2) {
                if name == TPDU_SIZE && length == 1 {
                    changed[at + 2] = code;
                }
                at += 2 + usize::from(length);
            }
        }
    }
    unit.skip(header.len());
    let mut all = Rope::from(changed);
    all.append(unit);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const CR: [u8; 7] = [6, 0xe0, 0, 0, 0, 1, 0];
    const CC: [u8; 7] = [6, 0xd0, 0, 1, 0, 2, 0];

    fn sized(tpdu: [u8; 7], code: u8) -> Vec<u8> {
        let mut bytes = [&tpdu[..], &[0xc0, 1, code]].concat();
        bytes[0] += 3;
        bytes
    }

    #[test]
    fn both_ends_assume_the_same_size() {
        // Columns: whether the caller is on TCP; the CR received, the CR relayed, the CC received, the CC
        // relayed.
        for (from_tcp, cr, cr_out, cc, cc_out) in [
            (true, CR.to_vec(), sized(CR, 11), CC.to_vec(), sized(CC, 7)),
            (true, sized(CR, 13), sized(CR, 11), sized(CC, 10), sized(CC, 10)),
            (true, sized(CR, 8), sized(CR, 8), sized(CC, 8), sized(CC, 8)),
            (false, CR.to_vec(), sized(CR, 7), CC.to_vec(), sized(CC, 7)),
            (false, sized(CR, 10), sized(CR, 10), CC.to_vec(), sized(CC, 10)),
            (false, sized(CR, 10), sized(CR, 10), sized(CC, 9), sized(CC, 9)),
        ] {
            let mut sizes = Sizes::default();
            let mut pass = |to_x25: bool, unit: Vec<u8>| {
                let unit = Rope::from(unit);
                if to_x25 { sizes.for_x25(unit).to_vec() } else { sizes.for_tcp(unit).to_vec() }
            };
            assert_eq!(pass(from_tcp, cr.clone()), cr_out, "{cr:?}");
            assert_eq!(pass(!from_tcp, cc.clone()), cc_out, "{cc:?}");
            // Later units are not inspected.
            assert_eq!(pass(from_tcp, cr.clone()), cr);
        }
    }

    #[test]
    fn other_tpdus_and_full_headers_pass_unchanged() {
        for unit in [&[2, 0xf0, 0x80, 1, 2][..], &[0xff; 300], &[3], &[6, 0xe0, 0]] {
            assert_eq!(Sizes::default().for_x25(unit.to_vec().into()).to_vec(), unit);
        }
        let mut full = [&CR[..], &[0x99, 245], &[0; 245]].concat();
        full[0] = (full.len() - 1) as u8;
        assert_eq!(Sizes::default().for_x25(full.clone().into()).to_vec(), full);
        // Bytes after the header, which class 0 does not allow, are kept there.
        let data = [&CR[..], b"data"].concat();
        assert_eq!(Sizes::default().for_x25(data.into()).to_vec(), [&sized(CR, 11)[..], b"data"].concat());
    }
}
