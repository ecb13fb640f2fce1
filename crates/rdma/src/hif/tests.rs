//! Round trips of all entries, and arbitrary bytes.

use super::*;
use crate::nic::ConnectError;
use crate::rnic::{
    Access, Binding, Completion, Data, Event, Kind, Operation, QpAttributes, QpState, ReceiveWork,
    RequestError, SendWork, Sge, Sges, Status, TaggedAddress,
};
use crate::wire::rdmap::{Atomic, Reason};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn works() -> Vec<SendWork> {
    let remote = TaggedAddress { stag: 0xabcd_ef01, offset: u64::MAX - 5 };
    let sges = |count: u32| -> Sges {
        (0..count).map(|at| Sge { stag: at, address: u64::from(at) << 40, length: u32::MAX - at }).collect()
    };
    let binding = Binding { region: 7, address: 1 << 60, length: 99, access: Access::ALL };
    let operations = [
        Operation::SEND,
        Operation::Send { invalidate: Some(9) },
        Operation::SendImmediate { data: 8 },
        Operation::Immediate { data: 1 << 50 },
        Operation::write(remote),
        Operation::Write { remote, immediate: Some(3) },
        Operation::Read { remote, invalidate: true },
        Operation::Atomic { remote, atomic: Atomic::FetchAdd { add: 1, mask: 2 } },
        Operation::Atomic {
            remote,
            atomic: Atomic::CompareSwap { swap: 1, swap_mask: 2, compare: 3, compare_mask: 4 },
        },
        Operation::LocalInvalidate { stag: 4 },
        Operation::Bind { window: 5, binding: Some(binding) },
        Operation::Bind { window: 5, binding: None },
    ];
    let works = operations.into_iter().enumerate().map(|(at, operation)| {
        let data = match at % 3 {
            0 => Data::none(),
            1 => Data::Elements(sges(32)),
            _ => Data::Inline((0..=255).chain(0..=255).collect()),
        };
        SendWork {
            signalled: at % 2 == 0,
            solicited: at % 3 == 0,
            fence: at % 5 == 0,
            local_fence: at % 7 == 0,
            ..SendWork::new(at as u64, operation, data)
        }
    });
    works.collect()
}

#[test]
fn every_request_is_read_as_it_was_written() {
    let local = "10.0.0.1:7471".parse().expect("an address");
    let remote = "[fd00::1]:7471".parse().expect("an address");
    let attributes = QpAttributes { srq: Some(3), signal_all: true, ..QpAttributes::TARGET };
    let private_data = vec![7; 508];
    let receive = ReceiveWork { id: 1, sges: [Sge { stag: 1, address: 2, length: 3 }].into_iter().collect() };
    let mut requests = vec![
        Request::CreatePd,
        Request::DestroyPd { pd: 1 },
        Request::Register {
            pd: 1,
            pieces: vec![Piece { memory: 2, offset: 3, length: 4 }; PIECES_MAX],
            address: 5,
            access: Access::LOCAL,
        },
        Request::Deregister { stag: 1, unbinds: true },
        Request::AllocateWindow { pd: 1, type_2: true },
        Request::CreateCq { memory: 1, entries: 2 },
        Request::ResizeCq { cq: 1, entries: 2 },
        Request::DestroyCq { cq: 1 },
        Request::CreateSrq { pd: 1, work_max: 2 },
        Request::SetSrqLimit { srq: 1, limit: 2 },
        Request::DestroySrq { srq: 1 },
        Request::CreateQp { attributes },
        Request::QueryQp { qp: 1 },
        Request::DestroyQp { qp: 1 },
        Request::AbortQp { qp: 1 },
        Request::ResetQp { qp: 1 },
        Request::Disconnect { end: 1 },
        Request::Listen { transport: Transport::Roce, local },
        Request::Unlisten { transport: Transport::Tcp, listener: 1 },
        Request::Connect {
            transport: Transport::Tcp,
            remote,
            qp: 1,
            depths: (2, 3),
            private_data: private_data.clone(),
        },
        Request::Accept { end: 1, qp: 2, depths: (3, 4), private_data: private_data.clone() },
        Request::Reject { end: 1, private_data },
        Request::Release { end: 1 },
        Request::PostReceive { qp: 1, work: receive.clone() },
        Request::PostSrqReceive { srq: 1, work: receive },
        Request::Room { cq: 1 },
        Request::Unshare { memory: 1 },
        Request::QueryAddress { index: 1 },
        Request::Prepare { qp: 1, acknowledges: true, depths: Some((2, 3)) },
        Request::Prepare { qp: 1, acknowledges: false, depths: None },
        Request::GiveUp { qp: 1 },
        Request::SetRemoteAccess { qp: 1, access: Access::NONE },
    ];
    requests.extend(works().into_iter().map(|work| Request::PostSend { qp: 6, work }));
    for (number, request) in (0u32..).zip(requests) {
        let bytes = request.to_bytes(number).expect("it fits");
        let (its, read) = Request::from_bytes(&bytes).unwrap_or_else(|| panic!("{request:?}"));
        assert_eq!((its, format!("{read:?}")), (number, format!("{request:?}")));
        for length in 0..bytes.len() {
            assert!(Request::from_bytes(&bytes[..length]).is_none(), "{request:?} in {length} bytes");
        }
    }
}

#[test]
fn work_that_the_interface_does_not_have_is_not_written() {
    let sges: Sges = (0..33).map(|_| Sge::default()).collect();
    for (operation, data) in [
        (Operation::SEND, Data::Elements(sges)),
        (Operation::SEND, Data::Inline((0..513).map(|_| 0).collect())),
        (Operation::Datagram { gid: [0; 16], qp: 1, qkey: 1, immediate: None }, Data::none()),
        (Operation::Register { stag: 1, address: 1, blocks: Vec::new(), access: Access::ALL }, Data::none()),
    ] {
        let work = SendWork::new(1, operation, data);
        assert!(Request::PostSend { qp: 1, work: work.clone() }.to_bytes(0).is_none(), "{work:?}");
    }
}

#[test]
fn every_notice_is_read_as_it_was_written() {
    let local: core::net::SocketAddr = "10.0.0.1:7471".parse().expect("an address");
    let addresses = (Some(local), None);
    let reason = Reason::REMOTE_ACCESS;
    let private_data = vec![1; 508];
    let replies = [
        Ok(Answer::Number(7)),
        Ok(Answer::Qp { state: QpState::Closing, ird: 1, ord: 2, extensions: true }),
        Ok(Answer::Listening { listener: 1, local }),
        Ok(Answer::Address(local.ip())),
        Err(Refusal::Request(RequestError::BadState(QpState::Error))),
        Err(Refusal::Request(RequestError::Full)),
        Err(Refusal::Request(RequestError::BadNumber)),
        Err(Refusal::Other("no route".into())),
    ];
    let mut notices: Vec<Notice> =
        replies.into_iter().map(|result| Notice::Reply { number: 3, result }).collect();
    let errors = [
        ConnectError::Rejected(private_data.clone()),
        ConnectError::Unreachable,
        ConnectError::Timeout,
        ConnectError::PortUnreachable,
        ConnectError::Lost,
    ];
    notices.extend(errors.into_iter().map(|error| Notice::Failed { end: 1, error }));
    let events = [
        Event::QpFailed { qp: 1, reason: None },
        Event::QpFailed { qp: 1, reason: Some(reason) },
        Event::Abandoned { qp: 1 },
        Event::PeerTerminated { qp: 1, reason },
        Event::CqOverrun { cq: 1 },
        Event::SrqLimit { srq: 1 },
        Event::LastReceive { qp: 1 },
    ];
    notices.extend(events.map(Notice::Event));
    notices.extend([
        Notice::ConnectRequest {
            end: 1,
            listener: 2,
            depths: (3, 4),
            extensions: true,
            addresses,
            private_data: private_data.clone(),
        },
        Notice::Connected { end: 1, depths: (5, 6), addresses, private_data },
        Notice::Withdrawn { end: 1 },
        Notice::Gone { end: 1 },
    ]);
    for notice in notices {
        let bytes = notice.to_bytes();
        assert!(bytes.len() <= ENTRY_BYTES);
        assert_eq!(Notice::from_bytes(&bytes), Some(notice));
        for length in 0..bytes.len() {
            assert_eq!(Notice::from_bytes(&bytes[..length]), None);
        }
    }
}

#[test]
fn completions_are_read_as_they_were_written() {
    let plain = Completion {
        id: u64::MAX,
        status: Status::ReceiverNotReady,
        kind: Kind::ReceiveImmediate,
        bytes: 5,
        qp: 6,
        immediate: Some(7),
        invalidated: None,
        source: Some(8),
    };
    let other = Completion { status: Status::Success, kind: Kind::Send, invalidated: Some(9), ..plain };
    for completion in [plain, other] {
        assert_eq!(completion_from_bytes(&completion_to_bytes(&completion)), Some(completion));
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_read_or_refused(
        mut bytes in proptest::collection::vec(any::<u8>(), 5..200),
        kind in 0u8..34,
    ) {
        let _ = Notice::from_bytes(&bytes);
        let _ = completion_from_bytes(&bytes);
        let _ = Greeting::from_bytes(&bytes);
        bytes[4] = kind;
        if let Some((number, request)) = Request::from_bytes(&bytes) {
            prop_assert!(request.to_bytes(number).is_some(), "{:?}", request);
        }
    }
}
