//! AAL1: its headers, pointers and codes, and a receiver that is fed arbitrary cells.

use crate::features::Features;
use crate::input::Input;
use kiban_atm::aal1::{Config, Form, Receiver, Sender};
use kiban_atm::wire::aal1::fec::Code;
use kiban_atm::wire::aal1::{Header, HeaderCheck, Pointer, check, with_stamp_bit};

/// Checks that headers and pointers round-trip, and that a codeword with errors is either corrected or left
/// unchanged.
pub(crate) fn decoder(bytes: &[u8], features: &mut Features<'_>) {
    let mut again = [0xa5];
    match Header::read(bytes) {
        Ok((header, used)) => {
            assert_eq!(header.write(&mut again), used);
            assert_eq!((again[0], check(again[0])), (bytes[0], HeaderCheck::Intact(header)));
            features.show(header);
        }
        Err(rule) => features.show(rule.name()),
    }
    if let Some(HeaderCheck::Corrected(header)) = bytes.first().map(|byte| check(*byte)) {
        assert_eq!((header.to_byte() ^ bytes[0]).count_ones(), 1);
        features.show(("corrected", header));
    }
    match Pointer::read(bytes.get(1..).unwrap_or_default()) {
        Ok((pointer, used)) => {
            assert_eq!(pointer.write(&mut again), used);
            assert_eq!(again[0], bytes[1]);
            features.show(("pointer", pointer.offset().map(|offset| offset / 16)));
        }
        Err(rule) => features.show(rule.name()),
    }
    let mut input = Input::new(bytes);
    let stamp = (0..8).fold(0, |stamp, count| with_stamp_bit(stamp, count, input.byte() & 1 == 1));
    assert!(stamp < 16);
    let code = if input.byte() & 1 == 1 { Code::Long } else { Code::Short };
    let count = code.row_octets();
    let mut erased = vec![false; count];
    for _ in 0..input.byte() % 9 {
        erased[usize::from(input.byte()) % count] = true;
    }
    let mut row = input.take(count).to_vec();
    row.resize(count, 0);
    let before = row.clone();
    match code.correct(&mut row, &erased) {
        Ok(corrected) => {
            let changed = |(at, (now, before)): (usize, (&u8, &u8))| now != before && !erased[at];
            let seen = row.iter().zip(&before).enumerate().filter(|pair| changed(*pair)).count();
            assert_eq!(corrected, seen);
            assert_eq!(code.correct(&mut row, &vec![false; count]), Ok(0), "a row put right is right");
            features.show(("corrected", corrected, erased.iter().filter(|is| **is).count()));
        }
        Err(_) => assert_eq!(row, before),
    }
}

pub(crate) fn decoder_seeds() -> Vec<Vec<u8>> {
    let mut wrong = vec![0x17, 0x03, 0, 0, 0, 0, 0, 0, 1, 0];
    wrong.resize(138, 0);
    wrong[40] = 9;
    vec![vec![0x00, 0x00], vec![0x8b, 0xff], vec![0x16, 0xde], wrong]
}

/// Feeds arbitrary cells to a receiver. Some of them come from a sender, and some of those are lost,
/// duplicated or corrupted.
pub(crate) fn receiver(bytes: &[u8], features: &mut Features<'_>) {
    let mut input = Input::new(bytes);
    let form = match input.byte() % 6 {
        0 => Form::Stream,
        1 => Form::Corrected(Code::Short),
        2 => Form::Corrected(Code::Long),
        3 => Form::Structured { block_octets: 1 },
        4 => Form::Structured { block_octets: 1 + usize::from(input.byte()) },
        _ => Form::Structured { block_octets: 1 + usize::from(input.short()) },
    };
    let config = Config { stamps: input.byte() & 1 == 1, ..Config::of(form) };
    let (mut sender, mut receiver, mut out) = (Sender::new(config), Receiver::new(config), Vec::new());
    let mut next = || loop {
        if let Some(cell) = sender.cell() {
            return cell;
        }
        sender.push(&[0x11; 704]);
    };
    let mut cells = 0u64;
    let mut give = |receiver: &mut Receiver, cell: &[u8; 48]| {
        receiver.on_cell(cell, &mut out);
        cells += 1;
    };
    while !input.is_empty() {
        let (what, count) = (input.byte(), input.byte());
        match what % 6 {
            // A run of cells, unchanged.
            0 => (0..count).for_each(|_| give(&mut receiver, &next())),
            // Some cells are lost.
            1 => (0..count % 20).for_each(|_| {
                next();
            }),
            2 => {
                let cell = next();
                give(&mut receiver, &cell);
                give(&mut receiver, &cell);
            }
            3 => {
                let mut cell = next();
                cell[0] ^= count;
                give(&mut receiver, &cell);
            }
            4 => {
                let mut cell = next();
                cell[usize::from(count) % 48] ^= input.byte();
                give(&mut receiver, &cell);
            }
            _ => give(&mut receiver, &[count; 48]),
        }
        while let Some(stamp) = receiver.next_stamp() {
            assert!(stamp.is_none_or(|stamp| stamp < 16));
        }
    }
    receiver.finish(&mut out);
    let counters = *receiver.counters();
    assert_eq!((counters.cells_in, counters.octets_out), (cells, out.len() as u64));
    if let Form::Structured { block_octets } = form {
        assert_eq!(out.len() % block_octets, 0);
    }
    counters.each(&mut |name, value| features.show((name, value.checked_ilog2())));
}

pub(crate) fn receiver_seeds() -> Vec<Vec<u8>> {
    let story = [0, 20, 1, 3, 0, 200, 3, 4, 0, 9, 2, 0, 5, 7, 0, 250, 1, 8, 0, 255];
    (0..6).map(|form| [&[form, form * 9, 1][..], &story].concat()).collect()
}
