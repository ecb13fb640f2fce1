//! The RDMA NIC of running boards, used by other processes: a service of kind `rdma`.

use super::rdma::{LONG, Side, at, join, moves, two_boards};
use crate::common::{Board, PORT, TestDir, enter, is_clean, run, text};
use kiban_rdma::hif::Transport;
use kiban_rdma_runtime::{
    Access, Connect, ConnectError, Error, Kind, Lower, QpOptions, QpState, Remote, RequestError, Status, Wr,
};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

pub(super) const RDMA: &str = "[[service]]\nkind = \"rdma\"\n";

/// Opens the NIC of a board through its socket.
pub(super) fn on(dir: &TestDir, transport: Transport) -> Side {
    let name = dir.0.join("kiban/lab.rdma").display().to_string();
    let lower = Lower::Nic { name: Some(name), transport };
    assert_eq!(lower.to_string().parse(), Ok(lower.clone()));
    Side::new(&lower)
}

/// Waits until all queue pairs of programs are gone.
pub(super) fn sessions(board: &Board<'_>, count: usize) {
    board.until("the number of queue pairs", |status| status["services"][0]["sessions"] == count);
}

#[test]
fn programs_use_the_nics_of_two_boards() {
    if !enter() {
        return;
    }
    let (near, far) = (TestDir::new("nic-near"), TestDir::new("nic-far"));
    let [mut near_board, far_board] = two_boards(&near, &far, RDMA);
    for transport in [Transport::Tcp, Transport::Roce, Transport::Efe] {
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

#[test]
fn a_boards_nic_works_over_efe_with_a_nic_over_the_kernels_udp() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("nic-efe");
    let board = dir.up(&format!("{PORT}{RDMA}"));
    let idle = board.status();
    {
        let nic = on(&dir, Transport::Efe);
        let kernel = Side::new(&"efe:10.9.0.1".parse().expect("a lower layer"));
        let options = Connect::default();
        let on_board = nic.context.listen(at("10.9.0.2", 7471).into(), &options).expect("its address");
        let on_kernel = kernel.context.listen(at("10.9.0.1", 7471).into(), &options).expect("its address");
        let pairs = [join(&nic, &kernel, &on_kernel), join(&nic, &kernel, &on_kernel)];
        moves(&nic, &kernel, &pairs, 1 << 20);
        let more = [join(&kernel, &nic, &on_board)];
        moves(&kernel, &nic, &more, 100_000);
        // Connections over TCP and RoCEv2 work at the same time.
        let tcp = (on(&dir, Transport::Tcp), Side::new(&Lower::Tcp { from: None }));
        let listener =
            tcp.0.context.listen(at("10.9.0.2", 7471).into(), &options).expect("another transport");
        let over_tcp = [join(&tcp.1, &tcp.0, &listener)];
        std::thread::scope(|scope| {
            scope.spawn(|| moves(&tcp.1, &tcp.0, &over_tcp, 1 << 20));
            moves(&nic, &kernel, &pairs, 1 << 20);
        });
        // An orderly close still delivers what was posted before it.
        let [(from, to, connected, accepted), _] = pairs;
        let (said, heard) = (nic.memory(&[5; 100_000]), kernel.memory(&[0; 100_000]));
        to.post_recv(9, &[heard.all()]).expect("room");
        from.post_send(Wr::send(8, said.all())).expect("room");
        connected.disconnect();
        assert_eq!((kernel.done().id, heard.to_vec(0, 100_000)), (9, vec![5; 100_000]));
        accepted.wait_disconnected(LONG).expect("it is disconnected");
    }
    let counters = board.status()["counters"].clone();
    assert!(counters["efe"]["segments_in"].as_u64() > Some(1000), "{counters}");
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
/// The Writes of a round, and its Reads.
const ROUND: u64 = 70;

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
    println!("\naccepted");
    std::io::stdin().read_line(&mut String::new()).expect("a pipe");
}

/// Accesses a target's memory, and returns the CPU time that the target's process needed for that: the least
/// of three rounds, because the kernel also charges a process for the interrupts that come while it runs.
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
    access(10);
    assert!(lines.by_ref().any(|line| line == "accepted"), "{lower}: {}", dir.log());
    let round = |_| {
        let before = cpu_of(&child);
        access(ROUND);
        cpu_of(&child) - before
    };
    let used = (0..3).map(round).min().expect("three rounds");
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
        "CPU time of the target for {ROUND} Writes and {ROUND} Reads of 1 MiB: {} us with the board's NIC, {} us with its own",
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

#[test]
fn the_use_of_the_nic_is_counted_per_program() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("nic-counters");
    let board = dir.up(&format!("{PORT}{RDMA}[metrics]\nlisten = \"127.0.0.1:9464\"\n"));
    assert!(board.status()["services"][0].get("programs").is_none(), "no program is attached");
    // Two programs that this process has attached, one after the other.
    let (nic, _idle) = (on(&dir, Transport::Tcp), on(&dir, Transport::Tcp));
    let kernel = Side::new(&Lower::Tcp { from: None });
    let listener = nic.context.listen(at("10.9.0.2", 7471).into(), &Connect::default()).expect("its address");
    let pair = join(&kernel, &nic, &listener);
    let memory = nic.memory(&[1; 8192]);
    for id in 0..3 {
        pair.1.post_recv(id, &[memory.all()]).expect("room");
    }
    for id in 0..2 {
        pair.0.post_recv(id, &[]).expect("room");
        pair.0.post_send(Wr::send_inline(id, b"heard")).expect("room");
        pair.1.post_send(Wr::send_inline(id, b"")).expect("room");
        assert_eq!([nic.done().status, nic.done().status], [Status::Success; 2]);
    }
    let refused = nic.context.listen(at("10.9.0.2", 7471).into(), &Connect::default());
    assert!(refused.is_err(), "the port is in use");
    let status = board.status();
    let programs = status["services"][0]["programs"].as_array().expect("two programs");
    let [used, unused] = &programs[..] else { panic!("{programs:?}") };
    let counters = &used["counters"];
    assert_eq!(
        [&used["pid"], &used["queue_pairs"], &used["completion_queues"], &used["keys"], &used["notices"]],
        [std::process::id(), 1, 1, 1, 0],
    );
    assert!(used["shared_bytes"].as_u64() > Some(8192), "{used}");
    // A domain, a queue, a listener, a queue pair, a region, an answer to a request, and perhaps the state of
    // the queue pair.
    assert!(counters["requests"].as_u64() >= Some(6), "{used}");
    assert_eq!(
        ["refused", "sends", "receives", "completions", "full_rings"].map(|name| counters[name].as_u64()),
        [1, 2, 3, 4, 0].map(Some),
        "{used}"
    );
    assert_eq!((&unused["queue_pairs"], &unused["counters"]["sends"]), (&0.into(), &0.into()), "{unused}");
    // The table for people.
    let table = text(&dir.kiban(&["status", "lab"]));
    let row: Vec<Vec<&str>> = table
        .lines()
        .skip_while(|line| !line.contains("programs on the RDMA NIC"))
        .map(|line| line.split_whitespace().collect())
        .filter(|words: &Vec<&str>| words.first() == Some(&&*std::process::id().to_string()))
        .collect();
    assert_eq!(row[0][1..3], ["1", "1"], "{table}");
    assert_eq!(row[0][4..], ["0", "2", "3", "4", "1"], "{table}");
    assert_eq!(row.len(), 2, "{table}");
    // Prometheus rejects a scrape in which a time series occurs twice.
    let metrics = text(&run("curl", &["-sSf", "http://127.0.0.1:9464/metrics"]));
    let series: Vec<&str> = metrics
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' ').map(|(series, _)| series))
        .collect();
    let distinct: std::collections::BTreeSet<&str> = series.iter().copied().collect();
    assert_eq!(distinct.len(), series.len(), "{metrics}");
    for (name, value) in [
        ("kiban_rdma_program_sends_total", "2"),
        ("kiban_rdma_program_receives_total", "3"),
        ("kiban_rdma_program_completions_total", "4"),
        ("kiban_rdma_program_refused_total", "1"),
        ("kiban_rdma_program_queue_pairs", "1"),
    ] {
        let has = |line: &str| line.starts_with(name) && line.ends_with(&format!(" {value}"));
        assert!(metrics.lines().any(has), "{name}: {metrics}");
    }
}

#[test]
fn measurements_run_on_a_boards_nic() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("nic-measure");
    let _board = dir.up(&format!("{PORT}{RDMA}"));
    for over in ["nic:lab", "nic-roce:lab", "nic-efe:lab"] {
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
