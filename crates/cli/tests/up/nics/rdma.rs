//! Verbs over the TCP of running boards: between two boards that exchange cells, and between a board and this
//! host's kernel.

use crate::common::{Board, ECHO, KIBAN, PORT, TestDir, enter, text};
use kiban_base::Wait;
use kiban_os::clock::{Clock, thread_cpu_nanos};
use kiban_rdma_runtime::{
    Access, Completion, Connect, ConnectError, Connection, Context, Cq, Error, Listener, Lower, Mr, Pd, Qp,
    QpOptions, QpState, Status, Wr,
};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

const ATTACH: &str = "[[service]]\nkind = \"attach\"\n";
pub(super) const LONG: Duration = Duration::from_secs(60);

/// A program's NIC, with one completion queue.
pub(super) struct Side {
    pub(super) context: Context,
    pub(super) pd: Pd,
    pub(super) cq: Cq,
}

impl Side {
    pub(super) fn new(lower: &Lower) -> Side {
        let context = Context::open(lower).unwrap_or_else(|error| panic!("{lower}: {error}"));
        let (pd, cq) = (context.alloc_pd().expect("room"), context.create_cq(512).expect("room"));
        Side { context, pd, cq }
    }

    /// Opens a board's NIC through the board's attach socket.
    fn on(dir: &TestDir) -> Side {
        let door = dir.0.join("kiban/lab.streams");
        let lower: Lower = format!("board:{}", door.display()).parse().expect("a lower layer");
        assert_eq!(lower.to_string().parse(), Ok(lower.clone()));
        Side::new(&lower)
    }

    pub(super) fn qp(&self) -> Qp {
        self.pd.create_qp(&self.cq, &self.cq, QpOptions::default()).expect("room")
    }

    pub(super) fn memory(&self, bytes: &[u8]) -> Mr {
        let memory = self.pd.reg_mr(bytes.len(), Access::ALL).expect("room");
        memory.write(0, bytes);
        memory
    }

    /// Waits for the next completion and checks that it was successful.
    pub(super) fn done(&self) -> Completion {
        let done = self.cq.wait(LONG).expect("a completion");
        assert_eq!(done.status, Status::Success, "{done:?}");
        done
    }
}

/// Two connected queue pairs and their connections.
pub(super) type Pair = (Qp, Qp, Connection, Connection);

pub(crate) fn at(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse().expect("an address"), port)
}

pub(super) fn join(one: &Side, two: &Side, listener: &Listener) -> Pair {
    let (from, to) = (one.qp(), two.qp());
    let options = Connect { extensions: true, ..Connect::default() };
    let (connected, accepted) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.request(LONG)?.accept(&to, &options));
        (from.connect(listener.address(), &options, LONG), accepting.join().expect("no panic"))
    });
    (from, to, connected.expect("there is a listener"), accepted.expect("it waits"))
}

fn noise(length: usize, seed: u32) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

/// Writes, reads and sends over all pairs at the same time, and checks the data.
pub(super) fn moves(one: &Side, two: &Side, pairs: &[Pair], bytes: usize) {
    for (near, far, from, to) in [(0, 1, one, two), (1, 0, two, one)] {
        let sides = |pair: &Pair| [pair.0.clone(), pair.1.clone()];
        let work: Vec<_> = (0u32..)
            .zip(pairs)
            .map(|(seed, pair)| {
                let source = from.memory(&noise(bytes, seed));
                let [target, heard] = [(); 2].map(|()| to.memory(&vec![0; bytes]));
                let back = from.memory(&vec![0; bytes]);
                let ends = sides(pair);
                ends[far].post_recv(u64::from(seed), &[heard.all()]).expect("room");
                let write = Wr::write(1, source.all(), target.remote());
                let read = Wr::read(2, back.all(), target.remote());
                let send = Wr::send(3, source.all());
                ends[near].post_send_all([write, read, send]).expect("room");
                (source, target, back, heard)
            })
            .collect();
        for _ in pairs {
            assert_eq!(to.done().bytes as usize, bytes);
            for _ in 0..3 {
                from.done();
            }
        }
        for (source, target, back, heard) in work {
            let words = source.to_vec(0, bytes);
            for memory in [target, back, heard] {
                assert!(memory.to_vec(0, bytes) == words, "{bytes} bytes");
            }
        }
    }
}

/// Starts two boards in one network namespace. They exchange cells in UDP datagrams.
pub(crate) fn two_boards<'a>(near: &'a TestDir, far: &'a TestDir, service: &str) -> [Board<'a>; 2] {
    let config = |own: u16, other: u16| {
        format!(
            "name = \"lab\"\n[[port]]\nname = \"atm\"\nlink = \"udp-cells:127.0.0.1:{own}-127.0.0.1:{other},packed\"\n\
             address = \"10.1.0.{}/24\"\n[[port.pvc]]\nvc = \"0.100\"\n{service}",
            own % 10
        )
    };
    let boards = [near.up(&config(7001, 7002)), far.up(&config(7002, 7001))];
    boards[0].until("the peer is known", |status| status["circuits"][0]["peer"] == "10.1.0.2");
    boards
}

#[test]
fn rdma_works_between_two_boards_over_atm_with_few_or_many_queue_pairs() {
    if !enter() {
        return;
    }
    let (near, far) = (TestDir::new("rdma-near"), TestDir::new("rdma-far"));
    let [mut near_board, _far_board] = two_boards(&near, &far, ATTACH);
    let (one, two) = (Side::on(&near), Side::on(&far));
    let listener = two.context.listen(at("10.1.0.2", 7471).into(), &Connect::default()).expect("its address");
    let mut pairs = vec![join(&one, &two, &listener)];
    let (own, peer) = pairs[0].2.addresses().expect("TCP has addresses");
    assert_eq!((own.ip().to_string().as_str(), peer), ("10.1.0.1", at("10.1.0.2", 7471)));
    assert_eq!(pairs[0].3.addresses(), Some((peer, own)));
    // If there are few queue pairs, poll each one; if there are many, poll those on the list of ready ones.
    moves(&one, &two, &pairs, 10_000);
    pairs.extend((0..4).map(|_| join(&one, &two, &listener)));
    for bytes in [1, 10_000, 1 << 20] {
        moves(&one, &two, &pairs, bytes);
    }
    // An orderly close still delivers the requests that were posted before it.
    let (from, to, connected, accepted) = pairs.pop().expect("five");
    let heard = two.memory(&[0; 5]);
    to.post_recv(9, &[heard.all()]).expect("room");
    from.post_send(Wr::send_inline(8, b"adieu")).expect("room");
    connected.disconnect();
    assert_eq!((two.done().id, heard.to_vec(0, 5), one.done().id), (9, b"adieu".to_vec(), 8));
    accepted.wait_disconnected(LONG).expect("it is disconnected");
    connected.wait_disconnected(LONG).expect("the initiator is disconnected, too");
    drop((from, to, connected, accepted));
    moves(&one, &two, &pairs, 10_000);
    // Check that no thread spins while nothing arrives.
    one.cq.set_wait(Wait::Interrupt);
    let (clock, cpu) = (Clock::new(), thread_cpu_nanos());
    assert!(matches!(one.cq.wait(Duration::from_millis(300)), Err(Error::Timeout)));
    let (wall, cpu) = (clock.now().as_nanos(), thread_cpu_nanos() - cpu);
    assert!(cpu < wall / 10, "{cpu} ns of {wall} ns");
    // After the board is killed, no work request may hang, and calls must return an error.
    pairs[0].0.post_recv(5, &[]).expect("room");
    let own = one.context.listen(at("10.1.0.1", 0).into(), &Connect::default()).expect("its address");
    near_board.signal("-KILL");
    near_board.wait();
    let lost = one.cq.wait(LONG).expect("a completion");
    assert!(lost.id == 5 && lost.status != Status::Success, "{lost:?}");
    for (qp, ..) in &pairs {
        assert_eq!(qp.state(), QpState::Error);
    }
    let told = |error: Error| assert!(error.to_string().contains("the board has exited"), "{error}");
    told(own.request(LONG).map(|_| ()).expect_err("no client can connect"));
    let options = Connect::default();
    told(one.qp().connect(at("10.1.0.2", 7471).into(), &options, LONG).map(|_| ()).expect_err("no way"));
    told(one.context.listen(at("10.1.0.1", 7).into(), &options).map(|_| ()).expect_err("no way"));
}

#[test]
fn rdma_works_with_the_kernels_tcp_and_impossible_set_ups_are_reported() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("rdma-kernel");
    let _board = dir.up(&format!("{PORT}{ECHO}{ATTACH}"));
    let (board, kernel) = (Side::on(&dir), Side::new(&Lower::Tcp { from: None }));
    let options = Connect::default();
    // Use the NIC's ephemeral ports, and connect in both directions at the same time.
    let on_board = board.context.listen(at("10.9.0.2", 0).into(), &options).expect("its address");
    let on_kernel = kernel.context.listen(at("10.9.0.1", 0).into(), &options).expect("its address");
    for round in 0..2 {
        let pairs: Vec<Pair> = (0..=round).map(|_| join(&board, &kernel, &on_kernel)).collect();
        moves(&board, &kernel, &pairs, 1 << 20);
        let pairs: Vec<Pair> = (0..=3 * round).map(|_| join(&kernel, &board, &on_board)).collect();
        moves(&kernel, &board, &pairs, 100_000);
    }
    // Requests that must fail.
    let refused =
        board.qp().connect(at("10.9.0.1", 5999).into(), &options, LONG).expect_err("there is no listener");
    assert!(matches!(refused, Error::Connect(ConnectError::Unreachable)), "{refused}");
    let lost = board.qp().connect(at("192.0.2.1", 5999).into(), &options, LONG).expect_err("no way");
    assert!(matches!(lost, Error::Connect(ConnectError::Unreachable)), "{lost}");
    let taken = board.context.listen(at("10.9.0.2", 7).into(), &options).map(|_| ()).expect_err("the echo's");
    assert!(taken.to_string().contains("cannot listen on the board at 10.9.0.2:7"), "{taken}");
    // The NIC still works after the failed requests.
    let pairs = [join(&board, &kernel, &on_kernel)];
    moves(&board, &kernel, &pairs, 100_000);
}

/// Runs a program installed on this host; returns whether it succeeded, and its output.
fn told(dir: &TestDir, arguments: &[&str]) -> (bool, String) {
    let output = dir.kiban(arguments);
    (output.status.success(), text(&output))
}

#[test]
fn measurements_run_over_a_board_in_one_process_and_from_another() {
    if !enter() {
        return;
    }
    for shards in ["", "shards = 2\n"] {
        measure_over(&format!("{shards}{PORT}{ATTACH}"));
    }
}

fn measure_over(board: &str) {
    let dir = TestDir::new("rdma-measure");
    let _board = dir.up(board);
    for (what, operation) in [("pingpong", "--send"), ("pingpong", "--read"), ("stream", "--write")] {
        let (is_well, words) =
            told(&dir, &["rdma", what, operation, "--over", "board:lab", "--count", "50", "--quiet"]);
        assert!(is_well && words.contains("both ends here over board:lab"), "{what} {operation}: {words}");
    }
    let mut server = std::process::Command::new(KIBAN)
        .args(["rdma", "serve", "10.9.0.2:7471", "--over", "board"])
        .env("XDG_RUNTIME_DIR", &dir.0)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let mut line = String::new();
    let mut words = BufReader::new(server.stderr.take().expect("piped"));
    words.read_line(&mut line).expect("it says where it serves");
    assert_eq!(line, "serving at 10.9.0.2:7471 over board; press ctrl-c to stop\n");
    for arguments in [
        &["rdma", "pingpong", "10.9.0.2:7471", "--count", "50", "--quiet"][..],
        &["rdma", "stream", "10.9.0.2:7471", "--over", "board:lab", "--count", "50", "--quiet"],
    ] {
        let (is_well, words) = told(&dir, arguments);
        assert!(is_well, "{words}");
    }
    server.kill().expect("it is a child of this process");
    server.wait().expect("it is a child of this process");
    let (is_well, words) = told(&dir, &["rdma", "pingpong", "--over", "board:moon"]);
    assert!(!is_well && words.contains("no board moon is running; running boards: lab"), "{words}");
}
