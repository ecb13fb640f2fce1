//! The decoders of DDP, RDMAP, datagrams and out-of-band set-ups. Any value that is parsed can be written,
//! and then parses to the same value.

use crate::features::Features;
use kiban_rdma::wire::datagram::{self, PAYLOAD_BYTES_MAX, QP_MAX};
use kiban_rdma::wire::ddp::{Header, Placing, UNTAGGED_BYTES};
use kiban_rdma::wire::oob_setup::OobSetup;
use kiban_rdma::wire::rdmap::{
    AtomicRequest, AtomicResponse, Opcode, ReadRequest, Reason, TERMINATE_BYTES_MAX, Terminate,
};

pub(crate) fn ddp(bytes: &[u8], features: &mut Features<'_>) {
    match Header::read(bytes) {
        Err(rule) => features.show(rule.name()),
        Ok((header, used)) => {
            let mut again = [0xa5; UNTAGGED_BYTES];
            assert_eq!((header.write(&mut again), header.length()), (used, used));
            assert_eq!(Header::read(&again[..used]), Ok((header, used)));
            let queue = match header.placing {
                Placing::Tagged { .. } => None,
                Placing::Untagged { queue, .. } => Some(queue.min(5)),
            };
            features.show((header.last, queue));
        }
    }
}

pub(crate) fn rdmap(bytes: &[u8], features: &mut Features<'_>) {
    let Some((&octet, rest)) = bytes.split_first() else { return };
    match Opcode::read(octet) {
        Err(rule) => features.show(rule.name()),
        Ok(opcode) => {
            assert_eq!(Opcode::read(opcode.octet()), Ok(opcode));
            features.show(opcode as u8);
        }
    }
    if let Ok(request) = ReadRequest::read(rest) {
        assert_eq!(request.bytes()[..], rest[..request.bytes().len()]);
        features.show("a read request");
    }
    if let Ok(request) = AtomicRequest::read(rest) {
        assert_eq!(AtomicRequest::read(&request.bytes()), Ok(request));
        features.show(std::mem::discriminant(&request.atomic));
    }
    if let Ok(response) = AtomicResponse::read(rest) {
        assert_eq!(response.bytes()[..], rest[..response.bytes().len()]);
    }
    if let Ok(terminate) = Terminate::read(rest) {
        let again = terminate.bytes();
        assert!(again.len() <= TERMINATE_BYTES_MAX);
        let known = Reason::ALL.iter().any(|(reason, _)| *reason == terminate.reason);
        let header = terminate.segment.as_ref().map(|(_, header)| header.len());
        let read = Terminate::read(&again).expect("written data can be parsed");
        if known {
            assert_eq!(read.reason, terminate.reason);
        }
        // A truncated header is not passed on.
        if known && matches!(header, None | Some(0 | 14 | 18)) {
            assert_eq!(read, terminate);
        }
        features.show(known.then_some(terminate.reason));
        features.show((header, terminate.read_request.is_some()));
    }
}

pub(crate) fn datagram(bytes: &[u8], features: &mut Features<'_>) {
    match datagram::Header::read(bytes) {
        Err(rule) => features.show(rule.name()),
        Ok((header, used)) => {
            assert!(
                bytes.len() - used <= PAYLOAD_BYTES_MAX && header.destination.max(header.source) <= QP_MAX
            );
            let mut again = bytes.to_vec();
            assert_eq!((header.write(&mut again), header.length()), (used, used));
            assert_eq!(datagram::Header::read(&again), Ok((header, used)));
            features.show((header.solicited, header.immediate.is_some(), bytes.len() == used));
            features.show((header.qkey >> 31, header.destination == header.source));
        }
    }
}

pub(crate) fn datagram_seeds() -> Vec<Vec<u8>> {
    let plain = [&b"KUD\x10"[..], &[0, 0, 0, 1, 0, 0, 0, 2, 0x11, 0x11, 0, 0, 0, 0, 0, 0]].concat();
    let all = [&b"KUD\x13"[..], &[0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 7, 9]].concat();
    vec![plain.clone(), all, [&plain[..], &[0; 4097]].concat()]
}

pub(crate) fn oob_setup(bytes: &[u8], features: &mut Features<'_>) {
    match OobSetup::read(bytes) {
        Err(rule) => features.show(rule.name()),
        Ok(setup) => {
            assert_eq!(setup.bytes(), bytes);
            features.show((setup.begins.is_some(), setup.refusal.map(|refusal| refusal as u32)));
        }
    }
}

pub(crate) fn oob_setup_seeds() -> Vec<Vec<u8>> {
    let asks = [&b"kbn\x01"[..], &[0, 1, 2, 3, 0, 3, 2, 1, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0]].concat();
    let refuses =
        [&b"kbn\x01"[..], &[0, 1, 2, 3, 0, 3, 2, 1, 0, 0, 0, 7], &[0xff; 4], &[0, 0, 0, 2]].concat();
    vec![asks, refuses]
}

pub(crate) fn ddp_seeds() -> Vec<Vec<u8>> {
    vec![[&[0xc1, 0x40][..], &[7; 12]].concat(), [&[0x41, 0x43][..], &[0; 16]].concat()]
}

pub(crate) fn rdmap_seeds() -> Vec<Vec<u8>> {
    let send = [&[0x41, 0x43][..], &[0; 16]].concat();
    let rfc = [&[0x47, 0x12, 0x03, 0xe0, 0, 0, 40][..], &send, &[1; 28]].concat();
    let siw = [&[0x47, 0x21, 0x03, 0x07, 0, 0, 40][..], &send, &[1; 28]].concat();
    vec![rfc, siw, vec![0x41; 29], [&[0x4a, 0, 0, 0, 2][..], &[3; 48]].concat(), vec![0x4b; 13]]
}
