//! EFE in Ethernet frames: two processes in two network namespaces, joined by a veth pair. Requires root.

use crate::pair::{LONG, Peer, Side, Watch, remote_of, role, spawn, words_of};
use kiban_rdma_runtime::{Access, Address, Connect, ConnectError, Context, Error, Lower, Status, Wr};
use std::process::Command;
use std::time::Duration;

const LENGTH: usize = 200_000;
const SERVICE: u16 = 7;

/// Two joined namespaces, which are removed when the test ends.
struct Networks {
    names: [String; 2],
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Networks {
    fn new() -> Result<Networks, String> {
        let id = std::process::id();
        let names = ["a", "b"].map(|side| format!("kiban-{id}-{side}"));
        let networks = Networks { names };
        let [a, b] = &networks.names;
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        ip(&format!(
            "-n {a} link add rdma0 address {} type veth peer name rdma0 address {} netns {b}",
            mac('a'),
            mac('b')
        ))?;
        ip(&format!("-n {a} link set rdma0 up"))?;
        ip(&format!("-n {b} link set rdma0 up"))?;
        Ok(networks)
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn mac(side: char) -> String {
    format!("02:4b:69:62:61:0{side}")
}

fn bytes_of(side: u8) -> Vec<u8> {
    (0..LENGTH).map(|at| (at * 13 + at / 255) as u8 ^ side).collect()
}

/// Runs one process: it connects, writes, reads and sends, and checks what the other process wrote and sent.
fn play(server: bool) {
    let lower = Lower::EfeRaw { interface: "rdma0".into() };
    let side = Side::new(Context::open(&lower).expect("an interface of this namespace"));
    // Buffers for our data, the peer's write, our read, and the peer's message.
    let [ours, written, read, sent] = [(); 4].map(|()| side.pd.reg_mr(LENGTH, Access::ALL).expect("room"));
    ours.write(0, &bytes_of(u8::from(server)));
    side.qp.post_recv(1, &[sent.all()]).expect("room");
    side.qp.post_recv(2, &[]).expect("room");
    let options = Connect {
        private_data: [words_of(&written), words_of(&ours)].concat(),
        extensions: true,
        ..Connect::default()
    };
    let address = Address::Ethernet { mac: mac('a').parse().expect("an address"), service: SERVICE };
    let (connection, private_data) = if server {
        let listener = side.context.listen(address, &options).expect("free");
        side.accept(&listener, &options)
    } else {
        let begun = Watch::start();
        let connection = loop {
            match side.qp.connect(address, &options, LONG) {
                Ok(connection) => break connection,
                // The other process is not listening yet.
                Err(Error::Connect(
                    ConnectError::Unreachable | ConnectError::Timeout | ConnectError::Lost,
                )) if begun.elapsed() < LONG => {}
                Err(error) => panic!("{error}"),
            }
        };
        let private_data = connection.private_data().to_vec();
        (connection, private_data)
    };
    let (to, from) = (remote_of(&private_data), remote_of(&private_data[12..]));
    side.qp.post_send(Wr::write(10, ours.all(), to)).expect("room");
    side.qp.post_send(Wr::read(11, read.all(), from)).expect("room");
    side.qp.post_send(Wr::send(12, ours.all())).expect("room");
    // This is a fenced message: by the time it arrives, the peer has completed its read.
    side.qp.post_send(Wr::send_inline(13, b"").fenced()).expect("room");
    let mut done: Vec<u64> = (0..6).map(|_| side.done().id).collect();
    done.sort_unstable();
    assert_eq!(done, [1, 2, 10, 11, 12, 13]);
    let theirs = bytes_of(u8::from(!server));
    for (what, mr) in [("written", &written), ("read", &read), ("sent", &sent)] {
        assert!(mr.to_vec(0, LENGTH) == theirs, "what was {what}");
    }
    side.qp.post_recv(3, &[]).expect("room");
    if !server {
        connection.disconnect();
    }
    assert_eq!(side.cq.wait(LONG).expect("the end").status, Status::Flushed);
    connection.wait_disconnected(LONG).expect("over");
    // Give the NIC time to send the last frames.
    let farewell = Watch::start();
    while farewell.elapsed() < Duration::from_millis(100) {
        side.context.progress();
    }
}

#[test]
fn two_network_namespaces_speak_efe_over_a_veth() {
    let story = "raw::two_network_namespaces_speak_efe_over_a_veth";
    if let Some(role) = role() {
        return play(role == "server");
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let networks = match Networks::new() {
        Ok(networks) => networks,
        Err(error) => {
            eprintln!("skipped: no network namespaces here: {error}");
            return;
        }
    };
    let within = |name: &str, role| spawn(&["ip", "netns", "exec", name], story, role);
    let peers: [Peer; 2] = [within(&networks.names[0], "server"), within(&networks.names[1], "client")];
    peers.into_iter().for_each(Peer::succeeds);
}
