//! The host interface of an OSI board: its messages, and a board's side with an arbitrary user and peer.

use super::ftam::fpdus;
use crate::features::Features;
use kiban_base::{Instant, Rope};
use kiban_osi::Selector;
use kiban_osi::ftam::{Request, Role};
use kiban_osi::hif::{BoardSide, REQUEST_BYTES_MAX};
use kiban_osi::stack::end::OUTGOING_BYTES_MAX;
use kiban_osi::wire::ftam::DataElement;
use kiban_osi::wire::hif::{Open, ToBoard, ToHost};

/// Reads messages from the front of the bytes; each must be read again from its own encoding.
fn messages<T: Clone + PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    features: &mut Features<'_>,
    read: impl Fn(&mut Rope) -> Result<Option<T>, kiban_base::Malformed>,
    write: impl Fn(T) -> Rope,
) {
    let mut rope = Rope::copied(bytes);
    loop {
        let before = rope.len();
        match read(&mut rope) {
            Ok(Some(message)) => {
                assert!(rope.len() < before);
                features.show((bytes[bytes.len() - before], (before - rope.len()).ilog2()));
                let mut again = write(message.clone());
                assert_eq!(read(&mut again), Ok(Some(message)));
                assert!(again.is_empty());
            }
            Ok(None) => return,
            Err(rule) => return features.show(rule.name()),
        }
    }
}

pub(crate) fn run(bytes: &[u8], features: &mut Features<'_>) {
    messages(bytes, features, |rope| ToBoard::read(rope, REQUEST_BYTES_MAX), ToBoard::into_rope);
    messages(bytes, features, ToHost::read, ToHost::into_rope);
    // The user sends the first part, the peer the second.
    let cut = bytes.first().map_or(0, |first| usize::from(*first) * bytes.len() / 256);
    let (user, peer) = bytes.split_at(cut.max(bytes.len() / 2));
    let (mut board, now) = (BoardSide::new(), Instant::ZERO);
    board.from_user(user.to_vec().into());
    let mut outcome = board.work(now);
    if outcome.is_ok() && board.wants_network() {
        board.from_network(peer.to_vec().into(), now);
        outcome = board.work(now);
    }
    features.show((outcome.is_ok(), board.is_over(), board.dropped().min(3), board.to_network().is_empty()));
    assert!(board.to_user().len() < OUTGOING_BYTES_MAX + bytes.len() + 4096);
    board.user_ended(now);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let open = |role| {
        let (called, calling) = (Selector::from("called"), Selector::NONE);
        ToBoard::Open(Open { role, tpdu_bytes_max: 2048, tsdu_bytes_max: 1 << 16, called, calling })
    };
    let mut all = vec![
        vec![open(Role::Initiator), ToBoard::TsduBytesMax(1 << 20)],
        vec![open(Role::Responder), ToBoard::Request(Request::Check)],
        vec![ToBoard::Request(Request::CheckResponse { checkpoint: 3 })],
        vec![
            open(Role::Initiator),
            ToBoard::Request(Request::Data(DataElement::octets(Rope::copied(b"data")))),
        ],
    ];
    all.extend(fpdus().iter().map(|pdu| vec![ToBoard::Request(Request::Pdu(pdu.clone()))]));
    let bytes =
        |messages: Vec<ToBoard>| messages.into_iter().flat_map(|message| message.into_rope().to_vec());
    all.into_iter().map(|messages| bytes(messages).collect()).collect()
}
