//! LAPB, X.25, XOT and X.29. Any value that is parsed can be written, and then parses to the same value.

use crate::features::Features;
use kiban_base::Rope;
use kiban_osi::wire::lapb::{self, Control, FrameReject, Modulo};
use kiban_osi::wire::lapb_framing::{
    Deframer, DeframerCounters, Device, read_lapbether, stuff, write_lapbether,
};
use kiban_osi::wire::x25::{AddressBlock, Call, Clear, Header, clearing_cause, diagnostic_name, facilities};
use kiban_osi::wire::x29::Message;
use kiban_osi::wire::xot;

/// Returns the bytes that `write` writes into a buffer of `length` bytes.
fn written(length: usize, write: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let mut bytes = vec![0xa5; length];
    assert_eq!(write(&mut bytes), length);
    bytes
}

pub(crate) fn lapb(bytes: &[u8], features: &mut Features<'_>) {
    for modulo in [Modulo::Eight, Modulo::OneTwentyEight] {
        match lapb::Header::read(bytes, modulo) {
            Ok((header, used)) => {
                assert!(used <= bytes.len());
                features.show(core::mem::discriminant(&header.control));
                let again = written(header.length(modulo), |room| header.write(modulo, room));
                assert_eq!(again.len(), used);
                if !matches!(header.control, Control::Undefined(_)) {
                    assert_eq!(lapb::Header::read(&again, modulo), Ok((header, used)));
                }
            }
            Err(rule) => features.show(rule.name()),
        }
        if let Ok((reject, used)) = FrameReject::read(bytes, modulo) {
            let again = written(reject.length(modulo), |room| reject.write(modulo, room));
            assert_eq!(FrameReject::read(&again, modulo), Ok((reject, used)));
            features.show(("reject", reject.reasons));
        }
    }
    match lapb::open(bytes) {
        Ok(frame) => assert_eq!([frame, &lapb::seal(frame)].concat(), bytes),
        Err(rule) => features.show(rule.name()),
    }
    assert!(lapb::open(&[bytes, &lapb::seal(bytes)].concat()).is_ok());
}

pub(crate) fn lapb_seeds() -> Vec<Vec<u8>> {
    vec![vec![1, 0x3f], vec![3, 0x73, 1, 2], vec![1, 0x21, 0x10], vec![3, 0x97, 0x2e, 0x5a, 8, 0, 0]]
}

pub(crate) fn x25(bytes: &[u8], features: &mut Features<'_>) {
    let (header, used) = match Header::read(bytes) {
        Ok(read) => read,
        Err(rule) => return features.show(rule.name()),
    };
    assert!(used <= bytes.len());
    features.show(core::mem::discriminant(&header.kind));
    let again = written(header.length(), |room| header.write(room));
    assert_eq!(Header::read(&again), Ok((header, used)));
    let rest = &bytes[used..];
    match Call::read(rest, header.front.qualifier) {
        Ok((call, _)) => {
            let again = written(call.length(), |room| call.write(room));
            let extended = call.addresses.is_extended();
            let (block, _) = AddressBlock::read(&again, extended).expect("it was written");
            // If a block was received in the extended format, it is written in the short format when that
            // suffices.
            assert!(block == call.addresses || !extended);
            assert_eq!(Call::read(&again, extended).map(|(call, _)| call.user_data), Ok(call.user_data));
            for facility in facilities(call.facilities) {
                match facility {
                    Ok(facility) => {
                        let again = written(facility.length(), |room| facility.write(room));
                        assert_eq!(facilities(&again).next(), Some(Ok(facility)));
                        features.show(core::mem::discriminant(&facility));
                    }
                    Err(rule) => features.show(("facility", rule.name())),
                }
            }
        }
        Err(rule) => features.show(("call", rule.name())),
    }
    match Clear::read(rest, header.front.qualifier) {
        Ok((clear, _)) => {
            let again = written(clear.length(), |room| clear.write(room));
            let extended = clear.more.is_some_and(|call| call.addresses.is_extended());
            assert_eq!(Clear::read(&again, extended).map(|(clear, _)| clear.cause), Ok(clear.cause));
            assert!(!clearing_cause(clear.cause.cause).is_empty());
            assert!(!diagnostic_name(clear.cause.diagnostic.unwrap_or(0)).is_empty());
        }
        Err(rule) => features.show(("clear", rule.name())),
    }
}

pub(crate) fn x25_seeds() -> Vec<Vec<u8>> {
    let call = [
        &[
            0x10, 1, 0x0b, 0x66, 0x73, 0x11, 0, 0x73, 0x74, 0x11, 13, 0x42, 7, 7, 0x43, 2, 2, 0, 0x0f, 0xc9,
            3, 4,
        ][..],
        &[0x47, 5, 3, 1, 1, 0],
    ];
    vec![
        call.concat(),
        vec![0x10, 1, 0x0f],
        vec![0x90, 1, 0x0b, 5, 3, 0x12, 0x12, 0x30, 0x14, 2, 1, 0x81],
        vec![0x20, 1, 0x13, 0, 0xf1, 0, 0, 9],
        vec![0x10, 1, 0x32, 9],
        vec![0x20, 1, 0x32, 9],
        vec![0x10, 1, 0x21],
        vec![0x10, 0, 0xfb, 7, 0],
    ]
}

pub(crate) fn xot(bytes: &[u8], features: &mut Features<'_>) {
    match xot::Header::read(bytes) {
        Ok((header, used)) => {
            let again = written(header.length(), |room| header.write(room));
            assert_eq!(xot::Header::read(&again), Ok((header, used)));
            features.show("a header");
        }
        Err(rule) => features.show(rule.name()),
    }
    match xot::PvcSetUp::read(bytes) {
        Ok((set_up, used)) => {
            assert_eq!(used, bytes.len());
            assert_eq!(written(set_up.length(), |room| set_up.write(room)), bytes);
            features.show(("set-up", set_up.status.name()));
        }
        Err(rule) => features.show(("set-up", rule.name())),
    }
}

pub(crate) fn xot_seeds() -> Vec<Vec<u8>> {
    vec![
        vec![0, 0, 0, 3, 0x10, 1, 1],
        vec![0x10, 1, 0xf5, 0x81, 0, 1, 0, 7, 2, 1, 4, 2, 3, 7, 8, b'a', b'b', b'c'],
    ]
}

pub(crate) fn lapb_framing(bytes: &[u8], features: &mut Features<'_>) {
    const FRAME_BYTES_MAX: usize = 64;
    fn run<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, DeframerCounters) {
        let (mut deframer, mut frames) = (Deframer::new(FRAME_BYTES_MAX), Vec::new());
        pieces.for_each(|piece| deframer.arrive(piece, |frame| frames.push(frame.to_vec())));
        (frames, *deframer.counters())
    }
    // Octets split anywhere give the same frames, and every frame survives another pass.
    let (frames, counters) = run(bytes.chunks(bytes.len().max(1)));
    let (again, _) = run(bytes.chunks(3));
    assert_eq!(frames, again);
    counters.each(&mut |name, value| features.show((name, value.checked_ilog2())));
    for frame in &frames {
        assert!((2..=FRAME_BYTES_MAX).contains(&frame.len()));
        assert_eq!(run(std::iter::once(&stuff(frame)[..])).0, std::slice::from_ref(frame));
    }
    // Any frame gets through, whatever came before it.
    let sent: Vec<u8> = bytes.iter().copied().chain([1, 2]).take(FRAME_BYTES_MAX).collect();
    let line = [bytes, &stuff(&sent)].concat();
    assert_eq!(run(std::iter::once(&line[..])).0.last(), Some(&sent));
    match read_lapbether(bytes) {
        Ok(frame) => {
            let mut written = Rope::copied(frame);
            write_lapbether(&mut written);
            assert!(bytes.starts_with(&written.to_vec()));
            features.show("lapbether");
        }
        Err(rule) => features.show(rule.name()),
    }
    match Device::read(Rope::copied(bytes)) {
        Ok(message) => {
            features.show(core::mem::discriminant(&message));
            let is_data = matches!(message, Device::Data(_));
            assert_eq!(message.write().to_vec(), if is_data { bytes } else { &bytes[..1] });
        }
        Err(rule) => features.show(("device", rule.name())),
    }
}

pub(crate) fn lapb_framing_seeds() -> Vec<Vec<u8>> {
    vec![stuff(&[1, 0x3f]), stuff(&[3, 0x7e, 0x7d, 0x11]), vec![0x7e, 1, 0x7d, 0x7e], vec![2, 0, 1, 0x3f]]
}

pub(crate) fn x29(bytes: &[u8], features: &mut Features<'_>) {
    match Message::read(bytes) {
        Ok(message) => {
            features.show(core::mem::discriminant(&message));
            let again = message.write();
            assert!(again.len() <= bytes.len().max(2));
            assert_eq!(Message::read(&again), Ok(message));
        }
        Err(error) => features.show(error),
    }
}

pub(crate) fn x29_seeds() -> Vec<Vec<u8>> {
    vec![vec![2, 2, 0, 3, 2], vec![4, 1, 0], vec![0, 0x8b, 4], vec![1], vec![3, 8, 1], vec![5, 1, 9]]
}
