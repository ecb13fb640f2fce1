//! Programs that misuse the RDMA NIC of a board: each may harm only itself, and leaves nothing on the board.

use super::board_nic::{on, sessions};
use super::rdma::{LONG, Side, at, join, moves};
use super::rude_program::{
    REGION_BYTES, Rude, RudeCq, RudeMemory, Victim, against_board, attributes, elements,
};
use crate::common::TestDir;
use kiban_base::SharedBytes;
use kiban_os::channel::FRONT_BYTES;
use kiban_os::clock::machine_nanos;
use kiban_rdma::hif::{
    Answer, CompletionRing, ENTRY_BYTES, Greeting, Layout, Notice, Piece, Refusal, Request, Transport,
};
use kiban_rdma::rnic::{Binding, Data, Event, Operation, ReceiveWork, SendWork, Sge, Sges, TaggedAddress};
use kiban_rdma::wire::rdmap::Atomic;
use kiban_rdma_runtime::{Access, Connect, Error, Kind, Lower, QpState, RequestError, Status, Wr};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

#[test]
fn a_hostile_program_reaches_no_other_program_and_is_disconnected() {
    against_board("nic-hostile", "", |dir, board| {
        {
            let victim = on(dir, Transport::Tcp);
            let qp = victim.qp();
            let listener =
                victim.context.listen(at("10.9.0.2", 7471).into(), &Connect::default()).expect("its address");
            let secret = victim.memory(b"secret");
            // Numbers of another program's objects. Protection domains have consecutive numbers, so try some.
            let mut rude = Rude::attach(dir, 1);
            let unknown = |error| Err(Refusal::Request(error));
            let (other, key) = (qp.number(), secret.rkey());
            for request in [
                Request::QueryQp { qp: other },
                Request::DestroyQp { qp: other },
                Request::AbortQp { qp: other },
                Request::ResetQp { qp: other },
            ] {
                assert_eq!(rude.ask(&request), unknown(RequestError::UnknownQp), "{request:?}");
            }
            let deregister = Request::Deregister { stag: key, unbinds: true };
            assert_eq!(rude.ask(&deregister), unknown(RequestError::UnknownStag));
            let destroy = Request::DestroyCq { cq: victim.cq.number() };
            assert_eq!(rude.ask(&destroy), unknown(RequestError::UnknownCq));
            let resize = Request::ResizeCq { cq: victim.cq.number(), entries: 1 };
            assert_eq!(rude.ask(&resize), unknown(RequestError::UnknownCq));
            let own = rude.number(&Request::CreatePd);
            for near in 1..100 {
                for pd in [own.wrapping_sub(near), own.wrapping_add(near)] {
                    let request = Request::DestroyPd { pd };
                    assert_eq!(rude.ask(&request), unknown(RequestError::UnknownPd), "{request:?}");
                }
            }
            for end in 0..100 {
                let accept = Request::Accept { end, qp: other, depths: (1, 1), private_data: Vec::new() };
                assert!(matches!(rude.ask(&accept), Err(Refusal::Other(_))), "{accept:?}");
            }
            let unlisten = Request::Unlisten { transport: Transport::Tcp, listener: 0 };
            assert_eq!(rude.ask(&unlisten), Ok(Answer::Number(0)));
            // Sizes: memory that is shorter than the region, the ring, or the limit.
            let share = |memory, bytes| Rude::call(dir, &Greeting::Memory { key: [1; 16], memory }, bytes);
            let short = share(1, 8192).expect("it is shared");
            let register = |memory, offset, length| Request::Register {
                pd: own,
                pieces: vec![Piece { memory, offset, length }],
                address: u64::MAX - 8191,
                access: Access::ALL,
            };
            for (memory, offset, length) in [
                (1, 0, 4097),
                (1, 4096, 1),
                (1, u64::MAX, 1),
                (1, u64::MAX - 4095, 4096),
                (1, 0, u64::MAX),
                (7, 0, 1),
            ] {
                let refused = rude.ask(&register(memory, offset, length));
                assert_eq!(refused, unknown(RequestError::BadAddress), "{memory} {offset} {length}");
            }
            assert!(share(1, 8192).is_err(), "the number is in use");
            let region = rude.number(&register(1, 0, 4096));
            let ring = Request::CreateCq { memory: 1, entries: 2 };
            assert!(matches!(rude.ask(&ring), Err(Refusal::Other(_))), "it is registered");
            let _ring = share(2, 4096).expect("it is shared");
            let small = rude.ask(&Request::CreateCq { memory: 2, entries: 1 << 20 });
            assert!(matches!(small, Err(Refusal::Other(_))), "{small:?}");
            assert!(share(3, usize::MAX / 2).is_err(), "too much memory");
            let stranger = Greeting::Memory { key: [9; 16], memory: 1 };
            assert!(Rude::call(dir, &stranger, 4096).is_err(), "an unknown key");
            assert!(Rude::call(dir, &Greeting::Nic { key: [1; 16] }, 1 << 20).is_err(), "a key in use");
            drop((short, region));
            // Entries that cannot be decoded, or that name another program's queues.
            let mut entries: Vec<Vec<u8>> = vec![
                Vec::new(),
                vec![0xff; ENTRY_BYTES],
                Request::Room { cq: victim.cq.number() }.to_bytes(0).expect("it fits"),
                Request::PostReceive { qp: other, work: ReceiveWork { id: 1, sges: Sges::new() } }
                    .to_bytes(0)
                    .expect("it fits"),
            ];
            for (number, entry) in (10u8..).zip(&mut entries) {
                let mut rude = Rude::attach(dir, number);
                rude.push(entry);
                rude.is_disconnected();
            }
            // A length beyond the slot, written into the ring itself.
            let rude = Rude::attach(dir, 20);
            let layout = Layout::new(FRONT_BYTES);
            let memory = rude.channel.region().clone().with_address(0);
            let slot = (layout.work_at() + 64) as u64;
            let words = [1u32.to_ne_bytes(), u32::MAX.to_ne_bytes()];
            memory.write(slot + 4, SharedBytes::from(&words[1][..])).expect("within");
            memory.write(slot, SharedBytes::from(&words[0][..])).expect("within");
            rude.channel.ring(machine_nanos);
            rude.is_disconnected();
            // The other program's connection, memory and listener still work.
            let peer = Side::new(&Lower::Tcp { from: None });
            let pairs = [join(&peer, &victim, &listener)];
            moves(&peer, &victim, &pairs, 100_000);
            assert_eq!((qp.state(), secret.to_vec(0, 6)), (QpState::Idle, b"secret".to_vec()));
        }
        board.until("the faults are counted", |status| {
            status["services"][0]["counters"]["errors"].as_u64().is_some_and(|errors| errors >= 5)
        });
        assert!(dir.log().contains("protocol error"), "{}", dir.log());
    });
}

#[test]
fn work_requests_with_foreign_keys_fail_and_change_nothing() {
    against_board("nic-foreign", "", |dir, _| {
        let victim = Victim::new(dir);
        let secret = victim.near.memory(&[7; 4096]);
        let window = victim.near.pd.alloc_mw(false).expect("room");
        let mut rude = Rude::attach(dir, 1);
        let (pd, other_pd) = (rude.number(&Request::CreatePd), rude.number(&Request::CreatePd));
        let mut cq = rude.cq(64);
        let (own, elsewhere) = (rude.memory(pd), rude.memory(other_pd));
        rude.listen(7500);
        let foreign = TaggedAddress { stag: secret.rkey(), offset: secret.address() };
        let theirs = Data::Elements(Sges::from_slice(&[Sge {
            stag: secret.lkey(),
            address: secret.address(),
            length: 64,
        }]));
        let mine = || elements(own.stag, 64);
        let send = Operation::Send { invalidate: None };
        let write = |remote| Operation::Write { remote, immediate: None };
        let read = |remote| Operation::Read { remote, invalidate: false };
        let add = |remote| Operation::Atomic { remote, atomic: Atomic::FetchAdd { add: 1, mask: 0 } };
        let bind = |window, region| Operation::Bind {
            window,
            binding: Some(Binding { region, address: secret.address(), length: 64, access: Access::ALL }),
        };
        let own_window = rude.number(&Request::AllocateWindow { pd, type_2: false });
        let local = Some(Status::LocalProtection);
        // The operation, its memory, and the status of its completion. A Write completes when it has been
        // sent; the end that refuses it closes the connection.
        let cases = [
            ("send another program's memory", send.clone(), theirs.clone(), local),
            ("write another program's memory", write(own.remote()), theirs.clone(), local),
            ("read into another program's memory", read(own.remote()), theirs.clone(), local),
            ("change a word, and store it there", add(own.remote()), elements(secret.lkey(), 8), local),
            ("write to another program's memory", write(foreign), mine(), None),
            ("read from another program's memory", read(foreign), mine(), Some(Status::RemoteAccess)),
            (
                "change another program's word",
                add(foreign),
                elements(own.stag, 8),
                Some(Status::RemoteAccess),
            ),
            (
                "invalidate another program's key",
                Operation::LocalInvalidate { stag: secret.rkey() },
                Data::none(),
                local,
            ),
            (
                "have the peer invalidate another program's key",
                Operation::Send { invalidate: Some(secret.rkey()) },
                mine(),
                None,
            ),
            (
                "bind another program's window",
                bind(window.rkey(), own.stag),
                Data::none(),
                Some(Status::Bind),
            ),
            (
                "bind another program's memory",
                bind(own_window, secret.rkey()),
                Data::none(),
                Some(Status::Bind),
            ),
            ("send memory of another domain", send.clone(), elements(elsewhere.stag, 64), local),
            ("write to another domain", write(elsewhere.remote()), mine(), None),
            ("read from another domain", read(elsewhere.remote()), mine(), Some(Status::RemoteAccess)),
            ("send beyond its memory", send, elements(own.stag, REGION_BYTES + 1), local),
        ];
        for (id, (what, operation, data, expected)) in (1u64..).zip(cases) {
            let [from, to] = rude.pair(pd, &cq, 7500);
            let receive = ReceiveWork {
                id: 100,
                sges: Sges::from_slice(&[Sge { stag: own.stag, address: 0, length: REGION_BYTES }]),
            };
            rude.tell(&Request::PostReceive { qp: to, work: receive });
            rude.tell(&Request::PostSend { qp: from, work: SendWork::new(id, operation, data) });
            let done = loop {
                let done = rude.completion(&mut cq);
                if done.id == id {
                    break done;
                }
            };
            match expected {
                Some(status) => assert_eq!(done.status, status, "{what}"),
                None => assert!(matches!(done.status, Status::Success | Status::Lost), "{what}: {done:?}"),
            }
            // The violation ends the connection, on both ends.
            for qp in [from, to] {
                rude.is_over(qp, what);
                assert_eq!(rude.number(&Request::DestroyQp { qp }), 0);
            }
        }
        // Receives: the message is placed only in memory of the receiver's domain.
        let [from, to] = rude.pair(pd, &cq, 7500);
        let sges = Sges::from_slice(&[Sge { stag: secret.lkey(), address: secret.address(), length: 64 }]);
        rude.tell(&Request::PostReceive { qp: to, work: ReceiveWork { id: 200, sges } });
        let work = SendWork::new(201, Operation::Send { invalidate: None }, mine());
        rude.tell(&Request::PostSend { qp: from, work });
        let received = loop {
            let done = rude.completion(&mut cq);
            if done.id == 200 {
                break done;
            }
        };
        assert_eq!(received.status, Status::LocalProtection);
        assert_eq!(secret.to_vec(0, 4096), [7; 4096]);
        assert!(elsewhere.is_zero());
        victim.works();
    });
}

#[test]
fn a_ring_index_that_jumps_or_goes_back_harms_only_its_program() {
    against_board("nic-rings", "", |dir, board| {
        {
            let victim = Victim::new(dir);
            let layout = Layout::new(FRONT_BYTES);
            let slots = layout.notices().slots() as u32;
            // The count of notices that the program has taken: more than were sent.
            for (key, taken) in (1..).zip([slots + 1, 1 << 31, u32::MAX]) {
                let mut rude = Rude::attach(dir, key);
                rude.scribble(layout.notices_at(), taken);
                // The board reads the count when the ring is full.
                while rude.tell(&Request::CreatePd) {}
                rude.is_disconnected();
            }
            // Fewer than before.
            let mut rude = Rude::attach(dir, 10);
            for _ in 0..slots {
                rude.number(&Request::CreatePd);
            }
            for _ in 0..slots {
                rude.tell(&Request::CreatePd);
            }
            rude.number(&Request::CreatePd);
            rude.scribble(layout.notices_at(), 1);
            while rude.tell(&Request::CreatePd) {}
            rude.is_disconnected();
            // The same for the ring of a completion queue.
            for (key, taken) in (20..).zip([3, 1 << 31, u32::MAX]) {
                let mut rude = Rude::attach(dir, key);
                let pd = rude.number(&Request::CreatePd);
                let cq = rude.cq(2);
                let qp = rude.qp(pd, &cq);
                let word = u32::to_ne_bytes(taken);
                cq.memory.write(CompletionRing::AT as u64, SharedBytes::from(&word[..])).expect("within");
                let send = SendWork::new(1, Operation::Send { invalidate: None }, Data::none());
                while rude.tell(&Request::PostSend { qp, work: send.clone() }) {}
                rude.is_disconnected();
            }
            // A work ring whose later and earlier slots are marked as full: the board waits for the next one.
            let mut rude = Rude::attach(dir, 30);
            let slot = |number: usize| layout.work_at() + 64 + number * (layout.work().payload_bytes() + 8);
            rude.number(&Request::CreatePd);
            rude.scribble(slot(0), 1);
            rude.scribble(slot(0), 2);
            rude.scribble(slot(1), 1);
            rude.scribble(slot(5), 6);
            rude.scribble(slot(6), u32::MAX);
            rude.channel.ring(machine_nanos);
            assert!(rude.work.free().is_ok_and(|free| free == layout.work().slots()), "nothing was taken");
            rude.number(&Request::CreatePd);
            victim.works();
        }
        board.until("the faults are counted", |status| {
            status["services"][0]["counters"]["errors"].as_u64().is_some_and(|errors| errors == 7)
        });
    });
}

/// Sends a greeting and receives the memory; `offered` is sent with the greeting.
fn memfd_of(dir: &TestDir, greeting: &Greeting, bytes: u64, offered: Option<&OwnedFd>) -> Option<OwnedFd> {
    let socket = UnixStream::connect(dir.0.join("kiban/lab.rdma")).expect("the board listens");
    let hello = [&b"kiban-s5"[..], &bytes.to_le_bytes(), &greeting.to_bytes()].concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let lent = offered.map(|memory| [memory.as_fd()]);
    if let Some(lent) = &lent {
        control.push(SendAncillaryMessage::ScmRights(lent));
    }
    match rustix::net::sendmsg(&socket, &[IoSlice::new(&hello)], &mut control, SendFlags::NOSIGNAL) {
        // From Linux 6.16 on, the kernel refuses what the board does not accept.
        Err(Errno::PERM) if offered.is_some() => return None,
        sent => assert_eq!(sent, Ok(hello.len())),
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut answer = [0; 128];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(&mut answer)], &mut control, flags).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut memories) => memories.next(),
        _ => None,
    })
}

#[test]
fn shared_memory_can_be_neither_truncated_nor_replaced() {
    against_board("nic-sealed", "", |dir, _| {
        let victim = Victim::new(dir);
        let rude = Rude::attach(dir, 1);
        let bytes = Layout::new(FRONT_BYTES).bytes().next_multiple_of(4096) as u64;
        let of_nic = (Greeting::Nic { key: [2; 16] }, bytes);
        let of_region = (Greeting::Memory { key: [1; 16], memory: 1 }, 8192);
        for (greeting, bytes) in [of_nic, of_region] {
            let memory = memfd_of(dir, &greeting, bytes, None).expect("it is admitted");
            for length in [0, 4096, bytes - 1, bytes + 1, 1 << 30] {
                assert_eq!(rustix::fs::ftruncate(&memory, length), Err(Errno::PERM), "{length}");
            }
            let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
            assert_eq!(rustix::fs::fcntl_get_seals(&memory), Ok(seals));
            assert_eq!(rustix::fs::fcntl_add_seals(&memory, SealFlags::WRITE), Err(Errno::PERM));
        }
        // Memory without seals, offered instead of the board's.
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let loose = rustix::fs::memfd_create("loose", flags).expect("memory");
        rustix::fs::ftruncate(&loose, 8192).expect("memory");
        for memory in 2..10 {
            let greeting = Greeting::Memory { key: [1; 16], memory };
            if let Some(its) = memfd_of(dir, &greeting, 8192, Some(&loose)) {
                let (one, other) = (rustix::fs::fstat(&its), rustix::fs::fstat(&loose));
                assert_ne!(
                    one.expect("a file").st_ino,
                    other.expect("a file").st_ino,
                    "the board uses its own"
                );
            }
        }
        rustix::fs::ftruncate(&loose, 0).expect("it is the program's");
        drop(rude);
        victim.works();
    });
}

/// What a program does to its domain, queue pair, completion queue and memory.
type Ending = fn(&mut Rude<'_>, u32, u32, &RudeCq, &RudeMemory);

#[test]
fn a_program_that_ends_with_operations_in_flight_leaves_nothing() {
    against_board("nic-flight", "", |dir, _| {
        let victim = Victim::new(dir);
        let options = Connect::default();
        let listener =
            victim.near.context.listen(at("10.9.0.2", 7473).into(), &options).expect("its address");
        let table = victim.near.memory(&vec![3; REGION_BYTES as usize]);
        // What the program does with operations in flight.
        let endings: [(&str, Ending); 5] = [
            ("ends", |_, _, _, _, _| {}),
            ("destroys the queue pair", |rude, _, qp, _, _| {
                assert_eq!(rude.number(&Request::DestroyQp { qp }), 0);
            }),
            ("resets the queue pair", |rude, _, qp, _, _| {
                // It may be refused, because the connection has not ended.
                let _ = rude.ask(&Request::ResetQp { qp });
            }),
            ("deregisters the memory", |rude, _, _, _, memory| {
                rude.number(&Request::Deregister { stag: memory.stag, unbinds: true });
            }),
            ("destroys objects in use", |rude, pd, qp, cq, _| {
                let in_use = Err(Refusal::Request(RequestError::InUse));
                assert_eq!(rude.ask(&Request::DestroyCq { cq: cq.number }), in_use);
                assert_eq!(rude.ask(&Request::DestroyPd { pd }), in_use);
                assert_eq!(rude.number(&Request::AbortQp { qp }), 0);
            }),
        ];
        for (key, (what, ending)) in (1..).zip(endings) {
            let mut rude = Rude::attach(dir, key);
            let pd = rude.number(&Request::CreatePd);
            let cq = rude.cq(256);
            let memory = rude.memory(pd);
            let qp = rude.qp(pd, &cq);
            let end = rude.connect(qp, 7473);
            let theirs = victim.near.qp();
            let accepted =
                listener.request(LONG).expect("a request").accept(&theirs, &options).expect("it waits");
            rude.is_connected(end);
            let remote = TaggedAddress { stag: table.rkey(), offset: table.address() };
            for id in 0..8 {
                let read = Operation::Read { remote, invalidate: false };
                rude.tell(&Request::PostSend { qp, work: SendWork::new(id, read, memory.all()) });
                let write = Operation::Write { remote, immediate: None };
                rude.tell(&Request::PostSend { qp, work: SendWork::new(id, write, memory.all()) });
            }
            // The other program accesses its memory at the same time.
            let to = kiban_rdma_runtime::Remote { rkey: memory.stag, address: 0 };
            for id in 0..8 {
                theirs.post_send(Wr::read(1000 + id, table.all(), to)).expect("room");
            }
            ending(&mut rude, pd, qp, &cq, &memory);
            drop((rude, cq, memory));
            accepted.wait_disconnected(LONG).unwrap_or_else(|error| panic!("{what}: {error}"));
            for _ in 0..8 {
                let done = victim.near.cq.wait(LONG).expect(what);
                assert!(done.id >= 1000 && done.kind == Kind::Read, "{what}: {done:?}");
            }
            assert!(matches!(victim.near.cq.wait(std::time::Duration::ZERO), Err(Error::Timeout)));
        }
        drop(listener);
        victim.works();
    });
}

#[test]
fn a_queue_pair_that_is_destroyed_delivers_what_was_posted_before() {
    against_board("nic-destroyed", "", |dir, _| {
        for (key, transport, lower) in [(1, Transport::Tcp, "tcp"), (2, Transport::Efe, "efe:10.9.0.1")] {
            let kernel = Side::new(&lower.parse().expect("a lower layer"));
            let options = Connect::default();
            let listener = kernel.context.listen(at("10.9.0.1", 7471).into(), &options).expect("its address");
            let (to, heard) = (kernel.qp(), kernel.memory(&[1; 20_000]));
            to.post_recv(9, &[heard.all()]).expect("room");
            let mut rude = Rude::attach(dir, key);
            let pd = rude.number(&Request::CreatePd);
            let (cq, memory) = (rude.cq(4), rude.memory(pd));
            let qp = rude.qp(pd, &cq);
            let end = rude.connect_over(transport, qp, at("10.9.0.1", 7471));
            let accepted =
                listener.request(LONG).expect("a request").accept(&to, &options).expect("it waits");
            rude.is_connected(end);
            // The board takes both from the ring in one turn.
            let send = SendWork::new(1, Operation::Send { invalidate: None }, elements(memory.stag, 20_000));
            let entries = [Request::PostSend { qp, work: send }, Request::DestroyQp { qp }];
            for entry in entries.map(|request| request.to_bytes(0).expect("it fits")) {
                assert_eq!(rude.work.push(&entry), Ok(true));
            }
            rude.channel.ring(machine_nanos);
            assert_eq!((kernel.done().id, heard.to_vec(0, 20_000)), (9, vec![0; 20_000]), "{transport:?}");
            accepted.wait_disconnected(LONG).expect("it is disconnected");
        }
    });
}

#[test]
fn a_program_that_reads_nothing_overruns_only_its_own_queues() {
    against_board("nic-slow", "", |dir, board| {
        {
            let victim = Victim::new(dir);
            // Completions.
            let mut rude = Rude::attach(dir, 1);
            let pd = rude.number(&Request::CreatePd);
            let (cq, memory) = (rude.cq(4), rude.memory(pd));
            rude.listen(7500);
            let [from, to] = rude.pair(pd, &cq, 7500);
            for id in 0..64 {
                rude.tell(&Request::PostReceive { qp: to, work: ReceiveWork { id, sges: Sges::new() } });
                let work = SendWork::new(id, Operation::Send { invalidate: None }, Data::none());
                rude.tell(&Request::PostSend { qp: from, work });
            }
            rude.event("the overrun", |notice| match notice {
                Notice::Event(Event::CqOverrun { cq: overrun }) if *overrun == cq.number => Some(()),
                _ => None,
            });
            let counted = |status: &serde_json::Value| {
                let programs = status["services"][0]["programs"].as_array().expect("programs");
                programs.iter().any(|program| program["counters"]["full_rings"].as_u64() > Some(0))
            };
            board.until("the full ring is counted", counted);
            victim.works();
            drop((rude, memory));
            // Notices: replies to requests, up to a limit.
            let mut rude = Rude::attach(dir, 2);
            while rude.tell(&Request::QueryAddress { index: 0 }) {}
            rude.is_disconnected();
            victim.works();
            // Connection requests that a listener never answers.
            let mut rude = Rude::attach(dir, 3);
            let pd = rude.number(&Request::CreatePd);
            let cq = rude.cq(4);
            rude.listen(7500);
            for _ in 0..32 {
                let qp = rude.qp(pd, &cq);
                rude.connect(qp, 7500);
            }
            victim.works();
            let more = victim.near.context.listen(at("10.9.0.2", 0).into(), &Connect::default());
            drop(join(&victim.far, &victim.near, &more.expect("its address")));
        }
    });
}

/// Repeats a request until it is refused. Returns how often it was granted.
fn exhaust(
    rude: &mut Rude<'_>,
    most: usize,
    mut request: impl FnMut(&mut Rude<'_>) -> Option<Request>,
) -> usize {
    let mut granted = 0;
    while let Some(request) = request(rude) {
        match rude.ask(&request) {
            Ok(_) => granted += 1,
            Err(_) => break,
        }
        assert!(granted <= most, "{request:?} is granted {granted} times");
    }
    granted
}

#[test]
fn a_program_that_creates_too_many_objects_leaves_room_for_others() {
    against_board("nic-many", "sessions = 64\n", |dir, board| {
        let victim = Victim::new(dir);
        let mut rude = Rude::attach(dir, 1);
        let pd = rude.number(&Request::CreatePd);
        let cq = rude.cq(4);
        assert!(exhaust(&mut rude, 4095, |_| Some(Request::CreatePd)) >= 256);
        let window = Request::AllocateWindow { pd, type_2: true };
        assert!(exhaust(&mut rude, 1 << 19, |_| Some(window.clone())) >= 4096);
        let srq = Request::CreateSrq { pd, work_max: 32768 };
        assert!(exhaust(&mut rude, 4095, |_| Some(srq.clone())) >= 256);
        let listen = Request::Listen { transport: Transport::Tcp, local: at("10.9.0.2", 0) };
        assert!(exhaust(&mut rude, 8192, |_| Some(listen.clone())) >= 256);
        // Regions and queues share a limit of memories.
        let queues = exhaust(&mut rude, 4096, |rude| {
            let (memory, _) = rude.share(4096).ok()?;
            Some(Request::CreateCq { memory, entries: 1 })
        });
        assert_eq!(queues, 4095);
        assert!(rude.share(4096).is_err());
        let create = Request::CreateQp { attributes: attributes(pd, cq.number) };
        let pairs = exhaust(&mut rude, 64, |_| Some(create.clone()));
        assert_eq!(pairs, 55, "seven eighths of 64, but for the other program's");
        // Other programs can still create everything.
        victim.works();
        let other = on(dir, Transport::Tcp);
        drop((other.memory(&[1; 4096]), other.pd.alloc_mw(false).expect("room")));
        drop(other.pd.create_srq(16).expect("room"));
        drop(other.context.listen(at("10.9.0.2", 0).into(), &Connect::default()).expect("room"));
        let rest: Vec<_> = (0..8).map(|_| other.qp()).collect();
        assert!(other.pd.create_qp(&other.cq, &other.cq, Default::default()).is_err(), "64 exist");
        // When the program ends, others can have its queue pairs.
        drop((rude, cq));
        sessions(board, 9);
        drop((rest, other.qp()));
    });
}
