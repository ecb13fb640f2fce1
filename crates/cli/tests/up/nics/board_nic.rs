//! The RDMA NIC of running boards, used by other processes: a service of kind `rdma`.

use super::rdma::{LONG, Side, at, join, moves, two_boards};
use crate::common::{Board, PORT, TestDir, enter, is_clean, text};
use kiban_base::SharedBytes;
use kiban_base::ring::{Consumer, Producer};
use kiban_os::channel::{Channel, FRONT_BYTES, PendingChannel};
use kiban_os::clock::machine_nanos;
use kiban_rdma::hif::{Answer, ENTRY_BYTES, Greeting, Layout, Notice, Piece, Refusal, Request, Transport};
use kiban_rdma::rnic::{ReceiveWork, Sges};
use kiban_rdma_runtime::{
    Access, Connect, ConnectError, Error, Kind, Lower, QpOptions, QpState, Remote, RequestError, Status, Wr,
};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

pub(super) const RDMA: &str = "[[service]]\nkind = \"rdma\"\n";

/// Opens the NIC of a board through its socket.
fn on(dir: &TestDir, transport: Transport) -> Side {
    let name = dir.0.join("kiban/lab.rdma").display().to_string();
    let lower = Lower::Nic { name: Some(name), transport };
    assert_eq!(lower.to_string().parse(), Ok(lower.clone()));
    Side::new(&lower)
}

/// Waits until all queue pairs of programs are gone.
fn sessions(board: &Board<'_>, count: usize) {
    board.until("the number of queue pairs", |status| status["services"][0]["sessions"] == count);
}

#[test]
fn programs_use_the_nics_of_two_boards() {
    if !enter() {
        return;
    }
    let (near, far) = (TestDir::new("nic-near"), TestDir::new("nic-far"));
    let [mut near_board, far_board] = two_boards(&near, &far, RDMA);
    for transport in [Transport::Tcp, Transport::Roce] {
        let (one, two) = (on(&near, transport), on(&far, transport));
        let options = Connect::default();
        let listener = two.context.listen(at("10.1.0.2", 7471).into(), &options).expect("its address");
        let mut pairs = vec![join(&one, &two, &listener)];
        let (own, peer) = pairs[0].2.addresses().expect("it is connected");
        assert_eq!((own.ip(), peer.ip()), (at("10.1.0.1", 0).ip(), at("10.1.0.2", 0).ip()));
        assert_eq!(pairs[0].3.addresses(), Some((peer, own)));
        pairs.extend((0..3).map(|_| join(&one, &two, &listener)));
        for bytes in [1, 10_000, 1 << 20] {
            moves(&one, &two, &pairs, bytes);
        }
        // Atomics, and immediate data after a Write.
        let (word, was) = (two.memory(&[0; 8]), one.memory(&[1; 16]));
        let (qp, to, ..) = &pairs[0];
        assert_eq!(qp.state(), QpState::Rts);
        assert!(qp.agreed().expect("it is connected").2, "both ends support RFC 7306");
        qp.post_send(Wr::fetch_add(1, was.slice(0, 8), word.remote(), 5)).expect("room");
        qp.post_send(Wr::compare_swap(2, was.slice(8, 8), word.remote(), 5, 9)).expect("room");
        assert_eq!([one.done().kind, one.done().kind], [Kind::FetchAdd, Kind::CompareSwap]);
        assert_eq!(was.to_vec(0, 16), [0u64.to_ne_bytes(), 5u64.to_ne_bytes()].concat());
        assert_eq!(word.to_vec(0, 8), 9u64.to_ne_bytes());
        to.post_recv(4, &[]).expect("room");
        qp.post_send(Wr::write_with_immediate(3, was.slice(0, 8), word.remote(), 7 << 32)).expect("room");
        let heard = two.done();
        assert_eq!((heard.kind, heard.immediate.map(|data| data >> 32)), (Kind::ReceiveImmediate, Some(7)));
        assert_eq!((one.done().id, word.to_vec(0, 8)), (3, vec![0; 8]));
        // Memory that has been deregistered can no longer be accessed.
        let (gone, rest) = (word.remote(), pairs.len() - 1);
        drop(word);
        let (qp, _, connected, _) = &pairs[rest];
        qp.post_send(Wr::read(6, was.slice(0, 8), gone)).expect("room");
        let refused = one.cq.wait(LONG).expect("a completion");
        assert!(refused.id == 6 && refused.status != Status::Success, "{refused:?}");
        connected.wait_disconnected(LONG).expect("an invalid key ends the connection");
        pairs.pop();
        // An orderly close still delivers what was posted before it.
        let (from, to, connected, accepted) = pairs.pop().expect("three");
        let heard = two.memory(&[0; 5]);
        to.post_recv(9, &[heard.all()]).expect("room");
        from.post_send(Wr::send_inline(8, b"adieu")).expect("room");
        connected.disconnect();
        assert_eq!((two.done().id, heard.to_vec(0, 5), one.done().id), (9, b"adieu".to_vec(), 8));
        accepted.wait_disconnected(LONG).expect("it is disconnected");
        drop((from, to, connected, accepted, heard));
        moves(&one, &two, &pairs, 10_000);
        // Refusals.
        let nobody = one.qp().connect(at("10.1.0.2", 5999).into(), &options, LONG).expect_err("no listener");
        assert!(matches!(nobody, Error::Connect(ConnectError::Unreachable)), "{transport:?}: {nobody}");
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| listener.request(LONG).expect("a request").reject(b"no").expect("it waits"));
            one.qp().connect(listener.address(), &options, LONG).expect_err("it is rejected")
        });
        assert!(
            matches!(&refused, Error::Connect(ConnectError::Rejected(said)) if said.starts_with(b"no")),
            "{refused}"
        );
        let taken = two.context.listen(at("10.1.0.2", 7471).into(), &options).map(|_| ()).expect_err("taken");
        assert!(taken.to_string().contains("in use"), "{taken}");
        let chosen = two.context.listen(at("10.1.0.2", 0).into(), &options).expect("a free port");
        drop(join(&one, &two, &chosen));
    }
    let counters = far_board.status()["counters"]["rdma"].clone();
    assert!(counters["placed_bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{counters}");
    sessions(&near_board, 0);
    sessions(&far_board, 0);
    // After the board is killed, no work request may hang, and calls must return an error.
    let (one, two) = (on(&near, Transport::Tcp), on(&far, Transport::Tcp));
    let listener = two.context.listen(at("10.1.0.2", 7471).into(), &Connect::default()).expect("its address");
    let (qp, _peer, connected, _accepted) = join(&one, &two, &listener);
    qp.post_recv(5, &[]).expect("room");
    near_board.signal("-KILL");
    near_board.wait();
    let lost = one.cq.wait(LONG).expect("a completion");
    assert!(lost.id == 5 && lost.status != Status::Success, "{lost:?}");
    connected.wait_disconnected(LONG).expect("the board is gone");
    assert_eq!(qp.state(), QpState::Error);
    let error = one.pd.reg_mr(1, Access::NONE).map(|_| ()).expect_err("the board is gone").to_string();
    assert!(error.contains("refused") || error.contains("No such file"), "{error}");
    let error = one.context.alloc_pd().map(|_| ()).expect_err("the board is gone").to_string();
    assert!(error.contains("the board has exited"), "{error}");
}

#[test]
fn a_boards_nic_works_with_a_nic_over_the_kernels_tcp_and_limits_hold() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("nic-kernel");
    let board = dir.up(&format!("{PORT}{RDMA}sessions = 3\n"));
    let idle = board.status();
    {
        let (nic, kernel) = (on(&dir, Transport::Tcp), Side::new(&Lower::Tcp { from: None }));
        let options = Connect::default();
        let on_board = nic.context.listen(at("10.9.0.2", 0).into(), &options).expect("its address");
        let on_kernel = kernel.context.listen(at("10.9.0.1", 0).into(), &options).expect("its address");
        let pairs = [join(&nic, &kernel, &on_kernel)];
        moves(&nic, &kernel, &pairs, 1 << 20);
        let more = [join(&kernel, &nic, &on_board)];
        moves(&kernel, &nic, &more, 100_000);
        // Limits, and the limits of queues.
        let third = nic.qp();
        let error = nic.pd.create_qp(&nic.cq, &nic.cq, QpOptions::default()).expect_err("the fourth");
        assert!(error.to_string().contains("raise `sessions`"), "{error}");
        let qp = &pairs[0].0;
        for id in 0..QpOptions::default().max_recv_wr as u64 {
            qp.post_recv(id, &[]).expect("room");
        }
        let full = qp.post_recv(1, &[]).expect_err("the queue is full");
        assert!(matches!(full, Error::Refused(RequestError::Full)), "{full}");
        // Work that is refused only at the NIC completes with an error.
        third.post_send(Wr::send_inline(3, b"early")).expect("it is refused later");
        let refused = nic.cq.wait(LONG).expect("a completion");
        assert_eq!((refused.id, refused.status), (3, Status::LocalOperation));
        // Sizes.
        let error = nic.context.create_cq(usize::MAX).map(|_| ()).expect_err("too large");
        assert!(matches!(error, Error::Refused(RequestError::TooMany)), "{error}");
        let error = nic.pd.reg_mr(9 << 30, Access::ALL).map(|_| ()).expect_err("too large");
        assert!(error.to_string().contains("the size is out"), "{error}");
    }
    sessions(&board, 0);
    is_clean(&board, &idle);
}

/// Starts a server.
fn serve(dir: &TestDir, at: &str, over: &str) -> Child {
    let mut command = dir.command(&["rdma", "serve", at, "--over", over, "--wait", "interrupt"]);
    let mut server = command.stderr(Stdio::piped()).spawn().expect("the program was built");
    let mut lines = BufReader::new(server.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let line = lines.next().unwrap_or_default();
    assert!(line.contains("serving at"), "{line} {:?}", lines.next());
    // Read the rest, so that the server can write it.
    std::thread::spawn(move || lines.for_each(drop));
    server
}

fn stop(mut server: Child) {
    server.kill().expect("it is a child of this process");
    server.wait().expect("it is a child of this process");
}

/// Returns the CPU time of a process in nanoseconds.
fn cpu_of(process: &Child) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("it runs");
    let nanos = |task: std::fs::DirEntry| {
        let line = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        line.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0)
    };
    tasks.flatten().map(nanos).sum()
}

/// The lower layer and the address of `target_process`.
const TARGET: &str = "KIBAN_TEST_TARGET";
const TARGET_BYTES: usize = 1 << 20;

/// The process whose memory others access: it accepts one connection, and then does nothing until the end of
/// its standard input.
#[test]
fn target_process() {
    let Ok(target) = std::env::var(TARGET) else { return };
    let (lower, address) = target.split_once('@').expect("two words");
    let side = Side::new(&lower.parse().expect("a lower layer"));
    let options = Connect::default();
    let listener = side.context.listen(address.parse().expect("an address"), &options).expect("its address");
    let (qp, memory) = (side.qp(), side.memory(&[0; TARGET_BYTES]));
    println!("\ntarget {} {}", memory.rkey(), memory.address());
    let _connection = listener.request(LONG).expect("a request").accept(&qp, &options).expect("it waits");
    std::io::stdin().read_line(&mut String::new()).expect("a pipe");
}

/// Accesses a target's memory, and returns the CPU time that the target's process needed for that.
fn cpu_of_target(dir: &TestDir, lower: &str, address: &str) -> u64 {
    let mut child = std::process::Command::new(std::env::current_exe().expect("a program"))
        .args(["nics::board_nic::target_process", "--exact", "--nocapture"])
        .env(TARGET, format!("{lower}@{address}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it is this program");
    // The pipe stays open, because the test harness in the child still writes to it.
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let line = lines.by_ref().find_map(|line| line.strip_prefix("target ").map(str::to_owned));
    let line = line.unwrap_or_else(|| panic!("{lower}: {}", dir.log()));
    let (rkey, at) = line.split_once(' ').expect("two numbers");
    let (rkey, at) = (rkey.parse().expect("a number"), at.parse().expect("a number"));
    let remote = Remote { rkey, address: at };
    let one = on(dir, Transport::Tcp);
    let (qp, memory) = (one.qp(), one.memory(&[7; TARGET_BYTES]));
    let address = address.parse().expect("an address");
    let _connection = qp.connect(address, &Connect::default(), LONG).expect("it listens");
    let access = |count: u64| {
        for number in 0..count {
            qp.post_send(Wr::write(number, memory.all(), remote)).expect("room");
            qp.post_send(Wr::read(number, memory.all(), remote)).expect("room");
            one.done();
            one.done();
        }
    };
    // The first accesses also wait until the target has accepted.
    access(10);
    let before = cpu_of(&child);
    access(200);
    let used = cpu_of(&child) - before;
    assert!(memory.to_vec(0, TARGET_BYTES).iter().all(|byte| *byte == 7));
    drop(child.stdin.take());
    let said: Vec<String> = lines.collect();
    assert!(child.wait().expect("it is a child of this process").success(), "{said:?}");
    used
}

#[test]
fn the_target_of_one_sided_operations_uses_no_processor_time() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("nic-cpu");
    let _board = dir.up(&format!("{PORT}{RDMA}"));
    let nic = format!("nic:{}", dir.0.join("kiban/lab.rdma").display());
    let on_board = cpu_of_target(&dir, &nic, "10.9.0.2:7471");
    let own = cpu_of_target(&dir, "tcp", "10.9.0.1:7471");
    let micros = |nanos: u64| nanos / 1000;
    println!(
        "CPU time of the target for 200 Writes and 200 Reads of 1 MiB: {} us with the board's NIC, {} us with its own",
        micros(on_board),
        micros(own)
    );
    assert!(on_board < own / 20, "{on_board} ns with the board's NIC, {own} ns with its own");
}

#[test]
fn a_killed_program_leaves_nothing_and_harms_no_other() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("nic-killed");
    let board = dir.up(&format!("{PORT}{RDMA}"));
    let idle = board.status();
    let server = serve(&dir, "10.9.0.2:7471", "nic:lab");
    let stream = |count: &str| {
        let arguments =
            ["rdma", "stream", "10.9.0.2:7471", "--write", "--over", "nic:lab", "--count", count, "--quiet"];
        let mut command = dir.command(&arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it was built")
    };
    for signal in ["-KILL", "-STOP"] {
        let mut victim = stream("100000000");
        sessions(&board, 2);
        let busy = |status: &serde_json::Value| {
            status["counters"]["rdma"]["placed_bytes"].as_u64().is_some_and(|bytes| bytes > 100 << 20)
        };
        board.until("it transfers", busy);
        let killed = std::process::Command::new("kill").args([signal, &victim.id().to_string()]).status();
        assert!(killed.expect("kill").success());
        // Another program works meanwhile, even if the first has stopped without reading its completions.
        let other = stream("2000").wait_with_output().expect("it ends");
        assert!(other.status.success(), "{}\n{}", text(&other), dir.log());
        let _ = victim.kill();
        victim.wait().expect("it is a child of this process");
        sessions(&board, 0);
    }
    stop(server);
    is_clean(&board, &idle);
    assert!(!dir.log().contains("panicked"), "{}", dir.log());
}

/// A program that speaks the protocol itself.
struct Rude {
    channel: Channel,
    work: Producer,
    notices: Consumer,
}

impl Rude {
    fn attach(dir: &TestDir, key: u8) -> Rude {
        let bytes = Layout::new(FRONT_BYTES).bytes().next_multiple_of(4096);
        let channel = Rude::call(dir, &Greeting::Nic { key: [key; 16] }, bytes).expect("it is admitted");
        let (memory, layout) = (channel.region().clone(), Layout::new(FRONT_BYTES));
        Rude {
            work: Producer::new(&memory, layout.work_at(), layout.work()),
            notices: Consumer::new(&memory, layout.notices_at(), layout.notices()),
            channel,
        }
    }

    fn call(dir: &TestDir, greeting: &Greeting, bytes: usize) -> std::io::Result<Channel> {
        let door = dir.0.join("kiban/lab.rdma");
        let half = PendingChannel::connect_at(&door, &greeting.to_bytes(), bytes)?;
        kiban_streams::call::complete(half, bytes)
    }

    fn push(&mut self, entry: &[u8]) {
        assert_eq!(self.work.push(entry), Ok(true));
        self.channel.ring(machine_nanos);
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, Refusal> {
        self.push(&request.to_bytes(1).expect("it fits"));
        let mut entry = [0; ENTRY_BYTES];
        let clock = kiban_os::Clock::new();
        loop {
            if let Some(bytes) = self.notices.peek().expect("a board that keeps the rules") {
                let length = bytes.copy_to(0, &mut entry);
                self.notices.release();
                if let Some(Notice::Reply { number: 1, result }) = Notice::from_bytes(&entry[..length]) {
                    return result;
                }
            }
            assert!(clock.now().as_secs_f64() < LONG.as_secs_f64() && !self.channel.is_gone(), "no reply");
            std::thread::yield_now();
        }
    }

    fn number(&mut self, request: &Request) -> u32 {
        match self.ask(request) {
            Ok(Answer::Number(number)) => number,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    /// Waits until the board has disconnected it.
    fn is_disconnected(&self) {
        let clock = kiban_os::Clock::new();
        while !self.channel.is_gone() {
            assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "the board must disconnect it");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_hostile_program_reaches_no_other_program_and_is_disconnected() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("nic-hostile");
    let board = dir.up(&format!("{PORT}{RDMA}"));
    let idle = board.status();
    {
        let victim = on(&dir, Transport::Tcp);
        let qp = victim.qp();
        let listener =
            victim.context.listen(at("10.9.0.2", 7471).into(), &Connect::default()).expect("its address");
        let secret = victim.memory(b"secret");
        // Numbers of another program's objects. Protection domains have consecutive numbers, so try some.
        let mut rude = Rude::attach(&dir, 1);
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
        let share = |memory, bytes| Rude::call(&dir, &Greeting::Memory { key: [1; 16], memory }, bytes);
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
        assert!(Rude::call(&dir, &stranger, 4096).is_err(), "an unknown key");
        assert!(Rude::call(&dir, &Greeting::Nic { key: [1; 16] }, 1 << 20).is_err(), "a key in use");
        drop((short, region));
        // Another program's memory, named in a work request: the elements are checked when it is sent.
        let mut entries: Vec<Vec<u8>> = vec![
            Vec::new(),
            vec![0xff; ENTRY_BYTES],
            Request::Room { cq: victim.cq.number() }.to_bytes(0).expect("it fits"),
            Request::PostReceive { qp: other, work: ReceiveWork { id: 1, sges: Sges::new() } }
                .to_bytes(0)
                .expect("it fits"),
        ];
        for (number, entry) in (10u8..).zip(&mut entries) {
            let mut rude = Rude::attach(&dir, number);
            rude.push(entry);
            rude.is_disconnected();
        }
        // A length beyond the slot, written into the ring itself.
        let rude = Rude::attach(&dir, 20);
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
    sessions(&board, 0);
    is_clean(&board, &idle);
    assert!(dir.log().contains("protocol error") && !dir.log().contains("panicked"), "{}", dir.log());
}

#[test]
fn measurements_run_on_a_boards_nic() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("nic-measure");
    let _board = dir.up(&format!("{PORT}{RDMA}"));
    for over in ["nic:lab", "nic-roce:lab"] {
        for (what, operation) in [("pingpong", "--send"), ("pingpong", "--read"), ("stream", "--write")] {
            let output = dir.kiban(&["rdma", what, operation, "--over", over, "--count", "50", "--quiet"]);
            let words = text(&output);
            let is_well = output.status.success() && words.contains(&format!("both ends here over {over}"));
            assert!(is_well, "{what} {operation}: {words}\n{}", dir.log());
        }
    }
    let output = dir.kiban(&["rdma", "pingpong", "--over", "nic:moon"]);
    let words = text(&output);
    assert!(words.contains("no board moon is running; running boards: lab"), "{words}");
    let output = dir.kiban(&["rdma", "pingpong", "--over", "nic:lab", "--crc"]);
    assert!(text(&output).contains("requests no CRC"), "{}", text(&output));
}
